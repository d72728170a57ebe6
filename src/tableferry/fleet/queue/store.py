"""The port of the queue: what every store of jobs can do, and one behaviour suite shows of each.

All times are in UTC and aware. Every method is one transaction, or as good as one: after a crash inside it
the queue is as before it, or as after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Select

from tableferry.errors import Busy
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.records import Event, NewJob, NotificationRecord
from tableferry.fleet.queue.selections import Selection


class ClaimLost(Busy):
    """Somebody else changed the job since it was read, or its lease lapsed and another worker has it."""


class Store(Protocol):
    """A queue of jobs."""

    def create(self) -> None:
        """Make the tables, or bring them up to this version."""

    def now(self) -> datetime:
        """Return the time in UTC by the one clock that all workers share, which leases and gaps go by.

        It's the database's; where the queue is in Delta tables, that of the storage that they lie in.
        """

    def add(self, jobs: Iterable[NewJob], now: datetime) -> int:
        """Add those whose tables have no job yet, in the queue or its archive, and say how many these were.

        Names are kept in lower case, as Hive and Unity Catalog keep them.

        Raises:
            TableError: A name has no catalog or schema.
        """

    def jobs(self, selection: Selection, *, limit: int | None = None) -> Sequence[Job]:
        """Return jobs by their task_id."""

    def counts(self, selection: Selection, by: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Count jobs by the values of some columns, for figures of the whole fleet.

        Args:
            selection: Which jobs.
            by: Columns of the jobs; ``pause_reason`` counts by its code alone, without the details.

        Returns:
            A mapping for each group, in the order of its values: the columns, ``jobs`` (how many),
            ``oldest`` and ``newest`` (of ``last_updated_time``).
        """

    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Answer a query over the queue's tables: what the database counts needn't be read."""

    def claim(
        self,
        selection: Selection,
        worker: str,
        *,
        now: datetime,
        lease: timedelta,
        limit: int,
        share: tuple[int, int] = (0, 1),
    ) -> Sequence[Job]:
        """Claim jobs that nobody has, or whose claim has lapsed: each goes to one worker alone.

        Args:
            selection: Which jobs.
            worker: Who claims; unique among processes.
            now: The time.
            lease: How long the claim holds.
            limit: At most how many.
            share: Of N workers, the I-th (from 0) prefers a share of its own, and takes others' when that is
                empty.

        Returns:
            The jobs as they are with the claim, by their task_id; none if nobody's are left.
        """

    def holds(self, job: Job, now: datetime) -> bool:
        """Say whether a claimed job is as it was read or saved, and its claim hasn't lapsed."""

    def renew(self, task_ids: Iterable[int], worker: str, now: datetime, lease: timedelta) -> None:
        """Let a worker's claims hold for so long from now; the jobs, and others' claims, stay as they are."""

    def save(self, job: Job, now: datetime, *, lease: timedelta | None = None, release: bool = False) -> Job:
        """Write a claimed job back, if nobody changed it since, and return it with its new revision.

        A change of state or pause makes an event, in the same transaction.

        Args:
            job: The job, with the revision that was read.
            now: The time.
            lease: Hold it for so long from now.
            release: Give the claim back.

        Raises:
            ClaimLost: Its revision is another, or it isn't claimed.
        """

    def save_all(
        self, jobs: Iterable[Job], now: datetime, *, lease: timedelta | None = None, release: bool = False
    ) -> Sequence[Job]:
        """Write many back at once, as `save` does, and return those that were written.

        A job that `save` would have refused is left as it is and isn't among them.
        """

    def edit(self, job: Job, now: datetime, *, by: str = "") -> Job:
        """Write an unclaimed job back, as a person does who pauses or resumes it, and whom the event names.

        Raises:
            ClaimLost: Its revision is another, or a worker holds it.
        """

    def archive(self, selection: Selection, now: datetime) -> int:
        """Move jobs that nobody has out of the queue, and say how many; events and notifications stay."""

    def archived(self, selection: Selection) -> Sequence[Job]:
        """Return archived jobs by their task_id."""

    def unarchive(self, task_ids: Iterable[int], now: datetime) -> Sequence[Job]:
        """Bring archived jobs back into the queue, for a revert; numbers that aren't archived are ignored."""

    def waves(self) -> Sequence[Wave]:
        """Return all waves by their name."""

    def save_wave(self, wave: Wave) -> Wave:
        """Write a wave, if nobody changed it since it was read, and return it with its new revision.

        One whose revision is 0 is new.

        Raises:
            Busy: Somebody changed it, or has made another of its name.
        """

    def assign(self, task_ids: Iterable[int], wave: str | None, now: datetime) -> int:
        """Put jobs into a wave, or in none, and say how many.

        Those that have begun, are in it already, or that a worker has, stay where they are.
        """

    def record_notifications(self, notifications: Iterable[NotificationRecord]) -> None:
        """Remember notifications that are about to be sent; one that is remembered stays as it is."""

    def notifications(self, message_ids: Iterable[str]) -> Mapping[str, NotificationRecord]:
        """Return those that are remembered."""

    def notifications_sent(self, message_ids: Iterable[str], now: datetime) -> None:
        """Remember that a server took them."""

    def events(self, since: datetime | None = None) -> Sequence[Event]:
        """Return events by their time, those of archived jobs too."""

    def close(self) -> None:
        """Give back connections."""
