"""Find what is wrong with a copy, or with an append, before the first write.

Afterwards these findings would be failed tasks, missing rules or wrong rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructType

from tableferry.amounts import counted
from tableferry.errors import Finding, TableError, TableferryError
from tableferry.pipelines.cdc import unrepresentable_rows
from tableferry.pipelines.cdc.event_columns import END, START
from tableferry.pipelines.cdc.target_columns import can_store, sql_type
from tableferry.pipelines.model.flows import DataFlow, DeltaSource, Flow, HistorySource
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import read_flow_rows
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableFacts, TableLayout, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_SHOWN = 20
_READ_ERRORS: tuple[type[Exception], ...] = (TableferryError, *SPARK_ERRORS)
_CONSTRAINT = "delta.constraints."


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
    """Count and sample the legacy rows of a planned copy that AUTO CDC can't represent.

    Return None without such rows, without a planned copy, and for an append target.

    Raises:
        TableError: The rows can't be read, or the mapping is invalid.
    """
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


def find_narrow_copied_columns(
    target: TargetPlan, spark: SparkSession, tables: Mapping[str, TableFacts | None] = MappingProxyType({})
) -> tuple[Finding, ...]:
    """Return a finding for each column of the copy that can't store all values of a streaming flow.

    The copy creates the target's columns, unless a schema file declares them. Their types don't change later.
    Without a planned copy there is no finding. Flows whose rows can't be read are skipped, and a column is
    reported for its first flow.
    Spark isn't called if the logs of these `tables`, by `TableName.key`, show the same types.

    Raises:
        TableferryError: The legacy table can't be read.
    """
    source, dataflow = target.copied_history, target.dataflow
    if source is None or _have_same_types(source, dataflow, tables):
        return ()
    columns = _columns_by_name(views.read_legacy_table(spark, source).schema)
    if dataflow.target.schema_file:
        columns |= _columns_by_name(views.read_schema_file(spark, dataflow.target.schema_file))
    findings: dict[str, Finding] = {}
    reader = views.ViewReader(spark, dataflow.views)
    for flow in dataflow.streaming_flows:
        if flow.target.key != target.target.key:
            continue
        try:
            rows = read_flow_rows(reader, flow, dataflow.target).schema
        except _READ_ERRORS:  # The run reports the reason when it reads the flow.
            continue
        for name, flow_type, copied_type in _find_misfits(rows, columns):
            finding = Finding(
                "COPY_TOO_NARROW",
                location=source.migration.location,
                column=name,
                copied_type=sql_type(copied_type),
                flow=flow.name,
                flow_type=sql_type(flow_type),
                name=quote(name),
            )
            findings.setdefault(name, finding)
    return tuple(findings.values())


def _have_same_types(
    source: HistorySource, dataflow: DataFlow, tables: Mapping[str, TableFacts | None]
) -> bool:
    """Return whether the logs show that all flows and the copy read Delta tables with the same column types.

    False if they don't show it: an expression may change a type, or a log is unread or has newer commits.
    """
    migration, target = source.migration, dataflow.target
    legacy = tables.get(migration.table.key)
    if legacy is None or legacy.version != source.version or target.schema_file:
        return False
    if migration.where or migration.select or migration.except_columns or target.metadata:
        return False
    copied = legacy.column_types

    def has_copied_types(flow: Flow) -> bool:
        if flow.column_prefix or not isinstance(view := dataflow.views[flow.view].source, DeltaSource):
            return False
        if view.change_feed or view.options or view.select or view.schema_file or view.transform:
            return False
        table = tables.get(view.table.key)
        types = table.column_types if table else {}
        return bool(types) and all(copied.get(name, kind) == kind for name, kind in types.items())

    flows = [flow for flow in dataflow.streaming_flows if flow.target.key == target.name.key]
    return bool(flows and copied) and all(map(has_copied_types, flows))


def find_unknown_compare_except(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding with the columns of `compareExcept` that neither the copy nor a flow has, or None.

    It is None too if the rows of a flow can't be read yet, because they may have any column.

    Raises:
        TableferryError: The legacy table can't be read.
    """
    source, dataflow = target.copied_history, target.dataflow
    if source is None or not source.migration.uncompared_columns:
        return None
    columns = [
        *views.read_legacy_table(spark, source).columns,
        *(added.name for added in dataflow.target.metadata),
    ]
    for flow in dataflow.streaming_flows:
        try:
            columns += read_flow_rows(views.ViewReader(spark, dataflow.views), flow, dataflow.target).columns
        except _READ_ERRORS:
            return None
    return views.find_compare_except_missing_in(source.migration, columns)


def find_narrow_table_columns(rows: StructType, table: StructType, flow: Flow) -> tuple[Finding, ...]:
    """Return a finding for each column of a table that can't store all values that a flow appends.

    Columns of nested types are ignored, because an append can add fields to them.
    """
    findings = []
    for name, flow_type, table_type in _find_misfits(rows, _columns_by_name(table)):
        if any(isinstance(kind, ArrayType | MapType | StructType) for kind in (table_type, flow_type)):
            continue
        finding = Finding(
            "COLUMN_TOO_NARROW",
            column=name,
            table=flow.target,
            table_type=sql_type(table_type),
            flow=flow.name,
            flow_type=sql_type(flow_type),
            sql=flow.target.sql,
            name=quote(name),
        )
        findings.append(finding)
    return tuple(findings)


def _find_misfits(
    rows: StructType, columns: Mapping[str, tuple[str, DataType]]
) -> Iterator[tuple[str, DataType, DataType]]:
    """Yield each column that can't store all values of rows: its name, the rows' type, the column's type."""
    for field in rows:
        name, kind = columns.get(field.name.lower(), (field.name, field.dataType))
        if not can_store(kind, field.dataType):
            yield name, field.dataType, kind


def find_lost_rules(target: TargetPlan, legacy: TableFacts | None, spark: SparkSession) -> Finding | None:
    """Return a finding with the rules of the legacy table that the copy doesn't carry over.

    They are all CHECK constraints, NOT NULL that no schema file keeps, and partitioning or clustering that
    differs from the spec's. None if there are none, no copy is planned, or the table can't be read.
    """
    migration, table = target.dataflow.migration, target.dataflow.target
    if not target.copy or migration is None or legacy is None:
        return None
    clustering: tuple[str, ...] = ()
    layout = legacy.layout
    if layout is None:
        try:
            [detail] = spark.sql(f"DESCRIBE DETAIL {migration.table.sql}").collect()
            columns = spark.table(migration.table.sql).schema
        except SPARK_ERRORS:  # The copy reports why it can't be read.
            return None
        required = tuple(field.name for field in columns if not field.nullable)
        layout = TableLayout(tuple(detail["partitionColumns"]), required)
        # Older versions of Delta lack the column.
        clustering = tuple(detail.asDict().get("clusteringColumns") or ())
    schema = views.read_schema_file(spark, table.schema_file) if table.schema_file is not None else ()
    kept = {field.name.lower() for field in schema if not field.nullable}
    checks = [key.removeprefix(_CONSTRAINT) for key in legacy.properties if key.startswith(_CONSTRAINT)]
    not_null = [name for name in layout.required_columns if name.lower() not in kept]
    lost = [
        *([f"the constraints {', '.join(sorted(checks))} (add them after the copy)"] if checks else []),
        *([f"NOT NULL of {', '.join(not_null)} (a schema file keeps it)"] if not_null else []),
        *_describe_lost_layout(
            "partitioning", layout.partition_columns, table.partition_columns, "partitionColumns"
        ),
        *_describe_lost_layout("clustering", clustering, table.cluster_columns, "clusterByColumns"),
    ]
    if not lost:
        return None
    return Finding(
        "RULES_NOT_CARRIED_OVER", table=migration.table, target=target.target, lost="; ".join(lost)
    )


def _describe_lost_layout(
    layout: str, columns: tuple[str, ...], expected: tuple[str, ...], key: str
) -> list[str]:
    if not columns or columns == expected:
        return []
    return [f"the {layout} by {', '.join(columns)} (targetDetails.{key} sets the target's)"]


def _columns_by_name(schema: StructType) -> dict[str, tuple[str, DataType]]:
    """Map lower-case names to name and type, without `__START_AT` and `__END_AT`."""
    return {
        field.name.lower(): (field.name, field.dataType)
        for field in schema
        if field.name.upper() not in (START, END)
    }
