"""The command line: a command is settings, a session, one library call and a report."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Annotated

import typer

from tableferry import __version__, bundle, report
from tableferry import new as making
from tableferry import verify as verifying
from tableferry.cli.convert import convert_app
from tableferry.cli.fleet import fleet_app
from tableferry.cli.logs import App
from tableferry.cli.options import (
    Debug,
    Environment,
    Output,
    OutputAs,
    Project,
    Tokens,
    Warehouse,
    guarded,
    pairs,
    resolved,
)
from tableferry.cli.pipelines import pipelines_app
from tableferry.errors import SpecError
from tableferry.pipelines import spec

_log = logging.getLogger(__name__)

app = App(
    help="Moves tables that people already depend on, without losing a row.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
spec_app = App(help="Data flow specs.", no_args_is_help=True)
bundle_app = App(help="The bundle that deploys it all.", no_args_is_help=True)
app.add_typer(pipelines_app, name="pipelines")
app.add_typer(convert_app, name="convert")
app.add_typer(fleet_app, name="fleet")
app.add_typer(spec_app, name="spec")
app.add_typer(bundle_app, name="bundle")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


@spec_app.command("schema")
def spec_schema() -> None:
    """Print the JSON Schema of data flow specs, for editors."""
    typer.echo(json.dumps(spec.json_schema(), indent=2))


@spec_app.command("check")
def spec_check(
    project: Project,
    environment: Environment = None,
    token: Tokens = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Read a project's files and say everything that is wrong with them."""

    def check() -> None:
        try:
            loaded = spec.load(project, environment=environment, reserved=pairs("--token", token or ()))
        except SpecError as error:
            if output is Output.JSON:
                typer.echo(report.as_json({"problems": error.problems}))
                raise typer.Exit(1) from None
            raise
        if output is Output.JSON:
            typer.echo(report.as_json({"problems": [], "skipped": [str(one) for one in loaded.skipped]}))
            return
        for one in loaded.skipped:
            typer.echo(str(one))
        migrating = sum(1 for one in loaded.dataflows if one.migration)
        flows = "1 data flow" if len(loaded.dataflows) == 1 else f"{len(loaded.dataflows)} data flows"
        typer.echo(f"{project}: {flows}, {migrating} with a migration: all right")

    guarded(check, debug)


@bundle_app.command("check")
def bundle_check(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder with databricks.yml.")],
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="NAME", help="Only this target of the bundle.")
    ] = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say everything that is wrong with a bundle, without a workspace or the Databricks CLI."""

    def check() -> None:
        found = bundle.examine(folder, target)
        if output is Output.JSON:
            typer.echo(report.as_json(found))
        else:
            for problem in found.problems:
                typer.echo(problem)
            for note in found.notes:
                _log.info("Note: %s", note)
            if not found.problems:
                files = "1 file" if len(found.files) == 1 else f"{len(found.files)} files"
                typer.echo(f"{folder}: {files}, for {' and '.join(found.targets)}: all right")
        if found.problems:
            raise typer.Exit(1)

    guarded(check, debug)


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
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Compare two tables: columns, row counts, an order-free hash, and the rows that differ."""

    def compare() -> None:
        spark = resolved(warehouse)
        verdict = verifying.verify_tables(spark, source, target, keys=_names(keys), exclude=_names(exclude))
        typer.echo(report.as_json(verdict.to_dict()) if output is Output.JSON else verifying.render(verdict))
        if not verdict.matches:
            raise typer.Exit(1)

    guarded(compare, debug)


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
    debug: Debug = False,
) -> None:
    """Make a bundle of your own, to deploy to a workspace."""

    def make() -> None:
        made = making.create(folder, pairs("--answer", answer or ()), no_input=no_input)
        typer.echo(f"Made {made}. Next:\n")
        for command in making.next_commands(made):
            typer.echo(f"    {command}")

    guarded(make, debug)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


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
