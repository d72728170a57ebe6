"""Add jobs to the queue for tables that the user names, by names, patterns, files or a query."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.errors import TableError
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.operations import table_requests, table_search
from tableferry.fleet.operations.table_requests import Pattern, TableRequest
from tableferry.fleet.operations.wave_commands import find_wave
from tableferry.fleet.queue.conditions import chunks
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.progress import task
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Databases limit how deep a condition is.
_CHUNK = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TableSelection:
    """The tables that a user names.

    Attributes:
        tables: Names and patterns.
        files: Files with names and patterns.
        query: A query that returns catalog, schema and table; empty for none.
        catalog: The catalog of names without one.
        owners: The owners' e-mail addresses, for tables without owners in a file.
        downstream_users: The e-mail addresses of the tables' readers.
        wave: The wave of the tables; None for none.
    """

    tables: Sequence[str] = ()
    files: Sequence[Path] = ()
    query: str = ""
    catalog: str = "spark_catalog"
    owners: tuple[str, ...] = ()
    downstream_users: tuple[str, ...] = ()
    wave: str | None = None


@dataclass(frozen=True)
class Registration:
    """The result of adding tables.

    Attributes:
        jobs: All tables that were named.
        added: The number of new jobs; None for a dry run.
        left_out: Tables that a migration of this fleet created or renamed.
    """

    jobs: tuple[NewJob, ...]
    added: int | None
    left_out: tuple[TableName, ...]


def register(
    store: Store,
    selection: TableSelection,
    settings: FleetSettings,
    now: datetime,
    *,
    spark: Callable[[], SparkSession],
    dry_run: bool = False,
) -> Registration:
    """Add jobs for tables without a job.

    Args:
        store: The queue.
        selection: The tables.
        settings: The defaults of the jobs.
        now: The time.
        spark: Returns a session, for patterns and a query; names and files don't need one.
        dry_run: Return the tables, and add no jobs.

    Raises:
        TableError: A name, pattern or query has no table, or a target is invalid.
        SpecError: A file is invalid.
        TableferryError: The wave doesn't exist.
    """
    template = NewJob(
        TableName(),
        settings.target_format,
        settings.initial_gap_days,
        settings.probation_gap_days,
        selection.owners,
        selection.downstream_users,
        selection.wave,
        settings.target.catalog or None,
        settings.target.schema_name or None,
        settings.target.old_name,
        settings.rewrite or None,
    )
    requests = [
        TableRequest(table_requests.parse(text, selection.catalog), template) for text in selection.tables
    ]
    for file in selection.files:
        requests += table_requests.read_table_list(file, template, selection.catalog)
    if selection.query:
        with task(_log, "query the tables", level=logging.DEBUG):
            requests += [
                TableRequest(name, template) for name in table_search.query_tables(spark(), selection.query)
            ]
    if not requests:
        raise TableError("NO_TABLE_TO_ADD")

    def find(pattern: Pattern) -> list[TableName]:
        with task(_log, f"list tables like {pattern}", level=logging.DEBUG):
            return table_search.find_tables(spark(), pattern)

    jobs = [
        table_requests.with_target(job, settings.iceberg_catalog)
        for job in table_requests.expand_patterns(requests, find)
    ]
    jobs, left_out = table_requests.without_migration_tables(
        jobs, _known(store, table_requests.possible_sources(jobs))
    )
    for wave in sorted({job.wave for job in jobs if job.wave is not None}):
        find_wave(store, wave)
    if dry_run:
        return Registration(tuple(jobs), None, tuple(left_out))
    return Registration(tuple(jobs), store.add(jobs, now), tuple(left_out))


def known_jobs(store: Store, tables: Sequence[NewJob]) -> list[NewJob | Job]:
    """Return the jobs of tables: those of the queue, and new ones for tables without a job."""
    queued = {
        job.name: job
        for chunk in chunks([table.name for table in tables], _CHUNK)
        for job in store.jobs(named(chunk))
    }
    return [queued.get(table.name, table) for table in tables]


def _known(store: Store, tables: set[TableName]) -> list[Job]:
    """Return the jobs of these tables, in the queue and in the archive."""
    return [
        job
        for chunk in chunks(sorted(tables), _CHUNK)
        for job in (*store.jobs(named(chunk)), *store.archived(named(chunk)))
    ]
