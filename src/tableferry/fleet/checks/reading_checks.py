"""Checks that need Spark or the code of later steps to read the table; `table_reading` reads it."""

from __future__ import annotations

from tableferry.errors import Refused
from tableferry.fleet.checks.facts import Facts, Findings, Needs, check
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat


@check(Needs.READING)
def files_of_suspended_runs(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a reverted table that reads files of an unfinished shadow run, so its rows are duplicated."""
    if files := facts.reading.suspended_files:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT, Refused("ROWS_READ_TWICE", table=facts.table.name, files=files)
        )


@check(Needs.READING)
def partitions_read_differently(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse partitions whose format or SerDe properties differ from the table's.

    If a shadow run appends to such a partition, Spark changes its format and options to the table's. For
    Parquet and ORC, Spark's readers use the table's options for all partitions.
    """
    table = facts.table
    by_hive = table.serde and table.format not in ("parquet", "orc")
    may_differ = facts.partitions and facts.catalog.can_make_external and (facts.rewritten or by_hive)
    if may_differ and (others := facts.reading.other_partitions):
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("PARTITIONS_READ_DIFFERENTLY", table=table.name, partitions=others),
        )


@check(Needs.READING)
def partition_values(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse partition values that Spark's cast of the catalog's text spells differently.

    Iceberg parses texts of dates and decimals strictly, unless the rows are rewritten.
    """
    if (values := facts.reading.copy.other_values) is not None:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("PARTITION_VALUES_SPELLED_DIFFERENTLY", table=facts.table.name, values=values),
        )


@check(Needs.READING)
def avro_types(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse Avro columns whose types in the metastore and in the Avro schema differ.

    Spark can't alter such a table, because it writes its own types to the metastore.
    """
    for column, kind, avro_type in facts.reading.copy.other_types:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused(
                "AVRO_COLUMN_TYPE_DIFFERS",
                table=facts.table.name,
                column=column,
                type=kind,
                avro_type=avro_type,
            ),
        )


@check(Needs.READING)
def hive_copy(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table whose columns and partitions can't be read as those of its Hive copy.

    A shadow run reads them so. After a refusal, nothing more of the table is read.
    """
    copy = facts.reading.copy
    if copy.refusal is not None:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, copy.refusal)
    if copy.failure:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("COLUMNS_NOT_READABLE_FOR_COPY", table=facts.table.name, reason=copy.failure),
        )


@check(Needs.READING)
def rewrite_directory(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a rewrite into a directory that isn't empty.

    A revert couldn't distinguish the files in it from those of the migration.
    """
    if facts.rewritten and _has_copy(facts) and (refusal := facts.reading.rewrite_refusal) is not None:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)


@check(Needs.READING)
def rows_for_rewrite(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a rewrite if Spark can't read a row, or a row with a null in a partition column."""
    if facts.rewritten and _has_copy(facts) and (reason := facts.reading.row_failure):
        yield PauseFinding(
            PauseReason.NOT_REWRITABLE,
            Refused("ROWS_NOT_READABLE_FOR_REWRITE", table=facts.table.name, reason=reason),
        )


@check(Needs.READING)
def files_for_new_table(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse files that the new table can't use, by their footers.

    Types and names must match the table's, as Iceberg's specification and Delta's protocol require. For
    Delta, `convert` makes the same checks.
    """
    if not facts.rewritten and _has_copy(facts) and (refusal := facts.reading.files_refusal) is not None:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)


@check(Needs.READING)
def rows(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table if Spark can't read a row, although its columns and files are sound."""
    reading = facts.reading
    if facts.rewritten or not _has_copy(facts) or reading.copy.failure or reading.files_refusal is not None:
        return
    if reason := reading.row_failure:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("ROWS_NOT_READABLE", table=facts.table.name, reason=reason),
        )


def _has_copy(facts: Facts) -> bool:
    """Return whether the table can have a Hive copy; if not, nothing more is read."""
    return facts.reading.copy.refusal is None
