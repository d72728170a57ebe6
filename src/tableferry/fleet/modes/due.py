"""The jobs that are due in each mode, and their number.

This module imports no code that reads tables, so a run without due jobs ends fast.
"""

from __future__ import annotations

import logging
from typing import Literal, assert_never

from tableferry.fleet.clock import Clock
from tableferry.fleet.modes.claims import ClaimableJobs, ListClaimable
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.wave_gate import WaveGate
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


def select_claimable(mode: Mode, store: Store, clock: Clock, *, dry_run: bool = False) -> ListClaimable:
    """Return the function that lists the jobs that a run of a mode may claim now."""
    match mode:
        case "preprocess":
            return lambda: [ClaimableJobs(to_preprocess(clock()))]
        case "migrate":
            return WaveGate(store, clock, dry_run).list_claimable
        case "shadow":
            return lambda: [ClaimableJobs(to_shadow() | archived_lately(clock()))]
        case "revert":
            return lambda: [ClaimableJobs(to_revert())]
        case "close":
            return lambda: [ClaimableJobs(to_close(clock()))]
        case _:
            assert_never(mode)


def select_due(list_claimable: ListClaimable) -> Selection:
    """Return the selection of all jobs that a run may claim now."""
    return any_of(group.selection for group in list_claimable())


def count_due(store: Store, list_claimable: ListClaimable) -> int:
    """Count the jobs that a run may claim now, including jobs that other workers have claimed."""
    return sum(int(group["jobs"]) for group in store.counts(select_due(list_claimable), ("state",)))


def report_nothing_due(mode: Mode, store: Store, worker: str, *, dry_run: bool = False) -> ModeReport | None:
    """Return the report of a run without due jobs; None if a job is due."""
    if count_due(store, select_claimable(mode, store, store.now, dry_run=dry_run)):
        return None
    return report_empty_run(mode, worker)


def report_empty_run(title: str, worker: str) -> ModeReport:
    """Log a run without a job, and return its report."""
    with task(_log, title, worker=worker) as running:
        running.update("tables", 0, 0)
    return ModeReport()
