"""Holds off runs of the same targets on other machines, by rows of a Delta table beside the targets.

Several machines may mount one volume, and a lock of the operating system may hold off only those processes
that are on the same one. Commits of a Delta table are put in order for all of them. No clock is compared with
another one: a holder writes a file anew while it lives, and whoever finds a holder watches that file for as
long as a lease lasts, by its own clock, before it takes over from one whose file stays as it is. A file and
not the table: a statement of Spark's waits for its turn behind whatever else the session does.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tableferry import storage
from tableferry.errors import HALF_MADE, Busy, TableError, first_line
from tableferry.heartbeat import heartbeat
from tableferry.progress import task
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)

LEASE = timedelta(minutes=2)
"""How long a lease lasts without a sign of life."""

_LOOKS = 12
_TRIES = 8
_ANOTHERS = 0.5
"""So many seconds between two looks whether another run has made the table of leases."""


@dataclass(frozen=True)
class Leases:
    """The leases of one run.

    Attributes:
        what: What it is, for messages.
        folder: A folder of the state, where runs give signs of life.
        lease: How long a lease lasts without one.
        wait: Waits so many seconds.
        name: A name that no other run has.
    """

    targets: Sequence[TableName]
    what: str
    folder: Path
    lease: timedelta = LEASE
    wait: Callable[[float], None] = time.sleep
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @contextmanager
    def held(self, spark: SparkSession) -> Iterator[Held]:
        """Hold the leases of all targets for the length of a ``with``, with a heartbeat.

        Raises:
            Busy: Another run holds one, and lives.
        """
        for table in self._tables():
            columns = "target STRING, holder STRING, beats BIGINT"
            self._do(spark, table, f"CREATE TABLE IF NOT EXISTS {table.sql} ({columns}) USING delta")
        self.beat()
        try:
            with heartbeat(self.beat, self.lease):
                for target in sorted(self.targets, key=lambda target: target.key):
                    self._take(spark, target)
                yield Held(self.targets, self.name, self.lease.total_seconds())
        finally:
            mine = f"holder = {literal(self.name)}"
            for table in self._tables():
                self._do(spark, table, f"UPDATE {table.sql} SET holder = '' WHERE {mine}")
            storage.remove(self._sign(self.name))

    def beat(self) -> None:
        """Give a sign of life, so that nobody takes over.

        Raises:
            StateError: It can't be written.
        """
        storage.write_text(self._sign(self.name), uuid.uuid4().hex)

    def _sign(self, name: str) -> Path:
        return self.folder / f"_run_{name}"

    def _take(self, spark: SparkSession, target: TableName) -> None:
        seen = holder(spark, target)
        if not (seen.name and self._is_alive(spark, target, seen)) and self._replace(spark, target, seen):
            if seen.name:
                storage.remove(self._sign(seen.name))
            return
        raise Busy("RUN_BY_ANOTHER_PROCESS", subject=self.what)

    def _is_alive(self, spark: SparkSession, target: TableName, seen: Holder) -> bool:
        """Watch a holder for as long as a lease lasts, and say whether it gives a sign of life."""
        sign = storage.read_text(self._sign(seen.name))
        with task(_log, "look whether the run that holds the lease is alive", table=target):
            for _ in range(_LOOKS):
                self.wait(self.lease.total_seconds() / _LOOKS)
                if storage.read_text(self._sign(seen.name)) != sign or holder(spark, target) != seen:
                    return True
        return False

    def _replace(self, spark: SparkSession, target: TableName, seen: Holder) -> bool:
        """Take a target over from whom was seen, and say whether nobody else was faster."""
        table = leases_of(target)
        mine = f"{literal(target.key)} AS target, {literal(self.name)} AS holder, {seen.takes + 1} AS beats"
        self._do(
            spark,
            table,
            f"MERGE INTO {table.sql} t USING (SELECT {mine}) s ON t.target = s.target "
            f"WHEN MATCHED AND t.holder = {literal(seen.name)} AND t.beats = {seen.takes} THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
        )
        return holder(spark, target).name == self.name

    def _tables(self) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys(map(leases_of, self.targets)))

    def _do(self, spark: SparkSession, table: TableName, statement: str) -> None:
        """Run a statement on a table of leases, again while others commit to it at the same time."""
        for attempt in range(_TRIES):
            try:
                spark.sql(statement).collect()
                return
            except SPARK_ERRORS as error:
                half_made = HALF_MADE in str(error)
                if attempt + 1 == _TRIES or not (half_made or "CONCURRENT" in str(error).upper()):
                    raise unusable(table, error) from error
                if half_made:
                    self.wait(_ANOTHERS)


Guard = Callable[["SparkSession"], None]
"""Raises Busy where another run has taken over."""


LEASE_TABLE = "__tableferry_leases"
"""The table of a schema that says which run holds which target of it."""


class Holder(NamedTuple):
    """Who holds a target; empty for nobody.

    Attributes:
        name: A name that no other run has.
        takes: How often the target was taken; the column is called ``beats``.
    """

    name: str
    takes: int


@dataclass(frozen=True)
class Held:
    """The targets that a run has taken.

    Attributes:
        targets: The targets.
        name: The run's name.
        seconds: How long it may give no sign of life.
    """

    targets: Sequence[TableName]
    name: str
    seconds: float

    def check(self, spark: SparkSession) -> None:
        """Make sure that the run still holds them.

        Raises:
            Busy: Another run has taken one over.
        """
        for target in self.targets:
            if holder(spark, target).name != self.name:
                raise Busy("LEASE_LOST", target=target, seconds=f"{self.seconds:.0f}")


def unguarded(_: SparkSession) -> None:
    """Look at nothing: no other machine runs the project."""


def leases_of(target: TableName) -> TableName:
    """Name the table that says who holds a target."""
    return TableName((*target.parts[:-1], LEASE_TABLE))


def holder(spark: SparkSession, target: TableName) -> Holder:
    """Return who holds a target.

    Raises:
        TableError: It can't be read.
    """
    table = leases_of(target)
    which = f"target = {literal(target.key)}"
    try:
        rows = spark.sql(f"SELECT holder, beats FROM {table.sql} WHERE {which}").collect()
    except SPARK_ERRORS as error:
        raise unusable(table, error) from error
    return Holder(*rows[0]) if rows else Holder("", 0)


def unusable(table: TableName, error: Exception) -> TableError:
    """Say why a table of leases can't be read or written, and how to go on."""
    half = HALF_MADE in str(error)
    return TableError(
        "LEASES_HALF_CREATED" if half else "LEASES_NOT_USABLE", table=table, reason=first_line(error)
    )
