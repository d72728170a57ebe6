"""Decides whether a Hive table can be moved, from what the catalog says of it: pure, and without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from tableferry.errors import Paused, Refused
from tableferry.fleet.job import REWRITABLE, PauseReason, TargetFormat
from tableferry.fleet.plan import Kind
from tableferry.fleet.reports import PauseFinding
from tableferry.spark.quoting import literal, quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import ColumnPath

Format = Literal["parquet", "orc", "avro", "text", "csv", "json", "sequencefile", "other"]
Type = Mapping[str, Any]
"""A column's type as DESCRIBE … AS JSON writes it: ``{"name": "decimal", "precision": 10, "scale": 2}``."""

SOURCE = "tableferry.source"
"""The property that names the Hive table whose files a target was made over."""

MADE_OF = "tableferry.files"
"""The property that says of which files (with sizes and times) and partitions an Iceberg target was made."""

READING = "tableferry.reading"
"""The property that says by which columns and options the rows of a Hive table were rewritten."""

_ICEBERG_FORMATS = ("parquet", "orc", "avro")
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
# Types of which add_files can read a partition's value from its directory's name.
# A binary one has no text by which shadow runs could name it.
_ICEBERG_PARTITIONS = (_SAME_IN_ICEBERG | _WIDER_IN_ICEBERG.keys()) - {
    "timestamp_ltz",
    "timestamp_ntz",
    "binary",
}
_NEVER_STORED = ("void", "interval")
# Of each row of files Spark has a column of this name.
_OF_SPARK = frozenset({"_metadata"})
# As `MetadataColumns` in Iceberg's sources has them: its tables can be made with these, but not read.
_OF_ICEBERG = _OF_SPARK | {
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
}


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


def ineligibility(table: HiveTable, target: TargetFormat, *, rewrite: bool = False) -> PauseFinding | None:
    """Return why a table can't be moved; None if it can.

    With `rewrite`, its rows may be rewritten where its files can't become the new table's.
    """
    match table.kind:
        case Kind.ICEBERG:
            return PauseFinding(
                PauseReason.IS_ALREADY_ICEBERG, Paused("IS_ALREADY_ICEBERG", table=table.name)
            )
        case Kind.DELTA:
            return PauseFinding(PauseReason.IS_ALREADY_DELTA, Paused("IS_ALREADY_DELTA", table=table.name))
        case Kind.VIEW:
            return PauseFinding(PauseReason.IS_VIEW, Paused("IS_VIEW", table=table.name))
        case Kind.HIVE | Kind.OTHER:
            found = _unsupported(table, target)
            if found is None or found.reason not in REWRITABLE:
                return found
            if not_rewritable := _not_rewritable(table):
                return not_rewritable
            return _unsupported_column(table, target, rewrite=True) if rewrite else found


def needs_rewriting(table: HiveTable, target: TargetFormat) -> bool:
    """Say whether a table's files can't become the new table's, though its rows can."""
    found = _unsupported(table, target)
    return found is not None and found.reason in REWRITABLE and _not_rewritable(table) is None


def _unsupported(table: HiveTable, target: TargetFormat) -> PauseFinding | None:
    return _unsupported_storage(table, target) or _unsupported_column(table, target)


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


# By these Hive finds columns by their place in a file, as all others do by their names.
_BY_PLACE = ("parquet.column.index.access", "orc.force.positional.evolution")
# Options of Spark's readers, in lower case, by which files are left out.
_LEAVING_OUT = ("pathglobfilter", "modifiedafter", "modifiedbefore")
# Likewise, by which old dates and times are read in another calendar than the new table's readers have.
_CALENDARS = ("datetimerebasemode", "int96rebasemode")
# By these Hive leaves out lines of each file, which Spark takes for rows.
_SKIPPED_LINES = ("skip.header.line.count", "skip.footer.line.count")
# What the properties of a table begin with that tell a SerDe how to read, as its own do.
_READ_BY_SERDES = (
    *("avro.schema.", "collection.", "escape.", "field.", "input.", "line.", "mapkey.", "mapping."),
    *("serialization.", "timestamp."),
)
# Where Spark's readers put a text that they can't make columns of, unless an option says otherwise.
_CORRUPT = "_corrupt_record"
# It only reads.
_REGEX = "org.apache.hadoop.hive.serde2.RegexSerDe"


def _not_rewritable(table: HiveTable) -> PauseFinding | None:
    """Return why the rows of a table whose files can't stay can't be rewritten either."""
    name, options = table.name, {key.lower(): value for key, value in table.options.items()}
    read_by = {**table.properties, **table.options}
    corrupt = options.get("columnnameofcorruptrecord", _CORRUPT).lower()
    names = {column.name.lower() for column in table.columns}
    if table.format == "other":
        refusal = Refused("FORMAT_UNKNOWN", table=name)
    elif skipped := [setting for setting in _SKIPPED_LINES if read_by.get(setting, "0") != "0"]:
        refusal = Refused("LINES_SKIPPED_BY_HIVE", table=name, settings=skipped)
    elif table.serde == _REGEX:
        refusal = Refused("SERDE_ONLY_READS", table=name, serde=_REGEX)
    elif table.format == "json" and options.get("multiline", "").lower() == "true":
        refusal = Refused("JSON_RECORD_PER_FILE", table=name)
    elif table.format == "text" and not table.serde and options.get("wholetext", "").lower() == "true":
        refusal = Refused("TEXT_ROW_PER_FILE", table=name)
    elif table.format in ("csv", "json") and not table.serde and corrupt in names:
        refusal = Refused("CORRUPT_RECORD_COLUMN", table=name, column=corrupt)
    else:
        return None
    return PauseFinding(PauseReason.NOT_REWRITABLE, refusal)


def _unsupported_storage(table: HiveTable, target: TargetFormat) -> PauseFinding | None:
    name = table.name
    if table.transactional:
        return PauseFinding(PauseReason.IS_TRANSACTIONAL, Paused("IS_TRANSACTIONAL", table=name))
    read_by = {key.lower(): value.lower() for key, value in {**table.properties, **table.options}.items()}
    if by_place := [setting for setting in _BY_PLACE if read_by.get(setting) == "true"]:
        return PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("COLUMNS_BY_POSITION", table=name, property=by_place[0], statement=name.sql),
        )
    options = {key.lower(): value for key, value in table.options.items()}
    if leaving_out := [option for option in _LEAVING_OUT if option in options]:
        return PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("OPTION_LEAVES_OUT_FILES", table=name, option=leaving_out[0]),
        )
    if other := [option for option in _CALENDARS if options.get(option, "CORRECTED").upper() != "CORRECTED"]:
        return PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT, Refused("OPTION_CHANGES_CALENDAR", table=name, option=other[0])
        )
    if table.format in ("text", "csv"):
        return PauseFinding(PauseReason.IS_CSV_TEXT, Paused("IS_CSV_TEXT", table=name))
    if table.format not in _ICEBERG_FORMATS:
        return PauseFinding(
            PauseReason.UNSUPPORTED_FORMAT, Refused("FORMAT_NOT_MIGRATABLE", table=name, format=table.format)
        )
    if target is TargetFormat.DELTA and table.format != "parquet":
        return PauseFinding(
            PauseReason.UNSUPPORTED_FORMAT, Refused("FORMAT_NOT_IN_DELTA", table=name, format=table.format)
        )
    if table.buckets and target is TargetFormat.ICEBERG:
        return PauseFinding(
            PauseReason.IS_BUCKETED, Refused("BUCKETS_NOT_IN_ICEBERG", table=name, count=table.buckets)
        )
    return None


def _unsupported_column(
    table: HiveTable, target: TargetFormat, *, rewrite: bool = False
) -> PauseFinding | None:
    partitions = {name.lower() for name in table.partition_columns}
    reserved = _OF_ICEBERG if target is TargetFormat.ICEBERG else _OF_SPARK
    for column in table.columns:
        if column.name.lower() in reserved:
            return PauseFinding(
                PauseReason.UNSUPPORTED_SCHEMA,
                Refused("COLUMN_NAME_RESERVED", table=table.name, column=column.name),
            )
        for path, name in _leaves(column.name, column.type):
            if name.startswith(_NEVER_STORED):
                return _unsupported_type(table, path, name, "no table format stores it")
            if target is TargetFormat.ICEBERG and name not in _SAME_IN_ICEBERG | _WIDER_IN_ICEBERG.keys():
                return _unsupported_type(table, path, name, _WHY.get(name, "Iceberg has no such type"))
            is_iceberg = target is TargetFormat.ICEBERG
            if is_iceberg and name == "timestamp_ltz" and table.format == "orc" and not rewrite:
                return PauseFinding(
                    PauseReason.HAS_TIMESTAMP_COLUMN,
                    Refused("ORC_TIMESTAMP_NOT_INSTANT", table=table.name, column=path),
                )
        kind = column.type["name"]
        is_partition = column.name.lower() in partitions
        if target is TargetFormat.ICEBERG and is_partition and kind not in _ICEBERG_PARTITIONS:
            return _unsupported_type(table, column.name, kind, "Iceberg can't take partitions of it over")
        if is_partition and kind == "char":
            return _unsupported_type(table, column.name, kind, "Delta's rows have other values than its log")
    return None


_WHY = {"char": "Iceberg's strings have no padding, so that comparisons would find other rows"}


def _unsupported_type(table: HiveTable, path: str, kind: str, why: str) -> PauseFinding:
    return PauseFinding(
        PauseReason.UNSUPPORTED_SCHEMA,
        Refused("COLUMN_TYPE_NOT_IN_NEW_TABLE", table=table.name, column=path, type=kind, reason=why),
    )


def _leaves(path: str, kind: Type) -> Iterator[tuple[str, str]]:
    """Yield every column and field that holds values, with its type's name."""
    parts = parts_of(kind)
    if not parts:
        yield path, kind["name"]
    for name, part in parts:
        yield from _leaves(f"{path}.{name}", part)
