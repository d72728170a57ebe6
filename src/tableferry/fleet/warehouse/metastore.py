"""A Hive metastore's own client, through the JVM of this process, for what no SQL of Spark changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tableferry.catalog import SPARK_ERRORS, in_process
from tableferry.errors import TableError, first_line
from tableferry.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reached(spark: SparkSession, name: TableName) -> bool:
    """Say whether this process's JVM reaches the metastore that has a table: not through Spark Connect."""
    if not in_process(spark) or name.parts[0] != DEFAULT_CATALOG:
        return False
    return spark.conf.get("spark.sql.catalogImplementation") == "hive"


def alter(spark: SparkSession, name: TableName, change: Callable[[Any], None]) -> None:
    """Change a table's entry, a Thrift ``Table`` of Hive's, and make this session see it.

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
            client.alter_table(database, table, entry)
        finally:
            client.close()
        spark.sql(f"REFRESH TABLE {name.sql}").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the metastore's entry of {name} can't be changed ({first_line(error)}): check your rights"
        ) from error
