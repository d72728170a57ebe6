"""Create a new bundle from the template with cookiecutter, for `tableferry new`."""

from __future__ import annotations

import json
import logging
import runpy
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from tableferry import __version__
from tableferry.errors import MissingPackage, TemplateError
from tableferry.extras import install

PACKAGE = Path(__file__).parent


def create(
    folder: Path,
    answers: Mapping[str, str] | None = None,
    *,
    no_input: bool = False,
    wheel: Path | None = None,
    computed: Mapping[str, str] | None = None,
) -> Path:
    """Create a bundle in a new folder below ``folder`` and return the new folder.

    Args:
        folder: The parent of the new folder.
        answers: Answers by question name; cookiecutter asks the remaining questions.
        no_input: Whether the remaining questions get their defaults without asking.
        wheel: The package's wheel, for a bundle that contains it; built from the installed package if None.
        computed: Values by name that replace those that the template computes.

    Raises:
        MissingPackage: Cookiecutter is missing.
        TemplateError: An answer is invalid, the bundle's folder exists, or the template is missing.
    """
    try:
        from cookiecutter.exceptions import (
            CookiecutterException,
            FailedHookException,
            OutputDirExistsException,
        )
        from cookiecutter.main import cookiecutter
    except ImportError as error:
        raise MissingPackage(
            "MISSING_PACKAGE_FOR_TEMPLATE", reason=error, command=install("template")
        ) from error
    template = find_template()
    check(template, answers or {}, complete=no_input)
    with _without_tracebacks(), TemporaryDirectory() as built:
        if wheel is None and template.parent == PACKAGE:
            wheel = _installed_wheel(Path(built))
        try:
            made = cookiecutter(
                str(template),
                no_input=no_input,
                extra_context={**(answers or {}), **(computed or {}), "_wheel": str(wheel or "")},
                output_dir=str(folder),
            )
        except OutputDirExistsException as error:
            name = str(error).split('"')[1]
            raise TemplateError("BUNDLE_EXISTS", folder=name) from error
        except FailedHookException as error:
            raise TemplateError(
                "BUNDLE_REFUSED_BY_TEMPLATE", reason=" ".join(str(error).split("\n"))
            ) from error
        except EOFError as error:
            raise TemplateError("TEMPLATE_NEEDS_ANSWERS") from error
        except (CookiecutterException, OSError) as error:
            raise TemplateError("BUNDLE_NOT_CREATED", folder=folder, reason=error) from error
    return Path(made)


def find_template() -> Path:
    """Return the template's folder: in the repository of this package, or in the installed package.

    Raises:
        TemplateError: Both are missing.
    """
    for template in (PACKAGE.parents[1] / "template", PACKAGE / "template"):
        if (template / "cookiecutter.json").is_file() and (template / "hooks").is_dir():
            return template
    raise TemplateError("TEMPLATE_MISSING", folder=PACKAGE)


def check(template: Path, answers: Mapping[str, str], *, complete: bool = False) -> None:
    """Check that the template asks for all answers and accepts their values.

    Args:
        template: The template's folder.
        answers: Answers by question name.
        complete: Whether the remaining questions get their defaults, which may not be valid answers.

    Raises:
        TemplateError: An answer is unknown or invalid; the message lists all problems.
    """
    questions: dict[str, Any] = json.loads((template / "cookiecutter.json").read_text(encoding="utf-8"))
    asked = [name for name in questions if not name.startswith("_")]
    problems = [
        f"the template doesn't ask for '{name}': it asks for {', '.join(asked)}"
        for name in answers
        if name not in asked
    ]
    judge = runpy.run_path(str(template / "tableferry_answers.py"))["problems"]
    defaults = {
        name: default[0] if isinstance(default := questions[name], list) else default for name in asked
    }
    given = {name: answers[name] for name in answers if name in asked}
    problems += judge({**defaults, **given} if complete else given, questions)
    if problems:
        raise TemplateError(
            "TEMPLATE_ANSWERS_INVALID", problems="; ".join(problem.removesuffix(".") for problem in problems)
        )


def next_commands(made: Path) -> tuple[str, ...]:
    """Return the commands that the user runs next."""
    return f"cd {shlex.quote(str(made))}", "make test", "databricks bundle deploy"


def wheel_name() -> str:
    """Return the file name of the package's wheel."""
    return f"tableferry-{__version__}-py3-none-any.whl"


def _installed_wheel(folder: Path) -> Path:
    """Rebuild the package's wheel from its installed files.

    A wheel is a zip file of the package and its metadata; the metadata file RECORD lists all of its files
    (https://packaging.python.org/en/latest/specifications/binary-distribution-format).

    Raises:
        TemplateError: The package isn't installed.
    """
    try:
        installed = distribution("tableferry")
    except PackageNotFoundError as error:
        raise TemplateError("WHEEL_NOT_BUILT") from error
    added = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json")
    kept = [
        file
        for file in installed.files or ()
        if file.parts[0] != ".." and file.name not in added and "__pycache__" not in file.parts
    ]
    (record,) = (file for file in installed.files or () if file.match("*.dist-info/RECORD"))
    lines = [
        f"{file.as_posix()},{file.hash.mode}={file.hash.value},{file.size}" for file in kept if file.hash
    ]
    target = folder / wheel_name()
    with ZipFile(target, "w", ZIP_DEFLATED) as packed:
        for file in kept:
            packed.write(str(file.locate()), file.as_posix())
        packed.writestr(record.as_posix(), "\n".join([*lines, f"{record.as_posix()},,", ""]))
    return target


@contextmanager
def _without_tracebacks() -> Iterator[None]:
    """Suppress the stack trace that cookiecutter prints after the error message of a failed hook."""
    logger = logging.getLogger("cookiecutter")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
