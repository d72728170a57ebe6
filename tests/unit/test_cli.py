"""Commands that need no Spark: what they print, for people and for programs, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.bundle_files import JOB, BundleFiles
from tests.unit.conftest import ProjectFiles
from typer.testing import CliRunner, Result

from tableferry import __version__, cli
from tableferry.pipelines import spec

MAIN = "dataflows/sales/dataflowspec/orders_main.json"


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_a_right_project(project: ProjectFiles) -> None:
    project.write(MAIN, project.append())
    text = call("spec", "check", project.root)
    assert (text.exit_code, text.output) == (
        0,
        f"{project.root}: 1 data flow, 1 with a migration: all right\n",
    )
    data = call("spec", "check", project.root, "--output", "json")
    assert (data.exit_code, json.loads(data.output)) == (0, {"problems": [], "skipped": []})


def test_a_wrong_project_is_told_whole_for_people_and_for_programs(project: ProjectFiles) -> None:
    project.write(MAIN, project.append(mode="streaming", dataFlowGruop="x"))
    text = call("spec", "check", project.root)
    assert text.exit_code == 1
    first, second = text.stderr.splitlines()
    assert first.startswith(f"Error: {MAIN}: dataFlowGruop: unknown key 'dataFlowGruop': did you mean")
    assert second.startswith(f"{MAIN}: mode: must be 'stream' or 'batch'")
    data = call("spec", "check", project.root, "--output", "json")
    assert data.exit_code == 1
    problems = json.loads(data.stdout)["problems"]
    assert [(problem["file"], problem["path"]) for problem in problems] == [
        (MAIN, "dataFlowGruop"),
        (MAIN, "mode"),
    ]


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
    result = call("spec", "check", tmp_path)
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: Spark failed (Job aborted): --debug shows where\n",
    )
    assert isinstance(call("spec", "check", tmp_path, "--debug").exception, Failed)


def test_a_bundle_that_is_all_right(shop: BundleFiles) -> None:
    text = call("bundle", "check", shop.root)
    assert (text.exit_code, text.output) == (0, f"{shop.root}: 5 files, for dev and prod: all right\n")
    data = call("bundle", "check", shop.root, "--target", "dev", "--output", "json")
    assert data.exit_code == 0
    assert json.loads(data.stdout)["targets"] == ["dev"]
    assert (json.loads(data.stdout)["problems"], json.loads(data.stdout)["notes"]) == ([], [])


def test_a_bundle_that_is_wrong_is_told_whole_for_people_and_for_programs(shop: BundleFiles) -> None:
    shop.replace(JOB, "name: shop_nightly", "nmae: shop_nightly")
    shop.replace(JOB, "${resources.pipelines.etl.id}", "${resources.pipelines.elt.id}")
    text = call("bundle", "check", shop.root)
    assert text.exit_code == 1
    first, second = text.stdout.splitlines()
    assert first == f"{JOB}: resources.jobs.nightly.nmae: unknown field 'nmae': did you mean 'name'?"
    assert second.startswith(f"{JOB}: resources.jobs.nightly.tasks[0].pipeline_task.pipeline_id: ")
    data = call("bundle", "check", shop.root, "--output", "json")
    assert data.exit_code == 1
    assert json.loads(data.stdout)["problems"][0] == {
        "file": JOB,
        "place": "resources.jobs.nightly.nmae",
        "what": "unknown field 'nmae'",
        "remedy": "did you mean 'name'?",
    }


def test_what_a_bundle_could_not_be_checked_for_is_noted(
    shop: BundleFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tableferry.bundle.checking.types_installed", lambda: False)
    result = call("bundle", "check", shop.root)
    assert result.exit_code == 0
    assert result.stderr.startswith("Note: the package databricks-bundles isn't installed")


@pytest.mark.parametrize(
    ("arguments", "code", "printed"),
    [
        (["--version"], None, f"{__version__}\n"),
        (["--help"], None, "Usage: "),
        (["spec", "schema"], None, "{"),
        (["bundle", "check", "."], 1, "databricks.yml: isn't in "),
        (["spec", "check", "absent"], 1, "Error: "),
        (["spec", "chek"], 2, "No such command 'chek'"),
        (["spec", "check"], 2, "Missing argument 'PROJECT'"),
        (["--verbose"], 2, "No such option: --verbose"),
    ],
)
def test_the_entry_point_returns_when_the_work_is_done(
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
