"""Build the name mapping by which Iceberg finds columns in files without field ids.

Hive ignores the case of column names, finds the columns of old ORC files by position, and those of Avro files
by an Avro schema. Iceberg finds columns only by the exact names in the mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tableferry.fleet.copies.iceberg_files.file_columns import FileColumn

MAPPING = "schema.name-mapping.default"
"""The table property with the mapping as JSON."""

MappedField = Mapping[str, Any]
"""``{"field-id": 1, "names": ["id"], "fields": […]}`` of Iceberg's ``schema.name-mapping.default``."""


def mapping_of(schema: Mapping[str, Any]) -> list[MappedField]:
    """Map each column of an Iceberg schema, in its JSON form, to its own name."""
    return [_mapped(field["id"], field["name"], field["type"]) for field in schema["fields"]]


def _mapped(field_id: int, name: str, kind: Any) -> MappedField:
    field: dict[str, Any] = {"field-id": field_id, "names": [name]}
    match kind:
        case {"type": "struct"}:
            field["fields"] = mapping_of(kind)
        case {"type": "list"}:
            field["fields"] = [_mapped(kind["element-id"], "element", kind["element"])]
        case {"type": "map"}:
            field["fields"] = [
                _mapped(kind["key-id"], "key", kind["key"]),
                _mapped(kind["value-id"], "value", kind["value"]),
            ]
    return field


def stored(mapping: Iterable[MappedField], partitions: Iterable[str]) -> list[MappedField]:
    """Return the fields without partition columns, whose values aren't read from files."""
    partition_columns = {name.lower() for name in partitions}
    return [field for field in mapping if field["names"][0].lower() not in partition_columns]


def leaf_ids(mapping: Sequence[MappedField]) -> Iterator[int]:
    """Yield the ids of the fields with values."""
    for field in mapping:
        if field.get("fields"):
            yield from leaf_ids(field["fields"])
        else:
            yield field["field-id"]


def with_file_names(mapping: Sequence[MappedField], file: Mapping[str, Any]) -> list[MappedField]:
    """Add the column names of a file, from its schema in Spark's JSON form."""
    return [_with_file_name(field, file["fields"]) for field in mapping]


def with_orc_positions(mapping: Sequence[MappedField], partitions: Iterable[str]) -> list[MappedField]:
    """Add the column names in ORC files of old Hive versions: ``_col0``, ``_col1``, …."""
    columns = enumerate(stored(mapping, partitions))
    places = {field["field-id"]: f"_col{position}" for position, field in columns}
    # Iceberg refuses a mapping that contains a name twice.
    taken = {name for field in mapping for name in field["names"]}
    names = {field_id: place for field_id, place in places.items() if place not in taken}
    return [_with_name(field, names.get(field["field-id"])) for field in mapping]


def with_avro_names(mapping: Sequence[MappedField], columns: Iterable[FileColumn]) -> list[MappedField]:
    """Replace the names by those under which Avro finds the columns in files."""
    by_name = {column.name.lower(): column for column in columns}
    return [_as_avro(field, by_name.get(field["names"][0].lower())) for field in mapping]


def _as_avro(field: MappedField, column: FileColumn | None) -> MappedField:
    if column is None:
        return field
    inner = {"fields": with_avro_names(field["fields"], column.inner)} if field.get("fields") else {}
    return {**field, "names": list(column.names), **inner}


def _with_file_name(field: MappedField, columns: Sequence[Mapping[str, Any]]) -> MappedField:
    known = {name.lower() for name in field["names"]}
    same = [column for column in columns if column["name"].lower() in known]
    # It's unknown which of two spellings Hive reads. The comparison of rows finds a wrong choice.
    if len(same) != 1:
        return field
    named = _with_name(field, same[0]["name"])
    return {**named, "fields": _inside(field["fields"], same[0]["type"])} if field.get("fields") else named


def _inside(mapping: Sequence[MappedField], kind: Any) -> list[MappedField]:
    match kind:
        case {"type": "struct", "fields": columns}:
            pass
        case {"type": "array", "elementType": element}:
            columns = [{"name": "element", "type": element}]
        case {"type": "map", "keyType": key, "valueType": value}:
            columns = [{"name": "key", "type": key}, {"name": "value", "type": value}]
        case _:
            return list(mapping)
    return [_with_file_name(field, columns) for field in mapping]


def _with_name(field: MappedField, name: str | None) -> MappedField:
    if name is None or name in field["names"]:
        return field
    return {**field, "names": [*field["names"], name]}
