"""Which names of a job are in the catalog, and what each is: one query, whatever logs and files say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tableferry.convert.through_spark.entries import details_of
from tableferry.errors import TableError
from tableferry.fleet.naming import Names
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.tables import TableName

# Delta's spark_catalog shows an Iceberg table as Hive's, with these among its properties.
_ICEBERG = re.compile(r"[\[ ]table_type=iceberg[,\]]", re.IGNORECASE)


def found(warehouse: Warehouse, names: Names) -> Mapping[TableName, Kind]:
    """Return which of a job's four names exist, and what each is.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    return kinds(warehouse, (names.main, names.hive, names.archived, names.copy))


def kind(warehouse: Warehouse, name: TableName) -> Kind:
    """Return what a table is.

    Raises:
        TableError: There is no such table, or its schema may not be listed.
    """
    known = kinds(warehouse, (name,)).get(name)
    if known is None:
        raise TableError(f"there is no table {name}: check its name, its schema and your rights")
    return known


def kinds(warehouse: Warehouse, names: Iterable[TableName]) -> Mapping[TableName, Kind]:
    """Return which of some names of one schema exist, and what each is.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    wanted = {name.table.lower(): name for name in names}
    [schema] = {name.parts[:-1] for name in wanted.values()}
    details = details_of(warehouse.spark, schema, "|".join(wanted))
    return {
        wanted[table.lower()]: kind_of(each) for table, each in details.items() if table.lower() in wanted
    }


def kind_of(details: Mapping[str, str]) -> Kind:
    """Say what a table is, from what SHOW TABLE EXTENDED or DESCRIBE says of it."""
    provider = details.get("Provider", "").lower()
    if "VIEW" in details.get("Type", "").upper():
        return Kind.VIEW
    if provider == "delta":
        return Kind.DELTA
    if provider == "iceberg" or _ICEBERG.search(details.get("Table Properties", "")):
        return Kind.ICEBERG
    return Kind.HIVE
