"""Repeated conversions of folders with a log, and files that the log doesn't name."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from tests import conditions

from tableferry import convert
from tableferry.convert.commands import Report, TableReport
from tableferry.convert.discovery import listing
from tableferry.convert.existing_log import ExistingLog
from tableferry.convert.overlay import write_empty
from tableferry.convert.plan import Facts, Options, all_schemas, decide, to_be_redone
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.parquet.schema_merge import merge
from tableferry.spark.tables import TableName
from tableferry.spark.types import LONG, Field, Struct


def write(file: Path, *ids: int) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": list(ids)}), file)
    return file


def no_session() -> Any:
    raise AssertionError("a folder needs no Spark")


def run(root: Path, **options: Any) -> convert.TableReport:
    [report] = convert.run([str(root)], resolve=no_session, **options).tables
    return report


def ids(root: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(root).to_pyarrow_table()["id"].to_pylist())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder of one file."""
    write(tmp_path / "t" / "a.parquet", 1)
    return tmp_path / "t"


@pytest.fixture
def converted(root: Path) -> Path:
    """Return the converted folder."""
    assert run(root).outcome == "converted"
    return root


class Death(BaseException):
    """The end of a process, which no code catches."""


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_convert_after_crash_adds_or_names_new_file(
    root: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real = initial_commit.put

    def put(folder: Path, table_id: str, lines: Any, **options: Any) -> None:
        if moment == "before the commit":
            write(root / "late.parquet", 2)
        real(folder, table_id, lines, **options)
        if moment == "after the commit":
            later = (folder / "_delta_log" / initial_commit.FIRST).stat().st_mtime + 1
            os.utime(write(root / "late.parquet", 2), (later, later))
        raise Death

    with monkeypatch.context() as patched:
        patched.setattr(initial_commit, "put", put)
        with pytest.raises(Death):
            run(root)
    assert ids(root) == [1]

    planned = run(root, dry_run=True)
    again = run(root)

    if moment == "before the commit":
        assert planned.plan is not None
        assert [type(step).__name__ for step in planned.plan.steps] == ["UndoConversion", "PutFirstCommit"]
        assert "late.parquet appeared" in planned.plan.notes[0]
        assert (again.outcome, again.error) == ("converted", None)
    else:
        # It may be left over from a failed write to the Delta table.
        assert (planned.outcome, again.outcome) == ("refused", "refused")
        conditions.check(
            again.error,
            "FILES_CHANGED_SINCE_CONVERSION",
            changes="late.parquet appeared",
            source=root,
            undo=re.compile(f"tableferry convert undo {root}$"),
        )
        assert ids(root) == [1]
        convert.undo(str(root), resolve=no_session)
        assert run(root).outcome == "converted"
    assert ids(root) == [1, 2]
    assert run(root).outcome == "already"
    assert sorted(os.listdir(root)) == ["_delta_log", "a.parquet", "late.parquet"]


def test_recursive_convert_names_folder_with_changed_files(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path / name / "1.parquet", 1)
    assert convert.run([str(tmp_path)], recursive=True, resolve=no_session).ok
    (tmp_path / "b" / "1.parquet").rename(tmp_path / "b" / "2.parquet")

    again = convert.run([str(tmp_path)], recursive=True, resolve=no_session)

    assert [table.outcome for table in again.tables] == ["already", "refused", "already"]
    conditions.check(
        again.tables[1].error,
        "FILES_CHANGED_SINCE_CONVERSION",
        changes="1.parquet vanished; 2.parquet appeared",
    )
    assert not again.ok


def test_convert_names_file_rewritten_in_place(converted: Path) -> None:
    write(converted / "a.parquet", *range(2_000))

    refused = run(converted)

    assert refused.outcome == "refused"
    changed = re.compile("^a.parquet changed from")
    conditions.check(refused.error, "FILES_CHANGED_SINCE_CONVERSION", changes=changed)


def test_convert_skips_delta_table_in_use(converted: Path) -> None:
    """Its folder contains removed files, and new files that the log doesn't name."""
    deltalake.write_deltalake(converted, pa.table({"id": [2]}), mode="append")
    deltalake.DeltaTable(converted).delete("id = 1")
    write(converted / "left.parquet", 9)

    again = run(converted, verify=True)

    assert (again.outcome, again.error) == ("already", None)
    assert again.plan is not None
    assert "its rows aren't compared" in again.plan.notes[0]


def test_convert_skips_log_of_another_tool(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": [1]}))
    write(tmp_path / "t" / "left.parquet", 9)

    assert run(tmp_path / "t").outcome == "already"


def test_copied_or_empty_table_counts_as_converted(converted: Path, tmp_path: Path) -> None:
    shutil.copytree(converted, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(tmp_path / "copy" / "a.parquet", (1, 1))
    assert run(tmp_path / "copy").outcome == "already"
    (tmp_path / "empty").mkdir()
    write_empty(replace(ENTRY, location=f"file:{tmp_path}/empty", folder=tmp_path / "empty"))
    assert run(tmp_path / "empty").outcome == "already"


def test_unreadable_log_is_not_reported_as_delta(converted: Path) -> None:
    first = converted / "_delta_log" / initial_commit.FIRST
    first.write_text(first.read_text()[:-20])

    broken = run(converted)

    assert broken.outcome == "failed"
    conditions.check(broken.error, "CONVERSION_LOG_UNREADABLE", file=first)


def test_undo_refuses_conversion_of_another_process(converted: Path) -> None:
    before = (converted / "_delta_log" / initial_commit.FIRST).read_text()

    with conditions.raises("CONVERTED_BY_ANOTHER_PROCESS", table=converted):
        initial_commit.undo(converted, "another table's id")

    assert (converted / "_delta_log" / initial_commit.FIRST).read_text() == before
    assert os.listdir(converted / "_delta_log") == [initial_commit.FIRST]


def test_convert_reports_conversion_of_another_process(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, looks = listing.list_files, 0

    def list_files(folder: Path) -> Any:
        nonlocal looks
        looks += 1
        if looks == 3:
            # This conversion has committed and lists the folder again; the other one finds a new file.
            os.utime(write(root / "late.parquet", 2), (1, 1))
            assert run(root).outcome == "converted"
        return real(folder)

    monkeypatch.setattr(listing, "list_files", list_files)

    first = run(root)

    assert first.outcome == "refused"
    conditions.check(
        first.error, "FILES_CHANGED_DURING_CONVERSION", changes=re.compile("late.parquet appeared")
    )
    assert ids(root) == [1, 2]


@pytest.mark.parametrize("at", range(1, 8))
def test_repeated_conversion_survives_crash_at_any_effect(
    converted: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    os.utime(write(converted / "late.parquet", 2), (1, 1))
    effects = 0

    def dying(real: Any) -> Any:
        def effect(*arguments: Any, **options: Any) -> Any:
            nonlocal effects
            effects += 1
            if effects == at:
                raise Death
            return real(*arguments, **options)

        return effect

    with monkeypatch.context() as patched:
        for module, name in ((Path, "rename"), (os, "link"), (os, "unlink"), (shutil, "rmtree")):
            patched.setattr(module, name, dying(getattr(module, name)))
        with suppress(Death):
            run(converted)

    assert run(converted).outcome in ("converted", "already")
    assert ids(converted) == [1, 2]
    convert.undo(str(converted), resolve=no_session)
    assert sorted(os.listdir(converted)) == ["a.parquet", "late.parquet"]


COLUMNS = Struct((Field("id", LONG),))
ENTRY = Entry(
    TableName(("spark_catalog", "db", "t")), "parquet", "external", "file:/t", Path("/t"), columns=COLUMNS
)
LATE = ExistingLog("its id", ours=True, differences=("late.parquet appeared",), columns=COLUMNS)
FACTS = Facts("db.t", "/t", local=True, delta=True, entry=ENTRY)


def steps(facts: Facts, **options: Any) -> list[str]:
    return [type(step).__name__ for step in decide(facts, Options(**options)).steps]


def test_catalog_table_is_reconverted_for_files_added_before_its_switch() -> None:
    assert to_be_redone(LATE, ENTRY)
    facts = replace(FACTS, delta=False, log=LATE, merged=merge(all_schemas((), ENTRY)))
    assert steps(facts, verify=True) == ["UndoConversion", "PutFirstCommit", "SwitchEntry", "Verify"]
    assert "late.parquet appeared" in decide(facts, Options()).notes[0]


@pytest.mark.parametrize(
    ("log", "entry", "condition", "parameters"),
    [
        (
            replace(LATE, ours=False),
            ENTRY,
            "DELTA_AND_PARQUET_DIFFER",
            {"statement": "`spark_catalog`.`db`.`t`"},
        ),
        (
            replace(LATE, shown_by=(TableName(("spark_catalog", "db", "other")),)),
            ENTRY,
            "FILES_CHANGED_UNDER_TWO_ENTRIES",
            {"delta_tables": re.compile("db.other"), "first": "spark_catalog.db.other"},
        ),
        (
            replace(LATE, missed=True),
            replace(ENTRY, provider="delta"),
            "FILES_CHANGED_SINCE_CONVERSION",
            {"source": "db.t", "undo": re.compile("convert undo db.t$")},
        ),
        (
            LATE,
            None,
            "FILES_CHANGED_SINCE_CONVERSION",
            {"source": "db.t", "undo": re.compile("convert undo db.t$")},
        ),
    ],
)
def test_convert_refuses_table_with_ambiguous_files(
    log: ExistingLog, entry: Entry | None, condition: str, parameters: dict[str, object]
) -> None:
    assert not to_be_redone(log, entry)
    with conditions.raises(
        condition,
        table=re.compile(r"\bdb\.t$"),
        folder="/t",
        changes="late.parquet appeared",
        **parameters,
    ):
        decide(replace(FACTS, log=log, entry=entry), Options())


def test_report_states_repeated_row_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    plan = decide(replace(FACTS, log=replace(LATE, differences=()), entry=None), Options(verify=True))
    report = TableReport("db.t", "already", plan, verdict=Mock(matches=True))

    convert.report.print_report(Console(width=200), Report((report,)))

    assert "is already a delta table. Its rows are those of the Parquet files." in capsys.readouterr().out


def test_verify_compares_rows_of_converted_table_too() -> None:
    current = replace(LATE, differences=())
    assert steps(replace(FACTS, log=current)) == ["SwitchEntry"]
    assert steps(replace(FACTS, log=current), verify=True) == ["SwitchEntry", "Verify"]
    assert steps(replace(FACTS, log=current, entry=None), verify=True) == ["Verify"]
    assert steps(replace(FACTS, log=current, entry=None)) == []
