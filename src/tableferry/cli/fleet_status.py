"""``tableferry fleet status``: how far the whole fleet is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tableferry import fleet, report
from tableferry.cli.fleet_options import Env, SettingsFile, StoreUrl, Where
from tableferry.cli.options import Debug, Output, OutputAs, Warehouse, guarded
from tableferry.errors import TableferryError
from tableferry.fleet.clock import utc_now
from tableferry.fleet.status.figures import Figures
from tableferry.fleet.status.text import render
from tableferry.fleet.status.watch import watch


def fleet_status(
    watched: Annotated[bool, typer.Option("--watch", help="Show it anew until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=1, help="How often, with --watch.")
    ] = 5,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one page that needs no other.")
    ] = None,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say how far the fleet is: what is stuck, where tables are, the pace, and when the rest is through."""
    if watched and (html is not None or output is Output.JSON):
        raise typer.BadParameter("--watch is for the terminal: leave out --html and --output")

    def work() -> None:
        with Where(store, settings, env, warehouse).opened() as found:

            def read() -> Figures:
                return fleet.status_reading.status(found.store, utc_now(), lease=found.settings.lease)

            if watched:
                watch(read, report.console(), seconds=every)
                return
            figures = read()
        if html is not None:
            _write(html, fleet.status_page.render(figures))
        if output is Output.JSON:
            typer.echo(report.as_json(figures))
        elif html is not None:
            typer.echo(f"The page is written: {html}")
        else:
            report.console().print(render(figures))

    guarded(work, debug)


def _write(file: Path, page: str) -> None:
    try:
        file.write_text(page, encoding="utf-8")
    except OSError as error:
        raise TableferryError(
            f"{file} can't be written ({error.strerror}): name another with --html"
        ) from error
