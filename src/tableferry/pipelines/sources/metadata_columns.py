"""Operational metadata columns: their types in Spark and their values in one run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from tableferry.pipelines.cdc.event_columns import END, START
from tableferry.pipelines.model.flows import QUARANTINED_COLUMN, MetadataColumn, Target

Details = Mapping[str, str]
"""Details of a run, by the names of `MetadataColumn.detail`; a missing detail is NULL."""

NO_DETAILS: Details = {}


def create_run_details(pipeline_id: str) -> Details:
    """Return the details of a run that starts now."""
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return {"pipeline_id": pipeline_id, "start_utc_timestamp": started, "update_id": str(uuid.uuid4())}


def add_metadata_columns(frame: DataFrame, columns: Sequence[MetadataColumn], details: Details) -> DataFrame:
    """Add operational metadata columns to rows; columns with the same names are replaced."""
    for column in columns:
        frame = frame.withColumn(column.name, _value_column(column, details))
    return frame


def list_added_columns(target: Target) -> list[StructField]:
    """List the columns that a target has in addition to those of its schema file and its flows."""
    fields = [StructField(column.name, _data_type(column)) for column in target.metadata]
    if any(rule.action == "flag" for rule in target.expectations):
        fields.append(StructField(QUARANTINED_COLUMN, BooleanType()))
    return fields


def add_target_columns(schema: StructType, target: Target, *, has_intervals: bool = False) -> StructType:
    """Add the target's other columns to those of its schema file.

    With `has_intervals` the columns of validity intervals are added too. Their type is timestamp, unless the
    schema file or the versions of snapshots have another one.
    """
    added = [*list_added_columns(target), *(_interval_fields(target) if has_intervals else [])]
    known = {field.name.lower() for field in schema.fields}
    return StructType([*schema.fields, *(field for field in added if field.name.lower() not in known)])


def _interval_fields(target: Target) -> list[StructField]:
    snapshots = target.snapshots
    settings = snapshots or target.cdc
    if settings is None or settings.scd_type == 1:
        return []
    source = snapshots.source if snapshots else ""
    kind = "timestamp" if isinstance(source, str) else source.version_type
    return [StructField.fromJson(_field_json(name, kind)) for name in (START, END)]


def _value_column(column: MetadataColumn, details: Details) -> Column:
    if column.fields:
        return F.struct(*(_value_column(field, details).alias(field.name) for field in column.fields))
    if column.sql is not None:
        return F.expr(column.sql).cast(_data_type(column))
    value = column.value if column.value is not None else details.get(column.detail or "")
    return F.lit(value).cast(_data_type(column))


def _data_type(column: MetadataColumn) -> DataType:
    if column.fields:
        return StructType([StructField(field.name, _data_type(field)) for field in column.fields])
    return StructField.fromJson(_field_json(column.name, json.loads(column.type))).dataType


def _field_json(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
