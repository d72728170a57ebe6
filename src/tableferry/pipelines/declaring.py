"""Defines a project in the declarative pipeline whose source file is being loaded; writes nothing.

A pipeline loads its files for a dry run too, and for every try of an update, so nothing may start here. What
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
    planned, facts = open_project(project, spark, pipeline=pipeline).decided()
    if planned.refusals:
        raise Refused("\n".join(planned.refusals))
    unprepared = [str(target.target) for target in planned.targets if target.state_steps]
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
        folders = _folders(planned, facts, spark)
        define(_definitions(planned), DeclarativeEngine(dp, spark, project, folders))
    return planned


def _project(spark: SparkSession) -> Project:
    pipeline = configuration.read(lambda key: spark.conf.get(key, None))
    return spec.load(pipeline.project, environment=pipeline.environment, reserved=pipeline.tokens)


def _definitions(planned: Plan) -> Any:
    return (step for target in planned.targets for step in target.definitions)


def _check_format(spark: SparkSession) -> None:
    if spark.conf.get(_FORMAT) != "delta":
        raise TableferryError(
            f"a pipeline's streaming tables take their format from {_FORMAT}: set it to delta in the "
            "pipeline's spark-defaults.conf"
        )


def _check_pinned(planned: Plan, spark: SparkSession) -> None:
    for target in planned.targets:
        if target.migration_start and target.dataflow.migration and not target.stored.finished:
            clone = pinned_name(target.target)
            if not catalog.exists(spark, clone):
                raise TableError(
                    f"{clone}, which the copy reads, isn't there: run `tableferry pipelines prepare`"
                )


def _folders(planned: Plan, facts: Facts, spark: SparkSession) -> dict[str, str]:
    """Look up the folders of the tables that are read with options."""
    names: dict[str, TableName] = {}
    for reads in facts.reads.values():
        names |= {read.table.key: read.table for read in reads if not read.unseen}
    for dataflow in planned.project.dataflows:
        for view in dataflow.views.values():
            match view.source:
                case DeltaSource() as source:
                    names[source.table.key] = source.table
                case JoinSource(sides):
                    names |= {side.source.table.key: side.source.table for side in sides}
                case _:
                    pass
    named = [name for name in names.values() if name.path is None]
    folders = catalog.parallel_map(
        lambda name: catalog.location(spark, name) if catalog.exists(spark, name) else "", named
    )
    return {name.key: folder for name, folder in zip(named, folders, strict=True) if folder}
