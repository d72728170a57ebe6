"""What the handler of a step gets and returns, and the pause that it raises if a person must decide.

Each step of `jobs.steps` has one handler, beside the code of its change. `modes.performer` calls it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tableferry.amounts import first_of
from tableferry.errors import Paused, Refused
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import Job, PauseReason
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.progress import Task

_log = logging.getLogger(__name__)

Save = Callable[[Job], Job]
"""Saves a job and extends its claim; returns the job with its new revision."""


@dataclass(frozen=True)
class StepRun:
    """One run of a step of a claimed job.

    A handler returns the job with new records, which the caller saves. A record that must exist before a
    change is saved with `save`. A handler can be repeated.

    Attributes:
        job: The job.
        warehouse: The tables; a change requires a valid claim.
        save: Saves the job.
        progress: The counts of the step, which the user sees.
    """

    job: Job
    warehouse: Warehouse
    save: Save
    progress: Task


class StepPaused(Paused):
    """A step needs a person's decision; the job waits with the finding's reason.

    Attributes:
        pause: The finding with which the job pauses.
        found: The key with which a person accepts exactly this finding.
    """

    def __init__(self, finding: PauseFinding, found: str = "") -> None:
        super().__init__(finding.condition or finding.text, **finding.parameters)
        self.pause, self.found = finding, found


def require_no_finding(finding: PauseFinding | None) -> None:
    """Check that a step has no finding.

    Raises:
        StepPaused: There is one.
    """
    if finding is not None:
        raise StepPaused(finding)


@contextmanager
def pausing(reason: PauseReason, kind: type[Refused] = Refused) -> Iterator[None]:
    """Pause the job for this reason if an error of this kind is raised inside a ``with``."""
    try:
        yield
    except StepPaused:
        raise
    except kind as error:
        raise StepPaused(PauseFinding(reason, error), getattr(error, "found", "")) from error


def record_left_directories(job: Job, left: Sequence[str]) -> Job:
    """Record unused directories that this process can't remove, and log a warning."""
    _log.warning(
        "%s: no table reads %s any more, and this process can't remove them: the owner of the storage can "
        "remove them", job.name, first_of(left),
    )  # fmt: skip
    return job.with_left_directories(left)
