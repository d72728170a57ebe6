"""Owners of tables in a plain metastore, which has no write privileges and records no readers.

``hive_metastore`` on Databricks is one too. With table access control, a cluster could revoke MODIFY by SQL.
That isn't tested on a real workspace, so the listing is compared instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tableferry.access.users_file import Users, key
from tableferry.errors import TableError
from tableferry.spark.catalog import described, explaining
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MetastoreAccess:
    """A metastore with owners and without grants."""

    def __init__(self, spark: SparkSession, users: Users | None = None) -> None:
        """Store the session and the users of tables from a CSV file."""
        self._spark = spark
        self._users = users or {}

    def owners(self, table: TableName) -> tuple[str, ...]:
        """Return the owner, as the metastore spells it."""
        with explaining("OWNER_NOT_READABLE", table=table):
            owner = described(self._spark, table).get("Owner", "").strip()
        return (owner,) if owner else ()

    def downstream_users(self, table: TableName) -> tuple[str, ...]:
        """Return the users of the table from the CSV file, without the owner."""
        users = self._users.get(key(table), ())
        owners = self.owners(table) if users else ()
        return tuple(user for user in users if user not in owners)

    def keeps_rights(self, table: TableName) -> bool:
        """Return False: every process with access to the files can write."""
        return False

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return an empty mapping: every process with access to the files can write."""
        return {}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Revoke nothing; recorded privileges are those of another catalog."""
        _refuse(table, rights)

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Grant nothing, because nothing was revoked."""
        _refuse(table, rights)

    def carry(self, source: TableName, target: TableName) -> None:
        """Copy nothing: there are no grants, and the owner is part of the table's definition."""


def _refuse(table: TableName, rights: Mapping[str, Any]) -> None:
    if rights:
        raise TableError("RIGHTS_TAKEN_IN_UNITY_CATALOG", table=table)
