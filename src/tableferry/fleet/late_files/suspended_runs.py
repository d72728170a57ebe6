"""Finds files that a suspended shadow run added to the Hive table when no other run was to come.

A run that sleeps inside its insert may commit after another one has copied the same rows. The next run finds
its files and writes that partition anew; but after a revert there is no next one, and the table is people's.
"""

from __future__ import annotations

from tableferry.errors import Refused
from tableferry.fleet.hive_tables.progress_properties import TARGET, ShadowProgress
from tableferry.fleet.late_files.classification import run_of
from tableferry.fleet.late_files.file_record import Record
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import ListedFile, listing
from tableferry.spark.tables import TableName


class RowsTwice(Refused):
    """A Hive table reads files whose rows it has a second time."""


def demand_none(warehouse: Warehouse, name: TableName) -> None:
    """Make sure that a Hive table reads no file of a shadow run that didn't end.

    Raises:
        RowsTwice: It does.
        TableError: There is no such table, or a directory can't be listed.
    """
    if files := suspended(warehouse, name):
        raise RowsTwice("ROWS_READ_TWICE", table=name, files=[file.path for file in files])


def suspended(warehouse: Warehouse, name: TableName) -> list[ListedFile]:
    """Return the files that a Hive table reads, and that shadow runs wrote which didn't end."""
    table = hive.require_hive_table(warehouse, name)
    if TARGET not in table.properties:
        return []
    marks = ShadowProgress.read(table.properties, table.location, table.properties[TARGET], None)
    read = listing(warehouse, table, hive.partitions(warehouse, table)).read
    files = [file for file in read if (run := run_of(file.path)) and run not in marks.runs]
    record = Record.of(warehouse, table.properties) if files else None
    if record is None or not record.is_there():
        return files
    # What was there at the switch is of an earlier migration's runs.
    return sorted(set(files) - record.files().known)
