"""Read the current version of a target."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

NO_SNAPSHOT = "-1"
"""The version of an Iceberg table that was never written to."""

_SNAPSHOT = re.compile(r"[\[,]current-snapshot-id=(\d+|none)(?=[,\]])")


def current_version(warehouse: Warehouse, table: TableName, form: TargetFormat) -> str:
    """Return an Iceberg table's snapshot id or a Delta table's version, as text."""
    spark = warehouse.spark
    if form is TargetFormat.ICEBERG:
        refs = f"{warehouse.iceberg(table).sql}.refs"
        rows = spark.sql(f"SELECT snapshot_id AS version FROM {refs} WHERE name = 'main'").collect()
    else:
        rows = spark.sql(f"DESCRIBE HISTORY {table.sql} LIMIT 1").select("version").collect()
    return str(rows[0]["version"]) if rows else NO_SNAPSHOT


def snapshot_in_properties(properties: Mapping[str, str]) -> str:
    """Return an Iceberg table's snapshot id from the result of SHOW TBLPROPERTIES."""
    return properties.get("current-snapshot-id", "none").replace("none", NO_SNAPSHOT)


def snapshot_in_description(details: Mapping[str, str]) -> str | None:
    """Return an Iceberg table's snapshot id from the result of DESCRIBE; None if it's ambiguous."""
    # A user's property may contain the same text.
    found = _SNAPSHOT.findall(details.get("Table Properties", ""))
    return found[0].replace("none", NO_SNAPSHOT) if len(found) == 1 else None
