"""The plan that a declarative pipeline defines while it loads its source file; writes nothing.

A pipeline also loads its files for a dry run and for each retry of an update, so this module starts nothing.
`tableferry pipelines prepare` records the state that an update needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tableferry.errors import Refused, TableError
from tableferry.pipelines.engines.declarative import configuration
from tableferry.pipelines.engines.declarative.plan import PipelinePlan
from tableferry.pipelines.engines.declarative.plan_builder import PipelinePlanBuilder
from tableferry.pipelines.engines.declarative.runtime import PipelineRuntime
from tableferry.pipelines.engines.port import apply_definitions
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import DeltaSource, JoinSource
from tableferry.pipelines.model.plan import Plan
from tableferry.pipelines.planning.pipeline_port import LoadingPipeline
from tableferry.pipelines.planning.project import open_project
from tableferry.pipelines.specs.project import load
from tableferry.spark import catalog
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FORMAT = "spark.sql.sources.default"


def load_plan(runtime: PipelineRuntime, *_: object) -> PipelinePlan:
    """Return every table, view and flow of a project's current plan, for its pipeline to define.

    The pipeline's configuration names the project (see `configuration`).

    Raises:
        Refused: The plan has refusals, `tableferry pipelines prepare` must run first, or the bundle's modules
            are from an older version, which passed other arguments.
        TableError: A pinned clone is missing, or a flow's column names can't be determined.
        TableferryError: The configuration or the project is wrong, or a table can't be read.
    """
    if not isinstance(runtime, PipelineRuntime):
        raise Refused("BUNDLE_MODULES_TOO_OLD")
    spark, databricks = runtime.spark, runtime.on_databricks
    configured = configuration.read_configuration(lambda key: spark.conf.get(key, None))
    project = load(configured.project, environment=configured.environment, reserved=configured.tokens)
    pipeline = LoadingPipeline("databricks" if databricks else "declarative")
    planned, facts = open_project(project, spark, pipeline=pipeline).decide_plan()
    if planned.refusals:
        raise Refused.of(planned.refusals)
    unprepared = [str(target.target) for target in planned.targets if target.state_steps]
    if unprepared:
        raise Refused("UPDATE_NOT_PREPARED", targets=unprepared)
    if not databricks and spark.conf.get(_FORMAT) != "delta":
        raise Refused("PIPELINE_FORMAT_NOT_DELTA", setting=_FORMAT)
    for target in planned.targets:
        if target.clone and not catalog.exists(spark, target.clone):
            raise TableError("PINNED_CLONE_MISSING", clone=target.clone)
    folders = {} if databricks else _list_folders(planned, facts, spark)
    builder = PipelinePlanBuilder(spark, project, databricks=databricks, folders=folders)
    apply_definitions((step for target in planned.targets for step in target.definitions), builder)
    return builder.plan


def _list_folders(planned: Plan, facts: Facts, spark: SparkSession) -> dict[str, str]:
    """Return the folders of the Delta tables that views read, by `TableName.key`.

    Spark 4.1 silently ignores reader options before ``.table(…)``, also ``startingVersion``, so a flow would
    append rows of the history again. ``.load(folder)`` applies the options.
    """
    names: dict[str, TableName] = {}
    for reads in facts.reads.values():
        names |= {read.table.key: read.table for read in reads if not read.unmanaged}
    for dataflow in planned.project.dataflows:
        for view in dataflow.views.values():
            match view.source:
                case DeltaSource() as source:
                    names[source.table.key] = source.table
                case JoinSource(sides):
                    names |= {side.source.table.key: side.source.table for side in sides}
                case _:
                    pass
    folders = catalog.parallel_dict(
        lambda name: catalog.location(spark, name) if catalog.exists(spark, name) else "",
        {key: name for key, name in names.items() if name.path is None},
    )
    return {key: folder for key, folder in folders.items() if folder}
