"""What a flow brings: its view's rows, prefixed and judged by the target's expectations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from tableferry.pipelines import views
from tableferry.pipelines.flows import Expectation, Flow, View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def flow_rows(
    spark: SparkSession,
    named: Mapping[str, View],
    flow: Flow,
    expectations: tuple[Expectation, ...],
    starts: views.Starts,
    *,
    once: bool,
) -> DataFrame:
    """Return what a flow brings.

    Args:
        spark: Where its sources are.
        named: The views of its spec.
        flow: The flow.
        expectations: The rules of its target.
        starts: Where streams start.
        once: Read what is there now instead of a stream.

    Raises:
        TableferryError: A view can't be read.
    """
    frame = views.read(spark, named, flow.view, starts, once=once)
    frame = _prefixed(frame, flow.column_prefix, flow.column_prefix_exceptions)
    return _judged(frame, expectations)


def _judged(frame: DataFrame, expectations: tuple[Expectation, ...]) -> DataFrame:
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


def _prefixed(frame: DataFrame, prefix: str | None, exceptions: tuple[str, ...]) -> DataFrame:
    """Put a prefix before every column's name but the exceptions'."""
    if not prefix:
        return frame
    return frame.select(
        *[views.quoted(c) if c in exceptions else views.quoted(c).alias(prefix + c) for c in frame.columns]
    )
