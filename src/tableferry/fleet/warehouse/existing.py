"""Which of a job's tables are in the catalog, and of what kind: one query, whatever logs and files say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tableferry.errors import TableError
from tableferry.fleet.naming import Names
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.asking import explaining
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.hive.sql import pattern
from tableferry.tables import TableName

# Delta's spark_catalog shows an Iceberg table as Hive's, with this among its properties.
_ICEBERG = re.compile(r"[\[ ]table_type=iceberg[,\]]", re.IGNORECASE)


def job_tables(warehouse: Warehouse, names: Names) -> Mapping[TableName, Kind]:
    """Return which of a job's tables exist, and of what kind each is.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    return kinds(warehouse, names.all)


def kind(warehouse: Warehouse, name: TableName) -> Kind:
    """Return of what kind a table is.

    Raises:
        TableError: There is no such table, or its schema may not be listed.
    """
    known = kinds(warehouse, (name,)).get(name)
    if known is None:
        raise TableError(f"there is no table {name}: check its name, its schema and your rights")
    return known


def qualified(warehouse: Warehouse, name: TableName) -> TableName:
    """Name a table as Spark reads it: an Iceberg table by Iceberg's own catalog.

    Raises:
        TableError: There is no such table, or its schema may not be listed.
    """
    return warehouse.iceberg(name) if kind(warehouse, name) is Kind.ICEBERG else name


def kinds(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Kind]:
    """Return which of some tables of one schema exist, and of what kind each is.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    by_table = {name.table.lower(): name for name in names}
    [schema] = {TableName(name.parts[:-1]) for name in by_table.values()}
    query = f"SHOW TABLE EXTENDED IN {schema.sql} LIKE {pattern(by_table)}"
    with explaining(f"the tables of schema {schema} can't be listed", "check its name and your rights"):
        rows = warehouse.spark.sql(query).collect()
    information = {row["tableName"].lower(): row["information"] for row in rows if not row["isTemporary"]}
    return {by_table[table]: kind_of(lines) for table, lines in information.items() if table in by_table}


def kind_of(information: str) -> Kind:
    """Return a table's kind, from what SHOW TABLE EXTENDED says of it."""
    # The first of such lines counts: properties and a view's text, which may have them too, come later.
    type_, provider = (_line(information, key) for key in ("Type", "Provider"))
    if "VIEW" in type_.upper():
        return Kind.VIEW
    if provider.lower() == "delta":
        return Kind.DELTA
    if provider.lower() == "iceberg" or _ICEBERG.search(information):
        return Kind.ICEBERG
    return Kind.HIVE


def _line(information: str, key: str) -> str:
    match = re.search(rf"^{key}: (.*)$", information, re.MULTILINE)
    return match[1] if match else ""
