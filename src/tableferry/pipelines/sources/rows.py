"""Read the rows that flows write: a view's rows after expectations and prefixes, or the copied history."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tableferry.pipelines.cdc import scd2_history_events, unrepresentable_rows
from tableferry.pipelines.cdc.event_columns import EXACT
from tableferry.pipelines.model.flows import Expectation, Flow, HistorySource, Target
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.metadata_columns import NO_DETAILS, Details, add_metadata_columns
from tableferry.pipelines.sources.views import ViewReader


def read_flow_rows(
    reader: ViewReader,
    flow: Flow,
    target: Target,
    *,
    details: Details = NO_DETAILS,
    observation: str | Observation | None = None,
    without_expectations: bool = False,
) -> DataFrame:
    """Return the rows that a flow writes to its target.

    `observation` is the name or object by which `observe_violations` counts rows. With `without_expectations`
    the caller applies the expectations.
    """
    frame = reader.read(flow.view)
    frame = add_metadata_columns(prefix_columns(frame, flow), target.metadata, details)
    if without_expectations:
        return frame
    if observation:
        frame = observe_violations(frame, target.expectations, observation)
    return apply_expectations(frame, target.expectations)


def history_rows(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return the copied rows of the legacy table, mapped by the migration.

    With a clone they are a stream over it, otherwise a batch.

    Raises:
        TableError: The rows can't be read any more, or an expression is invalid for the table.
    """
    batch = _read_batch(spark, source)
    rows = batch
    if source.clone:
        rows = views.apply_mapping(spark.readStream.table(source.clone.sql), source.migration)
    return _exclude_unrepresentable_rows(rows, batch, source)


def history_events(spark: SparkSession, source: HistorySource, rows: DataFrame) -> DataFrame:
    """Return copied rows as events, from which AUTO CDC builds the same history.

    The rows are the result of `history_rows`, for a source with AUTO CDC. The events have their columns
    without ``__START_AT`` and ``__END_AT``, and ``__sequence`` and ``__operation`` (upsert or delete). With a
    clone they are a stream. An interval gives an upsert, and a delete at its end unless the key's next
    interval starts at that time.

    Raises:
        TableError: The rows lack a key, a column for the sequence, or a validity column.
    """
    assert source.cdc is not None
    scd2_history_events.check_sequence(rows, source.cdc, source.migration.location)
    batch = rows
    if source.clone:
        batch = _read_batch(spark, source)
        batch = _exclude_unrepresentable_rows(batch, batch, source)
    # AUTO CDC itself doesn't know this column.
    return scd2_history_events.build_history_events(rows, source.cdc, batch).drop(EXACT)


def _read_batch(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return all mapped rows as a batch."""
    if source.clone is None:
        return views.read_legacy_table(spark, source)
    return views.apply_mapping(spark.read.table(source.clone.sql), source.migration)


def _exclude_unrepresentable_rows(rows: DataFrame, batch: DataFrame, source: HistorySource) -> DataFrame:
    if source.cdc and source.migration.leave_out_unrepresentable:
        return unrepresentable_rows.remove_unrepresentable_rows(rows, source.cdc, batch)
    return rows


def apply_expectations(frame: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
    """Apply expectations: drop rows, fail with the name of the expectation, flag or quarantine rows.

    An expectation with the action warn doesn't change the rows.
    """
    for rule in expectations:
        if rule.action == "drop":
            frame = frame.where(_is_fulfilled(rule))
        elif rule.action == "fail":
            message = F.lit(f"expectation '{rule.name}' doesn't hold: {rule.constraint}")
            error = F.raise_error(message).cast("boolean")
            frame = frame.where(F.when(_is_fulfilled(rule), F.lit(True)).otherwise(error))
    return flag_or_quarantine_rows(frame, expectations)


def flag_or_quarantine_rows(frame: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
    """Add the flag columns of expectations; for a quarantine keep only the rows that violate it."""
    for rule in expectations:
        if rule.action == "flag":
            frame = frame.withColumn(rule.name, ~_is_fulfilled(rule))
        elif rule.action == "quarantine":
            frame = frame.where(~_is_fulfilled(rule))
    return frame


def observe_violations(
    frame: DataFrame, expectations: tuple[Expectation, ...], observation: str | Observation
) -> DataFrame:
    """Count the rows that violate each expectation: of a stream under a name, of a batch in an Observation.

    An expectation with the action fail isn't counted.
    """
    counts = _violation_counts(expectations)
    return frame.observe(observation, *counts) if counts else frame


def count_violations(frame: DataFrame, expectations: tuple[Expectation, ...]) -> dict[str, int]:
    """Count the rows of a batch that violate each expectation, in a separate query."""
    (counts,) = frame.agg(*_violation_counts(expectations)).collect()
    return {name: count or 0 for name, count in counts.asDict().items()}


def _violation_counts(expectations: tuple[Expectation, ...]) -> list[Column]:
    rules = list_counted_expectations(expectations)
    return [F.sum(F.when(_is_fulfilled(rule), 0).otherwise(1)).alias(rule.name) for rule in rules]


def list_counted_expectations(expectations: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
    """List the expectations whose violations are counted."""
    return tuple(rule for rule in expectations if rule.action in ("warn", "drop"))


def _is_fulfilled(rule: Expectation) -> Column:
    """Return whether an expectation is fulfilled; NULL means that it isn't."""
    return F.coalesce(F.expr(rule.constraint), F.lit(False))


def prefix_columns(frame: DataFrame, flow: Flow, columns: Sequence[str] | None = None) -> DataFrame:
    """Add the flow's prefix to the names of all columns except the excluded ones.

    `columns` are the columns of the DataFrame, if it can't be analyzed.
    """
    if not flow.column_prefix:
        return frame
    return frame.select(
        *[
            views.quoted_column(name)
            if name in flow.column_prefix_exceptions
            else views.quoted_column(name).alias(flow.column_prefix + name)
            for name in columns or frame.columns
        ]
    )


def union_by_name(frames: list[DataFrame]) -> DataFrame:
    """Return the rows of several frames in one; a column that a frame lacks is NULL there."""
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)
