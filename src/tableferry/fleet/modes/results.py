"""Results of modes: each job's outcome in a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tableferry.fleet.jobs.job import Job

Outcome = Literal["done", "planned", "waiting", "paused", "failed", "lost"]


@dataclass(frozen=True)
class JobReport:
    """The result of one job in a run.

    Attributes:
        job: The job after the run.
        outcome: ``done`` as far as it goes now, ``planned`` by a dry run, ``waiting`` for its wave,
            ``paused`` for a person, ``failed`` and to be tried again by the next run, or ``lost`` to another
            worker.
        did: The steps that were performed, or would be, a line each.
        error: The reason why it waits, failed or is lost; else empty.
        seconds: The time that the run worked on it.
    """

    job: Job
    outcome: Outcome
    did: tuple[str, ...] = ()
    error: str = ""
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class ModeReport:
    """The results of the jobs that a run claimed, in the order in which they ended."""

    jobs: tuple[JobReport, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no job failed; a pause waits for a person, and isn't a failure."""
        return all(job.outcome != "failed" for job in self.jobs)

    @property
    def paused(self) -> bool:
        """Whether jobs paused in this run."""
        return any(job.outcome == "paused" for job in self.jobs)
