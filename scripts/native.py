"""Makes the native twin of the template: the one that `databricks bundle init` takes.

Its questions and its body are translated from the template. Files that no answer changes, and those of the
package, are links to the template's and the package's own: nothing in the twin is written twice.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "template"
BODY = TEMPLATE / "{{cookiecutter.project_slug}}"
PACKAGE = ROOT / "src" / "tableferry"

# The first version of the Databricks CLI that knows everything that the bundle says.
OLDEST_CLI = "v0.272.0"

_NAME = re.compile(r"cookiecutter\.(\w+)")
_EQUALS = re.compile(r'cookiecutter\.(\w+)=="([^"{}]*)"')
_AMONG = re.compile(r'cookiecutter\.(\w+)in\[("[^"{},]*"(?:,"[^"{},]*")*)\]')
_SLUG = "{{ cookiecutter.project_name | slugify(separator='_') }}"
_GO_SLUG = (
    '{{(regexp "^_+|_+$").ReplaceAllString '
    '((regexp "[^a-z0-9]+").ReplaceAllString (lower .project_name) "_") ""}}'
)


def render_native(target: Path) -> None:
    """Make the twin in a folder, which is made anew."""
    questions: dict[str, Any] = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))
    environment = Environment(keep_trailing_newline=True, **questions["_jinja2_env_vars"])
    if target.exists():
        shutil.rmtree(target)
    body = target / "template" / "{{.project_slug}}"
    body.mkdir(parents=True)
    _write(target / "databricks_template_schema.json", json.dumps(schema(questions), indent=2) + "\n")
    _write(target / "template" / "__preamble.tmpl", preamble(questions))
    for source in files(BODY):
        there = body / source.relative_to(BODY)
        text = source.read_text(encoding="utf-8")
        translated = go(environment, text)
        if translated == text:
            _link(there, source)
        else:
            _write(there.with_name(f"{there.name}.tmpl"), translated)
    for source in files(PACKAGE):
        _link(body / "src" / "tableferry" / source.relative_to(PACKAGE), source)
    _link(body / "src" / "tableferry" / "LICENSE", ROOT / "LICENSE")


def go(environment: Environment, text: str) -> str:
    """Translate a template from the few words of Jinja that ours uses.

    Raises:
        ValueError: It uses another one.
    """
    out: list[str] = []
    inside: list[str] = []
    # The lexer has taken the blanks away already that Jinja's settings take.
    for _, kind, value in environment.lex(text):
        match kind:
            case "data":
                out.append(value.replace("{{", '{{"{{"}}'))
            case "variable_begin" | "block_begin":
                inside = []
            case "variable_end":
                out.append("{{" + _value("".join(inside)) + "}}")
            case "block_end":
                out.append("{{" + _action(inside[0], "".join(inside[1:])) + "}}")
            case "raw_begin" | "raw_end" | "whitespace":
                pass
            case _:
                inside.append(value)
    return "".join(out)


def schema(questions: dict[str, Any]) -> dict[str, Any]:
    """Translate cookiecutter.json into the native template's JSON Schema."""
    asked = [name for name in questions if not name.startswith("_")]
    return {
        "welcome_message": "A bundle that moves tables which people already depend on.",
        "success_message": "Made {{.project_slug}}; its README.md says what to do next.",
        "min_databricks_cli_version": OLDEST_CLI,
        "properties": {name: _property(questions, name, order) for order, name in enumerate(asked, start=1)},
    }


def preamble(questions: dict[str, Any]) -> str:
    """Write the file that refuses reserved names and skips what wasn't chosen."""
    lines = ['{{skip "__preamble"}}']
    for reserved in questions["_reserved"]:
        words = " ".join(f'"{word}"' for word in reserved["words"])
        for name in reserved["questions"]:
            message = f"{name} can't be '%s', as {reserved['why']}: choose another word."
            lines.append(f'{{{{if eq (lower .{name}) {words}}}}}{{{{fail "{message}" .{name}}}}}{{{{end}}}}')
    for each in questions["_only_with"]:
        answers = " ".join(f'"{answer}"' for answer in each["answers"])
        paths = sorted({path.relative_to(BODY) for pattern in each["files"] for path in BODY.glob(pattern)})
        skips = "".join(f'{{{{skip "{{{{.project_slug}}}}/{path.as_posix()}"}}}}' for path in paths)
        lines.append(f"{{{{if not (eq .{each['question']} {answers})}}}}{skips}{{{{end}}}}")
    return "\n".join(lines) + "\n"


def files(folder: Path) -> Iterator[Path]:
    """List the files that git would keep, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _property(questions: dict[str, Any], name: str, order: int) -> dict[str, Any]:
    default, prompt = questions[name], questions["__prompts__"][name]
    found: dict[str, Any] = {"order": order, "type": "string"}
    for each in questions["_only_with"]:
        if name in each["questions"]:
            others = [one for one in questions[each["question"]] if one not in each["answers"]]
            found["skip_prompt_if"] = {"properties": {each["question"]: {"enum": others}}}
    if isinstance(default, list):
        # What a choice means is told above the question, which the CLI shows in one line.
        words = [f"{choice}: {prompt[choice]}\n" for choice in default if prompt[choice].lower() != choice]
        found["description"] = "".join(words) + prompt["__prompt__"]
        return {**found, "default": default[0], "enum": default}
    rule = questions["_rules"][name]
    found["description"] = prompt
    found["default"] = _GO_SLUG if default == _SLUG else _NAME.sub(r".\1", default)
    found["pattern"] = f"^(?:{rule['pattern']})$"
    found["pattern_match_failure_message"] = f"It must {rule['must']}."
    return found


def _value(expression: str) -> str:
    if found := _NAME.fullmatch(expression):
        return f".{found[1]}"
    raise ValueError(f"'{expression}' has no translation: write {{{{ cookiecutter.NAME }}}} alone")


def _action(word: str, condition: str) -> str:
    match word, condition:
        case "endif", "":
            return "end"
        case "else", "":
            return "else"
        case "if" | "elif", _ if found := _EQUALS.fullmatch(condition):
            return f'{"else " if word == "elif" else ""}if eq .{found[1]} "{found[2]}"'
        case "if" | "elif", _ if found := _AMONG.fullmatch(condition):
            # Go's eq is true if the first value is any of the others.
            return f"{'else ' if word == 'elif' else ''}if eq .{found[1]} {found[2].replace(',', ' ')}"
    raise ValueError(f"'{word} {condition}' has no translation: use if, elif, else, endif, == and in")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _link(path: Path, source: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(source, path.parent))
