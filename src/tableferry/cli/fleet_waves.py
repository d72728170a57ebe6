"""``tableferry fleet wave add|start|pause|status``: tables that are migrated together, within limits."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from tableferry import fleet
from tableferry.amounts import counted, first_of
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet_options import (
    EnvOption,
    FleetOptions,
    MoreTables,
    Patterns,
    SettingsOption,
    StoreOption,
    table_patterns,
)
from tableferry.cli.options import Warehouse
from tableferry.errors import InputError
from tableferry.fleet.commands import command
from tableferry.fleet.status import labels
from tableferry.fleet.wave import Wave, WaveStatus

wave_app = App(
    help="Migrate tables in waves, each started, paused and bounded by itself.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="WAVE", help="The wave's name.", show_default=False)]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)B?", re.ASCII)
_MAX_BYTES = 2**63 - 1
# What the queue's column takes in every database.
_MAX_TABLES = 2**31 - 1
_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


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
            help="Move at most N of them at once; 0: no limit.",
        ),
    ] = None,
    bytes_an_hour: Annotated[
        str | None,
        typer.Option("--bytes-an-hour", metavar="SIZE", help="Start at most so much, as 500GB; 0: no limit."),
    ] = None,
    hours: Annotated[
        str | None,
        typer.Option(
            "--hours", metavar="FROM-TO", help="Start tables then alone, as 22:00-06:00; '': always."
        ),
    ] = None,
    time_zone: Annotated[
        str | None, typer.Option("--time-zone", metavar="ZONE", help="Of the hours, as Europe/Berlin.")
    ] = None,
    stop_percent: Annotated[
        int | None,
        typer.Option(
            "--stop-percent", min=0, max=100, metavar="N", help="Pause it when more than N % failed."
        ),
    ] = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Make a wave, change its limits, and put tables into it that are in the queue and haven't started."""
    patterns = table_patterns(tables, more_tables)
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    bounds = {
        "tables_at_once": tables_at_once,
        "bytes_an_hour": None if bytes_an_hour is None else _parse_size(bytes_an_hour),
    }
    others = {"hours": hours, "time_zone": time_zone, "stop_percent": stop_percent}
    limits: dict[str, int | str | None] = {
        # None there means no limit, and here that nothing was said.
        **{key: value or None for key, value in bounds.items() if value is not None},
        **{key: value for key, value in others.items() if value is not None},
    }
    with fleet_options.open() as opened:
        queue = opened.store
        jobs = fleet.select_jobs(queue, patterns) if patterns else []
        wave = fleet.set_wave(queue, name, limits)
        moved, left = fleet.assign(queue, name, jobs, queue.now())
    lines = [f"{_wave_text(wave)}."]
    if jobs:
        lines.append(f"{counted(moved, 'table')} put into it.")
    if left:
        names = first_of([job.name for job in left])
        lines.append(f"Left where they are, as they have started or a worker has them: {names}")
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
    """Let a wave's tables be announced and started."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        wave = fleet.start_wave(opened.store, name, opened.store.now())
    return CommandResult(wave, [f"{_wave_text(wave)}.", "Next: tableferry fleet communicate"])


@wave_app.command("pause")
def wave_pause(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for whoever asks.")] = "",
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Let no more of a wave's tables start, and no probation end; what has started is moved to its end."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        wave = fleet.pause_wave(opened.store, name, reason)
    return CommandResult(wave, [f"{_wave_text(wave)}.", f"To go on: {command('wave start', name)}"])


@wave_app.command("status")
def wave_status(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[WAVE]", help="One wave's name; by itself all.", show_default=False),
    ] = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Say what each wave is at: tables, bytes, and what bounds it."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        if name:
            fleet.find_wave(opened.store, name)
        counts = fleet.read_waves(opened.store)
    # A job of a bundle passes an empty name for none.
    shown = [count for count in counts if not name or name == count.wave.name]
    if not shown:
        return CommandResult(shown, ["There is no wave: make one with tableferry fleet wave add WAVE TABLE…"])
    return CommandResult(shown, lambda console: console.print(fleet.wave_table(shown)))


def _wave_text(wave: Wave) -> str:
    return f"The wave {wave.name} is {labels.wave_status(wave)} ({labels.limits(wave)})"


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    size = float(match[1]) * _UNITS[match[2]] if match else 0
    # None is no limit, and less than a byte isn't none.
    if match is None or size > _MAX_BYTES or (size and not round(size)):
        raise InputError("WAVE_BYTES_INVALID", text=text)
    return round(size)
