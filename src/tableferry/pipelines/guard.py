"""The check that a run makes right before each effect: does it still hold its targets?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tableferry.errors import HALF_MADE, Busy, TableError, first_line
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Guard = Callable[["SparkSession"], None]
"""Raises Busy where another run has taken over."""

TABLE = "__tableferry_leases"
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
    return TableName((*target.parts[:-1], TABLE))


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
