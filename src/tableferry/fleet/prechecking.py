"""Looks at tables before anybody is told: what would stop a migration, and how long writers wait."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tableferry.activity import activity
from tableferry.fleet.job import MOVED, Job
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import moved
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports import Preflight
from tableferry.fleet.warehouse import preflight
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.neighbours import Neighbourhood

_log = logging.getLogger(__name__)

# So many are enough for a forecast.
_LATEST = 200


def precheck(store: Store, warehouse: Warehouse, tables: Sequence[NewJob]) -> list[Preflight]:
    """Look at tables as their migrations would; nothing is written.

    Args:
        store: The queue, in which the tables that were moved are; these needn't be.
        warehouse: Where they are.
        tables: Which, and what each is to become.

    Raises:
        TableError: Something about one can't be read.
        Refused: This compute can't write what one is to become.
    """
    warehouse.check_formats(table.target_format for table in tables)
    neighbourhood = Neighbourhood()
    done = [*store.jobs(moved(), limit=_LATEST), *store.archived(moved())]
    reports = []
    with activity(_log, "look at the tables") as running:
        for number, table in enumerate(tables, 1):
            seen = preflight.preflight(warehouse, table.name, table.target_format, neighbourhood)
            if seen.files is not None and seen.bytes is not None:
                seen = replace(seen, blocked_seconds=blocked_seconds(seen.files, seen.bytes, done))
            reports.append(seen)
            running.count("tables", number, len(tables))
    return reports


def blocked_seconds(files: int, size: int, moved: Iterable[Job]) -> float | None:
    """Forecast how long writers will have to wait for a table, by those that were moved; None if none was.

    It's the longest of what its files and its bytes ask for at the pace of all together, and of the shortest
    wait that there was.
    """
    notes = [job.record[MOVED] for job in moved if MOVED in job.record]
    if not notes:
        return None
    seconds = sum(note["seconds"] for note in notes)
    of_files, of_bytes = (sum(note[key] for note in notes) for key in ("files", "bytes"))
    least = min(float(note["seconds"]) for note in notes)
    return max(
        least,
        files * seconds / of_files if of_files else 0.0,
        size * seconds / of_bytes if of_bytes else 0.0,
    )
