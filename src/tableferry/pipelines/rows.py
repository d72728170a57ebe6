"""What flows bring: a view's rows, prefixed and judged by the expectations, or the copied history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableferry.pipelines import history, views
from tableferry.pipelines.flows import Expectation, Flow, HistorySource, View
from tableferry.pipelines.fold import EXACT


def flow_rows(
    spark: SparkSession,
    named: Mapping[str, View],
    flow: Flow,
    expectations: tuple[Expectation, ...],
    starts: views.Starts,
    *,
    once: bool,
    spans: views.Spans = MappingProxyType({}),
) -> DataFrame:
    """Return what a flow brings; ``once`` reads what is there now, or in ``spans``, instead of a stream.

    ``named`` are the views of its spec, ``expectations`` the rules of its target.
    """
    rows = views.read(spark, named, flow.view, starts, once=once, spans=spans)
    return judged(prefixed(rows, flow), expectations)


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
    history.check_sequence(rows, source.cdc, source.migration.location)
    whole = rows
    if source.clone:
        whole = _whole(spark, source)
        whole = _representable(whole, whole, source)
    # AUTO CDC itself keeps the rows as exact as the events are.
    return history.history_events(rows, source.cdc, whole).drop(EXACT)


def _whole(spark: SparkSession, source: HistorySource) -> DataFrame:
    """Return all mapped rows as a batch."""
    if source.clone is None:
        return views.history(spark, source)
    return views.shaped(spark.read.table(source.clone.sql), source.migration)


def _representable(rows: DataFrame, whole: DataFrame, source: HistorySource) -> DataFrame:
    if source.cdc and source.migration.leave_out_not_representable:
        return history.expressible(rows, source.cdc, whole)
    return rows


def judged(frame: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
    """Apply data quality rules: drop rows, or stop the flow with the rule's name.

    A rule that only warns changes nothing here.
    """
    for rule in expectations:
        holds = F.coalesce(F.expr(rule.constraint), F.lit(False))
        if rule.action == "drop":
            frame = frame.where(holds)
        elif rule.action == "fail":
            message = F.lit(f"expectation '{rule.name}' doesn't hold: {rule.constraint}")
            frame = frame.where(F.when(holds, F.lit(True)).otherwise(F.raise_error(message).cast("boolean")))
    return frame


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
