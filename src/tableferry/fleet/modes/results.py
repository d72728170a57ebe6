"""Results of modes: what a run did with each job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tableferry.fleet.jobs.job import Job

Outcome = Literal["done", "planned", "waiting", "paused", "failed", "lost"]


@dataclass(frozen=True)
class JobReport:
    """What became of one job in a run.

    Attributes:
        job: The job as the run left it.
        outcome: ``done`` as far as it goes now, ``planned`` by a dry run, ``waiting`` for its wave,
            ``paused`` for a person, ``failed`` and to be tried again by the next run, or ``lost`` to another
            worker.
        did: What was done, or would be, a line each.
        error: Why it waits, failed or is lost; empty otherwise.
        seconds: How long the run worked on it.
    """

    job: Job
    outcome: Outcome
    did: tuple[str, ...] = ()
    error: str = ""
    seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True)
class ModeReport:
    """What a run of a mode did with each job that it took, in the order in which they ended."""

    jobs: tuple[JobReport, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a pause is a person's turn, and no failure."""
        return all(job.outcome != "failed" for job in self.jobs)

    @property
    def paused(self) -> bool:
        """Whether jobs paused in this run."""
        return any(job.outcome == "paused" for job in self.jobs)
