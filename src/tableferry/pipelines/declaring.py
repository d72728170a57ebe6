"""Defines a project in the declarative pipeline whose source file is being loaded; writes nothing.

A pipeline loads its files for a dry run too, and for every try of an update, so nothing may begin here. What
must be recorded before an update is recorded by `tableferry pipelines prepare`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tableferry import catalog
from tableferry.errors import Refused, TableError, TableferryError
from tableferry.pipelines import configuration, spec
from tableferry.pipelines.databricks import DatabricksEngine
from tableferry.pipelines.declarative import DeclarativeEngine, pinned_name
from tableferry.pipelines.engine import define
from tableferry.pipelines.flows import DeltaSource, JoinSource, Project
from tableferry.pipelines.graph import takes
from tableferry.pipelines.opening import open_project
from tableferry.pipelines.pipeline import Defining
from tableferry.pipelines.plans import Facts, Plan
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMAT = "spark.sql.sources.default"


def declare(dp: Any, spark: SparkSession) -> Plan:
    """Define every table, view and flow that a project's plan has now.

    Which project that is stands in the pipeline's configuration (see `configuration`).

    Args:
        dp: The pipeline's API: ``pyspark.pipelines``, or ``dlt`` on older runtimes of Databricks.
        spark: The pipeline's session.

    Raises:
        Refused: The plan can't go on safely, or something must be prepared first.
        TableError: The runtime lacks what the plan needs.
        TableferryError: The configuration or the project is wrong, or a table can't be read.
    """
    project = _project(spark)
    pipeline = Defining("databricks" if takes(dp.append_flow, "once") else "declarative")
    planned, found = open_project(project, spark, pipeline=pipeline).decided()
    if planned.refusals:
        raise Refused("\n".join(planned.refusals))
    unprepared = [str(one.target) for one in planned.targets if one.state_steps]
    if unprepared:
        raise Refused(
            f"{', '.join(unprepared)}: something must be recorded before an update: pause the writers of "
            "the legacy table and run `tableferry pipelines prepare`"
        )
    if pipeline.kind == "databricks":
        define(_definitions(planned), DatabricksEngine(dp, spark, project))
    else:
        _check_format(spark)
        _check_pinned(planned, spark)
        folders = _folders(planned, found, spark)
        define(_definitions(planned), DeclarativeEngine(dp, spark, project, folders))
    return planned


def _project(spark: SparkSession) -> Project:
    found = configuration.read(lambda key: spark.conf.get(key, None))
    return spec.load(found.project, environment=found.environment, reserved=found.tokens)


def _definitions(planned: Plan) -> Any:
    return (step for one in planned.targets for step in one.definitions)


def _check_format(spark: SparkSession) -> None:
    if spark.conf.get(_FORMAT) != "delta":
        raise TableferryError(
            f"a pipeline's streaming tables take their format from {_FORMAT}: set it to delta in the "
            "pipeline's spark-defaults.conf"
        )


def _check_pinned(planned: Plan, spark: SparkSession) -> None:
    for one in planned.targets:
        if one.migration_start and one.dataflow.migration and not one.stored.finished:
            clone = pinned_name(one.target)
            if not catalog.exists(spark, clone):
                raise TableError(
                    f"{clone}, which the copy reads, isn't there: run `tableferry pipelines prepare`"
                )


def _folders(planned: Plan, found: Facts, spark: SparkSession) -> dict[str, str]:
    """Look up the folders of the tables that are read with options."""
    names: dict[str, TableName] = {}
    for reads in found.reads.values():
        names |= {read.table.key: read.table for read in reads if not read.unseen}
    for one in planned.project.dataflows:
        for view in one.views.values():
            match view.source:
                case DeltaSource() as source:
                    names[source.table.key] = source.table
                case JoinSource(sides):
                    names |= {side.source.table.key: side.source.table for side in sides}
                case _:
                    pass
    named = [name for name in names.values() if name.path is None]
    places = catalog.parallel_map(
        lambda name: catalog.location(spark, name) if catalog.exists(spark, name) else "", named
    )
    return {name.key: place for name, place in zip(named, places, strict=True) if place}
