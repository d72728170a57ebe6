"""Check on a scratch table that shadow runs will be able to write a Hive copy."""

from __future__ import annotations

import uuid
from dataclasses import replace
from itertools import islice

from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.update_plan import Columns
from tableferry.fleet.hive_tables.progress_properties import sync_folder
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.late_files.classification import basename
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.spark.catalog import explaining
from tableferry.spark.settings import optional_settings

# Each task reads only its first row, so few tasks with many files are faster.
_FEW_TASKS = {"spark.sql.files.maxPartitionBytes": str(2**50)}


def try_shadow(step: steps.TryShadow, run: StepRun) -> Job:
    """Write a row of a Hive table to a scratch table, as `shadow` writes rows, and remove it again.

    Before the switch, this finds problems that would fail a shadow run: names and types that Spark's or
    Hive's writer doesn't support, and missing permissions in the schema or beside the table's directory.

    Raises:
        TableError: The table can't be read, or the row can't be written.
    """
    warehouse, table = run.warehouse, step.table
    described = hive.require_hive_table(warehouse, table)
    # The scratch table's changes don't belong to the job.
    copy = HiveCopy.of(replace(warehouse, table_cache=None), described)
    # A new directory in the folder that contains no other table; a unique name avoids existing directories.
    beside = sync_folder(copy.location)
    folder = f"{beside}/try-{uuid.uuid4().hex[:8]}"
    row, files = warehouse.spark.table(table.sql).limit(1), basename("try")
    try:
        with (
            explaining("HIVE_COPY_NOT_WRITABLE", table=table, folder=beside),
            optional_settings(warehouse.spark, _FEW_TASKS),
        ):
            copy.write(row, folder, Columns({}, {}), files)
            with copy.scratch_table(folder) as name:
                scratch = replace(copy, name=name, location=folder, partitions=frozenset())
                for partition in islice(copy.partitions, 1 if copy.partition_columns else 0):
                    scratch.set_location(partition, f"{folder}/{copy.spelled(partition)}")
                scratch.insert(row, files)
    finally:
        copy.remove(folder, beside)
        copy.remove_empty(beside)
    return run.job
