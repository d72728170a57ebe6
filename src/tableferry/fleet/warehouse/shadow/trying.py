"""Try on a scratch table what keeping a Hive copy in step will do to it, before the table is touched."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.changes import Columns
from tableferry.fleet.warehouse.shadow.hive_copy import HiveCopy
from tableferry.fleet.warehouse.shadow.late.classify import basename
from tableferry.fleet.warehouse.shadow.marks import synced
from tableferry.tables import TableName


def try_shadow(w: Warehouse, table: TableName) -> None:
    """Write a row of a Hive table beside it, as `shadow` writes rows, and take it away again.

    What can stop a shadow run is so found before the switch: names and types that Spark's or Hive's writer
    doesn't take, and rights that are missing in the schema or beside the table's directory.

    Args:
        w: The warehouse.
        table: The Hive table.

    Raises:
        TableError: The table can't be read, or no row can be written so.
    """
    copy = HiveCopy.read(w, table, owning=True)
    folder = f"{synced(copy.location)}_try"
    beside = folder.rpartition("/")[0]
    row, files = w.spark.table(table.sql).limit(1), basename("try")
    copy.remove(folder, beside)
    try:
        copy.write(row, folder, Columns({}, {}), files)
        with copy.scratch_table(folder) as name:
            scratch = replace(copy, name=name, location=folder, partitions=frozenset())
            for partition in islice(copy.partitions, 1 if copy.partition_columns else 0):
                scratch.point(partition, f"{folder}/{copy.spelled(partition)}")
            scratch.insert(row, files)
    except SPARK_ERRORS as error:
        raise TableError(
            f"no row of {table} can be written beside it, in {beside}, as its Hive copy will be kept in step "
            f"({first_line(error)}): mend that, or leave the table in Hive"
        ) from error
    finally:
        copy.remove(folder, beside)
