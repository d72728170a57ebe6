"""The queue in Delta tables, by SQL alone, so that it works through Spark Connect too.

Delta has no transaction over two tables. So a job's events are kept in its own row, and a row that moves
between queue and archive is in both for a moment: then the queue's counts.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from sqlalchemy import JSON, ClauseElement, ColumnElement, Select, and_, literal_column, select

from tableferry.backoff import pause, retry
from tableferry.errors import HALF_MADE, Refused, ServiceError, TableferryError, first_line, is_sparks
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.delta_rows import among, in_json, read, source, unchanged, with_event
from tableferry.fleet.queue.delta_tables import PROPERTY, DeltaTables
from tableferry.fleet.queue.grouping import Grouped
from tableferry.fleet.queue.records import Event, NewJob, NotificationRecord
from tableferry.fleet.queue.rows import JOB_COLUMNS, from_row, to_row
from tableferry.fleet.queue.schema import REVISION, jobs, jobs_archive, notifications, waves
from tableferry.fleet.queue.selections import Selection, may_be_assigned, numbered
from tableferry.fleet.queue.sparksql import bound, rows
from tableferry.fleet.queue.statements import (
    chunks,
    claimed,
    counted,
    counting,
    differs,
    elsewhere,
    free,
    held,
    lost,
    new_jobs,
    read_as,
    shares,
    still,
    unclaimed,
    wave_changed,
)
from tableferry.fleet.queue.storage_clock import StorageClock
from tableferry.progress import task
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

T = TypeVar("T")

_NAME = ("catalog_name", "db_name", "tbl_name")
# A job's number is given by its table.
_WRITTEN = tuple(column for column in jobs.c if column.name != "task_id")
_STORED = (*JOB_COLUMNS, "events")

# What Delta, the catalog and the metastore say when somebody else was faster.
_PASSING = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "ALREADY_EXISTS")
_LOOKS = 50
_POOL = "spark.scheduler.pool"
# So many jobs are named in one statement.
_MOST = 10_000


class DeltaStore:
    """A queue in the Delta tables of a schema."""

    def __init__(self, spark: SparkSession, schema: str) -> None:
        self._spark = spark
        self._schema = TableName.parse(schema)
        self._tables = DeltaTables(self._schema)
        self._dialect = self._tables.dialect
        self._clock = StorageClock(self._dated)
        # A commit takes seconds, however many jobs it has.
        self._saves = Grouped(self._save_together)
        # Whether it's known that no newer version made the queue.
        self._is_known = False

    def create(self) -> None:
        """Make the tables, and a view of all events; any number may do so at once."""
        with task(_log, "make the queue's tables", level=logging.DEBUG):
            try:
                self._demand_revision()
            except Exception as error:
                # There is no queue yet.
                if not is_sparks(error):
                    raise
            self._is_known = True
            for statement in self._tables.definitions():
                # Whoever makes the same table has put its log there, and not yet its name into the catalog.
                retry(partial(self._run, statement), _half_made, shortest=0.2, longest=5.0, times=8)
            for table, columns in self._tables.later_columns():
                add = partial(self._add_columns, table, columns)
                retry(partial(self._do, add), _added_meanwhile, shortest=0.2, longest=5.0, times=8)
            if self._do(self._revision) < int(REVISION):
                self._run(
                    f"ALTER TABLE {self._tables.jobs} SET TBLPROPERTIES ('{PROPERTY}' = '{int(REVISION)}')"
                )

    def _add_columns(self, quoted: str, columns: Mapping[str, str]) -> None:
        """Add the columns that a table of an older version hasn't."""
        there = {row["col_name"] for row in self._sql(f"DESCRIBE TABLE {quoted}", {}).collect()}
        missing = ", ".join(f"{name} {form}" for name, form in columns.items() if name not in there)
        if missing:
            self._sql(f"ALTER TABLE {quoted} ADD COLUMNS ({missing})", {}).collect()

    def now(self) -> datetime:
        """Return the time by the storage of the queue's tables."""
        return self._clock()

    def _dated(self) -> datetime:
        """Make a commit, and return when the storage says that it was written.

        Without in-commit timestamps the history has the times of the log's files.
        """
        clock = self._tables.clock
        try:
            # Who is refused as another one has done the same tries again. No data is written.
            self._run(
                f"ALTER TABLE {clock.sql} SET TBLPROPERTIES ('tableferry.asked' = :by)", {"by": uuid4().hex}
            )
            history = f"DESCRIBE HISTORY {clock.sql} LIMIT 1"
            [newest] = self._do(lambda: rows(self._sql(history, {}).select("timestamp")))
        except TableferryError as error:
            _log.warning(
                "the time of the queue's storage can't be had (%s), and this cluster's clock is used: if it "
                "is ahead of others', their claims lapse early. Run tableferry fleet init, and let workers "
                "change the table %s", error.one_line, clock,
            )  # fmt: skip
            [newest] = self._do(lambda: rows(self._sql("SELECT current_timestamp() AS timestamp", {})))
        time: datetime = newest["timestamp"]
        return time

    def add(self, added: Iterable[NewJob], now: datetime) -> int:
        """Add those whose tables have no job yet."""
        new = new_jobs(added, now).values()
        if not new:
            return 0
        same_name = " AND ".join(f"t.{name} <=> new.{name}" for name in _NAME)
        archive = self._tables.archive
        missing = f"SELECT * FROM ({source(_WRITTEN)}) AS new LEFT ANTI JOIN {archive} AS t ON {same_name}"
        values = read(_WRITTEN, "new")
        return self._change(
            f"MERGE INTO {self._tables.jobs} AS t USING ({missing}) AS new ON {same_name} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})",
            {"new": in_json(new)},
        )

    def jobs(self, selection: Selection, *, limit: int | None = None) -> Sequence[Job]:
        """Return jobs by their task_id."""
        return _jobs(self._select(select(jobs).where(selection).order_by(jobs.c.task_id).limit(limit)))

    def counts(self, selection: Selection, by: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Count jobs by the values of some columns."""
        return [counted(row, by) for row in self._select(counting(selection, by))]

    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Answer a query over the queue's tables."""
        columns = query.selected_columns
        return [tuple(_decoded(row, columns).values()) for row in self._select(query)]

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
        """Claim jobs that nobody has, or whose claim has lapsed."""
        if limit < 1:
            return []
        # The condition of others' share is false for the worker's own jobs, and so they come first.
        _, *others = shares(share)
        query = select(jobs).where(selection, free(now)).order_by(*others, jobs.c.task_id)
        for attempt in range(_LOOKS):
            candidates = sorted(_jobs(self._select(query.limit(limit))), key=lambda job: job.task_id)
            if not candidates:
                return []
            changed = self._change(
                f"UPDATE {self._tables.jobs} AS jobs SET claimed_by = :by, lease_until = :until, "
                f"last_updated_time = :at, revision = revision + 1 WHERE {unchanged(candidates)}",
                {"by": worker, "until": now + lease, "at": now},
            )
            if changed:
                return self._written([claimed(job, worker, now, lease) for job in candidates], changed)
            # Others were faster with every one of them.
            pause(attempt)
        return []

    def holds(self, job: Job, now: datetime) -> bool:
        """Say whether a claim on a job is still what it was."""
        return bool(self.jobs(still(job, now), limit=1))

    def renew(self, task_ids: Iterable[int], worker: str, now: datetime, lease: timedelta) -> None:
        """Let a worker's claims hold for longer."""
        with _own_pool(self._spark):
            for chunk in chunks(sorted(task_ids), _MOST):
                self._run(
                    f"UPDATE {self._tables.jobs} AS jobs SET lease_until = :until "
                    f"WHERE {among(chunk)} AND claimed_by = :by",
                    {"until": now + lease, "by": worker},
                )

    def save(self, job: Job, now: datetime, *, lease: timedelta | None = None, release: bool = False) -> Job:
        """Write a claimed job back, if nobody changed it since."""
        saved = held(job, now, lease, release)
        if not self._saves.do((job, saved)):
            raise lost(job)
        return saved

    def save_all(
        self, saved: Iterable[Job], now: datetime, *, lease: timedelta | None = None, release: bool = False
    ) -> Sequence[Job]:
        """Write many back at once, and return those that were written."""
        before = {job.task_id: job for job in saved if job.claimed_by is not None}
        if not before:
            return []
        return self._save_claimed(
            [(job, held(job, now, lease, release)) for _, job in sorted(before.items())]
        )

    def _save_together(self, changes: Sequence[tuple[Job, Job]]) -> Sequence[bool]:
        """Write what several threads save, as it was and as it is to be, and say which are written."""
        if len(changes) == 1:
            [(before, after)] = changes
            same = and_(read_as(before), jobs.c.claimed_by == before.claimed_by)
            return [self._write(after, same, str(before.claimed_by))]
        # Who saves a job that another one saves too has lost it.
        first = {before.task_id: (before, after) for before, after in reversed(changes)}
        written = {id(job) for job in self._save_claimed(list(first.values()))}
        return [id(after) in written for _, after in changes]

    def _save_claimed(self, changed: Sequence[tuple[Job, Job]]) -> Sequence[Job]:
        """Write claimed jobs in one commit, as they were and as they are to be; return those written."""
        after = [job for _, job in changed]
        new = [
            {**to_row(job), "read": before.revision, "worker": before.claimed_by} for before, job in changed
        ]
        values = read(_WRITTEN, "s")
        changes, _ = self._dialect.written(
            differs({name: literal_column(value) for name, value in values.items()})
        )
        settings = [f"jobs.{name} = {value}" for name, value in values.items()]
        settings.append(f"jobs.events = {with_event(changes, values, 's.worker')}")
        written = self._change(
            f"MERGE INTO {self._tables.jobs} AS jobs "
            f"USING ({source(jobs.c, 'read INT', 'worker STRING')}) AS s "
            "ON jobs.task_id = s.task_id AND jobs.revision = s.read AND jobs.claimed_by = s.worker "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(settings)}",
            {"new": in_json(new)},
        )
        return self._written(after, written)

    def edit(self, job: Job, now: datetime, *, by: str = "") -> Job:
        """Write an unclaimed job back, as a person does."""
        edited = unclaimed(job, now)
        if not self._write(edited, and_(read_as(job), free(now)), by):
            raise lost(job)
        return edited

    def archive(self, selection: Selection, now: datetime) -> int:
        """Move jobs that nobody has out of the queue."""
        columns = [*_STORED, "archived_at"]
        moved = 0
        for chunk in chunks(self.jobs(and_(selection, free(now))), _MOST):
            same = unchanged(chunk)
            self._run(
                f"MERGE INTO {self._tables.archive} AS t "
                f"USING (SELECT *, :at AS archived_at FROM {self._tables.jobs} WHERE {same}) AS s "
                "ON t.task_id = s.task_id "
                f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in columns)} "
                f"WHEN NOT MATCHED THEN INSERT ({', '.join(columns)}) "
                f"VALUES ({', '.join(f's.{name}' for name in columns)})",
                {"at": now},
            )
            # One that somebody has changed meanwhile stays in the queue.
            moved += self._change(f"DELETE FROM {self._tables.jobs} WHERE {same}")
        return moved

    def archived(self, selection: Selection) -> Sequence[Job]:
        """Return archived jobs by their task_id."""
        queued = select(jobs.c.task_id).where(jobs.c.task_id == jobs_archive.c.task_id).exists()
        archived = and_(elsewhere(selection, jobs_archive), ~queued)
        return _jobs(self._select(select(jobs_archive).where(archived).order_by(jobs_archive.c.task_id)))

    def unarchive(self, task_ids: Iterable[int], now: datetime) -> Sequence[Job]:
        """Bring archived jobs back into the queue."""
        numbers = sorted(set(task_ids))
        coming = [job.task_id for job in self.archived(jobs.c.task_id.in_(numbers))] if numbers else []
        if not coming:
            return []
        changed = {
            "revision": "s.revision + 1",
            "last_updated_time": ":at",
            "claimed_by": "NULL",
            "lease_until": "NULL",
        }
        self._run(
            f"MERGE INTO {self._tables.jobs} AS t "
            f"USING (SELECT * FROM {self._tables.archive} WHERE {among(coming)}) AS s "
            f"ON {' AND '.join(f't.{name} = s.{name}' for name in _NAME)} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(_STORED)}) "
            f"VALUES ({', '.join(changed.get(name, f's.{name}') for name in _STORED)})",
            {"at": now},
        )
        back = self.jobs(jobs.c.task_id.in_(coming))
        if len(back) < len(coming):
            left = sorted(set(coming) - {job.task_id for job in back})
            raise Refused(
                "ARCHIVED_TABLE_HAS_JOB", queue=self._url, reason=f"archived jobs {', '.join(map(str, left))}"
            )
        self._run(f"DELETE FROM {self._tables.archive} WHERE {among(coming)}")
        return back

    def waves(self) -> Sequence[Wave]:
        """Return all waves by their name."""
        return [from_row(Wave, row) for row in self._select(select(waves).order_by(waves.c.name))]

    def save_wave(self, wave: Wave) -> Wave:
        """Write a wave, if nobody changed it since it was read."""
        saved = replace(wave, revision=wave.revision + 1)
        values = read(waves.c, "s")
        if wave.revision:
            settings = ", ".join(f"t.{name} = {value}" for name, value in values.items())
            then = f"WHEN MATCHED AND t.revision = {int(wave.revision)} THEN UPDATE SET {settings}"
        else:
            names = ", ".join(values)
            then = f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({', '.join(values.values())})"
        written = self._change(
            f"MERGE INTO {self._tables.waves} AS t USING ({source(waves.c)}) AS s ON t.name = s.name {then}",
            {"new": in_json([to_row(saved)])},
        )
        if written != 1:
            raise wave_changed(wave)
        return saved

    def assign(self, task_ids: Iterable[int], wave: str | None, now: datetime) -> int:
        """Put jobs that haven't begun into a wave."""
        where, parameters = self._dialect.written(and_(may_be_assigned(wave), free(now)))
        return sum(
            self._change(
                f"UPDATE {self._tables.jobs} AS jobs SET wave = :new_wave, revision = revision + 1, "
                "claimed_by = NULL, lease_until = NULL, last_updated_time = :at "
                f"WHERE {among(chunk)} AND {where}",
                {**parameters, "new_wave": wave, "at": now},
            )
            for chunk in chunks(sorted(set(task_ids)), _MOST)
        )

    def record_notifications(self, recorded: Iterable[NotificationRecord]) -> None:
        """Remember notifications that are about to be sent."""
        new = {record.message_id: to_row(record) for record in recorded}
        if not new:
            return
        values = read(notifications.c, "s")
        self._run(
            f"MERGE INTO {self._tables.notifications} AS t USING ({source(notifications.c)}) AS s "
            "ON t.message_id = s.message_id WHEN NOT MATCHED THEN "
            f"INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})",
            {"new": in_json(new.values())},
        )

    def notifications(self, message_ids: Iterable[str]) -> Mapping[str, NotificationRecord]:
        """Return those that are remembered."""
        records = (
            from_row(NotificationRecord, _decoded(row, notifications.c))
            for chunk in chunks(sorted(set(message_ids)))
            for row in self._select(select(notifications).where(notifications.c.message_id.in_(chunk)))
        )
        return {record.message_id: record for record in records}

    def notifications_sent(self, message_ids: Iterable[str], now: datetime) -> None:
        """Remember that a server took them."""
        for chunk in chunks(sorted(set(message_ids))):
            unsent, parameters = self._dialect.written(
                and_(notifications.c.message_id.in_(chunk), notifications.c.sent_at.is_(None))
            )
            self._run(
                f"UPDATE {self._tables.notifications} AS letters SET sent_at = :at WHERE {unsent}",
                {**parameters, "at": now},
            )

    def events(self, since: datetime | None = None) -> Sequence[Event]:
        """Return events by their time."""
        where, parameters = ("WHERE at >= :since", {"since": since}) if since is not None else ("", {})
        query = f"SELECT * FROM {self._tables.events} {where} ORDER BY at, task_id, event_id"
        return [from_row(Event, row) for row in self._do(lambda: rows(self._sql(query, parameters)))]

    def close(self) -> None:
        """Leave the session to whoever gave it."""

    def _written(self, after: Sequence[Job], count: int) -> Sequence[Job]:
        """Return those that a statement has written as they are to be, of which it changed so many."""
        if count == len(after):
            return after
        stored = {job.task_id: job for job in self.jobs(numbered(job.task_id for job in after))}
        return [job for job in after if stored.get(job.task_id) == job]

    def _write(self, job: Job, same: Selection, worker: str) -> bool:
        """Write a job with the event of its change, if its row is what was read; say whether it was."""
        row = to_row(job)
        new = {column.name: f":new_{column.name}" for column in _WRITTEN}
        where, parameters = self._dialect.written(same)
        changes, compared = self._dialect.written(differs(row))
        settings = [f"{name} = {value}" for name, value in new.items()]
        settings.append(f"events = {with_event(changes, new, ':new_worker')}")
        changed = self._change(
            f"UPDATE {self._tables.jobs} AS jobs SET {', '.join(settings)} WHERE {where}",
            {
                **parameters,
                **compared,
                **{f"new_{name}": value for name, value in row.items()},
                "new_worker": worker,
            },
        )
        return bool(changed)

    def _select(self, statement: ClauseElement) -> list[dict[str, Any]]:
        text, parameters = self._dialect.written(statement)
        return self._do(lambda: rows(self._sql(text, parameters)))

    def _change(self, text: str, parameters: Mapping[str, Any] | None = None) -> int:
        """Run a statement, and return how many rows it changed."""
        return int(self._do(lambda: self._sql(text, parameters or {}).collect()[0]["num_affected_rows"]))

    def _run(self, text: str, parameters: Mapping[str, Any] | None = None) -> None:
        self._do(lambda: self._sql(text, parameters or {}).collect())

    def _sql(self, text: str, parameters: Mapping[str, Any]) -> DataFrame:
        return self._spark.sql(bound(text, parameters))

    def _revision(self) -> int:
        """Return the newest version's number that has made the queue."""
        [shown] = self._sql(f"SHOW TBLPROPERTIES {self._tables.jobs} ('{PROPERTY}')", {}).collect()
        # Spark returns a sentence if there is none.
        return int(shown["value"]) if shown["value"].isdigit() else 0

    def _demand_revision(self) -> None:
        """Refuse a queue of a newer version, whose new columns this one would ignore."""
        if self._revision() > int(REVISION):
            raise ServiceError("QUEUE_VERSION_TOO_NEW", queue=self._url)
        self._is_known = True

    def _do(self, work: Callable[[], T]) -> T:
        """Do a thing, again if Delta refuses it in favour of another's."""
        try:
            if not self._is_known:
                self._demand_revision()
            return retry(work, _passes, shortest=0.1, longest=20.0)
        except Exception as error:
            # Their classes depend on the kind of session.
            if not is_sparks(error):
                raise
            raise self._explained(error) from error

    @property
    def _url(self) -> str:
        return f"delta:{self._schema}"

    def _explained(self, error: Exception) -> TableferryError:
        if "TABLE_OR_VIEW_NOT_FOUND" in str(error) or "SCHEMA_NOT_FOUND" in str(error):
            return ServiceError("QUEUE_NOT_FOUND", queue=self._url)
        later = {name for _, columns in self._tables.later_columns() for name in columns}
        if "UNRESOLVED_COLUMN" in str(error) and any(f"`{name}`" in first_line(error) for name in later):
            return ServiceError("QUEUE_VERSION_TOO_OLD", queue=self._url)
        return ServiceError(
            "QUEUE_TABLE_HALF_CREATED" if _half_made(error) else "QUEUE_REQUEST_FAILED",
            queue=self._url,
            reason=first_line(error),
        )


@contextmanager
def _own_pool(spark: SparkSession) -> Iterator[None]:
    """Let this thread's statements inside a ``with`` not wait for the end of a long one of the same cluster.

    That takes fair scheduling (spark.scheduler.mode); else, and within a pool, the first is served first.
    Through Spark Connect the server decides.
    """
    if not in_process(spark):
        yield
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_POOL)
    context.setLocalProperty(_POOL, "tableferry_claims")
    try:
        yield
    finally:
        context.setLocalProperty(_POOL, before)  # type: ignore[arg-type]


def _passes(error: Exception) -> bool:
    return is_sparks(error) and any(condition in str(error) for condition in _PASSING)


def _half_made(error: Exception) -> bool:
    return HALF_MADE in str(error)


def _added_meanwhile(error: Exception) -> bool:
    return "DELTA_DUPLICATE_COLUMNS_FOUND" in str(error)


def _jobs(stored: Iterable[Mapping[str, Any]]) -> list[Job]:
    return [from_row(Job, _decoded(row, jobs.c)) for row in stored]


def _decoded(row: Mapping[str, Any], columns: Iterable[ColumnElement[Any]]) -> dict[str, Any]:
    """Return a row with lists and mappings for the texts that Delta keeps of them."""
    texts = {column.key for column in columns if isinstance(column.type, JSON)}
    return {name: json.loads(value) if name in texts and value else value for name, value in row.items()}
