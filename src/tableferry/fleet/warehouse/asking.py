"""Asks the catalog about one table, and turns what Spark answers with into this package's errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.spark.redaction import HIDDEN, SHOWN
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What the names of our own properties begin with.
_PREFIX = "tableferry."


def describe(spark: SparkSession, name: TableName, partition: str = "") -> dict[str, Any]:
    """Return what DESCRIBE … AS JSON says of a table, or of a partition that is named as in ALTER TABLE."""
    [row] = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} {partition} AS JSON").collect()
    return dict(json.loads(row[0]))


def properties(spark: SparkSession, name: TableName) -> dict[str, str]:
    """Return a table's properties.

    Raises:
        TableError: Spark hides one of ours.
    """
    rows = spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
    return demand_shown(name, {row["key"]: row["value"] for row in rows})


def demand_shown(name: TableName, properties: dict[str, str]) -> dict[str, str]:
    """Return a table's properties, if Spark hides none of ours.

    Raises:
        TableError: It does.
    """
    hidden = [key for key, value in properties.items() if value == HIDDEN and key.startswith(_PREFIX)]
    if hidden:
        raise TableError(
            "PROPERTIES_HIDDEN_BY_SPARK",
            table=name,
            properties=sorted(hidden),
            settings=", ".join(f"{key}={value}" for key, value in SHOWN.items()),
        )
    return properties
