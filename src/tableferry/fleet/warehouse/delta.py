"""Makes a Delta table over the directory of a Hive table, whose entry and files stay as they are.

The log goes into the Hive table's directory, as ``_delta_log``, a name that Hive doesn't read; a second,
external entry shows the directory as Delta.
"""

from __future__ import annotations

from collections.abc import Sequence

from tableferry.catalog import SPARK_ERRORS
from tableferry.convert import overlay
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import dropping, hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable, ineligibility
from tableferry.fleet.warehouse.existing import kinds
from tableferry.fleet.warehouse.files import listing
from tableferry.hive.locations import below, split
from tableferry.hive.sql import quoted, text
from tableferry.tables import TableName

# What carrying a definition over does to a log, besides its first commit.
_DEFINING = frozenset({"SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "CHANGE COLUMN", "CHANGE COLUMNS"})


def make(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Make a Delta table that holds each file of a Hive table once; done already, or half, is fine.

    Returns:
        How many files it holds.

    Raises:
        TableError: A statement failed; run again when its cause is mended.
        Refused: The table can't be Delta as it is, or the target's name is somebody else's.
    """
    table = hive.demand(warehouse, source)
    if reason := ineligibility(table, TargetFormat.DELTA):
        raise Refused(reason[1])
    try:
        return _make(warehouse, table, target)
    except SPARK_ERRORS as error:
        raise TableError(
            f"{target} can't be made over the files of {source} ({first_line(error)}): mend the cause, and "
            "run again"
        ) from error


def _make(warehouse: Warehouse, table: HiveTable, target: TableName) -> int:
    spark = warehouse.spark
    partitions = hive.partitions(warehouse, table)
    wanted = [file.path for file in listing(warehouse, table, partitions).read]
    named = _is_ours(warehouse, table, target)
    logged = overlay.has_log(spark, table.location)
    if (logged and not _is_current(warehouse, table, wanted)) or (named and not logged):
        dropping.forget(warehouse, target if named else None, table.location)
        named = logged = False
    if not logged:
        if outside := [each for each in partitions if below(each.location, table.location) is None]:
            raise Refused(
                f"{table.name} has partitions outside its directory {table.location}, which no Delta log "
                f"names: {', '.join(map(str, outside[:5]))}; move them below it, or choose Iceberg"
            )
        warehouse.effect(
            lambda: overlay.write(
                spark, table.name, empty=not wanted, column_mapping=warehouse.column_mapping
            )
        )
    if not named:
        warehouse.run(f"CREATE TABLE {target.sql} USING delta LOCATION {text(table.location)}")
    return len(wanted)


def _is_ours(warehouse: Warehouse, table: HiveTable, target: TableName) -> bool:
    kind = kinds(warehouse, (target,)).get(target)
    if kind is None:
        return False
    if kind is Kind.DELTA:
        place = dropping.location(warehouse, target)
        if split(place) == split(table.location):
            return True
    raise Refused(
        f"{target} is {kind.words} that isn't over the files of {table.name}: rename or drop it, and resume "
        "the job"
    )


def _is_current(warehouse: Warehouse, table: HiveTable, wanted: Sequence[str]) -> bool:
    """Say whether the log names the files that there are.

    Raises:
        Refused: It isn't a conversion's log that nobody wrote to.
    """
    spark, path = warehouse.spark, f"delta.{quoted(table.location)}"
    *later, first = (row[0] for row in spark.sql(f"DESCRIBE HISTORY {path}").select("operation").collect())
    if first != "CONVERT" or not _DEFINING.issuperset(later):
        raise Refused(
            f"{table.location} is a Delta table that was written to, and {table.name} shows its files too: "
            f"drop {table.name} and keep the Delta table, or move its _delta_log away, and resume the job"
        )
    held = spark.sql(f"SELECT * FROM {path}").inputFiles()
    return sorted(map(split, held)) == sorted(map(split, wanted))


def check(warehouse: Warehouse, table: HiveTable, *, empty: bool) -> None:
    """Make sure that `make` can take a Hive table over as it is.

    Args:
        warehouse: Where it is.
        table: The table.
        empty: Whether it has no file.

    Raises:
        Refused: It can't.
        TableError: Something about it can't be read.
    """
    overlay.check(warehouse.spark, table.name, empty=empty, column_mapping=warehouse.column_mapping)
