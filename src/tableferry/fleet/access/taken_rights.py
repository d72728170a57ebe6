"""What a job notes of the rights to write that it took, and on which of its tables they mean something.

Within Unity Catalog, what was taken from one table is given back on the other. Where only the catalog of one
of them keeps rights, these mean nothing on the other: a Hive table's are given back to it by its revert, and
a new table's go with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tableferry.fleet.jobs.names import Names
from tableferry.fleet.warehouse.context import Access
from tableferry.spark.tables import TableName

TABLE = "taken_from"
"""The entry beside an access's own in a note; a worker of an earlier version reads over it."""


@dataclass(frozen=True)
class TakenRights:
    """Rights to write that were taken, or are about to be.

    Attributes:
        rights: What the access found to take.
        table: The table that had them, by its name at that time; None if an earlier version noted them.
    """

    rights: Mapping[str, Any]
    table: TableName | None

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """Read a job's note."""
        table = note.get(TABLE)
        rights = {key: value for key, value in note.items() if key != TABLE}
        return cls(rights, TableName.parse(table) if table else None)

    def note(self) -> dict[str, Any]:
        """Return them as a job notes them."""
        return {**self.rights, **({TABLE: str(self.table)} if self.table else {})}

    def mean_something_on(self, table: TableName, access: Access, names: Names) -> bool:
        """Say whether they can be taken and given back on one of a job's tables.

        They can't if only the other table's catalog keeps rights. If neither's does, it's a session that
        doesn't see where they were taken, and the access says so.
        """
        had_them = (self.table,) if self.table else (names.main, names.target)
        others = [other for other in had_them if other.parts[:-2] != table.parts[:-2]]
        return not any(access.keeps_rights(other) for other in others) or access.keeps_rights(table)
