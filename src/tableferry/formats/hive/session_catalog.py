"""List a table's partitions with one call to the session catalog, if Spark's driver is this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tableferry.errors import is_sparks
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark import java
from tableferry.spark.driver import in_process
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)


def partitions(spark: SparkSession, table: TableName) -> list[CatalogPartition] | None:
    """Return a table's partitions, or None if the caller must use SQL.

    None means that this process can't reach the catalog, that the table is in another catalog, or that the
    catalog doesn't track its partitions.
    """
    if len(table.parts) != 3 or table.parts[0] != DEFAULT_CATALOG or not in_process(spark):
        return None
    try:
        return _partitions(spark, *table.parts[1:])
    except Exception as error:
        # Shared clusters block access to Java. On runtimes without one of these classes, py4j returns a
        # JavaPackage instead, which raises AttributeError or TypeError.
        if not is_sparks(error) and not isinstance(error, (AttributeError, TypeError)):
            raise
        _log.debug("SQL is asked for the partitions of %s: %s", table, error)
        return None


def _partitions(spark: SparkSession, schema: str, table: str) -> list[CatalogPartition] | None:
    jvm: Any = spark._jvm
    context, lang, sql = spark.sparkContext, jvm.java.lang, jvm.org.apache.spark.sql
    catalog = spark._jsparkSession.sessionState().catalog()
    name = sql.catalyst.TableIdentifier(table, jvm.scala.Option.apply(schema))
    described = catalog.getTableMetadata(name)
    if not described.tracksPartitionsInCatalog():
        # Spark discovers the partitions from the directories, and SHOW PARTITIONS reports that.
        return None
    found = jvm.scala.jdk.javaapi.CollectionConverters.asJava(
        catalog.listPartitions(name, jvm.scala.Option.empty())
    )
    partition, path = sql.catalyst.catalog.CatalogTablePartition, jvm.org.apache.hadoop.fs.Path
    lookup, method_type = lang.invoke.MethodHandles.publicLookup(), lang.invoke.MethodType.methodType

    # Format the values as SHOW PARTITIONS does.
    columns = described.partitionSchema()
    values = jvm.scala.collection.immutable.Map._java_lang_class
    written = lookup.findStatic(
        sql.execution.datasources.PartitioningUtils._java_lang_class,
        "getPathFragment",
        method_type(lang.String._java_lang_class, java.classes(context, values, columns.getClass())),
    )
    written = lang.invoke.MethodHandles.insertArguments(written, 1, java.array(context, "Object", [columns]))
    specs = java.mapped(jvm, java.results(jvm, found, partition, "spec", values), written)

    # The catalog's URIs are percent-encoded, but Hadoop's paths aren't.
    uri = jvm.java.net.URI._java_lang_class
    decoded = lookup.findConstructor(
        path._java_lang_class, method_type(lang.Void.TYPE, java.classes(context, uri))
    )
    paths = java.mapped(jvm, java.results(jvm, found, partition, "location", uri), decoded)
    return list(map(CatalogPartition, java.texts(jvm, specs, lang.String), java.texts(jvm, paths, path)))
