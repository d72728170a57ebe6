"""Looks at tables before anybody is told: what would stop a migration, and how long writers wait."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean, linear_regression

from tableferry.activity import activity
from tableferry.errors import StateError, TableError
from tableferry.fleet.job import MOVED, REWRITTEN, Job, PauseReason, TargetFormat
from tableferry.fleet.naming import Moving
from tableferry.fleet.queue.selections import moved
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports import Finding, Preflight
from tableferry.fleet.warehouse import preflight
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.neighbours import Neighbourhood

_log = logging.getLogger(__name__)

# So many are enough for a forecast.
_LATEST = 200


def precheck(store: Store, warehouse: Warehouse, tables: Sequence[Moving]) -> list[Preflight]:
    """Look at tables as their migrations would; nothing is written.

    Args:
        store: The queue, in which the tables that were moved are; these needn't be.
        warehouse: Where they are.
        tables: Which, and what each is to become.

    Raises:
        Refused: This compute can't write what one is to become.
    """
    warehouse.check_formats(table.target_format for table in tables)
    neighbourhood = Neighbourhood()
    done = [*store.jobs(moved(), limit=_LATEST), *store.archived(moved())]
    reports = []
    with activity(_log, "look at the tables") as running:
        for number, table in enumerate(tables, 1):
            try:
                seen = preflight.preflight(warehouse, table, neighbourhood)
            except (TableError, StateError) as error:
                # The others are looked at all the same.
                problem = Finding(PauseReason.STEP_FAILED, str(error))
                seen = Preflight(table.name, table.target_format, (problem,))
            if seen.files is not None and seen.bytes is not None:
                seen = replace(
                    seen,
                    blocked_seconds=blocked_seconds(seen.files, seen.bytes, table.target_format, done),
                    rewrite_seconds=rewrite_seconds(seen.bytes, done) if seen.rewritten else None,
                )
            reports.append(seen)
            running.count("tables", number, len(tables))
    return reports


def blocked_seconds(files: int, size: int, form: TargetFormat, moved: Iterable[Job]) -> float | None:
    """Forecast how long writers will have to wait for a table, by those that became the same format.

    A straight line through their waits is taken, by their files and by their bytes, and the longer of the
    two; at least the shortest wait that there was. None if none became that format.
    """
    notes = [job.record[MOVED] for job in moved if MOVED in job.record and job.target_format is form]
    if not notes:
        return None
    seconds = [float(note["seconds"]) for note in notes]
    return max(
        min(seconds),
        _on_line(files, [note["files"] for note in notes], seconds),
        _on_line(size, [note["bytes"] for note in notes], seconds),
    )


def rewrite_seconds(size: int, moved: Iterable[Job]) -> float | None:
    """Forecast how long rows of so many bytes are rewritten, by those that were; None before any was."""
    notes = [job.record[REWRITTEN] for job in moved if "seconds" in job.record.get(REWRITTEN, {})]
    seconds, done = sum(note["seconds"] for note in notes), sum(note["bytes"] for note in notes)
    return size * seconds / done if done else None


def _on_line(at: float, sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Return what a straight line that doesn't fall says; where all sizes are the same, it's a guess."""
    mean = fmean(seconds)
    if len(set(sizes)) == 1:
        return mean * max(1.0, at / sizes[0]) if sizes[0] else mean
    slope, least = linear_regression(sizes, seconds)
    return slope * at + least if slope > 0 else mean
