"""Rename tables without moving their files; a managed table is made external before, and managed again later.

Spark's SQL reserves the property EXTERNAL, so the metastore's client in this process's JVM changes the table.
Spark Connect and serverless compute have no such JVM, so the change is refused there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tableferry.errors import Refused, TableError
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry, entries
from tableferry.fleet.warehouse.step_run import StepRun, pausing
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.spark import catalog
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import METASTORES, TableName


def rename(step: steps.Rename, run: StepRun) -> Job:
    """Rename one of a job's tables, unless another of them changes at the same time.

    Raises:
        ClaimLost: As in `rename_table`.
        TableError: As in `rename_table`.
        Refused: As in `rename_table`.
    """
    rename_table(run.warehouse, step.table, step.to, beside=Names.of(run.job).all)
    return run.job


def make_external(step: steps.MakeExternal, run: StepRun) -> Job:
    """Make a managed table external, and record that it was managed.

    Raises:
        StepPaused: This process's JVM can't access the metastore.
        TableError: The table doesn't exist, or the user may not change it.
    """
    if not is_managed(run.warehouse, step.table):
        return run.job
    job = run.save(run.job.with_record(was_managed=True))
    with pausing(PauseReason.MANAGED_TABLE):
        set_managed(run.warehouse, step.table, managed=False)
    return job


def make_managed(step: steps.MakeManaged, run: StepRun) -> Job:
    """Make a table managed again, if the job made it external.

    Raises:
        TableError: The table doesn't exist, or the user may not change it.
        Refused: This process's JVM can't access the metastore.
    """
    if run.job.record.was_managed:
        set_managed(run.warehouse, step.table, managed=True)
    return run.job.with_record(was_managed=False)


def rename_table(
    warehouse: Warehouse, name: TableName, to: TableName, *, beside: Iterable[TableName] = ()
) -> None:
    """Rename a Hive, Iceberg or Delta table, unless that was done already.

    Args:
        warehouse: The warehouse.
        name: The table.
        to: Its new name.
        beside: Other tables of its migration, which must not change before the rename.

    Raises:
        ClaimLost: Another worker has the job.
        TableError: The table doesn't exist, or the user may not rename it.
        Refused: The new name is taken, or the rename would move the table's directory.
    """
    names = tuple(dict.fromkeys((name, to, *beside)))
    existing = entries(warehouse, names)
    match existing.get(name), existing.get(to):
        case None, None:
            raise TableError("TABLE_TO_RENAME_MISSING", table=name, name=to)
        case None, _:
            return
        case Entry() as entry, None:
            pass
        case _:
            raise Refused("NEW_NAME_TAKEN", table=name, name=to)
    require_fixed_location(name, entry)
    statement = rename_statement(warehouse, entry.kind, name, to)

    def alter() -> None:
        warehouse.spark.sql(statement).collect()
        if entry.kind is Kind.ICEBERG:
            # The Iceberg catalog may have cached an earlier table with the new name.
            warehouse.spark.sql(f"REFRESH TABLE {warehouse.iceberg(to).sql}").collect()

    with explaining("TABLE_NOT_RENAMED", table=name, name=to):
        change_if_unchanged(warehouse, names, alter, of=(name, to))
    if warehouse.table_cache is not None:
        # Otherwise all entries would be read again, and the next rename would compare with these.
        warehouse.table_cache.entries |= {name: None, to: entry}


def rename_statement(warehouse: Warehouse, kind: Kind, name: TableName, to: TableName) -> str:
    """Return the statement that renames a table or a view."""
    old = warehouse.iceberg(name) if kind is Kind.ICEBERG else name
    return catalog.rename_statement(warehouse.spark, old, to, "VIEW" if kind is Kind.VIEW else "TABLE")


def require_fixed_location(name: TableName, entry: Entry) -> None:
    """Check that a rename doesn't move the table's files, which other tables read.

    A Delta table is managed by the metastore if it was recreated without a location.

    Raises:
        Refused: The table is managed.
    """
    own = entry.kind is Kind.HIVE or (entry.kind is Kind.DELTA and name.parts[0] in METASTORES)
    if own and entry.managed:
        raise Refused("MANAGED_TABLE_WOULD_MOVE", table=name)


def is_managed(warehouse: Warehouse, name: TableName) -> bool:
    """Return whether a Hive table is managed: DROP removes its files, and RENAME moves them.

    Raises:
        TableError: The table doesn't exist.
        Refused: It isn't a Hive table.
    """
    entry = entries(warehouse, (name,)).get(name)
    return (
        entry.managed
        if entry and entry.kind is Kind.HIVE
        else hive.require_hive_table(warehouse, name).managed
    )


def set_managed(warehouse: Warehouse, name: TableName, *, managed: bool) -> bool:
    """Make a table managed or external; return whether that changed it.

    Raises:
        TableError: The table doesn't exist, or the user may not change it.
        Refused: A change is needed, and this process's JVM can't access the metastore.
    """
    if is_managed(warehouse, name) is managed:
        return False
    if not metastore.is_reachable(warehouse.spark, name):
        raise Refused("MANAGED_TABLE_OUT_OF_REACH", table=name)

    def change(entry: Any) -> None:
        entry.setTableType("MANAGED_TABLE" if managed else "EXTERNAL_TABLE")
        if managed:
            entry.getParameters().remove("EXTERNAL")
        else:
            entry.putToParameters("EXTERNAL", "TRUE")

    change_if_unchanged(warehouse, (name,), lambda: metastore.alter(warehouse.spark, name, change))
    return True
