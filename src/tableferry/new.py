"""`tableferry new`: a bundle of one's own, made from the template by cookiecutter."""

from __future__ import annotations

import json
import logging
import runpy
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tableferry.errors import TemplateError

PACKAGE = Path(__file__).parent


def create(
    folder: Path, answers: Mapping[str, str] | None = None, *, no_input: bool = False, replace: bool = False
) -> Path:
    """Make a bundle in a new folder below ``folder`` and return the new folder.

    Args:
        folder: Where the bundle's folder is made.
        answers: Answers to the template's questions by their names; the rest is asked for.
        no_input: Ask nothing: the questions' own defaults count.
        replace: Write over the files of a bundle that is there already.

    Raises:
        TemplateError: An answer can't be used, the bundle's folder exists, or something is missing here.
    """
    try:
        from cookiecutter.exceptions import (
            CookiecutterException,
            FailedHookException,
            OutputDirExistsException,
        )
        from cookiecutter.main import cookiecutter
    except ImportError as error:
        raise TemplateError(
            f"making a bundle needs the package cookiecutter, and it can't be imported ({error}): "
            "pip install cookiecutter"
        ) from error
    template = find_template()
    check(template, answers or {})
    with _without_tracebacks():
        try:
            made = cookiecutter(
                str(template),
                no_input=no_input,
                extra_context={**(answers or {}), "_package": str(PACKAGE)},
                overwrite_if_exists=replace,
                output_dir=str(folder),
            )
        except OutputDirExistsException as error:
            name = str(error).split('"')[1]
            raise TemplateError(f"{name} exists already: choose another folder or project_slug") from error
        except FailedHookException as error:
            raise TemplateError("nothing was made, for the reason above: answer anew") from error
        except EOFError as error:
            raise TemplateError("nobody answers the questions here: give --no-input and --answer") from error
        except (CookiecutterException, OSError) as error:
            raise TemplateError(f"no bundle could be made in {folder} ({error}): fix that first") from error
    return Path(made)


def find_template() -> Path:
    """Return the template's folder: in the repository that this package lies in, or in the wheel.

    Raises:
        TemplateError: This copy of the package has none.
    """
    for template in (PACKAGE.parents[1] / "template", PACKAGE / "template"):
        if (template / "cookiecutter.json").is_file() and (template / "hooks").is_dir():
            return template
    raise TemplateError(
        f"{PACKAGE} is a copy without the template, as in every generated bundle: install Tableferry itself, "
        "or name its repository to cookiecutter"
    )


def check(template: Path, answers: Mapping[str, str]) -> None:
    """Refuse answers that the template doesn't ask for or can't use; says all of them at once.

    Raises:
        TemplateError: There are some.
    """
    questions: dict[str, Any] = json.loads((template / "cookiecutter.json").read_text(encoding="utf-8"))
    asked = [name for name in questions if not name.startswith("_")]
    problems = [
        f"the template doesn't ask for '{name}': it asks for {', '.join(asked)}"
        for name in answers
        if name not in asked
    ]
    judge = runpy.run_path(str(template / "hooks" / "pre_gen_project.py"))["problems"]
    problems += judge({name: answers[name] for name in answers if name in asked}, questions)
    if problems:
        raise TemplateError("\n".join(problems))


def next_commands(made: Path) -> tuple[str, ...]:
    """Say what to type next."""
    make = "make test" if (made / "tests").is_dir() else "make build"
    return f"cd {shlex.quote(str(made))}", make, "databricks bundle deploy"


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Keep cookiecutter from printing a failed hook's stack trace below the hook's own sentence."""
    logger = logging.getLogger("cookiecutter")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
