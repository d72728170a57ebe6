"""Hive tables for the fleet's tests, and looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName


@dataclass
class NoAccess:
    """A metastore in which nobody may do less than another."""

    carried: list[tuple[TableName, TableName]] = field(default_factory=list)

    def owners(self, table: TableName) -> tuple[str, ...]:
        return ()

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        return ()

    def keeps_rights(self, table: TableName) -> bool:
        return False

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        return {}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None: ...

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None: ...

    def carry(self, source: TableName, target: TableName) -> None:
        self.carried.append((source, target))


def rows(warehouse: Warehouse, name: TableName, kind: Kind = Kind.HIVE) -> list[str]:
    """A table's rows, read by its name."""
    read = warehouse.iceberg(name) if kind is Kind.ICEBERG else name
    return sorted(repr(tuple(row)) for row in warehouse.spark.table(read.sql).collect())


def contents(warehouse: Warehouse, name: TableName) -> dict[str, bytes]:
    """Every file of a table's directory and of its partitions' outside of it, but for a Delta log."""
    table = hive.require_hive_table(warehouse, name)
    roots = {table.location, *(partition.location for partition in hive.partitions(warehouse, table))}
    return {
        str(path): path.read_bytes()
        for root in roots
        for path in Path(root.removeprefix("file:")).rglob("*")
        if path.is_file() and "_delta_log" not in path.parts
    }
