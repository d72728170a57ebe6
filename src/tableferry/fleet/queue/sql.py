"""The queue in a database: SQLite, MySQL or MariaDB, PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Select,
    Table,
    bindparam,
    column,
    insert,
    inspect,
    or_,
    select,
    table,
    text,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError

from tableferry.backoff import retry
from tableferry.errors import ServiceError, StateError, TableferryError
from tableferry.fleet import queue
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.changes import Change, claim_values, claimed
from tableferry.fleet.queue.conditions import RECORDED, chunks
from tableferry.fleet.queue.dialects import utc_now
from tableferry.fleet.queue.records import JOB_COLUMNS, from_row, to_row
from tableferry.fleet.queue.schema import REVISION, VERSION_TABLE, events, jobs, waves
from tableferry.fleet.queue.selections import Selection, numbered
from tableferry.fleet.queue.store import Store

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
# More tries than this time permits.
_MOST_TRIES = 1000

# After n new jobs, PostgreSQL's statistics of the table are out of date.
_MANY = 1000

# The columns that the condition of a change and its event read.
_READ = ("task_id", "revision", "claimed_by", "lease_until", "archived_at", *RECORDED)
# Statements are built once, because building them takes most of the time of a write.
_LOCK = select(*(jobs.c[name] for name in _READ)).order_by(jobs.c.task_id).with_for_update()
_LOCK_SOME = _LOCK.where(jobs.c.task_id.in_(bindparam("numbers", expanding=True)))
_LOCK_ONE = _LOCK.where(jobs.c.task_id == bindparam("number"))
_ADD_EVENT = insert(events)
_WRITE = update(jobs).where(jobs.c.task_id == bindparam("number"))


class SqlStore(Store):
    """A queue in a database."""

    def __init__(self, engine: Engine) -> None:
        """Take the engine; nothing is connected yet."""
        self._engine = engine
        # SQLite allows concurrent reads.
        self._reading = engine.execution_options(reads_only=True)
        # Whether the queue was found to have this version.
        self._is_found = False

    def create(self) -> None:
        """Create or upgrade the tables; several processes may do so concurrently."""
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

    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query over the queue's tables."""
        return self._do(self._reading, lambda connection: connection.execute(query).all())

    def insert(self, table: Table, rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> int:
        """Insert the rows whose key doesn't exist."""
        columns = [table.c[name] for name in key]
        by_key = {tuple(row[name] for name in key): row for row in rows}

        def work(connection: Connection) -> int:
            missing = dict(by_key)
            for chunk in chunks(by_key):
                for existing in connection.execute(select(*columns).where(tuple_(*columns).in_(chunk))):
                    del missing[tuple(existing)]
            for new in chunks(missing.values()):
                connection.execute(insert(table), new)
            if len(missing) >= _MANY and connection.dialect.name == "postgresql":
                # Until PostgreSQL analyzes the table automatically, it plans claims as for an empty table.
                connection.execute(text(f"ANALYZE {table.name}"))
            return len(missing)

        # Another process may insert the same key concurrently.
        return self._do(self._engine, work, IntegrityError)

    def update(self, table: Table, condition: Selection, values: Mapping[str, Any]) -> int:
        """Set columns of the rows that meet a condition."""
        statement = update(table).where(condition).values(**values)
        return self._do(self._engine, lambda connection: connection.execute(statement).rowcount)

    def swap(self, changes: Sequence[Change]) -> Sequence[bool]:
        """Write each changed job whose row is still the one that was read, with the event of its change."""
        by_number = {change.after.task_id: change for change in changes}

        def work(connection: Connection) -> set[int]:
            return {
                number
                for chunk in chunks(sorted(by_number))
                for number in _swap(connection, by_number, chunk)
            }

        written = self._do(self._engine, work)
        # The answer to the commit of an earlier attempt may have been lost with the connection.
        left = [change.after for number, change in by_number.items() if number not in written]
        written |= {job.task_id for job in self.find_written(left)} if left else set()
        return [change.after.task_id in written for change in changes]

    def try_claim(
        self,
        claimable: Sequence[Selection],
        limit: int,
        worker: str,
        now: datetime,
        lease: timedelta,
    ) -> Sequence[Job] | None:
        """Claim jobs in one transaction, without those that other transactions have locked."""
        mine: list[Job] = []
        values = claim_values(worker, now, lease)

        def work(connection: Connection) -> Sequence[Job] | None:
            # The answer to the commit of an earlier attempt may have been lost with the connection.
            if mine and (written := self.find_written(mine)):
                return written
            mine.clear()
            for condition in claimable:
                if len(mine) < limit:
                    query = select(jobs).where(condition).order_by(jobs.c.task_id).limit(limit - len(mine))
                    locked = connection.execute(query.with_for_update(skip_locked=True)).mappings()
                    mine.extend(claimed(from_row(Job, dict(row)), worker, now, lease) for row in locked)
            for chunk in chunks(job.task_id for job in mine):
                connection.execute(
                    update(jobs).where(numbered(chunk)).values(**values, revision=jobs.c.revision + 1)
                )
            # Jobs that another transaction has locked may still be claimable after it.
            left = select(jobs.c.task_id).where(or_(*claimable)).limit(1)
            return mine if mine or connection.execute(left).first() else None

        return self._do(self._engine, work)

    def close(self) -> None:
        """Close connections."""
        self._engine.dispose()

    def _do(self, engine: Engine, work: Callable[[Connection], T], *also_passing: type[Exception]) -> T:
        """Call a function in a transaction on a queue of this version."""
        if not self._is_found:
            self._require_revision()
            self._is_found = True
        return self._try(engine, work, *also_passing)

    def _require_revision(self) -> None:
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
        """Call a function in a transaction, again if another transaction was preferred.

        It is also called again for a minute if a connection that has worked is lost.
        """
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
        """Return the error that explains an error of the database."""
        url = self._engine.url.render_as_string()
        reason = str(error.orig if isinstance(error, DBAPIError) else error).strip().split("\n")[0]
        file = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        missing = file is not None and not Path(file).exists()
        older = False
        try:
            if not missing:
                found = inspect(self._engine)
                missing = not found.has_table(jobs.name)
                existing = set() if missing else {column["name"] for column in found.get_columns(jobs.name)}
                tables = (waves.name, VERSION_TABLE)
                older = not existing.issuperset(JOB_COLUMNS) or not all(map(found.has_table, tables))
        except SQLAlchemyError:
            return ServiceError("QUEUE_UNREACHABLE", queue=url, reason=reason)
        if missing:
            relative = file is not None and not Path(file).is_absolute()
            return ServiceError("QUEUE_NOT_FOUND_IN_FOLDER" if relative else "QUEUE_NOT_FOUND", queue=url)
        if older:
            return ServiceError("QUEUE_VERSION_TOO_OLD", queue=url)
        return ServiceError("QUEUE_REQUEST_FAILED", queue=url, reason=reason)


def _swap(connection: Connection, changes: Mapping[int, Change], numbers: Sequence[int]) -> list[int]:
    """Lock the rows of some jobs, and write those that are still as they were read; return their numbers."""
    if len(numbers) == 1:
        result = connection.execute(_LOCK_ONE, {"number": numbers[0]})
    else:
        result = connection.execute(_LOCK_SOME, {"numbers": numbers})
    locked = {row.task_id: row for row in result}
    same = [number for number, row in locked.items() if changes[number].is_allowed(row)]
    happened = [event for number in same if (event := changes[number].event(locked[number])) is not None]
    if happened:
        connection.execute(_ADD_EVENT, happened)
    if same:
        connection.execute(_WRITE, [{**to_row(changes[number].after), "number": number} for number in same])
    return same


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
    """Return whether the database ended a transaction in favour of another one."""
    if not isinstance(error, DBAPIError):
        return False
    orig: Any = error.orig
    if getattr(orig, "sqlstate", None) in _POSTGRESQL_PASSING:
        return True
    if "database is locked" in str(orig) or "database table is locked" in str(orig):
        return True
    return bool(getattr(orig, "args", ())) and orig.args[0] in _MYSQL_PASSING
