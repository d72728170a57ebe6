"""A Hive table as the catalog describes it, and its types in Iceberg: data, without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from tableferry.fleet.jobs.plan import Kind
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import ColumnPath

Format = Literal["parquet", "orc", "avro", "text", "csv", "json", "sequencefile", "other"]


Type = Mapping[str, Any]
"""A column's type as DESCRIBE … AS JSON writes it: ``{"name": "decimal", "precision": 10, "scale": 2}``."""


AVRO_SCHEMAS = ("avro.schema.literal", "avro.schema.url")
"""The properties of a Hive table that contain its Avro schema or the schema's address."""

SOURCE = "tableferry.source"
"""The property that names the Hive table whose files a target was made over."""


MADE_OF = "tableferry.files"
"""The property that says of which files (with sizes and times) and partitions an Iceberg target was made."""


READING = "tableferry.reading"
"""The property that says by which columns and options the rows of a Hive table were rewritten."""


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


# Iceberg has neither the narrow integers nor a length; wider types hold the same values.
_WIDER_IN_ICEBERG = {"tinyint": "int", "smallint": "int", "varchar": "string"}


@dataclass(frozen=True)
class HiveColumn:
    """A column of a Hive table.

    Attributes:
        default: What an INSERT gives it that leaves it out, as SQL; empty for null.
    """

    name: str
    type: Type
    comment: str = ""
    default: str = ""


@dataclass(frozen=True)
class HiveTable:
    """What the catalog knows of a table; of one that isn't Hive's, its name and kind alone.

    Attributes:
        format: How its rows are stored; ``csv`` and ``json`` also where Hive's SerDes read them from text.
        managed: Whether dropping it removes its files, and renaming it moves them.
        location: Its directory, as Hadoop writes it: not percent-encoded.
        columns: All columns in their order, the partition columns last.
        buckets: How many files a key is hashed to; 0 if none.
        transactional: Whether its files are Hive's ACID ones.
        properties: Its properties, those that the metastore keeps too.
        options: What decides, besides its columns, on how its files are read.
        serde: Hive's class that reads and writes its rows; empty for a table of Spark's own.
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
        """The columns that its files have: all but the partition columns."""
        keys = {name.lower() for name in self.partition_columns}
        return [column for column in self.columns if column.name.lower() not in keys]

    @property
    def columns_text(self) -> str:
        """The columns' names and types, in one line."""
        return json.dumps([[column.name, column.type] for column in self.columns])

    @property
    def reading(self) -> str:
        """How its files are read, in one line: its columns, its options, and what else its SerDe is told."""
        told = {key: value for key, value in self.properties.items() if key.startswith(_READ_BY_SERDES)}
        options = {**(told if self.serde else {}), **self.options}
        return self.columns_text + (json.dumps(sorted(options.items())) if options else "")


def stored_types(columns: Iterable[HiveColumn]) -> dict[ColumnPath, Type]:
    """Return the types of what holds values, by paths in lower case."""

    def inside(path: ColumnPath, kind: Type) -> Iterator[tuple[ColumnPath, Type]]:
        if not (parts := parts_of(kind)):
            yield path, kind
        for name, part in parts:
            yield from inside((*path, name.lower()), part)

    return {path: kind for each in columns for path, kind in inside((each.name.lower(),), each.type)}


def iceberg_ids(columns: Iterable[HiveColumn]) -> dict[ColumnPath, int]:
    """Return the ids that a new Iceberg table gives to columns and fields, by paths in lower case.

    All fields of a struct have theirs before what is in them, as by ``AssignFreshIds`` in Iceberg's sources.
    """
    numbers, ids = count(1), dict[ColumnPath, int]()

    def number(path: ColumnPath, parts: Sequence[tuple[str, Type]]) -> None:
        paths = [(*path, name.lower()) for name, _ in parts]
        ids.update(zip(paths, numbers, strict=False))
        for inner, (_, kind) in zip(paths, parts, strict=True):
            number(inner, parts_of(kind))

    number((), [(column.name, column.type) for column in columns])
    return ids


def parts_of(kind: Type) -> Sequence[tuple[str, Type]]:
    """Return the fields of a struct, and what arrays and maps hold."""
    match kind["name"]:
        case "struct":
            return [(field["name"], field["type"]) for field in kind["fields"]]
        case "array":
            return [("element", kind["element_type"])]
        case "map":
            return [("key", kind["key_type"]), ("value", kind["value_type"])]
        case _:
            return []


def paths_of(columns: Iterable[HiveColumn]) -> Iterator[ColumnPath]:
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
    """Write a type as SQL makes an Iceberg column of it; the narrow integers become ``int``.

    Raises:
        ValueError: Iceberg has no type for it; the message is its SQL name.
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


# What the properties of a table begin with that tell a SerDe how to read, as its own do.
_READ_BY_SERDES = (
    *("avro.schema.", "collection.", "escape.", "field.", "input.", "line.", "mapkey.", "mapping."),
    *("serialization.", "timestamp."),
)
