"""What flows bring: a view's rows, prefixed and judged by the expectations, or the copied history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from tableferry.pipelines.cdc import scd2_history_events
from tableferry.pipelines.cdc.fold import EXACT
from tableferry.pipelines.model.flows import Expectation, Flow, HistorySource, Target, View
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.metadata_columns import NO_DETAILS, Details, with_metadata


def flow_rows(
    spark: SparkSession,
    named: Mapping[str, View],
    flow: Flow,
    target: Target,
    starts: views.Starts,
    *,
    once: bool,
    spans: views.Spans = MappingProxyType({}),
    offsets: views.Offsets = MappingProxyType({}),
    details: Details = NO_DETAILS,
    counted: str | Observation | None = None,
    unjudged: bool = False,
) -> DataFrame:
    """Return what a flow brings into its target; ``once`` reads what is there now instead of a stream.

    ``named`` are the views of its spec, ``spans`` and ``offsets`` as for `views.read`. ``counted`` lets the
    rows that break a rule be counted (see `counting`); ``unjudged`` leaves the rules to whoever takes them.
    """
    frame = views.read(spark, named, flow.view, starts, once=once, spans=spans, offsets=offsets)
    frame = with_metadata(prefixed(frame, flow), target.metadata, details)
    if unjudged:
        return frame
    return judged(counting(frame, target.expectations, counted) if counted else frame, target.expectations)


def history_rows(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return the rows of the legacy table that are copied, mapped as the migration says.

    They are a stream over the clone, where there is one; else a batch.

    Raises:
        TableError: They can't be read any more, or an expression doesn't fit the table.
    """
    whole = _whole(spark, source)
    rows = whole
    if source.clone:
        rows = views.shaped(spark.readStream.table(source.clone.sql), source.migration)
    return _representable(rows, whole, source)


def history_events(spark: SparkSession, source: HistorySource, rows: DataFrame) -> DataFrame:
    """Return copied rows as the events of which AUTO CDC makes the very same history.

    Their columns besides the rows' own are ``__sequence`` and ``__operation`` (``upsert`` or ``delete``).

    Args:
        spark: Where the legacy table and its clone are.
        source: What the rows are copied from.
        rows: What `history_rows` gave.

    Raises:
        TableError: AUTO CDC takes none without a sequence, and they have nothing for one.
    """
    assert source.cdc is not None
    scd2_history_events.check_sequence(rows, source.cdc, source.migration.location)
    whole = rows
    if source.clone:
        whole = _whole(spark, source)
        whole = _representable(whole, whole, source)
    # AUTO CDC itself keeps the rows as exact as the events are.
    return scd2_history_events.build_history_events(rows, source.cdc, whole).drop(EXACT)


def _whole(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return all mapped rows as a batch."""
    if source.clone is None:
        return views.history(spark, source)
    return views.shaped(spark.read.table(source.clone.sql), source.migration)


def _representable(rows: DataFrame, whole: DataFrame, source: HistorySource) -> DataFrame:
    if source.cdc and source.migration.leave_out_not_representable:
        return scd2_history_events.remove_unrepresentable_rows(rows, source.cdc, whole)
    return rows


def judged(frame: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
    """Apply data quality rules: drop rows, or stop the flow with the rule's name, and mark the others.

    A rule that only warns changes nothing here.
    """
    for rule in expectations:
        if rule.action == "drop":
            frame = frame.where(_holds(rule))
        elif rule.action == "fail":
            message = F.lit(f"expectation '{rule.name}' doesn't hold: {rule.constraint}")
            stops = F.raise_error(message).cast("boolean")
            frame = frame.where(F.when(_holds(rule), F.lit(True)).otherwise(stops))
    return marked(frame, expectations)


def marked(frame: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
    """Say of each row whether it breaks a rule, or, for a quarantine, let only those pass that do."""
    for rule in expectations:
        if rule.action == "flag":
            frame = frame.withColumn(rule.name, ~_holds(rule))
        elif rule.action == "quarantine":
            frame = frame.where(~_holds(rule))
    return frame


def counting(
    frame: DataFrame, expectations: tuple[Expectation, ...], observation: str | Observation
) -> DataFrame:
    """Let the rows that break a rule be counted, by rule: of a stream under a name, of a batch in an object.

    A rule that stops the flow has nothing to count.
    """
    counts = _counts(expectations)
    return frame.observe(observation, *counts) if counts else frame


def counts_of(frame: DataFrame, expectations: tuple[Expectation, ...]) -> dict[str, int]:
    """Count the rows of a batch that break a rule, by rule, in a look of its own."""
    (counts,) = frame.agg(*_counts(expectations)).collect()
    return {name: count or 0 for name, count in counts.asDict().items()}


def _counts(expectations: tuple[Expectation, ...]) -> list[Column]:
    rules = countable(expectations)
    return [F.sum(F.when(_holds(rule), 0).otherwise(1)).alias(rule.name) for rule in rules]


def countable(expectations: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
    """Return the rules of which it's counted how many rows break them."""
    return tuple(rule for rule in expectations if rule.action in ("warn", "drop"))


def _holds(rule: Expectation) -> Column:
    """Say whether a rule holds; one that gives no answer doesn't."""
    return F.coalesce(F.expr(rule.constraint), F.lit(False))


def prefixed(frame: DataFrame, flow: Flow, columns: Sequence[str] | None = None) -> DataFrame:
    """Put the flow's prefix before every column's name but the exceptions'.

    Args:
        frame: What the flow's view holds.
        flow: The flow.
        columns: Its columns, where the frame can't be asked for them.
    """
    if not flow.column_prefix:
        return frame
    return frame.select(
        *[
            views.quoted(name)
            if name in flow.column_prefix_exceptions
            else views.quoted(name).alias(flow.column_prefix + name)
            for name in columns or frame.columns
        ]
    )
