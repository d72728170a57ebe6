"""State files: written whole, read strictly, adopted, and distinguished from no state at all.

Once in a folder of this machine, and once in a volume that only the workspace's Files API reaches.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import conditions
from tests.soak import amount
from tests.workspace import FakeWorkspace

from tableferry import storage
from tableferry.errors import StateError
from tableferry.pipelines.model.flows import log_name
from tableferry.pipelines.model.identities import TableIdentity
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, PinnedCopy, Stored, Tracking
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.tables import TableName

TARGET = TableName.parse("silver.orders")
BIG = 2**40 + 7


def migration_start(pipeline_id: str = "p1", target: TableName = TARGET) -> MigrationStart:
    orders, odd = TableName.parse("bronze.orders"), TableName.parse('bronze.`odd, "name"`')
    return MigrationStart(
        pipeline_id,
        target,
        PinnedCopy(TableName.parse("silver.orders_legacy"), "legacy-id", 3),
        {
            orders.key: Baseline(orders, "id-1", BIG, ("v_a", "v_b")),
            odd.key: Baseline(odd, "id-2", 0, ("v_c",)),
        },
        datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )


@pytest.fixture(params=["here", "in a workspace"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder for state."""
    if request.param == "here":
        return tmp_path
    workspace: FakeWorkspace = request.getfixturevalue("logged_in")
    return Path(workspace.make_volume("main", "bronze", "state"), "tableferry")


def text(path: Path) -> str:
    content = storage.read_text(path)
    assert content is not None
    return content


def test_what_is_written_is_read_back_with_64_bit_versions(volume: Path) -> None:
    store = StateStore(volume, "p1")
    assert store.read(TARGET) == Stored()
    assert store.begin(migration_start())
    store.track(migration_start(), Tracking({"bronze.orders": BIG + 1}, 0, 12, "match"))
    actual = store.read(TARGET)
    assert actual.migration_start == migration_start()
    assert actual.tracking is not None
    assert actual.tracking.current["bronze.orders"] == BIG + 1
    assert (actual.tracking.copied, actual.tracking.copied_rows, actual.tracking.verified) == (0, 12, "match")


def test_how_sure_a_hand_over_point_is_stays_known(volume: Path) -> None:
    store = StateStore(volume, "p1")
    start = replace(migration_start(), batches={"query": 12}, certainty="proved")
    store.begin(start)
    assert store.read(TARGET).migration_start == start
    # Older releases wrote no such column, and none knew of a proof.
    path = store.migration_start_file(TARGET)
    storage.write_text(path, text(path).replace("handOver,", "").replace(",proved,", ","))
    assert store.read(TARGET).migration_start == replace(start, certainty="recorded")
    storage.write_text(path, text(path).replace("query:12", ""))
    assert store.read(TARGET).migration_start == replace(start, batches={}, certainty="assumed")
    storage.write_text(path, text(path).replace("oldStreams", "handOver").replace(",,3", ",hoped,3"))
    with conditions.raises("BASELINE_FILE_INVALID", reason=re.compile("handOver is hoped")):
        store.read(TARGET)


def test_the_files_lie_where_the_document_says_and_have_its_columns(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.begin(migration_start())
    store.track(migration_start(), Tracking({"bronze.orders": BIG + 1}))
    folder = "pipelineId=p1/targetTable=silver.orders/part-00000.csv"
    first = list(csv.DictReader(io.StringIO(text(volume / "initial_versions" / folder))))
    second = list(csv.DictReader(io.StringIO(text(volume / "tracking" / folder))))
    assert [row["viewName"] for row in first] == ["v_c", "v_a", "v_b"]
    assert {"tableName", "viewName", "version"} <= first[0].keys()
    assert {"tableName", "viewName", "version", "currentVersion", "ready"} <= second[0].keys()
    assert {row["viewName"]: row["ready"] for row in second} == {"v_a": "true", "v_b": "true", "v_c": "false"}


def test_a_migration_start_is_written_once_by_one_of_many(volume: Path) -> None:
    stores = [StateStore(volume, "p1") for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda store: store.begin(migration_start()), stores))
    assert sorted(won) == [False] * 15 + [True]


def test_the_engine_that_runs_a_migration_is_kept_with_it(volume: Path) -> None:
    store, streaming = StateStore(volume, "p1", "databricks"), StateStore(volume, "p1")
    store.begin(migration_start())
    store.track(migration_start(), Tracking({}, 0, 5, "match"))
    tracking = streaming.read(TARGET).tracking
    assert tracking is not None
    streaming.track(migration_start(), tracking)
    adopted = StateStore(volume, "p2")
    adopted.adopt(TARGET, "p1")
    assert adopted.read(TARGET).engine == "databricks"
    # What an earlier release wrote has no such column.
    rows = list(csv.DictReader(io.StringIO(text(adopted.tracking_file(TARGET)))))
    older = io.StringIO()
    writer = csv.DictWriter(older, [name for name in rows[0] if name != "engine"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    storage.write_text(adopted.tracking_file(TARGET), older.getvalue().replace("\r\n", "\n"))
    assert adopted.read(TARGET).engine == ""
    StateStore(volume, "p2", "databricks").finish(TARGET)
    StateStore(volume, "p2").finish(TARGET)
    assert adopted.read(TARGET).engine == "databricks"


def test_finish_records_that_table_was_taken_over(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.begin(replace(migration_start(), copy=PinnedCopy(TARGET, "id-2", 7)))
    for _ in range(2):
        store.finish(TARGET)
        assert store.read(TARGET) == Stored(finished=True, finished_by="streaming", taken_over=True)


def test_targets_never_touch_each_other(volume: Path) -> None:
    store, other = StateStore(volume, "p1"), TableName.parse("silver.customers")
    store.begin(migration_start())
    store.begin(migration_start(target=other))
    store.finish(other)
    assert store.read(TARGET).migration_start == migration_start()
    assert store.read(other) == Stored(finished=True, finished_by="streaming")


@pytest.mark.parametrize("kind", ["initial_versions", "tracking"])
def test_a_file_cut_anywhere_is_refused_and_never_read_as_no_state(volume: Path, kind: str) -> None:
    store = StateStore(volume, "p1")
    store.begin(migration_start())
    store.track(migration_start(), Tracking({}, 0))
    path = volume / kind / "pipelineId=p1/targetTable=silver.orders/part-00000.csv"
    whole = text(path)
    # Each cut costs some requests through the API, where the reading of what was read is no other. A cut
    # beside the end of a line leaves whole lines.
    step = amount(5, 1) if storage.is_mounted(volume) else amount(35, 7)
    lines = [offset for offset, sign in enumerate(whole) if sign == "\n"]
    for length in sorted({*range(0, len(whole), step), *lines, *(offset + 1 for offset in lines[:-1])}):
        storage.write_text(path, whole[:length])
        with conditions.raises("BASELINE_FILE_INVALID", file=re.compile(r"part-00000\.csv$")):
            store.read(TARGET)


def test_hand_over_of_files_by_an_earlier_version_is_refused(volume: Path) -> None:
    store = StateStore(volume, "p1")
    files = TableName.at("cloudFiles:/in")
    baseline = Baseline(files, "files:query:0", 7, ("v_in",), '{"logOffset":7}')
    assert store.begin(replace(migration_start(), baselines={files.key: baseline}))
    with conditions.raises("STATE_OF_FILE_HAND_OVER", source=files, target=TARGET):
        store.read(TARGET)


def test_a_missing_migration_start_beside_tracking_is_refused(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.begin(migration_start())
    store.track(migration_start(), Tracking({}))
    storage.remove(store.migration_start_file(TARGET))
    with conditions.raises("BASELINES_MISSING", file=re.compile("initial_versions")):
        store.read(TARGET)


def test_progress_of_a_generation_that_another_run_has_replaced_is_not_written(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.begin(migration_start())
    store.track(migration_start(), Tracking({"bronze.orders": 9}, 1, 5, "match"))
    for stale in (Tracking({"bronze.orders": 8}, 0, 4, "match"), Tracking({"bronze.orders": 8})):
        with conditions.raises("REFRESHED_BY_ANOTHER_RUN", target=TARGET):
            store.track(migration_start(), stale)
    found = store.read(TARGET).tracking
    assert found is not None
    assert (found.current["bronze.orders"], found.copied_rows) == (9, 5)


def test_another_pipeline_is_seen_and_adopted_again_after_a_crash(volume: Path) -> None:
    old, new = StateStore(volume, "old"), StateStore(volume, "new id/2")
    old.begin(migration_start("old"))
    old.track(migration_start("old"), Tracking({"bronze.orders": 9}, 0, 5, "match"))
    assert new.read(TARGET).elsewhere == ("old",)
    new.begin(migration_start("new id/2"))  # where an adoption died
    new.adopt(TARGET, "old")
    actual = new.read(TARGET)
    assert actual.migration_start is not None
    assert actual.migration_start.baselines == migration_start().baselines
    assert actual.tracking is not None
    assert actual.tracking.copied_rows == 5
    assert actual.elsewhere == ()
    assert old.read(TARGET).elsewhere == ("new id/2",)


def test_generations_and_their_reset(volume: Path) -> None:
    store = StateStore(volume, "p1")
    storage.make_folder(store.checkpoint(TARGET, 0, "f_a") / "offsets")
    store.start_generation(TARGET, 1)
    assert (store.read(TARGET).generation, store.read(TARGET).resetting) == (1, True)
    store.end_reset(TARGET, 1)
    assert (store.read(TARGET).generation, store.read(TARGET).resetting) == (1, False)
    assert storage.names(store.checkpoints(TARGET)) == ("generation=1",)
    # The mark is what counts, so that there's no moment at which the new generation looks like a whole one.
    storage.make_folder(store.checkpoints(TARGET) / "generation=2")
    store.start_generation(TARGET, 3)
    assert (store.read(TARGET).generation, store.read(TARGET).resetting) == (3, True)
    storage.write_text(store.checkpoints(TARGET) / "_resetting", "")
    with conditions.raises("STATE_FILE_INVALID", file=re.compile("_resetting$")):
        store.read(TARGET)


def test_finishing_that_died_at_any_moment_is_finished(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.begin(migration_start())
    store.track(migration_start(), Tracking({}, 0, 5, "match"))
    storage.write_text(store.checkpoints(TARGET) / "_finished", "")
    assert store.read(TARGET) == Stored(finished=True)
    storage.remove(store.migration_start_file(TARGET))
    assert store.read(TARGET) == Stored(finished=True)
    store.finish(TARGET)
    assert store.read(TARGET) == Stored(finished=True)
    assert all(
        storage.names(volume / kind / "pipelineId=p1") == () for kind in ("initial_versions", "tracking")
    )


def test_a_folder_that_cannot_be_written_is_named(volume: Path) -> None:
    storage.write_text(volume / "state", "a file in the folder's place")
    with pytest.raises(StateError, match=r"part-00000\.csv can't be|initial_versions.* can't be"):
        StateStore(volume / "state", "p1").begin(migration_start())


def test_a_flow_s_checkpoint_gets_another_name_and_can_get_it_again(volume: Path) -> None:
    store = StateStore(volume, "p1")
    old, new = (store.checkpoint(TARGET, 0, name) for name in ("f_old", "f_new"))
    for name in ("offsets/0", "offsets/.0.crc", "commits/0", "metadata"):
        storage.write_text(old / name, name)
    for _ in range(2):
        store.rename_flow(TARGET, 0, "f_old", "f_new")
        assert store.flows(TARGET, 0, ()) == ("f_new",)
        assert {name: storage.read_text(new / name) for name in ("offsets/0", "offsets/.0.crc")} == {
            "offsets/0": "offsets/0",
            "offsets/.0.crc": "offsets/.0.crc",
        }


def test_long_names_are_shortened_and_stay_apart(tmp_path: Path) -> None:
    name = "日" * 40
    targets = [TableName.parse(f"silver.`{name}{end}`") for end in ("a", "b")]
    store = StateStore(tmp_path, "部" * 60)
    for number, target in enumerate(targets):
        start = replace(migration_start(), pipeline_id=store.pipeline_id, target=target)
        assert store.begin(start)
        store.track(start, Tracking({"bronze.orders": number}))
        for flow in (f"f_{name}", "f_short"):
            storage.write_text(store.checkpoint(target, 0, flow) / "metadata", flow)
    for number, target in enumerate(targets):
        tracking = store.read(target).tracking
        assert tracking is not None
        assert tracking.current["bronze.orders"] == number
        assert set(store.flows(target, 0, [f"f_{name}"])) == {f"f_{name}", "f_short"}
        for flow in store.flows(target, 0, ()):
            assert (store.checkpoint(target, 0, flow) / "metadata").exists(), flow
        assert store.lock_file(target).name.endswith(".lock")
    folders = [path.name for path in tmp_path.rglob("*")]
    assert max(len(folder.encode()) for folder in folders) <= 255
    assert StateStore(tmp_path, "p2").read(targets[0]).elsewhere


@pytest.mark.parametrize("length", [242, 243, 244, 300])
def test_a_name_is_shortened_only_where_a_folder_could_not_have_it(length: int) -> None:
    folder = StateStore(Path("state"), "p1").checkpoints(TableName.parse("x" * length)).name
    # The schema "default." is part of the name.
    whole = f"targetTable=default.{'x' * length}"
    assert (folder == whole) == (len(whole) <= 255)
    assert len(folder) <= 255


def test_a_volume_that_is_not_there_is_not_made(logged_in: FakeWorkspace) -> None:
    store = StateStore(Path("/Volumes/nobody/has/this/state"), "p1")
    with conditions.raises("VOLUME_MISSING_IN_WORKSPACE", host=re.compile("^http://127")):
        store.begin(migration_start())
    assert logged_in.folders == set()


@pytest.fixture(params=["volume", "other mount"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a cluster mounts one of cloud storage: whole files, in order, without links and locks.

    Databricks' page on volumes has the limits: "direct-append or non-sequential (random) writes" fail.
    """
    root = tmp_path / "mounted"
    root.mkdir()

    def refuse(path: object) -> None:
        if isinstance(path, str | os.PathLike) and Path(os.fspath(path)).is_relative_to(root):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), os.fspath(path))

    def open_in_order(path: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if {*mode} & {*"a+"}:
            refuse(path)
        return real_open(path, mode, *rest, **options)

    def open_descriptor(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & (os.O_APPEND | os.O_RDWR):
            refuse(path)
        return real_descriptor(path, flags, *rest, **options)

    def lock(handle: Any, operation: int) -> None:
        refuse(getattr(handle, "name", handle))
        real_lock(handle, operation)

    real_open, real_descriptor, real_lock = io.open, os.open, fcntl.flock
    monkeypatch.setattr("io.open", open_in_order)
    monkeypatch.setattr("builtins.open", open_in_order)
    monkeypatch.setattr("os.open", open_descriptor)
    monkeypatch.setattr("fcntl.flock", lock)
    monkeypatch.setattr("os.link", lambda source, to: refuse(to))
    if request.param == "volume":
        for module in ("tableferry.storage", "tableferry.storage.local"):
            monkeypatch.setattr(f"{module}.volume_of", lambda path: root if root in path.parents else None)
    else:
        monkeypatch.setattr("tableferry.storage.local.on_network", lambda path: root in path.parents)
    return root


def test_what_is_said_to_refuse_does(mounted: Path) -> None:
    (mounted / "whole").write_text("text")
    for mode in ("a", "r+", "w+"):
        with pytest.raises(OSError, match="not supported"):
            (mounted / "whole").open(mode)
    with pytest.raises(OSError, match="not supported"):
        os.open(mounted / "whole", os.O_RDWR)


def test_a_migration_s_state_is_kept_where_no_file_can_be_appended_to(mounted: Path) -> None:
    store = StateStore(mounted / "state", "p1")
    for first in (True, False):
        with storage.locked([store.lock_file(TARGET)], "the migration of a"):
            assert store.begin(migration_start()) is first
            store.track(migration_start(), Tracking({"bronze.orders": BIG + 1}, 0, 12, "match"))
            store.leave(TARGET, 0, {"silver.orders": 7})
    actual = store.read(TARGET)
    assert actual.migration_start == migration_start()
    assert (actual.copied, store.versions(TARGET, 0)) == (True, {"silver.orders": 7})
    with storage.locked([store.lock_file(TARGET)], "the migration of a"):
        store.finish(TARGET)
    assert store.read(TARGET) == Stored(finished=True, finished_by="streaming")


def test_nobody_takes_a_file_from_a_writer_on_another_machine(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks hold on this machine alone, a file that nobody here writes isn't one left behind."""
    written = mounted / f".tracking.csv.{'0' * 32}"
    written.write_text("half")
    monkeypatch.setattr("fcntl.flock", lambda handle, operation: None)
    storage.write_text(mounted / "tracking.csv", "whole")
    assert (written.exists(), storage.read_text(mounted / "tracking.csv")) == (True, "whole")


def test_one_lock_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "_a.lock"
    with (
        storage.locked([path], "the migration of a"),
        conditions.raises("LOCK_HELD", task="the migration of a", file=path),
        storage.locked([path], "the migration of a"),
    ):
        pass
    with storage.locked([path], "the migration of a"):
        pass


def test_the_state_of_a_renamed_target_is_renamed_whole_wherever_it_dies(
    volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, old = StateStore(volume, "p1"), TableName.parse("silver.old")
    began = migration_start(target=old)
    tracking = Tracking({}, copied=0)
    identity = TableIdentity("id", 0, {})
    really = storage.move

    class Crash(BaseException):
        pass

    for dies_at in range(4):
        store.begin(began)
        store.track(began, tracking)
        store.identify(old, 0, old, identity)
        store.leave(old, 0, {old.key: 7, log_name(old).key: 3})
        moves = count()

        def move(source: Path, to: Path, moves: Iterator[int] = moves, dies_at: int = dies_at) -> None:
            if next(moves) == dies_at:
                raise Crash
            really(source, to)

        with monkeypatch.context() as patched, suppress(Crash):
            patched.setattr(storage, "move", move)
            store.adopt_renamed(TARGET, "targetTable=silver.old")
        assert store.starts_of_others([TARGET]) or dies_at == 3
        store.adopt_renamed(TARGET, "targetTable=silver.old")
        found = store.read(TARGET)
        assert found.migration_start == replace(began, target=TARGET)
        assert found.copied
        assert store.identities(TARGET, 0) == {TARGET.key: identity}
        assert store.versions(TARGET, 0) == {TARGET.key: 7, log_name(TARGET).key: 3}
        assert store.starts_of_others([TARGET]) == {}
        store.forget(TARGET)
