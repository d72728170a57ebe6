"""Restore tables that people dropped: the Hive copy from the new table, a Delta table from its log."""

from __future__ import annotations

import logging
import uuid

from tableferry.convert import overlay
from tableferry.fleet.hive_copy.changes import plan_columns
from tableferry.fleet.hive_copy.delta_changes import DeltaTarget
from tableferry.fleet.hive_copy.target import Target, read_target
from tableferry.fleet.hive_tables.copy_locations import hive_location_of
from tableferry.fleet.hive_tables.hive_table import PURGE, SOURCE
from tableferry.fleet.hive_tables.progress_properties import ROOT, TARGET
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import entries
from tableferry.formats.hive.sql import in_metastore
from tableferry.spark import catalog
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# The formats in which Spark creates and writes a Hive table without Hive's writer.
_FORMATS = ("parquet", "orc", "avro")


def restore_hive_copy(
    warehouse: Warehouse, target: TableName, hive: TableName, form: TargetFormat, stored_as: str | None
) -> None:
    """Recreate a dropped Hive copy as an external table without rows, in an empty directory.

    Its columns are the new table's. The next shadow run writes all rows. An existing copy isn't changed.

    Args:
        warehouse: The warehouse.
        target: The new table.
        hive: The Hive copy.
        form: The new table's format.
        stored_as: The format of the Hive table's files; Parquet replaces a format that Spark can't write.

    Raises:
        Refused: Hive has no type for a column.
        TableError: The new table can't be read, or the Hive table can't be created.
    """
    found = entries(warehouse, (target, hive))
    if hive in found:
        return
    new = read_target(warehouse, target, form)
    root = hive_location_of(found[target].location, form)
    keys = _partition_columns(new)
    types = new.columns()
    every = plan_columns({}, types, (), new.type_substitutes, str(hive)).every
    named = {column.lower() for column in keys}
    columns = ", ".join(f"{quote(name)} {kind}" for name, kind in every.items() if name.lower() not in named)
    by = ", ".join(f"{quote(name)} {every[name]}" for name in every if name.lower() in named)
    stored = stored_as if stored_as in _FORMATS else "parquet"
    properties = {ROOT: root, PURGE: "false"}
    location = f"{root}_restored_{uuid.uuid4().hex[:8]}"
    statement = (
        f"CREATE EXTERNAL TABLE {in_metastore(hive)} ({columns}) "
        f"{f'PARTITIONED BY ({by}) ' if by else ''}STORED AS {stored.upper()} "
        f"LOCATION {literal(location)} TBLPROPERTIES {pairs(properties)}"
    )
    with explaining("HIVE_COPY_NOT_RESTORED", table=hive):
        warehouse.run(statement, of=(hive,))
    _log.warning("%s was recreated in %s; the next shadow run copies the rows of %s", hive, location, target)


def restore_entry(warehouse: Warehouse, target: TableName, hive: TableName, form: TargetFormat) -> bool:
    """Create the catalog entry of a dropped Delta table again, and return whether its log still exists.

    The log is expected in the Hive table's directory. The Hive copy's properties contain the id of the table
    that it was copied from; a log with another id is ignored.

    Raises:
        TableError: The Hive copy can't be described, or the table can't be created.
    """
    if form is not TargetFormat.DELTA:
        return False
    properties = table_descriptions.properties(warehouse.spark, hive)
    root = properties.get(ROOT)
    if root is None or not overlay.has_log(warehouse.spark, root):
        return False
    facts = catalog.facts(warehouse.spark, TableName.at(root))
    if facts is None or properties.get(TARGET, facts.table_id) != facts.table_id:
        return False
    with explaining("NEW_TABLE_NOT_RESTORED", table=target, folder=root):
        warehouse.run(f"CREATE TABLE {target.sql} USING delta LOCATION {literal(root)}", of=(target,))
    return True


def adopt_table(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> None:
    """Record that a table was created from a Hive table, so that the job continues with it.

    Raises:
        TableError: Permission to change its properties is missing.
    """
    with explaining("TABLE_NOT_CHANGED", table=target):
        warehouse.run(
            f"ALTER TABLE {warehouse.named(target, form).sql} "
            f"SET TBLPROPERTIES ({literal(SOURCE)} = {literal(source.key)})",
            of=(target,),
        )


def drop_entry(warehouse: Warehouse, target: TableName, form: TargetFormat) -> None:
    """Drop the catalog entry of a table whose metadata files are missing; its data files stay.

    Raises:
        TableError: Permission to drop it is missing.
    """
    with explaining("TABLE_NOT_DROPPED", table=target):
        warehouse.run(f"DROP TABLE {warehouse.named(target, form).sql}", of=(target,))


def _partition_columns(target: Target) -> tuple[str, ...]:
    if isinstance(target, DeltaTarget):
        return target.partition_columns
    return target.metadata.first_partition_columns()
