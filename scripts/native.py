"""Translate the template into a native one, for `databricks bundle init`.

The Databricks CLI runs no hook, so it can't build a wheel or copy files from the repository. Its bundles
install the package from an index, from a Git repository, or from a wheel that the user puts into libs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "template"
BODY = TEMPLATE / "{{cookiecutter.project_name}}"
# The first version of the Databricks CLI that supports every key of the bundle.
OLDEST_CLI = "v1.12.0"

# The answer for the package that needs a hook.
NEEDS_A_HOOK = "vendored"
# The CLI asks these questions without a default, because no answer suits most users.
REQUIRED = ("route", "package")
# The first choice of a required question in cookiecutter, where each question has a default.
NO_ANSWER = "choose"

_NAME = re.compile(r"cookiecutter\.(\w+)")
_EQUALS = re.compile(r'cookiecutter\.(\w+)(==|!=)"([^"{}]*)"')
_AMONG = re.compile(r'cookiecutter\.(\w+)in\[("[^"{},]*"(?:,"[^"{},]*")*)\]')


def render_native(target: Path) -> None:
    """Recreate the native template in a folder."""
    questions: dict[str, Any] = json.loads((TEMPLATE / "cookiecutter.json").read_text(encoding="utf-8"))
    environment = Environment(keep_trailing_newline=True, **questions["_jinja2_env_vars"])
    if target.exists():
        shutil.rmtree(target)
    body = target / "template" / "{{.project_name}}"
    body.mkdir(parents=True)
    _write(target / "databricks_template_schema.json", json.dumps(schema(questions), indent=2) + "\n")
    _write(target / "template" / "__preamble.tmpl", preamble(questions))
    for source in files(BODY):
        there = body / source.relative_to(BODY)
        text = source.read_text(encoding="utf-8")
        translated = go(environment, questions, text)
        _write(there if translated == text else there.with_name(f"{there.name}.tmpl"), translated)


def go(environment: Environment, questions: dict[str, Any], text: str) -> str:
    """Translate a template from the subset of Jinja that ours uses.

    Raises:
        ValueError: The template uses another statement.
    """
    out: list[str] = []
    inside: list[str] = []
    # The lexer has already removed the blanks that Jinja's settings remove.
    for _, kind, value in environment.lex(text):
        match kind:
            case "data":
                out.append(value.replace("{{", '{{"{{"}}'))
            case "variable_begin" | "block_begin":
                inside = []
            case "variable_end":
                out.append(_value(questions, "".join(inside)))
            case "block_end":
                out.append("{{" + _action(inside[0], inside[1:]) + "}}")
            case "raw_begin" | "raw_end" | "whitespace":
                pass
            case _:
                inside.append(value)
    return "".join(out)


def schema(questions: dict[str, Any]) -> dict[str, Any]:
    """Translate cookiecutter.json into the native template's JSON Schema."""
    asked = [name for name in questions if not name.startswith("_")]
    return {
        "welcome_message": "A bundle that migrates tables in production.",
        "success_message": (
            '{{if eq .package "wheel"}}Put the wheel into {{.project_name}}/libs, as README.md there '
            "describes.\n{{end}}Created {{.project_name}}. Read its README.md next."
        ),
        "min_databricks_cli_version": OLDEST_CLI,
        "properties": {name: _property(questions, name, order) for order, name in enumerate(asked, start=1)},
    }


def preamble(questions: dict[str, Any]) -> str:
    """Return the text of the file that refuses reserved names and skips unselected files."""
    lines = ['{{skip "__preamble"}}']
    for reserved in questions["_reserved"]:
        words = " ".join(f'"{word}"' for word in reserved["words"])
        for name in reserved["questions"]:
            message = f"{name} can't be '%s', because {reserved['why']}: choose another word."
            lines.append(f'{{{{if eq (lower .{name}) {words}}}}}{{{{fail "{message}" .{name}}}}}{{{{end}}}}')
    for refused in questions["_refused"]:
        held = " ".join(
            f'({comparison} .{name} "{answer}")'
            for comparison, key in (("eq", "when"), ("ne", "unless"))
            for name, answer in refused[key].items()
        )
        if NO_ANSWER not in refused["when"].values():
            lines.append(f'{{{{if and {held}}}}}{{{{fail "{refused["why"]}."}}}}{{{{end}}}}')
    for question in questions["_only_with"]:
        answers = " ".join(f'"{answer}"' for answer in question["answers"])
        paths = sorted(
            {path.relative_to(BODY) for pattern in question["files"] for path in BODY.glob(pattern)}
        )
        skips = "".join(f'{{{{skip "{{{{.project_name}}}}/{path.as_posix()}"}}}}' for path in paths)
        if skips:
            lines.append(f"{{{{if not (eq .{question['question']} {answers})}}}}{skips}{{{{end}}}}")
    return "\n".join(lines) + "\n"


def files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder without compiled modules, sorted."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _property(questions: dict[str, Any], name: str, order: int) -> dict[str, Any]:
    default, prompt = questions[name], questions["__prompts__"][name]
    schema: dict[str, Any] = {"order": order, "type": "string"}
    if isinstance(default, list):
        # The CLI shows the question in one line, so the choices are explained above it.
        choices = [choice for choice in default if choice not in (NEEDS_A_HOOK, NO_ANSWER)]
        words = [f"{choice}: {prompt[choice]}\n" for choice in choices]
        schema["description"] = "".join(words) + prompt["__prompt__"]
        return {**schema, **({} if name in REQUIRED else {"default": choices[0]}), "enum": choices}
    rule = questions["_rules"][name]
    schema["description"] = prompt
    schema["default"] = default
    schema["pattern"] = f"^(?:{rule['pattern']})$"
    schema["pattern_match_failure_message"] = f"It must {rule['must']}."
    return schema


def _value(questions: dict[str, Any], expression: str) -> str:
    match = _NAME.fullmatch(expression)
    if not match:
        raise ValueError(f"'{expression}' has no translation: write {{{{ cookiecutter.NAME }}}} alone")
    if match[1] == "__uuid":
        return "{{bundle_uuid}}"
    return str(questions[match[1]]) if match[1].startswith("__") else f"{{{{.{match[1]}}}}}"


def _action(word: str, condition: Sequence[str]) -> str:
    match word:
        case "endif" if not condition:
            return "end"
        case "else" if not condition:
            return "else"
        case "if":
            return f"if {_either(condition)}"
        case "elif":
            return f"else if {_either(condition)}"
    raise ValueError(f"'{word} {' '.join(condition)}' has no translation: use if, elif, else and endif")


def _either(words: Sequence[str]) -> str:
    return _joined(
        "or",
        [_joined("and", [_single(atom) for atom in _split("and", both)]) for both in _split("or", words)],
    )


def _split(word: str, words: Sequence[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    for token in words:
        if token == word:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _joined(word: str, conditions: Sequence[str]) -> str:
    return (
        conditions[0]
        if len(conditions) == 1
        else f"{word} {' '.join(f'({condition})' for condition in conditions)}"
    )


def _single(words: Sequence[str]) -> str:
    condition = "".join(words)
    if match := _EQUALS.fullmatch(condition):
        return f'{"eq" if match[2] == "==" else "ne"} .{match[1]} "{match[3]}"'
    if match := _AMONG.fullmatch(condition):
        # Go's eq is true if the first value equals any other one.
        return f"eq .{match[1]} {match[2].replace(',', ' ')}"
    raise ValueError(f"'{condition}' has no translation: use ==, !=, in, and, or")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
