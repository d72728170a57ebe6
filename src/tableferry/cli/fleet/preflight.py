"""``tableferry fleet preflight``: find the blockers of migrations before the first notification."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tableferry import fleet
from tableferry.cli.command import App, CommandResult, Output, common_options
from tableferry.cli.fleet.options import (
    Catalog,
    EnvOption,
    Files,
    FleetOptions,
    MoreTables,
    OpenFleet,
    Patterns,
    Query,
    SetOption,
    SettingsOption,
    StoreOption,
    TableOptions,
    Target,
)
from tableferry.cli.options import Html, Warehouse, write_file
from tableferry.errors import InputError, TableError
from tableferry.fleet.jobs.findings import Preflight
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.spark.tables import DEFAULT_CATALOG

preflight_app = App()


@preflight_app.command("preflight")
def fleet_preflight(
    ctx: typer.Context,
    tables: Patterns = None,
    more_tables: MoreTables = None,
    files: Files = None,
    query: Query = "",
    target: Target = None,
    catalog: Catalog = DEFAULT_CATALOG,
    wave: Annotated[
        str, typer.Option("--wave", metavar="WAVE", help="Check all tables of a wave that haven't started.")
    ] = "",
    html: Html = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a CSV file with a row for each table.")
    ] = None,
    store: StoreOption = None,
    settings: SettingsOption = None,
    env: EnvOption = None,
    setting: SetOption = None,
    warehouse: Warehouse = None,
) -> CommandResult:
    """Report what blocks migrations, and how long writers will wait, without writing anything.

    Without a TABLE or --wave, check all jobs that haven't started. The exit code is 1 if a migration is
    blocked.
    """
    table_options = TableOptions(tables, more_tables, files, query)
    fleet_options = FleetOptions(store, settings, env, setting, warehouse)
    with fleet_options.open(target_format=target) as opened:
        preflights = _preflights(opened, table_options.named(catalog), wave, target)
    in_json = common_options(ctx).output is Output.JSON
    if html is not None:
        write_file(html, fleet.preflight_page(preflights), to_stderr=in_json)
    if csv is not None:
        write_file(csv, fleet.preflight_csv(preflights), to_stderr=in_json)
    ok = not any(preflight.findings for preflight in preflights)
    lines = list(fleet.preflight_lines(preflights))
    causes = [
        {"reason": cause.reason, "tables": len(cause.stopped), "remedy": cause.remedy}
        for cause in fleet.causes(preflights)
    ]
    # The written file has all lines but the last, which is the summary.
    shown = lines if html is None and csv is None else lines[-1:]
    return CommandResult({"ok": ok, "causes": causes, "tables": preflights}, shown, ok=ok)


def _preflights(
    opened: OpenFleet, named: fleet.TableSelection, wave: str, target: TargetFormat | None
) -> list[Preflight]:
    store = opened.store
    jobs: Sequence[fleet.NewJob | Job]
    if named.tables or named.files or named.query:
        if wave:
            raise InputError("PREFLIGHT_OF_WAVE_AND_TABLES")
        found = fleet.register(store, named, opened.settings, store.now(), spark=opened.spark, dry_run=True)
        if found.left_out and not found.jobs:
            raise TableError("TABLES_CREATED_BY_MIGRATION", tables=[str(name) for name in found.left_out])
        # A table's settings when it was added override the current settings.
        jobs = found.jobs if target is not None else fleet.known_jobs(store, found.jobs)
    else:
        if target is not None:
            raise InputError("TARGET_FORMAT_WITHOUT_TABLES")
        chosen = fleet.selections.not_started()
        if wave:
            chosen &= fleet.selections.in_wave(fleet.find_wave(store, wave).name)
        jobs = store.jobs(chosen)
        if not jobs:
            if wave:
                raise TableError("NO_TABLE_OF_WAVE_WAITS", wave=wave)
            raise TableError("NO_TABLE_WAITS")
    return fleet.precheck(store, opened.warehouse(), jobs, opened.settings.tables_at_once)
