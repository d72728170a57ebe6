"""``tableferry fleet``: a warehouse of Hive tables to Iceberg or Delta; its queue is made and filled here."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from tableferry import fleet, report
from tableferry.cli.fleet_jobs import register_jobs
from tableferry.cli.fleet_modes import register_modes
from tableferry.cli.fleet_options import (
    CATALOG,
    Catalog,
    Env,
    Files,
    MoreTables,
    Patterns,
    Query,
    Set,
    SettingsFile,
    StoreUrl,
    Target,
    Where,
    many,
    separated,
    without_password,
)
from tableferry.cli.fleet_preflight import fleet_preflight
from tableferry.cli.fleet_status import fleet_status
from tableferry.cli.logs import App
from tableferry.cli.options import Debug, Output, OutputAs, Warehouse, guarded

_log = logging.getLogger(__name__)

fleet_app = App(
    help="Move a warehouse of Hive tables to Iceberg or Delta, table by table.", no_args_is_help=True
)

_SHOWN = 20


@fleet_app.command("init")
def fleet_init(
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Make the queue, or bring it up to this version."""

    def work() -> None:
        with Where(store, settings, env, warehouse).opened() as found:
            found.store.create()
            if output is Output.JSON:
                typer.echo(report.as_json({"store": without_password(found.settings.store)}))
                return
            typer.echo(f"The queue is ready: {without_password(found.settings.store)}")
            typer.echo("Next: tableferry fleet add TABLE…")

    guarded(work, debug)


@fleet_app.command("add")
def fleet_add(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    files: Files = None,
    query: Query = "",
    target: Target = None,
    initial_gap: Annotated[
        int | None,
        typer.Option("--initial-gap-days", min=0, help="Days from the first letter to the migration."),
    ] = None,
    probation: Annotated[
        int | None,
        typer.Option("--probation-gap-days", min=0, help="Days from the second letter to the archive."),
    ] = None,
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", metavar="ADDRESS", help="An owner, where the catalog isn't to be asked."),
    ] = None,
    users: Annotated[
        list[str] | None, typer.Option("--user", metavar="ADDRESS", help="Somebody who reads them, likewise.")
    ] = None,
    catalog: Catalog = CATALOG,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show which, and add none.")] = False,
    store: StoreUrl = None,
    settings: SettingsFile = None,
    env: Env = None,
    setting: Set = None,
    warehouse: Warehouse = None,
    output: OutputAs = Output.TEXT,
    debug: Debug = False,
) -> None:
    """Put tables into the queue: names, patterns (sales.*), files, or what a query gives."""
    flags = {
        "target_format": target.value if target else None,
        "initial_gap_days": initial_gap,
        "probation_gap_days": probation,
    }

    def work() -> None:
        asked = fleet.Named(
            [*(tables or ()), *separated(more_tables)],
            files or (),
            query,
            catalog.lower(),
            tuple(owners or ()),
            tuple(users or ()),
        )
        with Where(store, settings, env, warehouse, flags, setting).opened() as found:
            done = fleet.register(
                found.store, asked, found.settings, found.store.now(), spark=found.spark, dry_run=dry_run
            )
        if output is Output.JSON:
            typer.echo(report.as_json(done))
            return
        for name in done.left_out:
            _log.info("Note: %s is left out, as a migration of this fleet made it", name)
        if done.added is None:
            for job in done.jobs[:_SHOWN]:
                typer.echo(f"{job.name} to {job.target_format.value.capitalize()}")
            if (more := len(done.jobs) - _SHOWN) > 0:
                typer.echo(f"and {more:,} more")
            typer.echo(f"{many(len(done.jobs), 'table')} would be added, where they have no job yet.")
            return
        known = len(done.jobs) - done.added
        there = f"; {known:,} had a job already" if known else ""
        typer.echo(f"Added {many(done.added, 'table')}{there}.")
        if done.added:
            typer.echo("Next: tableferry fleet preprocess")

    guarded(work, debug)


fleet_app.command("preflight")(fleet_preflight)
register_jobs(fleet_app)
fleet_app.command("status")(fleet_status)
register_modes(fleet_app)
