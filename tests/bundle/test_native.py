"""`databricks bundle init` with the native template creates the same bundle as cookiecutter, byte for byte.

The tests need no CLI: init.go renders the same templates with the same library.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from scripts.render import ROOT, made_from_template

from tableferry import new

pytestmark = [
    pytest.mark.usefixtures("cookiecutters_own_settings"),
    pytest.mark.skipif(
        shutil.which("go") is None and not os.environ.get("CI"), reason="needs Go, which isn't on PATH"
    ),
]

DEFAULTS = {
    "project_name": "tea_shop",
    "route": "all",
    "catalog": "tea-eu",
    "cloud": "aws",
    "dev_host": "",
    "prod_host": "",
    "compute": "serverless",
    "package": "index",
    "package_source": "workspace",
    "ci": "github",
}
GIT = {"package": "git", "package_source": "https://git.tea.example/tableferry"}
OTHERS: list[dict[str, str]] = [
    {},
    {"compute": "classic", "cloud": "azure"},
    {"package": "wheel", "package_source": "", "dev_host": "https://dev.tea.example"},
    {"route": "convert", "package": "wheel", "package_source": "", "prod_host": "https://tea.example"},
    {"package_source": "https://tea.example/simple", "ci": "azure"},
    GIT,
    {"route": "pipelines", "ci": "gitlab"},
    {"route": "pipelines", "compute": "classic", **GIT},
    {"route": "convert", "ci": "none"},
    {"route": "convert", "compute": "classic", "package_source": "https://tea.example/simple"},
    {"route": "fleet", **GIT},
    {"route": "fleet", "compute": "classic", "cloud": "gcp"},
]


@pytest.fixture(scope="module")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of init.go."""
    program = tmp_path_factory.mktemp("go") / "init"
    subprocess.run(
        ["go", "build", "-gcflags=all=-N -l", "-o", program, Path(__file__).with_name("init.go")], check=True
    )
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
    output = call(init, tmp_path, answers)
    assert (output.returncode, output.stderr) == (0, "")
    expected = contents(made_from_template(tmp_path / "cookiecutter", answers))
    # Users of the CLI put the wheel into libs.
    expected.pop(f"libs/{new.wheel_name()}", None)
    assert contents(tmp_path / "native" / "tea_shop") == expected


@pytest.mark.parametrize(("question", "word"), [("project_name", "tableferry"), ("catalog", "NULL")])
def test_both_refuse_the_same_words(init: Path, tmp_path: Path, question: str, word: str) -> None:
    output = call(init, tmp_path, {**DEFAULTS, question: word})
    assert output.returncode == 1
    assert f"{question} can't be '{word}', because" in output.stderr
    assert not (tmp_path / "native").exists()


def test_the_questions_answers_are_judged_alike() -> None:
    kept = json.loads((ROOT / "native" / "databricks_template_schema.json").read_text(encoding="utf-8"))
    asked = json.loads((ROOT / "template" / "cookiecutter.json").read_text(encoding="utf-8"))
    assert list(kept["properties"]) == [name for name in asked if not name.startswith("_")] == list(DEFAULTS)
    choices = {
        name: question_schema["enum"]
        for name, question_schema in kept["properties"].items()
        if "enum" in question_schema
    }
    # The CLI runs no hook, and asks required questions without a default.
    expected = {
        name: [choice for choice in asked[name] if choice not in ("vendored", "choose")] for name in choices
    }
    assert choices == expected
    without_default = {name for name, question in kept["properties"].items() if "default" not in question}
    assert without_default == {"route", "package"}
    patterns = {
        name: question_schema["pattern"]
        for name, question_schema in kept["properties"].items()
        if "pattern" in question_schema
    }
    assert patterns == {name: f"^(?:{rule['pattern']})$" for name, rule in asked["_rules"].items()}
    assert not [
        name for name, question_schema in kept["properties"].items() if "skip_prompt_if" in question_schema
    ]


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        (
            {"package": "git", "package_source": ""},
            "package=git needs package_source: the URL of the repository.",
        ),
        ({"package_source": ""}, "package=index needs package_source: the URL of the index, or workspace."),
        ({"package": "wheel"}, "package=wheel doesn't use package_source: leave it empty."),
    ],
)
def test_package_and_source_that_do_not_fit_are_refused(
    init: Path, tmp_path: Path, answers: dict[str, str], sentence: str
) -> None:
    output = call(init, tmp_path, {**DEFAULTS, **answers})
    assert output.returncode == 1
    assert sentence in output.stderr
