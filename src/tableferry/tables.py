"""Names and facts of tables: frozen, and without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tableferry.errors import TableError
from tableferry.quoting import identifier, quote

DEFAULT_CATALOG = "spark_catalog"
METASTORES = (DEFAULT_CATALOG, "hive_metastore")
"""Catalogs that mean the default metastore, and are never Unity Catalog's, not on Databricks either."""

_PLAIN = re.compile(r"[^`.\s]+")
_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.\s]+))\s*(\.|$)")


def parts_of(text: str) -> tuple[str, ...]:
    """Read the parts of a name, with optional backticks.

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
    """The name of a table, or the path of one that has no name.

    Attributes:
        parts: One to three identifiers (catalog, schema, table), as the user wrote them.
        path: The folder of a table that is read by its path; then ``parts`` is empty.
    """

    parts: tuple[str, ...] = ()
    path: str | None = None

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read ``catalog.schema.table`` with optional backticks.

        Raises:
            TableError: The text isn't a table name.
        """
        parts = parts_of(text)
        if len(parts) > 3:
            raise TableError("TABLE_NAME_TOO_LONG", text=text, count=len(parts))
        return cls(parts)

    @classmethod
    def at(cls, path: str) -> TableName:
        """Name the Delta table in a folder by the folder's path."""
        return cls((), path.rstrip("/"))

    @property
    def sql(self) -> str:
        """The quoted name, as SQL reads it."""
        if self.path is not None:
            return f"delta.{quote(self.path)}"
        return ".".join(map(quote, self.parts))

    @property
    def plain_sql(self) -> str:
        """The name as SQL reads it, with backticks only where they are needed, for people to run."""
        return identifier(*self.parts) if self.path is None else self.sql

    @property
    def key(self) -> str:
        """What two spellings of one table share: lower case, without the default catalog."""
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
        """The last part alone."""
        return self.parts[-1] if self.parts else str(self.path)

    def __str__(self) -> str:
        if self.path is not None:
            return self.path
        return ".".join(part if _PLAIN.fullmatch(part) else quote(part) for part in self.parts)


TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
"""The property that lets a Delta table forget the batches of a stream that was idle for longer."""


@dataclass(frozen=True)
class TableFacts:
    """What is known of a Delta table at one moment.

    Attributes:
        table_id: The id of its Delta log, which a table made anew under the same name doesn't share; empty
            while a pipeline is being defined, where nobody can ask for it.
        folder: Where its log is, if this process can read it.
        properties: Its table properties; empty while a pipeline is being defined.
    """

    name: TableName
    table_id: str
    version: int
    folder: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)


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
