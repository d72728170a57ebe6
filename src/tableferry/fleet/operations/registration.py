"""Puts tables into the queue: from names, patterns, files and a query to jobs that weren't there yet."""

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
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import named
from tableferry.fleet.queue.statements import chunks
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.progress import task
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Databases bound how deep a condition may be.
_AT_ONCE = 200

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Named:
    """What somebody named.

    Attributes:
        tables: Names and patterns.
        files: Files of them.
        query: A query that gives catalog, schema and table; empty for none.
        catalog: Of names that have none.
        owners: Mail addresses, where a file says nothing else.
        downstream_users: Mail addresses of people who read the tables.
        wave: The wave that they are migrated with, if any.
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
    """What became of it.

    Attributes:
        jobs: All tables that were named.
        added: How many of these had no job yet; None if this was only to be seen.
        left_out: Tables that a migration of this fleet made or renamed.
    """

    jobs: tuple[NewJob, ...]
    added: int | None
    left_out: tuple[TableName, ...]


def register(
    store: Store,
    asked_for: Named,
    settings: FleetSettings,
    now: datetime,
    *,
    spark: Callable[[], SparkSession],
    dry_run: bool = False,
) -> Registration:
    """Add jobs for tables that have none yet.

    Args:
        store: The queue.
        asked_for: Which tables.
        settings: What the jobs are like.
        now: The time.
        spark: Gives a session, for patterns and a query; names and files need none.
        dry_run: Find the tables, and add none.

    Raises:
        TableError: Something names no table, or no place for one.
        SpecError: A file is wrong.
        TableferryError: There is no such wave.
    """
    template = NewJob(
        TableName(),
        settings.target_format,
        settings.initial_gap_days,
        settings.probation_gap_days,
        asked_for.owners,
        asked_for.downstream_users,
        asked_for.wave,
        settings.target.catalog or None,
        settings.target.schema_name or None,
        settings.target.old_name,
        settings.rewrite or None,
    )
    requests = [
        TableRequest(table_requests.parse(text, asked_for.catalog), template) for text in asked_for.tables
    ]
    for file in asked_for.files:
        requests += table_requests.read_file(file, template, asked_for.catalog)
    if asked_for.query:
        with task(_log, "ask the query for tables", level=logging.DEBUG):
            requests += [
                TableRequest(name, template) for name in table_search.asked(spark(), asked_for.query)
            ]
    if not requests:
        raise TableError("NO_TABLE_TO_ADD")

    def find(pattern: Pattern) -> list[TableName]:
        with task(_log, f"look for {pattern}", level=logging.DEBUG):
            return table_search.matching(spark(), pattern)

    jobs = [
        table_requests.placed(job, settings.iceberg_catalog) for job in table_requests.expand(requests, find)
    ]
    jobs, left_out = table_requests.without_made(jobs, _known(store, table_requests.possible_owners(jobs)))
    for wave in sorted({job.wave for job in jobs if job.wave is not None}):
        find_wave(store, wave)
    if dry_run:
        return Registration(tuple(jobs), None, tuple(left_out))
    return Registration(tuple(jobs), store.add(jobs, now), tuple(left_out))


def known_jobs(store: Store, tables: Sequence[NewJob]) -> list[NewJob | Job]:
    """Return tables' jobs as the queue has them, and as they would be added where it has none."""
    queued = {
        job.name: job
        for chunk in chunks([table.name for table in tables], _AT_ONCE)
        for job in store.jobs(named(chunk))
    }
    return [queued.get(table.name, table) for table in tables]


def _known(store: Store, tables: set[TableName]) -> list[Job]:
    """Return the jobs of these tables, in the queue and in the archive."""
    return [
        job
        for chunk in chunks(sorted(tables), _AT_ONCE)
        for job in (*store.jobs(named(chunk)), *store.archived(named(chunk)))
    ]
