"""``tableferry fleet readers list|drop``: the readers who are notified."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tableferry import fleet, report
from tableferry.amounts import counted, first_of
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet.options import (
    EnvOption,
    FleetOptions,
    Patterns,
    SettingsOption,
    StoreOption,
    current_user,
)
from tableferry.cli.options import Warehouse
from tableferry.errors import Busy, InputError

readers_app = App(help="List and drop the readers who are notified.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="READER", help="An e-mail address, or a name from the list.")]


@readers_app.command("list")
def readers_list(
    tables: Patterns = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only readers that the mail server refused.")
    ] = False,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """List the readers of the queue's tables, with the mail server's refusals."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        jobs = fleet.list_jobs(opened.store, fleet.Filter(tables or ()))
        readers = fleet.list_readers(jobs, opened.settings.mail.domain)
    shown = [reader for reader in readers if reader.refused or not refused]

    def show(console: Console) -> None:
        if not shown:
            console.print("No reader matches.")
            return
        rows = [(reader.name, len(reader.tables), reader.refused or None) for reader in shown]
        report.table(console, ("reader", "tables", "refusal of the mail server"), rows)

    return CommandResult(shown, show)


@readers_app.command("drop")
def readers_drop(
    name: Name,
    tables: Patterns = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Drop a reader from tables (default: all), who then gets no more notifications about them."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        queue, domain = opened.store, opened.settings.mail.domain
        jobs = fleet.select_jobs(queue, tables) if tables else fleet.list_jobs(queue, fleet.Filter())
        edited = [changed for job in jobs if (changed := fleet.without_reader(job, name, domain)) != job]
        if not edited:
            raise InputError("READER_OF_NO_TABLE", reader=name)
        dropped, busy = [], []
        for job in edited:
            try:
                queue.edit(job, queue.now(), by=current_user())
                dropped.append(job.name)
            except Busy:
                busy.append(job.name)
    lines = [f"{name} is dropped from {counted(len(dropped), 'table')}."]
    if busy:
        lines.append(
            f"Not from these, because a worker has them: {first_of(busy)}. Run the command again later."
        )
    return CommandResult({"reader": name, "tables": dropped, "busy": busy}, lines, ok=not busy)
