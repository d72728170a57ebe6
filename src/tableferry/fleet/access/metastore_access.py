"""Who owns a table of a plain metastore; nobody can be kept from writing there, and nobody notes who reads.

That holds for ``hive_metastore`` on Databricks too. Where table access control is on there, a cluster could
revoke MODIFY by SQL; that was tried on nothing real, so it isn't done, and the listing is compared instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tableferry.errors import TableError
from tableferry.fleet.access.users_file import Users, key
from tableferry.spark.catalog import described, explaining
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MetastoreAccess:
    """A metastore that knows owners, and no grants."""

    def __init__(self, spark: SparkSession, users: Users | None = None) -> None:
        """Take the session, and who is known to use which table."""
        self._spark = spark
        self._users = users or {}

    def owners(self, table: TableName) -> tuple[str, ...]:
        """Return the owner, as the metastore spells it."""
        with explaining("OWNER_NOT_READABLE", table=table):
            owner = described(self._spark, table).get("Owner", "").strip()
        return (owner,) if owner else ()

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        """Return those whom the file of users names, without the owner."""
        users = self._users.get(key(table), ())
        owners = self.owners(table) if users else ()
        return tuple(user for user in users if user not in owners)

    def keeps_rights(self, table: TableName) -> bool:
        """Return False: whoever reaches the files can write."""
        return False

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return nothing: whoever reaches the files can write."""
        return {}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Take nothing; rights that were noted are another catalog's."""
        _refuse(table, rights)

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Give nothing back, as nothing was taken."""
        _refuse(table, rights)

    def carry(self, source: TableName, target: TableName) -> None:
        """Carry nothing: there are no grants, and the owner is a part of the table's definition."""


def _refuse(table: TableName, rights: Mapping[str, Any]) -> None:
    if rights:
        raise TableError("RIGHTS_TAKEN_IN_UNITY_CATALOG", table=table)
