"""Check a table before its migration: find what would stop it, and what its owners should know.

Each check is also made by a later step of the migration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from tableferry.convert import overlay
from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.checks.eligibility import ineligibility, needs_rewriting
from tableferry.fleet.checks.preflight_findings import INTEGERS, PreflightFacts, findings, remarks
from tableferry.fleet.copies import delta
from tableferry.fleet.copies.iceberg_files.file_blockers import list_blockers
from tableferry.fleet.copies.rewrite import rewritten_copy
from tableferry.fleet.hive_copy.table import HiveCopy, scratch_name
from tableferry.fleet.hive_tables import copy_locations, metastore
from tableferry.fleet.hive_tables.frames import frame_of
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.findings import PauseFinding, Preflight
from tableferry.fleet.jobs.job import Job, OldName, PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Moving, Names
from tableferry.fleet.jobs.plan import target_kind
from tableferry.fleet.late_files import suspended_runs
from tableferry.fleet.warehouse import hive, job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import listing
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.step_run import StepRun, require_no_finding
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import declared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The key of a column's value for files that lack the column.
_DEFAULT = "EXISTS_DEFAULT"
# Types that Iceberg parses strictly from the catalog's strings.
_STRICT = ("date", "decimal")


def preflight(warehouse: Warehouse, job: Moving, directories: TableDirectories) -> Preflight:
    """Run the migration's checks on a table; nothing is written.

    Raises:
        TableError: The table's metadata or files can't be read.
    """
    name, form = job.name, job.target_format
    table = hive.facts(warehouse, name)
    if table is None:
        missing = TableError("TABLE_NOT_FOUND", table=name)
        return Preflight(name, form, (PauseFinding(PauseReason.TABLE_NOT_FOUND, missing),))
    if ineligible := ineligibility(table, form, rewrite=bool(job.rewrite)):
        return Preflight(name, form, (ineligible,), stored_as=table.format)
    rewritten = needs_rewriting(table, form)
    partitions = hive.partitions(warehouse, table)
    facts = PreflightFacts(
        table,
        partitions,
        listing(warehouse, table, partitions),
        _overlapping_tables(warehouse, directories, table, job, rewritten=rewritten, partitions=partitions),
        directories.unlisted(warehouse.spark, name),
        metastore.is_reachable(warehouse.spark, name),
        warehouse.column_mapping,
        _schema_refusal(warehouse, Names.of(job), form),
        rewritten,
        isinstance(job, Job) and "folder" in (job.record.rewritten or {}),
        Names.of(job).all,
        _owning_table(warehouse, table),
        job.old_name is OldName.TABLE,
    )
    problems = list(findings(facts, form)) or list(_later_refusals(facts, warehouse, form))
    return Preflight(
        name,
        form,
        tuple(problems),
        remarks(facts, form),
        table.format,
        len(facts.files.read),
        sum(file.size for file in facts.files.read),
        len(partitions),
        rewritten=rewritten,
    )


def repeat_preflight(step: steps.RepeatPreflight, run: StepRun) -> Job:
    """Pause the job at the first finding; weeks may have passed since the last preflight.

    Raises:
        StepPaused: There is a finding.
        TableError: As in `first_finding`.
        Refused: As in `first_finding`.
    """
    require_no_finding(first_finding(run.warehouse, run.job))
    return run.job


def first_finding(warehouse: Warehouse, job: Job) -> PauseFinding | None:
    """Repeat the catalog's checks right before a migration starts, and return the first finding.

    Tables may have changed since `preflight`, which may have run weeks ago. The job's own tables may already
    exist. Partitions and files aren't checked here, because the creation of the target checks them.

    Raises:
        TableError: The table doesn't exist, or its metadata can't be read.
        Refused: It is no longer a Hive table.
    """
    names = Names.of(job)
    table = hive.require_hive_table(warehouse, names.main)
    if ineligible := ineligibility(table, job.target_format, rewrite=job.is_rewritten):
        return ineligible
    kinds = job_tables.list_job_tables(warehouse, names)
    # A copy may exist already; the migration updates or drops it.
    own = {name for name in (names.copy, names.dropped) if kinds.get(name) is target_kind(job)}
    if taken := kinds.keys() - {names.main} - own:
        return job_tables.name_taken_finding(taken)
    directories = warehouse.directories or TableDirectories()
    facts = PreflightFacts(
        table,
        overlapping=_overlapping_tables(
            warehouse, directories, table, job, rewritten=job.is_rewritten, apart=names.all
        ),
        can_make_external=metastore.is_reachable(warehouse.spark, table.name),
        column_mapping=warehouse.column_mapping,
        schema_refusal=_schema_refusal(warehouse, names, job.target_format) if names.elsewhere else None,
        rewritten=job.is_rewritten,
        owning_table=_owning_table(warehouse, table),
        keeps_name=job.old_name is OldName.TABLE,
    )
    return next(findings(facts, job.target_format), None)


def _overlapping_tables(
    warehouse: Warehouse,
    directories: TableDirectories,
    table: HiveTable,
    job: Moving,
    *,
    rewritten: bool,
    apart: Collection[TableName] = (),
    partitions: Collection[CatalogPartition] = (),
) -> tuple[tuple[TableName, str], ...]:
    """Return the tables whose directories overlap with the Hive table's or the new table's directory.

    Tables that overlap with a partition in another directory are returned too. Tables in `apart` are left
    out. Tables with a name of this migration count only for the Hive table's own directory.
    """
    # A suspended or crashed worker may have left this table.
    scratch = scratch_name(table.name)
    spark, own = warehouse.spark, (*Names.of(job).all, scratch)
    around = directories.overlapping(spark, table.name, table.location, (*apart, scratch))
    others = {each.location for each in partitions if below(each.location, table.location) is None}
    if job.target_format is not TargetFormat.DELTA or rewritten:
        others.add(copy_locations.copies_folder(table.location, job.target_format))
    more = (
        other
        for location in sorted(others)
        for other in directories.overlapping(spark, table.name, location, own)
    )
    return tuple(dict.fromkeys((*around, *more)))


def _owning_table(warehouse: Warehouse, table: HiveTable) -> str:
    """Return why the table's directory belongs to another table, which the catalog may lack; or empty."""
    storage = storage_of(warehouse.spark, table.location)
    names = storage.all_names if storage else None
    return overlay.owner_reason(warehouse.spark, table.location, names) or ""


def _schema_refusal(warehouse: Warehouse, names: Names, form: TargetFormat) -> Refused | None:
    """Return why the new table can't be created in its catalog and schema; None if it can."""
    copy = warehouse.named(names.copy, form)
    if copy.parts[:-1] == names.main.parts[:-1]:
        return None
    schema, place = TableName(copy.parts[:-1]), TableName(names.target.parts[:-1])
    try:
        if job_tables.has_schema(warehouse, schema):
            return None
    except TableError as error:
        return Refused(
            "SCHEMA_OF_NEW_TABLE_UNREADABLE",
            table=names.main,
            schema=schema,
            reason=error.sentence,
            advice=error.remedy,
        )
    if names.elsewhere:
        return Refused("SCHEMA_OF_NEW_TABLE_MISSING", table=names.main, schema=place, statement=place.sql)
    return Refused(
        "ICEBERG_CATALOG_OF_OTHER_METASTORE", table=names.main, catalog=schema.parts[0], schema=schema
    )


def _later_refusals(
    facts: PreflightFacts, warehouse: Warehouse, form: TargetFormat
) -> Iterator[PauseFinding]:
    """Run the checks of later steps on the table's columns and files, and yield their refusals."""
    table, defaults = facts.table, dict[str, str]()
    try:
        suspended_runs.require_no_suspended_files(warehouse, table.name)
    except suspended_runs.DuplicateRows as error:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, error)
    # For Parquet and ORC, Spark's readers use the table's options for all partitions.
    by_hive = table.serde and table.format not in ("parquet", "orc")
    may_differ = facts.partitions and facts.can_make_external and (facts.rewritten or by_hive)
    # If shadow appends to such a partition, Spark changes its format and options to the table's.
    if may_differ and (others := metastore.list_partitions_with_other_format(warehouse.spark, table.name)):
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("PARTITIONS_READ_DIFFERENTLY", table=table.name, partitions=others),
        )
    try:
        copy = HiveCopy.of(warehouse, table)
        metadata = {field.name: field.metadata for field in copy.schema}
        defaults = {name: each[_DEFAULT] for name, each in metadata.items() if _DEFAULT in each}
        rows = copy.rows(warehouse.spark.table(table.name.sql))
        rows.schema.json()
        if refusal := _partition_value_refusal(copy, form, rewritten=facts.rewritten):
            yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)
        if table.format == "avro" and facts.can_make_external:
            yield from _avro_type_findings(copy)
    except Refused as error:
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, error)
        return
    except SPARK_ERRORS as error:
        rows = None
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("COLUMNS_NOT_READABLE_FOR_COPY", table=table.name, reason=first_line(error)),
        )
    if facts.rewritten:
        try:
            if not facts.rewrite_started:
                rewritten_copy.require_empty(warehouse, copy_locations.copies_folder(table.location, form))
        except Refused as error:
            yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, error)
        nulls = [f"{quote(key)} IS NULL" for key in table.partition_columns]
        try:
            for where in ("true", *nulls):
                _read_row(warehouse.spark.table(table.name.sql).where(where))
        except SPARK_ERRORS as error:
            yield PauseFinding(
                PauseReason.NOT_REWRITABLE,
                Refused("ROWS_NOT_READABLE_FOR_REWRITE", table=table.name, reason=first_line(error)),
            )
    elif refusal := _file_refusal(facts, warehouse, form, defaults):
        yield PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)
    elif rows is not None:
        try:
            _read_row(rows)
        except SPARK_ERRORS as error:
            yield PauseFinding(
                PauseReason.UNSUPPORTED_LAYOUT,
                Refused("ROWS_NOT_READABLE", table=table.name, reason=first_line(error)),
            )


def _avro_type_findings(copy: HiveCopy) -> Iterator[PauseFinding]:
    """Yield the Avro columns whose types in the metastore differ, because Spark can't alter such a table."""
    types = metastore.column_types(copy.spark, copy.name)
    for field in copy.schema:
        kind = types.get(field.name.lower(), "")
        if "<" in kind and kind.lower() != declared(field).lower():
            yield PauseFinding(
                PauseReason.UNSUPPORTED_SCHEMA,
                Refused(
                    "AVRO_COLUMN_TYPE_DIFFERS",
                    table=copy.name,
                    column=field.name,
                    type=kind,
                    avro_type=declared(field),
                ),
            )


def _partition_value_refusal(copy: HiveCopy, form: TargetFormat, *, rewritten: bool) -> Refused | None:
    """Return the refusal of partition values that don't match the rows' values; None if all match.

    The catalog has strings, and the rows have Spark's cast of these strings.
    """
    keys, kinds = copy.partition_columns, {name.lower(): kind for name, kind in copy.columns.items()}
    texts = [
        (kind, value, copy.odd.get(partition, partition)[number])
        for number, kind in enumerate(kinds[key.lower()] for key in keys)
        for partition in copy.partitions
        if (value := partition[number]) is not None and kind not in ("string", *INTEGERS)
    ]
    wrong = [
        own
        for kind, value, own in texts
        if form is TargetFormat.ICEBERG and not rewritten and own != value and kind.startswith(_STRICT)
    ]
    for kind in sorted({kind for kind, _, _ in texts}):
        pairs = {(value, own) for of, value, own in texts if of == kind}
        frame = frame_of(copy.spark, sorted(pairs), "value STRING, own STRING")
        cast = f"CAST(try_cast(own AS {kind}) AS STRING)"
        wrong += [row[0] for row in frame.where(f"NOT value <=> {cast}").select("own").collect()]
    if not wrong:
        return None
    values = sorted(filter(None, wrong))
    return Refused("PARTITION_VALUES_SPELLED_DIFFERENTLY", table=copy.name, values=values)


def _read_row(rows: DataFrame) -> None:
    """Read all columns of a row as a string, because Python lacks some values, such as year 10000."""
    rows.limit(1).selectExpr("CAST(struct(*) AS STRING) AS row").collect()


def _file_refusal(
    facts: PreflightFacts, warehouse: Warehouse, form: TargetFormat, defaults: Mapping[str, str]
) -> Refused | None:
    """Return why the new table can't use a table's files, by their footers; None if it can."""
    table = facts.table
    if form is TargetFormat.ICEBERG:
        try:
            unsuitable = list_blockers(warehouse.spark, table, facts.files.read, defaults)
        except Refused as error:
            return error
        return Refused("FILES_NOT_ICEBERG", table=table.name, files=list(unsuitable)) if unsuitable else None
    far = None
    if delta.is_reached_by_hadoop(warehouse, table.location):
        far = delta.list_hadoop_files(warehouse.spark, table.location, facts.files)
    try:
        overlay.check(
            warehouse.spark,
            table.name,
            empty=not facts.files.read,
            column_mapping=facts.column_mapping,
            far=far,
        )
    except Refused as error:
        return error
    return None
