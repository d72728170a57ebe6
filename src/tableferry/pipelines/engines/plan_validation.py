"""Validate a plan without writing: read what its flows and copies read, and compare the columns."""

from __future__ import annotations

import logging

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tableferry.errors import Finding, Refused, TableError, TableferryError, first_line
from tableferry.pipelines.cdc import change_feed, scd2_history_events
from tableferry.pipelines.engines.streaming.flow_errors import create_flow_error
from tableferry.pipelines.handover import copied_sequences
from tableferry.pipelines.model.flows import DataFlow, Flow, Project, Target
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.model.steps import PlannedFlow, RecordStart, ResetTarget
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.copy_findings import (
    count_unrepresentable_rows,
    create_refusal,
    find_narrow_copied_columns,
    find_rows_ending_in_future,
    find_unknown_compare_except,
)
from tableferry.pipelines.sources.rows import read_flow_rows
from tableferry.progress import task
from tableferry.spark.catalog import SPARK_ERRORS, schema_exists

_log = logging.getLogger(__name__)

_TABLE_MISSING = "TABLE_OR_VIEW_NOT_FOUND"


def validate_plan(planned: Plan, spark: SparkSession) -> None:
    """Check that a plan can be performed, before anything is written.

    Raises:
        Refused: The plan has refusals, or the rows of a copy don't fit.
        TableferryError: A view of a target that is started or rebuilt can't be read.
    """
    if planned.refusals:
        raise Refused.of(planned.refusals)
    for target in planned.targets:
        with task(_log, "validate the plan", table=target.target, level=logging.DEBUG):
            _validate_target(planned, target, spark)


def _validate_target(planned: Plan, target: TargetPlan, spark: SparkSession) -> None:
    if (unrepresentable := count_unrepresentable_rows(target, spark)) and not unrepresentable.left_out:
        raise Refused.of([create_refusal(unrepresentable)])
    if note := find_rows_ending_in_future(target, spark):
        _log.warning("%s", note.one_line)
    if misfits := find_narrow_copied_columns(target, spark):
        raise Refused.of(misfits)
    if unknown := find_unknown_compare_except(target, spark):
        raise Refused.of([unknown])
    source = target.copied_history
    if source and source.cdc and planned.engine == "databricks":
        legacy = views.read_legacy_table(spark, source)
        scd2_history_events.check_sequence(legacy, source.cdc, source.migration.location)
    is_reset = any(isinstance(step, ResetTarget) for step in target.state_steps)
    if is_reset or any(isinstance(step, RecordStart) for step in target.state_steps):
        _validate_flows(planned.project, target.dataflow, spark)
    if is_reset:
        _validate_copy(target, spark)


def _validate_copy(target: TargetPlan, spark: SparkSession) -> None:
    """Read every row that is to be copied again, before the target's rows are dropped."""
    source = target.copied_history
    if source is None:
        return
    try:
        views.read_legacy_table(spark, source).write.format("noop").mode("overwrite").save()
    except SPARK_ERRORS as error:
        raise TableError(
            "REFRESH_CANNOT_READ_COPY",
            location=source.migration.location,
            table=source.migration.table,
            version=source.version,
            target=target.target,
            reason=first_line(error),
        ) from error


def _validate_flows(project: Project, dataflow: DataFlow, spark: SparkSession) -> None:
    """Analyze every flow of a target without running it, including flows that the plan leaves out."""
    tables = {table.name.key: table for table in dataflow.tables}
    for table in dataflow.tables:
        if not schema_exists(spark, table.name):
            raise TableError("SCHEMA_OF_TARGET_MISSING", location=table.location, table=table.name)
    created = [table.name.table for spec in project.dataflows for table in spec.tables]
    for flow in dataflow.flows:
        try:
            _analyze_flow(dataflow, flow, tables[flow.target.key], spark)
        except (PySparkException, TableferryError) as error:
            # A view of a table that the project creates later can't be analyzed yet.
            if _TABLE_MISSING in str(error) and any(f"`{name}`" in str(error) for name in created):
                continue
            if isinstance(error, PySparkException):
                raise create_flow_error(flow, error) from error
            raise


def _analyze_flow(dataflow: DataFlow, flow: Flow, target: Target, spark: SparkSession) -> None:
    rows = read_flow_rows(views.ViewReader(spark, dataflow.views, as_batch=flow.once), flow, target)
    if flow.kind == "cdc" and target.cdc:
        try:
            rows = change_feed.build_feed_events(rows, target.cdc)
        except TableError as error:
            raise error.at(dataflow.file) from error
    # Spark Connect analyzes expressions only when the schema is requested.
    rows.schema  # noqa: B018


def find_missing_sequence(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding if the rows to copy have no sequence."""
    source = target.copied_history
    if (
        source is None
        or source.cdc is None
        or scd2_history_events.has_sequence(views.read_legacy_table(spark, source), source.cdc)
    ):
        return None
    table, column = source.migration.table, source.cdc.sequence_by
    flows = (step for step in target.steps if isinstance(step, PlannedFlow))
    baseline_events = next((flow.baseline_events for flow in flows if flow.baseline_events), None)
    if baseline_events is not None:
        try:
            copied_sequences.read_newest_events(spark, baseline_events, source.cdc, persist=False)
        except TableferryError:
            _log.debug("the events before the copy of %s can't be read", target.target, exc_info=True)
        else:
            return Finding("COPY_TAKES_SEQUENCE_OF_EVENTS", table=table, column=column)
    return Finding("COPY_WITHOUT_SEQUENCE", table=table, column=column)
