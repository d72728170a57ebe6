"""`databricks bundle init` with the native twin makes what cookiecutter makes of the template, byte for byte.

The CLI isn't needed for it: init.go fills the same templates in with the same library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.render import ROOT

from tableferry import new

pytestmark = [
    pytest.mark.usefixtures("cookiecutters_own_settings"),
    pytest.mark.skipif(
        shutil.which("go") is None and not os.environ.get("CI"), reason="needs Go, which isn't on PATH"
    ),
]

DEFAULTS = {
    "project_name": "Tea shop",
    "project_slug": "tea_shop",
    "route": "all",
    "catalog": "tea",
    "schema": "silver",
    "volume": "state",
    "spec_format": "json",
    "convert_sources": "tea.landing.*, tea.raw.orders",
    "fleet_schema": "tea_fleet",
    "fleet_store": "delta",
    "fleet_format": "delta",
    "fleet_mail_host": "mail.tea.example",
    "fleet_sender": "data@tea.example",
    "compute": "serverless",
    "include_tests": "yes",
    "include_ci": "yes",
    "notifications": "",
}
OTHERS: list[dict[str, str]] = [
    {},
    {"spec_format": "yaml", "compute": "classic", "notifications": "data@tea.example"},
    {"include_tests": "no"},
    {"include_tests": "no", "include_ci": "no", "spec_format": "yaml"},
    {"include_ci": "no", "compute": "classic"},
    {"route": "pipelines"},
    {"route": "pipelines", "include_tests": "no", "compute": "classic"},
    {"route": "convert"},
    {"route": "convert", "spec_format": "yaml", "compute": "classic", "include_ci": "no"},
    {"route": "convert", "include_tests": "no"},
    {"route": "fleet"},
    {"route": "fleet", "fleet_store": "mysql://tea@db.example/fleet", "fleet_format": "iceberg"},
    {"route": "fleet", "compute": "classic", "include_tests": "no", "include_ci": "no"},
]


def only_with(*routes: str) -> dict[str, dict[str, dict[str, list[str]]]]:
    """The condition under which a question isn't asked."""
    return {"properties": {"route": {"enum": list(routes)}}}


@pytest.fixture(scope="module")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of init.go."""
    program = tmp_path_factory.mktemp("go") / "init"
    subprocess.run(["go", "build", "-o", program, Path(__file__).with_name("init.go")], check=True)
    return program


def call(init: Path, folder: Path, answers: dict[str, str]) -> subprocess.CompletedProcess[str]:
    given = folder / "answers.json"
    given.write_text(json.dumps(answers))
    command = [init, ROOT / "native", given, folder / "native"]
    return subprocess.run(command, capture_output=True, text=True)


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


@pytest.mark.parametrize("others", OTHERS, ids=lambda others: "-".join(others.values()) or "defaults")
def test_both_make_the_same_bundle(init: Path, tmp_path: Path, others: dict[str, str]) -> None:
    answers = {**DEFAULTS, **others}
    said = call(init, tmp_path, answers)
    assert (said.returncode, said.stderr) == (0, "")
    expected = new.create(tmp_path / "cookiecutter", answers, no_input=True)
    assert contents(tmp_path / "native") == contents(expected.parent)


@pytest.mark.parametrize(("question", "word"), [("project_slug", "typer"), ("schema", "NULL")])
def test_both_refuse_the_same_words(init: Path, tmp_path: Path, question: str, word: str) -> None:
    said = call(init, tmp_path, {**DEFAULTS, question: word})
    assert said.returncode == 1
    assert f"{question} can't be '{word}', as" in said.stderr
    assert not (tmp_path / "native").exists()


def test_the_questions_answers_are_judged_alike() -> None:
    kept = json.loads((ROOT / "native" / "databricks_template_schema.json").read_text(encoding="utf-8"))
    asked = json.loads((ROOT / "template" / "cookiecutter.json").read_text(encoding="utf-8"))
    assert list(kept["properties"]) == [name for name in asked if not name.startswith("_")] == list(DEFAULTS)
    choices = {name: each["enum"] for name, each in kept["properties"].items() if "enum" in each}
    assert choices == {name: asked[name] for name in choices}
    patterns = {name: each["pattern"] for name, each in kept["properties"].items() if "pattern" in each}
    assert patterns == {name: f"^(?:{rule['pattern']})$" for name, rule in asked["_rules"].items()}
    skipped = {
        name: each["skip_prompt_if"] for name, each in kept["properties"].items() if "skip_prompt_if" in each
    }
    of_fleet = tuple(name for name in DEFAULTS if name.startswith("fleet_"))
    assert skipped == {
        **dict.fromkeys(("schema", "volume", "spec_format"), only_with("convert", "fleet")),
        "convert_sources": only_with("pipelines", "fleet"),
        **dict.fromkeys(of_fleet, only_with("pipelines", "convert")),
    }
    # A condition on a question that comes later would always hold.
    assert kept["properties"]["route"]["order"] < min(kept["properties"][name]["order"] for name in skipped)
