"""How operations of the queue change a job, and the compare-and-swap that writes a change."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import and_

from tableferry.errors import Busy
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.queue.conditions import EVENT_COLUMNS, RECORDED, free
from tableferry.fleet.queue.schema import jobs
from tableferry.fleet.queue.selections import Selection, in_queue

_c = jobs.c


class ClaimLost(Busy):
    """Another process changed the job since it was read, or its lease lapsed and another worker has it."""


@dataclass(frozen=True)
class Change:
    """A compare-and-swap of one job: it is written if its row is still the one that was read.

    Attributes:
        read: The job with the revision and the claim that were read.
        after: The job as it is to be.
        author: The worker or person that the event of the change names.
        free_at: A time at which no worker may have claimed the job. None if `read` has its worker's claim.
    """

    read: Job
    after: Job
    author: str
    free_at: datetime | None = None

    @property
    def condition(self) -> Selection:
        """The condition under which the job's row is still the one that was read.

        The row is in the queue, with the revision and the claim that were read, or free at ``free_at``.
        Without ``free_at``, `read` must have a claim.
        """
        claim = _c.claimed_by == self.read.claimed_by if self.free_at is None else free(self.free_at)
        return and_(in_queue(), _c.task_id == self.read.task_id, _c.revision == self.read.revision, claim)

    def is_allowed(self, stored: Any) -> bool:
        """Return whether the stored row is the one that was read."""
        if stored.revision != self.read.revision or stored.archived_at is not None:
            return False
        if self.free_at is None:
            return self.read.claimed_by is not None and bool(stored.claimed_by == self.read.claimed_by)
        return stored.claimed_by is None or stored.lease_until <= self.free_at

    def event(self, stored: Any) -> dict[str, Any] | None:
        """Return the event's row of a change of state or pause; None if neither of them changes."""
        if all(getattr(stored, name) == getattr(self.after, name) for name in RECORDED):
            return None
        day = self.after.last_updated_time.astimezone(UTC).date()
        values = {name: getattr(self.after, column) for name, column in EVENT_COLUMNS.items()}
        identity = {"task_id": self.after.task_id, "day": day, "worker": self.author}
        return {**identity, "was": stored.state, **values}


def claimed(job: Job, worker: str, now: datetime, lease: timedelta) -> Job:
    """Return the job with a worker's claim."""
    return replace(job, revision=job.revision + 1, **claim_values(worker, now, lease))


def claim_values(worker: str, now: datetime, lease: timedelta) -> dict[str, Any]:
    """Return the columns that a claim sets, except the revision."""
    return {"claimed_by": worker, "lease_until": now + lease, "last_updated_time": now}


def unclaimed(job: Job, now: datetime) -> Job:
    """Return the job after a person edited it."""
    return replace(_changed(job, now), claimed_by=None, lease_until=None)


def unarchived(job: Job, now: datetime) -> Job:
    """Return the archived job as it is back in the queue."""
    return replace(unclaimed(job, now), archived_at=None)


def saved(job: Job, now: datetime, lease: timedelta | None, release: bool) -> Job:
    """Return the job after the worker that claimed it saved it."""
    if job.claimed_by is None:
        raise claim_lost(job)
    if release:
        return unclaimed(job, now)
    return claimed(job, job.claimed_by, now, lease) if lease is not None else _changed(job, now)


def _changed(job: Job, now: datetime) -> Job:
    return replace(job, revision=job.revision + 1, last_updated_time=now)


def claim_lost(job: Job) -> ClaimLost:
    """Return the error of a job that changed since it was read."""
    return ClaimLost("JOB_CHANGED", table=job.name, job=job.task_id)


def is_written(stored: Job, after: Job) -> bool:
    """Return whether a stored job is the written one; JSON returns lists for the tuples in a record."""

    def as_json(job: Job) -> str:
        return json.dumps(job.record.to_json(), sort_keys=True)

    without = JobRecord()
    return as_json(stored) == as_json(after) and (
        replace(stored, record=without) == replace(after, record=without)
    )
