"""What each mode takes from the queue, and whether there is any.

Nothing that works on tables is loaded here, so that a run with nothing due ends at once.
"""

from __future__ import annotations

import logging
from typing import Literal, assert_never

from tableferry.fleet.clock import Clock
from tableferry.fleet.modes.claims import Portion, Takes
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.wave_gate import Gate
from tableferry.fleet.queue.selections import (
    Selection,
    any_of,
    archived_lately,
    to_close,
    to_preprocess,
    to_revert,
    to_shadow,
)
from tableferry.fleet.queue.store import Store
from tableferry.progress import task

Mode = Literal["preprocess", "migrate", "shadow", "revert", "close"]
"""The modes that work on tables."""

_log = logging.getLogger(__name__)


def takes(mode: Mode, store: Store, clock: Clock, *, dry_run: bool = False) -> Takes:
    """Return what says which jobs a run of a mode may claim now."""
    match mode:
        case "preprocess":
            return lambda: [Portion(to_preprocess(clock()))]
        case "migrate":
            return Gate(store, clock, dry_run).portions
        case "shadow":
            return lambda: [Portion(to_shadow() | archived_lately(clock()))]
        case "revert":
            return lambda: [Portion(to_revert())]
        case "close":
            return lambda: [Portion(to_close(clock()))]
        case _:
            assert_never(mode)


def all_due(taken: Takes) -> Selection:
    """The jobs that a run may claim now."""
    return any_of(portion.selection for portion in taken())


def count_due(store: Store, taken: Takes) -> int:
    """Count the jobs that a run may claim now, those included that another worker has."""
    return sum(int(group["jobs"]) for group in store.counts(all_due(taken), ("state",)))


def report_nothing_due(mode: Mode, store: Store, worker: str, *, dry_run: bool = False) -> ModeReport | None:
    """Return the report of a run that has nothing to do; None if there is something."""
    if count_due(store, takes(mode, store, store.now, dry_run=dry_run)):
        return None
    return nothing_done(mode, worker)


def nothing_done(title: str, worker: str) -> ModeReport:
    """Log a run without a job, and return its report."""
    with task(_log, title, worker=worker) as running:
        running.update("tables", 0, 0)
    return ModeReport()
