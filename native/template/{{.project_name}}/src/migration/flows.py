"""Flows: the history flows into each table once; live rows follow from the next version of their sources.

A live flow isn't in the plan until the history is copied and compared, and its source has a new version. The
history's flow stays in the plan until `tableferry pipelines finish`, because a full refresh runs it again.
"""

from pyspark.sql import functions as F
from tableferry.pipelines import CdcSettings, PipelinePlan, PipelineRuntime, PlannedFlow, cdc_arguments


def define(dp: PipelineRuntime, plan: PipelinePlan) -> None:
    """Define the plan's tables and the flows that fill them."""
    for table in plan.tables:
        dp.create_streaming_table(table.location, name=table.name, **table.arguments)
    for flow in plan.flows:
        view = dp.rows_of(flow)
        if flow.cdc:
            auto_cdc(dp, flow, flow.cdc, view)
        else:
            append(dp, flow, view)
    dp.define_others(plan)


def append(dp: PipelineRuntime, flow: PlannedFlow, view: str) -> None:
    """Append a view's rows: the whole history once, a source's commits as they arrive."""
    decorate = dp.append_flow(
        flow.location,
        target=flow.target.plain_sql,
        name=flow.name,
        once=flow.once or None,
        spark_conf=flow.spark_conf or None,
    )
    decorate(lambda: dp.read(view, streamed=flow.streamed))


def auto_cdc(dp: PipelineRuntime, flow: PlannedFlow, settings: CdcSettings, view: str) -> None:
    """Apply a view's events with AUTO CDC: those of the history once, those of a feed as they arrive."""
    # The history may lack the columns that the feed's expressions need.
    history = {
        "sequence_by": F.col("__sequence"),
        "apply_as_deletes": F.expr("__operation = 'delete'"),
        "except_column_list": ["__sequence", "__operation"],
    }
    dp.create_auto_cdc_flow(
        flow.location,
        target=flow.target.plain_sql,
        name=flow.name,
        source=view,
        keys=list(settings.keys),
        stored_as_scd_type=settings.scd_type,
        once=flow.once or None,
        **(history if flow.is_initial_copy else cdc_arguments(settings)),
    )
