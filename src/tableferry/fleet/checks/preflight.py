"""Check a table before its migration: find what would stop it, and what its owners should know.

Each check is also made by a later step of the migration.
"""

from __future__ import annotations

from tableferry.amounts import first_of
from tableferry.errors import TableError
from tableferry.fleet.checks.eligibility import find_obstacles
from tableferry.fleet.checks.facts import Facts, GivenFacts
from tableferry.fleet.checks.table_facts import StartFacts, TableFacts
from tableferry.fleet.hive_tables.hive_table import HiveTable, stored_types
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.findings import PauseFinding, Preflight
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Moving, Names
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.fleet.warehouse.step_run import StepRun, require_no_finding


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
    facts = TableFacts(warehouse, job, table, directories)
    if ineligible := tuple(find_obstacles(GivenFacts(table, facts.rewritten), form)):
        # Files of such a table aren't listed.
        return Preflight(name, form, ineligible, stored_as=table.format)
    return Preflight(
        name,
        form,
        tuple(find_obstacles(facts, form)),
        list_remarks(facts, form),
        table.format,
        len(facts.files.read),
        sum(file.size for file in facts.files.read),
        len(facts.partitions),
        rewritten=facts.rewritten,
    )


def repeat_preflight(step: steps.RepeatPreflight, run: StepRun) -> Job:
    """Repeat the checks of `first_finding`, and return the job unchanged.

    Raises:
        StepPaused: There is a finding; the caller pauses the job with it.
        TableError: As in `first_finding`.
        Refused: As in `first_finding`.
    """
    require_no_finding(first_finding(run.warehouse, run.job))
    return run.job


def first_finding(warehouse: Warehouse, job: Job) -> PauseFinding | None:
    """Repeat the preflight's checks of the catalog right before a migration starts; return the first finding.

    Tables may have changed since `preflight`, which may have run weeks ago. Files and rows aren't checked
    again.

    Raises:
        TableError: The table doesn't exist, or its metadata can't be read.
        Refused: It is no longer a Hive table.
    """
    table = hive.require_hive_table(warehouse, Names.of(job).main)
    facts = StartFacts(warehouse, job, table, warehouse.directories or TableDirectories())
    return next(find_obstacles(facts, job.target_format), None)


def list_remarks(facts: Facts, form: TargetFormat) -> tuple[str, ...]:
    """Return sentences that the owners of a table should read before its migration."""
    sentences = []
    if facts.rewritten:
        sentences.append(
            "its rows are rewritten as Parquet in another directory, and the Hive table's files stay until "
            "tableferry fleet close: this needs about twice the storage"
            + ("" if facts.table.partition_columns else "; without partitions, one write contains all rows")
        )
    if facts.table.partition_columns:
        sentences.append(
            "after the switch, a job that replaces partitions with INSERT OVERWRITE must set "
            "spark.sql.sources.partitionOverwriteMode=dynamic, or it removes all other partitions"
        )
    defaults = [f"{column.name} {column.default}" for column in facts.table.columns if column.default]
    if defaults and form is TargetFormat.ICEBERG:
        sentences.append(
            f"columns have defaults, {first_of(defaults)}, which Spark doesn't support for Iceberg tables: "
            "an INSERT without such a column writes null"
        )
    if _keeps_milliseconds(facts.table):
        sentences.append(
            f"Hive tables in {facts.table.format} store timestamps in milliseconds: if users write finer "
            "timestamps during probation, the table pauses before its archive or revert, and the new table "
            "has all rows"
        )
    if facts.files.stray:
        strays = first_of([file.path for file in facts.files.stray])
        sentences.append(f"files that belong to no partition stay in the directory: {strays}")
    if facts.catalog.unlisted:
        sentences.append(
            f"the tables of {first_of(facts.catalog.unlisted)} can't be listed, so one of them may share the "
            "table's directory: get the privilege to list them, and run preflight again"
        )
    if form is TargetFormat.DELTA and not facts.rewritten:
        sentences.append(
            "until the Hive table is archived, it shares its files with the Delta table: don't read it, "
            "because changed rows appear twice, and don't write to it, because an INSERT OVERWRITE makes the "
            "Delta table unreadable"
        )
    return tuple(sentences)


def _keeps_milliseconds(table: HiveTable) -> bool:
    """Return whether writers of a Hive table truncate timestamps: Hive's Avro, and Spark's CSV and JSON."""
    if table.format in ("csv", "json"):
        options = {key.lower() for key in table.options}
        cuts = not table.serde and "timestampformat" not in options
    else:
        cuts = table.format == "avro"
    kinds = [kind["name"] for kind in stored_types(table.columns).values()]
    return cuts and any(kind.startswith("timestamp") for kind in kinds)
