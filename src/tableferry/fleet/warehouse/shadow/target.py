"""A target as shadowing needs it, whichever its format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.changes import Changes
from tableferry.fleet.warehouse.shadow.delta_changes import DeltaTarget
from tableferry.fleet.warehouse.shadow.iceberg_changes import IcebergTarget
from tableferry.fleet.warehouse.shadow.marks import Marks
from tableferry.fleet.warehouse.shadow.partitions import Partition
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Target(Protocol):
    """The table that took the Hive table's place, at one version."""

    @property
    def id(self) -> str:
        """An id that no other table has."""

    @property
    def version(self) -> str:
        """The version, as the watermark names it."""

    @property
    def shared(self) -> str | None:
        """The directory that both it and the Hive copy read; None if there is none."""

    @property
    def type_substitutes(self) -> Mapping[str, str]:
        """The types that Hive's become in it, where it lacks them."""

    def columns(self) -> dict[str, str]:
        """Return the columns and their types."""

    def rows(self) -> DataFrame:
        """Return the rows at the version."""

    def changes(self, marks: Marks, kinds: Mapping[str, str], partition_columns: Sequence[str]) -> Changes:
        """Return what happened since the watermark, given the Hive table's types and partition columns."""

    def added_rows(self, changes: Changes, watermark: str, partitions: Sequence[Partition]) -> DataFrame:
        """Return rows added since the watermark: all of these partitions, and maybe some of others."""

    def files_logged_since(self, watermark: str | None) -> Iterable[str]:
        """Return the paths of files that its log has named since the watermark, as far as it goes back."""

    def replaced_all_since(self, watermark: str | None) -> str:
        """Return the newest version since the watermark that replaced all rows at once; empty if none did."""

    def data_files(self) -> Iterable[str]:
        """Return the paths of the files that it reads."""

    def append_once(self, warehouse: Warehouse, rows: DataFrame, key: str) -> None:
        """Append rows in a commit that has a key, unless there is one with that key."""

    def exact(self, changes: Changes, columns: Sequence[str]) -> frozenset[Partition]:
        """Return those partitions whose directory holds just the target's files."""


def read_target(warehouse: Warehouse, name: TableName, form: TargetFormat) -> Target:
    """Read a table's newest version.

    Raises:
        TableError: There is no such table, or it may not be read.
    """
    if form is TargetFormat.ICEBERG:
        return IcebergTarget.read(warehouse.spark, warehouse.iceberg(name))
    return DeltaTarget.read(warehouse.spark, name)
