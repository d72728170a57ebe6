"""``tableferry fleet status``: the progress of the fleet, once, live, or as a page."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from tableferry import fleet, report
from tableferry.cli.command import App, CommandResult, Output, common_options
from tableferry.cli.fleet.options import (
    EnvOption,
    FleetOptions,
    OpenFleet,
    SetOption,
    SettingsOption,
    StoreOption,
)
from tableferry.cli.options import Html, Warehouse, write_file
from tableferry.fleet.reports.figure_types import Figures

status_app = App()


@status_app.command("status")
def fleet_status(
    ctx: typer.Context,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            min=0.5,
            max=86_400,
            metavar="SECONDS",
            help="Seconds between two refreshes of --watch.",
        ),
    ] = 5.0,
    html: Html = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    setting: SetOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Show the fleet's progress: states, pace, forecast, owners, and stuck or paused jobs."""
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    json = common_options(ctx).output is Output.JSON
    if watch and (html is not None or json):
        raise typer.BadParameter("--watch is for people at a terminal: leave out --html and --output json")
    with fleet_options.open() as opened:
        if watch:
            fleet.watch(lambda: _figures(opened), report.console(), seconds=interval)
            raise typer.Exit
        figures = _figures(opened)
    if html is not None:
        write_file(html, fleet.page(figures), to_stderr=json)
        return CommandResult(figures, ())
    return CommandResult(figures, lambda console: console.print(fleet.as_text(figures)))


def _figures(opened: OpenFleet) -> Figures:
    rest = timedelta(hours=opened.settings.stuck_hours)
    return fleet.read_status(opened.store, opened.store.now(), rest=rest)
