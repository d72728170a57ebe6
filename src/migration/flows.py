"""Flows: the history flows into each table once; the live rows follow, right behind it.

A live flow isn't in the plan until the history is copied and compared and its source has moved on, so there
is nothing to wait for here. The history's flow stays in the plan until `tableferry pipelines finish`, for a
full refresh runs it again.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tableferry import pipelines
from tableferry.errors import TableError
from tableferry.pipelines import (
    CdcSettings,
    Expectation,
    PipelineFlow,
    PipelineMaterializedView,
    PipelinePlan,
    PipelineSnapshots,
)

from migration.views import Frames, define_view

UPDATE_ID = "pipeline.pipeline_update_id"
STARTED = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
EXPECT = {"warn": "expect_all", "drop": "expect_all_or_drop", "fail": "expect_all_or_fail"}


def define(dp: Any, spark: SparkSession, plan: PipelinePlan, frames: Frames) -> None:
    """Define the plan's tables and what fills them, and its materialized views."""
    if plan.wants_update_id and hasattr(dp, "on_event_hook"):
        remember_update(dp, spark)
    for table in plan.tables:
        pipelines.call(dp.create_streaming_table, table.location, name=table.name, **table.arguments)
    for flow in plan.flows:
        view = view_of(dp, spark, flow, frames)
        if flow.cdc:
            auto_cdc(dp, flow, flow.cdc, view)
        else:
            append(dp, spark, flow, view)
    for snapshots in plan.snapshots:
        auto_cdc_from_snapshots(dp, spark, snapshots)
    for materialized in plan.materialized:
        materialized_view(dp, spark, materialized)


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


def auto_cdc_from_snapshots(dp: Any, spark: SparkSession, snapshots: PipelineSnapshots) -> None:
    """Apply a view's newest snapshot with AUTO CDC, or one historical snapshot after the other."""
    create = getattr(dp, "create_auto_cdc_from_snapshot_flow", None) or getattr(
        dp, "apply_changes_from_snapshot", None
    )
    if create is None:
        raise TableError(
            f"{snapshots.location}: this runtime has no create_auto_cdc_from_snapshot_flow: choose a newer "
            "channel"
        )
    settings = snapshots.settings
    pipelines.call(
        create,
        snapshots.location,
        target=snapshots.target,
        source=snapshots.view or (lambda latest: pipelines.next_snapshot(spark, settings, latest)),
        keys=list(settings.keys),
        stored_as_scd_type=settings.scd_type,
        track_history_column_list=list(settings.track_history_column_list) or None,
        track_history_except_column_list=list(settings.track_history_except_column_list) or None,
    )


def materialized_view(dp: Any, spark: SparkSession, view: PipelineMaterializedView) -> None:
    """Define a materialized view of what a view holds, as far as the rules let it through."""

    def rows() -> DataFrame:
        frame = pipelines.with_metadata(spark.read.table(view.view), view.metadata, details(spark))
        return pipelines.marked(frame, view.expectations)

    # `dlt` has one function for both kinds of table.
    create = getattr(dp, "materialized_view", None) or dp.table
    decorate = pipelines.call(create, view.table.location, name=view.table.name, **view.table.arguments)
    decorate(expecting(dp, view.expectations, rows))


def details(spark: SparkSession) -> dict[str, str]:
    """Return what a row's operational metadata may say of the update that it came with."""
    known = {
        "pipeline_id": spark.conf.get("pipelines.id", None),
        "start_utc_timestamp": STARTED,
        "update_id": spark.conf.get(UPDATE_ID, None),
    }
    return {name: value for name, value in known.items() if value is not None}


def remember_update(dp: Any, spark: SparkSession) -> None:
    """Let the pipeline's functions know in which update they run, as soon as one of its events says so."""

    def remember(event: dict[str, Any]) -> None:
        update = event.get("origin", {}).get("update_id", "")
        if update and not spark.conf.get(UPDATE_ID, ""):
            spark.conf.set(UPDATE_ID, update)

    dp.on_event_hook(remember)


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
    if not (where or flow.expectations or flow.metadata or flow.written.column_prefix):
        return flow.view
    columns = frames[flow.view].columns if flow.written.column_prefix and flow.view in frames else None

    def rows() -> DataFrame:
        frame = pipelines.prefixed(read(spark, flow, flow.view), flow.written, columns)
        if flow.metadata:
            frame = pipelines.with_metadata(frame, flow.metadata, details(spark))
        frame = pipelines.marked(frame, flow.expectations)
        return frame.where(where) if where else frame

    define_view(dp, flow.rows, expecting(dp, flow.expectations, rows))
    return flow.rows


def expecting(
    dp: Any, rules: Iterable[Expectation], rows: Callable[[], DataFrame]
) -> Callable[[], DataFrame]:
    """Put data quality rules on rows: the pipeline's expectations, or filters where it has none."""
    if not hasattr(dp, "expect_all"):
        judged = tuple(rule for rule in rules if rule.action in EXPECT)
        return lambda: pipelines.judged(rows(), judged)
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
