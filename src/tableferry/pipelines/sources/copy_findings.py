"""Count the rows of a copy that AUTO CDC can't represent or treats as closed, for plans and refusals."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession

from tableferry.amounts import counted
from tableferry.errors import Finding, TableError
from tableferry.pipelines.cdc import unrepresentable_rows
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.sources import views
from tableferry.spark.tables import TableName

_SHOWN = 20


@dataclass(frozen=True)
class UnrepresentableRows:
    """The legacy rows of one target that AUTO CDC can't represent.

    Attributes:
        target: The target.
        count: The number of rows.
        rows: The first rows, each with its ``__reason``.
        left_out: Whether the spec excludes them from the copy.
    """

    target: TableName
    count: int
    rows: tuple[dict[str, object], ...]
    left_out: bool


def count_unrepresentable_rows(target: TargetPlan, spark: SparkSession) -> UnrepresentableRows | None:
    """Count the rows of a copy that AUTO CDC can't represent; None without such rows."""
    source = target.copied_history
    if source is None:
        return None
    # This also finds invalid expressions of the mapping, before the first write.
    legacy = views.read_legacy_table(spark, source)
    if source.cdc is None:
        return None
    try:
        frame = unrepresentable_rows.find_unrepresentable_rows(legacy, source.cdc)
    except TableError as error:
        raise error.at(source.migration.location) from error
    rows = frame.take(_SHOWN)
    if not rows:
        return None
    count = len(rows) if len(rows) < _SHOWN else frame.count()
    return UnrepresentableRows(
        target.target,
        count,
        tuple(row.asDict(recursive=True) for row in rows),
        source.migration.leave_out_unrepresentable,
    )


def find_rows_ending_in_future(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding if rows of the copy end in the future, or None."""
    source = target.copied_history
    if source is None or source.cdc is None:
        return None
    future = unrepresentable_rows.find_future_ends(views.read_legacy_table(spark, source), source.cdc)
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


def create_refusal(legacy: UnrepresentableRows) -> Finding:
    """Return the finding for unrepresentable rows that stop a run."""
    first = ", ".join(f"{key}={value}" for key, value in legacy.rows[0].items() if key != "__reason")
    return Finding(
        "ROWS_NOT_REPRESENTABLE",
        target=legacy.target,
        count=legacy.count,
        first=first,
        reason=legacy.rows[0]["__reason"],
    )
