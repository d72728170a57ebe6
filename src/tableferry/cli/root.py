"""The application and its command groups, each with a line of help."""

from __future__ import annotations

from typing import Annotated, ClassVar

import typer

from tableferry import __version__
from tableferry.cli.command import App
from tableferry.cli.groups import Entry, LazyGroup


class _Root(LazyGroup):
    entries: ClassVar = {
        "verify": Entry(
            "verify:verify_app",
            "Compare two tables: columns, row counts, and rows in any order.",
        ),
        "doctor": Entry("doctor:doctor_app", "Check this machine and the workspace before a migration."),
        "new": Entry("new:new_app", "Create a bundle that you can deploy to a workspace."),
        "pipelines": Entry(
            "pipelines:pipelines_app",
            "Migrate a Delta table with its history to a streaming table.",
            is_group=True,
        ),
        "convert": Entry(
            "convert:convert_app", "Convert Parquet to Delta in place, and back.", is_group=True
        ),
        "fleet": Entry(
            "fleet:fleet_app",
            "Migrate a warehouse of Hive tables to Iceberg or Delta.",
            is_group=True,
        ),
        "spec": Entry("spec:spec_app", "Data flow specs.", is_group=True),
    }


app = App(
    cls=_Root,
    help="Moves tables that people already depend on, without losing a row.",
    no_args_is_help=True,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit
