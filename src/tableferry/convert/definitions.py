"""Record a table's catalog entry in the first commit of its conversion, and write SQL that recreates it.

SHOW CREATE TABLE can't be used: it writes backslashes unescaped, but SQL reads them as escapes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tableferry.formats.hive.catalog_entry import Entry, SerDe, lasting_properties, log_columns
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.spark import types
from tableferry.spark.quoting import literal, pairs, quote
from tableferry.spark.tables import TableName
from tableferry.spark.types import DECLARED_AS, Array, Atomic, DataType, Decimal, Field, Map, Struct

KEY = "tableferryCatalogEntry"
"""The key of the entry in the first commit's ``commitInfo``."""


def plain(entry: Entry) -> dict[str, Any]:
    """Return the parts of an entry that recreate it, as data for JSON."""
    return {
        "table": list(entry.name.parts),
        "type": entry.type,
        "location": entry.location,
        "columns": types.plain(log_columns(entry)),
        "partitionColumns": [column.name for column in entry.partition_columns],
        "comment": entry.comment,
        "properties": lasting_properties(entry),
        "options": dict(entry.options),
        "owner": entry.owner,
        "buckets": entry.buckets,
        "bucketColumns": list(entry.bucket_columns),
        "sortColumns": list(entry.sort_columns),
        "serde": list(entry.serde) if entry.serde else None,
    }


def parsed(data: Mapping[str, Any]) -> Entry:
    """Return the entry that `plain` converted.

    Raises:
        ValueError: The data isn't such an entry.
    """
    try:
        columns = types.from_json(json.dumps(data["columns"]))
        by_name = {column.name: column.type for column in columns.fields}
        return Entry(
            name=TableName(tuple(data["table"])),
            provider="parquet",
            type=data["type"],
            location=data["location"],
            folder=None,
            columns=columns,
            partition_columns=tuple(
                partition_column(name, by_name[name]) for name in data["partitionColumns"]
            ),
            comment=data["comment"],
            properties=data["properties"],
            options=data["options"],
            owner=data["owner"],
            buckets=data["buckets"],
            bucket_columns=tuple(data["bucketColumns"]),
            sort_columns=tuple(data["sortColumns"]),
            serde=SerDe(*data["serde"]) if data["serde"] else None,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the recorded definition of a table: {error}") from error


def recorded(commit_info: Mapping[str, Any]) -> Entry | None:
    """Return the entry that a first commit records, or None if it has no entry that this version can read."""
    data = commit_info.get(KEY)
    try:
        return parsed(data) if isinstance(data, dict) else None
    except ValueError:
        return None


def same(left: Entry, right: Entry) -> bool:
    """Return whether two entries are equal except for name, location and owner."""
    return _essence(left) == _essence(right)


def statement(entry: Entry, name: TableName) -> str:
    """Return the SQL that creates a table like this entry; a managed table gets its default location."""
    columns = entry.columns.fields
    if entry.serde:
        # Hive's CREATE TABLE lists the partition columns with their types, separate from the other columns.
        by_name = {column.name: column for column in columns}
        partitioned = [_column(by_name.pop(column.name)) for column in entry.partition_columns]
        columns = tuple(by_name.values())
    else:
        partitioned = [quote(column.name) for column in entry.partition_columns]
    clauses = [
        f"CREATE {'EXTERNAL ' if entry.serde and entry.type == 'external' else ''}TABLE {name.sql} "
        f"({', '.join(map(_column, columns))})",
    ]
    if not entry.serde:
        clauses.append("USING parquet")
        clauses += [f"OPTIONS {pairs(entry.options)}"] if entry.options else []
    clauses += [f"PARTITIONED BY ({', '.join(partitioned)})"] if partitioned else []
    clauses += [_buckets(entry)] if entry.buckets else []
    if entry.serde:
        clauses.append(f"ROW FORMAT SERDE {literal(entry.serde.library)}")
        clauses += [f"WITH SERDEPROPERTIES {pairs(entry.options)}"] if entry.options else []
        formats = literal(entry.serde.input_format), literal(entry.serde.output_format)
        clauses.append("STORED AS INPUTFORMAT {} OUTPUTFORMAT {}".format(*formats))
    clauses += [f"COMMENT {literal(entry.comment)}"] if entry.comment is not None else []
    clauses += [f"LOCATION {literal(entry.location)}"] if entry.type == "external" else []
    properties = lasting_properties(entry)
    clauses += [f"TBLPROPERTIES {pairs(properties)}"] if properties else []
    return " ".join(clauses)


def _essence(entry: Entry) -> Entry:
    return replace(
        entry,
        name=TableName(),
        location="",
        folder=None,
        owner="",
        columns=log_columns(entry),
        properties=lasting_properties(entry),
    )


def partition_column(name: str, data_type: DataType) -> PartitionColumn:
    """Return a column as a partition column.

    Raises:
        TypeError: A directory's name can't contain values of the column's type.
    """
    if not isinstance(data_type, Atomic | Decimal):
        raise TypeError(f"{name} is {data_type}")
    return PartitionColumn(name, data_type)


def _column(column: Field) -> str:
    metadata = column.metadata
    default = f" DEFAULT {metadata['CURRENT_DEFAULT']}" if "CURRENT_DEFAULT" in metadata else ""
    comment = f" COMMENT {literal(metadata['comment'])}" if "comment" in metadata else ""
    return f"{quote(column.name)} {metadata.get(DECLARED_AS) or _type(column.type)}{default}{comment}"


def _type(data_type: DataType) -> str:
    match data_type:
        case Struct():
            fields = (
                f"{quote(column.name)}: {_type(column.type)}"
                + (f" COMMENT {literal(column.metadata['comment'])}" if "comment" in column.metadata else "")
                for column in data_type.fields
            )
            return f"STRUCT<{', '.join(fields)}>"
        case Array():
            return f"ARRAY<{_type(data_type.element)}>"
        case Map():
            return f"MAP<{_type(data_type.key)}, {_type(data_type.value)}>"
        case _:
            return str(data_type)


def _buckets(entry: Entry) -> str:
    key = ", ".join(map(quote, entry.bucket_columns))
    rows = f" SORTED BY ({', '.join(map(quote, entry.sort_columns))})" if entry.sort_columns else ""
    return f"CLUSTERED BY ({key}){rows} INTO {entry.buckets} BUCKETS"
