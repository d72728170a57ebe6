"""Commands that need no Spark: what they print, for people and for programs, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.conftest import ProjectFiles
from typer.testing import CliRunner, Result

from tableferry import __version__, cli
from tableferry.pipelines import spec

MAIN = "dataflows/sales/dataflowspec/orders_main.json"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(one) for one in arguments])


def test_a_right_project(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    said = call("spec", "check", project.root)
    assert (said.exit_code, said.output) == (
        0,
        f"{project.root}: 1 data flow, 1 with a migration: all right\n",
    )
    told = call("spec", "check", project.root, "--output", "json")
    assert (told.exit_code, json.loads(told.output)) == (0, {"problems": []})


def test_a_wrong_project_is_told_whole_for_people_and_for_programs(project: ProjectFiles) -> None:
    project.write(MAIN, project.append(mode="streaming", dataFlowGruop="x"))
    said = call("spec", "check", project.root)
    assert said.exit_code == 1
    first, second = said.stderr.splitlines()
    assert first.startswith(f"Error: {MAIN}: dataFlowGruop: unknown key 'dataFlowGruop': did you mean")
    assert second.startswith(f"{MAIN}: mode: must be 'stream' or 'batch'")
    told = call("spec", "check", project.root, "--output", "json")
    assert told.exit_code == 1
    problems = json.loads(told.stdout)["problems"]
    assert [(one["file"], one["path"]) for one in problems] == [(MAIN, "dataFlowGruop"), (MAIN, "mode")]


def test_the_schema_is_json() -> None:
    assert json.loads(call("spec", "schema").stdout)["$schema"].startswith("https://json-schema.org/")


def test_the_version() -> None:
    assert call("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("module", ["py4j.protocol", "pyspark.errors"])
def test_what_spark_raises_becomes_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str
) -> None:
    class Failed(Exception):
        """An error of Spark's, wherever it comes from."""

    Failed.__module__ = module

    def load(*_: object, **__: object) -> None:
        raise Failed(
            "An error occurred while calling o1.save.\n: org.apache.SparkException: Job aborted\n\tat x"
        )

    monkeypatch.setattr(spec, "load", load)
    said = call("spec", "check", tmp_path)
    assert (said.exit_code, said.stderr) == (1, "Error: Spark failed (Job aborted): --debug shows where\n")
    assert isinstance(call("spec", "check", tmp_path, "--debug").exception, Failed)
