"""Operational metadata columns: what they are in Spark, and what their values are in one run."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, StructField, StructType

from tableferry.pipelines.cdc.fold import END, START
from tableferry.pipelines.model.flows import QUARANTINED, MetadataColumn, Target

Details = Mapping[str, str]
"""Details of a run, by the names that `MetadataColumn.detail` has for them; what isn't there is NULL."""

NO_DETAILS: Details = {}


def run_details(pipeline_id: str) -> Details:
    """Return the details of a run that begins now."""
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    return {"pipeline_id": pipeline_id, "start_utc_timestamp": started, "update_id": str(uuid.uuid4())}


def with_metadata(frame: DataFrame, columns: Sequence[MetadataColumn], details: Details) -> DataFrame:
    """Give rows their operational metadata columns; those of the same names are replaced."""
    for column in columns:
        frame = frame.withColumn(column.name, _value(column, details))
    return frame


def added_columns(target: Target) -> list[StructField]:
    """Return the columns that a target has besides those that its schema file and its flows say."""
    fields = [StructField(column.name, _type(column)) for column in target.metadata]
    if any(rule.action == "flag" for rule in target.expectations):
        fields.append(StructField(QUARANTINED, BooleanType()))
    return fields


def with_added(schema: StructType, target: Target, *, validity: bool = False) -> StructType:
    """Return a schema file's columns and those that the target has besides.

    ``validity`` counts the columns of a validity interval among them, whose type is a timestamp unless the
    schema file or the versions of snapshots say another.
    """
    added = [*added_columns(target), *(_interval(target) if validity else [])]
    known = {field.name.lower() for field in schema.fields}
    return StructType([*schema.fields, *(field for field in added if field.name.lower() not in known)])


def _interval(target: Target) -> list[StructField]:
    snapshots = target.snapshots
    settings = snapshots or target.cdc
    if settings is None or settings.scd_type == 1:
        return []
    source = snapshots.source if snapshots else ""
    kind = "timestamp" if isinstance(source, str) else source.version_type
    return [StructField.fromJson(_json(name, kind)) for name in (START, END)]


def _value(column: MetadataColumn, details: Details) -> Column:
    if column.fields:
        return F.struct(*(_value(field, details).alias(field.name) for field in column.fields))
    if column.sql is not None:
        return F.expr(column.sql).cast(_type(column))
    value = column.value if column.value is not None else details.get(column.detail or "")
    return F.lit(value).cast(_type(column))


def _type(column: MetadataColumn) -> DataType:
    if column.fields:
        return StructType([StructField(field.name, _type(field)) for field in column.fields])
    return StructField.fromJson(_json(column.name, json.loads(column.type))).dataType


def _json(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}
