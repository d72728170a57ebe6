"""Check the answers before cookiecutter creates a file, and print failures of hooks without a stack trace.

cookiecutter loads this module as an extension of Jinja, and calls `check_answers` after the last question.
"""

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from cookiecutter.exceptions import FailedHookException
from jinja2 import Environment
from jinja2.ext import Extension

QUESTIONS = Path(__file__).with_name("cookiecutter.json")


class Answers(Extension):
    """Give the template the function ``check_answers``."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        environment.globals["check_answers"] = check_answers
        logging.getLogger("cookiecutter.hooks").addFilter(without_trace)


def check_answers(answers: Mapping[str, Any]) -> str:
    """Return an empty text if the answers are valid.

    Raises:
        FailedHookException: An answer is unknown or invalid; the message lists all problems.
    """
    questions = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    asked = {name: answer for name, answer in answers.items() if not name.startswith("_")}
    if found := [*unknown_answers(given_answers(), questions), *problems(asked, questions)]:
        raise FailedHookException("\n".join(found))
    return ""


def given_answers() -> tuple[str, ...]:
    """Return the names of the answers on the command line of cookiecutter, which ignores unknown names."""
    context = click.get_current_context(silent=True)
    return tuple((context.params.get("extra_context") if context else None) or ())


def unknown_answers(names: tuple[str, ...], questions: Mapping[str, Any]) -> list[str]:
    """Return a sentence about each name that isn't the name of a question."""
    asked = ", ".join(name for name in questions if not name.startswith("_"))
    return [
        f"The template doesn't ask for '{name}': it asks for {asked}."
        for name in names
        if name not in questions
    ]


def problems(answers: Mapping[str, str], questions: Mapping[str, Any]) -> list[str]:
    """Return a sentence about each invalid answer.

    Args:
        answers: The answers by the names of their questions.
        questions: The content of cookiecutter.json.
    """
    found = []
    for name, answer in answers.items():
        choices, rule = questions.get(name), questions["_rules"].get(name)
        if isinstance(choices, list) and answer not in choices:
            offered = [choice for choice in choices if choice != "choose"]
            found.append(f"{name} can't be '{answer}': choose {' or '.join(offered)}.")
        if rule and not re.fullmatch(rule["pattern"], answer):
            # A refused URL may contain a password.
            shown = "" if rule.get("secret") else f"; it is '{answer}'"
            found.append(f"{name} must {rule['must']}{shown}.")
        for reserved in questions["_reserved"]:
            if name in reserved["questions"] and answer.lower() in reserved["words"]:
                found.append(f"{name} can't be '{answer}', because {reserved['why']}: choose another word.")
    for refused in questions["_refused"]:
        when, unless = refused["when"].items(), refused["unless"].items()
        if when <= answers.items() and not (unless and unless <= answers.items()):
            found.append(f"{refused['why']}.")
    return found


def without_trace(record: logging.LogRecord) -> bool:
    """Remove the stack trace from a record about a failed hook, which has printed the reason."""
    record.exc_info = None
    return True
