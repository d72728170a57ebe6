"""Which names of a job are in the catalog, and what each is: one query, whatever logs and files say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.fleet.naming import Names
from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.hive.sql import text
from tableferry.tables import TableName

# Delta's spark_catalog shows an Iceberg table as Hive's, with this among its properties.
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
    [schema] = {TableName(name.parts[:-1]) for name in wanted.values()}
    try:
        rows = warehouse.spark.sql(
            f"SHOW TABLE EXTENDED IN {schema.sql} LIKE {text('|'.join(wanted))}"
        ).collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the tables of schema {schema} can't be listed ({first_line(error)}): check its name and your "
            "rights"
        ) from error
    there = {row["tableName"].lower(): row["information"] for row in rows if not row["isTemporary"]}
    return {wanted[table]: kind_of(said) for table, said in there.items() if table in wanted}


def kind_of(information: str) -> Kind:
    """Say what a table is, from what SHOW TABLE EXTENDED says of it."""
    # The first of each kind of line: properties and a view's text, which may have such lines, come later.
    type_, provider = (_line(information, key) for key in ("Type", "Provider"))
    if "VIEW" in type_.upper():
        return Kind.VIEW
    if provider.lower() == "delta":
        return Kind.DELTA
    if provider.lower() == "iceberg" or _ICEBERG.search(information):
        return Kind.ICEBERG
    return Kind.HIVE


def _line(information: str, key: str) -> str:
    found = re.search(rf"^{key}: (.*)$", information, re.MULTILINE)
    return found[1] if found else ""
