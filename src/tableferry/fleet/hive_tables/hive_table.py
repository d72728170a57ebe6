"""The metadata of a Hive table and its types in Iceberg; without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from tableferry.fleet.jobs.step_plan import Kind
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import ColumnPath

Format = Literal["parquet", "orc", "avro", "text", "csv", "json", "sequencefile", "other"]


Type = Mapping[str, Any]
"""A column's type as DESCRIBE … AS JSON writes it: ``{"name": "decimal", "precision": 10, "scale": 2}``."""


AVRO_SCHEMAS = ("avro.schema.literal", "avro.schema.url")
"""The properties of a Hive table that contain its Avro schema or the schema's address."""

PURGE = "external.table.purge"
"""The property with which Hive 3 removes an external table's files when the table is dropped."""

SOURCE = "tableferry.source"
"""The property with the name of the Hive table from which a target was created."""


SOURCE_FILES = "tableferry.files"
"""The property with the fingerprint of the files and partitions from which an Iceberg target was created."""


READING = "tableferry.reading"
"""The property with the columns and read options with which a Hive table was rewritten."""


_SAME_IN_ICEBERG = frozenset(
    {
        "boolean",
        "int",
        "bigint",
        "float",
        "double",
        "decimal",
        "date",
        "timestamp_ltz",
        "timestamp_ntz",
        "string",
        "binary",
    }
)


# Iceberg lacks narrow integers and lengths; these wider types store the same values.
_WIDER_IN_ICEBERG = {"tinyint": "int", "smallint": "int", "varchar": "string"}


@dataclass(frozen=True)
class HiveColumn:
    """A column of a Hive table.

    Attributes:
        default: The default for INSERT, as SQL; empty for null.
    """

    name: str
    type: Type
    comment: str = ""
    default: str = ""


@dataclass(frozen=True)
class HiveTable:
    """A table's metadata in the catalog; only name and kind if it isn't a Hive table.

    Attributes:
        format: The file format; ``csv`` and ``json`` also for Hive's SerDes over text files.
        managed: Whether DROP removes the files, and RENAME moves them.
        location: The directory in Hadoop's form, not percent-encoded.
        columns: All columns in order; the partition columns are last.
        buckets: The number of buckets; 0 for none.
        transactional: Whether the table is a Hive ACID table.
        properties: All table properties, including those that the metastore sets.
        options: The read options of the files.
        serde: Hive's SerDe class; empty for a table that Spark reads without one.
    """

    name: TableName
    kind: Kind
    format: Format = "other"
    managed: bool = False
    location: str = ""
    columns: tuple[HiveColumn, ...] = ()
    partition_columns: tuple[str, ...] = ()
    buckets: int = 0
    transactional: bool = False
    comment: str = ""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    owner: str = ""
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    serde: str = ""

    @property
    def stored_columns(self) -> list[HiveColumn]:
        """The columns in the files: all except the partition columns."""
        keys = {name.lower() for name in self.partition_columns}
        return [column for column in self.columns if column.name.lower() not in keys]

    @property
    def columns_text(self) -> str:
        """The columns' names and types, in one line."""
        return json.dumps([[column.name, column.type] for column in self.columns])

    @property
    def reading(self) -> str:
        """The columns, the read options and the SerDe's settings, in one line."""
        by_serde = {key: value for key, value in self.properties.items() if key.startswith(_READ_BY_SERDES)}
        options = {**(by_serde if self.serde else {}), **self.options}
        return self.columns_text + (json.dumps(sorted(options.items())) if options else "")


def stored_types(columns: Iterable[HiveColumn]) -> dict[ColumnPath, Type]:
    """Return the types of all leaf fields, by paths in lower case."""

    def inside(path: ColumnPath, kind: Type) -> Iterator[tuple[ColumnPath, Type]]:
        if not (parts := child_types(kind)):
            yield path, kind
        for name, part in parts:
            yield from inside((*path, name.lower()), part)

    return {path: kind for each in columns for path, kind in inside((each.name.lower(),), each.type)}


def iceberg_ids(columns: Iterable[HiveColumn]) -> dict[ColumnPath, int]:
    """Return the ids, from 1, that a new Iceberg table assigns to columns and fields, by paths in lower case.

    Pass all columns of the table, also its partition columns, because they count. A struct's fields get ids
    before their nested fields, as in ``AssignFreshIds`` in Iceberg's sources.
    """
    numbers, ids = count(1), dict[ColumnPath, int]()

    def number(path: ColumnPath, parts: Sequence[tuple[str, Type]]) -> None:
        paths = [(*path, name.lower()) for name, _ in parts]
        ids.update(zip(paths, numbers, strict=False))
        for inner, (_, kind) in zip(paths, parts, strict=True):
            number(inner, child_types(kind))

    number((), [(column.name, column.type) for column in columns])
    return ids


def child_types(kind: Type) -> Sequence[tuple[str, Type]]:
    """Return the direct children of a type: a struct's fields, an array's element, a map's key and value."""
    match kind["name"]:
        case "struct":
            return [(field["name"], field["type"]) for field in kind["fields"]]
        case "array":
            return [("element", kind["element_type"])]
        case "map":
            return [("key", kind["key_type"]), ("value", kind["value_type"])]
        case _:
            return []


def column_paths(columns: Iterable[HiveColumn]) -> Iterator[ColumnPath]:
    """Yield the paths of all columns and fields."""

    def inside(path: ColumnPath, kind: Type) -> Iterator[ColumnPath]:
        yield path
        for inner in kind.get("fields", ()):
            yield from inside((*path, inner["name"]), inner["type"])
        for part in ("element_type", "key_type", "value_type"):
            if part in kind:
                yield from inside(path, kind[part])

    for column in columns:
        yield from inside((column.name,), column.type)


def iceberg_type(kind: Type) -> str:
    """Return the SQL of the Iceberg type for a Hive type; narrow integers become ``int``.

    Raises:
        ValueError: Iceberg has no type for it; the message is the type's SQL.
    """
    match kind["name"]:
        case "struct":
            fields = (
                f"{quote(field['name'])}: {iceberg_type(field['type'])}{_commented(field.get('comment'))}"
                for field in kind["fields"]
            )
            return f"struct<{', '.join(fields)}>"
        case "array":
            return f"array<{iceberg_type(kind['element_type'])}>"
        case "map":
            return f"map<{iceberg_type(kind['key_type'])}, {iceberg_type(kind['value_type'])}>"
        case "decimal":
            return f"decimal({kind['precision']}, {kind['scale']})"
        case str(name) if name in _SAME_IN_ICEBERG:
            return name
        case str(name) if name in _WIDER_IN_ICEBERG:
            return _WIDER_IN_ICEBERG[name]
        case name:
            length = f"({kind['length']})" if "length" in kind else ""
            raise ValueError(f"{name}{length}")


def _commented(comment: str | None) -> str:
    return f" COMMENT {literal(comment)}" if comment else ""


# The prefixes of table properties that SerDes read, like their SerDe properties.
_READ_BY_SERDES = (
    *("avro.schema.", "collection.", "escape.", "field.", "input.", "line.", "mapkey.", "mapping."),
    *("serialization.", "timestamp."),
)
