"""The facts that decide whether a Hive table can be migrated, and the shape of a check; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tableferry.errors import Refused
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import Listing
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import TableName

NO_FILES = Listing((), (), ())
"""The listing of a table whose files aren't known, or that has none."""


class Needs(Enum):
    """The facts that a check needs, from cheap to costly.

    Attributes:
        METADATA: The table's own entry in the catalog.
        CATALOG: The names, schemas and directories of other tables, and the settings of the migration.
        FILES: The table's partitions and files, listed by their directories.
        READING: What Spark reads of the table, and the footers of its files.
    """

    METADATA = "metadata"
    CATALOG = "catalog"
    FILES = "partitions and files"
    READING = "Spark"


@dataclass(frozen=True)
class CatalogFacts:
    """A table's place in the catalog, and the settings of its migration.

    Attributes:
        schema_refusal: Why the new table's schema can't be used; None if it can.
        names: The names of the Hive table and the new table during the migration.
        can_make_external: Whether this process can make a managed table external.
        overlapping: Other tables whose directories overlap with the table's, with these directories.
        unlisted: Schemas whose tables can't be listed, and so aren't among `overlapping`.
        owning_table: Why the directory belongs to another table above it; or empty.
        keeps_name: Whether the Hive table keeps its name during probation (`old_name: table`).
        column_mapping: Whether a Delta table may use column mapping for names that it can't have without it.
    """

    schema_refusal: Refused | None = None
    names: tuple[TableName, ...] = ()
    can_make_external: bool = True
    overlapping: tuple[tuple[TableName, str], ...] = ()
    unlisted: tuple[TableName, ...] = ()
    owning_table: str = ""
    keeps_name: bool = False
    column_mapping: bool = False


@dataclass(frozen=True)
class CopyFacts:
    """What Spark reads of a table's columns and partitions, as for its Hive copy.

    Attributes:
        other_values: Partition values that Spark spells differently; None if all match.
        other_types: Columns whose types in the metastore differ from their Avro types: column, type, Avro
            type.
        refusal: Why the Hive copy can't be updated; None if it can.
        failure: Spark's error; or empty.
    """

    other_values: Sequence[str] | None = None
    other_types: Sequence[tuple[str, str, str]] = ()
    refusal: Refused | None = None
    failure: str = ""


class Reading(Protocol):
    """What Spark and the code of later steps read of a table; each fact is read on first use."""

    @property
    def suspended_files(self) -> Sequence[str]:
        """The files of unfinished shadow runs that the table reads."""

    @property
    def other_partitions(self) -> Sequence[str]:
        """The partitions that are read by another format, or other properties of the SerDe."""

    @property
    def copy(self) -> CopyFacts:
        """The columns and partitions as for the Hive copy."""

    @property
    def rewrite_refusal(self) -> Refused | None:
        """Why the rewritten rows can't be written to their directory; None if they can."""

    @property
    def files_refusal(self) -> Refused | None:
        """Why the new table can't use the files, by their footers; None if it can."""

    @property
    def row_failure(self) -> str:
        """Spark's error when it reads one row; empty if it succeeds, or if `copy` has a reason against it."""


class Facts(Protocol):
    """The facts of a Hive table before its migration.

    A fact that isn't known has a value with which no check finds anything.
    """

    @property
    def known(self) -> Collection[Needs]:
        """The kinds of facts that are known."""

    @property
    def table(self) -> HiveTable:
        """The table's metadata."""

    @property
    def rewritten(self) -> bool:
        """Whether the rows are rewritten because the new table can't use the files."""

    @property
    def taken(self) -> Collection[TableName]:
        """The names of the migration that other tables have."""

    @property
    def catalog(self) -> CatalogFacts:
        """The table's place in the catalog."""

    @property
    def partitions(self) -> Sequence[CatalogPartition]:
        """The table's partitions in the catalog."""

    @property
    def files(self) -> Listing:
        """The table's files."""

    @property
    def reading(self) -> Reading:
        """What Spark reads of the table."""


@dataclass(frozen=True)
class GivenReading:
    """Facts about reading a table that were read before; see `Reading`."""

    suspended_files: Sequence[str] = ()
    other_partitions: Sequence[str] = ()
    copy: CopyFacts = CopyFacts()
    rewrite_refusal: Refused | None = None
    files_refusal: Refused | None = None
    row_failure: str = ""


@dataclass(frozen=True)
class GivenFacts:
    """Facts of a table that were read before; see `Facts`."""

    table: HiveTable
    rewritten: bool = False
    known: Collection[Needs] = (Needs.METADATA,)
    taken: Collection[TableName] = ()
    catalog: CatalogFacts = CatalogFacts()
    partitions: Sequence[CatalogPartition] = ()
    files: Listing = NO_FILES
    reading: Reading = GivenReading()


Findings = Iterator[PauseFinding]
_Find = Callable[[Facts, TargetFormat], Findings]


@dataclass(frozen=True)
class Check:
    """A check of a table before its migration.

    Attributes:
        name: The check's name, which no other check has.
        needs: The facts that it needs.
        find: Yields what prevents the table's migration to a format.
    """

    name: str
    needs: Needs
    find: _Find

    @property
    def rule(self) -> str:
        """The rule in one or two sentences, with its source."""
        return " ".join((self.find.__doc__ or "").split())


def check(needs: Needs) -> Callable[[_Find], Check]:
    """Return a decorator that makes a check of a function, with its name and its docstring."""

    def checked(find: _Find) -> Check:
        return Check(find.__name__, needs, find)

    return checked
