"""What a table's entry said before its conversion: kept in the first commit, and said to the catalog again.

SHOW CREATE TABLE would be simpler, but it writes backslashes as they are, and reads them as escapes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tableferry import types
from tableferry.convert.entry import Entry, SerDe, lasting_properties, log_columns
from tableferry.hive.partitions import PartitionColumn
from tableferry.hive.sql import quoted, text
from tableferry.tables import TableName
from tableferry.types import Array, Atomic, DataType, Decimal, Field, Map, Struct

KEY = "tableferryCatalogEntry"
"""Where the first commit's ``commitInfo`` has it."""

_RAW_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


def plain(entry: Entry) -> dict[str, Any]:
    """Return what makes the entry anew, as plain data."""
    return {
        "table": list(entry.name.parts),
        "type": entry.type,
        "location": entry.location,
        "columns": types.plain(log_columns(entry)),
        "partitionColumns": [each.name for each in entry.partition_columns],
        "comment": entry.comment,
        "properties": lasting_properties(entry),
        "options": dict(entry.options),
        "owner": entry.owner,
        "buckets": entry.buckets,
        "bucketColumns": list(entry.bucket_columns),
        "sortColumns": list(entry.sort_columns),
        "serde": list(entry.serde) if entry.serde else None,
    }


def parsed(said: Mapping[str, Any]) -> Entry:
    """Read what `plain` returned.

    Raises:
        ValueError: It isn't that.
    """
    try:
        columns = types.from_json(json.dumps(said["columns"]))
        by_name = {each.name: each.type for each in columns.fields}
        return Entry(
            name=TableName(tuple(said["table"])),
            provider="parquet",
            type=said["type"],
            location=said["location"],
            folder=None,
            columns=columns,
            partition_columns=tuple(_partition(name, by_name[name]) for name in said["partitionColumns"]),
            comment=said["comment"],
            properties=said["properties"],
            options=said["options"],
            owner=said["owner"],
            buckets=said["buckets"],
            bucket_columns=tuple(said["bucketColumns"]),
            sort_columns=tuple(said["sortColumns"]),
            serde=SerDe(*said["serde"]) if said["serde"] else None,
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not what was recorded of a table: {error}") from error


def recorded(commit_info: Mapping[str, Any]) -> Entry | None:
    """Return the entry that a first commit tells of; None if it tells of none that this version knows."""
    said = commit_info.get(KEY)
    try:
        return parsed(said) if isinstance(said, dict) else None
    except ValueError:
        return None


def same(one: Entry, other: Entry) -> bool:
    """Say whether two entries say the same of their table, but for names and places."""
    return _essence(one) == _essence(other)


def statement(entry: Entry, name: TableName) -> str:
    """Write the SQL that makes an entry like this one under a name; a managed one chooses its place."""
    partitions = {each.name for each in entry.partition_columns}
    columns = entry.columns.fields
    if entry.serde:
        by_name = {each.name: each for each in columns}
        columns = tuple(each for each in columns if each.name not in partitions)
        partitioned = [_column(by_name[each.name]) for each in entry.partition_columns]
    else:
        partitioned = [quoted(each.name) for each in entry.partition_columns]
    clauses = [
        f"CREATE {'EXTERNAL ' if entry.serde and entry.type == 'external' else ''}TABLE {name.sql} "
        f"({', '.join(map(_column, columns))})",
    ]
    if not entry.serde:
        clauses.append("USING parquet")
        clauses += [f"OPTIONS {_pairs(entry.options)}"] if entry.options else []
    clauses += [f"PARTITIONED BY ({', '.join(partitioned)})"] if partitioned else []
    clauses += [_buckets(entry)] if entry.buckets else []
    if entry.serde:
        clauses.append(f"ROW FORMAT SERDE {text(entry.serde.library)}")
        clauses += [f"WITH SERDEPROPERTIES {_pairs(entry.options)}"] if entry.options else []
        formats = text(entry.serde.input_format), text(entry.serde.output_format)
        clauses.append("STORED AS INPUTFORMAT {} OUTPUTFORMAT {}".format(*formats))
    clauses += [f"COMMENT {text(entry.comment)}"] if entry.comment is not None else []
    clauses += [f"LOCATION {text(entry.location)}"] if entry.type == "external" else []
    properties = lasting_properties(entry)
    clauses += [f"TBLPROPERTIES {_pairs(properties)}"] if properties else []
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


def _partition(name: str, of: DataType) -> PartitionColumn:
    if not isinstance(of, Atomic | Decimal):
        raise TypeError(f"{name} is {of}")
    return PartitionColumn(name, of)


def _column(column: Field) -> str:
    said = column.metadata
    default = f" DEFAULT {said['CURRENT_DEFAULT']}" if "CURRENT_DEFAULT" in said else ""
    comment = f" COMMENT {text(said['comment'])}" if "comment" in said else ""
    return f"{quoted(column.name)} {said.get(_RAW_TYPE) or _type(column.type)}{default}{comment}"


def _type(of: DataType) -> str:
    match of:
        case Struct():
            fields = (
                f"{quoted(each.name)}: {_type(each.type)}"
                + (f" COMMENT {text(each.metadata['comment'])}" if "comment" in each.metadata else "")
                for each in of.fields
            )
            return f"STRUCT<{', '.join(fields)}>"
        case Array():
            return f"ARRAY<{_type(of.element)}>"
        case Map():
            return f"MAP<{_type(of.key)}, {_type(of.value)}>"
        case _:
            return str(of)


def _buckets(entry: Entry) -> str:
    by = ", ".join(map(quoted, entry.bucket_columns))
    rows = f" SORTED BY ({', '.join(map(quoted, entry.sort_columns))})" if entry.sort_columns else ""
    return f"CLUSTERED BY ({by}){rows} INTO {entry.buckets} BUCKETS"


def _pairs(pairs: Mapping[str, str]) -> str:
    return _listed(f"{text(key)} = {text(value)}" for key, value in sorted(pairs.items()))


def _listed(items: Iterable[str]) -> str:
    return f"({', '.join(items)})"
