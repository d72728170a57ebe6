"""What the catalog itself says of the tables of a schema, in one statement and whatever their logs say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tableferry.catalog import SPARK_ERRORS
from tableferry.driver import in_process
from tableferry.errors import TableError, first_line
from tableferry.hive.locations import reachable
from tableferry.hive.sql import pattern
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
_STORAGE = ("Location", "Serde Library", "InputFormat")


@dataclass(frozen=True)
class CatalogTable:
    """What the catalog itself says of a table, whatever its log says.

    Attributes:
        name: The table, as the catalog spells it.
        provider: ``parquet``, ``delta``, ``view`` or another format.
        type: Whether dropping the table removes its files.
        location: The table's root, as Hadoop writes it: not percent-encoded.
        folder: The root, if this process sees the same files as Spark.
        created: When the entry was made, as the catalog spells it.
    """

    name: TableName
    provider: str
    type: Literal["managed", "external"]
    location: str
    folder: Path | None
    created: str = ""

    @property
    def is_delta(self) -> bool:
        """Whether the catalog takes it for a Delta table."""
        return self.provider == "delta"


def list_tables(
    spark: SparkSession, schema: Sequence[str], names: Sequence[str] = ("*",)
) -> dict[str, CatalogTable]:
    """Return what the catalog itself says of tables of a schema, by their names in lower case.

    Logs and files aren't looked at, so that a Delta table whose log is gone is found as well.

    Args:
        spark: The session.
        schema: Its catalog, if it isn't the current one, and its name.
        names: The tables' names, or patterns of names.

    Raises:
        TableError: There is no such schema, or it may not be listed.
    """
    within = TableName(tuple(schema))
    try:
        rows = spark.sql(f"SHOW TABLE EXTENDED IN {within.sql} LIKE {pattern(names)}").collect()
    except SPARK_ERRORS as error:
        raise TableError(
            f"the tables of schema {within} can't be listed ({first_line(error)}): check its name and your "
            "rights"
        ) from error
    same_machine = in_process(spark)
    tables = {}
    for row in rows:
        if not row["isTemporary"]:
            details = _details(row["information"])
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


def _details(information: str) -> dict[str, str]:
    details: dict[str, str] = {}
    for line in information.splitlines():
        key, colon, value = line.partition(": ")
        # Comments, properties and a view's text may have lines of this form too. They come behind the table's
        # type and before where it is stored.
        if colon and (key in _STORAGE or key not in details):
            details[key] = value
    return details
