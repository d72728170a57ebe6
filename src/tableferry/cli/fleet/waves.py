"""``tableferry fleet wave add|start|pause|status``: tables that are migrated together, within limits."""

from __future__ import annotations

from typing import Annotated

import typer

from tableferry import fleet
from tableferry.amounts import counted, first_of
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet.options import (
    EnvOption,
    FleetOptions,
    MoreTables,
    Patterns,
    SettingsOption,
    StoreOption,
    table_patterns,
)
from tableferry.cli.options import Warehouse
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.reports import labels

wave_app = App(
    help="Migrate tables in waves, each with separate starts, pauses and limits.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="WAVE", help="The wave's name.", show_default=False)]

# The largest integer of the queue's column in every database.
_MAX_TABLES = 2**31 - 1


@wave_app.command("add")
def wave_add(
    name: Name,
    tables: Patterns = None,
    more_tables: MoreTables = None,
    tables_at_once: Annotated[
        int | None,
        typer.Option(
            "--tables-at-once",
            min=0,
            max=_MAX_TABLES,
            metavar="N",
            help="Migrate at most N tables concurrently; 0: no limit.",
        ),
    ] = None,
    hours: Annotated[
        str | None,
        typer.Option(
            "--hours",
            metavar="FROM-TO",
            help="Start tables only in these hours, such as 22:00-06:00; '': always.",
        ),
    ] = None,
    time_zone: Annotated[
        str | None,
        typer.Option("--time-zone", metavar="ZONE", help="The time zone of --hours, such as Europe/Berlin."),
    ] = None,
    stop_percent: Annotated[
        int | None,
        typer.Option(
            "--stop-percent",
            min=0,
            max=100,
            metavar="N",
            help="Pause the wave if more than N % failed.",
        ),
    ] = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Create a wave or change its limits, and add queued tables that haven't started."""
    patterns = table_patterns(tables, more_tables)
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    written = {"hours": hours, "time_zone": time_zone, "stop_percent": stop_percent}
    limits: dict[str, int | str | None] = {key: value for key, value in written.items() if value is not None}
    if tables_at_once is not None:
        # In the library, None means no limit; here it means that the option is missing.
        limits["tables_at_once"] = tables_at_once or None
    with fleet_options.open() as opened:
        queue = opened.store
        jobs = fleet.select_jobs(queue, patterns) if patterns else []
        wave = fleet.set_wave(queue, name, limits)
        moved, left = fleet.assign(queue, name, jobs, queue.now())
    lines = [f"{_wave_text(wave)}."]
    if jobs:
        lines.append(f"{counted(moved, 'table')} added to it.")
    if left:
        names = first_of([job.name for job in left])
        lines.append(f"Not added, because they have started or a worker has them: {names}")
    if wave.status is not WaveStatus.RUNNING:
        lines.append(f"Next: {command('wave start', name)}")
    return CommandResult(
        {"wave": wave, "moved": moved, "left": [job.name for job in left]}, lines, ok=not left
    )


@wave_app.command("start")
def wave_start(
    name: Name,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Start a wave: its tables are announced and migrated."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        wave = fleet.start_wave(opened.store, name, opened.store.now())
    return CommandResult(wave, [f"{_wave_text(wave)}.", "Next: tableferry fleet communicate"])


@wave_app.command("pause")
def wave_pause(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, for other users.")] = "",
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Pause a wave: no table starts and no probation ends; started migrations are completed."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        wave = fleet.pause_wave(opened.store, name, reason)
    return CommandResult(wave, [f"{_wave_text(wave)}.", f"To resume: {command('wave start', name)}"])


@wave_app.command("status")
def wave_status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[WAVE]", help="The wave's name; default: all.", show_default=False),
    ] = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Show the progress and the limits of each wave."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        if name:
            fleet.find_wave(opened.store, name)
        counts = fleet.read_waves(opened.store)
    # A bundle's job passes an empty name if it has none.
    shown = [count for count in counts if not name or name == count.wave.name]
    if not shown:
        return CommandResult(shown, ["No wave exists: create one with tableferry fleet wave add WAVE TABLE…"])
    return CommandResult(shown, lambda console: console.print(fleet.wave_table(shown)))


def _wave_text(wave: Wave) -> str:
    return f"The wave {wave.name} is {labels.wave_status(wave)} ({labels.limits(wave)})"
