"""Holds off runs of the same targets on other machines, by rows of a Delta table beside the targets.

Several machines may mount one volume, and a lock of the operating system may hold off only those processes
that are on the same one. Commits of a Delta table are put in order for all of them. No clock is compared with
another one: a holder counts beats while it lives, and whoever finds a holder watches for as long as a lease
lasts, by its own clock, before it takes over from one whose beats stand still.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.activity import activity
from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import Busy, TableError, first_line
from tableferry.heartbeat import heartbeat
from tableferry.quoting import literal
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

TABLE = "__tableferry_leases"
LEASE = timedelta(minutes=2)
"""How long a lease lasts without a beat."""

_LOOKS = 12
_TRIES = 8


class Holder(NamedTuple):
    """Who holds a target; empty for nobody.

    Attributes:
        name: A name that no other run has.
        beats: How often the row was written.
    """

    name: str
    beats: int


@dataclass(frozen=True)
class Leases:
    """The leases of one run.

    Attributes:
        what: What it is, for messages.
        lease: How long a lease lasts without a beat.
        wait: Waits so many seconds.
        name: A name that no other run has.
    """

    spark: SparkSession
    targets: Sequence[TableName]
    what: str
    lease: timedelta = LEASE
    wait: Callable[[float], None] = time.sleep
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the leases of all targets for the length of a ``with``, with a heartbeat.

        Raises:
            Busy: Another run holds one, and lives.
        """
        for table in self._tables():
            columns = "target STRING, holder STRING, beats BIGINT"
            self._do(table, f"CREATE TABLE IF NOT EXISTS {table.sql} ({columns}) USING delta")
        try:
            for target in sorted(self.targets, key=lambda target: target.key):
                self._take(target)
            with heartbeat(self.renew, self.lease):
                yield
        finally:
            for table in self._tables():
                self._do(table, f"UPDATE {table.sql} SET holder = '' WHERE holder = {literal(self.name)}")

    def check(self) -> None:
        """Make sure that this run still holds its leases.

        Raises:
            Busy: Another run has taken one over.
        """
        for target in self.targets:
            if self._holder(target).name != self.name:
                raise Busy(
                    f"{target}: another run has taken over, as this one gave no sign of life for "
                    f"{self.lease.total_seconds():.0f} seconds: nothing more is done here"
                )

    def renew(self) -> None:
        """Write a beat, so that nobody takes over."""
        for table in self._tables():
            self._do(table, f"UPDATE {table.sql} SET beats = beats + 1 WHERE holder = {literal(self.name)}")

    def _take(self, target: TableName) -> None:
        seen = self._holder(target)
        if not (seen.name and self._is_alive(target, seen)) and self._replace(target, seen):
            return
        raise Busy(f"{self.what} is being run by another process, maybe on another machine: wait for it")

    def _is_alive(self, target: TableName, seen: Holder) -> bool:
        """Watch a holder for as long as a lease lasts, and say whether it gives a sign of life."""
        with activity(_log, "look whether the run that holds the lease is alive", table=target):
            for _ in range(_LOOKS):
                self.wait(self.lease.total_seconds() / _LOOKS)
                if self._holder(target) != seen:
                    return True
        return False

    def _replace(self, target: TableName, seen: Holder) -> bool:
        """Take a target over from whom was seen, and say whether nobody else was faster."""
        table = _table_of(target)
        mine = f"{literal(target.key)} AS target, {literal(self.name)} AS holder, {seen.beats + 1} AS beats"
        self._do(
            table,
            f"MERGE INTO {table.sql} t USING (SELECT {mine}) s ON t.target = s.target "
            f"WHEN MATCHED AND t.holder = {literal(seen.name)} AND t.beats = {seen.beats} THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *",
        )
        return self._holder(target).name == self.name

    def _holder(self, target: TableName) -> Holder:
        table = _table_of(target)
        rows = self._do(table, f"SELECT holder, beats FROM {table.sql} WHERE target = {literal(target.key)}")
        return Holder(*rows[0]) if rows else Holder("", 0)

    def _tables(self) -> tuple[TableName, ...]:
        return tuple(dict.fromkeys(map(_table_of, self.targets)))

    def _do(self, table: TableName, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run a statement on a table of leases, again while others commit to it at the same time."""
        for attempt in range(_TRIES):
            try:
                return self.spark.sql(statement).collect()
            except SPARK_ERRORS as error:
                if "CONCURRENT" not in str(error).upper() or attempt + 1 == _TRIES:
                    raise TableError(
                        f"{table}: the lease of {self.what} can't be read or written ({first_line(error)}): "
                        "check your rights, or set table_migration_state_shared to false in global.json "
                        "where one machine alone runs it"
                    ) from error
        raise AssertionError("unreachable")


def _table_of(target: TableName) -> TableName:
    return TableName((*target.parts[:-1], TABLE))
