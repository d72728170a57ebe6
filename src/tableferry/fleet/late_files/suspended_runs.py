"""Find files that a suspended shadow run added to the Hive table after the last shadow run.

A suspended run may commit its insert after another run copied the same rows. The next shadow run finds these
files and rewrites the partition. After a revert there is no next shadow run, so these checks find the files.
"""

from __future__ import annotations

from tableferry.errors import Refused
from tableferry.fleet.hive_tables.progress_properties import TARGET, ShadowProgress
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.late_files.classification import run_of
from tableferry.fleet.late_files.file_record import FileRecord
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import listing
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.spark.tables import TableName


class DuplicateRows(Refused):
    """A Hive table reads files with duplicate rows."""


def check_suspended(step: steps.CheckSuspended, run: StepRun) -> Job:
    """Check that the Hive table of a job reads no file of an unfinished shadow run."""
    require_no_suspended_files(run.warehouse, step.hive)
    return run.job


def require_no_suspended_files(warehouse: Warehouse, name: TableName) -> None:
    """Check that a Hive table reads no file of an unfinished shadow run.

    Raises:
        DuplicateRows: The table reads such a file.
        TableError: The table is missing, or a directory can't be listed.
    """
    if files := list_suspended_files(warehouse, name):
        raise DuplicateRows("ROWS_READ_TWICE", table=name, files=[file.path for file in files])


def list_suspended_files(warehouse: Warehouse, name: TableName) -> list[ListedFile]:
    """Return the files of unfinished shadow runs that a Hive table reads."""
    table = hive.require_hive_table(warehouse, name)
    if TARGET not in table.properties:
        return []
    marks = ShadowProgress.read(table.properties, table.location, table.properties[TARGET], None)
    read = listing(warehouse, table, hive.partitions(warehouse, table)).read
    files = [file for file in read if (run := run_of(file.path)) and run not in marks.runs]
    record = FileRecord.of(warehouse, table.properties) if files else None
    if record is None or not record.exists():
        return files
    # Files that existed at the switch belong to an earlier migration's runs.
    return sorted(set(files) - record.files().known)
