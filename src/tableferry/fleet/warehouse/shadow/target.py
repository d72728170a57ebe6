"""What the two formats have in common, seen from the Hive copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shadow.changes import Changes
from tableferry.fleet.warehouse.shadow.marks import Marks
from tableferry.fleet.warehouse.shadow.partitions import Partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Target(Protocol):
    """The table that took the Hive table's place, at one version."""

    @property
    def id(self) -> str:
        """What no other table has."""

    @property
    def version(self) -> str:
        """The version, as the watermark will say it."""

    @property
    def shared(self) -> str | None:
        """The directory that both it and the Hive copy read; None if there is none."""

    @property
    def stands_for(self) -> Mapping[str, str]:
        """What Hive's types become in it, where it lacks them."""

    def columns(self) -> dict[str, str]:
        """Return the columns and their types."""

    def rows(self) -> DataFrame:
        """Return the rows at the version."""

    def changes(self, marks: Marks, kinds: Mapping[str, str], partition_columns: Sequence[str]) -> Changes:
        """Return what happened since the watermark."""

    def added_rows(self, changes: Changes, watermark: str, wanted: Sequence[Partition]) -> DataFrame:
        """Return rows added since the watermark: of these partitions all, of others some."""

    def named_since(self, watermark: str | None) -> Iterable[str]:
        """Return the paths of files that its log has named since the watermark, as far as it says."""

    def replaced_all_since(self, watermark: str | None) -> str:
        """Return the newest version since the watermark that replaced all rows at once; empty if none did."""

    def live(self) -> Iterable[str]:
        """Return the paths of the files that it reads."""

    def append_once(self, warehouse: Warehouse, rows: DataFrame, key: str) -> None:
        """Append rows in a commit that is named by a key, unless there is one of that name."""

    def exact(self, changes: Changes, columns: Sequence[str]) -> frozenset[Partition]:
        """Return those partitions whose directory holds just the target's files."""
