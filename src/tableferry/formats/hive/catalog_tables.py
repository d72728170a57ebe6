"""List a schema's tables from the catalog with one statement, without reading their logs or files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tableferry.formats.hive.locations import reachable
from tableferry.formats.hive.sql import pattern
from tableferry.spark.catalog import SPARK_ERRORS, condition, explaining
from tableferry.spark.driver import in_process
from tableferry.spark.tables import CatalogTable, TableName

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

# Common formats of Hive tables, by the class name of the input format.
_HIVE_FORMATS = {
    "MapredParquetInputFormat": "parquet",
    "OrcInputFormat": "orc",
    "AvroContainerInputFormat": "avro",
    "TextInputFormat": "text",
    "SequenceFileInputFormat": "sequencefile",
    "RCFileInputFormat": "rcfile",
}
_PARQUET_SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
_TRIES = 10
_STORAGE = ("Location", "Serde Library", "InputFormat")


def list_tables(
    spark: SparkSession, schema: Sequence[str], names: Sequence[str] = ("*",)
) -> dict[str, CatalogTable]:
    """Return the catalog's entries for tables of a schema, by their names in lower case.

    The result includes Delta tables without a log, because logs and files aren't read.

    Args:
        spark: The session.
        schema: The schema's name, after the catalog's name if that isn't the current catalog.
        names: Names of tables, or patterns with ``*``.

    Raises:
        TableError: The schema is missing, or it can't be listed.
    """
    within = TableName(tuple(schema))
    with explaining("TABLES_NOT_LISTABLE", schema=within):
        rows = shown_tables(spark, within, names)
    same_machine = in_process(spark)
    tables = {}
    for row in rows:
        if not row["isTemporary"]:
            details = details_of(row["information"])
            kind, location = details.get("Type", "").upper(), details.get("Location", "")
            tables[row["tableName"].lower()] = CatalogTable(
                TableName((*schema, row["tableName"])),
                "view" if "VIEW" in kind else _provider(details),
                "managed" if kind == "MANAGED" else "external",
                location,
                reachable(location, same_machine=same_machine),
                details.get("Created Time", ""),
            )
    return tables


def shown_tables(spark: SparkSession, schema: TableName, names: Iterable[str]) -> list[Row]:
    """Return the rows of SHOW TABLE EXTENDED for tables of a schema; names may be patterns.

    Spark lists the names and then reads each table. It fails if another process drops or renames a table in
    between, so the query is retried.
    """
    query = f"SHOW TABLE EXTENDED IN {schema.sql} LIKE {pattern(names)}"
    for _ in range(_TRIES - 1):
        try:
            return spark.sql(query).collect()
        except SPARK_ERRORS as error:
            if condition(error) != "TABLE_OR_VIEW_NOT_FOUND":
                raise
    return spark.sql(query).collect()


def qualified(spark: SparkSession, name: TableName) -> TableName:
    """Add the current catalog and schema to a bare name, so that it can't resolve to a temporary view."""
    if len(name.parts) != 1:
        return name
    return TableName((spark.catalog.currentCatalog(), spark.catalog.currentDatabase(), *name.parts))


def provider_name(provider: str, serde: str, input_format: str) -> str:
    """Return a table's format. The SerDe and the input format of a Hive table decide its format."""
    if provider.lower() != "hive":
        return provider.lower()
    if serde == _PARQUET_SERDE:
        return "parquet"
    short = input_format.rpartition(".")[2]
    # A table with Hive's Parquet input format may have another SerDe, so only the SerDe decides.
    return _HIVE_FORMATS.get(short, "hive") if "Parquet" not in short else "hive"


def _provider(details: dict[str, str]) -> str:
    return provider_name(*(details.get(key, "") for key in ("Provider", "Serde Library", "InputFormat")))


def details_of(information: str) -> dict[str, str]:
    """Parse the ``key: value`` lines that SHOW TABLE EXTENDED returns for a table."""
    details: dict[str, str] = {}
    for line in information.splitlines():
        key, colon, value = line.partition(": ")
        # Comments, properties and a view's text may have lines of this form too. They follow the table's type
        # and precede its storage, so the first line of a key counts, and the last line of a storage key.
        if colon and (key in _STORAGE or key not in details):
            details[key] = value
    return details
