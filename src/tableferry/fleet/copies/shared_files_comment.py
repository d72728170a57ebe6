"""Add and remove the warning in a Hive copy's comment that it shares its files with a Delta table."""

from __future__ import annotations

import logging

from tableferry.errors import TableError
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import kinds
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.fleet.warehouse.table_descriptions import describe
from tableferry.spark.catalog import explaining
from tableferry.spark.quoting import literal
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

_WARNING = "Shares its files with the Delta table"
_COMMENT = "tableferry.comment"
# Precedes the comment in the property, because Spark doesn't show empty properties.
_MARK = "="


def warning_text(target: TableName) -> str:
    """Return the warning about a Hive copy that shares its files with a Delta table."""
    return f"{_WARNING} {target}: don't read it, and don't write to it."


def warn_of_shared_files(step: steps.WarnOfSharedFiles, run: StepRun) -> Job:
    """Add the warning before a Hive copy's comment, unless it has the warning or is missing.

    If the comment can't be changed, a warning is logged and the migration continues.
    """
    hive = step.source
    try:
        if kinds(run.warehouse, (hive,)).get(hive) is Kind.HIVE:
            _add_warning(run.warehouse, hive, step.target)
    except TableError as error:
        _log.warning("%s has no warning in its comment: %s", hive, error.one_line)
    return run.job


def _add_warning(warehouse: Warehouse, hive: TableName, target: TableName) -> None:
    with explaining("COMMENT_NOT_CHANGED", table=hive):
        described = describe(warehouse.spark, hive)
        now = str(described.get("comment") or "")
        noted = table_descriptions.require_shown_properties(
            hive, described.get("table_properties") or {}
        ).get(_COMMENT)
        before = now if noted is None else noted.removeprefix(_MARK)
        wanted = f"{warning_text(target)} {before}".strip()
        if noted is None or now != wanted:
            changes = {_COMMENT: _MARK + before, "comment": wanted}
            properties = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in changes.items())
            warehouse.run(f"ALTER TABLE {hive.sql} SET TBLPROPERTIES ({properties})", of=(hive,))


def restore_comment(step: steps.RestoreComment, run: StepRun) -> Job:
    """Remove the warning from a Hive table's comment; a comment that was changed since stays unchanged.

    Raises:
        TableError: The user may not describe or change the Hive table.
    """
    warehouse, name = run.warehouse, step.table
    with explaining("COMMENT_NOT_CHANGED", table=name):
        noted = table_descriptions.properties(warehouse.spark, name).get(_COMMENT)
        if noted is None:
            return run.job
        if _comment(warehouse, name).startswith(f"{_WARNING} "):
            comment = noted.removeprefix(_MARK)
            value = literal(comment) if comment else "NULL"
            warehouse.run(f"COMMENT ON TABLE {name.sql} IS {value}", of=(name,))
        statement = f"ALTER TABLE {name.sql} UNSET TBLPROPERTIES IF EXISTS ({literal(_COMMENT)})"
        warehouse.run(statement, of=(name,))
    return run.job


def _comment(warehouse: Warehouse, name: TableName) -> str:
    return str(describe(warehouse.spark, name).get("comment") or "")
