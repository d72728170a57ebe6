"""Compares copies with the legacy tables that they were made of."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import NullType, StructField, StructType

from tableferry import verify
from tableferry.errors import Refused, TableferryError
from tableferry.pipelines.cdc import scd2_history_events
from tableferry.pipelines.cdc.fold import START
from tableferry.pipelines.handover.determinism import unstable_columns
from tableferry.pipelines.handover.expected_rows import together
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, HistorySource
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.column_mismatches import find_compare_except_missing_in
from tableferry.pipelines.sources.rows import history_rows, read_flow_rows
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)


def compared(
    spark: SparkSession,
    target: TableName,
    copied_from: HistorySource,
    version: int | None = None,
    *,
    more: Sequence[DataFrame] = (),
    more_in_target: Sequence[DataFrame] = (),
    without: Sequence[str] = (),
    unstable: Sequence[str] = (),
) -> verify.Verdict:
    """Compare the legacy table, as it is mapped, with a target.

    Args:
        spark: Where they are.
        target: The target.
        copied_from: What its history is copied from, at the version that is compared.
        version: The version of the target; None for its newest.
        more: Rows that the target must hold besides.
        more_in_target: Rows that count as if the target held them.
        without: Columns that one side alone has, and that aren't compared.
        unstable: Columns that Spark computes differently each time. They aren't compared either, and the
            verdict names them.
    """
    source = together([history_of(spark, copied_from), *more]).drop(*without)
    rows = together([rows_of(spark, target, version), *more_in_target])
    if unknown := find_compare_except_missing_in(
        copied_from.migration, [*source.columns, *without, *rows.columns]
    ):
        raise Refused.of([unknown])
    copied = rows.select(*map(views.quoted_column, source.columns))
    label = f"{copied_from.migration.table}@{copied_from.version}"
    exclude = (*not_compared(spark, copied_from), *unstable)
    return matched(source, copied, copied_from.cdc, label, str(target), exclude=exclude)


def not_compared(spark: SparkSession, copied_from: HistorySource) -> tuple[str, ...]:
    """Return the columns of a copy that its spec, or Spark's plan, keeps out of comparisons."""
    return (*copied_from.migration.compare_except, *unstable_columns(history_rows(spark, copied_from)))


def unstable_of_flows(spark: SparkSession, dataflow: DataFlow) -> tuple[str, ...]:
    """Return the columns that a target's flows compute differently each time, as far as it's known."""
    target = replace(dataflow.target, metadata=())
    columns: list[str] = []
    for flow in dataflow.streaming_flows:
        try:
            columns += unstable_columns(
                read_flow_rows(spark, dataflow.views, flow, target, {}, as_batch=True)
            )
        except TableferryError as error:
            _log.debug("%s: which of its columns change isn't known: %s", flow.name, error)
    return tuple(columns)


def rows_of(spark: SparkSession, table: TableName, version: int | None) -> DataFrame:
    """Return the rows of a Delta table as of a version; None for its newest."""
    if version is None:
        return spark.table(table.sql)
    rows: DataFrame = views.delta_reader(spark, {"versionAsOf": str(version)}).table(table.sql)
    return rows


def history_of(spark: SparkSession, copied_from: HistorySource) -> DataFrame:
    """Return what a copy of the legacy table holds."""
    settings, rows = copied_from.cdc, history_rows(spark, copied_from)
    if settings:
        rows = scd2_history_events.select_target_rows(rows, settings)
    # A column of bare NULLs has no type, and so no place in a table.
    return rows.drop(*[field.name for field in rows.schema if isinstance(field.dataType, NullType)])


def matched(
    source: DataFrame,
    copied: DataFrame,
    settings: CdcSettings | None,
    source_label: str,
    target_label: str,
    *,
    partition_columns: Sequence[str] = (),
    match_rows: bool = True,
    exclude: Sequence[str] = (),
) -> verify.Verdict:
    """Compare rows of one target; where they differ, match them by its keys, or by all values.

    Of ``exclude`` the columns that aren't keys are left out. Without ``match_rows`` the verdict has counts
    and hashes alone, which takes one query instead of three.
    """
    keys: Sequence[str] | None = settings.keys if settings else None
    if settings and settings.scd_type == 2:
        # Rows are matched by plain values, so a sequence of several fields is taken apart.
        start = next(field for field in source.schema if field.name.upper() == START)
        starts = _leaves(start)
        source, copied = (_taken_apart(frame, start.name, starts) for frame in (source, copied))
        keys = (*settings.keys, *starts)
    matching = {key.lower().strip("`") for key in keys or ()}
    present = {name.lower() for name in source.columns}
    return verify.verify(
        source,
        copied,
        keys=keys if match_rows else (),
        exclude=[name for name in exclude if name.lower() in present - matching],
        partition_columns=partition_columns,
        source_label=source_label,
        target_label=target_label,
    )


def _leaves(field: StructField, above: str = "") -> tuple[str, ...]:
    """Return the paths of a column's values: its own name, or, of a struct, those of its fields."""
    path = above + field.name
    if not isinstance(field.dataType, StructType):
        return (path,)
    return tuple(leaf for inner in field.dataType for leaf in _leaves(inner, f"{path}."))


def _taken_apart(frame: DataFrame, column: str, leaves: Sequence[str]) -> DataFrame:
    """Put a struct's values in its place, each under its path."""
    if list(leaves) == [column]:
        return frame
    others = [views.quoted_column(name) for name in frame.columns if name != column]
    return frame.select(*others, *[_at(leaf).alias(leaf) for leaf in leaves])


def _at(path: str) -> Column:
    first, *fields = path.split(".")
    column: Column = views.quoted_column(first)
    for field in fields:
        column = column.getField(field)
    return column
