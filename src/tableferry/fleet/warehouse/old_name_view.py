"""Create and drop the view that has a table's old name, if the new table is in another schema or catalog.

Readers can use the old name and see columns that are added later. Writes to the old name fail.
"""

from __future__ import annotations

from functools import partial

from tableferry.errors import Refused
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import kinds, qualified
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.fleet.warehouse.table_descriptions import describe
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import TableName


def make_view(step: steps.MakeView, run: StepRun) -> Job:
    """Create the view that has a table's old name, and give the readers of the old name access to it.

    Raises:
        Refused: Another table or view has the name.
        TableError: The user may not create the view.
    """
    create_view(run.warehouse, step.source, step.target)
    # The rename moved the Hive table's rights to its new name, but readers use the old name.
    hive, access = Names.of(run.job).hive, run.warehouse.access
    run.warehouse.effect(partial(access.carry, hive, step.source), of=())
    return run.job


def create_view(warehouse: Warehouse, name: TableName, target: TableName) -> None:
    """Create a view of all columns of a table, unless it already exists.

    The view reads an Iceberg table in the metastore through the fleet's Iceberg catalog, so the readers'
    sessions need that catalog too.

    Raises:
        Refused: Another table or view has the name.
        TableError: The user may not create the view.
    """
    if name in kinds(warehouse, (name,)):
        _require_own_view(warehouse, name, target)
        return
    # With SCHEMA EVOLUTION, the view returns the columns that the table has at the time of the query.
    statement = f"CREATE VIEW {name.sql} WITH SCHEMA EVOLUTION AS {_text(warehouse, target)}"
    with explaining("OLD_NAME_NOT_MADE_VIEW", view=name, target=target):
        warehouse.run(statement, of=(name,))


def check_view(step: steps.CheckView, run: StepRun) -> Job:
    """Check that a table's old name is the view of the new table, or is free.

    Raises:
        Refused: Another table or view has the name.
    """
    if step.source in kinds(run.warehouse, (step.source,)):
        _require_own_view(run.warehouse, step.source, step.target)
    return run.job


def drop_view(step: steps.DropView, run: StepRun) -> Job:
    """Drop the view of a table if it exists; the table may already have another name.

    Raises:
        Refused: Another table or view has the name.
        TableError: The user may not drop the view.
    """
    warehouse, name = run.warehouse, step.source
    if name not in kinds(warehouse, (name,)):
        return run.job
    _require_own_view(warehouse, name, step.target)
    with explaining("TABLE_NOT_DROPPED", table=name):
        change_if_unchanged(
            warehouse, (name,), lambda: warehouse.spark.sql(f"DROP VIEW {name.sql}").collect()
        )
    return run.job


def _require_own_view(warehouse: Warehouse, name: TableName, target: TableName) -> None:
    # The format of a table that was dropped is unknown, so both texts are accepted.
    texts = {f"SELECT * FROM {table.sql}" for table in (target, warehouse.iceberg(target))}
    kind = kinds(warehouse, (name,))[name]
    if kind is not Kind.VIEW or describe(warehouse.spark, name).get("view_text") not in texts:
        raise Refused("OLD_NAME_TAKEN", name=name, kind=kind.description, target=target)


def _text(warehouse: Warehouse, target: TableName) -> str:
    return f"SELECT * FROM {qualified(warehouse, target).sql}"
