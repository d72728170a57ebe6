"""Warns in a Hive copy's comment that it shares its files with a Delta table, and restores the comment."""

from __future__ import annotations

import logging

from tableferry.errors import TableError
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import asking
from tableferry.fleet.warehouse.asking import describe
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.existing import kinds
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

_WARNING = "Shares its files with the Delta table"
_COMMENT = "tableferry.comment"
# Before the comment in the property, as Spark doesn't show an empty one.
_MARK = "="


def warning(target: TableName) -> str:
    """Return the warning about a Hive copy that shares its files with a Delta table."""
    return f"{_WARNING} {target}: don't read it, and don't write to it."


def warn(warehouse: Warehouse, hive: TableName, target: TableName) -> None:
    """Put the warning before a Hive copy's comment; done already, or a copy that is missing, is fine.

    A comment that may not be changed is logged: writers are let in by then, and the migration continues.
    """
    try:
        if kinds(warehouse, (hive,)).get(hive) is Kind.HIVE:
            _warn(warehouse, hive, target)
    except TableError as error:
        _log.warning("%s has no warning in its comment: %s", hive, error.one_line)


def _warn(warehouse: Warehouse, hive: TableName, target: TableName) -> None:
    with explaining("COMMENT_NOT_CHANGED", table=hive):
        described = describe(warehouse.spark, hive)
        now = str(described.get("comment") or "")
        noted = asking.demand_shown(hive, described.get("table_properties") or {}).get(_COMMENT)
        before = now if noted is None else noted.removeprefix(_MARK)
        wanted = f"{warning(target)} {before}".strip()
        if noted is None or now != wanted:
            changes = {_COMMENT: _MARK + before, "comment": wanted}
            properties = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in changes.items())
            warehouse.run(f"ALTER TABLE {hive.sql} SET TBLPROPERTIES ({properties})", of=(hive,))


def restore_comment(warehouse: Warehouse, name: TableName) -> None:
    """Take the warning out of a Hive table's comment; one that was changed since stays as it is.

    Raises:
        TableError: The Hive table may not be described or changed.
    """
    with explaining("COMMENT_NOT_CHANGED", table=name):
        noted = asking.properties(warehouse.spark, name).get(_COMMENT)
        if noted is None:
            return
        if _comment(warehouse, name).startswith(f"{_WARNING} "):
            comment = noted.removeprefix(_MARK)
            value = literal(comment) if comment else "NULL"
            warehouse.run(f"COMMENT ON TABLE {name.sql} IS {value}", of=(name,))
        statement = f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ({literal(_COMMENT)})"
        warehouse.run(statement, of=(name,))


def _comment(warehouse: Warehouse, name: TableName) -> str:
    return str(describe(warehouse.spark, name).get("comment") or "")
