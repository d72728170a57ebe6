"""``tableferry verify``: compare the rows of two tables."""

from __future__ import annotations

from typing import Annotated

import typer

from tableferry import verify as verifying
from tableferry.cli.command import App, CommandResult
from tableferry.cli.options import Warehouse, split_names
from tableferry.cli.spark import resolve_session

verify_app = App()


@verify_app.command("verify")
def verify(
    source: Annotated[str, typer.Argument(metavar="SOURCE[@VERSION]", help="A table, or the folder of one.")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET[@VERSION]", help="The table to compare, or its folder.")
    ],
    keys: Annotated[
        str,
        typer.Option("--keys", metavar="A,B", help="Columns that identify a row, to show different rows."),
    ] = "",
    exclude: Annotated[str, typer.Option("--exclude", metavar="A,B", help="Columns to leave out.")] = "",
    warehouse: Warehouse = None,
) -> CommandResult:
    """Compare two tables: columns, row counts, and rows in any order."""
    # A fleet's new tables may be Iceberg tables.
    spark = resolve_session(warehouse, iceberg=True)
    verdict = verifying.verify_tables(
        spark, source, target, keys=split_names([keys]), exclude=split_names([exclude])
    )
    return CommandResult(verdict.to_dict(), [verifying.render(verdict)], ok=verdict.matches)
