"""The queue in a database: SQLite, MySQL or MariaDB, PostgreSQL."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Insert,
    Select,
    Update,
    and_,
    bindparam,
    column,
    delete,
    insert,
    inspect,
    literal,
    select,
    table,
    text,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from tableferry.backoff import pause, retry
from tableferry.errors import Refused, ServiceError, StateError, TableferryError
from tableferry.fleet import queue
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.dialects import Utc, utc_now
from tableferry.fleet.queue.records import Event, NewJob, NotificationRecord
from tableferry.fleet.queue.rows import JOB_COLUMNS, from_row, to_row
from tableferry.fleet.queue.schema import (
    REVISION,
    VERSION_TABLE,
    events,
    jobs,
    jobs_archive,
    notifications,
    waves,
)
from tableferry.fleet.queue.selections import Selection, may_be_assigned
from tableferry.fleet.queue.statements import (
    EVENT_COLUMNS,
    RECORDED,
    changes,
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
    shares,
    still,
    unclaimed,
    wave_changed,
)

T = TypeVar("T")

# MySQL: deadlock, lock wait timeout, a row changed since it was read.
_MYSQL_PASSING = (1213, 1205, 1020)
# PostgreSQL: serialization failure, deadlock detected, lock not available.
_POSTGRESQL_PASSING = ("40001", "40P01", "55P03")

# MySQL: shutdown, no connection, server gone, connection lost.
_MYSQL_LOST = (1053, 2002, 2003, 2006, 2013)
# PostgreSQL: connection exceptions, and a server that is stopping or starting.
_POSTGRESQL_LOST = ("08", "57P0")
_PATIENCE_SECONDS = 60
# More than fit into that time.
_MOST_TRIES = 1000

# So many new jobs make PostgreSQL's statistics of the table worthless.
_MANY = 1000

# How often to look again for jobs that others had locked while they claimed.
_LOOKS = 20


class SqlStore:
    """A queue in a database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # SQLite lets any number read at once.
        self._reading = engine.execution_options(reads_only=True)
        # Whether a queue of this version was found there.
        self._is_found = False

    def create(self) -> None:
        """Make the tables, or bring them up to this version; any number may do so at once."""
        url = self._engine.url
        if self._engine.dialect.name == "sqlite" and url.database:
            try:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StateError(
                    "QUEUE_FOLDER_NOT_CREATABLE", file=url.database, reason=error.strerror
                ) from error
        self._try(self._engine, queue.upgrade)

    def now(self) -> datetime:
        """Return the database's time."""
        return self._do(self._reading, lambda connection: connection.execute(select(utc_now())).scalar_one())

    def add(self, added: Iterable[NewJob], now: datetime) -> int:
        """Add those whose tables have no job yet."""
        rows = new_jobs(added, now)

        def work(connection: Connection) -> int:
            missing = dict(rows)
            for place in (jobs, jobs_archive):
                name = (place.c.catalog_name, place.c.db_name, place.c.tbl_name)
                for chunk in chunks(missing):
                    for existing in connection.execute(select(*name).where(tuple_(*name).in_(chunk))):
                        del missing[tuple(existing)]
            for new in chunks(missing.values()):
                connection.execute(insert(jobs), new)
            if len(missing) >= _MANY and connection.dialect.name == "postgresql":
                # Else it plans claims as for an empty table, until it comes to look by itself.
                connection.execute(text(f"ANALYZE {jobs.name}"))
            return len(missing)

        # Somebody else adds the same table at the same time.
        return self._do(self._engine, work, IntegrityError)

    def jobs(self, selection: Selection, *, limit: int | None = None) -> Sequence[Job]:
        """Return jobs by their task_id."""
        query = select(jobs).where(selection).order_by(jobs.c.task_id).limit(limit)
        return self._do(self._reading, lambda connection: _jobs(connection.execute(query)))

    def counts(self, selection: Selection, by: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """Count jobs by the values of some columns."""
        query = counting(selection, by)
        groups = self._do(self._reading, lambda connection: connection.execute(query).mappings().all())
        return [counted(dict(group), by) for group in groups]

    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Answer a query over the queue's tables."""
        return self._do(self._reading, lambda connection: connection.execute(query).all())

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
        claimable = and_(selection, free(now))
        made = and_(
            jobs.c.claimed_by == worker, jobs.c.lease_until == now + lease, jobs.c.last_updated_time == now
        )
        tries = count()

        def work(connection: Connection) -> list[Job]:
            # The answer to the commit of these claims may have been lost with the connection.
            if next(tries) and (claims := _jobs(connection.execute(select(jobs).where(made)))):
                return sorted(claims, key=lambda job: job.task_id)
            candidates: list[Job] = []
            for part in shares(share):
                query = select(jobs).where(claimable, part).order_by(jobs.c.task_id)
                query = query.limit(limit - len(candidates)).with_for_update(skip_locked=True)
                candidates += _jobs(connection.execute(query))
                if len(candidates) >= limit:
                    break
            for chunk in chunks(job.task_id for job in candidates):
                connection.execute(
                    update(jobs)
                    .where(jobs.c.task_id.in_(chunk))
                    .values(
                        revision=jobs.c.revision + 1,
                        claimed_by=worker,
                        lease_until=now + lease,
                        last_updated_time=now,
                    )
                )
            candidates.sort(key=lambda job: job.task_id)
            return [claimed(job, worker, now, lease) for job in candidates]

        for attempt in range(_LOOKS):
            mine = self._do(self._engine, work)
            # What others have locked is skipped, and isn't theirs for that.
            if mine or limit < 1 or not self.jobs(claimable, limit=1):
                return mine
            pause(attempt)
        return []

    def holds(self, job: Job, now: datetime) -> bool:
        """Say whether a claim on a job is still what it was."""
        return bool(self.jobs(still(job, now), limit=1))

    def renew(self, task_ids: Iterable[int], worker: str, now: datetime, lease: timedelta) -> None:
        """Let a worker's claims hold for longer."""
        numbers = sorted(task_ids)

        def work(connection: Connection) -> None:
            for chunk in chunks(numbers):
                mine = jobs.c.task_id.in_(chunk) & (jobs.c.claimed_by == worker)
                connection.execute(update(jobs).where(mine).values(lease_until=now + lease))

        self._do(self._engine, work)

    def save(self, job: Job, now: datetime, *, lease: timedelta | None = None, release: bool = False) -> Job:
        """Write a claimed job back, if nobody changed it since."""
        saved = held(job, now, lease, release)
        same = {**_as_read(job), "read_claim": job.claimed_by}
        self._do(self._engine, lambda connection: _write(connection, _HELD, same, saved, str(job.claimed_by)))
        return saved

    def save_all(
        self, saved: Iterable[Job], now: datetime, *, lease: timedelta | None = None, release: bool = False
    ) -> Sequence[Job]:
        """Write many back at once, and return those that were written."""
        before = {job.task_id: job for job in saved if job.claimed_by is not None}
        after = {number: held(job, now, lease, release) for number, job in before.items()}

        def work(connection: Connection) -> list[Job]:
            written: list[Job] = []
            for chunk in chunks(sorted(before)):
                query = select(jobs).where(jobs.c.task_id.in_(chunk)).order_by(jobs.c.task_id)
                stored = {job.task_id: job for job in _jobs(connection.execute(query.with_for_update()))}
                # The answer to a commit of the others may have been lost with the connection.
                same = [number for number in stored if _same(stored[number], before[number])]
                others = (stored[number] for number in stored.keys() - set(same))
                written += (job for job in others if _is_written(job, after[job.task_id]))
                rows = [
                    {**_event(after[number], str(before[number].claimed_by)), "was": stored[number].state}
                    for number in same
                    if changes(stored[number], after[number])
                ]
                if rows:
                    connection.execute(insert(events), rows)
                if same:
                    rows = [{**to_row(after[number]), "number": number} for number in same]
                    connection.execute(update(jobs).where(jobs.c.task_id == bindparam("number")), rows)
                written += [after[number] for number in same]
            return written

        return self._do(self._engine, work)

    def edit(self, job: Job, now: datetime, *, by: str = "") -> Job:
        """Write an unclaimed job back, as a person does."""
        edited = unclaimed(job, now)
        same = {**_as_read(job), "free_at": now}
        self._do(self._engine, lambda connection: _write(connection, _FREE, same, edited, by))
        return edited

    def archive(self, selection: Selection, now: datetime) -> int:
        """Move jobs that nobody has out of the queue."""
        which = select(jobs.c.task_id).where(selection, free(now)).order_by(jobs.c.task_id)
        columns = [jobs.c[name] for name in JOB_COLUMNS]

        def work(connection: Connection) -> int:
            numbers = connection.execute(which.with_for_update(skip_locked=True)).scalars().all()
            for chunk in chunks(numbers):
                rows = select(*columns, literal(now, Utc)).where(jobs.c.task_id.in_(chunk))
                connection.execute(insert(jobs_archive).from_select([*JOB_COLUMNS, "archived_at"], rows))
                connection.execute(delete(jobs).where(jobs.c.task_id.in_(chunk)))
            return len(numbers)

        return self._do(self._engine, work)

    def archived(self, selection: Selection) -> Sequence[Job]:
        """Return archived jobs by their task_id."""
        archived = elsewhere(selection, jobs_archive)
        query = select(jobs_archive).where(archived).order_by(jobs_archive.c.task_id)
        return self._do(self._reading, lambda connection: _jobs(connection.execute(query)))

    def unarchive(self, task_ids: Iterable[int], now: datetime) -> Sequence[Job]:
        """Bring archived jobs back into the queue."""
        numbers = sorted(set(task_ids))

        def work(connection: Connection) -> list[Job]:
            back: list[Job] = []
            for chunk in chunks(numbers):
                chosen = jobs_archive.c.task_id.in_(chunk)
                query = select(jobs_archive).where(chosen).order_by(jobs_archive.c.task_id)
                archived = _jobs(connection.execute(query.with_for_update()))
                if archived:
                    returned = [unclaimed(job, now) for job in archived]
                    connection.execute(insert(jobs), [to_row(job) for job in returned])
                    connection.execute(delete(jobs_archive).where(chosen))
                    back += returned
            return back

        return self._do(self._engine, work)

    def waves(self) -> Sequence[Wave]:
        """Return all waves by their name."""
        query = select(waves).order_by(waves.c.name)
        return self._do(
            self._reading,
            lambda connection: [from_row(Wave, dict(row)) for row in connection.execute(query).mappings()],
        )

    def save_wave(self, wave: Wave) -> Wave:
        """Write a wave, if nobody changed it since it was read."""
        saved = replace(wave, revision=wave.revision + 1)
        same = (waves.c.name == wave.name) & (waves.c.revision == wave.revision)
        tries = count()

        def work(connection: Connection) -> None:
            query = select(waves).where(waves.c.name == wave.name, waves.c.revision == saved.revision)
            if next(tries) and saved in (
                from_row(Wave, dict(row)) for row in connection.execute(query).mappings()
            ):
                return
            if not wave.revision:
                known = select(waves.c.name).where(waves.c.name == wave.name)
                if connection.execute(known).first() is not None:
                    raise wave_changed(wave)
                connection.execute(insert(waves), to_row(saved))
            elif connection.execute(update(waves).where(same).values(**to_row(saved))).rowcount != 1:
                raise wave_changed(wave)

        # Somebody else makes the same wave at the same time.
        self._do(self._engine, work, IntegrityError)
        return saved

    def assign(self, task_ids: Iterable[int], wave: str | None, now: datetime) -> int:
        """Put jobs that haven't begun into a wave."""
        numbers = sorted(set(task_ids))
        changed = {"wave": wave, "revision": jobs.c.revision + 1, "last_updated_time": now}

        def work(connection: Connection) -> int:
            return sum(
                connection.execute(
                    update(jobs)
                    .where(jobs.c.task_id.in_(chunk), may_be_assigned(wave), free(now))
                    .values(**changed, claimed_by=None, lease_until=None)
                ).rowcount
                for chunk in chunks(numbers)
            )

        return self._do(self._engine, work)

    def record_notifications(self, recorded: Iterable[NotificationRecord]) -> None:
        """Remember notifications that are about to be sent."""
        rows = {record.message_id: to_row(record) for record in recorded}

        def work(connection: Connection) -> None:
            for chunk in chunks(rows):
                query = select(notifications.c.message_id).where(notifications.c.message_id.in_(chunk))
                known = set(connection.execute(query).scalars())
                if new := [rows[message_id] for message_id in chunk if message_id not in known]:
                    connection.execute(insert(notifications), new)

        # Somebody else records the same notification at the same time.
        self._do(self._engine, work, IntegrityError)

    def notifications(self, message_ids: Iterable[str]) -> Mapping[str, NotificationRecord]:
        """Return those that are remembered."""
        chosen = sorted(set(message_ids))

        def work(connection: Connection) -> dict[str, NotificationRecord]:
            queries = (
                select(notifications).where(notifications.c.message_id.in_(chunk)) for chunk in chunks(chosen)
            )
            return {
                row["message_id"]: from_row(NotificationRecord, dict(row))
                for query in queries
                for row in connection.execute(query).mappings()
            }

        return self._do(self._reading, work)

    def notifications_sent(self, message_ids: Iterable[str], now: datetime) -> None:
        """Remember that a server took them."""
        sent = sorted(set(message_ids))

        def work(connection: Connection) -> None:
            for chunk in chunks(sent):
                unsent = notifications.c.message_id.in_(chunk) & notifications.c.sent_at.is_(None)
                connection.execute(update(notifications).where(unsent).values(sent_at=now))

        self._do(self._engine, work)

    def events(self, since: datetime | None = None) -> Sequence[Event]:
        """Return events by their time."""
        query = select(events).order_by(events.c.at, events.c.event_id)
        if since is not None:
            query = query.where(events.c.at >= since)
        return self._do(
            self._reading,
            lambda connection: [from_row(Event, dict(row)) for row in connection.execute(query).mappings()],
        )

    def close(self) -> None:
        """Give back connections."""
        self._engine.dispose()

    def _do(self, engine: Engine, work: Callable[[Connection], T], *also_passing: type[Exception]) -> T:
        """Do a thing in a queue of this version, again if the database ends it in favour of another's."""
        if not self._is_found:
            self._demand_revision()
            self._is_found = True
        return self._try(engine, work, *also_passing)

    def _demand_revision(self) -> None:
        """Refuse a queue of another version."""
        recorded: Select[Any] = select(column("version_num")).select_from(table(VERSION_TABLE))
        found = self._try(self._reading, lambda connection: connection.execute(recorded).scalars().all())
        if list(found) != [REVISION]:
            newer = max(found, default="") > REVISION
            raise ServiceError(
                "QUEUE_VERSION_TOO_NEW" if newer else "QUEUE_VERSION_TOO_OLD",
                queue=self._engine.url.render_as_string(),
            )

    def _try(self, engine: Engine, work: Callable[[Connection], T], *also_passing: type[Exception]) -> T:
        """Do a thing in a transaction; again for a minute if a connection that has worked is lost."""
        lost_at: list[float] = []

        def whole() -> T:
            with engine.begin() as connection:
                return work(connection)

        def passing(error: Exception) -> bool:
            return isinstance(error, also_passing) or _passes(error)

        def lost_lately(error: Exception) -> bool:
            if not (self._is_found and _is_lost(error)):
                return False
            lost_at.append(time.monotonic())
            return lost_at[-1] - lost_at[0] < _PATIENCE_SECONDS

        try:
            return retry(lambda: retry(whole, passing), lost_lately, times=_MOST_TRIES)
        except SQLAlchemyError as error:
            raise self._explained(error) from error

    def _explained(self, error: SQLAlchemyError) -> TableferryError:
        """Return the error with the meaning of a database's error."""
        url = self._engine.url.render_as_string()
        reason = str(error.orig if isinstance(error, DBAPIError) else error).strip().split("\n")[0]
        if isinstance(error, IntegrityError):
            return Refused("ARCHIVED_TABLE_HAS_JOB", queue=url, reason=reason)
        file = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        missing = file is not None and not Path(file).exists()
        older = False
        try:
            if not missing:
                found = inspect(self._engine)
                missing = not found.has_table(jobs.name)
                there = set() if missing else {column["name"] for column in found.get_columns(jobs.name)}
                tables = (waves.name, VERSION_TABLE)
                older = not there.issuperset(JOB_COLUMNS) or not all(map(found.has_table, tables))
        except SQLAlchemyError:
            return ServiceError("QUEUE_UNREACHABLE", queue=url, reason=reason)
        if missing:
            relative = file is not None and not Path(file).is_absolute()
            return ServiceError("QUEUE_NOT_FOUND_IN_FOLDER" if relative else "QUEUE_NOT_FOUND", queue=url)
        if older:
            return ServiceError("QUEUE_VERSION_TOO_OLD", queue=url)
        return ServiceError("QUEUE_REQUEST_FAILED", queue=url, reason=reason)


class _Write(NamedTuple):
    """The statements that write a job, if its row is unchanged, and the event of its change.

    They are built once, because building them takes most of the time of a write.
    """

    event: Insert
    job: Update


def _writing(same: Selection) -> _Write:
    """Build the statements; their parameters are those of the condition, `_event`, and the job's columns."""
    values = {name: bindparam(f"event_{name}", type_=events.c[name].type) for name in _EVENT_VALUES}
    new = {name: bindparam(f"new_{name}", type_=jobs.c[name].type) for name in RECORDED}
    changed = select(jobs.c.state, *values.values()).select_from(jobs).where(same, differs(new))
    return _Write(insert(events).from_select(["was", *values], changed), update(jobs).where(same))


_EVENT_VALUES = ("task_id", "day", "worker", *EVENT_COLUMNS)
_READ = and_(
    jobs.c.task_id == bindparam("read_id", type_=jobs.c.task_id.type),
    jobs.c.revision == bindparam("read_revision", type_=jobs.c.revision.type),
)
# The row as it was read, and still claimed by the same worker.
_HELD = _writing(and_(_READ, jobs.c.claimed_by == bindparam("read_claim", type_=jobs.c.claimed_by.type)))
# The row as it was read, and unclaimed.
_FREE = _writing(and_(_READ, free(bindparam("free_at", type_=Utc))))


def _as_read(job: Job) -> dict[str, Any]:
    return {"read_id": job.task_id, "read_revision": job.revision}


def _write(connection: Connection, write: _Write, same: Mapping[str, Any], job: Job, worker: str) -> None:
    """Write a job, if its row is what was read, and the event of its change.

    Raises:
        ClaimLost: It isn't.
    """
    row = to_row(job)
    values = {f"event_{name}": value for name, value in _event(job, worker).items()}
    new = {f"new_{name}": row[name] for name in RECORDED}
    connection.execute(write.event, {**same, **values, **new})
    if connection.execute(write.job, {**same, **row}).rowcount != 1:
        # The answer to a commit may have been lost with the connection.
        query = select(jobs).where(jobs.c.task_id == job.task_id)
        if not any(_is_written(stored, job) for stored in _jobs(connection.execute(query))):
            raise lost(job)


def _event(job: Job, worker: str) -> dict[str, Any]:
    """Return the row of a job's change, but for the state before it."""
    day = job.last_updated_time.astimezone(UTC).date()
    values = {name: getattr(job, column) for name, column in EVENT_COLUMNS.items()}
    return {"task_id": job.task_id, "day": day, "worker": worker, **values}


def _same(there: Job, read: Job) -> bool:
    return (there.revision, there.claimed_by) == (read.revision, read.claimed_by)


def _is_written(there: Job, written: Job) -> bool:
    """Return whether a row has the written values; JSON gives lists for the tuples in a record."""

    def as_json(job: Job) -> str:
        return json.dumps(job.record.to_json(), sort_keys=True)

    without = JobRecord()
    return as_json(there) == as_json(written) and (
        replace(there, record=without) == replace(written, record=without)
    )


def _jobs(result: Any) -> list[Job]:
    return [from_row(Job, dict(row)) for row in result.mappings()]


def _is_lost(error: Exception) -> bool:
    """Return whether the connection is lost, or a new one can't be made."""
    if not isinstance(error, DBAPIError):
        return False
    orig: Any = error.orig
    state = getattr(orig, "sqlstate", None)
    if error.connection_invalidated or (state or "").startswith(_POSTGRESQL_LOST):
        return True
    # psycopg has no state for a server that it can't connect to.
    is_psycopg = hasattr(orig, "sqlstate")
    if is_psycopg and state is None and isinstance(error, OperationalError):
        return True
    return bool(getattr(orig, "args", ())) and orig.args[0] in _MYSQL_LOST


def _passes(error: Exception) -> bool:
    """Say whether the database ended a transaction in favour of another's."""
    if not isinstance(error, DBAPIError):
        return False
    orig: Any = error.orig
    if getattr(orig, "sqlstate", None) in _POSTGRESQL_PASSING:
        return True
    if "database is locked" in str(orig) or "database table is locked" in str(orig):
        return True
    return bool(getattr(orig, "args", ())) and orig.args[0] in _MYSQL_PASSING
