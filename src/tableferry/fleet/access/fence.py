"""A fence, where nothing can block writers: what a table held when it was marked, and what changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import hive, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import digest
from tableferry.fleet.warehouse.job_tables import kind
from tableferry.spark.tables import TableName


def mark(warehouse: Warehouse, name: TableName) -> Mapping[str, Any]:
    """Return what a table holds, as JSON: the same after a rename, and another after any write.

    A Hive table's mark is its files, by path, size and time, and its partitions with their locations; an
    Iceberg or Delta table's is its current version.

    Raises:
        TableError: There is no such table, or a directory can't be listed.
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
    """Describe what changed since a mark; empty if nothing did.

    Raises:
        TableError: There is no such table, or a directory can't be listed.
    """
    now = mark(warehouse, name)
    if now == marked:
        return ""
    if "version" in now:
        return f"it was at version {marked.get('version')}, and is at {now['version']}"
    changed = [
        f"{marked.get(measure, 0):,} {measure} are {now[measure]:,} now"
        for measure in ("files", "bytes", "partitions")
        if marked.get(measure) != now[measure]
    ]
    return ", ".join(changed) or "a file was written again, or a partition was moved"
