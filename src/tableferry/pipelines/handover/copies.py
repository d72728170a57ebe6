"""Compare a target with the rows that its copy of the legacy table must contain."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType, StructField, StructType

from tableferry import verify
from tableferry.errors import Refused, TableferryError
from tableferry.pipelines.cdc import scd2_history_events
from tableferry.pipelines.cdc.event_columns import START
from tableferry.pipelines.handover.determinism import find_unstable_columns
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, HistorySource
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import history_rows, read_flow_rows, union_by_name
from tableferry.spark.quoting import identifier, quote
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)


def compare_copy(
    spark: SparkSession,
    target: TableName,
    copied_from: HistorySource,
    version: int | None = None,
    *,
    extra_source_rows: Sequence[DataFrame] = (),
    extra_target_rows: Sequence[DataFrame] = (),
    dropped: Sequence[str] = (),
    unstable: Sequence[str] = (),
) -> verify.Verdict:
    """Compare a version of a target, or the newest one, with the mapped rows of the pinned legacy table.

    The extra rows are added to each side. Only columns of the mapped rows are compared, without those of
    ``compareExcept``, those that Spark computes differently each time (of the mapping, and `unstable` ones of
    flows), and `dropped` ones, which only one side has. The verdict names all but the dropped ones.

    Raises:
        Refused: Both sides lack a column of ``compareExcept``.
    """
    source = union_by_name([read_expected_copy(spark, copied_from), *extra_source_rows]).drop(*dropped)
    rows = union_by_name([read_version(spark, target, version), *extra_target_rows])
    if unknown := views.find_compare_except_missing_in(
        copied_from.migration, [*source.columns, *dropped, *rows.columns]
    ):
        raise Refused.of([unknown])
    copied = rows.select(*map(views.quoted_column, source.columns))
    label = f"{copied_from.migration.table}@{copied_from.version}"
    exclude = (*list_excluded_columns(spark, copied_from), *unstable)
    return compare_rows(source, copied, copied_from.cdc, label, str(target), exclude=exclude)


def list_excluded_columns(spark: SparkSession, copied_from: HistorySource) -> tuple[str, ...]:
    """Return the columns of a copy that can't be compared: those that the spec names, and unstable ones."""
    return (
        *copied_from.migration.uncompared_columns,
        *find_unstable_columns(history_rows(spark, copied_from)),
    )


def find_unstable_flow_columns(spark: SparkSession, dataflow: DataFlow) -> tuple[str, ...]:
    """Return the columns that a target's flows compute differently each time; skip unreadable flows."""
    target = replace(dataflow.target, metadata=())
    reader = views.ViewReader(spark, dataflow.views, as_batch=True)
    columns: list[str] = []
    for flow in dataflow.streaming_flows:
        try:
            columns += find_unstable_columns(read_flow_rows(reader, flow, target))
        except TableferryError as error:
            _log.debug("%s: its unstable columns can't be determined: %s", flow.name, error)
    return tuple(columns)


def read_version(spark: SparkSession, table: TableName, version: int | None) -> DataFrame:
    """Return the rows of a Delta table as of a version; None means the newest."""
    if version is None:
        return spark.table(table.sql)
    rows: DataFrame = views.delta_reader(spark, {"versionAsOf": str(version)}).table(table.sql)
    return rows


def read_expected_copy(spark: SparkSession, copied_from: HistorySource) -> DataFrame:
    """Return the rows that a copy of the legacy table must contain."""
    settings, rows = copied_from.cdc, history_rows(spark, copied_from)
    if settings:
        rows = scd2_history_events.select_target_rows(rows, settings)
    # A table can't have a column of NULL's type.
    return rows.drop(*[field.name for field in rows.schema if isinstance(field.dataType, NullType)])


def compare_rows(
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
    """Compare two sets of rows; if they differ, match the rows by the target's keys, or by all values.

    Keys are compared even if ``exclude`` names them. Without ``match_rows`` the verdict has only counts and
    hashes, which takes one query instead of three.
    """
    keys: Sequence[str] | None = settings.key_columns if settings else None
    if settings and settings.scd_type == 2:
        # Rows are matched by columns that aren't structs, so a sequence of several fields is flattened.
        start = next(field for field in source.schema if field.name.upper() == START)
        starts = _list_leaf_paths(start)
        source, copied = (_flatten_struct(frame, start.name, starts) for frame in (source, copied))
        keys = (*settings.key_columns, *(identifier(*path) for path in starts))
    matching = {key.lower() for key in keys or ()}
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


def _list_leaf_paths(field: StructField, above: Sequence[str] = ()) -> tuple[Sequence[str], ...]:
    """Return the path of a column, or, of a struct, the paths of its innermost fields."""
    path = (*above, field.name)
    if not isinstance(field.dataType, StructType):
        return (path,)
    return tuple(leaf for inner in field.dataType for leaf in _list_leaf_paths(inner, path))


def _flatten_struct(frame: DataFrame, column: str, leaves: Sequence[Sequence[str]]) -> DataFrame:
    """Replace a struct by its innermost fields, each named by its path."""
    if list(leaves) == [(column,)]:
        return frame
    others = [views.quoted_column(name) for name in frame.columns if name != column]
    fields = [F.col(".".join(map(quote, path))).alias(identifier(*path)) for path in leaves]
    return frame.select(*others, *fields)
