"""``tableferry fleet preflight``: what would stop tables' migrations, before anybody is told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tableferry import fleet, report
from tableferry.cli.fleet_options import (
    CATALOG,
    Catalog,
    Env,
    Files,
    Fleet,
    MoreTables,
    Patterns,
    Query,
    Set,
    SettingsFile,
    StoreUrl,
    Target,
    Where,
    separated,
)
from tableferry.cli.options import Debug, Output, OutputAs, Warehouse, guarded, written
from tableferry.errors import TableError
from tableferry.fleet.reports import Preflight


def fleet_preflight(
    tables: Patterns = None,
    more_tables: MoreTables = None,
    files: Files = None,
    query: Query = "",
    target: Target = None,
    catalog: Catalog = CATALOG,
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
    """Say what would stop tables' migrations, and how long writers will wait; nothing is written.

    Without a TABLE, of all jobs that haven't begun. The exit code is 1 if a table can't be migrated as it is.
    """
    flags: dict[str, str | int | None] = {"target_format": target.value if target else None}

    def work() -> None:
        asked = fleet.Named([*(tables or ()), *separated(more_tables)], files or (), query, catalog.lower())
        with Where(store, settings, env, warehouse, flags, setting).opened() as found:
            seen = _seen(found, asked)
        if html is not None:
            written(html, fleet.preflight_page(seen))
            typer.echo(f"Wrote {html}", err=output is Output.JSON)
        if output is Output.JSON:
            typer.echo(report.as_json({"ok": not any(each.findings for each in seen), "tables": seen}))
        elif html is None:
            for line in fleet.preflight_lines(seen):
                typer.echo(line)
        if any(each.findings for each in seen):
            raise typer.Exit(1)

    guarded(work, debug)


def _seen(found: Fleet, asked: fleet.Named) -> list[Preflight]:
    if asked.tables or asked.files or asked.query:
        now = found.store.now()
        wanted = fleet.register(found.store, asked, found.settings, now, spark=found.spark, dry_run=True).jobs
    else:
        wanted = tuple(
            fleet.NewJob(job.name, job.target_format)
            for job in found.store.jobs(fleet.selections.not_begun())
        )
        if not wanted:
            raise TableError("no job is yet to begin: name tables, or add some with tableferry fleet add")
    spark = found.spark()
    known = found.settings
    access = fleet.open_access(spark, users=known.users_file, require_lineage=known.require_lineage)
    return fleet.precheck(found.store, fleet.Warehouse.of(spark, access, known), wanted)
