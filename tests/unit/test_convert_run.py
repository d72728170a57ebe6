"""Conversions of folders of Parquet files, complete or not at all, without a JVM."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests import conditions

from tableferry import convert, storage
from tableferry.convert.discovery import listing
from tableferry.formats.delta import initial_commit
from tableferry.storage import local

FIRST = "00000000000000000000.json"


def write(root: Path, files: dict[str, dict[str, list[Any]]]) -> Path:
    for path, columns in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), root / path)
    return root


def content(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def actions(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "_delta_log" / FIRST).read_text().splitlines()]


def rows(root: Path) -> list[dict[str, Any]]:
    table = pa.table(deltalake.DeltaTable(root).to_pyarrow_table())
    return sorted(table.to_pylist(), key=repr)


def no_session() -> Any:
    raise AssertionError("a folder needs no Spark")


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return write(
        tmp_path / "events",
        {
            "day=2024-01-01/a.parquet": {"id": [1, 2], "name": ["x", None]},
            "day=2024-01-02/b.parquet": {"id": [3], "name": ["y"]},
            "day=__HIVE_DEFAULT_PARTITION__/c.parquet": {"id": [4], "name": ["z"]},
        },
    )


def test_folder_is_converted_without_spark(events: Path) -> None:
    before = content(events)

    done = convert.run([str(events)], resolve=no_session)

    assert [table.outcome for table in done.tables] == ["converted"]
    assert done.ok
    after = content(events)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"_delta_log", f"_delta_log/{FIRST}"}
    assert [(row["id"], row["name"], str(row["day"])) for row in rows(events)] == [
        (1, "x", "2024-01-01"),
        (2, None, "2024-01-01"),
        (3, "y", "2024-01-02"),
        (4, "z", "None"),
    ]


def test_commit_has_fields_of_native_conversion(events: Path) -> None:
    convert.run([str(events)], resolve=no_session)

    info, metadata, protocol, *adds = actions(events)

    assert info["commitInfo"]["operation"] == "CONVERT"
    assert info["commitInfo"]["operationParameters"] == {
        "numFiles": 3,
        "partitionedBy": '["day"]',
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    assert info["commitInfo"]["operationMetrics"] == {"numConvertedFiles": "3"}
    assert protocol == {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    assert metadata["metaData"]["partitionColumns"] == ["day"]
    assert [add["add"]["partitionValues"]["day"] for add in adds] == ["2024-01-01", "2024-01-02", None]
    assert json.loads(adds[0]["add"]["stats"]) == {
        "numRecords": 2,
        "minValues": {"id": 1, "name": "x"},
        "maxValues": {"id": 2, "name": "x"},
        "nullCount": {"id": 0, "name": 1},
    }


def test_convert_without_statistics_writes_none(events: Path) -> None:
    convert.run([str(events)], statistics=convert.Statistics.NONE, resolve=no_session)

    assert not any("stats" in action.get("add", {}) for action in actions(events))
    assert len(rows(events)) == 4


def test_dry_run_returns_same_plan_and_writes_nothing(events: Path) -> None:
    before = content(events)

    planned = convert.run([str(events)], dry_run=True, resolve=no_session).tables[0]

    assert content(events) == before
    assert planned.outcome == "planned"
    done = convert.run([str(events)], resolve=no_session).tables[0]
    assert planned.plan is not None
    assert done.plan is not None
    assert planned.plan.schema == done.plan.schema
    assert [type(step) for step in planned.plan.steps] == [type(step) for step in done.plan.steps]


def test_convert_skips_delta_table(events: Path) -> None:
    convert.run([str(events)], resolve=no_session)
    before = content(events)

    result = convert.run([str(events)], resolve=no_session)

    assert [table.outcome for table in result.tables] == ["already"]
    assert result.ok
    assert content(events) == before


def test_file_names_are_encoded_once_in_log(tmp_path: Path) -> None:
    root = write(
        tmp_path / "t",
        {
            "at=2024-01-01 10%3A00%3A00/a b.parquet": {"id": [1]},
            "at=2024-01-01 11%3A30%3A00/100%.parquet": {"id": [2]},
            "at=2024-01-01 12%3A00%3A00/ü=é+&#?.parquet": {"id": [3]},
        },
    )

    convert.run([str(root)], resolve=no_session)

    assert [row["id"] for row in rows(root)] == [1, 2, 3]
    assert actions(root)[3]["add"]["path"] == "at=2024-01-01%2010%253A00%253A00/a%20b.parquet"


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ('a b%41/[x]{y}^`|\\"<>#?', "a%20b%2541/%5Bx%5D%7By%7D%5E%60%7C%5C%22%3C%3E%23%3F"),
        ("-.~!$&'()*+,;=@", "-.~!$&'()*+,;=@"),
        ("ü/日本😀\u200b\ue000", "ü/日本😀\u200b\ue000"),
        ("x\x80\xa0\u2028\u3000", "x%C2%80%C2%A0%E2%80%A8%E3%80%80"),
        ("k=1/l=a:b/cd", "k=1/l=a:b/cd"),
        ("k=a:b/cd", "k=a%3Ab/cd"),
    ],
)
def test_paths_in_log_are_encoded_like_delta(tmp_path: Path, path: str, spelled: str) -> None:
    root = write(tmp_path / "t", {path: {"id": [1]}})

    plan = convert.run([str(root)], resolve=no_session).tables[0].plan

    assert plan is not None
    assert any("VACUUM" in note for note in plan.notes) == spelled.startswith("k=a%3A")
    assert actions(root)[3]["add"]["path"] == spelled
    assert rows(root)[0]["id"] == 1


def test_files_in_plain_subfolders_require_include_subfolders(tmp_path: Path) -> None:
    root = write(tmp_path / "t", {"a.parquet": {"id": [1]}, "old/b.parquet": {"id": [2]}})
    [refused] = convert.run([str(root)], resolve=no_session).tables
    assert refused.outcome == "refused"
    conditions.check(refused.error, "SUBFOLDERS_LEFT_OUT", folder=root, file="a.parquet", subfolder="old")
    assert not (root / "_delta_log").exists()
    assert convert.run([str(root)], include_subfolders=True, resolve=no_session).ok
    assert sorted(row["id"] for row in rows(root)) == [1, 2]
    # A partitioned table, or a union in Hive, has only folders.
    apart = write(tmp_path / "u", {"x/a.parquet": {"id": [1]}, "y/b.parquet": {"id": [2]}})
    assert convert.run([str(apart)], resolve=no_session).ok


def test_leftovers_of_killed_conversion_are_removed(tmp_path: Path) -> None:
    root = write(tmp_path / "t", {"a.parquet": {"id": [1]}})
    log = root / "_delta_log"
    log.mkdir()
    left = log / f".{'0' * 20}.json.{'ab' * 16}"
    left.write_text("{")
    held = log / f".{'0' * 20}.json.{'cd' * 16}"
    with held.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert convert.run([str(root)], resolve=no_session).ok
        # Another process is writing this file.
        assert sorted(path.name for path in log.iterdir()) == [held.name, f"{'0' * 20}.json"]


def test_partition_column_in_files_keeps_its_position(tmp_path: Path) -> None:
    root = write(tmp_path / "t", {"day=2/a.parquet": {"a": [1], "day": [9], "b": [2]}})

    plan = convert.run([str(root)], resolve=no_session).tables[0].plan

    assert plan is not None
    assert plan.schema is not None
    assert [(field.name, str(field.type)) for field in plan.schema.fields] == [
        ("a", "bigint"),
        ("day", "int"),
        ("b", "bigint"),
    ]
    assert any("`day`" in note for note in plan.notes)
    assert rows(root) == [{"a": 1, "day": 2, "b": 2}]


def test_invalid_column_names_require_column_mapping(tmp_path: Path) -> None:
    root = write(tmp_path / "t", {"a.parquet": {"a name": [1], "b": [{"x,y": 2}]}})
    before = content(root)

    refused = convert.run([str(root)], resolve=no_session).tables[0]
    assert refused.outcome == "refused"
    conditions.check(refused.error, "COLUMN_NAMES_NEED_MAPPING", table=root, columns=["`a name`", "`b.x,y`"])
    assert content(root) == before

    assert convert.run([str(root)], column_mapping=True, resolve=no_session).ok
    metadata = actions(root)[1]["metaData"]
    assert metadata["configuration"] == {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "3",
    }


def _spoil_text(root: Path) -> None:
    (root / "README.txt").write_text("hello")


def _spoil_empty(root: Path) -> None:
    (root / "day=2024-01-01" / "zero.parquet").touch()


def _spoil_cut(root: Path) -> None:
    whole = (root / "day=2024-01-01" / "a.parquet").read_bytes()
    (root / "day=2024-01-01" / "a.parquet").write_bytes(whole[:-20])


def _spoil_depth(root: Path) -> None:
    write(root, {"loose.parquet": {"id": [1]}})


def _spoil_type(root: Path) -> None:
    write(root, {"day=2024-01-01/t.parquet": {"id": ["text"]}})


def _spoil_log(root: Path) -> None:
    (root / "_delta_log").mkdir()
    (root / "_delta_log" / FIRST).touch()


def _spoil_case(root: Path) -> None:
    write(root, {"day=2024-01-01/t.parquet": {"ID": [1]}})


@pytest.mark.parametrize(
    ("spoil", "condition", "parameters"),
    [
        (_spoil_text, "UNREADABLE_FILES", {"files": re.compile("^README.txt ")}),
        (
            _spoil_empty,
            "UNREADABLE_FILES",
            {"files": re.compile("^day=2024-01-01/zero.parquet is empty .0 bytes")},
        ),
        (
            _spoil_cut,
            "UNREADABLE_FILES",
            {"files": re.compile("^day=2024-01-01/a.parquet is truncated")},
        ),
        (_spoil_depth, "PARTITION_COLUMNS_DIFFER", {"file": "loose.parquet"}),
        (_spoil_log, "EMPTY_COMMIT", {"file": re.compile(f"_delta_log/{FIRST}$")}),
        (
            _spoil_type,
            "COLUMN_TYPES_CONFLICT",
            {
                "column": "id",
                "type": "bigint",
                "file": "day=2024-01-01/a.parquet",
                "other_type": "string",
                "other": "day=2024-01-01/t.parquet",
            },
        ),
        (_spoil_case, "COLUMN_SPELLED_DIFFERENTLY", {"column": "id", "other_column": "ID"}),
    ],
)
def test_refused_folder_is_named_and_unchanged(
    events: Path, spoil: Callable[[Path], None], condition: str, parameters: dict[str, object]
) -> None:
    spoil(events)
    before = content(events)

    table = convert.run([str(events)], resolve=no_session).tables[0]

    assert table.outcome == "refused"
    conditions.check(table.error, condition, **parameters)
    assert content(events) == before


def test_refused_table_does_not_stop_other_tables(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / "lake" / name, {"1.parquet": {"id": [1]}})
    _spoil_text(tmp_path / "lake" / "b")

    done = convert.run([str(tmp_path / "lake")], recursive=True, resolve=no_session)

    assert [(Path(table.source).name, table.outcome) for table in done.tables] == [
        ("a", "converted"),
        ("b", "refused"),
        ("c", "converted"),
    ]
    assert not done.ok
    (tmp_path / "lake" / "b" / "README.txt").unlink()
    result = convert.run([str(tmp_path / "lake")], recursive=True, resolve=no_session)
    assert [table.outcome for table in result.tables] == ["already", "converted", "already"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", ["appears", "vanishes", "is written again"])
def test_file_changed_during_run_is_reported_and_not_committed(
    events: Path, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    listed = listing.list_files
    listings = 0

    def list_files(root: Path) -> Any:
        nonlocal listings
        listings += 1
        if listings == {"before": 2, "after": 3}[moment]:
            match change:
                case "appears":
                    write(events, {"day=2024-01-02/late.parquet": {"id": [9], "name": ["w"]}})
                case "vanishes":
                    (events / "day=2024-01-02" / "b.parquet").unlink()
                case _:
                    os.utime(events / "day=2024-01-02" / "b.parquet", (1, 1))
        return listed(root)

    monkeypatch.setattr(listing, "list_files", list_files)

    table = convert.run([str(events)], resolve=no_session).tables[0]

    assert table.outcome == "refused"
    conditions.check(
        table.error, "FILES_CHANGED_DURING_CONVERSION", table=events, changes=re.compile("day=2024-01-02/")
    )
    assert not (events / "_delta_log").exists()
    assert not [name for name in os.listdir(events) if name.startswith("_")]


def test_concurrent_converters_write_one_commit(events: Path) -> None:
    outcomes: list[str] = []
    together = threading.Barrier(8)

    def convert_once() -> None:
        together.wait()
        outcomes.append(convert.run([str(events)], resolve=no_session).tables[0].outcome)

    threads = [threading.Thread(target=convert_once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert outcomes.count("converted") == 1
    assert set(outcomes) <= {"converted", "already", "failed"}
    assert len(actions(events)) == 6
    assert os.listdir(events / "_delta_log") == [FIRST]


# Dies without cleanup directly before the given effect on files below its folder.
DYING = """
import os, sys
from pathlib import Path
root, at, verb = sys.argv[1], int(sys.argv[2]), sys.argv[3]
from tableferry import convert, storage
convert.run([root], dry_run=True)
seen = 0
def watch(event, arguments):
    global seen
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    if writes or event in ("os.mkdir", "os.link", "os.rename", "os.remove", "os.rmdir"):
        if str(arguments[0]).startswith(root) or not str(arguments[0]).startswith("/"):
            seen += 1
            if seen == at:
                os._exit(9)
sys.addaudithook(watch)
convert.run([root]) if verb == "run" else convert.undo(root)
"""


def _die(root: Path, at: int, function: str) -> bool:
    package = {**os.environ, "PYTHONPATH": str(Path(convert.__file__).parents[2])}
    command = [sys.executable, "-c", DYING, str(root), str(at), function]
    died = subprocess.run(command, env=package, check=False, timeout=60)
    assert died.returncode in (0, 9)
    return died.returncode == 9


def test_crash_leaves_no_commit_or_complete_one_and_next_run_resumes(events: Path, tmp_path: Path) -> None:
    whole = None
    for at in range(1, 20):
        root = tmp_path / f"copy{at}"
        shutil.copytree(events, root)
        died = _die(root, at, "run")
        first = root / "_delta_log" / FIRST
        if first.exists():
            assert len(actions(root)) == 6
        else:
            assert died
        assert convert.run([str(root)], resolve=no_session).ok
        assert len(actions(root)) == 6
        assert len(rows(root)) == 4
        if not died:
            whole = at
            break
    assert whole is not None
    assert whole > 3


def test_undo_restores_folder(events: Path) -> None:
    before = content(events)
    convert.run([str(events)], resolve=no_session)

    convert.undo(str(events), resolve=no_session)

    assert content(events) == before
    assert convert.run([str(events)], resolve=no_session).ok


def test_undo_survives_crash_at_any_effect(events: Path, tmp_path: Path) -> None:
    before = content(events)
    convert.run([str(events)], resolve=no_session)
    deaths = 0
    for at in range(1, 20):
        root = tmp_path / f"copy{at}"
        shutil.copytree(events, root)
        died = _die(root, at, "undo")
        deaths += died
        if content(root) != before:
            assert died
            convert.undo(str(root), resolve=no_session)
            assert content(root) == before
        if not died:
            break
    assert deaths >= 3


def test_undo_reads_a_commit_whose_comment_has_odd_line_ends(events: Path) -> None:
    convert.run([str(events)], resolve=no_session)
    first = events / "_delta_log" / FIRST
    info, *rest = first.read_text().split("\n")
    noted = info.replace('"readVersion"', '"note":"a\u2028b\x85c","readVersion"')
    first.write_text("\n".join([noted, *rest]))

    convert.undo(str(events), resolve=no_session)

    assert not (events / "_delta_log").exists()


def test_undo_refuses_table_with_later_commit(events: Path) -> None:
    convert.run([str(events)], resolve=no_session)
    deltalake.DeltaTable(events).delete("id = 1")
    before = content(events)

    with conditions.raises("WRITTEN_AFTER_CONVERSION", table=events):
        convert.undo(str(events), resolve=no_session)

    assert content(events) == before


def test_undo_restores_log_written_after_its_check(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert.run([str(events)], resolve=no_session)
    look = initial_commit.require_only_a_conversion
    written: list[dict[str, bytes | None]] = []

    def look_too_early(root: Path) -> None:
        look(root)
        deltalake.DeltaTable(root).delete("id = 1")
        written.append(content(root))

    monkeypatch.setattr(initial_commit, "require_only_a_conversion", look_too_early)

    with conditions.raises("WRITTEN_AFTER_CONVERSION", table=events):
        convert.undo(str(events), resolve=no_session)

    assert [content(events)] == written


def test_undo_refuses_unconverted_folder(tmp_path: Path, events: Path) -> None:
    deltalake.write_deltalake(tmp_path / "born", pa.table({"id": [1]}))
    with conditions.raises("NOT_A_CONVERSION", table=tmp_path / "born"):
        convert.undo(str(tmp_path / "born"), resolve=no_session)
    with conditions.raises("NOT_A_DELTA_TABLE", table=events):
        convert.undo(str(events), resolve=no_session)


def test_replaced_converter_reports_on_storage_without_exclusive_create(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def move(temporary: Path, path: Path) -> bool:
        """Create a file as storage without hard links does, where several processes may create one folder."""
        os.replace(temporary, path)
        return True

    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    together, real = threading.Barrier(2), initial_commit.put

    def put(root: Path, table_id: str, lines: Any, **options: Any) -> None:
        together.wait(60)
        real(root, table_id, lines, **options)
        together.wait(60)

    monkeypatch.setattr(local, "_claim_and_move", move)
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(initial_commit, "put", put)
    done: list[convert.TableReport] = []
    threads = [
        threading.Thread(target=lambda: done.extend(convert.run([str(events)], resolve=no_session).tables))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one.outcome for one in done) == ["converted", "failed"]
    [error] = [one.error for one in done if one.error]
    conditions.check(error, "CONVERTED_BY_ANOTHER_PROCESS", table=events)
    assert len(rows(events)) == 4


def test_claim_is_removed_on_storage_without_exclusive_create(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(os, "link", no_links)
    log = events / "_delta_log"
    claim = log / f"_{FIRST}.claim"
    assert convert.run([str(events)], resolve=no_session).ok
    assert os.listdir(log) == [FIRST]

    # A leftover of an earlier release or of a process that died.
    claim.mkdir()
    assert not storage.create_text(log / FIRST, "")
    assert os.listdir(log) == [FIRST]
    assert not storage.create_text(log / FIRST, "")
    assert os.listdir(log) == [FIRST]
    assert len(rows(events)) == 4

    # The owner of a claim without its file may still run.
    convert.undo(str(events))
    claim.mkdir(parents=True)
    [report] = convert.run([str(events)], resolve=no_session).tables
    conditions.check(report.error, "CLAIM_HELD", file=events / "_delta_log" / FIRST, claim=claim)


@pytest.mark.parametrize("full", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("effect", ["mkdir", "open", "fsync", "link"])
def test_full_disk_is_reported_and_leaves_no_file(
    events: Path, monkeypatch: pytest.MonkeyPatch, effect: str, full: int
) -> None:
    before = content(events)
    log, real_open = events / "_delta_log", Path.open

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(full, os.strerror(full))

    def open_(path: Path, *arguments: Any, **options: Any) -> Any:
        return fail() if path.parent == log else real_open(path, *arguments, **options)

    match effect:
        case "open":
            monkeypatch.setattr(Path, "open", open_)
        case "mkdir":
            monkeypatch.setattr(Path, "mkdir", fail)
        case _:
            monkeypatch.setattr(os, effect, fail)

    one = convert.run([str(events)], resolve=no_session).tables[0]

    assert one.outcome == "failed"
    file = re.compile(f"^{re.escape(str(log))}$") if effect == "mkdir" else log / FIRST
    conditions.check(one.error, "STORAGE_FULL", file=file, reason=os.strerror(full))
    assert content(events) == before


def test_folder_of_another_format_is_refused_with_its_name(tmp_path: Path) -> None:
    hudi = write(tmp_path / "hudi", {"a.parquet": {"id": [1]}})
    (hudi / ".hoodie").mkdir()

    done = convert.run([str(hudi)], resolve=no_session)

    [one] = done.tables
    conditions.check(one.error, "NOT_PARQUET", provider="a Hudi", table=hudi)


def test_file_name_with_colon_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path / "t", {"k=1/a.parquet": {"id": [1]}, "k=1/10:30.parquet": {"id": [2]}})
    before = content(root)

    one = convert.run([str(root)], resolve=no_session).tables[0]

    assert one.outcome == "refused"
    conditions.check(one.error, "FILE_NAME_WITH_COLON", folder=root, file="k=1/10:30.parquet")
    assert content(root) == before
    (root / "k=1" / "10:30.parquet").rename(root / "k=1" / "10.30.parquet")
    assert convert.run([str(root)], resolve=no_session).ok


def test_failed_commit_leaves_no_log_folder(tmp_path: Path) -> None:
    def lines() -> Any:
        yield "{}\n"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        initial_commit.put(tmp_path, "an id", lines())

    assert not os.listdir(tmp_path)


def test_unreadable_encoding_is_reported(tmp_path: Path) -> None:
    root = write(tmp_path / "t", {"a.parquet": {"id": [1]}})
    table = pa.table({"id": [1], "s": [{"x": 1.5}]})
    encoding = {"s.x": "BYTE_STREAM_SPLIT"}
    pq.write_table(table, root / "b.parquet", use_dictionary=False, column_encoding=encoding)
    for statistics in convert.Statistics:
        [done] = convert.run([str(root)], dry_run=True, statistics=statistics, resolve=no_session).tables
        assert done.plan is not None
        [note] = [text for text in done.plan.notes if "BYTE_STREAM_SPLIT" in text]
        assert note.startswith("column `s.x` of b.parquet is encoded as BYTE_STREAM_SPLIT")


def test_map_of_structs_gets_field_missing_in_some_files(tmp_path: Path) -> None:
    """delta-rs reads it by Arrow, as described in docs/reference/parquet.md."""
    number = pa.int64()
    for name, fields, value in (
        ("a", [("x", number)], {"x": 1}),
        ("b", [("x", number), ("y", number)], {"x": 2, "y": 3}),
    ):
        column = pa.array([[("k", value)]], pa.map_(pa.string(), pa.struct(fields)))
        pq.write_table(pa.table({"m": column}), tmp_path / f"{name}.parquet")
    assert convert.run([str(tmp_path)], resolve=no_session).tables[0].outcome == "converted"
    rows = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()
    assert sorted(dict(row["m"])["k"]["x"] for row in rows) == [1, 2]
    assert [dict(row["m"])["k"]["y"] for row in rows if dict(row["m"])["k"]["x"] == 1] == [None]


def write_typed(file: Path, **columns: pa.Array) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


def test_empty_file_with_other_types_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_typed(root / "p=1/a.parquet", id=pa.array([1]), name=pa.array(["x"]))
    write_typed(root / "p=1/b.parquet", id=pa.array([], pa.int64()), name=pa.array([], pa.int32()))
    write_typed(root / "p=2/c.parquet", id=pa.array([], pa.int64()), name=pa.array([], pa.null()))
    write_typed(root / "p=2/d.parquet", id=pa.array([], pa.int64()), name=pa.array([], pa.string()))

    [table] = convert.run([str(root)], resolve=no_session).tables

    assert (table.outcome, table.error) == ("converted", None)
    assert table.plan is not None
    assert table.plan.files == 2
    [note] = [note for note in table.plan.notes if "left out" in note]
    assert note == (
        "2 files are left out, as they have no rows, and other columns or types than the rest: "
        "p=1/b.parquet, p=2/c.parquet"
    )
    assert rows(root) == [{"id": 1, "name": "x", "p": 1}]
    assert [action["add"]["path"] for action in actions(root) if "add" in action] == [
        "p=1/a.parquet",
        "p=2/d.parquet",
    ]


def test_table_with_left_out_file_counts_as_converted(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_typed(root / "a.parquet", name=pa.array(["x"]))
    write_typed(root / "b.parquet", name=pa.array([], pa.int32()))
    assert convert.run([str(root)]).ok

    [again] = convert.run([str(root)]).tables

    assert (again.outcome, again.error) == ("already", None)
    write_typed(root / "b.parquet", name=pa.array(["y"]))
    [changed] = convert.run([str(root)]).tables
    assert changed.outcome == "refused"
    conditions.check(
        changed.error, "FILES_CHANGED_SINCE_CONVERSION", changes=re.compile("^b.parquet changed from")
    )


def test_empty_files_with_different_types_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_typed(root / "a.parquet", name=pa.array([], pa.string()))
    write_typed(root / "b.parquet", name=pa.array([], pa.int32()))

    [table] = convert.run([str(root)]).tables

    assert table.outcome == "refused"
    conditions.check(
        table.error,
        "COLUMN_TYPES_CONFLICT",
        column="name",
        type="string",
        file="a.parquet",
        other_type="int",
        other="b.parquet",
    )


def test_empty_file_that_does_not_fit_declared_schema_is_left_out(tmp_path: Path) -> None:
    root, declared = tmp_path / "t", tmp_path / "columns.sql"
    declared.write_text("id int")
    write_typed(root / "a.parquet", id=pa.array([1], pa.int32()))
    write_typed(root / "b.parquet", id=pa.array([], pa.int64()))
    write_typed(root / "c.parquet", id=pa.array([], pa.int32()), more=pa.array([], pa.int32()))

    [table] = convert.run([str(root)], schema=declared).tables

    assert (table.outcome, table.error) == ("converted", None)
    assert rows(root) == [{"id": 1}]


def test_column_untyped_in_every_file_is_refused(tmp_path: Path) -> None:
    root, declared = tmp_path / "t", tmp_path / "columns.sql"
    write_typed(root / "a.parquet", id=pa.array([1]), name=pa.array([None], pa.null()))

    [table] = convert.run([str(root)]).tables

    assert table.outcome == "refused"
    conditions.check(
        table.error,
        "COLUMN_WITHOUT_TYPE",
        table=root,
        column="name",
        files="every file",
        file="a.parquet",
        advice=re.compile("tinyint, smallint, int, bigint, double or date, declare its type with --schema"),
    )
    declared.write_text("id bigint, name string")
    [refused] = convert.run([str(root)], schema=declared).tables
    conditions.check(
        refused.error,
        "NULLS_NOT_READABLE_AS_TYPE",
        column="name",
        file="a.parquet",
        type="string",
        other=declared,
    )
    declared.write_text("id bigint, name date")
    [done] = convert.run([str(root)], schema=declared).tables
    assert (done.outcome, done.error) == ("converted", None)
    assert rows(root) == [{"id": 1, "name": None}]
    assert json.loads(actions(root)[-1]["add"]["stats"])["minValues"] == {"id": 1}


def test_partition_column_may_be_untyped_in_files(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_typed(root / "day=2024-01-01/a.parquet", id=pa.array([1]), day=pa.array([None], pa.null()))

    [table] = convert.run([str(root)]).tables

    assert (table.outcome, table.error) == ("converted", None)
    assert [str(row["day"]) for row in rows(root)] == ["2024-01-01"]


@pytest.mark.parametrize("statistics", list(convert.Statistics))
def test_untyped_nulls_are_converted_with_type_of_another_file(
    tmp_path: Path, statistics: convert.Statistics
) -> None:
    root = tmp_path / "t"
    write_typed(
        root / "a.parquet", day=pa.array([None, None], pa.null()), n=pa.array([None, None], pa.null())
    )
    write_typed(root / "b.parquet", day=pa.array([1], pa.date32()), n=pa.array([7], pa.int8()))

    [table] = convert.run([str(root)], statistics=statistics).tables

    assert (table.outcome, table.error) == ("converted", None)
    columns = json.loads(actions(root)[1]["metaData"]["schemaString"])["fields"]
    assert [column["type"] for column in columns] == ["date", "byte"]
    nulls, _ = (json.loads(add["add"].get("stats", "{}")) for add in actions(root)[3:])
    assert "minValues" not in nulls
    assert len(rows(root)) == 3
