"""Open the access to the owners, readers and writers of tables: Unity Catalog or a plain metastore."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tableferry import workspace
from tableferry.access.metastore_access import MetastoreAccess
from tableferry.access.unity_catalog import UnityAccess, is_in_unity_catalog
from tableferry.access.users_file import NO_USERS, Users
from tableferry.access.users_file import read_users as read_users
from tableferry.fleet.warehouse.context import Access
from tableferry.spark import session
from tableferry.spark.tables import DEFAULT_CATALOG, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_access(
    spark: SparkSession,
    *,
    users: Users = NO_USERS,
    require_lineage: bool = False,
    say: Callable[[str], None] = session.to_stderr,
) -> AccessByCatalog:
    """Return the access to tables of any catalog.

    Args:
        spark: The session.
        users: The users of tables from a CSV file.
        require_lineage: Whether an unreadable lineage table of Unity Catalog is an error.
        say: The function that prints warnings.
    """
    return AccessByCatalog(
        lambda catalog: open_catalog(spark, catalog, users=users, require_lineage=require_lineage, say=say)
    )


def open_catalog(
    spark: SparkSession,
    catalog: str,
    *,
    users: Users,
    require_lineage: bool,
    say: Callable[[str], None],
) -> Access:
    """Return the access to one catalog's tables; the arguments are those of `open_access`.

    Raises:
        TableferryError: The workspace doesn't report whether the catalog is in Unity Catalog.
    """
    if not is_in_unity_catalog(catalog):
        return MetastoreAccess(spark, users)

    def rows(query: str) -> Sequence[Sequence[Any]]:
        return spark.sql(query).collect()

    return UnityAccess(workspace.client(), rows, users=users, require_lineage=require_lineage, say=say)


class AccessByCatalog:
    """The access to tables of several catalogs; each catalog is opened at its first table."""

    def __init__(self, open_: Callable[[str], Access]) -> None:
        """Store the function that opens the access to a catalog."""
        self._open = open_
        self._opened: dict[str, Access] = {}

    def owners(self, table: TableName) -> tuple[str, ...]:
        """Return the owners of a table."""
        return self._of(table).owners(table)

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        """Return the readers of a table, without its owners."""
        return self._of(table).downstream_users(table)

    def keeps_rights(self, table: TableName) -> bool:
        """Return whether a table's catalog has write privileges."""
        return self._of(table).keeps_rights(table)

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return the write privileges that can be revoked, as JSON."""
        return self._of(table).rights_to_write(table)

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Revoke these privileges."""
        self._of(table).take(table, rights)

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Grant these privileges again."""
        self._of(table).give_back(table, rights)

    def carry(self, source: TableName, target: TableName) -> None:
        """Copy the owner, grants and tags of a table to another one, if both catalogs are of the same kind.

        Raises:
            Refused: The source hides rows or columns, and the target's catalog can't hide them.
        """
        old, new = self._of(source), self._of(target)
        if type(old) is type(new):
            old.carry(source, target)
        elif isinstance(old, UnityAccess):
            old.require_unprotected(source, target)

    def _of(self, table: TableName) -> Access:
        catalog = table.parts[0] if len(table.parts) == 3 else DEFAULT_CATALOG
        if catalog not in self._opened:
            self._opened[catalog] = self._open(catalog)
        return self._opened[catalog]
