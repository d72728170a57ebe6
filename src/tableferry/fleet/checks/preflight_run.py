"""Run the preflight of several tables, and forecast how long writes will be blocked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, linear_regression

from sqlalchemy import func, select

from tableferry.errors import Refused, StateError, TableError, TableferryError, first_line, is_sparks
from tableferry.fleet.checks import preflight
from tableferry.fleet.jobs.findings import PauseFinding, Preflight
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Moving
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.selections import moved, numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.table_threads import TableThreads, warehouses_for_threads
from tableferry.progress import task

_log = logging.getLogger(__name__)

# A forecast for each table uses this number of the latest migrations.
_LATEST = 200


def precheck(
    store: Store, warehouse: Warehouse, tables: Sequence[Moving], concurrency: int = 1
) -> list[Preflight]:
    """Run the preflight of several tables; nothing is written.

    Args:
        store: The queue with earlier migrations; it needn't contain the tables.
        warehouse: The tables' warehouse.
        tables: The tables with their target formats.
        concurrency: The number of concurrent checks, each in a separate Spark session.

    Raises:
        Refused: This compute can't write a target format.
    """
    warehouse.check_formats(table.target_format for table in tables)
    check = partial(_check_table, directories=TableDirectories())
    done = _latest_migrations(store)
    reports = []
    with task(_log, "check the tables") as running:
        for table, seen in zip(tables, _check_each(warehouse, tables, concurrency, check), strict=True):
            if seen.files is not None and seen.bytes is not None:
                seen = replace(
                    seen,
                    blocked_seconds=blocked_seconds(seen.files, seen.bytes, table.target_format, done),
                    rewrite_seconds=rewrite_seconds(seen.bytes, done) if seen.rewritten else None,
                )
            reports.append(seen)
            running.update("tables", len(reports), len(tables))
    return reports


def _check_each(
    warehouse: Warehouse,
    tables: Sequence[Moving],
    concurrency: int,
    check: Callable[[Moving, Warehouse], Preflight],
) -> Iterator[Preflight]:
    """Yield each table's result, in the order of the tables."""
    warehouses = warehouses_for_threads(warehouse, min(concurrency, len(tables)))
    if not warehouses:
        yield from (check(table, warehouse) for table in tables)
        return
    with TableThreads(warehouses) as threads:
        for future in [threads.submit(partial(check, table)) for table in tables]:
            yield future.result()


def _check_table(table: Moving, warehouse: Warehouse, *, directories: TableDirectories) -> Preflight:
    """Run the preflight of a table; an error of Spark or of the table is its only finding."""
    try:
        return preflight.preflight(warehouse, table, directories)
    except Exception as error:
        if not isinstance(error, (TableError, StateError, Refused)) and not is_sparks(error):
            raise
        failure = (
            error
            if isinstance(error, TableferryError)
            else TableError("SPARK_FAILED", table=table.name, reason=first_line(error))
        )
        return Preflight(table.name, table.target_format, (PauseFinding(PauseReason.STEP_FAILED, failure),))


def _latest_migrations(store: Store) -> list[Job]:
    """Return the jobs with the latest migrations, including archived jobs."""
    began = func.coalesce(jobs.c.begun_at, jobs.c.created_at)
    latest = select(jobs.c.task_id).where(moved()).order_by(began.desc(), jobs.c.task_id.desc())
    last = numbered(int(task_id) for (task_id,) in store.rows(latest.limit(_LATEST)))
    return sorted((*store.jobs(last), *store.archived(last)), key=lambda job: job.begun_at or job.created_at)


def blocked_seconds(files: int, size: int, form: TargetFormat, moved: Iterable[Job]) -> float | None:
    """Forecast how long writes to a table will be blocked, from earlier migrations to the same format.

    The forecast is the larger of two linear regressions, by files and by bytes, and at least the shortest
    time so far. It's None if no table was migrated to the format.
    """
    notes = [job.record.moved for job in moved if job.record.moved and job.target_format is form]
    if not notes:
        return None
    seconds = [float(note["seconds"]) for note in notes]
    return max(
        min(seconds),
        _linear_forecast(files, [note["files"] for note in notes], seconds),
        _linear_forecast(size, [note["bytes"] for note in notes], seconds),
    )


def rewrite_seconds(size: int, moved: Iterable[Job]) -> float | None:
    """Forecast the seconds for rewriting a number of bytes; None if no table was rewritten yet."""
    rewritten = (job.record.rewritten for job in moved)
    notes = [note for note in rewritten if note and "seconds" in note]
    seconds, done = sum(note["seconds"] for note in notes), sum(note["bytes"] for note in notes)
    return size * seconds / done if done else None


def _linear_forecast(at: float, sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return a linear regression's forecast, which never falls; proportional if all sizes are the same."""
    mean = fmean(seconds)
    if len(set(sizes)) == 1:
        return mean * max(1.0, at / sizes[0]) if sizes[0] else mean
    slope, least = linear_regression(sizes, seconds)
    return slope * at + least if slope > 0 else mean
