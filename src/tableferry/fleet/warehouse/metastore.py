"""A Hive metastore's own client, through the JVM of this process, for what no SQL of Spark changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from tableferry.catalog import SPARK_ERRORS
from tableferry.driver import in_process
from tableferry.errors import Refused, TableError, first_line
from tableferry.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reached(spark: SparkSession, name: TableName) -> bool:
    """Say whether this process's JVM reaches the metastore that has a table: not through Spark Connect."""
    if not in_process(spark) or name.parts[0] != DEFAULT_CATALOG:
        return False
    return spark.conf.get("spark.sql.catalogImplementation") == "hive"


def alter(
    spark: SparkSession, name: TableName, change: Callable[[Any], None], *, cascade: bool = False
) -> None:
    """Change a table's entry, a Thrift ``Table`` of Hive's, and make this session see it.

    Args:
        spark: The session.
        name: The table.
        change: Changes the entry.
        cascade: Whether its partitions get the columns that it has then.

    Raises:
        TableError: There is no such table, or it may not be changed.
    """
    jvm, java = spark._jvm, spark._jsparkSession
    assert jvm is not None
    database, table = name.parts[-2:]
    try:
        hadoop = java.sessionState().newHadoopConf()
        conf = jvm.org.apache.hadoop.hive.conf.HiveConf(hadoop, hadoop.getClass())
        client = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
        try:
            entry = client.getTable(database, table)
            change(entry)
            client.alter_table(database, table, entry, cascade)
        finally:
            client.close()
        spark.sql(f"REFRESH TABLE {name.sql}").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the metastore's entry of {name} can't be changed ({first_line(error)}): check your rights"
        ) from error


def set_columns(spark: SparkSession, name: TableName, columns: Mapping[str, str | None]) -> None:
    """Give a table, and all partitions that it has, other columns.

    A metastore compares types place by place, and lets a column become another only where values would do
    (Hive's ``hive.metastore.disallow.incompatible.col.type.changes``). It looks at no place that one side
    lacks: so all that follows the last common place is taken away before the others are added.

    Args:
        spark: The session.
        name: The table.
        columns: The columns but for those that it's partitioned by, in their order, with their types; None
            leaves a column's type and comment as they are.

    Raises:
        Refused: The metastore doesn't let the first column become another.
        TableError: There is no such table, or it may not be changed.
    """
    jvm = spark._jvm
    assert jvm is not None
    field = jvm.org.apache.hadoop.hive.metastore.api.FieldSchema
    known: dict[str, Any] = {}
    common = 0

    def change(entry: Any, count: int) -> None:
        nonlocal common
        before = list(entry.getSd().getCols())
        known.update({each.getName(): each for each in before if each.getName() not in known})
        if any(kind is None and each.lower() not in known for each, kind in columns.items()):
            # Types that Hive lacks: then Spark keeps the columns where Hive doesn't see them.
            return
        now = [
            known[each.lower()] if kind is None else field(each.lower(), kind.replace("`", ""), None)
            for each, kind in columns.items()
        ]
        same = (one.getType() == other.getType() for one, other in zip(before, now, strict=False))
        common = sum(takewhile(bool, same))
        fields = jvm.java.util.ArrayList()
        for each in now[:count]:
            fields.add(each)
        entry.getSd().setCols(fields)

    every = len(columns)
    try:
        alter(spark, name, lambda entry: change(entry, every), cascade=True)
    except TableError as error:
        if "types incompatible" not in str(error):
            raise
        if not common:
            raise Refused(
                f"the first column of {name} can't become {next(iter(columns))}, as the metastore is set to "
                "refuse that: set its hive.metastore.disallow.incompatible.col.type.changes to false, and "
                "resume the job"
            ) from error
        shorter = common
        alter(spark, name, lambda entry: change(entry, shorter), cascade=True)
        alter(spark, name, lambda entry: change(entry, every), cascade=True)
    _tell_spark(spark, name, columns)


def _tell_spark(spark: SparkSession, name: TableName, columns: Mapping[str, str | None]) -> None:
    """Write the columns where Spark keeps them once more, with their names as they are spelled."""
    jvm, java = spark._jvm, spark._jsparkSession
    assert jvm is not None
    types = jvm.org.apache.spark.sql.types.DataType
    catalog = java.sharedState().externalCatalog()
    database, table = name.parts[-2:]
    known = {
        each["name"].lower(): each
        for each in json.loads(catalog.getTable(database, table).schema().json())["fields"]
    }
    fields = [
        known[each.lower()] | {"name": each}
        if kind is None
        else {"name": each, "type": json.loads(types.fromDDL(kind).json()), "nullable": True, "metadata": {}}
        for each, kind in columns.items()
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    catalog.alterTableDataSchema(database, table, types.fromJson(schema))
    spark.sql(f"REFRESH TABLE {name.sql}").collect()
