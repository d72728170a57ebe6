"""Names as Hive's metastore takes them."""

from __future__ import annotations

from tableferry.tables import DEFAULT_CATALOG, TableName


def in_metastore(name: TableName) -> str:
    """Write a table's name without the metastore's catalog, which RENAME TO and CREATE … LIKE don't take."""
    return TableName(name.parts[1:] if name.parts[0] == DEFAULT_CATALOG else name.parts).sql
