"""``tableferry new``: a bundle made from the template."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tableferry import new as template
from tableferry.cli.command import App, PrintingCommand
from tableferry.cli.options import pairs

new_app = App()


@new_app.command("new", cls=PrintingCommand)
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
