"""Commands without Spark: their output as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.conditions import raises
from tests.unit.conftest import ProjectFiles
from typer.testing import CliRunner, Result

from tableferry import __version__, cli
from tableferry.cli.options import parse_look_back
from tableferry.pipelines import specs

MAIN = "dataflows/sales/dataflowspec/orders_main.json"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_check_of_valid_project_reports_its_flows(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    text = call("spec", "check", project.root)
    assert (text.exit_code, text.output) == (
        0,
        f"{project.root}: 1 data flow, 1 with a migration: all right\n",
    )
    data = call("spec", "check", project.root, "--output", "json")
    assert (data.exit_code, json.loads(data.output)) == (0, {"problems": [], "skipped": []})


def test_check_of_invalid_project_reports_all_problems_as_text_and_json(project: ProjectFiles) -> None:
    project.write(MAIN, project.append(mode="streaming", dataFlowGruop="x"))
    text = call("spec", "check", project.root)
    assert text.exit_code == 1
    title, first, second, _ = text.stderr.splitlines()
    assert title.startswith("Error: [INVALID_SPEC]")
    assert first.startswith(
        f"{MAIN}: dataFlowGruop: [SPEC_KEY_MISSPELT] Key 'dataFlowGruop' is unknown. Write"
    )
    assert second.startswith(f"{MAIN}: mode: [SPEC_VALUE_NOT_ALLOWED] The value must be 'stream' or 'batch'")
    data = call("spec", "check", project.root, "--output", "json")
    assert data.exit_code == 1
    problems = json.loads(data.stdout)["problems"]
    assert [(problem["file"], problem["path"], problem["condition"]) for problem in problems] == [
        (MAIN, "dataFlowGruop", "SPEC_KEY_MISSPELT"),
        (MAIN, "mode", "SPEC_VALUE_NOT_ALLOWED"),
    ]
    assert problems[0]["parameters"] == {"key": "dataFlowGruop", "known": "dataFlowGroup"}


@pytest.mark.parametrize(
    "command",
    [("run", "{project}", "--target", "silver.x"), ("status", "{project}", "--target", "silver.x"),
     ("cutover", "silver.x", "{project}"), ("cutover", "silver.x", "{project}", "--dry-run")],
)  # fmt: skip
def test_unknown_target_is_refused_before_spark_starts(
    project: ProjectFiles, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("Spark starts")

    monkeypatch.setattr("tableferry.cli.pipelines.resolve_session", start)
    project.write(MAIN, project.append())
    result = call("pipelines", *(word.format(project=project.root) for word in command))
    assert result.exit_code == 1
    assert "[UNKNOWN_TARGET]" in result.stderr
    unknown = call("pipelines", "cutover", "silver.orders", project.root, "--accept", "NOTHING")
    assert "[UNKNOWN_ACCEPTED_FINDING]" in unknown.stderr


def test_schema_is_json() -> None:
    assert json.loads(call("spec", "schema").stdout)["$schema"].startswith("https://json-schema.org/")


def test_version_is_printed() -> None:
    assert call("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("module", ["py4j.protocol", "pyspark.errors"])
def test_spark_error_is_reported_as_condition(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
) -> None:
    class Failed(Exception):
        """An exception of one of Spark's modules."""

    Failed.__module__ = module

    def load(*_: object, **__: object) -> None:
        raise Failed(
            "An error occurred while calling o1.save.\n: org.apache.SparkException: Job aborted\n\tat x"
        )

    monkeypatch.setattr(specs, "load", load)
    result = call("spec", "check", tmp_path)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: [COMMAND_FAILED_IN_SPARK] Spark failed (Job aborted).\n")
    as_data = json.loads(call("spec", "check", tmp_path, "--output", "json").stdout)
    assert as_data["error"]["parameters"] == {"reason": "Job aborted"}
    assert isinstance(call("spec", "check", tmp_path, "--debug").exception, Failed)


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["--version"], None, f"{__version__}\n"),
        (["--help"], None, "Usage: "),
        (["spec", "schema"], None, "{"),
        (["spec", "check", "absent"], 1, "Error: "),
        (["spec", "chek"], 2, "No such command 'chek'"),
        (["spec", "check"], 2, "Missing argument 'PROJECT'"),
        (["--verbose"], 2, "No such option: --verbose"),
    ],
)
def test_entry_point_returns_after_success_and_exits_after_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int | None,
    printed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["tableferry", *arguments])
    left = None
    try:
        cli.main()
    except SystemExit as exit:
        left = exit.code
    assert left == code
    out, err = capsys.readouterr()
    assert printed in (err if code == 2 or arguments[-1] == "absent" else out)


@pytest.mark.parametrize("text", ["0", "yesterday", "-1", "7w", "2026-13-01"])
def test_look_back_is_a_number_a_time_or_an_age(text: str) -> None:
    assert parse_look_back("500") == 500
    assert parse_look_back("2026-11-20T06:00") == datetime(2026, 11, 20, 6, tzinfo=UTC)
    assert parse_look_back("2026-11-20T06:00+02:00") == datetime(2026, 11, 20, 4, tzinfo=UTC)
    ago = parse_look_back("12h")
    assert isinstance(ago, datetime)
    assert timedelta(hours=11) < datetime.now(UTC) - ago < timedelta(hours=13)
    with raises("LOOK_BACK_INVALID", text=text):
        parse_look_back(text)
