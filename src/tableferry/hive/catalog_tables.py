"""What the catalog itself says of the tables of a schema, in one statement and whatever their logs say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tableferry.catalog import SPARK_ERRORS, condition, explained
from tableferry.driver import in_process
from tableferry.hive.locations import reachable
from tableferry.hive.sql import pattern
from tableferry.tables import CatalogTable, TableName

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

# The Hive formats that people have, by the end of the input format's name.
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
    """Return what the catalog itself says of tables of a schema, by their names in lower case.

    A schema is its name, with its catalog in front if that isn't the current one; names may be patterns. Logs
    and files aren't looked at, so that a Delta table whose log is gone is found as well.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    within = TableName(tuple(schema))
    with explained(f"the tables of schema {within} can't be listed", "check its name and your rights"):
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
    """Return what SHOW TABLE EXTENDED says of tables of a schema, whose names may be patterns.

    Spark lists their names, then looks at one after the other, and fails if one went meanwhile, as where
    others rename tables of the schema: so it's asked again.
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
    """Give a bare name its schema, so that no temporary view can take the table's place."""
    if len(name.parts) != 1:
        return name
    return TableName((spark.catalog.currentCatalog(), spark.catalog.currentDatabase(), *name.parts))


def provider_name(provider: str, serde: str, input_format: str) -> str:
    """Name a table's format; Hive's is known by its SerDe."""
    if provider.lower() != "hive":
        return provider.lower()
    if serde == _PARQUET_SERDE:
        return "parquet"
    short = input_format.rpartition(".")[2]
    # Hive has a Parquet input format that rows of another SerDe can come through.
    return _HIVE_FORMATS.get(short, "hive") if "Parquet" not in short else "hive"


def _provider(details: dict[str, str]) -> str:
    return provider_name(*(details.get(key, "") for key in ("Provider", "Serde Library", "InputFormat")))


def details_of(information: str) -> dict[str, str]:
    """Return what SHOW TABLE EXTENDED says of a table, by the keys of its lines."""
    details: dict[str, str] = {}
    for line in information.splitlines():
        key, colon, value = line.partition(": ")
        # Comments, properties and a view's text may have lines of this form too. They come behind the table's
        # type and before where it is stored.
        if colon and (key in _STORAGE or key not in details):
            details[key] = value
    return details
