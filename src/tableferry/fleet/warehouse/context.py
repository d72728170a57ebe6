"""What every function here is given: Spark, the Iceberg catalog's name, the tables' rights, and a guard."""

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

    from tableferry.fleet.warehouse.existing import Seen
    from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
    from tableferry.fleet.warehouse.shared_directories import Neighbourhood
    from tableferry.fleet.warehouse.views import Views

_log = logging.getLogger(__name__)

T = TypeVar("T")


def see_commits(spark: SparkSession, iceberg_catalog: str) -> None:
    """Let Iceberg's catalog keep no tables: it would give one as this session has first read it.

    The catalog asks for this setting when the session names it for the first time.
    """
    key = f"spark.sql.catalog.{iceberg_catalog}.cache-enabled"
    if refusal := _refused(spark, key, "false"):
        _log.warning(
            "%s can't be set (%s), so that commits of others to Iceberg tables may be seen late: set it to "
            "false for the cluster", key, refusal,
        )  # fmt: skip


def show_properties(spark: SparkSession) -> None:
    """Let a session show tables' properties as they are, with what Spark takes for secrets.

    Where that is refused, `asking.demand_shown` finds those that matter.
    """
    for key, value in SHOWN.items():
        if refusal := _refused(spark, key, value):
            _log.debug("%s can't be set: %s", key, refusal)


def _refused(spark: SparkSession, key: str, value: str) -> str:
    """Set a setting of a session; return why Spark refuses that, empty if it doesn't."""
    try:
        spark.conf.set(key, value)
    except Exception as error:
        # Their classes depend on the kind of session.
        if not is_sparks(error):
            raise
        return first_line(error) or "refused"
    return ""


def _unguarded() -> None:
    """Let everything happen."""


class NeedsPerson(Refused):
    """Something that a person must decide.

    Attributes:
        found: What names it, so that exactly this can be accepted.
    """

    def __init__(self, condition: str, found: str = "", /, **parameters: object) -> None:
        super().__init__(condition, **parameters)
        self.found = found


class Access(Protocol):
    """A table's owners, its readers, and the rights to write to it."""

    def owners(self, table: TableName) -> tuple[str, ...]:
        """Return the owners of a table, as the catalog spells them."""

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        """Return who reads a table, without its owners."""

    def keeps_rights(self, table: TableName) -> bool:
        """Say whether the table's catalog keeps rights to write, which can be taken and given back."""

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return, as JSON, the rights to write that `take` would take; empty where nothing can take any."""

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Take these rights, which the caller has noted before; those already taken are no error."""

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Give exactly these rights back; those already there are no error."""

    def carry(self, source: TableName, target: TableName) -> None:
        """Give a table the owner and the grants of another, and its tags where the catalog has any."""


@dataclass(frozen=True)
class Warehouse:
    """A warehouse of tables.

    Attributes:
        spark: The session.
        access: The tables' owners, readers and rights.
        iceberg_catalog: The Spark catalog through which Iceberg's own statements go.
        late_files: What to do with files that come into the Hive copy's directories after the switch.
        removed_partitions: What to do when an overwrite removed partitions that it didn't write.
        column_mapping: Whether a Delta table may use column mapping for names that it doesn't take otherwise.
        rewrite_chunk: How many bytes of a table that is rewritten are written at once, at least a
            partition.
        serverless: Whether the session runs on serverless compute, which has no Iceberg of ours.
        neighbourhood: Which tables share directories; without one, the catalog is listed for each table.
        views: The views of schemas; without them, those of a schema are listed for each table.
        seen: What this run has seen of its job's tables; without it, each look is a new one.
        prepared: What this run knows of the copy that it makes; without it, everything is looked at.
        guard: Raises if the caller must not change the tables any more, as its claim on the job is lost.
    """

    spark: SparkSession
    access: Access
    iceberg_catalog: str = "ice"
    late_files: LateFiles = LateFiles.PAUSE
    removed_partitions: RemovedPartitions = RemovedPartitions.ALARM
    column_mapping: bool = False
    rewrite_chunk: int = 16 * 2**30
    serverless: bool = False
    neighbourhood: Neighbourhood | None = None
    views: Views | None = None
    seen: Seen | None = None
    prepared: PreparedCopy | None = None
    guard: Callable[[], None] = _unguarded

    @classmethod
    def of(
        cls, spark: SparkSession, access: Access, settings: FleetSettings, *, serverless: bool = False
    ) -> Warehouse:
        """Return the warehouse that a fleet's settings describe, and let the session see what it needs to."""
        show_properties(spark)
        if not serverless:
            see_commits(spark, settings.iceberg_catalog)
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
        """Make sure that tables can become what they are to become, before anything is done to one.

        Raises:
            Refused: One is to become Iceberg, on compute that has neither its runtime nor its catalog.
        """
        if self.serverless and TargetFormat.ICEBERG in formats:
            raise Refused("SERVERLESS_WITHOUT_ICEBERG", catalog=self.iceberg_catalog)

    def effect(self, work: Callable[[], T], *, of: Collection[TableName] | None = None) -> T:
        """Change something outside the queue, right after the guard; every change goes through here.

        Args:
            work: Changes it.
            of: The job's tables whose entries in the catalog change by that; all of them, if nobody says.
        """
        self.guard()
        try:
            return work()
        finally:
            self.forget(of)

    def forget(self, of: Collection[TableName] | None = None) -> None:
        """Look at tables anew from now on, at all if nobody says which: somebody may have altered them."""
        if self.seen is not None:
            self.seen.forget(of)

    def run(self, statement: str, *, of: Collection[TableName] | None = None) -> None:
        """Run a statement of SQL that changes something."""
        self.effect(lambda: self.spark.sql(statement).collect(), of=of)

    def looking_into(self, catalog: str) -> None:
        """Let the session see others' commits in a catalog of Iceberg's that its settings define."""
        if self.is_icebergs(catalog):
            see_commits(self.spark, catalog)

    def is_icebergs(self, catalog: str) -> bool:
        """Say whether a catalog is one of Iceberg's that the session's settings define."""
        kept_by = self.spark.conf.get(f"spark.sql.catalog.{catalog}", None) or ""
        return kept_by.startswith("org.apache.iceberg.")

    def iceberg(self, table: TableName) -> TableName:
        """Name an Iceberg table for Iceberg's own statements: by its catalog where the metastore has two."""
        catalog, *rest = table.parts
        return TableName((self.iceberg_catalog, *rest)) if catalog == DEFAULT_CATALOG else table

    def named(self, table: TableName, form: TargetFormat) -> TableName:
        """Name a table of a format as Spark reads and writes it."""
        return self.iceberg(table) if form is TargetFormat.ICEBERG else table
