"""The `Warehouse` that all functions take: Spark, the fleet's settings, access rights, caches and a guard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tableferry.errors import Refused, first_line, is_sparks
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.settings import FleetSettings, LateFiles, RemovedPartitions
from tableferry.spark.redaction import SHOWN
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.fleet.warehouse.job_tables import JobTableCache
    from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
    from tableferry.fleet.warehouse.shared_directories import TableDirectories
    from tableferry.fleet.warehouse.views import Views

_log = logging.getLogger(__name__)

T = TypeVar("T")


def disable_table_cache(spark: SparkSession, iceberg_catalog: str) -> None:
    """Disable the table cache of an Iceberg catalog, because it hides commits of other sessions.

    The catalog reads this setting when the session uses it for the first time.
    """
    key = f"spark.sql.catalog.{iceberg_catalog}.cache-enabled"
    if refusal := _refused(spark, key, "false"):
        _log.warning(
            "%s can't be set (%s), so the session may read outdated Iceberg tables. Set it to false for the "
            "cluster.", key, refusal,
        )  # fmt: skip


def disable_redaction(spark: SparkSession) -> None:
    """Let a session show table properties that Spark would redact as secrets.

    If Spark refuses the setting, `table_descriptions.require_shown_properties` reports hidden properties.
    """
    for key, value in SHOWN.items():
        if refusal := _refused(spark, key, value):
            _log.debug("%s can't be set: %s", key, refusal)


def _refused(spark: SparkSession, key: str, value: str) -> str:
    """Set a session's setting; return the reason if Spark refuses it, else an empty text."""
    try:
        spark.conf.set(key, value)
    except Exception as error:
        # The classes of these errors depend on the kind of session.
        if not is_sparks(error):
            raise
        return first_line(error) or "refused"
    return ""


def _allow_all() -> None:
    """Allow every change."""


class DecisionRequired(Refused):
    """A refusal that a person can accept.

    Attributes:
        found: The id of the finding, which the person accepts.
    """

    def __init__(self, condition: str, found: str = "", /, **parameters: object) -> None:
        super().__init__(condition, **parameters)
        self.found = found


class Access(Protocol):
    """A table's owners, its readers, and the rights to write to it."""

    def owners(self, table: TableName) -> tuple[str, ...]:
        """Return the owners of a table, as the catalog spells them."""

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        """Return the readers of a table who don't own it."""

    def keeps_rights(self, table: TableName) -> bool:
        """Return whether the table's catalog has write privileges that can be revoked and restored."""

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return, as JSON, the write privileges that `take` would revoke; empty if it can't revoke any."""

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Revoke privileges, which the caller has recorded before; ignore those already revoked."""

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Grant exactly these privileges again; ignore those already granted."""

    def carry(self, source: TableName, target: TableName) -> None:
        """Copy the owner, the grants and, if the catalog has them, the tags from one table to another."""


@dataclass(frozen=True)
class Warehouse:
    """The tables of a fleet, and the means to read and change them.

    Attributes:
        spark: The session.
        access: The tables' owners, readers and privileges.
        iceberg_catalog: The Spark catalog for statements of Iceberg tables in the metastore.
        late_files: The policy for files that are written into the Hive copy's directories after the switch.
        removed_partitions: The policy for an overwrite that removed partitions which it didn't write.
        column_mapping: Whether a Delta table may use column mapping for names that it can't have without it.
        rewrite_chunk: The bytes that one write of a rewritten copy contains; at least one partition.
        serverless: Whether the session runs on serverless compute, where Iceberg's runtime is missing.
        directories: The cached directories of all tables; if None, the catalog is listed for each table.
        views: The cached views of all schemas; if None, a schema's views are listed for each table.
        table_cache: The cached catalog entries of the job's tables; if None, each call reads the catalog.
        prepared: The run's knowledge of its copy; if None, each step reads everything.
        guard: Raises if the caller has lost its claim on the job and must not change the tables.
    """

    spark: SparkSession
    access: Access
    iceberg_catalog: str = "ice"
    late_files: LateFiles = LateFiles.PAUSE
    removed_partitions: RemovedPartitions = RemovedPartitions.ALARM
    column_mapping: bool = False
    rewrite_chunk: int = 16 * 2**30
    serverless: bool = False
    directories: TableDirectories | None = None
    views: Views | None = None
    table_cache: JobTableCache | None = None
    prepared: PreparedCopy | None = None
    guard: Callable[[], None] = _allow_all

    @classmethod
    def of(
        cls, spark: SparkSession, access: Access, settings: FleetSettings, *, serverless: bool = False
    ) -> Warehouse:
        """Return the warehouse of a fleet's settings, after setting up the session for it."""
        disable_redaction(spark)
        if not serverless:
            disable_table_cache(spark, settings.iceberg_catalog)
        return cls(
            spark,
            access,
            settings.iceberg_catalog,
            settings.late_files,
            settings.removed_partitions,
            settings.column_mapping,
            settings.rewrite_chunk_mb * 2**20,
            serverless,
        )

    def check_formats(self, formats: Iterable[str]) -> None:
        """Check that this compute can write some target formats.

        Raises:
            Refused: A format is Iceberg, and the compute has neither its runtime nor its catalog.
        """
        if self.serverless and TargetFormat.ICEBERG in formats:
            raise Refused("SERVERLESS_WITHOUT_ICEBERG", catalog=self.iceberg_catalog)

    def effect(self, work: Callable[[], T], *, of: Collection[TableName] | None = None) -> T:
        """Check the claim, then change something outside the queue. Every change uses this method.

        Args:
            work: The change.
            of: The job's tables whose catalog entries change; None for all of them.
        """
        self.guard()
        try:
            return work()
        finally:
            self.invalidate(of)

    def invalidate(self, of: Collection[TableName] | None = None) -> None:
        """Remove the entries of tables from the cache, so that they are read again; all entries for None."""
        if (cache := self.table_cache) is not None:
            for name in cache.names if of is None else of:
                cache.entries.pop(name, None)

    def run(self, statement: str, *, of: Collection[TableName] | None = None) -> None:
        """Run an SQL statement that changes something."""
        self.effect(lambda: self.spark.sql(statement).collect(), of=of)

    def prepare_catalog(self, catalog: str) -> None:
        """Disable the table cache of a catalog, if the session configures it as an Iceberg catalog."""
        if self.is_iceberg_catalog(catalog):
            disable_table_cache(self.spark, catalog)

    def is_iceberg_catalog(self, catalog: str) -> bool:
        """Return whether the session configures a catalog as an Iceberg catalog."""
        kept_by = self.spark.conf.get(f"spark.sql.catalog.{catalog}", None) or ""
        return kept_by.startswith("org.apache.iceberg.")

    def iceberg(self, table: TableName) -> TableName:
        """Return a table's name in the Iceberg catalog, which Iceberg's own statements need."""
        catalog, *rest = table.parts
        return TableName((self.iceberg_catalog, *rest)) if catalog == DEFAULT_CATALOG else table

    def named(self, table: TableName, form: TargetFormat) -> TableName:
        """Return the name by which Spark reads and writes a table of a format."""
        return self.iceberg(table) if form is TargetFormat.ICEBERG else table
