"""Leases on targets: at most one run, on any machine, fills a target. They are rows of a Delta table.

Several machines may mount one volume, and a lock of the operating system may work only within a machine. All
machines see the same order of a Delta table's commits.

The run that has a lease rewrites its heartbeat file regularly. Another run watches the file for the duration
of a lease, by its own clock, and takes over if the file doesn't change. So no clocks are compared. The
heartbeat is a file because a Spark statement may wait until the session has finished other statements.
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

LeaseCheck = Callable[["SparkSession"], None]
"""Raises `Busy` if another run has taken over a lease."""

LEASE_TABLE = "__tableferry_leases"
"""The name of a schema's table of leases, which has a row for each target."""

LEASE = timedelta(minutes=2)
"""The duration of a lease without a heartbeat."""

_POLLS = 12
_ATTEMPTS = 8
_CREATION_WAIT_SECONDS = 0.5
"""The time between two checks whether another run has finished creating the table of leases."""


class LeaseRow(NamedTuple):
    """The row of a target in the table of leases.

    Attributes:
        name: The name of the run that has the lease; empty if no run has it.
        takes: How often the lease was acquired; the column's name is ``beats``.
    """

    name: str
    takes: int


@dataclass(frozen=True)
class TargetLeases:
    """The leases of one run.

    Attributes:
        targets: The targets that the run fills.
        subject: The run's work, for messages.
        folder: The folder of the heartbeat files, in the state.
        lease: The duration of a lease without a heartbeat.
        wait: A function that waits for a number of seconds.
        name: The run's unique name.
    """

    targets: Sequence[TableName]
    subject: str
    folder: Path
    lease: timedelta = LEASE
    wait: Callable[[float], None] = time.sleep
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @contextmanager
    def acquire(self, spark: SparkSession) -> Iterator[None]:
        """Acquire the leases of all targets and renew them until the ``with`` block ends.

        Raises:
            Busy: Another run has a lease and renews it.
        """
        for table in self._tables():
            columns = "target STRING, holder STRING, beats BIGINT"
            self._execute(spark, table, f"CREATE TABLE IF NOT EXISTS {table.sql} ({columns}) USING delta")
        self.renew()
        try:
            with heartbeat(self.renew, self.lease):
                for target in sorted(self.targets, key=lambda target: target.key):
                    self._acquire_target(spark, target)
                yield
        finally:
            for table in self._tables():
                own_rows = f"holder = {literal(self.name)}"
                self._execute(spark, table, f"UPDATE {table.sql} SET holder = '' WHERE {own_rows}")
            storage.remove(self._heartbeat_file(self.name))

    def renew(self) -> None:
        """Renew the leases: rewrite the heartbeat file.

        Raises:
            StateError: The file can't be written.
        """
        storage.write_text(self._heartbeat_file(self.name), uuid.uuid4().hex)

    def check(self, spark: SparkSession) -> None:
        """Check that the run still has all leases.

        Raises:
            Busy: Another run has taken over a lease.
        """
        for target in self.targets:
            if read_lease(spark, target).name != self.name:
                raise Busy("LEASE_LOST", target=target, seconds=f"{self.lease.total_seconds():.0f}")

    def _heartbeat_file(self, name: str) -> Path:
        return self.folder / f"_run_{name}"

    def _acquire_target(self, spark: SparkSession, target: TableName) -> None:
        current = read_lease(spark, target)
        alive = bool(current.name) and self._is_alive(spark, target, current)
        if alive or not self._take_over(spark, target, current):
            raise Busy("RUN_BY_ANOTHER_PROCESS", subject=self.subject)
        if current.name:
            storage.remove(self._heartbeat_file(current.name))

    def _is_alive(self, spark: SparkSession, target: TableName, current: LeaseRow) -> bool:
        """Return whether the run that has a lease renews it within the duration of a lease."""
        file = self._heartbeat_file(current.name)
        last = storage.read_text(file)
        with task(_log, "check whether the run that has the lease is alive", table=target):
            for _ in range(_POLLS):
                self.wait(self.lease.total_seconds() / _POLLS)
                if storage.read_text(file) != last or read_lease(spark, target) != current:
                    return True
        return False

    def _take_over(self, spark: SparkSession, target: TableName, current: LeaseRow) -> bool:
        """Take over a target's lease from its current run; return False if another run was faster."""
        table = name_lease_table(target)
        own_row = (
            f"{literal(target.key)} AS target, {literal(self.name)} AS holder, {current.takes + 1} AS beats"
        )
        self._execute(
            spark,
            table,
            f"MERGE INTO {table.sql} t USING (SELECT {own_row}) s ON t.target = s.target "
            f"WHEN MATCHED AND t.holder = {literal(current.name)} AND t.beats = {current.takes} "
            "THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
        )
        return read_lease(spark, target).name == self.name

    def _tables(self) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys(map(name_lease_table, self.targets)))

    def _execute(self, spark: SparkSession, table: TableName, statement: str) -> None:
        """Run a statement on a table of leases; repeat it after conflicts with concurrent commits."""
        for attempt in range(_ATTEMPTS):
            try:
                spark.sql(statement).collect()
                return
            except SPARK_ERRORS as error:
                half_made = HALF_MADE in str(error)
                if attempt + 1 == _ATTEMPTS or not (half_made or "CONCURRENT" in str(error).upper()):
                    raise build_lease_error(table, error) from error
                if half_made:
                    self.wait(_CREATION_WAIT_SECONDS)


def skip_lease_check(_: SparkSession) -> None:
    """Check nothing, because the project runs on one machine only."""


def name_lease_table(target: TableName) -> TableName:
    """Return the name of the table that has a target's lease."""
    return TableName((*target.parts[:-1], LEASE_TABLE))


def read_lease(spark: SparkSession, target: TableName) -> LeaseRow:
    """Return a target's row in the table of leases.

    Raises:
        TableError: The table can't be read.
    """
    table = name_lease_table(target)
    query = f"SELECT holder, beats FROM {table.sql} WHERE target = {literal(target.key)}"
    try:
        rows = spark.sql(query).collect()
    except SPARK_ERRORS as error:
        raise build_lease_error(table, error) from error
    return LeaseRow(*rows[0]) if rows else LeaseRow("", 0)


def build_lease_error(table: TableName, error: Exception) -> TableError:
    """Return the error for a table of leases that can't be read or written."""
    half = HALF_MADE in str(error)
    return TableError(
        "LEASES_HALF_CREATED" if half else "LEASES_NOT_USABLE", table=table, reason=first_line(error)
    )
