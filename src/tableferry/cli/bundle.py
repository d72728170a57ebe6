"""``tableferry bundle``: checks of a Databricks bundle."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tableferry import bundle
from tableferry.amounts import counted
from tableferry.cli.command import Answer, App

_log = logging.getLogger(__name__)

bundle_app = App(help="Check a Databricks bundle.", no_args_is_help=True)


@bundle_app.command("check")
def bundle_check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with databricks.yml.")],
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="NAME", help="Only this target of the bundle.")
    ] = None,
    ignore: Annotated[
        list[bundle.Rule] | None,
        typer.Option("--ignore", metavar="RULE", help="Leave out what ends with this (may be repeated)."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Read the files alone, even where the Databricks CLI is.")
    ] = False,
) -> Answer:
    """Say what fails in a bundle though `databricks bundle validate --strict` accepts it."""
    cli = None if offline else shutil.which("databricks")
    report = bundle.examine(folder, target, ignore=ignore or (), cli=cli)

    def lines() -> Iterator[str]:
        yield from map(str, (*report.problems, *report.advice))
        for note in report.notes:
            _log.info("Note: %s", note)
        if not report.problems:
            files = counted(len(report.files), "file")
            verdict = "no errors" if report.advice else "all right"
            yield f"{folder}: {files}, for {' and '.join(report.targets)}: {verdict}"

    return Answer(report, lines(), ok=not report.problems)
