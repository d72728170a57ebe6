"""``tableferry verify``: whether two tables have the same rows."""

from __future__ import annotations

from typing import Annotated

import typer

from tableferry import verify as verifying
from tableferry.cli.command import Answer, App
from tableferry.cli.options import Warehouse, separated
from tableferry.cli.spark import resolved

verify_app = App()


@verify_app.command("verify")
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
