"""``tableferry fleet init|add``: create the queue, and add tables to it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated

import typer

from tableferry import fleet
from tableferry.amounts import counted
from tableferry.cli.command import App, CommandResult
from tableferry.cli.fleet.options import (
    Catalog,
    EnvOption,
    Files,
    FleetOptions,
    MoreTables,
    Patterns,
    Query,
    SetOption,
    SettingsOption,
    StoreOption,
    TableOptions,
    Target,
    redact_password,
)
from tableferry.cli.options import Warehouse
from tableferry.fleet.jobs.job import LONGEST_GAP
from tableferry.fleet.jobs.names import Names
from tableferry.spark.tables import DEFAULT_CATALOG

_log = logging.getLogger(__name__)

queue_app = App()

_SHOWN = 20


@queue_app.command("init")
def fleet_init(
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Create the queue, or upgrade it to this version."""
    fleet_options = FleetOptions(store, settings, env, None, warehouse)
    with fleet_options.open() as opened:
        opened.store.create()
        url = redact_password(opened.settings.store)
    return CommandResult({"store": url}, [f"The queue is ready: {url}", "Next: tableferry fleet add TABLE…"])


@queue_app.command("add")
def fleet_add(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    files: Files = None,
    query: Query = "",
    target: Target = None,
    initial_gap: Annotated[
        int | None,
        typer.Option(
            "--initial-gap-days",
            min=0,
            max=LONGEST_GAP,
            help="Days from the first notification to the migration.",
        ),
    ] = None,
    probation: Annotated[
        int | None,
        typer.Option(
            "--probation-gap-days",
            min=0,
            max=LONGEST_GAP,
            help="Days from the second notification to the archive.",
        ),
    ] = None,
    owners: Annotated[
        list[str] | None,
        typer.Option(
            "--owner",
            metavar="ADDRESS",
            help="An owner of the tables, instead of the catalog's (repeatable).",
        ),
    ] = None,
    users: Annotated[
        list[str] | None,
        typer.Option("--user", metavar="ADDRESS", help="A reader of the tables (repeatable)."),
    ] = None,
    wave: Annotated[str, typer.Option("--wave", metavar="WAVE", help="The wave of the tables.")] = "",
    catalog: Catalog = DEFAULT_CATALOG,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the tables, and add none.")] = False,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    setting: SetOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Add tables to the queue: by name, pattern ('sales.*'), file or query."""
    table_options = TableOptions(tables, more_tables, files, query)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    named = table_options.named(catalog, owners or (), users or (), wave)
    with fleet_options.open(
        target_format=target, initial_gap_days=initial_gap, probation_gap_days=probation
    ) as opened:
        now = opened.store.now()
        registration = fleet.register(
            opened.store, named, opened.settings, now, spark=opened.spark, dry_run=dry_run
        )
    return CommandResult(registration, _registration_lines(registration))


def _registration_lines(registration: fleet.Registration) -> Iterator[str]:
    jobs = registration.jobs
    for name in registration.left_out:
        _log.info("Note: %s is left out, because a migration of this fleet created it", name)
    if registration.added is None:
        for job in jobs[:_SHOWN]:
            names = Names.of(job)
            where = f", as {names.target}" if names.elsewhere else ""
            yield f"{job.name} to {job.target_format.value.capitalize()}{where}"
        if len(jobs) > _SHOWN:
            yield f"and {len(jobs) - _SHOWN:,} more"
        yield f"{counted(len(jobs), 'table')} would be added, unless they have a job already."
        return
    yield f"Added {counted(registration.added, 'table')}{_existing_jobs_text(registration)}."
    if registration.added:
        yield "Next: tableferry fleet preprocess"


def _existing_jobs_text(registration: fleet.Registration) -> str:
    """Return the number of tables that had a job already, with a hint if a wave was requested."""
    known = len(registration.jobs) - (registration.added or 0)
    if not known:
        return ""
    had = f"; {known:,} had a job already"
    waves = {job.wave for job in registration.jobs if job.wave is not None}
    if not waves:
        return had
    wave = waves.pop() if len(waves) == 1 else "WAVE"
    keep = "keeps its wave" if known == 1 else "keep their wave"
    return f"{had}, and {keep}: tableferry fleet wave add {wave} TABLE… changes it"
