"""Tables of foreign catalogs that mirror a table of a Hive metastore, from the workspace's API."""

from __future__ import annotations

import os
from urllib.parse import quote

from tableferry import workspace
from tableferry.spark import session
from tableferry.spark.tables import METASTORES, TableName

_FOREIGN = "FOREIGN_CATALOG"


def list_foreign_tables(name: TableName) -> tuple[str, ...]:
    """Return the tables with a metastore table's schema and name in the workspace's foreign catalogs.

    Return none outside of a workspace, and for a table that isn't in a Hive metastore. A foreign catalog may
    mirror another metastore, so the result is what people check.
    """
    if len(name.parts) == 3 and name.parts[0].lower() not in METASTORES:
        return ()
    if len(name.parts) < 2 or not _is_in_workspace():
        return ()
    schema, table = name.parts[-2:]
    client = workspace.client()
    foreign = [
        catalog.name
        for catalog in client.catalogs.list()
        if catalog.catalog_type is not None and catalog.catalog_type.value == _FOREIGN and catalog.name
    ]
    names = [f"{catalog}.{schema}.{table}" for catalog in foreign]
    return tuple(full for full in names if client.tables.exists(quote(full, safe="")).table_exists)


def _is_in_workspace() -> bool:
    choice = session.choose(os.environ, databricks_connect=session.has_databricks_connect())
    return choice.kind in ("runtime", "databricks-connect")
