"""Gather the facts of a table for its checks, from the catalog, its directories and Spark."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from tableferry.convert import overlay
from tableferry.errors import Refused, TableError
from tableferry.fleet.checks.facts import NO_FILES, CatalogFacts, GivenReading, Needs, Reading
from tableferry.fleet.checks.metadata_checks import needs_rewriting
from tableferry.fleet.checks.table_reading import TableReading
from tableferry.fleet.hive_copy.table import scratch_name
from tableferry.fleet.hive_tables import copy_locations, metastore
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import Listing
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.jobs.job import Job, OldName, TargetFormat
from tableferry.fleet.jobs.names import Moving, Names
from tableferry.fleet.jobs.step_plan import target_kind
from tableferry.fleet.warehouse import hive, hive_files, job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class TableFacts:
    """All facts of a table before its migration; see `Facts`. Each is read when a check first needs it.

    Attributes:
        job: The table with its target format.
        directories: The directories of all tables in the catalog.
    """

    warehouse: Warehouse
    job: Moving
    table: HiveTable
    directories: TableDirectories

    @property
    def known(self) -> Collection[Needs]:
        """The kinds of facts that are known."""
        return tuple(Needs)

    @cached_property
    def rewritten(self) -> bool:
        """Whether the rows may and must be rewritten."""
        return bool(self.job.rewrite) and needs_rewriting(self.table, self.job.target_format)

    @property
    def taken(self) -> Collection[TableName]:
        """No names: preprocess checks them after the table."""
        return ()

    @cached_property
    def catalog(self) -> CatalogFacts:
        """The table's place in the catalog."""
        warehouse, spark, name, names = self.warehouse, self.warehouse.spark, self.table.name, self._names
        return CatalogFacts(
            schema_refusal=_schema_refusal(warehouse, names, self.job.target_format),
            names=names.all,
            can_make_external=metastore.is_reachable(spark, name),
            overlapping=self._overlapping_tables(()),
            unlisted=self.directories.unlisted(spark, name),
            owning_table=_owning_table(warehouse, self.table),
            keeps_name=self.job.old_name is OldName.TABLE,
            column_mapping=warehouse.column_mapping,
        )

    @cached_property
    def partitions(self) -> tuple[CatalogPartition, ...]:
        """The table's partitions in the catalog."""
        return hive.partitions(self.warehouse, self.table)

    @cached_property
    def files(self) -> Listing:
        """The table's files."""
        return hive_files.listing(self.warehouse, self.table, self.partitions)

    @cached_property
    def reading(self) -> Reading:
        """What Spark reads of the table."""
        rewrite_started = isinstance(self.job, Job) and "folder" in (self.job.record.rewritten or {})
        return TableReading(self.warehouse, self, self.job.target_format, rewrite_started)

    @property
    def _names(self) -> Names:
        return Names.of(self.job)

    def _overlapping_tables(self, apart: Collection[TableName]) -> tuple[tuple[TableName, str], ...]:
        """Return the tables whose directories overlap with the Hive table's or the new table's directory.

        Tables that overlap with a partition in another directory are returned too. Tables in `apart` are left
        out. Tables with a name of this migration count only for the Hive table's own directory.
        """
        table, form, spark = self.table, self.job.target_format, self.warehouse.spark
        # A suspended or crashed worker may have left this table.
        scratch = scratch_name(table.name)
        own = (*self._names.all, scratch)
        around = self.directories.overlapping(spark, table.name, table.location, (*apart, scratch))
        others = {each.location for each in self.partitions if below(each.location, table.location) is None}
        if form is not TargetFormat.DELTA or self.rewritten:
            others.add(copy_locations.copies_folder(table.location, form))
        more = (
            other
            for location in sorted(others)
            for other in self.directories.overlapping(spark, table.name, location, own)
        )
        return tuple(dict.fromkeys((*around, *more)))


@dataclass(frozen=True)
class StartFacts(TableFacts):
    """The facts of a table right before its migration starts; the migration's own tables may exist.

    Partitions and files aren't listed, because the creation of the target checks them.
    """

    job: Job

    @property
    def known(self) -> Collection[Needs]:
        """The kinds of facts that are known."""
        return (Needs.METADATA, Needs.CATALOG)

    @property
    def rewritten(self) -> bool:
        """Whether preprocess decided that the rows are rewritten."""
        return self.job.is_rewritten

    @cached_property
    def taken(self) -> Collection[TableName]:
        """The names of the migration that other tables have."""
        names = self._names
        kinds = job_tables.list_job_tables(self.warehouse, names)
        # A copy may exist already; the migration updates or drops it.
        own = {name for name in (names.copy, names.dropped) if kinds.get(name) is target_kind(self.job)}
        return kinds.keys() - {names.main} - own

    @cached_property
    def catalog(self) -> CatalogFacts:
        """The table's place in the catalog, without what can't change after the preflight."""
        warehouse, names = self.warehouse, self._names
        elsewhere = names.elsewhere
        return CatalogFacts(
            schema_refusal=_schema_refusal(warehouse, names, self.job.target_format) if elsewhere else None,
            can_make_external=metastore.is_reachable(warehouse.spark, self.table.name),
            overlapping=self._overlapping_tables(names.all),
            owning_table=_owning_table(warehouse, self.table),
            keeps_name=self.job.old_name is OldName.TABLE,
            column_mapping=warehouse.column_mapping,
        )

    @property
    def partitions(self) -> tuple[CatalogPartition, ...]:
        """No partitions, because they aren't listed."""
        return ()

    @property
    def files(self) -> Listing:
        """No files, because they aren't listed."""
        return NO_FILES

    @property
    def reading(self) -> Reading:
        """Nothing, because Spark doesn't read the table."""
        return GivenReading()


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
