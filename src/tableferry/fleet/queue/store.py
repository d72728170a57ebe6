"""The operations of the queue, once for all stores, on the primitives that each store implements.

All times are aware and in UTC. A crash inside an operation leaves each job, wave and notification as it was
before it, or as it is after it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Select, Table, and_, select

from tableferry.backoff import pause
from tableferry.errors import Busy, Refused
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.waves import Wave, WaveLoad
from tableferry.fleet.queue.changes import (
    Change,
    claim_lost,
    claim_values,
    claimed,
    is_written,
    saved,
    unarchived,
    unclaimed,
)
from tableferry.fleet.queue.conditions import (
    CHUNK,
    chunks,
    count_query,
    count_row,
    free,
    shares,
    still_claimed,
    unchanged,
    wave_loads,
)
from tableferry.fleet.queue.records import Event, NewJob, NotificationRecord, from_row, to_row
from tableferry.fleet.queue.schema import events, jobs, notifications, waves
from tableferry.fleet.queue.selections import (
    Selection,
    address,
    in_archive,
    in_queue,
    may_be_assigned,
    named,
    numbered,
)

Record = TypeVar("Record", Job, Wave, NotificationRecord, Event)

_KEYS: Mapping[Table, tuple[str, ...]] = {
    jobs: ("catalog_name", "db_name", "tbl_name"),
    waves: ("name",),
    notifications: ("message_id",),
}
# The maximum number of attempts if other workers claim all jobs that were found.
_CLAIM_ATTEMPTS = 50
# Databases limit how deep a condition is.
_NAMES_PER_CONDITION = 200


class Store(ABC):
    """A queue of jobs.

    Attributes:
        rows_per_statement: The number of rows that one statement names.
    """

    rows_per_statement = CHUNK

    # Primitives. Each of them is one transaction.

    @abstractmethod
    def create(self) -> None:
        """Create the tables, or upgrade them to this version; several processes may do so concurrently."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the time in UTC by the one clock that all workers share, for leases and gaps.

        The clock is the database's; for a queue in Delta tables, it is that of their storage.
        """

    @abstractmethod
    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query over the queue's tables."""

    @abstractmethod
    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> int:
        """Insert the rows whose key doesn't exist, and return their number; keys differ among the rows."""

    @abstractmethod
    def update(self, table: Table, condition: Selection, values: Mapping[str, Any]) -> int:
        """Set columns of the rows that meet a condition, and return their number."""

    @abstractmethod
    def swap(self, changes: Sequence[Change]) -> Sequence[bool]:
        """Write each changed job whose row is still the one that was read, with the event of its change.

        Returns:
            Whether each change is written, also by an earlier attempt whose answer was lost.
        """

    @abstractmethod
    def close(self) -> None:
        """Close connections."""

    # Jobs.

    def add(self, added: Iterable[NewJob], now: datetime) -> int:
        """Add jobs of tables that have none, in the queue or its archive, and return the number of new jobs.

        Names are stored in lower case, as Hive and Unity Catalog store them.

        Raises:
            TableError: A name has no catalog or schema.
        """
        rows: dict[tuple[str, str, str], dict[str, Any]] = {}
        for new in added:
            name = address(new.name)
            if name not in rows:
                given = {field: value for field, value in vars(new).items() if field != "name"}
                rows[name] = to_row(Job(0, *name, created_at=now, last_updated_time=now, **given))
                del rows[name]["task_id"]
        return self._insert(jobs, list(rows.values()))

    def jobs(self, selection: Selection, *, limit: int | None = None) -> Sequence[Job]:
        """Return jobs of the queue by their task_id."""
        return self._jobs(and_(in_queue(), selection), limit)

    def archived(self, selection: Selection) -> Sequence[Job]:
        """Return archived jobs by their task_id."""
        return self._jobs(and_(in_archive(), selection))

    def counts(self, selection: Selection, by: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Count jobs by the values of some columns, for figures of the whole fleet.

        Args:
            selection: Which jobs.
            by: Columns of the jobs; ``pause_reason`` counts by its code alone, without the details.

        Returns:
            A mapping for each group, in the order of its values: the columns, ``jobs`` (their number),
            ``oldest`` and ``newest`` (of ``last_updated_time``).
        """
        names = (*by, "jobs", "oldest", "newest")
        rows = self.rows(count_query(selection, by))
        return [count_row(dict(zip(names, row, strict=True)), by) for row in rows]

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
        """Claim jobs without a claim, or whose claim has lapsed: each of them for one worker alone.

        Args:
            selection: Which jobs.
            worker: The worker; unique among processes.
            now: The time.
            lease: How long the claim holds.
            limit: The maximum number of jobs.
            share: The worker is the I-th (from 0) of N. It takes the jobs of its share first, then
                others up to ``limit``.

        Returns:
            The jobs with the claim, by their task_id; none if no job is left.
        """
        claimable = [and_(in_queue(), selection, free(now), part) for part in shares(share)]
        for attempt in range(_CLAIM_ATTEMPTS if limit > 0 else 0):
            mine = self.try_claim(claimable, limit, worker, now, lease)
            if mine is None:
                return []
            if mine:
                return sorted(mine, key=lambda job: job.task_id)
            # Other workers are claiming all of them.
            pause(attempt)
        return []

    def try_claim(
        self,
        claimable: Sequence[Selection],
        limit: int,
        worker: str,
        now: datetime,
        lease: timedelta,
    ) -> Sequence[Job] | None:
        """Claim the first jobs that meet the first condition, and then those that meet the next one.

        A store whose transactions lock rows overrides this, because another worker can claim the jobs between
        the read and the update.

        Returns:
            The claimed jobs; none if other workers are claiming all of them. None if no job is left.
        """
        found: list[Job] = []
        for condition in claimable:
            if len(found) < limit:
                found += self._jobs(condition, limit - len(found))
        if not found:
            return None
        after = [claimed(job, worker, now, lease) for job in found]
        return self._update_jobs(found, after, free(now), claim_values(worker, now, lease))

    def holds(self, job: Job, now: datetime) -> bool:
        """Return whether a claimed job is as it was read or saved, and its claim hasn't lapsed."""
        return bool(self.jobs(still_claimed(job, now), limit=1))

    def renew(self, task_ids: Iterable[int], worker: str, now: datetime, lease: timedelta) -> None:
        """Extend a worker's claims; the jobs, and other workers' claims, stay as they are."""
        for chunk in chunks(sorted(task_ids), self.rows_per_statement):
            mine = and_(in_queue(), numbered(chunk), jobs.c.claimed_by == worker)
            self.update(jobs, mine, {"lease_until": now + lease})

    def save(self, job: Job, now: datetime, *, lease: timedelta | None = None, release: bool = False) -> Job:
        """Write a claimed job, if no process changed it since, and return it with its new revision.

        A change of state or pause makes an event, in the same transaction.

        Args:
            job: The job, with the revision that was read.
            now: The time.
            lease: How long the claim holds from now on.
            release: Whether to give up the claim.

        Raises:
            ClaimLost: Its revision differs, or it isn't claimed.
        """
        change = Change(job, saved(job, now, lease, release), str(job.claimed_by))
        if not all(self.swap([change])):
            raise claim_lost(job)
        return change.after

    def save_all(
        self, changed: Iterable[Job], now: datetime, *, lease: timedelta | None = None, release: bool = False
    ) -> Sequence[Job]:
        """Write many jobs together, as `save` does, and return those that were written.

        A job that `save` would refuse isn't written.
        """
        read = {job.task_id: job for job in changed if job.claimed_by is not None}
        changes = [
            Change(job, saved(job, now, lease, release), str(job.claimed_by))
            for _, job in sorted(read.items())
        ]
        if not changes:
            return []
        written = self.swap(changes)
        return [change.after for change, succeeded in zip(changes, written, strict=True) if succeeded]

    def edit(self, job: Job, now: datetime, *, by: str = "") -> Job:
        """Write an unclaimed job that a user pauses or resumes; the event names the user.

        Raises:
            ClaimLost: Its revision differs, or a worker has claimed it.
        """
        change = Change(job, unclaimed(job, now), by, free_at=now)
        if not all(self.swap([change])):
            raise claim_lost(job)
        return change.after

    def archive(self, selection: Selection, now: datetime) -> int:
        """Archive jobs that no worker has, and return their number; their events and notifications stay."""
        values = {"archived_at": now, "revision": jobs.c.revision + 1}
        return sum(
            self.update(jobs, and_(in_queue(), unchanged(chunk), free(now)), values)
            for chunk in chunks(self.jobs(and_(selection, free(now))), self.rows_per_statement)
        )

    def unarchive(self, task_ids: Iterable[int], now: datetime) -> Sequence[Job]:
        """Return archived jobs to the queue, for a revert; numbers that aren't archived are ignored.

        Raises:
            Refused: The queue has another job of the table, which a user inserted by SQL.
        """
        coming = [
            job
            for chunk in chunks(sorted(set(task_ids)), self.rows_per_statement)
            for job in self.archived(numbered(chunk))
        ]
        for some in chunks(coming, _NAMES_PER_CONDITION):
            if others := {job.name for job in self.jobs(named(job.name for job in some))}:
                left = ", ".join(str(job.task_id) for job in some if job.name in others)
                raise Refused("ARCHIVED_TABLE_HAS_JOB", jobs=left)
        values = {"archived_at": None, "claimed_by": None, "lease_until": None, "last_updated_time": now}
        return self._update_jobs(coming, [unarchived(job, now) for job in coming], in_archive(), values)

    def assign(self, task_ids: Iterable[int], wave: str | None, now: datetime) -> int:
        """Put jobs into a wave, or in none, and return their number.

        Jobs that have begun, are in the wave already, or are claimed by a worker stay where they are.
        """
        values = {"wave": wave, "revision": jobs.c.revision + 1, "last_updated_time": now}
        values |= {"claimed_by": None, "lease_until": None}
        allowed = and_(in_queue(), may_be_assigned(wave), free(now))
        return sum(
            self.update(jobs, and_(numbered(chunk), allowed), values)
            for chunk in chunks(sorted(set(task_ids)), self.rows_per_statement)
        )

    # Waves.

    def waves(self) -> Sequence[Wave]:
        """Return all waves by their name."""
        return self._records(Wave, select(waves).order_by(waves.c.name))

    def wave_loads(self, now: datetime) -> Mapping[str, WaveLoad]:
        """Return the load of each wave that has a table."""
        return {
            str(name): WaveLoad(*(int(count) for count in counts))
            for name, *counts in self.rows(wave_loads(now))
        }

    def save_wave(self, wave: Wave) -> Wave:
        """Write a wave, if no process changed it since it was read, and return it with its new revision.

        A wave with revision 0 is new.

        Raises:
            Busy: Another process changed it, or created a wave with its name.
        """
        after = replace(wave, revision=wave.revision + 1)
        query = select(waves).where(waves.c.name == wave.name)
        found = [stored.revision for stored in self._records(Wave, query)]
        if found != ([wave.revision] if wave.revision else []):
            raise Busy("WAVE_CHANGED", wave=wave.name)
        if wave.revision:
            same = (waves.c.name == wave.name) & (waves.c.revision == wave.revision)
            written = self.update(waves, same, to_row(after))
        else:
            written = self._insert(waves, [to_row(after)])
        # The answer to an attempt that was repeated may have been lost with the connection.
        if not written and self._records(Wave, query) != [after]:
            raise Busy("WAVE_CHANGED", wave=wave.name)
        return after

    # Notifications and events.

    def record_notifications(self, recorded: Iterable[NotificationRecord]) -> None:
        """Record notifications that are about to be sent; one that is recorded already stays as it is."""
        self._insert(notifications, list({record.message_id: to_row(record) for record in recorded}.values()))

    def notifications(self, message_ids: Iterable[str]) -> Mapping[str, NotificationRecord]:
        """Return the recorded ones of some notifications."""
        return {
            record.message_id: record
            for chunk in chunks(sorted(set(message_ids)))
            for record in self._records(
                NotificationRecord, select(notifications).where(notifications.c.message_id.in_(chunk))
            )
        }

    def notifications_sent(self, message_ids: Iterable[str], now: datetime) -> None:
        """Record that a server took notifications."""
        for chunk in chunks(sorted(set(message_ids))):
            unsent = notifications.c.message_id.in_(chunk) & notifications.c.sent_at.is_(None)
            self.update(notifications, unsent, {"sent_at": now})

    def events(self, since: datetime | None = None) -> Sequence[Event]:
        """Return events by their time, those of archived jobs too."""
        columns = [events.c[field.name] for field in fields(Event)]
        query = select(*columns).order_by(events.c.at, events.c.task_id, events.c.event_id)
        return self._records(Event, query if since is None else query.where(events.c.at >= since))

    # Shared by the operations.

    def _insert(self, table: Table, rows: Sequence[Mapping[str, Any]]) -> int:
        return self.insert(table, rows, _KEYS[table]) if rows else 0

    def _jobs(self, condition: Selection, limit: int | None = None) -> list[Job]:
        return self._records(Job, select(jobs).where(condition).order_by(jobs.c.task_id).limit(limit))

    def _records(self, record: type[Record], query: Select[Any]) -> list[Record]:
        names = query.selected_columns.keys()
        return [from_row(record, dict(zip(names, row, strict=True))) for row in self.rows(query)]

    def _update_jobs(
        self, read: Sequence[Job], after: Sequence[Job], condition: Selection, values: Mapping[str, Any]
    ) -> list[Job]:
        """Set columns of jobs that are still as they were read; return those that are as they are to be."""
        written: list[Job] = []
        for chunk in chunks(zip(read, after, strict=True), self.rows_per_statement):
            same = and_(unchanged(job for job, _ in chunk), condition)
            count = self.update(jobs, same, {**values, "revision": jobs.c.revision + 1})
            changed = [job for _, job in chunk]
            written += changed if count == len(chunk) else self.find_written(changed)
        return written

    def find_written(self, changed: Sequence[Job]) -> list[Job]:
        """Return the jobs that are stored as they are to be."""
        stored = {job.task_id: job for job in self._jobs(numbered(job.task_id for job in changed))}
        return [job for job in changed if job.task_id in stored and is_written(stored[job.task_id], job)]
