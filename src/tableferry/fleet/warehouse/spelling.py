"""The name mapping by which Iceberg finds columns in files that carry no field ids: pure.

Hive finds a file's columns whatever the case of their names, and an old ORC file's by their place; Iceberg
only by the very names that the mapping has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

Mapped = Mapping[str, Any]
"""``{"field-id": 1, "names": ["id"], "fields": […]}`` of Iceberg's ``schema.name-mapping.default``."""


def mapped(schema: Mapping[str, Any]) -> list[Mapped]:
    """Map each column of an Iceberg schema, in its JSON form, to its own name."""
    return [_entry(field["id"], field["name"], field["type"]) for field in schema["fields"]]


def _entry(field_id: int, name: str, kind: Any) -> Mapped:
    entry: dict[str, Any] = {"field-id": field_id, "names": [name]}
    match kind:
        case {"type": "struct"}:
            return {**entry, "fields": mapped(kind)}
        case {"type": "list"}:
            return {**entry, "fields": [_entry(kind["element-id"], "element", kind["element"])]}
        case {"type": "map"}:
            return {
                **entry,
                "fields": [
                    _entry(kind["key-id"], "key", kind["key"]),
                    _entry(kind["value-id"], "value", kind["value"]),
                ],
            }
    return entry


def leaves(mapping: Sequence[Mapped]) -> Iterator[int]:
    """Give the field ids that hold values."""
    for each in mapping:
        if each.get("fields"):
            yield from leaves(each["fields"])
        else:
            yield each["field-id"]


def extended(mapping: Sequence[Mapped], file: Mapping[str, Any]) -> list[Mapped]:
    """Add the names that a file has for the columns.

    Args:
        mapping: What is mapped.
        file: The file's schema, as Spark writes it in JSON.
    """
    return [_spelled(each, file["fields"]) for each in mapping]


def by_place(mapping: Sequence[Mapped], partitions: Collection[str]) -> list[Mapped]:
    """Add the names that old Hive's ORC files have for the columns: ``_col0``, ``_col1``, ….

    Args:
        mapping: What is mapped.
        partitions: The names of partition columns, which no file has.
    """
    hidden = {name.lower() for name in partitions}
    data = [each["field-id"] for each in mapping if each["names"][0].lower() not in hidden]
    places = {field_id: f"_col{place}" for place, field_id in enumerate(data)}
    return [_named(each, places.get(each["field-id"])) for each in mapping]


def _spelled(each: Mapped, fields: Sequence[Mapping[str, Any]]) -> Mapped:
    known = {name.lower() for name in each["names"]}
    same = [field for field in fields if field["name"].lower() in known]
    # Which of two spellings Hive would take isn't for us to guess; the rows are compared later.
    if len(same) != 1:
        return each
    named = _named(each, same[0]["name"])
    return {**named, "fields": _within(each["fields"], same[0]["type"])} if each.get("fields") else named


def _within(mapping: Sequence[Mapped], kind: Any) -> list[Mapped]:
    match kind:
        case {"type": "struct", "fields": fields}:
            return [_spelled(each, fields) for each in mapping]
        case {"type": "array", "elementType": element}:
            fields = [{"name": "element", "type": element}]
        case {"type": "map", "keyType": key, "valueType": value}:
            fields = [{"name": "key", "type": key}, {"name": "value", "type": value}]
        case _:
            return list(mapping)
    return [_spelled(each, fields) for each in mapping]


def _named(each: Mapped, name: str | None) -> Mapped:
    return each if name is None or name in each["names"] else {**each, "names": [*each["names"], name]}
