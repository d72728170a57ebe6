"""Flows: the history flows into each table once; the live rows follow, right behind it.

A live flow isn't in the plan until the history is copied and compared and its source has moved on, so there
is nothing to wait for here. The history's flow stays in the plan until `tableferry pipelines finish`, for a
full refresh runs it again.
"""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tableferry import pipelines
from tableferry.errors import TableError
from tableferry.pipelines import CdcSettings, Expectation, PipelineFlow, PipelinePlan

from migration.views import Frames, define_view

EXPECT = {"warn": "expect_all", "drop": "expect_all_or_drop", "fail": "expect_all_or_fail"}


def define(dp: Any, spark: SparkSession, plan: PipelinePlan, frames: Frames) -> None:
    """Define the plan's streaming tables and the flows into them."""
    for table in plan.tables:
        pipelines.call(dp.create_streaming_table, table.location, name=table.name, **table.arguments)
    for flow in plan.flows:
        view = view_of(dp, spark, flow, frames)
        if flow.cdc:
            auto_cdc(dp, flow, flow.cdc, view)
        else:
            append(dp, spark, flow, view)


def append(dp: Any, spark: SparkSession, flow: PipelineFlow, view: str) -> None:
    """Append a view's rows: a whole history once, a source's commits for as long as they arrive."""
    decorate = pipelines.call(
        dp.append_flow,
        flow.location,
        target=flow.target,
        name=flow.name,
        once=flow.once or None,
        spark_conf=flow.spark_conf or None,
    )
    decorate(lambda: read(spark, flow, view))


def auto_cdc(dp: Any, flow: PipelineFlow, settings: CdcSettings, view: str) -> None:
    """Apply a view's events with AUTO CDC: the history's once, a feed's for as long as they arrive."""
    # On runtimes before 17 it has its older name.
    create = getattr(dp, "create_auto_cdc_flow", None) or getattr(dp, "apply_changes", None)
    if create is None:
        raise TableError(
            f"{flow.location}: this runtime has no create_auto_cdc_flow: run it with the streaming engine "
            "(tableferry pipelines run)"
        )
    pipelines.call(
        create,
        flow.location,
        target=flow.target,
        source=view,
        keys=list(settings.keys),
        stored_as_scd_type=settings.scd_type,
        once=flow.once or None,
        **{"name" if pipelines.takes(create, "name") else "flow_name": flow.name},
        **(history_settings() if flow.history else feed_settings(settings)),
    )


def history_settings() -> dict[str, Any]:
    """Return AUTO CDC's settings for the history: none of the feed's, whose columns it may lack."""
    return {
        "sequence_by": F.col("__sequence"),
        "apply_as_deletes": F.expr("__operation = 'delete'"),
        "except_column_list": ["__sequence", "__operation"],
    }


def feed_settings(settings: CdcSettings) -> dict[str, Any]:
    """Return AUTO CDC's settings for a feed, as the spec has them; what is None isn't given."""
    return {
        "sequence_by": F.expr(settings.sequence_by),
        "ignore_null_updates": settings.ignore_null_updates or None,
        "apply_as_deletes": expression(settings.apply_as_deletes),
        "apply_as_truncates": expression(settings.apply_as_truncates),
        "column_list": list(settings.column_list) or None,
        "except_column_list": list(settings.except_column_list) or None,
        "track_history_column_list": list(settings.track_history_column_list) or None,
        "track_history_except_column_list": list(settings.track_history_except_column_list) or None,
    }


def view_of(dp: Any, spark: SparkSession, flow: PipelineFlow, frames: Frames) -> str:
    """Return the name of the view that holds exactly what a flow brings; define it if none does yet.

    Rules of the table would judge the history too, so they are put on what flows in.
    """
    where = flow.cdc.where if flow.cdc and not flow.history else None
    if not (where or flow.expectations or flow.written.column_prefix):
        return flow.view
    columns = frames[flow.view].columns if flow.written.column_prefix and flow.view in frames else None

    def rows() -> DataFrame:
        frame = pipelines.prefixed(read(spark, flow, flow.view), flow.written, columns)
        return frame.where(where) if where else frame

    define_view(dp, flow.rows, expecting(dp, flow.expectations, rows))
    return flow.rows


def expecting(
    dp: Any, rules: Iterable[Expectation], rows: Callable[[], DataFrame]
) -> Callable[[], DataFrame]:
    """Put data quality rules on rows: the pipeline's expectations, or filters where it has none."""
    if not hasattr(dp, "expect_all"):
        return lambda: pipelines.judged(rows(), tuple(rules))
    for action, decorator in EXPECT.items():
        constraints = {rule.name: rule.constraint for rule in rules if rule.action == action}
        if constraints:
            rows = getattr(dp, decorator)(constraints)(rows)
    return rows


def read(spark: SparkSession, flow: PipelineFlow, view: str) -> DataFrame:
    """Read a view of the pipeline as its flow does."""
    return (spark.readStream if flow.streamed else spark.read).table(view)


def expression(text: str | None) -> Column | None:
    """Return SQL as a column."""
    return F.expr(text) if text else None
