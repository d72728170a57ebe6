"""Frozen data classes for table names and table metadata; they don't need Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tableferry.errors import TableError
from tableferry.spark.quoting import identifier, quote

DEFAULT_CATALOG = "spark_catalog"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
"""Delta's implementation of the default catalog."""

METASTORES = (DEFAULT_CATALOG, "hive_metastore")
"""The catalogs of the default Hive metastore; they are never Unity Catalog's, even on Databricks."""

_PLAIN = re.compile(r"[^`.\s]+")
_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.\s]+))\s*(\.|$)")


def parts_of(text: str) -> tuple[str, ...]:
    """Split a dotted name, with optional backticks, into its parts.

    Raises:
        TableError: The text isn't a name.
    """
    parts: list[str] = []
    position = 0
    while position < len(text) or not parts:
        match = _PART.match(text, position)
        if match is None or (match[3] == "." and match.end() == len(text)):
            raise TableError("TABLE_NAME_INVALID", text=text)
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
    return tuple(parts)


@dataclass(frozen=True, order=True)
class TableName:
    """The name of a table, or the path of a table without a name.

    Attributes:
        parts: One to three identifiers (catalog, schema, table), as the user wrote them; empty for a path.
        path: The folder of a table that is read by its path.
    """

    parts: tuple[str, ...] = ()
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Parse ``catalog.schema.table`` with optional backticks.

        Raises:
            TableError: The text isn't a table name.
        """
        parts = parts_of(text)
        if len(parts) > 3:
            raise TableError("TABLE_NAME_TOO_LONG", text=text, count=len(parts))
        return cls(parts)

    @classmethod
    def at(cls, path: str) -> TableName:
        """Return the name of the Delta table in a folder, which is the folder's path."""
        return cls((), path.rstrip("/"))

    @property
    def sql(self) -> str:
        """The name in SQL, with each part in backticks."""
        if self.path is not None:
            return f"delta.{quote(self.path)}"
        return ".".join(map(quote, self.parts))

    @property
    def plain_sql(self) -> str:
        """The name in SQL for messages, with backticks only around the parts that need them."""
        return identifier(*self.parts) if self.path is None else self.sql

    @property
    def key(self) -> str:
        """The normalized name, for comparisons: in lower case, without the default catalog."""
        if self.path is not None:
            return self.path.removeprefix("file:").rstrip("/")
        parts = [part.lower() for part in self.parts]
        if len(parts) == 3 and parts[0] == DEFAULT_CATALOG:
            parts = parts[1:]
        if len(parts) == 1:
            parts = ["default", *parts]
        return ".".join(parts)

    @property
    def table(self) -> str:
        """The last part of the name, or the path."""
        return self.parts[-1] if self.parts else str(self.path)

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in self.parts)


TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
"""The property after whose duration a Delta table removes the ``txn`` actions of an idle stream."""


@dataclass(frozen=True)
class TableLayout:
    """The partition columns of a Delta table, and its top-level columns that are NOT NULL."""

    partition_columns: tuple[str, ...]
    required_columns: tuple[str, ...]


@dataclass(frozen=True)
class TableFacts:
    """The metadata of a Delta table at one moment.

    Attributes:
        name: The table's name.
        table_id: The id in the Delta log, which differs in a recreated table; empty if the platform doesn't
            return it while a pipeline is being defined.
        version: The newest version.
        folder: The table's folder, if this process can read its log; otherwise None.
        properties: The table properties; empty where ``table_id`` is empty.
        layout: The layout in the log; None if the log wasn't read, or the table is clustered.
        column_types: The types of its top-level columns as in the log's JSON, by name in lower case; empty if
            the log wasn't read.
    """

    name: TableName
    table_id: str
    version: int
    folder: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)
    layout: TableLayout | None = field(default=None, compare=False)
    column_types: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class CatalogTable:
    """The catalog's entry of a table, independent of a Delta log.

    Attributes:
        name: The name in the catalog's spelling.
        provider: ``parquet``, ``delta``, ``view`` or another format.
        type: ``managed`` if dropping the table removes its files, otherwise ``external``.
        location: The table's root directory in Hadoop's spelling, which isn't percent-encoded.
        folder: The root directory as a local path, if this process sees the same files as Spark.
        created: The entry's creation time in the catalog's spelling.
    """

    name: TableName
    provider: str
    type: Literal["managed", "external"]
    location: str
    folder: Path | None
    created: str = ""

    @property
    def is_delta(self) -> bool:
        """Whether the catalog's provider is Delta."""
        return self.provider == "delta"
