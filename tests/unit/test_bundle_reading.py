"""How a bundle is read: files, targets, variables, the CLI where there is one, and whatever YAML may be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bundle_files import EXAMPLE, JOB, PIPELINE, PROJECT, ROOT, BundleFiles

from tableferry import bundle
from tableferry.errors import Refused

CRON = "0 30 2 ? * MON-FRI"
WAITS = (JOB, "            - task_key: refresh\n", "            - task_key: refesh\n")


def test_a_folder_without_a_bundle_and_a_target_that_is_not_there(shop: BundleFiles, tmp_path: Path) -> None:
    (missing,) = bundle.check(tmp_path)
    assert str(missing).startswith("databricks.yml: can't be read (")
    with pytest.raises(Refused, match=r"has no target 'prd': did you mean 'prod'\?"):
        bundle.examine(shop.root, "prd")


@pytest.mark.parametrize("text", ["a: [", "- a", "a: &a [*a]", "a: " + "[" * 200 + "]" * 200, "\0"])
def test_what_cannot_be_read_is_reported_and_nothing_else(shop: BundleFiles, text: str) -> None:
    shop.replace(*WAITS).write("resources/odd.yml", text)
    examination = bundle.examine(shop.root)
    assert [(problem.file, problem.rule) for problem in examination.problems] == [
        ("resources/odd.yml", "unreadable")
    ]
    assert examination.targets == ()


def test_a_file_of_aliases_that_never_ends_is_not_read_to_its_end(shop: BundleFiles) -> None:
    lines = ["a0: &a0 []", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    shop.write("resources/odd.yml", "\n".join(lines))
    (finding,) = shop.findings()
    assert finding.startswith("resources/odd.yml: can't be read (its aliases make it too large)")


def test_a_target_changes_a_part_of_a_task_and_is_named_where_only_it_is_wrong(shop: BundleFiles) -> None:
    shop.replace(ROOT, "max_retries: 2", "depends_on: [{task_key: chekc}]")
    (finding,) = shop.findings()
    assert finding == (
        f"{ROOT}:51: resources.jobs.nightly: task 'refresh' waits for 'chekc', which the job doesn't have: "
        "did you mean 'check'? (only in prod) [error: unknown-depends-on]"
    )
    assert bundle.examine(shop.root, "dev").problems == ()


@pytest.mark.parametrize(
    ("definition", "own", "wrong"),
    [
        ("{default: bad}", "", ["dev", "prod"]),
        ("{default: bad}", f"{{default: {CRON}}}", ["dev"]),
        (f"{{default: {CRON}}}", "bad", ["prod"]),
        ("{lookup: {warehouse: w}, default: bad}", "", []),
        ("{default: bad}", "{lookup: {warehouse: w}}", ["dev"]),
        ("{lookup: {warehouse: w}}", "bad", ["prod"]),
        ("{type: complex, default: {at: ['${var.now}', bad]}}", "", []),
        ("{default: '${var.again}'}", "", []),
    ],
)
def test_a_variable_has_the_value_that_the_target_gives_it(
    shop: BundleFiles, definition: str, own: str, wrong: list[str]
) -> None:
    shop.replace(JOB, CRON, "${var.when}").replace(
        ROOT,
        "variables:\n  catalog",
        f"variables:\n  when: {definition}\n  again: {{default: '${{var.when}}'}}\n  catalog",
    )
    if own:
        shop.replace(ROOT, "catalog: main", f"catalog: main\n      when: {own}")
    by_target = [bundle.examine(shop.root, target).problems for target in ("dev", "prod")]
    assert [name for name, problems in zip(("dev", "prod"), by_target, strict=True) if problems] == wrong


def test_values_from_outside_come_first(shop: BundleFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.replace(JOB, CRON, "${var.notify}")
    assert len(shop.findings()) == 1
    monkeypatch.setenv("BUNDLE_VAR_notify", CRON)
    assert shop.findings() == []
    monkeypatch.delenv("BUNDLE_VAR_notify")
    for target in ("dev", "prod"):
        shop.write(f".databricks/bundle/{target}/variable-overrides.json", json.dumps({"notify": CRON}))
    assert shop.findings() == []


def test_a_path_is_relative_to_the_file_that_it_is_written_in(shop: BundleFiles) -> None:
    wheels = "{type: complex, default: [./dist/*.whl]}"
    variables = f"variables:\n  wheels: {wheels}\n  one: {{default: ../dist/*.whl}}\n  catalog:"
    shop.replace(ROOT, "variables:\n  catalog:", variables).replace(JOB, "- ../dist/*.whl", "- ${var.one}")
    shop.replace(PIPELINE, "dependencies:\n          - ../dist/*.whl", "dependencies: ${var.wheels}")
    assert shop.findings() == []
    shop.replace(ROOT, "[./dist/*.whl]", "[../dist/*.whl]")
    (finding,) = shop.findings()
    assert finding.startswith(f"{ROOT}:13: resources.pipelines.etl: '../dist/*.whl' isn't there")


@pytest.mark.parametrize("code", ["python: {mutators: ['a:b']}", "experimental: {scripts: {preinit: make}}"])
def test_what_code_changes_only_the_cli_knows(shop: BundleFiles, code: str) -> None:
    shop.replace(*WAITS).replace(ROOT, "\nartifacts", f"\n{code}\nartifacts")
    examination = bundle.examine(shop.root, "dev")
    assert examination.problems == ()
    assert examination.notes == ("code changes target 'dev', so only the Databricks CLI knows its resources",)


def test_two_stars_in_an_include_are_one(shop: BundleFiles) -> None:
    shop.replace(ROOT, "resources/*.yml", "resources/**/*.yml").write("resources/a/b/c.yml", "[")
    shop.write("resources/a/b.yml", "resources: {}")
    assert bundle.examine(shop.root).files == (ROOT, "resources/a/b.yml")


@pytest.fixture
def cli(tmp_path: Path) -> Path:
    """What stands for the CLI: it prints one configuration for a target, and refuses any other."""
    script = tmp_path / "databricks"
    answer_file = tmp_path / "answer.json"
    script.write_text(
        f'#!/bin/sh\n[ "$6" = dev ] || {{ echo "Error: not $6" >&2; exit 1; }}\ncat {answer_file}\n'
    )
    script.chmod(0o755)
    return script


CLI_ANSWER = """\
workspace: {file_path: /Workspace/shop/files}
artifacts: {wheel: {path: FOLDER, build: uv build, files: [{source: FOLDER/dist/*.whl}]}}
resources:
  jobs:
    nightly:
      tasks:
        - {task_key: a, run_job_task: {job_id: 1}, depends_on: [{task_key: z}]}
        - {task_key: b, libraries: [{whl: dist/shop-*.whl}, {whl: /Workspace/shop/files/libs/a.whl}]}
    made_in_python:
      tasks: [{task_key: a, run_job_task: {job_id: "${resources.jobs.absent.id}"}, environment_key: e}]
  pipelines:
    etl:
      libraries:
        - {glob: {include: /Workspace/shop/files/src/transformations/**}}
        - {glob: {include: /Workspace/shop/files/src/absent/**}}
"""


def test_the_cli_resolves_what_files_do_not_tell(shop: BundleFiles, cli: Path) -> None:
    resolved = yaml.safe_load(CLI_ANSWER.replace("FOLDER", str(shop.root)))
    (cli.parent / "answer.json").write_text(json.dumps(resolved))
    examination = bundle.examine(shop.root, "dev", cli=str(cli))
    assert examination.notes == ()
    made = "resources.jobs.made_in_python"
    assert {
        (problem.file, problem.line, problem.location, str(problem.rule)) for problem in examination.problems
    } == {
        ("", 0, made, "undefined-environment-key"),
        ("", 0, made, "undefined-resource"),
        (PIPELINE, 3, "resources.pipelines.etl", "empty-glob"),
        (JOB, 3, "resources.jobs.nightly", "missing-library"),
        (JOB, 3, "resources.jobs.nightly", "task-without-type"),
        (JOB, 3, "resources.jobs.nightly", "unknown-depends-on"),
    }


def test_where_the_cli_refuses_the_files_are_read(shop: BundleFiles, cli: Path) -> None:
    shop.replace(*WAITS)
    (cli.parent / "answer.json").write_text('{"bundle": {}}')
    examination = bundle.examine(shop.root, cli=str(cli))
    (note,) = examination.notes
    assert note == "the Databricks CLI refused target 'prod', so its files were read (Error: not prod)"
    assert [problem.message.endswith("(only in prod)") for problem in examination.problems] == [True]
    examination = bundle.examine(shop.root, "dev", cli=str(cli.parent / "absent"))
    assert "No such file or directory" in examination.notes[0]


REFERENCES = [
    "var.catalog",
    "var.nothing",
    "var.cluster",
    "var.odd",
    "bundle.name",
    "bundle.target.x",
    "resources.x",
]
PATHS = [
    "..",
    "../..",
    "/",
    "*",
    "[",
    "**",
    "../**",
    "a/**",
    "./x.whl",
    "dist/*.whl",
    "${workspace.file_path}/../x.whl",
]
WORDS = [
    "",
    "~",
    "x" * 300,
    "\0",
    "-e ..",
    "${",
    "0 0 0 ? * *",
    *PATHS,
    *(f"${{{name}}}" for name in REFERENCES),
]
KEYS = ["targets", "variables", "include", "sync", "tasks", "task_key", "depends_on", "environments"]
NAMES = st.text(max_size=3) | st.sampled_from(KEYS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=4,
)
FILES = [ROOT, JOB, PIPELINE]


def containers(value: Any) -> list[Any]:
    """Every list and mapping in a value that has something in it."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(container for item in inner for container in containers(item))] if inner else []


@given(data=st.data())
def test_no_yaml_breaks_the_check(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    root = tmp_path_factory.getbasetemp() / "odd"
    if not root.exists():
        shutil.copytree(EXAMPLE, root)
    file = data.draw(st.sampled_from(FILES))
    tree = yaml.safe_load((EXAMPLE / file).read_text("utf-8"))
    tree.setdefault("variables", {})["odd"] = data.draw(VALUES)
    for _ in range(data.draw(st.integers(1, 3))):
        inside = data.draw(st.sampled_from(containers(tree)))
        key = data.draw(st.sampled_from(list(inside) if isinstance(inside, dict) else range(len(inside))))
        inside[key] = data.draw(VALUES)
    (root / file).write_text(yaml.safe_dump(tree, allow_unicode=True), "utf-8")
    for finding in bundle.examine(root).problems:
        assert str(finding)
    shutil.copy(EXAMPLE / file, root / file)


@given(st.text("{}[]:,-#&*!|>%@`'\"?=~<$ \nab1", max_size=60))
def test_no_text_breaks_the_check(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.getbasetemp() / "text"
    root.mkdir(exist_ok=True)
    (root / ROOT).write_text(text, "utf-8")
    assert bundle.examine(root).files == (ROOT,)


@pytest.mark.parametrize(
    "text", ["", "[", "project = 1", "project = {name = 'shop', scripts = 2}", "project.name = 3"]
)
def test_an_odd_project_is_left_alone(shop: BundleFiles, text: str) -> None:
    assert shop.write(PROJECT, text).findings() == []
