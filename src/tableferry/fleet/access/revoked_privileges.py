"""The write privileges that a job revoked, and the tables that they apply to.

If both tables are in Unity Catalog, privileges that were revoked on one are granted on the other. If only one
table's catalog has privileges, they don't apply to the other table. A revert grants those of the Hive table
again; those of the new table end with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tableferry.fleet.jobs.names import Names
from tableferry.fleet.warehouse.context import Access
from tableferry.spark.tables import TableName

TABLE = "taken_from"
"""The key of the table in the JSON; a worker of an earlier version ignores it."""


@dataclass(frozen=True)
class RevokedPrivileges:
    """Write privileges that were revoked, or are about to be.

    Attributes:
        rights: The privileges as JSON, from `Access.rights_to_write`.
        table: The table, by its name at that time; None if an earlier version recorded them.
    """

    rights: Mapping[str, Any]
    table: TableName | None

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> Self:
        """Return the privileges that a job's record contains."""
        table = note.get(TABLE)
        rights = {key: value for key, value in note.items() if key != TABLE}
        return cls(rights, TableName.parse(table) if table else None)

    def note(self) -> dict[str, Any]:
        """Return the privileges as JSON for a job's record."""
        return {**self.rights, **({TABLE: str(self.table)} if self.table else {})}

    def apply_to(self, table: TableName, access: Access, names: Names) -> bool:
        """Return whether the privileges can be revoked and granted on one of a job's tables.

        They can't if only the other table's catalog has privileges. If neither catalog has any, the session
        doesn't see the catalog in which they were revoked, and the access raises an error.
        """
        former = (self.table,) if self.table else (names.main, names.target)
        others = [other for other in former if other.parts[:-2] != table.parts[:-2]]
        return not any(access.keeps_rights(other) for other in others) or access.keeps_rights(table)
