"""``tableferry fleet preflight``: what would stop tables' migrations, before anybody is notified."""

from __future__ import annotations

from tableferry import fleet
from tableferry.cli.command import Answer, Common, Output
from tableferry.cli.fleet_options import Catalog, NewTables, OpenFleet, Target, WhichFleet
from tableferry.cli.options import Html, write_page
from tableferry.errors import TableError
from tableferry.fleet.reports import Preflight
from tableferry.tables import DEFAULT_CATALOG


def fleet_preflight(
    which_tables: NewTables,
    target: Target = None,
    catalog: Catalog = DEFAULT_CATALOG,
    html: Html = None,
    *,
    which: WhichFleet,
    common: Common,
) -> Answer:
    """Say what would stop tables' migrations, and how long writers will wait; nothing is written.

    Without a TABLE, of all jobs that haven't begun. The exit code is 1 if a table can't be migrated as it is.
    """
    with which.opened(target_format=target) as opened:
        preflights = _preflights(opened, which_tables.named(catalog))
    if html is not None:
        write_page(html, fleet.preflight_page(preflights), to_stderr=common.output is Output.JSON)
    ok = not any(preflight.findings for preflight in preflights)
    lines = list(fleet.preflight_lines(preflights))
    # The page has all but how it stands.
    return Answer({"ok": ok, "tables": preflights}, lines if html is None else lines[-1:], ok=ok)


def _preflights(opened: OpenFleet, named: fleet.Named) -> list[Preflight]:
    store = opened.store
    if named.tables or named.files or named.query:
        jobs = fleet.register(
            store, named, opened.settings, store.now(), spark=opened.spark, dry_run=True
        ).jobs
    else:
        jobs = tuple(
            fleet.NewJob(job.name, job.target_format) for job in store.jobs(fleet.selections.not_started())
        )
        if not jobs:
            raise TableError(
                "no table waits for its migration: name tables, or add some with tableferry fleet add"
            )
    return fleet.precheck(store, opened.warehouse(), jobs)
