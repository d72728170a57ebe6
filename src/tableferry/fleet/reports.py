"""What a mode did with each job that it took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tableferry.fleet.job import Job

Outcome = Literal["done", "planned", "paused", "failed", "lost"]


@dataclass(frozen=True)
class JobReport:
    """What became of one job in a run.

    Attributes:
        job: The job as the run left it.
        outcome: ``done`` as far as it goes now, ``planned`` by a dry run, ``paused`` for a person, ``failed``
            and to be tried again by the next run, or ``lost`` to another worker.
        did: What was done, or would be, a line each.
        error: Why it failed or is lost; empty otherwise.
    """

    job: Job
    outcome: Outcome
    did: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class ModeReport:
    """What a run of a mode did.

    Attributes:
        jobs: Each job that it took, in the order in which they ended.
    """

    jobs: tuple[JobReport, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed; a pause is a person's turn, and no failure."""
        return all(one.outcome != "failed" for one in self.jobs)
