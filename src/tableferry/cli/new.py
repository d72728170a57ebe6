"""``tableferry new``: create a bundle from the template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tableferry import new as template
from tableferry.cli.command import App, PrintingCommand
from tableferry.cli.options import parse_pairs

new_app = App()


@new_app.command("new", cls=PrintingCommand)
def new(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="The parent of the bundle's folder; default: here.")
    ] = Path(),
    answer: Annotated[
        list[str] | None,
        typer.Option(
            "--answer", metavar="NAME=VALUE", help="Answer a question of the template (repeatable)."
        ),
    ] = None,
    no_input: Annotated[
        bool, typer.Option("--no-input", help="Ask no questions: use defaults for missing answers.")
    ] = False,
) -> None:
    """Create a bundle that you can deploy to a workspace."""
    bundle = template.create(folder, parse_pairs("--answer", answer), no_input=no_input)
    typer.echo(f"Created {bundle}. Next:\n")
    for command in template.next_commands(bundle):
        typer.echo(f"    {command}")
