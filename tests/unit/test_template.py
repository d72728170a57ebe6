"""Bundles of the template: combinations of answers, invalid answers, and locations of the template."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from graphlib import CycleError
from itertools import combinations, product
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import uv
import yaml
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.jobs import Job
from databricks.bundles.pipelines import Pipeline
from databricks.bundles.schemas import Schema
from databricks.bundles.volumes import Volume
from scripts.native import render_native
from scripts.render import (
    FIXED,
    GOLDEN,
    ROOT,
    SHARED,
    made_from_template,
    own_files,
    render_golden,
    root_bundle,
)
from tests.conditions import raises
from tests.soak import SOAKING
from typer.testing import CliRunner

from tableferry import __version__, cli, new
from tableferry.pipelines import specs

TEMPLATE = ROOT / "template"
PACKAGE = ROOT / "src" / "tableferry"
RENDER = "run make render"
QUESTIONS = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))
ASKED = [name for name in QUESTIONS if not name.startswith("_")]
# "choose" means that a required question has no answer.
CHOICES = {
    name: [choice for choice in QUESTIONS[name] if choice != "choose"]
    for name in ASKED
    if isinstance(QUESTIONS[name], list)
}
SOURCE = "https://tea.example/tableferry"
SOURCES = {"index": (SOURCE, "workspace"), "git": (SOURCE,)}
"""The values of ``package_source`` by package; other packages have none."""

VARIED = {**CHOICES, "package_source": ["", SOURCE, "workspace"]}
MATRIX = [
    answers
    for combination in product(*VARIED.values())
    if (answers := dict(zip(VARIED, combination, strict=True)))
    and answers["package_source"] in SOURCES.get(answers["package"], ("",))
]


def pairs(answers: dict[str, str]) -> set[tuple[tuple[str, str], ...]]:
    """Return the answers to each pair of questions."""
    return set(combinations(answers.items(), 2))


def covering(matrix: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return combinations that cover each pair of answers of all combinations.

    The next combination is the first one with most new pairs.
    """
    chosen = []
    left = set().union(*map(pairs, matrix))
    while left:
        chosen.append(max(matrix, key=lambda answers: len(pairs(answers) & left)))
        left -= pairs(chosen[-1])
    return chosen


# Rendering takes a quarter of a second each.
RENDERED = MATRIX if SOAKING else covering(MATRIX)

# Prefixes of file names that only one route has.
ROUTES = {
    "pipelines": (
        "resources/migrat",
        "resources/sample",
        "resources/state",
        "resources/target",
        "src/migration",
        "src/orders",
        "src/pipelines",
        "src/sample",
        "tests/test_migration",
    ),
    "convert": ("resources/convert", "tests/test_convert"),
    "fleet": ("resources/fleet", "resources/optional", "src/fleet", "tests/test_fleet"),
}
CI = {"github": ".github/workflows/bundle.yml", "azure": "azure-pipelines.yml", "gitlab": ".gitlab-ci.yml"}
WITH_PIPELINES = ("all", "pipelines")

Answers = dict[str, str]

pytestmark = pytest.mark.usefixtures("cookiecutters_own_settings")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Answers, Path]]:
    """Return a bundle for each combination of choices of this run."""
    folder = tmp_path_factory.mktemp("matrix")
    return [
        (answers, made_from_template(folder / str(number), answers))
        for number, answers in enumerate(RENDERED)
    ]


@pytest.fixture(scope="module")
def default_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle with the default answers, for tests that copy it."""
    return made_from_template(tmp_path_factory.mktemp("defaults"), {})


def rendered(folder: Path, **answers: str) -> Path:
    """Create a bundle with these answers and the defaults."""
    return made_from_template(folder, answers)


def contents(root: Path, *names: str) -> dict[str, bytes | Path]:
    """Return the files and link targets below these names, or below the whole folder."""
    places = [root / name for name in names] if names else [root]
    files = [path for source in places for path in (source.rglob("*") if source.is_dir() else [source])]
    return {
        path.relative_to(root).as_posix(): path.readlink() if path.is_symlink() else path.read_bytes()
        for path in files
        if (path.is_symlink() or path.is_file()) and "__pycache__" not in path.parts
    }


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=cwd,
        env={**os.environ, "PWD": str(cwd), **environment},
        capture_output=True,
        text=True,
    )


def test_root_bundle_equals_template_with_defaults(tmp_path: Path) -> None:
    made = contents(root_bundle(tmp_path), *SHARED)
    assert len(made) > 10
    assert contents(ROOT, *SHARED) == made, RENDER


def test_native_template_is_rendered(tmp_path: Path) -> None:
    render_native(tmp_path / "native")
    assert contents(tmp_path / "native") == contents(ROOT / "native"), RENDER
    # A clone on Windows has no links.
    assert not [path for path in (ROOT / "native").rglob("*") if path.is_symlink()]


def test_golden_files_are_rendered(tmp_path: Path) -> None:
    render_golden(tmp_path / "golden")
    assert contents(tmp_path / "golden") == contents(GOLDEN), RENDER


def test_test_cases_cover_each_possible_pair_of_answers() -> None:
    for question, other in combinations(VARIED, 2):
        for pair in product(VARIED[question], VARIED[other]):
            asked_together = any((answers[question], answers[other]) == pair for answers in MATRIX)
            rendered = any((answers[question], answers[other]) == pair for answers in RENDERED)
            assert rendered == asked_together, (question, other, pair)
    assert len(covering(MATRIX)) < len(MATRIX) / 4


def test_every_bundle_has_only_chosen_files(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        names = {name for name, _ in own_files(made)}
        for route, starts in ROUTES.items():
            chosen = answers["route"] in ("all", route)
            for start in starts:
                assert any(name.startswith(start) for name in names) == chosen, (answers, start)
        assert {name for name in CI.values() if name in names} == {
            name for ci, name in CI.items() if ci == answers["ci"]
        }
        assert not [path for path in made.rglob("*") if path.is_dir() and not any(path.iterdir())]


def test_bundle_is_small(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        if answers["package"] != "vendored":
            files = [path for path in made.rglob("*") if path.is_file()]
            assert len(files) <= (50 if answers["route"] == "all" else 35), (answers, len(files))


def test_template_asks_few_questions() -> None:
    assert len(ASKED) <= 10
    kept = json.loads((ROOT / "native" / "databricks_template_schema.json").read_text(encoding="utf-8"))
    assert len(kept["properties"]) <= 10


def test_bundle_contains_package_only_if_chosen(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        wheels = [path.name for path in (made / "libs").glob("*.whl")]
        assert wheels == ([new.wheel_name()] if answers["package"] == "wheel" else []), answers
        assert (made / "vendor").exists() == (answers["package"] == "vendored"), answers
        assert not list(made.rglob("__pycache__"))


@pytest.mark.parametrize("route", ["all", "pipelines", "convert", "fleet"])
def test_bundle_with_source_has_modules_of_its_route(tmp_path: Path, route: str) -> None:
    made = rendered(tmp_path, route=route, package="vendored") / "vendor" / "tableferry"
    package = {path.relative_to(made).as_posix() for path in made.rglob("*") if path.is_file()}
    folders = {
        name.split("/")[2] for name in package if name.startswith("src/tableferry/") and name.count("/") > 2
    }
    expected = {
        "pipelines": {"pipelines"},
        "convert": {"convert"},
        "fleet": {"convert", "fleet"},
        "all": {"pipelines", "convert", "fleet"},
    }
    assert folders == expected[route] | {
        "access",
        "cli",
        "doctor",
        "errors",
        "formats",
        "spark",
        "storage",
        "verify",
    }
    assert "src/tableferry/errors/conditions.yml" in package
    assert {"LICENSE", "README.md", "pyproject.toml"} <= package
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = tomllib.loads((made / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"] == whole["project"]
    assert "force-include" not in project["tool"]["hatch"]["build"]["targets"]["wheel"]
    every = [name.removeprefix("src/").removesuffix(".py") for name in package if name.endswith(".py")]
    modules = sorted(name.replace("/", ".").removesuffix(".__init__") for name in every)
    needed = [name for name in modules if "versions" not in name and not name.endswith("migrations.env")]
    code = f"import importlib\nfor name in {needed!r}: importlib.import_module(name)\n"
    shown = subprocess.run(
        [sys.executable, "-c", code + "import tableferry.cli as c; c.app(['--help'])"],
        env={**os.environ, "PYTHONPATH": str(made / "src")},
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    for other in ("pipelines", "convert", "fleet"):
        assert (f" {other} " in shown.stdout) == (other in expected[route]), shown.stdout


def test_every_bundle_reads_as_if_written_by_hand(matrix: list[tuple[Answers, Path]]) -> None:
    for _, made in matrix:
        for name, text in own_files(made):
            location = f"{made.name}/{name}"
            left = re.sub(r"\{\{(input|job\.parameters\.[a-z_]+)\}\}|\$\{\{[^{}]+\}\}", "", text).lower()
            assert not [mark for mark in ("cookiecutter", "{%", "{{", "}}", "{#") if mark in left], location
            assert text[0] not in "\n ", location
            assert text.endswith("\n"), location
            assert not text.endswith("\n\n"), location
            lines = text.split("\n")
            assert not [line for line in lines if line != line.rstrip()], location
            assert ("\n\n\n" not in text) or name.endswith(".py"), location


def test_every_file_of_every_bundle_parses(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        for name, text in own_files(made):
            match name.rpartition(".")[2]:
                case "json":
                    json.loads(text)
                case "yml" | "yaml":
                    yaml.safe_load(text)
                case "toml":
                    tomllib.loads(text)
                case "py":
                    compile(text, name, "exec")
        if answers["route"] not in WITH_PIPELINES:
            continue
        pipeline = yaml.safe_load((made / "resources/migration.pipeline.yml").read_text(encoding="utf-8"))
        serverless = pipeline["resources"]["pipelines"]["migration"].get("serverless", False)
        assert serverless == (answers["compute"] == "serverless")


def own_tests(made: Path) -> dict[str, Callable[[], None]]:
    """Load a bundle's tests/test_bundle.py and return the tests that need no argument."""
    names = runpy.run_path(str(made / "tests" / "test_bundle.py"))
    tests = {
        name: test for name, test in names.items() if name.startswith("test_") and name != "test_specs_load"
    }
    assert len(tests) == 5
    return tests


def test_own_tests_of_every_bundle_pass(matrix: list[tuple[Answers, Path]]) -> None:
    for _, made in matrix:
        for test in own_tests(made).values():
            test()


RESOURCES: dict[str, Any] = {
    "jobs": Job,
    "pipelines": Pipeline,
    "schemas": Schema,
    "volumes": Volume,
    "dashboards": Dashboard,
}
"""The kinds of resources in the template, and the classes of Databricks that refuse unknown fields."""


def resources(made: Path) -> Iterator[tuple[str, Any]]:
    """Yield each resource of a bundle for all targets or for dev, with its kind."""
    for file in (made / "resources").rglob("*.yml"):
        tree = yaml.safe_load(file.read_text("utf-8"))
        for part in (tree, tree.get("targets", {}).get("dev", {})):
            for kind, group in part.get("resources", {}).items():
                yield from ((kind, resource) for resource in group.values())


def test_resources_of_every_bundle_have_known_fields(matrix: list[tuple[Answers, Path]]) -> None:
    for _, made in [*matrix, ({}, ROOT)]:
        kinds = set()
        for kind, resource in resources(made):
            RESOURCES[kind].from_dict(resource)
            kinds.add(kind)
        assert "jobs" in kinds


def test_schedules_of_every_bundle_have_six_fields_and_one_open_day(
    matrix: list[tuple[Answers, Path]],
) -> None:
    """Quartz refuses other expressions at the deployment."""
    for _, made in matrix:
        for _, resource in resources(made):
            if "schedule" in resource:
                fields = resource["schedule"]["quartz_cron_expression"].split()
                assert (len(fields), [fields[3], fields[5]].count("?")) == (6, 1), fields


@pytest.mark.parametrize(
    ("file", "old", "new", "test"),
    [
        ("resources/migrate.job.yml", "var.notifications", "var.mails", "test_references_are_defined"),
        (
            "resources/migrate.job.yml",
            "pipelines.migration.id",
            "pipelines.move.id",
            "test_references_are_defined",
        ),
        (
            "resources/migration.pipeline.yml",
            "path: ../src/pipelines/migrate",
            "path: ../src/moved",
            "test_files_exist",
        ),
        ("resources/migration.pipeline.yml", "path}/src/orders", "path}/src/shop", "test_files_exist"),
        ("databricks.yml", "resources/*.yml\n", "resources/*.yml\n  - jobs/*.yml\n", "test_files_exist"),
        (
            "resources/migrate.job.yml",
            "- task_key: prepare\n        ",
            "- task_key: first\n        ",
            "test_tasks_",
        ),
        ("resources/migrate.job.yml", "- task_key: status\n", "- task_key: compare\n", "test_tasks_"),
        ("resources/migrate.job.yml", "max_retries: 0\n", "max_retries: 3\n", "test_jobs_have_a_timeout_"),
        ("resources/convert.job.yml", "timeout_seconds: 86400\n", "timeout_seconds: 0\n", "test_jobs_"),
        (
            "resources/convert.job.yml",
            "disable_auto_optimization: true\n",
            "disable_auto_optimization: false\n",
            "test_jobs_",
        ),
        (
            "resources/migrate.job.yml",
            "- environment_key: default",
            "- environment_key: other",
            "test_tasks_",
        ),
        (
            "resources/sample_data.job.yml",
            "environment_key: default",
            "environment_key: other",
            "test_tasks_",
        ),
        (
            "resources/migrate.job.yml",
            "- task_key: prepare\n          max",
            "- task_key: prepare\n          depends_on: [{task_key: status}]\n          max",
            "test_tasks_",
        ),
    ],
)
def test_own_tests_of_bundle_find_broken_file(
    default_bundle: Path, tmp_path: Path, file: str, old: str, new: str, test: str
) -> None:
    made = shutil.copytree(default_bundle, tmp_path / "broken")
    text = (made / file).read_text("utf-8")
    assert old in text
    (made / file).write_text(text.replace(old, new, 1), "utf-8")
    failed = []
    for name, own in own_tests(made).items():
        try:
            own()
        except (AssertionError, CycleError):
            failed.append(name)
    assert len(failed) == 1
    assert failed[0].startswith(test)


def jobs(made: Path) -> dict[str, Any]:
    """Return the jobs of a bundle by their names, without the example's job, which is in a target."""
    return {
        name: job
        for file in sorted((made / "resources").glob("*.job.yml"))
        for name, job in yaml.safe_load(file.read_text("utf-8")).get("resources", {}).get("jobs", {}).items()
    }


def tasks(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tasks of a job, and for a loop the task that it repeats."""
    return [task.get("for_each_task", {}).get("task", task) for task in job["tasks"]]


JOBS = {
    "pipelines": {"migrate"},
    "convert": {"convert", "convert_sync"},
    "fleet": {f"fleet_{name}" for name in ("add", "wave", "preprocess", "communicate", "migrate")}
    | {"fleet_shadow", "fleet_revert"},
}


def test_every_file_of_a_job_has_one_job(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        for file in (made / "resources").glob("*.job.yml"):
            tree = yaml.safe_load(file.read_text("utf-8"))
            (group,) = [tree.get("targets", {}).get("dev", tree)["resources"]["jobs"]]
            assert list(group) == [file.name.removesuffix(".job.yml")], answers
        routes = JOBS if answers["route"] == "all" else {answers["route"]: JOBS[answers["route"]]}
        assert jobs(made).keys() == set().union(*routes.values()) | {"doctor"}


def test_every_job_runs_the_wheel_on_the_compute_that_was_chosen(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        chosen, other = ("environments", "job_clusters")[:: 1 if answers["compute"] == "serverless" else -1]
        for name, job in jobs(made).items():
            if name.startswith("fleet_") or (name == "doctor" and answers["route"] == "fleet"):
                # Serverless compute serves no Hive SerDe tables.
                assert ("job_clusters" in job, "environments" in job) == (True, False), (answers, name)
            else:
                assert chosen in job
                assert other not in job or (name, answers["route"]) == ("doctor", "all")
            wheels = [task["python_wheel_task"] for task in tasks(job) if "python_wheel_task" in task]
            assert wheels
            assert {entry["package_name"] for entry in wheels} == {"tableferry"}
            assert {entry["entry_point"] for entry in wheels} == {"tableferry"}


def test_every_cluster_of_a_fleet_has_dedicated_access_and_the_fleets_settings(
    matrix: list[tuple[Answers, Path]],
) -> None:
    for name, job in [entry for _, made in matrix for entry in jobs(made).items()]:
        for cluster in [entry["new_cluster"] for entry in job.get("job_clusters", [])]:
            assert cluster["node_type_id"] == "${var.node_type}"
            if name.startswith("fleet_"):
                assert cluster["data_security_mode"] == "DATA_SECURITY_MODE_DEDICATED"
                assert cluster["spark_conf"] == "${var.fleet_spark_conf}"


@pytest.mark.parametrize(
    ("cloud", "node_type"), [("aws", "i3.xlarge"), ("azure", "Standard_D4ds_v5"), ("gcp", "n2-highmem-4")]
)
def test_clusters_have_a_node_type_of_the_cloud(tmp_path: Path, cloud: str, node_type: str) -> None:
    assert settings(rendered(tmp_path, cloud=cloud))["variables"]["node_type"]["default"] == node_type


def test_targets_have_the_answered_hosts(tmp_path: Path) -> None:
    hosts = {"dev_host": "https://dev.tea.example", "prod_host": "https://prod.tea.example"}
    targets = settings(rendered(tmp_path, **hosts))["targets"]
    assert {name: target["workspace"]["host"] for name, target in targets.items()} == {
        "dev": "https://dev.tea.example",
        "prod": "https://prod.tea.example",
    }


SCHEDULES = {
    "migrate": "pipelines",
    "convert_sync": "convert",
    "fleet_preprocess": "fleet",
    "fleet_communicate": "fleet",
    "fleet_migrate": "fleet",
    "fleet_shadow": "fleet",
}


def test_each_route_has_a_separate_variable_that_unpauses_its_schedules(
    matrix: list[tuple[Answers, Path]],
) -> None:
    for answers, made in matrix:
        for name, job in jobs(made).items():
            scheduled = job.get("schedule") or job.get("trigger")
            if name in SCHEDULES:
                assert scheduled["pause_status"] == f"${{var.{SCHEDULES[name]}_pause_status}}"
            else:
                assert scheduled is None, (answers, name)
        written = settings(made)
        switches = {name for name in written["variables"] if name.endswith("_pause_status")}
        routes = JOBS if answers["route"] == "all" else {answers["route"]}
        assert switches == {f"{route}_pause_status" for route in routes}
        assert {written["variables"][name]["default"] for name in switches} == {"PAUSED"}
        assert {written["targets"]["prod"]["variables"][name] for name in switches} == {"PAUSED"}
        assert not [target for target in written["targets"].values() if "presets" in target]


def test_every_bundle_has_a_job_that_checks_the_workspace(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        routes = set()
        for task in tasks(jobs(made)["doctor"]):
            parameters = task["python_wheel_task"]["parameters"]
            assert parameters[:2] == ["doctor", "--markdown"]
            options = parameters[2:]
            known = "--route --catalog --schema --state --pipeline-id --store --settings --env"
            assert set(options[::2]) <= set(known.split())
            pairs = zip(options[::2], options[1::2], strict=True)
            routes |= {value for name, value in pairs if name == "--route"}
        assert routes == (JOBS.keys() if answers["route"] == "all" else {answers["route"]})
        readme = (made / "README.md").read_text("utf-8")
        commands = re.findall(r"^databricks bundle run (\w+)", readme, re.MULTILINE)
        assert commands[0] == "doctor"
        assert "uv.lock" in readme
        assert "databricks bundle run doctor" in (made / "AGENTS.md").read_text("utf-8")


def test_task_compare_runs_command_compare(tmp_path: Path) -> None:
    job = jobs(rendered(tmp_path))["migrate"]
    commands = {task["task_key"]: task["python_wheel_task"]["parameters"][:2] for task in tasks(job)[2:]}
    assert commands == {"compare": ["pipelines", "compare"], "status": ["pipelines", "status"]}


def settings(made: Path) -> Any:
    return yaml.safe_load((made / "databricks.yml").read_text("utf-8"))


def test_the_specs_of_every_bundle_are_right(matrix: list[tuple[Answers, Path]]) -> None:
    for made in [made for answers, made in matrix if answers["route"] in WITH_PIPELINES]:
        for environment in ("dev", "prod"):
            project = specs.load(made / "src" / "orders", environment=environment)
            assert [dataflow.target.name.table for dataflow in project.dataflows] == ["customers", "orders"]
            assert all(dataflow.migration for dataflow in project.dataflows)


def test_the_python_of_every_bundle_is_clean(matrix: list[tuple[Answers, Path]]) -> None:
    folder = matrix[0][1].parents[1]
    # A cache would change the bundles, which other tests read.
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        result = run("ruff", *command, ".", cwd=folder)
        assert result.returncode == 0, result.stdout


def test_answered_names_are_used_in_bundle(tmp_path: Path) -> None:
    made = rendered(tmp_path, project_name="tea_shop", catalog="tea-eu")
    assert made == tmp_path / "tea_shop"
    written = yaml.safe_load((made / "databricks.yml").read_text(encoding="utf-8"))
    assert written["bundle"]["name"] == "tea_shop"
    defaults = {
        name: variable["default"] for name, variable in written["variables"].items() if "default" in variable
    }
    assert defaults["catalog"] == "tea-eu"
    assert (defaults["schema"], defaults["fleet_schema"]) == ("tea_shop", "tea_shop_fleet")
    assert defaults["convert_sources"] == "tea-eu.landing.*"
    project = tomllib.loads((made / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == "tea_shop"
    assert (made / "README.md").read_text(encoding="utf-8").startswith("# tea_shop\n")
    loaded = specs.load(made / "src" / "orders", environment="prod")
    assert loaded.state_volume == "/Volumes/tea-eu/tea_shop/migration_state"


def test_each_bundle_has_a_different_uuid(tmp_path: Path) -> None:
    wheel = tmp_path / new.wheel_name()
    wheel.touch()
    first, other = (
        new.create(tmp_path / name, {"route": "fleet"}, no_input=True, wheel=wheel)
        for name in ("one", "other")
    )
    identities = {
        yaml.safe_load((made / "databricks.yml").read_text())["bundle"]["uuid"] for made in (first, other)
    }
    assert len(identities) == 2


WRONG = {
    "project_name": "Tea-Shop",
    "catalog": "tea.shop",
    "dev_host": "tea.example",
    "package": "git",
    "package_source": "tea.example",
}
SENTENCES = [
    "project_name must start with a lower-case letter, and contain only lower-case letters, digits and "
    "single underscores; it is 'Tea-Shop'.",
    "catalog must be the name of a catalog: letters, digits, underscores and hyphens, without a digit or "
    "hyphen at the start; it is 'tea.shop'.",
    "dev_host must be a URL such as https://my-workspace.cloud.databricks.com, without a path, a password "
    "and a token, or be empty.",
    "package_source must be a URL that starts with https:// or ssh:// and contains no password and no token, "
    "or the word workspace, or be empty.",
]
NO_ROUTE = "route needs an answer: choose pipelines, convert, fleet or all."


def cookiecutter(folder: Path, **answers: str) -> subprocess.CompletedProcess[str]:
    """Run the command cookiecutter in a folder."""
    given = [f"{name}={answer}" for name, answer in answers.items()]
    return run("cookiecutter", ROOT, "--directory", "template", "--no-input", *given, cwd=folder)


def test_cookiecutter_lists_all_invalid_answers_without_a_stack_trace(tmp_path: Path) -> None:
    result = cookiecutter(tmp_path, **WRONG, color="red")
    asked = ", ".join(ASKED)
    unknown = f"The template doesn't ask for 'color': it asks for {asked}."
    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.splitlines() == [unknown, *SENTENCES, NO_ROUTE]
    assert list(tmp_path.iterdir()) == []


def test_cookiecutter_reports_a_failed_hook_without_a_stack_trace(tmp_path: Path) -> None:
    shutil.copytree(TEMPLATE, tmp_path / "elsewhere" / "template")
    (tmp_path / "here").mkdir()
    template = tmp_path / "elsewhere" / "template"
    result = run("cookiecutter", template, "--no-input", "route=fleet", cwd=tmp_path / "here")
    assert result.returncode == 1
    assert "There is no src/tableferry beside the template" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_new_lists_all_invalid_answers(tmp_path: Path) -> None:
    problems = [
        f"the template doesn't ask for 'color': it asks for {', '.join(ASKED)}",
        SENTENCES[0],
        "route can't be 'ferry': choose pipelines or convert or fleet or all",
        *SENTENCES[1:],
    ]
    expected = "; ".join(problem.removesuffix(".") for problem in problems)
    with raises("TEMPLATE_ANSWERS_INVALID", problems=expected):
        new.create(tmp_path, {"color": "red", **WRONG, "route": "ferry"}, no_input=True)
    assert list(tmp_path.iterdir()) == []


def test_route_is_a_required_answer(tmp_path: Path) -> None:
    with raises("TEMPLATE_ANSWERS_INVALID", problems=NO_ROUTE.removesuffix(".")):
        new.create(tmp_path, no_input=True)
    result = CliRunner().invoke(cli.app, ["new", str(tmp_path)], input="\n" * len(ASKED))
    assert result.exit_code == 1
    assert NO_ROUTE in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "source",
    [
        "https://user:secret@tea.example/simple",
        "https://secret@tea.example/simple",
        "ssh://git:secret@tea.example/tableferry",
        "https://tea.example/simple?token=secret",
    ],
)
def test_source_with_credentials_is_refused_and_not_printed(tmp_path: Path, source: str) -> None:
    given = {"route": "fleet", "package": "git", "package_source": source}
    with raises("TEMPLATE_ANSWERS_INVALID", problems=SENTENCES[3].removesuffix(".")):
        new.create(tmp_path, given, no_input=True)
    result = cookiecutter(tmp_path, **given)
    assert (result.returncode, result.stdout) == (1, f"{SENTENCES[3]}\n")
    assert "secret" not in result.stdout + result.stderr


def test_host_with_credentials_is_refused(tmp_path: Path) -> None:
    given = {"route": "fleet", "prod_host": "https://token:secret@tea.example"}
    expected = SENTENCES[2].replace("dev_host", "prod_host").removesuffix(".")
    with raises("TEMPLATE_ANSWERS_INVALID", problems=expected):
        new.create(tmp_path, given, no_input=True)


@pytest.mark.parametrize("package", ["wheel", "vendored"])
def test_unused_source_is_refused(tmp_path: Path, package: str) -> None:
    given = {"route": "fleet", "package": package, "package_source": SOURCE}
    with raises(
        "TEMPLATE_ANSWERS_INVALID", problems=f"package={package} doesn't use package_source: leave it empty"
    ):
        new.create(tmp_path, given, no_input=True)


@pytest.mark.parametrize(
    ("package", "source", "sentence"),
    [
        ("git", "", "package=git needs package_source: the URL of the repository"),
        ("git", "workspace", "package=git needs package_source: the URL of the repository"),
        ("index", "", "package=index needs package_source: the URL of the index, or workspace"),
    ],
)
def test_package_without_its_source_is_refused(
    tmp_path: Path, package: str, source: str, sentence: str
) -> None:
    given = {"route": "fleet", "package": package, "package_source": source}
    with raises("TEMPLATE_ANSWERS_INVALID", problems=sentence):
        new.create(tmp_path, given, no_input=True)


@pytest.mark.parametrize("name", ["tableferry", "null"])
def test_invalid_names_are_refused(tmp_path: Path, name: str) -> None:
    with raises("TEMPLATE_ANSWERS_INVALID", problems=re.compile(f"project_name can't be '{name}', because")):
        new.create(tmp_path, {"project_name": name, "route": "fleet"}, no_input=True)


def test_invalid_choice_leaves_no_files(tmp_path: Path) -> None:
    result = run("cookiecutter", ROOT, "--directory", "template", "--no-input", "compute=big", cwd=tmp_path)
    assert result.returncode == 1
    assert "big provided for choice variable compute" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_new_prints_next_commands(tmp_path: Path) -> None:
    answered = ("route=fleet", "package=index", "package_source=workspace")
    arguments = ["new", str(tmp_path), "--no-input", *(f"--answer={answer}" for answer in answered)]
    result = CliRunner().invoke(cli.app, [*arguments, "--answer", "project_name=tea_shop"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"Created {tmp_path}/tea_shop. Next:\n\n    cd {tmp_path}/tea_shop\n    make test\n"
        "    databricks bundle deploy\n"
    )
    answers = "tea_bar\n4\n\n\n\n\n\n2\nworkspace\n\n"
    result = CliRunner().invoke(cli.app, ["new", str(tmp_path / "a b")], input=answers)
    assert f"Created {tmp_path}/a b/tea_bar. Next:\n\n    cd '{tmp_path}/a b/tea_bar'\n" in result.stdout
    result = CliRunner().invoke(cli.app, [*arguments, "--answer", "catalog"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: [OPTION_NOT_A_PAIR] --answer catalog")
    assert "Write --answer NAME=VALUE." in result.stderr


def test_new_without_terminal_names_required_options(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["new", str(tmp_path)], input="tea_shop\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: [TEMPLATE_NEEDS_ANSWERS]")
    assert list(tmp_path.iterdir()) == []


def test_new_without_cookiecutter_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cookiecutter.main", None)
    with raises("MISSING_PACKAGE_FOR_TEMPLATE", command="pip install 'tableferry[template]'"):
        new.create(tmp_path, no_input=True)


INDEX = {"route": "fleet", "package": "index", "package_source": "workspace"}


def test_new_refuses_existing_folder(tmp_path: Path) -> None:
    made = new.create(tmp_path, INDEX, no_input=True)
    (made / "README.md").write_text("mine")
    with raises("BUNDLE_EXISTS", folder=made):
        new.create(tmp_path, INDEX, no_input=True)
    assert (made / "README.md").read_text() == "mine"


def test_relative_path_of_clone_is_rendered(tmp_path: Path) -> None:
    copy_of_the_repository(tmp_path / "clone")
    (tmp_path / "here").mkdir()
    command = ("cookiecutter", "../clone", "--directory", "template", "--no-input", "route=all")
    result = run(*command, cwd=tmp_path / "here")
    assert (result.returncode, result.stderr) == (0, "")
    made = tmp_path / "here" / "table_migration"
    (wheel,) = (made / "libs").glob("*.whl")
    assert wheel.name == new.wheel_name()
    kept = {
        name
        for name in ZipFile(wheel).namelist()
        if not name.startswith(("tableferry-", "tableferry/template"))
    }
    assert kept == {f"tableferry/{name}" for name in (*contents(PACKAGE), "LICENSE")}
    # An outdated PWD of a shell has no effect.
    result = run(*command, "project_name=other", "package=vendored", cwd=tmp_path / "here", PWD="/")
    assert (result.returncode, result.stderr) == (0, "")
    assert contents(tmp_path / "here/other/vendor/tableferry/src/tableferry") == contents(PACKAGE)


def test_uv_builds_the_wheel_if_installed(tmp_path: Path) -> None:
    """The build doesn't use the new bundle's settings of uv, which search for wheels in libs."""
    copy_of_the_repository(tmp_path / "clone")
    (tmp_path / "here").mkdir()
    command = ("cookiecutter", "../clone", "--directory", "template", "--no-input", "route=all")
    path = os.pathsep.join([str(Path(uv.find_uv_bin()).parent), os.environ["PATH"]])
    completed = run(*command, cwd=tmp_path / "here", PATH=path)
    assert (completed.returncode, completed.stderr) == (0, "")
    libs = tmp_path / "here/table_migration/libs"
    assert [file.name for file in libs.glob("*.whl")] == [new.wheel_name()]


def test_git_url_is_rendered(tmp_path: Path) -> None:
    repository = copy_of_the_repository(tmp_path / "tableferry.git")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@tea.example"]
        subprocess.run(["git", *identity, *arguments], cwd=repository, check=True)
    (tmp_path / "here").mkdir()
    given = (
        "--directory",
        "template",
        "--no-input",
        "route=all",
        "package=vendored",
        f"__uuid={FIXED['__uuid']}",
    )
    result = run("cookiecutter", f"file://{repository}", *given, cwd=tmp_path / "here")
    assert result.returncode == 0, result.stderr
    expected = rendered(tmp_path / "expected", package="vendored")
    assert contents(tmp_path / "here" / "table_migration") == contents(expected)


def test_template_without_repository_is_refused(tmp_path: Path) -> None:
    shutil.copytree(TEMPLATE, tmp_path / "elsewhere" / "template")
    (tmp_path / "here").mkdir()
    template = tmp_path / "elsewhere" / "template"
    command = ("cookiecutter", template, "--no-input", "route=fleet")
    result = run(*command, cwd=tmp_path / "here")
    assert result.returncode == 1
    assert result.stderr.splitlines()[0] == (
        f"There is no src/tableferry beside the template {template}: name the whole repository, by its "
        "absolute path or its URL, with --directory template; or answer package=index or package=git."
    )
    assert list((tmp_path / "here").iterdir()) == []
    index = ("package=index", "package_source=workspace")
    assert run(*command, *index, cwd=tmp_path / "here").returncode == 0


def test_package_without_template_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new, "PACKAGE", tmp_path / "src" / "tableferry")
    with raises("TEMPLATE_MISSING", folder=tmp_path / "src" / "tableferry"):
        new.create(tmp_path, no_input=True)


def test_compiled_modules_of_installed_template_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages" / "tableferry"
    shutil.copytree(PACKAGE, installed)
    shutil.copytree(TEMPLATE, installed / "template")
    sample = installed / "template" / "{{cookiecutter.project_name}}" / "src" / "sample"
    (sample / "__pycache__").mkdir()
    (sample / "__pycache__" / "load.cpython-311.pyc").write_bytes(b"\x00\x01\x02")
    monkeypatch.setattr(new, "PACKAGE", installed)
    made = rendered(tmp_path / "installed")
    monkeypatch.undo()
    assert contents(made) == contents(rendered(tmp_path / "clone"))


def test_template_has_version_and_pythons_of_package(tmp_path: Path) -> None:
    assert QUESTIONS["__tableferry_version"] == __version__
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    answers: Answers
    for answers in ({}, {"route": "convert", "package": "git", "package_source": "https://tea.example/t"}):
        text = (rendered(tmp_path / str(len(answers)), **answers) / "pyproject.toml").read_text(
            encoding="utf-8"
        )
        bundle = tomllib.loads(text)
        assert bundle["project"]["requires-python"] == package["requires-python"]
        extras = package["optional-dependencies"]
        tools = (*extras["dev"], *extras["test"], *extras["local"])
        assert [
            requirement for requirement in bundle["dependency-groups"]["dev"] if requirement not in tools
        ] == []


@pytest.mark.parametrize(
    ("package", "sentence"),
    [
        ("wheel", "Name the new wheel: make upgrade WHEEL=/path/to/tableferry-VERSION-py3-none-any.whl"),
        ("index", "Name the version: make upgrade VERSION=1.2.3"),
        (
            "vendored",
            "Name a bundle that has the newer package: make upgrade BUNDLE=/path/to/the/newer/bundle",
        ),
    ],
)
def test_upgrade_without_package_names_required_argument(tmp_path: Path, package: str, sentence: str) -> None:
    made = rendered(tmp_path, package=package, package_source="workspace" if package == "index" else "")
    before = contents(made)
    for named in ([], ["WHEEL=nothing.whl", "BUNDLE=/nowhere"]):
        completed = subprocess.run(
            ["make", "upgrade", "UV=/bin/true", *named], cwd=made, capture_output=True, text=True
        )
        assert completed.returncode != 0
        assert completed.stderr.splitlines()[0] == sentence
        assert contents(made) == before


def test_clusters_install_packages_of_wheel_extras(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    written = yaml.safe_load((rendered(tmp_path, compute="classic") / "databricks.yml").read_text("utf-8"))
    for variable, needed in (
        ("libraries", ["databricks", "sync"]),
        ("fleet_libraries", ["databricks", "fleet"]),
    ):
        installed = [
            library["pypi"]["package"]
            for library in written["variables"][variable]["default"]
            if "pypi" in library
        ]
        assert installed == [requirement for extra in needed for requirement in extras[extra]]


def copy_of_the_repository(target: Path) -> Path:
    """Copy the files of a clone that the template needs."""
    nothing_compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TEMPLATE, target / "template")
    shutil.copytree(PACKAGE, target / "src" / "tableferry", ignore=nothing_compiled)
    for name in ("LICENSE", "README.md", "pyproject.toml"):
        shutil.copyfile(ROOT / name, target / name)
    return target
