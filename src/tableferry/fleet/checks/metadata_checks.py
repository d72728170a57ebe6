"""Checks of a table's metadata: its kind, format, options and columns; without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tableferry.errors import Paused, Refused
from tableferry.fleet.checks.facts import Facts, Findings, GivenFacts, Needs, check
from tableferry.fleet.hive_tables.hive_table import (
    _SAME_IN_ICEBERG,
    _WIDER_IN_ICEBERG,
    HiveColumn,
    HiveTable,
    Type,
    child_types,
)
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import REWRITABLE, PauseReason, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind

_ICEBERG_FORMATS = ("parquet", "orc", "avro")
_ICEBERG_TYPES = _SAME_IN_ICEBERG | _WIDER_IN_ICEBERG.keys()
# Types of partition columns that add_files can parse from directory names.
# Shadow runs can't write binary values as strings.
_ICEBERG_PARTITIONS = _ICEBERG_TYPES - {"timestamp_ltz", "timestamp_ntz", "binary"}
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


@check(Needs.METADATA)
def iceberg_table(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse an Iceberg table, which has nothing to migrate."""
    if facts.table.kind is Kind.ICEBERG:
        yield PauseFinding(
            PauseReason.IS_ALREADY_ICEBERG, Paused("IS_ALREADY_ICEBERG", table=facts.table.name)
        )


@check(Needs.METADATA)
def delta_table(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a Delta table, which has nothing to migrate."""
    if facts.table.kind is Kind.DELTA:
        yield PauseFinding(PauseReason.IS_ALREADY_DELTA, Paused("IS_ALREADY_DELTA", table=facts.table.name))


@check(Needs.METADATA)
def view(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a view, which has no files."""
    if facts.table.kind is Kind.VIEW:
        yield PauseFinding(PauseReason.IS_VIEW, Paused("IS_VIEW", table=facts.table.name))


@check(Needs.METADATA)
def transactional_table(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse an ACID table of Hive.

    Only Hive merges its base and delta files (Hive's wiki, "Hive Transactions").
    """
    if facts.table.transactional:
        yield PauseFinding(PauseReason.IS_TRANSACTIONAL, Paused("IS_TRANSACTIONAL", table=facts.table.name))


@check(Needs.METADATA)
def columns_by_position(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table whose columns Hive finds by their positions in the files.

    `parquet.column.index.access` (Hive's Parquet reader) and `orc.force.positional.evolution` (ORC's
    configuration) do this. Spark, Iceberg's name mapping and Delta find columns by their names.
    """
    table = facts.table
    read_by = {key.lower(): value.lower() for key, value in {**table.properties, **table.options}.items()}
    if by_position := [setting for setting in _BY_POSITION if read_by.get(setting) == "true"]:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused(
                "COLUMNS_BY_POSITION", table=table.name, property=by_position[0], statement=table.name.sql
            ),
        )


@check(Needs.METADATA)
def file_filter(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table with an option by which Spark leaves out files, because the new table would have them.

    The options are `pathGlobFilter`, `modifiedAfter` and `modifiedBefore` (Spark's "Generic File Source
    Options").
    """
    options = _options(facts.table)
    if filters := [option for option in _FILE_FILTERS if option in options]:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("OPTION_LEAVES_OUT_FILES", table=facts.table.name, option=filters[0]),
        )


@check(Needs.METADATA)
def other_calendar(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table whose old dates and times Spark reads in another calendar than the new table's.

    The options are `datetimeRebaseMode` and `int96RebaseMode` (Spark's "Parquet Files").
    """
    options = _options(facts.table)
    if other := [option for option in _CALENDARS if options.get(option, "CORRECTED").upper() != "CORRECTED"]:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("OPTION_CHANGES_CALENDAR", table=facts.table.name, option=other[0]),
        )


@check(Needs.METADATA)
def unknown_format(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table whose input format and SerDe aren't known.

    For example, the files of `SymlinkTextInputFormat` only name other files.
    """
    if facts.table.format == "other":
        yield _not_rewritable(Refused("FORMAT_UNKNOWN", table=facts.table.name))


@check(Needs.METADATA)
def skipped_lines(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse to rewrite a table if Hive skips lines of its files that Spark reads as rows.

    The properties are `skip.header.line.count` and `skip.footer.line.count` (Hive's "LanguageManual DDL").
    """
    table = facts.table
    read_by = {**table.properties, **table.options}
    skipped = [setting for setting in _SKIPPED_LINES if read_by.get(setting, "0") != "0"]
    if skipped and _is_stopped_by_files(table, form):
        yield _not_rewritable(Refused("LINES_SKIPPED_BY_HIVE", table=table.name, settings=skipped))


@check(Needs.METADATA)
def serde_only_reads(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse to rewrite a table whose SerDe can't write the rows of the Hive copy.

    Hive's `RegexSerDe` doesn't support serialization (its Javadoc).
    """
    table = facts.table
    if table.serde == _REGEX and _is_stopped_by_files(table, form):
        yield _not_rewritable(Refused("SERDE_ONLY_READS", table=table.name, serde=_REGEX))


@check(Needs.METADATA)
def json_record_per_file(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse to rewrite JSON with `multiLine`: Spark reads one record of each file, and writes several.

    The option is in Spark's "JSON Files".
    """
    table = facts.table
    if table.format == "json" and _options(table).get("multiline", "").lower() == "true":
        yield _not_rewritable(Refused("JSON_RECORD_PER_FILE", table=table.name))


@check(Needs.METADATA)
def text_row_per_file(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse to rewrite text with `wholetext`: Spark reads one row of each file, and writes several.

    The option is in Spark's "Text Files".
    """
    table = facts.table
    whole = _options(table).get("wholetext", "").lower() == "true"
    if table.format == "text" and not table.serde and whole:
        yield _not_rewritable(Refused("TEXT_ROW_PER_FILE", table=table.name))


@check(Needs.METADATA)
def corrupt_record_column(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse to rewrite Spark's CSV or JSON with the column of malformed records, which are no rows.

    The column is `_corrupt_record`, or `columnNameOfCorruptRecord` names it (Spark's "CSV Files" and "JSON
    Files").
    """
    table = facts.table
    corrupt = _options(table).get("columnnameofcorruptrecord", _CORRUPT).lower()
    names = {column.name.lower() for column in table.columns}
    if table.format in ("csv", "json") and not table.serde and corrupt in names:
        yield _not_rewritable(Refused("CORRUPT_RECORD_COLUMN", table=table.name, column=corrupt))


@check(Needs.METADATA)
def text_or_csv(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse text and CSV, unless the rows are rewritten.

    Data files of Iceberg are Parquet, ORC or Avro (Iceberg's specification), and those of Delta are Parquet
    (Delta's protocol).
    """
    if facts.table.format in ("text", "csv") and not facts.rewritten:
        yield PauseFinding(PauseReason.IS_CSV_TEXT, Paused("IS_CSV_TEXT", table=facts.table.name))


@check(Needs.METADATA)
def format_in_no_target(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse any other format that neither Iceberg nor Delta stores, unless the rows are rewritten."""
    table = facts.table
    if table.format not in (*_ICEBERG_FORMATS, "text", "csv") and not facts.rewritten:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_FORMAT,
            Refused("FORMAT_NOT_MIGRATABLE", table=table.name, format=table.format),
        )


@check(Needs.METADATA)
def format_not_in_delta(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse ORC and Avro for Delta, whose data files are Parquet, unless the rows are rewritten."""
    table = facts.table
    if form is TargetFormat.DELTA and table.format in ("orc", "avro") and not facts.rewritten:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_FORMAT,
            Refused("FORMAT_NOT_IN_DELTA", table=table.name, format=table.format),
        )


@check(Needs.METADATA)
def buckets(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a bucketed table for Iceberg, unless the rows are rewritten.

    Iceberg's bucket transform has another hash function than Hive (Iceberg's specification, appendix B).
    """
    table = facts.table
    if table.buckets and form is TargetFormat.ICEBERG and not facts.rewritten:
        yield PauseFinding(
            PauseReason.IS_BUCKETED, Refused("BUCKETS_NOT_IN_ICEBERG", table=table.name, count=table.buckets)
        )


@check(Needs.METADATA)
def columns(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a column that the new table can't have, because of its name or its type.

    Spark's readers add `_metadata`, and Iceberg's add the columns of its `MetadataColumns`. Iceberg's types
    are in its specification. It reads timestamps of ORC files only as instants (appendix A), unless the rows
    are rewritten. `add_files` parses some types of partition columns.
    """
    for column in facts.table.columns:
        yield from _reserved_name(facts.table, column, form)
        yield from _unsupported_types(facts, column, form)
        yield from _unsupported_partition_type(facts.table, column, form)


REWRITE_CHECKS = (
    unknown_format,
    skipped_lines,
    serde_only_reads,
    json_record_per_file,
    text_row_per_file,
    corrupt_record_column,
)
"""The checks of tables whose files the new table can't use: whether their rows can be rewritten."""

_STORAGE_CHECKS = (transactional_table, columns_by_position, file_filter, other_calendar)
_FILE_CHECKS = (text_or_csv, format_in_no_target, format_not_in_delta, buckets, columns)

METADATA_CHECKS = (iceberg_table, delta_table, view, *_STORAGE_CHECKS, *REWRITE_CHECKS, *_FILE_CHECKS)
"""All checks of metadata in their order."""


def needs_rewriting(table: HiveTable, form: TargetFormat) -> bool:
    """Return whether the new table can't use a table's files, but its rows can be rewritten."""
    facts = GivenFacts(table)
    return _is_stopped_by_files(table, form) and not any(
        any(check.find(facts, form)) for check in REWRITE_CHECKS
    )


def _is_stopped_by_files(table: HiveTable, form: TargetFormat) -> bool:
    """Return whether the first obstacle of a table in place is one that a rewrite of its rows avoids."""
    facts = GivenFacts(table)
    found = (finding for check in (*_STORAGE_CHECKS, *_FILE_CHECKS) for finding in check.find(facts, form))
    first = next(found, None)
    return first is not None and first.reason in REWRITABLE


def _not_rewritable(refusal: Refused) -> PauseFinding:
    return PauseFinding(PauseReason.NOT_REWRITABLE, refusal)


def _options(table: HiveTable) -> Mapping[str, str]:
    """Return a table's read options with keys in lower case."""
    return {key.lower(): value for key, value in table.options.items()}


def _reserved_name(table: HiveTable, column: HiveColumn, form: TargetFormat) -> Findings:
    reserved = _ICEBERG_COLUMNS if form is TargetFormat.ICEBERG else _SPARK_COLUMNS
    if column.name.lower() in reserved:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("COLUMN_NAME_RESERVED", table=table.name, column=column.name),
        )


def _unsupported_types(facts: Facts, column: HiveColumn, form: TargetFormat) -> Findings:
    table, is_iceberg = facts.table, form is TargetFormat.ICEBERG
    for path, name in _leaves(column.name, column.type):
        if name.startswith(_NEVER_STORED):
            yield _unsupported_type(table, path, name, "no table format stores it")
        elif is_iceberg and name not in _ICEBERG_TYPES:
            yield _unsupported_type(table, path, name, _TYPE_REASONS.get(name, "Iceberg has no such type"))
        elif is_iceberg and name == "timestamp_ltz" and table.format == "orc" and not facts.rewritten:
            yield PauseFinding(
                PauseReason.HAS_TIMESTAMP_COLUMN,
                Refused("ORC_TIMESTAMP_NOT_INSTANT", table=table.name, column=path),
            )


def _unsupported_partition_type(table: HiveTable, column: HiveColumn, form: TargetFormat) -> Findings:
    kind = column.type["name"]
    if column.name.lower() not in {name.lower() for name in table.partition_columns}:
        return
    if form is TargetFormat.ICEBERG and kind not in _ICEBERG_PARTITIONS:
        yield _unsupported_type(table, column.name, kind, "Iceberg can't import partitions of this type")
    elif kind == "char":
        yield _unsupported_type(table, column.name, kind, "Delta's rows and log would differ")


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
