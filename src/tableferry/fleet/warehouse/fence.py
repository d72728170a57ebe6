"""A fence: a mark of what a table holds, and whether it still does, where nothing can block writers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from tableferry.fleet.job import TargetFormat
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse import hive, versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kind
from tableferry.fleet.warehouse.files import listing
from tableferry.tables import TableName


def mark(warehouse: Warehouse, name: TableName) -> Mapping[str, Any]:
    """Note what a table holds, as JSON: the same after a rename, and another after any write.

    A Hive table's mark is its files, by path, size and time, and its partitions with their locations; an
    Iceberg or Delta table's is its current version.

    Raises:
        TableError: There is no such table, or a directory can't be listed.
    """
    match kind(warehouse, name):
        case Kind.ICEBERG:
            return {"version": versions.current(warehouse, name, TargetFormat.ICEBERG)}
        case Kind.DELTA:
            return {"version": versions.current(warehouse, name, TargetFormat.DELTA)}
    table = hive.demand(warehouse, name)
    partitions = hive.partitions(warehouse, table)
    found = listing(warehouse, table, partitions)
    files = [*found.read, *found.nested, *found.stray]
    digest = sha256()
    lines = [f"{each.path}\t{each.size}\t{each.modified}" for each in files]
    for line in sorted([*lines, *map(str, partitions)]):
        digest.update(line.encode("utf-8", "surrogateescape") + b"\n")
    return {
        "files": len(files),
        "bytes": sum(each.size for each in files),
        "partitions": len(partitions),
        "sha256": digest.hexdigest(),
    }


def differences(warehouse: Warehouse, name: TableName, marked: Mapping[str, Any]) -> str:
    """Say what changed since a mark; empty if nothing did.

    Raises:
        TableError: There is no such table, or a directory can't be listed.
    """
    now = mark(warehouse, name)
    if now == marked:
        return ""
    if "version" in now:
        return f"it was at version {marked.get('version')}, and is at {now['version']}"
    counted = [
        f"{marked.get(what, 0):,} {what} are {now[what]:,} now"
        for what in ("files", "bytes", "partitions")
        if marked.get(what) != now[what]
    ]
    return ", ".join(counted) or "a file was written again, or a partition was moved"
