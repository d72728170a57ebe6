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
        outcome: ``done`` for now, ``planned`` by a dry run, ``waiting`` for its wave, ``paused`` for a
            person, ``failed`` and retried by the next run, or ``lost`` to another worker.
        actions: The steps that were performed, or are planned, one line each.
        error: The reason why it waits, failed or is lost; else empty.
        seconds: The time that the run worked on it.
    """

    job: Job
    outcome: Outcome
    actions: tuple[str, ...] = ()
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
