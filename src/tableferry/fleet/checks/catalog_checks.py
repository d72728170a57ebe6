"""Checks of a table's place in the catalog: names, schemas, directories of other tables; without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from tableferry.errors import Paused, Refused
from tableferry.fleet.checks.facts import Facts, Findings, Needs, check
from tableferry.fleet.hive_tables.hive_table import PURGE, column_paths
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.formats.delta import column_mapping
from tableferry.formats.hive.locations import split
from tableferry.spark.tables import TableName

# The length of a table's name in Hive's metastore (TBL_NAME).
_LONGEST_NAME = 256


@check(Needs.CATALOG)
def names_taken(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table if other tables have names that its migration needs."""
    if facts.taken:
        yield name_taken_finding(facts.taken)


@check(Needs.CATALOG)
def target_schema(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table if the schema of the new table is missing, or can't be used."""
    if facts.catalog.schema_refusal is not None:
        yield PauseFinding(PauseReason.NO_TARGET_SCHEMA, facts.catalog.schema_refusal)


@check(Needs.CATALOG)
def long_name(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table if a name of its migration is longer than Hive's metastore stores (`TBL_NAME`)."""
    longest = max((each.table for each in facts.catalog.names), key=len, default="")
    if len(longest) > _LONGEST_NAME:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused(
                "HIVE_NAME_TOO_LONG",
                table=facts.table.name,
                name=longest,
                length=len(longest),
                limit=_LONGEST_NAME,
            ),
        )


@check(Needs.CATALOG)
def managed_table(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a managed table if this process can't make it external.

    A rename of a managed table moves its files, and a drop removes them (Hive's wiki, "Managed vs. External
    Tables").
    """
    if facts.table.managed and not facts.catalog.can_make_external:
        yield PauseFinding(PauseReason.MANAGED_TABLE, Paused("MANAGED_TABLE", table=facts.table.name))


@check(Needs.CATALOG)
def purge(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse an external table with `external.table.purge`, whose files Hive 3 removes when it is dropped.

    The property is in Hive's wiki, "LanguageManual DDL".
    """
    table = facts.table
    if table.properties.get(PURGE, "").lower() == "true":
        yield PauseFinding(
            PauseReason.REMOVES_FILES,
            Refused("PURGE_REMOVES_FILES", table=table.name, statement=table.name.sql, property=PURGE),
        )


@check(Needs.CATALOG)
def overlapping_directories(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table if another table's directory equals, contains or is in a directory of its migration.

    A write to one of the tables would appear in the other, or remove its rows.
    """
    table = facts.table
    if facts.catalog.overlapping:
        others = [f"{other} at {location}" for other, location in facts.catalog.overlapping]
        yield PauseFinding(
            PauseReason.SHARED_DIRECTORY,
            Refused(
                "DIRECTORIES_OVERLAP",
                table=table.name,
                folder=table.location,
                format=form.value,
                others=others,
            ),
        )


@check(Needs.CATALOG)
def directory_of_other_table(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table inside the directory of an Iceberg or Delta table, also of one outside the catalog.

    The metadata of that table decide which files count.
    """
    table = facts.table
    if owner := facts.catalog.owning_table:
        yield PauseFinding(
            PauseReason.SHARED_DIRECTORY,
            Refused("DIRECTORY_IN_OTHER_TABLE", table=table.name, folder=table.location, owner=owner),
        )


@check(Needs.CATALOG)
def old_name_shares_files(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse `old_name: table` for a Delta table in place.

    The Hive table would read the Delta table's files without its log, so changed rows appear twice.
    """
    if facts.catalog.keeps_name and form is TargetFormat.DELTA and not facts.rewritten:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT, Refused("OLD_NAME_SHARES_FILES", table=facts.table.name)
        )


@check(Needs.CATALOG)
def whole_bucket(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse a table that is a whole bucket or file system.

    The new table and the Hive copy need directories next to the table's.
    """
    table = facts.table
    if split(table.location)[2] == "/":
        yield PauseFinding(
            PauseReason.UNSUPPORTED_LAYOUT,
            Refused("TABLE_IS_WHOLE_BUCKET", table=table.name, folder=table.location),
        )


@check(Needs.CATALOG)
def unusual_names(facts: Facts, form: TargetFormat) -> Findings:
    """Refuse column names for Delta that need column mapping, unless `column_mapping` allows it.

    Delta's protocol, "Column Mapping", describes it.
    """
    table = facts.table
    unsuitable = [".".join(path) for path in column_paths(table.columns) if not column_mapping.fits(path[-1])]
    if unsuitable and form is TargetFormat.DELTA and not facts.catalog.column_mapping:
        yield PauseFinding(
            PauseReason.UNSUPPORTED_SCHEMA,
            Refused("NAMES_NEED_COLUMN_MAPPING", table=table.name, columns=unsuitable),
        )


def name_taken_finding(names: Iterable[TableName]) -> PauseFinding:
    """Return the finding that other tables have names that the migration needs."""
    tables = ", ".join(str(name) for name in sorted(names, key=str))
    return PauseFinding(PauseReason.NAME_TAKEN, Refused("MIGRATION_NAMES_TAKEN", tables=tables))
