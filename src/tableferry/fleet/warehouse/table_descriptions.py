"""Read the description and the properties of one table from the catalog."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.spark.redaction import HIDDEN, SHOWN
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The prefix of the properties that Tableferry sets.
_PREFIX = "tableferry."


def describe(spark: SparkSession, name: TableName, partition: str = "") -> dict[str, Any]:
    """Return the result of DESCRIBE … AS JSON for a table, or for a partition spec as in ALTER TABLE."""
    [row] = spark.sql(f"DESCRIBE TABLE EXTENDED {name.sql} {partition} AS JSON").collect()
    return dict(json.loads(row[0]))


def properties(spark: SparkSession, name: TableName) -> dict[str, str]:
    """Return a table's properties.

    Raises:
        TableError: Spark hides a property that Tableferry set.
    """
    rows = spark.sql(f"SHOW TBLPROPERTIES {name.sql}").collect()
    return require_shown_properties(name, {row["key"]: row["value"] for row in rows})


def require_shown_properties(name: TableName, properties: dict[str, str]) -> dict[str, str]:
    """Return a table's properties after a check that Spark hides none that Tableferry set.

    Raises:
        TableError: Spark hides one.
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
