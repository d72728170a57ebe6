"""``tableferry fleet status``: how far the fleet is, once, live, or as a page."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from tableferry import fleet, report
from tableferry.cli.fleet_options import Env, Fleet, Set, SettingsFile, StoreUrl, Where
from tableferry.cli.options import Debug, Output, OutputAs, Warehouse, guarded, written
from tableferry.fleet.status.figures import Figures


def fleet_status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew until Ctrl-C.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.5, metavar="SECONDS", help="How often --watch asks.")
    ] = 5.0,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as one self-contained page.")
    ] = None,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    setting: Set = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Say how far the fleet is: states, pace and forecast, owners, and what is stuck or paused."""
    if watch and (html is not None or output is Output.JSON):
        raise typer.BadParameter("--watch is for people at a terminal: leave out --html and --output json")

    def work() -> None:
        with Where(store, settings, env, warehouse, {}, setting).opened() as found:
            if watch:
                fleet.watch(lambda: _read(found), report.console(), seconds=interval)
                return
            figures = _read(found)
        if html is not None:
            written(html, fleet.page(figures))
            typer.echo(f"Wrote {html}", err=output is Output.JSON)
        if output is Output.JSON:
            typer.echo(report.as_json(figures))
        elif html is None:
            report.console().print(fleet.as_text(figures))

    guarded(work, debug)


def _read(found: Fleet) -> Figures:
    return fleet.read_status(found.store, found.store.now(), rest=timedelta(hours=found.settings.stuck_hours))
