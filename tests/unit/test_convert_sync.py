"""Syncs of converted tables while other jobs write Parquet: each row exists once."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import conditions, soak
from typer.testing import CliRunner

from tableferry import convert
from tableferry.cli import app
from tableferry.convert import converted_table, plan
from tableferry.convert.discovery import listing
from tableferry.convert.plan import Options
from tableferry.convert.sync import commands
from tableferry.spark.provider import SparkProvider

OLD = 1_600_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a converted table of two partitions."""
    root = tmp_path / "events"
    write(root / "day=1" / "a.parquet", {"id": [1, 2]})
    write(root / "day=2" / "b.parquet", {"id": [3]})
    assert convert.run([str(root)]).ok
    return root


def no_session() -> Any:
    raise AssertionError("a folder needs no Spark")


def write(path: Path, columns: dict[str, Any], types: dict[str, pa.DataType] | None = None) -> None:
    """Write a file as Spark's jobs do: under a hidden name, and then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: pa.array(values, (types or {}).get(name)) for name, values in columns.items()}
    hidden = path.with_name(f"_{path.name}")
    pq.write_table(pa.table(arrays), hidden)
    hidden.rename(path)


def synced(root: Path, **options: Any) -> convert.TableSync:
    [table] = convert.sync([str(root)], resolve=no_session, **options).tables
    return table


def rows(root: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Return the table's rows as delta-rs reads them."""
    table = deltalake.DeltaTable(str(root)).to_pyarrow_table(columns=list(columns or ("id",)))
    return sorted(tuple(row.values()) for row in table.to_pylist())


def ids(root: Path) -> list[int]:
    return [row[0] for row in rows(root)]


def actions(root: Path, version: int) -> list[dict[str, Any]]:
    text = (root / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def of_kind(root: Path, version: int, kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in actions(root, version) if kind in action]


def test_sync_adds_new_files_and_removes_deleted_files(folder: Path) -> None:
    assert synced(folder).outcome == "current"
    write(folder / "day=3" / "c d.parquet", {"id": [4], "name": ["x"]})
    (folder / "day=1" / "a.parquet").rename(folder / "day=2" / "a.parquet")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert synced(folder, dry_run=True).outcome == "planned"
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before

    table = synced(folder)
    assert table.outcome == "synced"
    assert [column.name for column in table.new_columns] == ["name"]
    assert rows(folder, "id", "day", "name") == [(1, 2, None), (2, 2, None), (3, 2, None), (4, 3, "x")]
    assert {path: path.read_bytes() for path in before} == before
    assert synced(folder).outcome == "current"
    assert deltalake.DeltaTable(str(folder)).version() == 1
    history = deltalake.DeltaTable(str(folder)).history()
    assert [entry["operation"] for entry in history] == ["SYNC", "CONVERT"]
    assert history[0]["operationMetrics"] == {
        "numAddedBytes": str(sum(path.stat().st_size for path in folder.glob("day=[23]/[ac]*"))),
        "numAddedFiles": "2",
        "numOutputRows": "3",
        "numRemovedFiles": "1",
    }
    # The columns of old files keep their positions.
    shutil.rmtree(folder / "day=3")
    assert synced(folder).outcome == "synced"
    assert rows(folder, "id", "name") == [(1, None), (2, None), (3, None)]


@pytest.mark.parametrize(
    ("narrow", "wide", "values"),
    [
        (pa.int32(), pa.int64(), ([-5, 7], [2**40])),
        (pa.float32(), pa.float64(), ([0.1, 16777217.0], [0.25])),
        (pa.date32(), pa.timestamp("us"), ([1, 20_000], [datetime(2024, 5, 6, 7)])),
        (pa.decimal128(5, 2), pa.decimal128(20, 4), ([None], [None])),
    ],
    ids=str,
)
def test_sync_rewrites_bounds_of_widened_column(
    tmp_path: Path, narrow: pa.DataType, wide: pa.DataType, values: tuple[list[Any], list[Any]]
) -> None:
    root = tmp_path / "t"
    write(root / "a.parquet", {"id": [1] * len(values[0]), "v": values[0]}, {"v": narrow})
    assert convert.run([str(root)]).ok
    write(root / "b.parquet", {"id": [1], "v": values[1]}, {"v": wide})
    assert synced(root).outcome == "synced"
    [schema] = [json.loads(one["schemaString"]) for one in of_kind(root, 1, "metaData")]
    assert schema != json.loads(of_kind(root, 0, "metaData")[0]["schemaString"])
    old, new = sorted(of_kind(root, 1, "add"), key=lambda add: str(add["path"]))
    # A stream must not read the old rows again.
    assert (old["dataChange"], new["dataChange"]) == (False, True)
    # The table must equal a single conversion of both files.
    both = tmp_path / "both"
    shutil.copytree(root, both, ignore=shutil.ignore_patterns("_delta_log"))
    assert convert.run([str(both)]).ok
    assert [old["stats"], new["stats"]] == [add["stats"] for add in of_kind(both, 0, "add")]
    assert json.loads(of_kind(both, 0, "metaData")[0]["schemaString"]) == schema
    assert rows(root, "v") == rows(both, "v")
    assert of_kind(root, 1, "protocol") == [
        one for one in of_kind(both, 0, "protocol") if one != of_kind(root, 0, "protocol")[0]
    ]


def test_sync_refuses_contradicting_files_and_writes_nothing(folder: Path) -> None:
    write(folder / "day=1" / "c.parquet", {"id": ["x"]})
    table = synced(folder)
    assert table.outcome == "refused"
    conflict = {"column": "id", "type": "bigint", "file": "the table", "other_type": "string"}
    conditions.check(table.error, "COLUMN_TYPES_CONFLICT", **conflict, other="day=1/c.parquet")
    write(folder / "day=1" / "c.parquet", {"id": [9], "a b": [1]})
    conditions.check(synced(folder).error, "COLUMN_NAMES_NEED_MAPPING_IN_SYNC", columns=["`a b`"])
    (folder / "day=1" / "c.parquet").unlink()
    write(folder / "hour=1" / "d.parquet", {"id": [9]})
    assert synced(folder).outcome == "refused"
    assert deltalake.DeltaTable(str(folder)).version() == 0


def test_sync_leaves_out_empty_file_with_other_types(folder: Path) -> None:
    write(folder / "day=1" / "c.parquet", {"id": []}, {"id": pa.string()})
    left_out = (
        "1 file is left out, as it has no rows, and other columns or types than the rest: day=1/c.parquet",
    )
    table = synced(folder)
    assert (table.outcome, table.notes, table.error) == ("current", left_out, None)
    write(folder / "day=1" / "d.parquet", {"id": [4]})
    assert (synced(folder).outcome, ids(folder)) == ("synced", [1, 2, 3, 4])
    assert synced(folder).outcome == "current"
    write(folder / "day=1" / "c.parquet", {"id": ["x"]})
    conditions.check(
        synced(folder).error,
        "COLUMN_TYPES_CONFLICT",
        column="id",
        type="bigint",
        file="the table",
        other_type="string",
        other="day=1/c.parquet",
    )


def test_sync_leaves_out_file_that_conversion_left_out(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "a.parquet", {"id": [1]})
    write(root / "b.parquet", {"id": []}, {"id": pa.string()})
    assert convert.run([str(root)]).ok
    assert synced(root).outcome == "current"


def test_sync_adds_untyped_nulls_if_table_type_fits(folder: Path) -> None:
    write(folder / "day=1" / "c.parquet", {"id": [None]}, {"id": pa.null()})
    assert synced(folder).outcome == "synced"
    found = deltalake.DeltaTable(str(folder)).to_pyarrow_table(columns=["id"]).column("id").to_pylist()
    assert sorted(found, key=lambda number: number or 9) == [1, 2, 3, None]
    write(folder / "day=1" / "d.parquet", {"id": [5], "more": [None]}, {"more": pa.null()})
    table = synced(folder)
    assert table.outcome == "refused"
    conditions.check(
        table.error,
        "COLUMN_WITHOUT_TYPE",
        table=folder,
        column="more",
        files="every new file",
        file="day=1/d.parquet",
        advice=re.compile("^Rewrite the files with the column's type, or without the column"),
    )


def test_sync_refuses_unfit_partition_with_remedy(folder: Path) -> None:
    odd = folder / "day=soon" / "c.parquet"
    write(odd, {"id": [4]})
    refusal = synced(folder)
    assert refusal.outcome == "refused"
    conditions.check(
        refusal.error,
        "PARTITION_VALUE_INVALID",
        value="soon",
        type="int",
        column="day",
        file="day=soon/c.parquet",
        advice=re.compile("^Rename the directory, or move the file away"),
    )
    odd.parent.rename(folder / "day=3")
    assert synced(folder).outcome == "synced"
    assert rows(folder, "id", "day") == [(1, 1), (2, 1), (3, 2), (4, 3)]


def test_sync_notes_partition_in_another_spelling(folder: Path) -> None:
    write(folder / "day=01" / "c.parquet", {"id": [4]})
    table = synced(folder)
    assert (table.outcome, table.notes) == ("synced", ("'01' and '1' are the same value of day",))
    assert rows(folder, "id", "day") == [(1, 1), (2, 1), (3, 2), (4, 1)]


def test_sync_refuses_touched_file(folder: Path) -> None:
    os.utime(folder / "day=1" / "a.parquet", (OLD, OLD))
    conditions.check(synced(folder).error, "FILES_REWRITTEN_IN_PLACE", files=["day=1/a.parquet"])
    assert synced(folder, rewritten=True).outcome == "synced"
    assert ids(folder) == [1, 2, 3]


def test_sync_treats_plain_subfolders_like_conversion(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "a.parquet", {"id": [1]})
    assert convert.run([str(root)]).ok
    write(root / "more" / "b.parquet", {"id": [2]})
    conditions.check(synced(root).error, "SUBFOLDERS_LEFT_OUT", file="a.parquet", subfolder="more")
    assert synced(root, include_subfolders=True).outcome == "synced"
    assert ids(root) == [1, 2]


def test_sync_assigns_ids_to_new_mapped_columns(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write(root / "a.parquet", {"i d": [1]})
    assert convert.run([str(root)], column_mapping=True).ok
    write(root / "b.parquet", {"i d": [2], "more": [{"x": 1}]})
    assert synced(root).outcome == "synced"
    [metadata] = of_kind(root, 1, "metaData")
    fields = json.loads(metadata["schemaString"])["fields"]
    assert [field["metadata"]["delta.columnMapping.id"] for field in fields] == [1, 2]
    assert fields[1]["type"]["fields"][0]["metadata"]["delta.columnMapping.id"] == 3
    assert metadata["configuration"]["delta.columnMapping.maxColumnId"] == "3"


def test_sync_adds_rewritten_file_with_option(folder: Path) -> None:
    write(folder / "day=1" / "a.parquet", {"id": [1, 22, 23]})
    table = synced(folder)
    assert table.outcome == "refused"
    conditions.check(table.error, "FILES_REWRITTEN_IN_PLACE", files=["day=1/a.parquet"])
    assert synced(folder, rewritten=True).outcome == "synced"
    assert ids(folder) == [1, 3, 22, 23]
    assert synced(folder).outcome == "current"


def test_sync_defers_file_in_progress_and_reports_broken_file(folder: Path) -> None:
    half = folder / "day=1" / "half.parquet"
    half.write_bytes(b"PAR1half")
    write(folder / "day=1" / "whole.parquet", {"id": [4]})
    table = synced(folder)
    assert (table.outcome, ids(folder)) == ("synced", [1, 2, 3, 4])
    assert table.notes == ("left for the next sync, as they may still be written: day=1/half.parquet",)
    table = synced(folder)
    assert (table.outcome, len(table.notes)) == ("current", 1)
    os.utime(half, (OLD, OLD))
    write(folder / "day=1" / "more.parquet", {"id": [5]})
    for outcome in ("failed", "failed"):
        table = synced(folder)
        assert table.outcome == outcome
        truncated = re.compile("^day=1/half.parquet is truncated")
        conditions.check(table.error, "SYNC_LEFT_OUT_UNREADABLE_FILES", files=truncated)
        assert ids(folder) == [1, 2, 3, 4, 5]
    write(half, {"id": [6]})
    assert (synced(folder).outcome, ids(folder)) == ("synced", [1, 2, 3, 4, 5, 6])


def append(folder: Path) -> None:
    table = pa.table({"id": [9], "day": pa.array([1], pa.int32())})
    deltalake.write_deltalake(str(folder), table, mode="append")


def delete(folder: Path) -> None:
    deltalake.DeltaTable(str(folder)).delete("id = 1")


def optimize(folder: Path) -> None:
    write(folder / "day=1" / "small.parquet", {"id": [8]})
    assert synced(folder).outcome == "synced"
    deltalake.DeltaTable(str(folder)).optimize.compact()


def set_property(folder: Path) -> None:
    properties = {"delta.logRetentionDuration": "interval 30 days"}
    deltalake.DeltaTable(str(folder)).alter.set_table_properties(properties)


def add_column(folder: Path) -> None:
    field = deltalake.Field("more", deltalake.schema.PrimitiveType("string"))
    deltalake.DeltaTable(str(folder)).alter.add_columns([field])


def constrain(folder: Path) -> None:
    deltalake.DeltaTable(str(folder)).alter.add_constraint({"positive": "id > 0"})


@pytest.mark.parametrize(
    ("theirs", "condition", "parameters"),
    [
        (
            append,
            "TABLE_WRITTEN_AS_DELTA",
            {"version": 1, "operation": "WRITE", "change": "changes its files"},
        ),
        (
            delete,
            "TABLE_WRITTEN_AS_DELTA",
            {"version": 1, "operation": "DELETE", "change": "changes its files"},
        ),
        (
            optimize,
            "TABLE_WRITTEN_AS_DELTA",
            {"version": 2, "operation": "OPTIMIZE", "change": "changes its files"},
        ),
        (add_column, "TABLE_WRITTEN_AS_DELTA", {"change": "changes its columns"}),
        (
            constrain,
            "SYNC_NEEDS_ROW_CHECKS",
            {"features": re.compile("checkConstraints|delta.constraints.positive")},
        ),
    ],
    ids=lambda theirs: getattr(theirs, "__name__", ""),
)
def test_sync_stops_after_rows_of_another_writer(
    folder: Path, theirs: Callable[[Path], None], condition: str, parameters: dict[str, object]
) -> None:
    theirs(folder)
    version = deltalake.DeltaTable(str(folder)).version()
    write(folder / "day=2" / "new.parquet", {"id": [4]})
    for _ in range(2):
        table = synced(folder)
        assert table.outcome == "refused"
        conditions.check(table.error, condition, **parameters)
    assert deltalake.DeltaTable(str(folder)).version() == version


def test_sync_continues_after_property_change_and_vacuum(folder: Path) -> None:
    delta = deltalake.DeltaTable(str(folder))
    delta.alter.set_table_properties({"delta.checkpointInterval": "3"})
    delta.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    write(folder / "day=1" / "c.parquet", {"id": [4]})
    assert (synced(folder).outcome, ids(folder)) == ("synced", [1, 2, 3, 4])
    assert deltalake.DeltaTable(str(folder)).metadata().configuration == {"delta.checkpointInterval": "3"}


def test_sync_refuses_deleted_files_of_append_only_table(folder: Path) -> None:
    deltalake.DeltaTable(str(folder)).alter.set_table_properties({"delta.appendOnly": "true"})
    (folder / "day=2" / "b.parquet").unlink()
    table = synced(folder)
    assert table.outcome == "refused"
    conditions.check(table.error, "APPEND_ONLY_TABLE_LOST_FILES", files=["day=2/b.parquet"])


def test_sync_reads_long_log_from_checkpoint(folder: Path) -> None:
    for number in range(1, 13):
        write(folder / "day=9" / f"{number}.parquet", {"id": [100 + number]})
        assert synced(folder).notes == ()
    log = folder / "_delta_log"
    assert (log / f"{10:020}.checkpoint.parquet").exists()
    for version in range(10):
        (log / f"{version:020}.json").unlink()
    write(folder / "day=9" / "13.parquet", {"id": [113]})
    assert synced(folder).outcome == "synced"
    assert ids(folder) == [1, 2, 3, *range(101, 114)]
    # Only this commit is missing after the last synced version.
    set_property(folder)
    (log / f"{13:020}.json").rename(folder / "_13")
    assert synced(folder).outcome in ("refused", "failed")
    (folder / "_13").rename(log / f"{13:020}.json")
    assert synced(folder).outcome == "current"


def test_concurrent_syncs_write_each_version_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = commands._without_rewritten_files
    write(folder / "day=1" / "c.parquet", {"id": [4]})

    def another_first(*arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(commands, "_without_rewritten_files", look)
        write(folder / "day=1" / "d.parquet", {"id": [5]})
        assert synced(folder).outcome == "synced"
        write(folder / "day=1" / "e.parquet", {"id": [6]})
        return look(*arguments, **options)

    monkeypatch.setattr(commands, "_without_rewritten_files", another_first)
    assert synced(folder).outcome == "synced"
    assert ids(folder) == [1, 2, 3, 4, 5, 6]
    assert deltalake.DeltaTable(str(folder)).version() == 2

    def another_process(*arguments: Any, **options: Any) -> Any:
        append(folder)
        return look(*arguments, **options)

    write(folder / "day=1" / "f.parquet", {"id": [7]})
    monkeypatch.setattr(commands, "_without_rewritten_files", another_process)
    conditions.check(synced(folder).error, "TABLE_WRITTEN_AS_DELTA", change="changes its files")
    assert ids(folder) == [1, 2, 3, 4, 5, 6, 9]


def test_sync_adds_file_renamed_during_listing_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing may have both names, or none."""
    list_files = listing.list_files
    write(folder / "day=1" / "c.parquet", {"id": [4]})
    assert synced(folder).outcome == "synced"
    old, new = folder / "day=1" / "c.parquet", folder / "day=2" / "c.parquet"

    def under_both(root: Path) -> Any:
        files = list_files(root)
        monkeypatch.setattr(listing, "list_files", list_files)
        old.rename(new)
        return tuple(sorted({*files, *list_files(root)}))

    monkeypatch.setattr(listing, "list_files", under_both)
    assert synced(folder).outcome == "synced"
    assert rows(folder, "id", "day") == [(1, 1), (2, 1), (3, 2), (4, 2)]

    def under_none(root: Path) -> Any:
        monkeypatch.setattr(listing, "list_files", list_files)
        files = list_files(root)
        new.rename(old)
        return tuple(sorted({*files} & {*list_files(root)}))

    monkeypatch.setattr(listing, "list_files", under_none)
    assert synced(folder).outcome == "synced"
    assert rows(folder, "id", "day") == [(1, 1), (2, 1), (3, 2), (4, 1)]
    [committed] = {version for version in (2, 3) if len(of_kind(folder, version, "remove")) == 1} - {2}
    assert len(of_kind(folder, committed, "add")) == 1


def test_sync_fails_after_losing_every_race(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = commands._unchanged

    def another_process(changes: Any, root: Path, **_: Any) -> Any:
        set_property(folder)
        return look(changes, root)

    write(folder / "day=1" / "c.parquet", {"id": [4]})
    for check in ("_without_rewritten_files", "_unchanged"):
        monkeypatch.setattr(commands, check, another_process)
    with conditions.raises("SYNC_LOST_RACES", table=folder):
        commands.follow(folder, Options(), SparkProvider(None, no_session), lambda *_: None)


@settings(max_examples=soak.amount(15, 300), deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 60),
    st.sampled_from([("replace",), ("replace", "add", "remove", "move")]),
)
def test_synced_version_equals_folder_at_one_moment(
    chance: random.Random, changed: int, kinds: tuple[str, ...]
) -> None:
    """Files are added, removed and renamed while the folder is listed."""
    list_folder, numbers = listing._list_folder, count(100)
    with TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        folder = Path(temporary) / "events"
        for number in range(12):
            write(folder / f"day={number % 3}" / f"{number}.parquet", {"id": [number]})
        assert convert.run([str(folder)]).ok
        left = iter(range(changed))
        moments: set[frozenset[str]] = set()

        def note() -> None:
            moments.add(frozenset(str(path.relative_to(folder)) for path in folder.glob("day=*/*.parquet")))

        def change_one() -> None:
            """Replace a file as compactions do, or add, remove or move one."""
            if next(left, None) is None:
                return
            old = chance.choice(sorted(folder.glob("day=*/*.parquet")))
            new = folder / f"day={chance.randrange(3)}" / f"{next(numbers)}.parquet"
            kind = chance.choice(kinds)
            if kind == "move":
                new.parent.mkdir(exist_ok=True)
                old.rename(new)
            elif kind != "remove":
                write(new, {"id": [0]})
            note()
            if kind in ("replace", "remove") and len(sorted(folder.glob("day=*/*.parquet"))) > 2:
                old.unlink()
                note()

        def list_slowly(root: Path, below: str) -> Any:
            found = list_folder(root, below)
            for _ in range(chance.randrange(3)):
                change_one()
            return found

        note()
        patch.setattr(listing, "_list_folder", list_slowly)
        assert synced(folder).error is None
        patch.undo()
        table = deltalake.DeltaTable(str(folder))
        assert frozenset(str(Path(uri).relative_to(folder)) for uri in table.file_uris()) in moments
        assert synced(folder).error is None
        now = {str(path.relative_to(folder)) for path in folder.glob("day=*/*.parquet")}
        uris = deltalake.DeltaTable(str(folder)).file_uris()
        assert {str(Path(uri).relative_to(folder)) for uri in uris} == now


def test_sync_skips_folder_that_never_settles(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_folder, numbers = listing._list_folder, count()

    def busy(root: Path, below: str) -> Any:
        found = list_folder(root, below)
        for old in (folder / "day=1").glob("*.parquet"):
            old.rename(old.with_name(f"{next(numbers)}.parquet"))
        return found

    write(folder / "day=2" / "c.parquet", {"id": [4]})
    for module in (commands, listing):
        monkeypatch.setattr(module, "pause", lambda *_, **__: None)
    monkeypatch.setattr(listing, "_list_folder", busy)
    conditions.check(synced(folder).error, "FOLDER_CHANGES_TOO_FAST", folder=folder)


def test_each_row_exists_once_while_others_write(folder: Path) -> None:
    """A writer appends, a loop syncs, and a reader reads concurrently."""
    ended, failures = threading.Event(), list[BaseException]()
    written: list[int] = []
    versions = soak.amount(12, 100)
    # The limit of files before each listing; a folder that grows faster never settles.
    ahead = 4
    may_write = threading.Semaphore(0)

    def writer() -> None:
        while may_write.acquire() and not ended.is_set():
            number = 100 + len(written)
            write(folder / f"day={number % 5}" / f"{number}.parquet", {"id": [number]})
            written.append(number)

    def reader() -> None:
        seen: set[int] = set()
        try:
            while not ended.is_set():
                now = Counter(ids(folder))
                assert set(now.values()) == {1}
                assert seen <= now.keys()
                seen = set(now)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=target) for target in (writer, reader)]
    for thread in threads:
        thread.start()
    try:
        while versions and not failures:
            may_write.release(ahead)
            report = synced(folder)
            assert report.error is None
            versions -= report.outcome == "synced"
    finally:
        ended.set()
        may_write.release()
        for thread in threads:
            thread.join()
    synced(folder)
    assert failures == []
    assert ids(folder) == [1, 2, 3, *written]


EVENT = st.tuples(
    st.sampled_from(["append", "remove", "move", "column", "widen", "sync", "settings", "killed"]),
    st.integers(0, 3),
)


@given(st.lists(EVENT, min_size=3, max_size=12))
def test_synced_table_equals_folder_after_any_changes(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]]
) -> None:
    root = tmp_path_factory.mktemp("lake") / "t"
    write(root / "day=0" / "first.parquet", {"id": [0]}, {"id": pa.int32()})
    assert convert.run([str(root)]).ok
    # The expected rows of each file.
    held: dict[Path, tuple[int, str | None]] = {root / "day=0" / "first.parquet": (0, None)}
    wide = False
    for number, (event, day) in enumerate(events, 1):
        path = root / f"day={day}" / f"{number}.parquet"
        match event:
            case "append" | "column" | "widen":
                wide = wide or event == "widen"
                columns: dict[str, Any] = {"id": [number]}
                if event == "column":
                    columns["name"] = [f"n{number}"]
                write(path, columns, {"id": pa.int64() if event == "widen" else pa.int32()})
                held[path] = (number, f"n{number}" if event == "column" else None)
            case "remove" | "move" if len(held) > 1:
                chosen = sorted(held)[day % len(held)]
                values = held.pop(chosen)
                if event == "remove":
                    chosen.unlink()
                else:
                    path.parent.mkdir(exist_ok=True)
                    chosen.rename(path)
                    held[path] = values
            case "settings":
                set_property(root)
            case "killed":
                # Its process ends directly before or after its commit.
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(commands, "_checkpointed" if day % 2 else "put", _killed)
                    with pytest.raises(KeyboardInterrupt) if _differs(root) else _nothing():
                        synced(root)
        if event == "sync":
            assert synced(root).error is None
            assert synced(root).outcome == "current"
    assert synced(root).error is None
    has_names = any(field.name == "name" for field in deltalake.DeltaTable(str(root)).schema().fields)
    actual = rows(root, "id", "name") if has_names else [(one, None) for (one,) in rows(root, "id")]
    assert actual == sorted(held.values())
    adds = (action["add"] for action in _all_actions(root) if "add" in action)
    assert set(Counter(add["path"] for add in adds if add["dataChange"]).values()) == {1}


def _killed(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def _differs(root: Path) -> bool:
    return synced(root, dry_run=True).outcome == "planned"


def _all_actions(root: Path) -> list[dict[str, Any]]:
    version = deltalake.DeltaTable(str(root)).version()
    return [action for number in range(version + 1) for action in actions(root, number)]


def test_sync_command_prints_result(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)

    def run(*arguments: str) -> tuple[int, str]:
        ended = CliRunner().invoke(app, ["convert", "sync", *arguments])
        return ended.exit_code, " ".join(ended.stdout.split())

    assert run("events") == (0, "./events holds what its folder holds: nothing to do")
    write(folder / "day=3" / "c.parquet", {"id": [4], "name": ["x"]})
    (folder / "day=2" / "b.parquet").unlink()
    code, text = run("events", "--dry-run")
    assert code == 0
    assert "./events: would be version 1: 1 file added (" in text
    assert text.endswith("Nothing was written: run it without --dry-run.")
    code, text = run("events")
    assert "./events: version 1: 1 file added (" in text
    assert text.endswith(", 1 row), 1 file removed ./events: new column name string")
    (folder.parent / "plain").mkdir()
    write(folder.parent / "plain" / "a.parquet", {"id": [1]})
    code, text = run("events", "plain")
    assert code == 1
    assert "Refused: [SYNC_OF_PARQUET_TABLE] ./plain " in text
    assert "2 tables: 1 current, 1 refused" in text
    assert run(".", "--recursive")[0] == 0
    assert "[FOLDER_MISSING] nowhere " in run("./nowhere")[1]
    assert CliRunner().invoke(app, ["convert", "sync"]).exit_code == 2
    code, text = run("events", "--output", "json")
    assert json.loads(text) == {
        "ok": True,
        "tables": [
            {
                "source": "./events",
                "outcome": "current",
                "error": None,
                "skipped": "",
                "version": None,
                "added": [],
            }
            | {"removed": [], "bytes": None, "rows": None, "newColumns": [], "notes": []}
        ],
    }


def test_conversion_of_many_files_writes_checkpoint(tmp_path: Path) -> None:
    write(tmp_path / "few" / "0.parquet", {"id": [0]})
    shutil.copytree(tmp_path / "few", tmp_path / "many")
    for number in range(1, 1001):
        shutil.copy(tmp_path / "few" / "0.parquet", tmp_path / "many" / f"{number}.parquet")
    for name, there in (("few", False), ("many", True)):
        root = tmp_path / name
        [table] = convert.run([str(root)]).tables
        assert table.plan is not None
        assert any("checkpoint" in str(step) for step in table.plan.steps) == there
        log = root / "_delta_log"
        assert (log / f"{0:020}.checkpoint.parquet").exists() == there
        assert len(deltalake.DeltaTable(str(root)).file_uris()) == (1001 if there else 1)
        convert.undo(str(root))
        assert not log.exists()
        assert convert.run([str(root)]).ok
        write(root / "new.parquet", {"id": [1]})
        assert synced(root).outcome == "synced"


def test_conversion_without_checkpoint_is_complete(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    convert.undo(str(folder))
    monkeypatch.setattr(plan, "MANY", 1)
    for name in [name for name in sys.modules if name.partition(".")[0] == "deltalake"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert convert.run([str(folder)]).ok
    assert "[MISSING_PACKAGE_FOR_SYNC]" in caplog.text
    conditions.check(
        synced(folder).error,
        "MISSING_PACKAGE_FOR_SYNC",
        package="deltalake",
        command="pip install 'tableferry[sync]'",
    )
    monkeypatch.undo()
    assert ids(folder) == [1, 2, 3]


def test_sync_that_cannot_write_its_checkpoint_is_complete(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake.DeltaTable(str(folder)).alter.set_table_properties({"delta.checkpointInterval": "1"})
    write_checkpoint = converted_table.write_checkpoint

    def undone_before(root: Path) -> None:
        shutil.rmtree(folder / "_delta_log")
        write_checkpoint(root)

    monkeypatch.setattr(converted_table, "write_checkpoint", undone_before)
    write(folder / "day=1" / "c.parquet", {"id": [4]})
    table = synced(folder)
    assert (table.outcome, table.error) == ("synced", None)
    assert any("SYNC_OF_PARQUET_TABLE" in note for note in table.notes)


def test_sync_ignores_file_deleted_before_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_files = listing.list_files
    write(folder / "day=1" / "c.parquet", {"id": [4]})
    os.utime(folder / "day=1" / "c.parquet", (OLD, OLD))

    def gone(root: Path) -> Any:
        files = list_files(root)
        (folder / "day=1" / "c.parquet").unlink()
        monkeypatch.setattr(listing, "list_files", list_files)
        return files

    monkeypatch.setattr(listing, "list_files", gone)
    table = synced(folder)
    assert (table.outcome, table.error, table.notes) == ("current", None, ())
