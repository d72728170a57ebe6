"""The template, rendered with answers in many combinations, with wrong ones, and from wherever it may lie."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.native import render_native
from scripts.render import GOLDEN, ROOT, SHARED, own_files, render_golden
from tests.soak import SOAKING
from typer.testing import CliRunner

from tableferry import bundle, cli, new
from tableferry.errors import TemplateError
from tableferry.pipelines import spec

TEMPLATE = ROOT / "template"
PACKAGE = ROOT / "src" / "tableferry"
RENDER = "render it anew: make render"
QUESTIONS = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))
ASKED = [name for name in QUESTIONS if not name.startswith("_")]
CHOICES = {name: QUESTIONS[name] for name in ASKED if isinstance(QUESTIONS[name], list)}


def asked(answers: dict[str, str]) -> bool:
    """Say whether each answer matters: where the route doesn't ask, one answer stands for all."""
    pointless = [
        name
        for each in QUESTIONS["_only_with"]
        for name in each["questions"]
        if answers[each["question"]] not in each["answers"]
    ]
    # Who is told is the same for each route; what a fleet's tables become, with the others or without.
    if answers["route"] != "all" and answers["notifications"]:
        return False
    if answers["route"] == "all" and answers["fleet_format"] != CHOICES["fleet_format"][0]:
        return False
    return all(answers[name] == CHOICES[name][0] for name in pointless if name in CHOICES)


VARIED = {**CHOICES, "notifications": ["", "data@tea.example"]}
MATRIX = [
    answers
    for combination in product(*VARIED.values())
    if asked(answers := dict(zip(VARIED, combination, strict=True)))
]


def pairs(answers: dict[str, str]) -> set[tuple[tuple[str, str], ...]]:
    """Return what is answered to each two of the questions."""
    return set(combinations(answers.items(), 2))


def covering(matrix: list[dict[str, str]]) -> list[dict[str, str]]:
    """Choose some of the combinations in which each pair of answers is that is in any of them.

    The one with most new pairs comes next, and of several the first.
    """
    chosen = []
    left = set().union(*map(pairs, matrix))
    while left:
        chosen.append(max(matrix, key=lambda answers: len(pairs(answers) & left)))
        left -= pairs(chosen[-1])
    return chosen


# Rendering takes a quarter of a second each.
RENDERED = MATRIX if SOAKING else covering(MATRIX)

# How the names of the files begin that only one route has.
ROUTES = {
    "pipelines": (
        "resources/migrat",
        "resources/sample",
        "resources/state",
        "resources/target",
        "src/orders",
    ),
    "convert": ("resources/convert", "tests/test_convert"),
    "fleet": ("resources/fleet", "src/fleet", "tests/test_fleet"),
}
WITH_PIPELINES = ("all", "pipelines")

Answers = dict[str, str]

pytestmark = pytest.mark.usefixtures("cookiecutters_own_settings")


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Answers, Path]]:
    """A bundle for each combination of the choices that this run renders."""
    folder = tmp_path_factory.mktemp("matrix")
    return [
        (answers, new.create(folder / str(number), answers, no_input=True))
        for number, answers in enumerate(RENDERED)
    ]


def contents(root: Path, *names: str) -> dict[str, bytes | Path]:
    """Read the files, and where the links lead to, below these names or below the whole folder."""
    places = [root / name for name in names] if names else [root]
    files = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
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


def test_the_root_bundle_is_the_template_with_its_defaults(tmp_path: Path) -> None:
    made = contents(new.create(tmp_path, no_input=True), *SHARED)
    assert len(made) > 10
    assert contents(ROOT, *SHARED) == made, RENDER


def test_the_native_twin_is_in_step(tmp_path: Path) -> None:
    # Links lead to the same places from a folder as deep.
    depth = tmp_path / "native"
    render_native(depth)
    made, kept = contents(depth), contents(ROOT / "native")
    assert made.keys() == kept.keys(), RENDER
    written = {name for name, content in made.items() if isinstance(content, bytes)}
    assert [name for name in written if made[name] != kept[name]] == [], RENDER
    linked = [ROOT / "native" / name for name, content in kept.items() if isinstance(content, Path)]
    assert [path for path in linked if not path.is_file()] == [], RENDER


def test_the_golden_files_are_in_step(tmp_path: Path) -> None:
    render_golden(tmp_path / "golden")
    assert contents(tmp_path / "golden") == contents(GOLDEN), RENDER


def test_each_pair_of_answers_that_is_possible_is_rendered() -> None:
    for one, other in combinations(VARIED, 2):
        for pair in product(VARIED[one], VARIED[other]):
            asked_together = any((each[one], each[other]) == pair for each in MATRIX)
            rendered = any((each[one], each[other]) == pair for each in RENDERED)
            assert rendered == asked_together, (one, other, pair)
    assert len(covering(MATRIX)) < len(MATRIX) / 4


def test_every_bundle_has_what_was_chosen_and_nothing_else(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        names = {name for name, _ in own_files(made)}
        for route, starts in ROUTES.items():
            chosen = answers["route"] in ("all", route)
            assert any(name.startswith(starts) for name in names) == chosen, (answers, route)
        if answers["route"] in WITH_PIPELINES:
            other = {"json": "yaml", "yaml": "json"}[answers["spec_format"]]
            assert f"src/orders/pipeline_configs/global.{answers['spec_format']}" in names
            specs = [name for name in names if name.startswith("src/orders/")]
            assert not [name for name in specs if name.endswith(f".{other}")]
        assert any(name.startswith("tests/") for name in names) == (answers["include_tests"] == "yes")
        assert (".github/workflows/ci.yml" in names) == (answers["include_ci"] == "yes")
        assert (made / "tests").exists() == (answers["include_tests"] == "yes")
        assert (made / ".github").exists() == (answers["include_ci"] == "yes")


def test_every_bundle_holds_the_package_and_its_licence(matrix: list[tuple[Answers, Path]]) -> None:
    expected = {**contents(PACKAGE), "LICENSE": (ROOT / "LICENSE").read_bytes()}
    for _, made in matrix:
        assert contents(made / "src" / "tableferry") == expected
        assert not list(made.rglob("__pycache__"))


def test_every_bundle_reads_as_if_written_by_hand(matrix: list[tuple[Answers, Path]]) -> None:
    for _, made in matrix:
        for name, text in own_files(made):
            place = f"{made.name}/{name}"
            left = re.sub(r"\{\{(input|job\.parameters\.[a-z_]+)\}\}", "", text).lower()
            assert not [mark for mark in ("cookiecutter", "{%", "{{", "}}", "{#") if mark in left], place
            assert text[0] not in "\n ", place
            assert text.endswith("\n"), place
            assert not text.endswith("\n\n"), place
            lines = text.split("\n")
            assert not [line for line in lines if line != line.rstrip()], place
            assert ("\n\n\n" not in text) or name.endswith(".py"), place


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
        bundle = yaml.safe_load((made / "databricks.yml").read_text(encoding="utf-8"))
        told = bundle["variables"]["notifications"]["default"]
        assert told == ([answers["notifications"]] if answers["notifications"] else [])
        if answers["route"] not in WITH_PIPELINES:
            continue
        pipeline = yaml.safe_load((made / "resources/migration.pipeline.yml").read_text(encoding="utf-8"))
        serverless = pipeline["resources"]["pipelines"]["migration"].get("serverless", False)
        assert serverless == (answers["compute"] == "serverless")


def test_every_bundle_has_nothing_wrong(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        found = bundle.examine(made)
        assert (found.problems, found.notes) == ((), ()), answers


def test_every_job_runs_the_wheel_on_the_compute_that_was_chosen(matrix: list[tuple[Answers, Path]]) -> None:
    for answers, made in matrix:
        chosen, other = ("environments", "job_clusters")[:: 1 if answers["compute"] == "serverless" else -1]
        jobs = [yaml.safe_load(path.read_text("utf-8")) for path in (made / "resources").glob("*.job.yml")]
        # The example's job is in a target.
        found = [one for each in jobs for one in each.get("resources", {}).get("jobs", {}).values()]
        assert len(found) == {"all": 8, "pipelines": 1, "convert": 1, "fleet": 6}[answers["route"]]
        for job in found:
            assert chosen in job
            assert other not in job
            tasks = [task.get("for_each_task", {}).get("task", task) for task in job["tasks"]]
            wheels = [task["python_wheel_task"] for task in tasks if "python_wheel_task" in task]
            assert wheels
            assert {one["package_name"] for one in wheels} == {made.name}
            assert {one["entry_point"] for one in wheels} == {"tableferry"}


def test_the_specs_of_every_bundle_are_right(matrix: list[tuple[Answers, Path]]) -> None:
    for made in [made for answers, made in matrix if answers["route"] in WITH_PIPELINES]:
        for environment in ("dev", "prod"):
            project = spec.load(made / "src" / "orders", environment=environment)
            assert [one.target.name.table for one in project.dataflows] == ["customers", "orders"]
            assert all(one.migration for one in project.dataflows)


def test_the_python_of_every_bundle_is_clean(matrix: list[tuple[Answers, Path]]) -> None:
    folder = matrix[0][1].parents[1]
    # A cache would be in the bundles, which other tests read.
    for command in (["check", "--no-cache"], ["format", "--check", "--no-cache"]):
        said = run("ruff", *command, ".", cwd=folder)
        assert said.returncode == 0, said.stdout


def test_names_that_are_answered_are_the_names_that_are_used(tmp_path: Path) -> None:
    given = {"project_name": "Größe: 4 & more, (really)", "project_slug": "tea_shop", "catalog": "tea-eu"}
    named = {"schema": "Silver", "volume": "_state", "convert_sources": SOURCES}
    made = new.create(tmp_path, {**given, **named}, no_input=True)
    assert made == tmp_path / "tea_shop"
    written = yaml.safe_load((made / "databricks.yml").read_text(encoding="utf-8"))
    assert written["bundle"]["name"] == "tea_shop"
    targets = written["targets"].values()
    common = {"catalog": "tea-eu", "convert_sources": SOURCES}
    assert [each["variables"] for each in targets] == [common, {**common, "fleet_dry_run": "false"}]
    assert written["variables"]["schema"]["default"] == "Silver"
    assert written["variables"]["volume"]["default"] == "_state"
    schema = yaml.safe_load((made / "resources/target.schema.yml").read_text(encoding="utf-8"))
    assert schema["resources"]["schemas"]["target"]["comment"] == "The tables of Größe: 4 & more, (really)."
    assert (
        tomllib.loads((made / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"] == "tea_shop"
    )
    assert (made / "README.md").read_text(encoding="utf-8").startswith("# Größe: 4 & more, (really)\n")
    project = spec.load(made / "src" / "orders", environment="prod")
    assert project.state_volume == "/Volumes/tea-eu/Silver/_state"


SOURCES = "tea-eu.raw.*,hive_metastore.old.orders, s3://tea/landing/day=%2F1, /Volumes/tea/raw/files, raw.x"


def test_the_tables_to_convert_are_in_the_catalog_that_was_answered(tmp_path: Path) -> None:
    made = new.create(tmp_path, {"catalog": "tea", "route": "convert"}, no_input=True)
    written = yaml.safe_load((made / "databricks.yml").read_text(encoding="utf-8"))
    assert [each["variables"] for each in written["targets"].values()] == [
        {"convert_sources": "tea.landing.*"}
    ] * 2


@pytest.mark.parametrize(
    "sources", ["orders", "a.b.", "a.b.c;d.e.f", "a.b.*c", "*", "", "a.b.c, ", "${var.x}"]
)
def test_what_names_no_tables_is_refused(tmp_path: Path, sources: str) -> None:
    with pytest.raises(TemplateError, match=r"convert_sources must be tables or folders with commas"):
        new.create(tmp_path, {"convert_sources": sources}, no_input=True)


WRONG = {
    "project_name": 'a "quoted" name',
    "project_slug": "Tea-Shop",
    "catalog": "tea.shop",
    "schema": "yes",
    "volume": "my volume",
    "convert_sources": "orders",
    "fleet_schema": "tea.fleet",
    "fleet_store": "postgresql://tea:secret@db.example/fleet",
    "fleet_mail_host": "smtp://mail.example",
    "fleet_sender": "nobody",
    "notifications": "nobody",
}
SENTENCES = [
    "project_name must be words without quotes, backslashes, braces and the signs < and >; "
    "it is 'a \"quoted\" name'.",
    "project_slug must begin with a lower-case letter, and go on with lower-case letters, digits and single "
    "underscores; it is 'Tea-Shop'.",
    "catalog must be the name of a catalog: letters, digits, underscores and hyphens, with no digit or "
    "hyphen first; it is 'tea.shop'.",
    "schema can't be 'yes', as YAML reads it as something else than text: choose another word.",
    "volume must be the name of a volume, without its schema: letters, digits and underscores, with no digit "
    "first; it is 'my volume'.",
    "convert_sources must be tables or folders with commas between them: catalog.schema.table, "
    "catalog.schema.* or s3://bucket/folder; it is 'orders'.",
    "fleet_schema must be the name of a schema, without its catalog: letters, digits and underscores, with "
    "no digit first; it is 'tea.fleet'.",
    "fleet_store must be delta, or the address of a database without a password, such as "
    "postgresql://user@host/database; it is 'postgresql://tea:secret@db.example/fleet'.",
    "fleet_mail_host must be the name of a mail server; it is 'smtp://mail.example'.",
    "fleet_sender must be one e-mail address; it is 'nobody'.",
    "notifications must be one e-mail address, or empty; it is 'nobody'.",
]


def test_cookiecutter_refuses_wrong_answers_all_at_once(tmp_path: Path) -> None:
    answers = [f"{name}={answer}" for name, answer in WRONG.items()]
    said = run("cookiecutter", ROOT, "--directory", "template", "--no-input", *answers, cwd=tmp_path)
    assert said.returncode == 1
    assert said.stderr.splitlines()[: len(SENTENCES)] == SENTENCES
    assert list(tmp_path.iterdir()) == []


def test_new_refuses_wrong_answers_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(TemplateError) as caught:
        new.create(tmp_path, {"color": "red", **WRONG, "route": "ferry"}, no_input=True)
    first, *others = str(caught.value).splitlines()
    assert first == f"the template doesn't ask for 'color': it asks for {', '.join(ASKED)}"
    assert others == [*SENTENCES, "route can't be 'ferry': choose all or pipelines or convert or fleet."]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slug", ["typer", "pydantic", "null"])
def test_a_slug_that_would_break_the_bundle_is_refused(tmp_path: Path, slug: str) -> None:
    with pytest.raises(TemplateError, match=f"project_slug can't be '{slug}', as"):
        new.create(tmp_path, {"project_slug": slug}, no_input=True)


def test_a_choice_that_cookiecutter_itself_refuses_leaves_nothing(tmp_path: Path) -> None:
    said = run("cookiecutter", ROOT, "--directory", "template", "--no-input", "compute=big", cwd=tmp_path)
    assert said.returncode == 1
    assert "big provided for choice variable compute" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_what_to_type_next(tmp_path: Path) -> None:
    words = ["new", str(tmp_path), "--no-input", "--answer", "project_name=Tea shop"]
    said = CliRunner().invoke(cli.app, words)
    assert (said.exit_code, said.stderr) == (0, "")
    assert said.stdout == (
        f"Made {tmp_path}/tea_shop. Next:\n\n    cd {tmp_path}/tea_shop\n    make test\n"
        "    databricks bundle deploy\n"
    )
    said = CliRunner().invoke(cli.app, [*words, "--answer", "include_tests=no", "--answer", "project_slug=b"])
    assert "    make build\n" in said.stdout
    said = CliRunner().invoke(cli.app, ["new", str(tmp_path / "a b")], input="Tea bar\n" + "\n" * 16)
    assert f"Made {tmp_path}/a b/tea_bar. Next:\n\n    cd '{tmp_path}/a b/tea_bar'\n" in said.stdout
    said = CliRunner().invoke(cli.app, [*words, "--answer", "schema"])
    assert (said.exit_code, said.stderr) == (1, "Error: --answer schema: write it as NAME=VALUE\n")


def test_without_anybody_who_answers_new_says_what_to_give(tmp_path: Path) -> None:
    said = CliRunner().invoke(cli.app, ["new", str(tmp_path)], input="Tea shop\n")
    assert said.exit_code == 1
    assert said.stderr == "Error: nobody answers the questions here: give --no-input and --answer\n"
    assert list(tmp_path.iterdir()) == []


def test_without_cookiecutter_new_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cookiecutter.main", None)
    with pytest.raises(TemplateError, match=r"needs the package cookiecutter.*: pip install cookiecutter$"):
        new.create(tmp_path, no_input=True)


def test_new_makes_nothing_over_something(tmp_path: Path) -> None:
    made = new.create(tmp_path, no_input=True)
    (made / "README.md").write_text("mine")
    with pytest.raises(TemplateError, match="exists already: choose another folder or project_slug"):
        new.create(tmp_path, no_input=True)
    assert (made / "README.md").read_text() == "mine"


def test_answers_that_only_the_hook_sees_are_refused_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TemplateError, match="nothing was made, for the reason above"):
        new.create(tmp_path, {"project_name": "4 teas"}, no_input=True)
    told = capfd.readouterr().err.splitlines()
    assert [line.split(" must ")[0] for line in told] == ["project_slug", "schema", "fleet_schema"]
    assert list(tmp_path.iterdir()) == []


def test_a_clone_is_rendered_from_a_relative_path(tmp_path: Path) -> None:
    clone = copy_of_the_repository(tmp_path / "clone")
    (tmp_path / "here").mkdir()
    command = ("cookiecutter", "../clone", "--directory", "template", "--no-input")
    said = run(*command, cwd=tmp_path / "here")
    assert (said.returncode, said.stderr) == (0, "")
    # A shell's PWD that isn't kept up to date does no harm.
    said = run(*command, "project_slug=other", cwd=tmp_path / "here", PWD="/")
    assert (said.returncode, said.stderr) == (0, "")
    for name in ("tableferry", "other"):
        package = contents(tmp_path / "here" / name / "src" / "tableferry")
        assert package.keys() == {*contents(clone / "src" / "tableferry"), "LICENSE"}


def test_a_git_url_is_rendered(tmp_path: Path) -> None:
    repository = copy_of_the_repository(tmp_path / "tableferry.git")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "All"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@tea.example"]
        subprocess.run(["git", *identity, *words], cwd=repository, check=True)
    (tmp_path / "here").mkdir()
    url = f"file://{repository}"
    said = run("cookiecutter", url, "--directory", "template", "--no-input", cwd=tmp_path / "here")
    assert said.returncode == 0, said.stderr
    expected = new.create(tmp_path / "expected", no_input=True)
    assert contents(tmp_path / "here" / "tableferry") == contents(expected)


def test_a_template_without_its_repository_is_refused(tmp_path: Path) -> None:
    shutil.copytree(TEMPLATE, tmp_path / "elsewhere" / "template")
    (tmp_path / "here").mkdir()
    template = tmp_path / "elsewhere" / "template"
    said = run("cookiecutter", template, "--no-input", cwd=tmp_path / "here")
    assert said.returncode == 1
    assert said.stderr.splitlines()[0] == (
        f"There is no src/tableferry beside the template {template}: name the whole repository, by its "
        "absolute path or its URL, with --directory template."
    )
    assert list((tmp_path / "here").iterdir()) == []


def test_a_copy_of_the_package_without_the_template_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new, "PACKAGE", tmp_path / "src" / "tableferry")
    with pytest.raises(TemplateError, match="is a copy without the template"):
        new.create(tmp_path, no_input=True)


def test_what_python_compiled_in_an_installed_template_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages" / "tableferry"
    shutil.copytree(PACKAGE, installed)
    shutil.copytree(TEMPLATE, installed / "template")
    shutil.copyfile(ROOT / "LICENSE", installed / "LICENSE")
    sample = installed / "template" / "{{cookiecutter.project_slug}}" / "src" / "sample"
    (sample / "__pycache__").mkdir()
    (sample / "__pycache__" / "load.cpython-311.pyc").write_bytes(b"\x00\x01\x02")
    monkeypatch.setattr(new, "PACKAGE", installed)
    made = new.create(tmp_path / "installed", no_input=True)
    monkeypatch.undo()
    assert contents(made) == contents(new.create(tmp_path / "clone", no_input=True))


def test_a_bundle_needs_what_the_package_needs() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bundle = bundles_project()
    assert bundle["dependencies"] == package["dependencies"]
    assert bundle["requires-python"] == package["requires-python"]
    assert bundle["scripts"] == package["scripts"]
    extras, known = bundle["optional-dependencies"], package["optional-dependencies"]
    shared = ("local", "connect", "databricks")
    assert [name for name in shared if extras[name] != known[name]] == []
    tools = (*known["dev"], *known["test"], *known["local"])
    assert [each for each in extras["dev"] if each not in tools] == []
    names = [each.split(">=")[0] for each in package["dependencies"]]
    assert sorted(QUESTIONS["_reserved"][1]["words"]) == names


def bundles_project() -> dict[str, Any]:
    text = (TEMPLATE / "{{cookiecutter.project_slug}}" / "pyproject.toml").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith("{%")]
    _, without_tests = (line for line in lines if line.startswith("dev = "))
    lines.remove(without_tests)
    project: dict[str, Any] = tomllib.loads("".join(lines))["project"]
    return project


def copy_of_the_repository(target: Path) -> Path:
    """Copy what a clone needs for the template."""
    nothing_compiled = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TEMPLATE, target / "template")
    shutil.copytree(PACKAGE, target / "src" / "tableferry", ignore=nothing_compiled)
    shutil.copyfile(ROOT / "LICENSE", target / "LICENSE")
    return target
