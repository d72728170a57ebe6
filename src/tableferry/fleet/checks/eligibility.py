"""Decide from a Hive table's metadata whether it can be migrated; without Spark."""

from __future__ import annotations

from collections.abc import Iterator

from tableferry.errors import Paused, Refused
from tableferry.fleet.hive_tables.hive_table import (
    _SAME_IN_ICEBERG,
    _WIDER_IN_ICEBERG,
    HiveTable,
    Type,
    child_types,
)
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import REWRITABLE, PauseReason, TargetFormat
from tableferry.fleet.jobs.plan import Kind

_ICEBERG_FORMATS = ("parquet", "orc", "avro")
# Types of partition columns that add_files can parse from directory names.
# Shadow runs can't write binary values as strings.
_ICEBERG_PARTITIONS = (_SAME_IN_ICEBERG | _WIDER_IN_ICEBERG.keys()) - {
    "timestamp_ltz",
    "timestamp_ntz",
    "binary",
}
_NEVER_STORED = ("void", "interval")
# Spark's metadata column of files.
_SPARK_COLUMNS = frozenset({"_metadata"})
# `MetadataColumns` in Iceberg's sources: tables with such columns can be created, but not read.
_ICEBERG_COLUMNS = _SPARK_COLUMNS | {
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
}


def ineligibility(table: HiveTable, target: TargetFormat, *, rewrite: bool = False) -> PauseFinding | None:
    """Return why a table can't be migrated; None if it can.

    With `rewrite`, its rows may be rewritten if the new table can't use its files.
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
    """Return whether the new table can't use a table's files, but its rows can be rewritten."""
    found = _unsupported(table, target)
    return found is not None and found.reason in REWRITABLE and _not_rewritable(table) is None


def _unsupported(table: HiveTable, target: TargetFormat) -> PauseFinding | None:
    return _unsupported_storage(table, target) or _unsupported_column(table, target)


# With these, Hive matches a file's columns by position. Other readers match them by name.
_BY_POSITION = ("parquet.column.index.access", "orc.force.positional.evolution")
# Options of Spark's readers that leave out files, in lower case.
_FILE_FILTERS = ("pathglobfilter", "modifiedafter", "modifiedbefore")
# Options that read old dates and times in another calendar than the new table's readers, in lower case.
_CALENDARS = ("datetimerebasemode", "int96rebasemode")
# With these, Hive skips lines of each file. Spark reads the lines as rows.
_SKIPPED_LINES = ("skip.header.line.count", "skip.footer.line.count")
# The default column in which Spark's readers put malformed records.
_CORRUPT = "_corrupt_record"
# This SerDe can't write.
_REGEX = "org.apache.hadoop.hive.serde2.RegexSerDe"


def _not_rewritable(table: HiveTable) -> PauseFinding | None:
    """Return why the rows of a table can't be rewritten; None if they can."""
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
    if by_position := [setting for setting in _BY_POSITION if read_by.get(setting) == "true"]:
        return PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("COLUMNS_BY_POSITION", table=name, property=by_position[0], statement=name.sql),
        )
    options = {key.lower(): value for key, value in table.options.items()}
    if filters := [option for option in _FILE_FILTERS if option in options]:
        return PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("OPTION_LEAVES_OUT_FILES", table=name, option=filters[0]),
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
    reserved = _ICEBERG_COLUMNS if target is TargetFormat.ICEBERG else _SPARK_COLUMNS
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
                return _unsupported_type(
                    table, path, name, _TYPE_REASONS.get(name, "Iceberg has no such type")
                )
            is_iceberg = target is TargetFormat.ICEBERG
            if is_iceberg and name == "timestamp_ltz" and table.format == "orc" and not rewrite:
                return PauseFinding(
                    PauseReason.HAS_TIMESTAMP_COLUMN,
                    Refused("ORC_TIMESTAMP_NOT_INSTANT", table=table.name, column=path),
                )
        kind = column.type["name"]
        is_partition = column.name.lower() in partitions
        if target is TargetFormat.ICEBERG and is_partition and kind not in _ICEBERG_PARTITIONS:
            return _unsupported_type(table, column.name, kind, "Iceberg can't import partitions of this type")
        if is_partition and kind == "char":
            return _unsupported_type(table, column.name, kind, "Delta's rows and log would differ")
    return None


_TYPE_REASONS = {"char": "Iceberg's strings have no padding, so comparisons would return other rows"}


def _unsupported_type(table: HiveTable, path: str, kind: str, why: str) -> PauseFinding:
    return PauseFinding(
        PauseReason.UNSUPPORTED_SCHEMA,
        Refused("COLUMN_TYPE_NOT_IN_NEW_TABLE", table=table.name, column=path, type=kind, reason=why),
    )


def _leaves(path: str, kind: Type) -> Iterator[tuple[str, str]]:
    """Yield every leaf field with its type's name."""
    parts = child_types(kind)
    if not parts:
        yield path, kind["name"]
    for name, part in parts:
        yield from _leaves(f"{path}.{name}", part)
