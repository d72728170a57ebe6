"""The command line: a command is settings, a session, one library call and a report."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from tableferry import __version__, bundle
from tableferry import new as template
from tableferry import verify as verifying
from tableferry.amounts import counted
from tableferry.cli.command import Answer, App
from tableferry.cli.options import Warehouse, pairs, resolved, separated

_log = logging.getLogger(__name__)

app = App(
    help="Moves tables that people already depend on, without losing a row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
bundle_app = App(help="Check a Databricks bundle.", no_args_is_help=True)
for _name in ("pipelines", "convert", "fleet", "spec"):
    # A bundle that has the package's source has it for its own routes only.
    if find_spec(f"tableferry.cli.{_name}"):
        app.add_typer(getattr(import_module(f"tableferry.cli.{_name}"), f"{_name}_app"), name=_name)
app.add_typer(bundle_app, name="bundle")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


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


@app.command("verify")
def verify(
    source: Annotated[str, typer.Argument(metavar="SOURCE[@VERSION]", help="A table, or the folder of one.")],
    target: Annotated[str, typer.Argument(metavar="TARGET[@VERSION]", help="What must hold the same rows.")],
    keys: Annotated[
        str,
        typer.Option("--keys", metavar="A,B", help="Columns that identify a row: shows rows that differ."),
    ] = "",
    exclude: Annotated[str, typer.Option("--exclude", metavar="A,B", help="Columns to leave out.")] = "",
    warehouse: Warehouse = None,
) -> Answer:
    """Compare two tables: columns, row counts, an order-free hash, and the rows that differ."""
    # A fleet's tables are Iceberg under their own names.
    spark = resolved(warehouse, iceberg=True)
    verdict = verifying.verify_tables(
        spark, source, target, keys=separated([keys]), exclude=separated([exclude])
    )
    return Answer(verdict.to_dict(), [verifying.render(verdict)], ok=verdict.matches)


@app.command("new")
def new(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="Where the bundle's own folder is made; default here.")
    ] = Path(),
    answer: Annotated[
        list[str] | None,
        typer.Option(
            "--answer", metavar="NAME=VALUE", help="Answer a question of the template (may be repeated)."
        ),
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask nothing: defaults count where no answer is given.")
    ] = False,
) -> None:
    """Make a bundle of your own, to deploy to a workspace."""
    made = template.create(folder, pairs("--answer", answer), no_input=no_input)
    typer.echo(f"Made {made}. Next:\n")
    for command in template.next_commands(made):
        typer.echo(f"    {command}")


def main() -> None:
    """Run the command line; the entry point of the wheel.

    Returns when the work is done, as a wheel task takes any SystemExit for a failure.

    Raises:
        SystemExit: With 1 if it failed or was refused, with 2 if the command line was wrong.
    """
    try:
        app()
    except SystemExit as left:
        if left.code:
            raise
