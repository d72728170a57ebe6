"""Find writes during a block: compare a table's contents with their mark from the block.

Each block has this fence, because some catalogs have no privileges to revoke, and owners can always write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tableferry.errors import Refused
from tableferry.fleet.commands import command
from tableferry.fleet.hive_tables.table_files import digest
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import kind
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.spark.tables import TableName


class WrittenDuringBlock(Refused):
    """Another process wrote to the table while writes were blocked."""


def check_fence(step: steps.CheckFence, run: StepRun) -> Job:
    """Check that a table has the contents that it had at the block.

    Raises:
        WrittenDuringBlock: The table changed while writes were blocked.
        TableError: The table doesn't exist, or a directory can't be listed.
    """
    if found := differences(run.warehouse, step.table, run.job.record.fence):
        raise WrittenDuringBlock(
            "TABLE_WRITTEN_WHILE_BLOCKED",
            table=step.table,
            differences=found,
            command=command("resume", run.job.name),
        )
    return run.job


def mark(warehouse: Warehouse, name: TableName) -> Mapping[str, Any]:
    """Return a mark of a table's contents, as JSON; a rename keeps it, and each write changes it.

    The mark of a Hive table is a digest of its files (path, size and time) and of its partitions with their
    locations. The mark of an Iceberg or Delta table is its current version.

    Raises:
        TableError: The table doesn't exist, or a directory can't be listed.
    """
    match kind(warehouse, name):
        case Kind.ICEBERG | Kind.DELTA as target:
            return {"version": target_versions.current_version(warehouse, name, TargetFormat(target.value))}
    listed = hive.list_table_files(warehouse, hive.read_layout(warehouse, name))
    files = listed.listing.files
    return {
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "partitions": len(listed.partitions),
        "sha256": digest(files, *map(str, listed.partitions)),
    }


def differences(warehouse: Warehouse, name: TableName, marked: Mapping[str, Any]) -> str:
    """Describe the changes since a mark; empty if there are none.

    Raises:
        TableError: The table doesn't exist, or a directory can't be listed.
    """
    now = mark(warehouse, name)
    if now == marked:
        return ""
    if "version" in now:
        return f"its version changed from {marked.get('version')} to {now['version']}"
    changed = [
        f"{measure} changed from {marked.get(measure, 0):,} to {now[measure]:,}"
        for measure in ("files", "bytes", "partitions")
        if marked.get(measure) != now[measure]
    ]
    return ", ".join(changed) or "a file was rewritten, or a partition has a new location"
