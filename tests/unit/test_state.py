"""State files: atomic writes, refusal of damaged files, adoption of another pipeline's state, and locks.

Most tests run in a local folder and in a volume that only the workspace's Files API can reach.
"""

from __future__ import annotations

import csv
import errno
import fcntl
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests import conditions
from tests.soak import amount
from tests.workspace import FakeWorkspace

from tableferry import storage
from tableferry.errors import StateError
from tableferry.pipelines.model.flows import event_log_name
from tableferry.pipelines.model.identities import FlowIdentity, TableIdentity
from tableferry.pipelines.model.target_state import (
    Baseline,
    MigrationStart,
    PinnedCopy,
    TargetState,
    Tracking,
)
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


def read_text(path: Path) -> str:
    content = storage.read_text(path)
    assert content is not None
    return content


def test_store_reads_back_state_with_64_bit_versions(volume: Path) -> None:
    store = StateStore(volume, "p1")
    assert store.read(TARGET) == TargetState()
    assert store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({"bronze.orders": BIG + 1}, 0, 12, "match"))
    actual = store.read(TARGET)
    assert actual.migration_start == migration_start()
    assert actual.tracking is not None
    assert actual.tracking.current["bronze.orders"] == BIG + 1
    assert (actual.tracking.copied, actual.tracking.copied_rows, actual.tracking.verified) == (0, 12, "match")


def test_store_reads_certainty_of_hand_over_and_derives_missing_one(
    volume: Path,
) -> None:
    store = StateStore(volume, "p1")
    start = replace(migration_start(), batches={"query": 12}, certainty="proved")
    store.record_start(start)
    assert store.read(TARGET).migration_start == start
    storage.remove(store.state_file(TARGET))
    path = store.migration_start_file(TARGET)
    storage.write_text(path, read_text(path).replace("handOver,", "").replace(",proved,", ","))
    assert store.read(TARGET).migration_start == replace(start, certainty="recorded")
    storage.write_text(path, read_text(path).replace("query:12", ""))
    assert store.read(TARGET).migration_start == replace(start, batches={}, certainty="assumed")
    storage.write_text(path, read_text(path).replace("oldStreams", "handOver").replace(",,3", ",hoped,3"))
    with conditions.raises("BASELINE_FILE_INVALID", reason=re.compile("handOver is hoped")):
        store.read(TARGET)


def test_csv_files_have_documented_paths_and_columns(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({"bronze.orders": BIG + 1}))
    folder = "pipelineId=p1/targetTable=silver.orders/part-00000.csv"
    first = list(csv.DictReader(io.StringIO(read_text(volume / "initial_versions" / folder))))
    second = list(csv.DictReader(io.StringIO(read_text(volume / "tracking" / folder))))
    assert [row["viewName"] for row in first] == ["v_c", "v_a", "v_b"]
    assert {"tableName", "viewName", "version"} <= first[0].keys()
    assert {"tableName", "viewName", "version", "currentVersion", "ready"} <= second[0].keys()
    assert {row["viewName"]: row["ready"] for row in second} == {"v_a": "true", "v_b": "true", "v_c": "false"}


def test_one_of_concurrent_stores_records_migration_start(volume: Path) -> None:
    stores = [StateStore(volume, "p1") for _ in range(16)]
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(lambda store: store.record_start(migration_start()), stores))
    assert sorted(won) == [False] * 15 + [True]


def test_store_keeps_engine_of_migration(volume: Path) -> None:
    store, streaming = StateStore(volume, "p1", "databricks"), StateStore(volume, "p1")
    store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({}, 0, 5, "match"))
    tracking = streaming.read(TARGET).tracking
    assert tracking is not None
    streaming.record_progress(migration_start(), tracking)
    adopted = StateStore(volume, "p2")
    adopted.adopt(TARGET, "p1")
    assert adopted.read(TARGET).engine == "databricks"
    # Older versions wrote no document, and the oldest ones no column for the engine.
    storage.remove(adopted.state_file(TARGET))
    rows = list(csv.DictReader(io.StringIO(read_text(adopted.tracking_file(TARGET)))))
    older = io.StringIO()
    writer = csv.DictWriter(older, [name for name in rows[0] if name != "engine"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    storage.write_text(adopted.tracking_file(TARGET), older.getvalue().replace("\r\n", "\n"))
    assert adopted.read(TARGET).engine == ""
    StateStore(volume, "p2", "databricks").finish(TARGET)
    StateStore(volume, "p2").finish(TARGET)
    assert adopted.read(TARGET).engine == "databricks"


def test_finish_records_take_over(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.record_start(replace(migration_start(), copy=PinnedCopy(TARGET, "id-2", 7)))
    for _ in range(2):
        store.finish(TARGET)
        assert store.read(TARGET) == TargetState(finished=True, finished_by="streaming", taken_over=True)


def test_finish_of_one_target_keeps_state_of_another(volume: Path) -> None:
    store, other = StateStore(volume, "p1"), TableName.parse("silver.customers")
    store.record_start(migration_start())
    store.record_start(migration_start(target=other))
    store.finish(other)
    assert store.read(TARGET).migration_start == migration_start()
    assert store.read(other) == TargetState(finished=True, finished_by="streaming")


def check_truncations_are_refused(path: Path, condition: str, store: StateStore) -> None:
    """Truncate a file at every length, and check that it is refused."""
    whole = read_text(path)
    # Each read through the Files API is a request. The same code parses the text, so fewer lengths suffice.
    step = amount(5, 1) if storage.is_mounted(store.volume) else amount(35, 7)
    ends = [offset for offset, sign in enumerate(whole) if sign == "\n"]
    for length in sorted({*range(0, len(whole), step), *ends, *(offset + 1 for offset in ends[:-1])}):
        storage.write_text(path, whole[:length])
        with conditions.raises(condition, file=path):
            store.read(TARGET)


def test_store_refuses_truncated_document(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({}, 0))
    check_truncations_are_refused(store.state_file(TARGET), "STATE_FILE_INVALID", store)


@pytest.mark.parametrize("kind", ["initial_versions", "tracking"])
def test_store_refuses_truncated_csv_file_without_document(volume: Path, kind: str) -> None:
    store = StateStore(volume, "p1")
    store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({}, 0))
    storage.remove(store.state_file(TARGET))
    path = volume / kind / "pipelineId=p1/targetTable=silver.orders/part-00000.csv"
    check_truncations_are_refused(path, "BASELINE_FILE_INVALID", store)


def test_store_refuses_hand_over_of_files_by_earlier_version(volume: Path) -> None:
    store = StateStore(volume, "p1")
    files = TableName.at("cloudFiles:/in")
    baseline = Baseline(files, "files:query:0", 7, ("v_in",), '{"logOffset":7}')
    assert store.record_start(replace(migration_start(), baselines={files.key: baseline}))
    with conditions.raises("STATE_OF_FILE_HAND_OVER", source=files, target=TARGET):
        store.read(TARGET)


def test_store_refuses_tracking_without_migration_start(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({}))
    storage.remove(store.state_file(TARGET))
    storage.remove(store.migration_start_file(TARGET))
    with conditions.raises("BASELINES_MISSING", file=re.compile("initial_versions")):
        store.read(TARGET)


def test_store_refuses_progress_of_replaced_generation(volume: Path) -> None:
    store = StateStore(volume, "p1")
    store.record_start(migration_start())
    store.record_progress(migration_start(), Tracking({"bronze.orders": 9}, 1, 5, "match"))
    for stale in (Tracking({"bronze.orders": 8}, 0, 4, "match"), Tracking({"bronze.orders": 8})):
        with conditions.raises("REFRESHED_BY_ANOTHER_RUN", target=TARGET):
            store.record_progress(migration_start(), stale)
    found = store.read(TARGET).tracking
    assert found is not None
    assert (found.current["bronze.orders"], found.copied_rows) == (9, 5)


def test_store_names_and_adopts_state_of_another_pipeline(volume: Path) -> None:
    old, new = StateStore(volume, "old"), StateStore(volume, "new id/2")
    old.record_start(migration_start("old"))
    old.record_progress(migration_start("old"), Tracking({"bronze.orders": 9}, 0, 5, "match"))
    assert new.read(TARGET) == TargetState(elsewhere=("old",))
    assert not new.record_start(migration_start("new id/2"))
    new.adopt(TARGET, "old")
    actual = new.read(TARGET)
    assert actual.migration_start is not None
    assert actual.migration_start.baselines == migration_start().baselines
    assert actual.tracking is not None
    assert actual.tracking.copied_rows == 5
    assert actual.elsewhere == ()
    assert old.read(TARGET).elsewhere == ("new id/2",)


def test_generation_is_resetting_until_reset_ends(volume: Path) -> None:
    store = StateStore(volume, "p1")
    storage.make_folder(store.checkpoint_folder(TARGET, 0, "f_a") / "offsets")
    store.start_generation(TARGET, 1)
    assert (store.read(TARGET).generation, store.read(TARGET).resetting) == (1, True)
    store.end_reset(TARGET, 1)
    assert (store.read(TARGET).generation, store.read(TARGET).resetting) == (1, False)
    assert storage.names(store.target_folder(TARGET)) == ("state.json",)
    # The document determines the generation, not the folders, so an unfinished reset isn't complete.
    storage.make_folder(store.target_folder(TARGET) / "generation=2")
    store.start_generation(TARGET, 3)
    assert (store.read(TARGET).generation, store.read(TARGET).resetting) == (3, True)


def test_store_refuses_unreadable_mark_of_older_version(volume: Path) -> None:
    store = StateStore(volume, "p1")
    storage.write_text(store.target_folder(TARGET) / "_resetting", "")
    with conditions.raises("STATE_FILE_INVALID", file=re.compile("_resetting$")):
        store.read(TARGET)


class Crash(BaseException):
    pass


IDENTITY = TableIdentity("table-id", 0, {})


def record_copied_state(store: StateStore, target: TableName = TARGET) -> None:
    """Record the state of a migration whose copy is complete."""
    start = migration_start(store.pipeline_id, target)
    store.record_start(start)
    store.record_progress(start, Tracking({}, 0, 5, "match"))
    storage.write_text(store.checkpoint_folder(target, 0, "f_new") / "metadata", "{}")
    store.record_table_identity(target, 0, target, replace(IDENTITY))
    store.record_versions(target, 0, {target.key: 7, event_log_name(target).key: 3})


def refresh(store: StateStore) -> None:
    store.start_generation(TARGET, 1)
    store.end_reset(TARGET, 1)


def undo(store: StateStore) -> None:
    store.start_undo(TARGET)
    store.remove(TARGET)


RENAMED = TableName.parse("silver.old")
OPERATIONS: dict[str, tuple[Callable[[StateStore], object], Callable[[StateStore], object]]] = {
    "begin": (lambda store: None, lambda store: store.record_start(migration_start())),
    "track": (
        record_copied_state,
        lambda store: store.record_progress(migration_start(), Tracking({}, 0, 6, "match")),
    ),
    "finish": (record_copied_state, lambda store: store.finish(TARGET)),
    "refresh": (record_copied_state, refresh),
    "undo": (record_copied_state, undo),
    "adopt": (
        lambda store: record_copied_state(replace(store, pipeline_id="old")),
        lambda store: store.adopt(TARGET, "old"),
    ),
    "rename": (
        lambda store: record_copied_state(store, RENAMED),
        lambda store: store.adopt_renamed(TARGET, "targetTable=silver.old"),
    ),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operation_repeated_after_crash_at_any_effect_has_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    prepare, operate = OPERATIONS[operation]
    originals = {name: getattr(storage, name) for name in ("write_text", "create_text", "remove", "move")}
    expected = StateStore(tmp_path / "expected", "p1")
    prepare(expected)
    operate(expected)
    for crash_at in count():
        store = StateStore(tmp_path / str(crash_at), "p1")
        prepare(store)
        before = store.read(TARGET)
        effects = count()

        def effect(
            name: str, *values: Any, effects: Iterator[int] = effects, crash_at: int = crash_at
        ) -> Any:
            if next(effects) == crash_at:
                raise Crash
            return originals[name](*values)

        crashed = True
        with monkeypatch.context() as patched, suppress(Crash):
            for name in originals:
                patched.setattr(storage, name, partial(effect, name))
            operate(store)
            crashed = False
        # The state always contains the recorded start, or shows its location.
        between = store.read(TARGET)
        if before.migration_start and not between.migration_start:
            assert between.finished or between.undoing or between == TargetState()
        if operation == "rename" and not between.migration_start:
            assert store.find_unclaimed_folders({TARGET.key: between})
            adopting = replace(store, renamed_folders={TARGET.key: "targetTable=silver.old"})
            assert without_times(adopting.read(TARGET)) == without_times(expected.read(TARGET))
            assert adopting.list_flows(TARGET, 0, ()) == ("f_new",)
        if operation == "adopt" and not between.migration_start:
            assert between.elsewhere == ("old",)
        if operation == "undo" and between == TargetState():
            assert not storage.names(store.target_folder(TARGET))
        else:
            operate(store)
        found = store.read(TARGET)
        wanted = expected.read(TARGET)
        assert without_times(found) == without_times(wanted)
        assert store.find_unclaimed_folders({TARGET.key: found}) == {}
        if not crashed:
            assert crash_at
            break


def without_times(state: TargetState) -> TargetState:
    if state.tracking is None:
        return state
    return replace(state, tracking=replace(state.tracking, updated_at=None))


OLDER = json.loads(Path(__file__).with_name("older_state.json").read_text(encoding="utf-8"))


def older_start() -> MigrationStart:
    orders, odd = TableName.parse("bronze.orders"), TableName.parse('bronze.`odd, "name"`')
    baselines = {
        orders.key: Baseline(orders, "id-1", BIG, ("v_a", "v_b")),
        odd.key: Baseline(odd, "id-2", 0, ("v_c",), '{"index":2}'),
    }
    return replace(migration_start(), baselines=baselines, batches={"query": 12}, certainty="recorded")


def older_states() -> dict[str, TargetState]:
    """Return the state in each phase that an older version has written in `older_state.json`."""
    settings = {"keys": "id", "scd_type": "1", "sequence_by": "seq"}
    flow = FlowIdentity(settings, {"bronze.orders": "id-1"}, "checkpoint-id")
    identity = TableIdentity("table-id", 0, {"f_new": flow}, "silver.orders_legacy@3", settings)
    start, at = older_start(), datetime(2026, 1, 3, tzinfo=UTC)
    current = {"bronze.orders": BIG + 2, 'bronze.odd, "name"': 0}
    tracking = Tracking(current, updated_at=at, engine="streaming")
    done = replace(tracking, copied=0, copied_rows=12, verified="match")
    versions = {TARGET.key: 7, event_log_name(TARGET).key: 3}
    tables = {TARGET.key: identity}
    copied = TargetState(start, replace(done, started=("f_new", "f ;odd")), tables=tables, versions=versions)
    second = {TARGET.key: replace(identity, generation=1)}
    refreshed = TargetState(
        start, replace(done, copied=1), generation=1, tables=second, versions={TARGET.key: 9}
    )
    finished = replace(refreshed, migration_start=None, tracking=None, finished=True, finished_by="streaming")
    taken = replace(start, copy=PinnedCopy(TARGET, "id-2", 7))
    undoing = TargetState(
        taken, replace(tracking, current={"bronze.orders": BIG, 'bronze.odd, "name"': 0}, copied=0)
    )
    undoing = replace(undoing, undoing=True)
    return {
        "begun": TargetState(start),
        "tracked": TargetState(start, tracking),
        "copied": copied,
        "resetting": replace(copied, generation=1, resetting=True),
        "refreshed": refreshed,
        "finished": finished,
        "finished_half": finished,
        "taken_over": TargetState(finished=True, finished_by="streaming", taken_over=True),
        "undoing": undoing,
        "undone_half": TargetState(undoing=True),
        "unmigrated": TargetState(tables=tables, versions={TARGET.key: 7}),
    }


@pytest.mark.parametrize("phase", OLDER)
def test_first_write_converts_state_of_older_version(volume: Path, phase: str) -> None:
    expected = older_states()[phase]
    for name, content in OLDER[phase].items():
        storage.write_text(volume / name, content)
    store = StateStore(volume, "p1")
    assert store.read(TARGET) == expected
    generation = expected.generation
    store.record_versions(TARGET, generation, {"silver.staging": 5})
    assert storage.exists(store.state_file(TARGET))
    versions = {**expected.versions, "silver.staging": 5}
    assert store.read(TARGET) == replace(expected, versions=versions)
    # The older files have no effect after the first write.
    for name in OLDER[phase]:
        if name.startswith("checkpoints/") and not name.endswith("metadata"):
            storage.remove(volume / name)
    assert store.read(TARGET) == replace(expected, versions=versions)


def test_store_names_folder_that_is_not_writable(volume: Path) -> None:
    storage.write_text(volume / "state", "a file in the folder's place")
    with pytest.raises(StateError, match=r"state.* can't be"):
        StateStore(volume / "state", "p1").record_start(migration_start())


def test_rename_of_checkpoint_can_be_repeated(volume: Path) -> None:
    store = StateStore(volume, "p1")
    old, new = (store.checkpoint_folder(TARGET, 0, name) for name in ("f_old", "f_new"))
    for name in ("offsets/0", "offsets/.0.crc", "commits/0", "metadata"):
        storage.write_text(old / name, name)
    for _ in range(2):
        store.rename_flow(TARGET, 0, "f_old", "f_new")
        assert store.list_flows(TARGET, 0, ()) == ("f_new",)
        assert {name: storage.read_text(new / name) for name in ("offsets/0", "offsets/.0.crc")} == {
            "offsets/0": "offsets/0",
            "offsets/.0.crc": "offsets/.0.crc",
        }


def test_shortened_long_names_stay_distinct(tmp_path: Path) -> None:
    name = "日" * 40
    targets = [TableName.parse(f"silver.`{name}{end}`") for end in ("a", "b")]
    store = StateStore(tmp_path, "部" * 60)
    for number, target in enumerate(targets):
        start = replace(migration_start(), pipeline_id=store.pipeline_id, target=target)
        assert store.record_start(start)
        store.record_progress(start, Tracking({"bronze.orders": number}))
        for flow in (f"f_{name}", "f_short"):
            storage.write_text(store.checkpoint_folder(target, 0, flow) / "metadata", flow)
    for number, target in enumerate(targets):
        tracking = store.read(target).tracking
        assert tracking is not None
        assert tracking.current["bronze.orders"] == number
        assert set(store.list_flows(target, 0, [f"f_{name}"])) == {f"f_{name}", "f_short"}
        for flow in store.list_flows(target, 0, ()):
            assert (store.checkpoint_folder(target, 0, flow) / "metadata").exists(), flow
        assert store.lock_file(target).name.endswith(".lock")
    folders = [path.name for path in tmp_path.rglob("*")]
    assert max(len(folder.encode()) for folder in folders) <= 255
    assert StateStore(tmp_path, "p2").read(targets[0]).elsewhere


@pytest.mark.parametrize("length", [242, 243, 244, 300])
def test_folder_name_is_shortened_only_above_255_bytes(length: int) -> None:
    folder = StateStore(Path("state"), "p1").target_folder(TableName.parse("x" * length)).name
    # The schema "default." is part of the name.
    whole = f"targetTable=default.{'x' * length}"
    assert (folder == whole) == (len(whole) <= 255)
    assert len(folder) <= 255


def test_store_does_not_create_missing_volume(logged_in: FakeWorkspace) -> None:
    store = StateStore(Path("/Volumes/main/missing/state"), "p1")
    with conditions.raises("VOLUME_MISSING_IN_WORKSPACE", host=re.compile("^http://127")):
        store.record_start(migration_start())
    assert logged_in.folders == set()


@pytest.fixture(params=["volume", "other mount"])
def mounted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the limits of cloud storage on a cluster: only sequential writes, no links, no locks.

    Databricks' page on volumes states: "direct-append or non-sequential (random) writes" fail.
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


def test_mounted_folder_refuses_append_and_random_writes(mounted: Path) -> None:
    (mounted / "whole").write_text("text")
    for mode in ("a", "r+", "w+"):
        with pytest.raises(OSError, match="not supported"):
            (mounted / "whole").open(mode)
    with pytest.raises(OSError, match="not supported"):
        os.open(mounted / "whole", os.O_RDWR)


def test_store_keeps_state_on_mount_without_appends(mounted: Path) -> None:
    store = StateStore(mounted / "state", "p1")
    for first in (True, False):
        with storage.locked([store.lock_file(TARGET)], "the migration of a"):
            assert store.record_start(migration_start()) is first
            store.record_progress(migration_start(), Tracking({"bronze.orders": BIG + 1}, 0, 12, "match"))
            store.record_versions(TARGET, 0, {"silver.orders": 7})
    actual = store.read(TARGET)
    assert actual.migration_start == migration_start()
    assert (actual.copied, store.read_versions(TARGET, 0)) == (True, {"silver.orders": 7})
    with storage.locked([store.lock_file(TARGET)], "the migration of a"):
        store.finish(TARGET)
    assert store.read(TARGET) == TargetState(
        finished=True, finished_by="streaming", versions={"silver.orders": 7}
    )


def test_write_keeps_unfinished_file_of_writer_on_another_machine(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If locks work only on one machine, a file without a local writer may still have a writer elsewhere."""
    written = mounted / f".tracking.csv.{'0' * 32}"
    written.write_text("half")
    monkeypatch.setattr("fcntl.flock", lambda handle, operation: None)
    storage.write_text(mounted / "tracking.csv", "whole")
    assert (written.exists(), storage.read_text(mounted / "tracking.csv")) == (True, "whole")


def test_second_lock_on_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "_a.lock"
    with (
        storage.locked([path], "the migration of a"),
        conditions.raises("LOCK_HELD", task="the migration of a", file=path),
        storage.locked([path], "the migration of a"),
    ):
        pass
    with storage.locked([path], "the migration of a"):
        pass


def test_adopted_renamed_target_has_identities_and_versions_under_new_name(volume: Path) -> None:
    store = StateStore(volume, "p1")
    record_copied_state(store, RENAMED)
    other = TableName.parse("silver.other")
    assert store.find_unclaimed_folders({TARGET.key: TargetState()}) == {
        "legacy-id": ("targetTable=silver.old",)
    }
    store.adopt_renamed(TARGET, "targetTable=silver.old")
    found = store.read(TARGET)
    assert found.migration_start == migration_start()
    assert found.copied
    assert store.read_identities(TARGET, 0) == {TARGET.key: IDENTITY}
    assert store.read_versions(TARGET, 0) == {TARGET.key: 7, event_log_name(TARGET).key: 3}
    assert store.find_unclaimed_folders({other.key: TargetState()}) == {
        "legacy-id": ("targetTable=silver.orders",)
    }
