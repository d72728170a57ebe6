"""The queue in Delta tables, by SQL alone, so that it works through Spark Connect too.

Delta has no transaction over two tables, so a job's row contains its events.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from sqlalchemy import JSON, Select, Table, literal_column, or_, update

from tableferry.backoff import retry
from tableferry.errors import HALF_MADE, ServiceError, TableferryError, first_line, is_sparks
from tableferry.fleet.queue.changes import Change
from tableferry.fleet.queue.conditions import EVENT_COLUMNS, RECORDED
from tableferry.fleet.queue.delta_tables import OLD_ARCHIVE, PROPERTY, UPGRADED, DeltaTables
from tableferry.fleet.queue.group_commit import GroupCommit
from tableferry.fleet.queue.records import JOB_COLUMNS, to_row
from tableferry.fleet.queue.schema import FIRST_COLUMNS, REVISION, jobs
from tableferry.fleet.queue.selections import Selection
from tableferry.fleet.queue.sparksql import bound, in_json, read, rows, source
from tableferry.fleet.queue.storage_clock import StorageClock
from tableferry.fleet.queue.store import Store
from tableferry.progress import task
from tableferry.spark.driver import in_process
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

T = TypeVar("T")

# The table of jobs assigns the numbers.
_WRITTEN = tuple(column for column in jobs.c if column.name != "task_id")
_STORED = (*JOB_COLUMNS, "events")

# Errors of Delta, the catalog and the metastore if another process wrote first.
_PASSING = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "ALREADY_EXISTS")
_POOL = "spark.scheduler.pool"


class DeltaStore(Store):
    """A queue in the Delta tables of a schema."""

    # A commit takes seconds.
    rows_per_statement = 10_000

    def __init__(self, spark: SparkSession, schema: str) -> None:
        self._spark = spark
        self._schema = TableName.parse(schema)
        self._tables = DeltaTables(self._schema)
        self._dialect = self._tables.dialect
        self._clock = StorageClock(self._dated)
        # A commit takes seconds, however many jobs it has.
        self._swaps = GroupCommit(self._swap_together)
        # Whether the queue was found to have this version.
        self._is_known = False

    def create(self) -> None:
        """Create or upgrade the tables; several processes may do so concurrently."""
        with task(_log, "create the queue's tables", level=logging.DEBUG):
            try:
                self._require_older_or_same()
            except Exception as error:
                # The queue doesn't exist yet.
                if not is_sparks(error):
                    raise
            for statement in self._tables.definitions():
                # Another process that creates the table writes its log before its catalog entry.
                retry(partial(self._execute, statement), _half_made, shortest=0.2, longest=5.0, times=8)
            if self._try(self._revisions)[UPGRADED] < int(REVISION):
                self._upgrade()
            self._is_known = True

    def _upgrade(self) -> None:
        """Upgrade the tables of an older version, in steps that can be repeated at any point.

        The first property keeps older versions out before anything changes. The last one lets this one in.
        """
        self._set_revision(PROPERTY)
        self._add_columns(self._tables.jobs)
        self._move_archive()
        self._execute(self._tables.view_of_events())
        self._on_old_archive(lambda: self._execute(f"DROP TABLE IF EXISTS {self._tables.old_archive}"))
        self._set_revision(UPGRADED)

    def _set_revision(self, name: str) -> None:
        self._execute(f"ALTER TABLE {self._tables.jobs} SET TBLPROPERTIES ('{name}' = '{int(REVISION)}')")

    def _add_columns(self, quoted: str) -> None:
        """Add the columns that a table of an older version lacks."""

        def add() -> None:
            existing = {row["col_name"] for row in self._sql(f"DESCRIBE TABLE {quoted}", {}).collect()}
            columns = self._tables.later_columns().items()
            if missing := ", ".join(f"{name} {form}" for name, form in columns if name not in existing):
                self._sql(f"ALTER TABLE {quoted} ADD COLUMNS ({missing})", {}).collect()

        retry(partial(self._try, add), _added_concurrently, shortest=0.2, longest=5.0, times=8)

    def _move_archive(self) -> None:
        """Copy archived jobs from the table of older versions; a job in both tables stays in the queue.

        This ends when no job is left to copy, because a worker of an older version may still archive jobs.
        """
        old = self._tables.old_archive
        self._on_old_archive(lambda: self._add_columns(old))
        columns, values = ", ".join(_STORED), ", ".join(f"s.{name}" for name in _STORED)
        move = (
            f"MERGE INTO {self._tables.jobs} AS t USING {old} AS s ON t.task_id = s.task_id "
            f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
        )
        while self._on_old_archive(lambda: self._try(lambda: self._changed(move, {}))):
            pass

    def _on_old_archive(self, work: Callable[[], T]) -> T | None:
        """Call a function; return None without an old archive, or if another process drops it."""
        if not self._has_old_archive():
            return None
        try:
            return work()
        except TableferryError:
            if self._has_old_archive():
                raise
            return None

    def _has_old_archive(self) -> bool:
        shown = f"SHOW TABLES IN {self._schema.sql} LIKE '{OLD_ARCHIVE}'"
        return bool(self._try(lambda: self._sql(shown, {}).collect()))

    def now(self) -> datetime:
        """Return the time by the storage of the queue's tables."""
        return self._clock()

    def _dated(self) -> datetime:
        """Write a commit, and return the storage's time of it.

        Without in-commit timestamps, the history contains the times of the log's files.
        """
        clock = self._tables.clock
        try:
            # The property differs in each commit. No data is written.
            self._run(
                f"ALTER TABLE {clock.sql} SET TBLPROPERTIES ('tableferry.asked' = :by)", {"by": uuid4().hex}
            )
            history = f"DESCRIBE HISTORY {clock.sql} LIMIT 1"
            [newest] = self._do(lambda: rows(self._sql(history, {}).select("timestamp")))
        except TableferryError as error:
            _log.warning(
                "the time of the queue's storage can't be read (%s), so this cluster's clock is used: if it "
                "is ahead of other clocks, claims lapse early. Run tableferry fleet init, and grant workers "
                "MODIFY on the table %s", error.one_line, clock,
            )  # fmt: skip
            [newest] = self._do(lambda: rows(self._sql("SELECT current_timestamp() AS timestamp", {})))
        time: datetime = newest["timestamp"]
        return time

    def rows(self, query: Select[Any]) -> Sequence[Sequence[Any]]:
        """Return the rows of a query over the queue's tables."""
        text, parameters = self._dialect.written(query)
        found = self._do(lambda: rows(self._sql(text, parameters)))
        texts = [isinstance(column.type, JSON) for column in query.selected_columns]
        return [
            tuple(
                json.loads(value) if is_json and value else value
                for value, is_json in zip(row.values(), texts, strict=True)
            )
            for row in found
        ]

    def insert(self, table: Table, new: Sequence[Mapping[str, Any]], key: Sequence[str]) -> int:
        """Insert the rows whose key doesn't exist."""
        columns = [table.c[name] for name in new[0]]
        values = read(columns, "s")
        same = " AND ".join(f"t.{name} <=> s.{name}" for name in key)
        return self._change(
            f"MERGE INTO {self._tables.name(table)} AS t USING ({source(columns)}) AS s ON {same} "
            f"WHEN NOT MATCHED THEN INSERT ({', '.join(values)}) VALUES ({', '.join(values.values())})",
            {"new": in_json(new)},
        )

    def update(self, table: Table, condition: Selection, values: Mapping[str, Any]) -> int:
        """Set columns of the rows that meet a condition."""
        return self._change(*self._dialect.written(update(table).where(condition).values(**values)))

    def renew(self, task_ids: Iterable[int], worker: str, now: datetime, lease: timedelta) -> None:
        """Extend a worker's claims, without waiting for a long statement of the same cluster."""
        with _own_pool(self._spark):
            super().renew(task_ids, worker, now, lease)

    def swap(self, changes: Sequence[Change]) -> Sequence[bool]:
        """Write each changed job whose row is still the one that was read, with the event of its change."""
        return self._swaps.do(changes)

    def _swap_together(self, groups: Sequence[Sequence[Change]]) -> Sequence[Sequence[bool]]:
        """Write the changes of several threads in one commit; of two changes of a job, only the first."""
        first: dict[int, Change] = {}
        for change in chain.from_iterable(groups):
            first.setdefault(change.after.task_id, change)
        changes = list(first.values())
        count = self._write(changes[0]) if len(changes) == 1 else self._write_all(changes)
        after = [change.after for change in changes]
        written = {job.task_id for job in (after if count == len(after) else self.find_written(after))}
        return [
            [change is first[change.after.task_id] and change.after.task_id in written for change in group]
            for group in groups
        ]

    def _write(self, change: Change) -> int:
        """Write one job, which takes less time alone than a merge; return how many rows were written."""
        row = to_row(change.after)
        new = {column.name: f":new_{column.name}" for column in _WRITTEN}
        where, parameters = self._dialect.written(change.condition)
        changes, compared = self._dialect.written(_differs(row))
        settings = [f"{name} = {value}" for name, value in new.items()]
        settings.append(f"events = {_with_event(changes, new, ':author')}")
        return self._change(
            f"UPDATE {self._tables.jobs} AS jobs SET {', '.join(settings)} WHERE {where}",
            {
                **parameters,
                **compared,
                **{f"new_{name}": value for name, value in row.items()},
                "author": change.author,
            },
        )

    def _write_all(self, changes: Sequence[Change]) -> int:
        """Write several jobs in one commit, and return how many rows were written."""
        values = read(_WRITTEN, "s")
        differ, _ = self._dialect.written(
            _differs({name: literal_column(value) for name, value in values.items()})
        )
        settings = [f"jobs.{name} = {value}" for name, value in values.items()]
        settings.append(f"jobs.events = {_with_event(differ, values, 's.author')}")
        new = [
            {
                **to_row(change.after),
                "author": change.author,
                "read": change.read.revision,
                "claim": change.read.claimed_by,
                "free_at": change.free_at,
            }
            for change in changes
        ]
        more = ("author STRING", "read INT", "claim STRING", "free_at BIGINT")
        return self._change(
            f"MERGE INTO {self._tables.jobs} AS jobs USING ({source(jobs.c, *more)}) AS s "
            "ON jobs.task_id = s.task_id AND jobs.revision = s.read AND jobs.archived_at IS NULL "
            "AND CASE WHEN s.free_at IS NULL THEN jobs.claimed_by = s.claim "
            "ELSE jobs.claimed_by IS NULL OR jobs.lease_until <= timestamp_micros(s.free_at) END "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(settings)}",
            {"new": in_json(new)},
        )

    def close(self) -> None:
        """Leave the session to the code that passed it."""

    def _change(self, text: str, parameters: Mapping[str, Any]) -> int:
        """Run a statement, and return how many rows it changed."""
        return self._do(lambda: self._changed(text, parameters))

    def _changed(self, text: str, parameters: Mapping[str, Any]) -> int:
        return int(self._sql(text, parameters).collect()[0]["num_affected_rows"])

    def _run(self, text: str, parameters: Mapping[str, Any]) -> None:
        self._do(lambda: self._sql(text, parameters).collect())

    def _execute(self, text: str) -> None:
        """Run a statement in a queue of any version."""
        self._try(lambda: self._sql(text, {}).collect())

    def _sql(self, text: str, parameters: Mapping[str, Any]) -> DataFrame:
        return self._spark.sql(bound(text, parameters))

    def _revisions(self) -> dict[str, int]:
        """Return the revisions that the properties of the queue record; 0 for one that is missing."""
        shown = {
            row["key"]: row["value"]
            for row in self._sql(f"SHOW TBLPROPERTIES {self._tables.jobs}", {}).collect()
        }
        return {name: int(shown.get(name, 0)) for name in (PROPERTY, UPGRADED)}

    def _require_older_or_same(self) -> dict[str, int]:
        """Refuse a queue of a newer version, whose new columns this one would ignore."""
        revisions = self._revisions()
        if revisions[PROPERTY] > int(REVISION):
            raise ServiceError("QUEUE_VERSION_TOO_NEW", queue=self._url)
        return revisions

    def _require_revision(self) -> None:
        """Refuse a queue of another version, and one whose upgrade was interrupted."""
        if self._require_older_or_same()[UPGRADED] < int(REVISION):
            # A table of another program fails here.
            first = ", ".join(column.name for column in list(jobs.c)[:FIRST_COLUMNS])
            self._sql(f"SELECT {first} FROM {self._tables.jobs} LIMIT 0", {}).collect()
            raise ServiceError("QUEUE_VERSION_TOO_OLD", queue=self._url)
        self._is_known = True

    def _do(self, work: Callable[[], T]) -> T:
        """Call a function on a queue of this version, again if another process wrote first."""
        if not self._is_known:
            self._try(self._require_revision)
        return self._try(work)

    def _try(self, work: Callable[[], T]) -> T:
        """Call a function, again if another process wrote first."""
        try:
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
        return ServiceError(
            "QUEUE_TABLE_HALF_CREATED" if _half_made(error) else "QUEUE_REQUEST_FAILED",
            queue=self._url,
            reason=first_line(error),
        )


@contextmanager
def _own_pool(spark: SparkSession) -> Iterator[None]:
    """Run this thread's statements beside a long one of the same cluster, in a separate pool.

    This needs fair scheduling (spark.scheduler.mode); otherwise, and within a pool, the first statement runs
    first. Through Spark Connect the server decides.
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


def _added_concurrently(error: Exception) -> bool:
    return "DELTA_DUPLICATE_COLUMNS_FOUND" in str(error)


def _differs(new: Mapping[str, Any]) -> Selection:
    """Rows whose state or pause differs from the new one; the values may be columns of the source."""
    return or_(*(jobs.c[name] != new[name] for name in RECORDED))


def _with_event(changed: str, new: Mapping[str, str], author: str) -> str:
    """Return the expression of a job's events, with one more if its state or pause changes."""
    values = ", ".join(f"'{name}', {new[column]}" for name, column in EVENT_COLUMNS.items())
    event = f"named_struct({values}, 'worker', {author})"
    more = f"concat(coalesce(jobs.events, array()), array({event}))"
    return f"CASE WHEN {changed} THEN {more} ELSE jobs.events END"
