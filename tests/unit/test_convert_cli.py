"""Tests of the command ``tableferry convert``: exit codes, output and JSON, without a JVM."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from tableferry import cli

KEYS = {
    "skipped",
    *("source", "outcome", "error", "location", "engine", "because", "schema", "partitionColumns"),
    *("files", "bytes", "rows", "steps", "notes", "verdict"),
}


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, ["convert", *map(str, arguments)])


def data(*arguments: str | Path) -> tuple[int, Any]:
    result = call(*arguments, "--output", "json")
    return result.exit_code, json.loads(result.stdout)


def write(path: Path, columns: dict[str, list[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with thirty tables; one of them contains a text file."""
    for number in range(30):
        write(tmp_path / "lake" / f"t{number:02}" / "day=2024-01-01" / "a.parquet", {"id": [number]})
    (tmp_path / "lake" / "t07" / "NOTES.txt").write_text("x")
    monkeypatch.chdir(tmp_path)
    # No test here may need a session.
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    return tmp_path / "lake"


def test_dry_run_prints_plan_and_writes_nothing(lake: Path) -> None:
    before = names(lake)

    shown = call("lake/t01", "--dry-run")

    assert shown.exit_code == 0
    assert shown.stdout.splitlines()[0].startswith("lake/t01: 1 file, ")
    assert "1 row\n" in shown.stdout
    assert "What would be done:\n  1. write the first commit of lake/t01/_delta_log: 1 file" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "Nothing was written: run it without --dry-run."
    assert names(lake) == before


def test_convert_and_undo_restore_table(lake: Path) -> None:
    before = names(lake / "t01")

    done = call("lake/t01")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[-1] == "Converted. To undo it: tableferry convert undo lake/t01"
    assert deltalake.DeltaTable("lake/t01").version() == 0

    second = call("lake/t01")
    assert second.exit_code == 0
    assert second.stdout == "lake/t01: The table you are trying to convert is already a delta table\n"

    undone = call("undo", "lake/t01")
    assert undone.exit_code == 0
    assert undone.stdout == "lake/t01 is Parquet again, and no data file was touched\n"
    assert names(lake / "t01") == before

    nothing = call("undo", "lake/t01")
    assert nothing.exit_code == 1
    assert nothing.stderr.startswith("Error: [NOT_A_DELTA_TABLE] lake/t01 ")


def test_printed_commands_can_be_run(lake: Path) -> None:
    (lake / "t01").rename(lake / "it's a table")
    done = call("lake/it's a table")
    assert done.stdout.splitlines()[-1].endswith("undo 'lake/it'\"'\"'s a table'")


def test_refused_table_is_printed_with_condition_and_remedy(lake: Path) -> None:
    refused = call("lake/t07")

    assert refused.exit_code == 1
    message, remedy = refused.stdout.splitlines()
    assert message.startswith("Refused: [UNREADABLE_FILES] lake/t07: NOTES.txt is not a Parquet file")
    assert remedy


def test_convert_of_thirty_tables_names_the_refused_one(lake: Path) -> None:
    done = call("lake", "--recursive")

    assert done.exit_code == 1
    tables = [line.partition(" ")[2] for line in done.stderr.splitlines() if "/30] " in line]
    assert (len(tables), tables[0], tables[7]) == (
        30,
        "[1/30] lake/t00: converted",
        "[8/30] lake/t07: refused",
    )
    *_, refused, _, summary, fix, back = done.stdout.splitlines()
    assert refused.startswith("Refused: [UNREADABLE_FILES] lake/t07: NOTES.txt")
    assert summary == "30 tables: 29 converted, 1 refused"
    assert fix.endswith("run the command again: Delta tables are skipped.")
    assert back == "To undo one: tableferry convert undo TABLE"

    (lake / "t07" / "NOTES.txt").unlink()
    second = call("lake", "--recursive")
    assert second.exit_code == 0
    assert "30 tables: 29 already, 1 converted" in second.stdout


def test_json_output_has_all_keys_of_every_table(lake: Path) -> None:
    code, report = data("lake", "-r")

    assert code == 1
    assert report.keys() == {"ok", "tables"}
    assert report["ok"] is False
    assert all(entry.keys() == KEYS for entry in report["tables"])
    first, refused = report["tables"][0], report["tables"][7]
    assert (first["source"], first["outcome"], first["error"]) == ("lake/t00", "converted", None)
    assert (first["engine"], first["files"], first["rows"]) == ("tableferry", 1, 1)
    assert first["partitionColumns"] == [{"name": "day", "type": "date"}]
    assert [entry["name"] for entry in first["schema"]["fields"]] == ["id", "day"]
    assert (refused["outcome"], refused["files"], refused["steps"]) == ("refused", None, [])
    assert refused["error"]["condition"] == "UNREADABLE_FILES"
    assert refused["error"].keys() == {"condition", "parameters", "message", "remedy"}

    assert data("undo", "lake/t00") == (0, {"source": "lake/t00", "outcome": "undone", "notes": []})


@pytest.mark.parametrize(
    "written",
    [
        ["--sources", "lake/t00,lake/t01"],
        ["--sources", "lake/t00\n lake/t01 ,\n"],
        ["--sources", "lake/t00", "--sources", "lake/t01"],
        ["lake/t00", "--sources", "lake/t01"],
        ["lake/t00", "lake/t01", "lake/t00/"],
        ["parquet.`lake/t00`", "--sources", "parquet.`lake/t01`"],
    ],
)
def test_sources_are_accepted_in_all_notations(lake: Path, written: list[str]) -> None:
    code, report = data(*written)

    assert code == 0
    assert [table["source"] for table in report["tables"]] == ["lake/t00", "lake/t01"]


def test_comma_in_backticks_belongs_to_the_name(lake: Path) -> None:
    (lake / "t00").rename(lake / "a,b")
    _, report = data("--sources", "parquet.`lake/a,b`,lake/t01")
    assert [table["source"] for table in report["tables"]] == ["lake/a,b", "lake/t01"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a SOURCE"),
        (["--sources", " , "], "name a SOURCE"),
        (["lake/t00", "--engine", "other"], "'other' is not one of"),
        (["lake/t00", "--reader", "other"], "'other' is not one of"),
        (["lake/t00", "--fast"], "No such option"),
        (["undo"], "Missing argument"),
        (["undo", "lake/t00", "lake/t01"], "unexpected extra argument"),
    ],
)
def test_wrong_options_exit_with_2(lake: Path, arguments: list[str], message: str) -> None:
    result = call(*arguments)

    assert result.exit_code == 2
    # A narrow terminal wraps the words.
    assert message in " ".join(result.stderr.split())
    assert not list(lake.rglob("_delta_log"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lake/nothing"], "[FOLDER_MISSING] lake/nothing "),
        (["lake/nothing", "-r"], "lake/nothing"),
        (["csv.`/x/y`"], "[NOT_PARQUET] CONVERT TO DELTA only supports parquet tables"),
        (["lake/t00", "--partitioned-by", "day"], "[PARTITION_DECLARATION_WITHOUT_TYPE]"),
        (["lake/t00", "--partitioned-by", "month int"], "`month`"),
        (["lake/t00", "--partitioned-by", "day int"], "2024-01-01"),
        (["undo", "db.*"], "[SEVERAL_TABLES_NAMED] db.* "),
        (["undo", "hdfs://host/t"], "remove hdfs://host/t/_delta_log "),
        (["hdfs://host/t", "--engine", "tableferry"], "SPARK_REMOTE"),
    ],
)
def test_refusals_are_printed_with_remedy(lake: Path, arguments: list[str], message: str) -> None:
    result = call(*arguments)

    assert result.exit_code == 1
    assert message in result.output
    assert "Traceback" not in result.output
    assert not list(lake.rglob("_delta_log"))


def test_convert_of_folder_without_tables_prints_that_none_was_found(lake: Path) -> None:
    os.mkdir("empty")
    result = call("empty", "--recursive")
    assert (result.exit_code, result.stdout) == (
        0,
        "No Parquet table was found: check the name or the path.\n",
    )


def test_help_lists_undo() -> None:
    shown = call("--help").stdout
    assert "undo" in shown
    assert "SOURCE" in shown
