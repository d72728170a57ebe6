"""What doesn't fit between a legacy table, the target that its rows are copied to, and what flows bring.

All of it shows before anything is copied; found later, it is a failed task, or a rule that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructType

from tableferry.errors import Finding, TableferryError
from tableferry.pipelines.cdc.fold import END, START
from tableferry.pipelines.cdc.target_columns import can_store, sql_type
from tableferry.pipelines.model.flows import Flow, Migration
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import flow_rows
from tableferry.spark import catalog
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.quoting import quote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_FAILED: tuple[type[Exception], ...] = (TableferryError, *SPARK_ERRORS)
_CONSTRAINT = "delta.constraints."


def too_wide(target: TargetPlan, spark: SparkSession) -> tuple[Finding, ...]:
    """Return a finding for each column that streaming flows bring wider than the copy would make it.

    The copy makes the target's columns, unless a schema file says what they are; their types stay.

    Raises:
        TableferryError: The legacy table can't be read.
    """
    source, dataflow = target.copied_from, target.dataflow
    if source is None:
        return ()
    copied = _columns(views.history(spark, source).schema)
    if dataflow.target.schema_file:
        copied |= _columns(views.schema_of(spark, dataflow.target.schema_file))
    findings: dict[str, Finding] = {}
    for flow in dataflow.streaming_flows:
        if flow.target.key != target.target.key:
            continue
        try:
            brought = flow_rows(spark, dataflow.views, flow, dataflow.target, {}, once=False).schema
        except _FAILED:  # Whoever builds it to run it says why.
            continue
        for name, wide, narrow in _misfits(brought, copied):
            finding = Finding(
                "COPY_TOO_NARROW",
                location=source.migration.location,
                column=name,
                copied_type=sql_type(narrow),
                flow=flow.name,
                flow_type=sql_type(wide),
                name=quote(name),
            )
            findings.setdefault(name, finding)
    return tuple(findings.values())


def unknown_exceptions(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding that names the columns of `compareExcept` that no rows have; None if all exist.

    A flow whose rows can't be read yet may have any column.

    Raises:
        TableferryError: The legacy table can't be read.
    """
    source, dataflow = target.copied_from, target.dataflow
    if source is None or not source.migration.compare_except:
        return None
    columns = [*views.history(spark, source).columns, *(added.name for added in dataflow.target.metadata)]
    for flow in dataflow.streaming_flows:
        try:
            columns += flow_rows(spark, dataflow.views, flow, dataflow.target, {}, once=False).columns
        except _FAILED:
            return None
    return exceptions_unknown_among(source.migration, columns)


def exceptions_unknown_among(migration: Migration, columns: Sequence[str]) -> Finding | None:
    """Return a finding that names the columns of `compareExcept` that aren't among these; None for none."""
    existing = {name.lower(): name for name in columns}
    unknown = [name for name in migration.compare_except if name.lower() not in existing]
    if not unknown:
        return None
    return Finding(
        "COMPARE_EXCEPT_UNKNOWN",
        location=migration.location,
        unknown=unknown,
        columns=", ".join(existing.values()),
    )


def narrower(rows: StructType, table: StructType, flow: Flow) -> tuple[Finding, ...]:
    """Return a finding for each column of a table that can't contain all values that a flow appends.

    Columns of nested types aren't looked at, because an append can add fields to them.
    """
    findings = []
    for name, brought, kind in _misfits(rows, _columns(table)):
        if any(isinstance(each, ArrayType | MapType | StructType) for each in (kind, brought)):
            continue
        column, wide, narrow = quote(name), sql_type(brought), sql_type(kind)
        finding = Finding(
            "COLUMN_TOO_NARROW",
            column=name,
            table=flow.target,
            table_type=narrow,
            flow=flow.name,
            flow_type=wide,
            sql=flow.target.sql,
            name=column,
        )
        findings.append(finding)
    return tuple(findings)


def _misfits(
    rows: StructType, columns: Mapping[str, tuple[str, DataType]]
) -> Iterator[tuple[str, DataType, DataType]]:
    """Yield each column that can't hold all values of some rows: its name, and their type and its own."""
    for field in rows:
        name, kind = columns.get(field.name.lower(), (field.name, field.dataType))
        if not can_store(kind, field.dataType):
            yield name, field.dataType, kind


def left_behind(target: TargetPlan, spark: SparkSession) -> Finding | None:
    """Return a finding with the rules and layout of the legacy table that its target lacks, or None."""
    migration, table = target.dataflow.migration, target.dataflow.target
    if not target.copy or migration is None:
        return None
    facts = catalog.facts(spark, migration.table)
    if facts is None:
        return None
    try:
        [detail] = spark.sql(f"DESCRIBE DETAIL {migration.table.sql}").collect()
        columns = spark.table(migration.table.sql).schema
    except SPARK_ERRORS:  # Whoever copies it says why it can't be read.
        return None
    schema = views.schema_of(spark, table.schema_file) if table.schema_file is not None else ()
    strict = {field.name.lower() for field in schema if not field.nullable}
    checks = [key.removeprefix(_CONSTRAINT) for key in facts.properties if key.startswith(_CONSTRAINT)]
    not_null = [field.name for field in columns if not field.nullable and field.name.lower() not in strict]
    lost = [
        *([f"the constraints {', '.join(sorted(checks))} (add them when it is copied)"] if checks else []),
        *([f"NOT NULL of {', '.join(not_null)} (a schema file keeps it)"] if not_null else []),
        *_layout("partitioned", detail["partitionColumns"], table.partition_columns, "partitionColumns"),
        *_layout("clustered", _clustering(detail), table.cluster_columns, "clusterByColumns"),
    ]
    if not lost:
        return None
    return Finding(
        "RULES_NOT_CARRIED_OVER", table=migration.table, target=target.target, lost="; ".join(lost)
    )


def _layout(how: str, has: object, expected: tuple[str, ...], key: str) -> list[str]:
    columns = tuple(map(str, has)) if isinstance(has, list | tuple) else ()
    if not columns or columns == expected:
        return []
    return [f"it is {how} by {', '.join(columns)} (targetDetails.{key} says how the target is)"]


def _clustering(detail: object) -> object:
    try:
        return detail["clusteringColumns"]  # type: ignore[index]
    except (KeyError, ValueError):  # Older versions of Delta don't say.
        return ()


def _columns(schema: StructType) -> dict[str, tuple[str, DataType]]:
    """Map names in lower case to how they are spelled and their types, without those of intervals."""
    return {
        field.name.lower(): (field.name, field.dataType)
        for field in schema
        if field.name.upper() not in (START, END)
    }
