"""Legacy rows that AUTO CDC can't represent."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from tableferry.amounts import counted
from tableferry.errors import Finding, TableError
from tableferry.pipelines.cdc import scd2_history_events
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.sources import views
from tableferry.spark.tables import TableName

_SHOWN = 20


@dataclass(frozen=True)
class NotRepresentable:
    """Legacy rows that AUTO CDC can't represent, by target.

    Attributes:
        rows: The first of them, each with its ``__reason``.
        left_out: The spec says to leave them out.
    """

    target: TableName
    count: int
    rows: tuple[dict[str, object], ...]
    left_out: bool


def not_representable(target: TargetPlan, spark: SparkSession) -> NotRepresentable | None:
    """Look for rows to copy into a target that AUTO CDC can't represent; None if there are none."""
    source = target.copied_from
    if source is None:
        return None
    # Expressions that don't fit the legacy table are found here too, before anything is written.
    legacy = views.history(spark, source)
    if source.cdc is None:
        return None
    try:
        frame = scd2_history_events.find_unrepresentable_rows(legacy, source.cdc)
    except TableError as error:
        raise error.at(source.migration.location) from error
    rows = frame.take(_SHOWN)
    if not rows:
        return None
    count = len(rows) if len(rows) < _SHOWN else frame.count()
    return NotRepresentable(
        target.target,
        count,
        tuple(row.asDict(recursive=True) for row in rows),
        source.migration.leave_out_not_representable,
    )


def open_later(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding if rows to copy end in the future."""
    source = target.copied_from
    if source is None or source.cdc is None:
        return None
    future = scd2_history_events.find_future_ends(views.history(spark, source), source.cdc)
    if future is None:
        return None
    return Finding(
        "ROWS_END_IN_FUTURE",
        target=target.target,
        rows=counted(future.count, "row"),
        table=source.migration.table,
        first=future.first,
        mapping=future.mapping,
    )


def refusal(legacy: NotRepresentable) -> Finding:
    """Return the finding for rows that stop a run."""
    first = ", ".join(f"{key}={value}" for key, value in legacy.rows[0].items() if key != "__reason")
    return Finding(
        "ROWS_NOT_REPRESENTABLE",
        target=legacy.target,
        count=legacy.count,
        first=first,
        reason=legacy.rows[0]["__reason"],
    )
