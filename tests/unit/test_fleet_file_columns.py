"""Columns of ORC and Avro files that Iceberg reads or misreads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tableferry.fleet.copies.iceberg_files.file_columns import (
    FileColumn,
    avro_columns,
    find_blocker,
    hive_columns,
    read_by_avro,
    read_by_orc,
)
from tableferry.fleet.copies.iceberg_files.name_mapping import mapping_of, with_avro_names
from tableferry.fleet.hive_tables.hive_table import HiveColumn, iceberg_ids


def column(name: str, kind: str, *inner: FileColumn, default: str = "") -> FileColumn:
    return FileColumn((name,), kind, inner, default)


def avro(*fields: dict[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": fields, **more})


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("bytes", "binary"),
        (["null", "int"], "int"),
        (["int", "null"], "int"),
        (["null", "int", "string"], "union"),
        ({"type": "string"}, "string"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "timestamp-millis"),
        ({"type": "string", "logicalType": "varchar", "maxLength": 5}, "string"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal(9, 2)"),
        (
            {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 9},
            "decimal(9, 0)",
        ),
        ({"type": "fixed", "name": "f", "size": 4}, "binary"),
        ({"type": "enum", "name": "e", "symbols": ["x"]}, "string"),
    ],
)
def test_avro_types_are_converted(kind: object, expected: str) -> None:
    assert avro_columns(avro({"name": "x", "type": kind})) == (column("x", expected),)


def test_named_avro_types_are_found_by_namespace() -> None:
    inner = {"type": "record", "name": "in", "namespace": "b", "fields": [{"name": "i", "type": "int"}]}
    other = {"type": "record", "name": "in", "fields": [{"name": "s", "type": "string"}]}
    schema = avro(
        {"name": "first", "type": inner},
        {"name": "second", "type": ["null", other]},
        {"name": "own", "type": {"type": "array", "items": "in"}},
        {"name": "far", "type": {"type": "map", "values": "b.in"}},
        namespace="a",
    )
    ints, texts = (column("i", "int"),), (column("s", "string"),)
    assert avro_columns(schema) == (
        column("first", "struct", *ints),
        column("second", "struct", *texts),
        column("own", "list", column("element", "struct", *texts)),
        column("far", "map", column("key", "string"), column("value", "struct", *ints)),
    )


def test_recursive_avro_record_stays_a_name() -> None:
    schema = avro({"name": "next", "type": ["null", "r"]}, {"name": "x", "type": "int"})
    assert avro_columns(schema) == (column("next", "r"), column("x", "int"))


def test_alias_equal_to_a_field_name_is_ignored() -> None:
    schema = avro(
        {"name": "a", "type": "int", "aliases": ["b", "c"]},
        {"name": "b", "type": "int", "aliases": ["c"], "default": 0},
        {"name": "d", "type": ["null", "int"], "default": None},
    )
    assert avro_columns(schema) == (
        FileColumn(("a", "c"), "int"),
        FileColumn(("b",), "int", (), "0"),
        FileColumn(("d",), "int"),
    )


@pytest.mark.parametrize("schema", ["{", '"int"', "[]", "{}", '{"type": "record"}', "7"])
def test_text_that_is_not_a_record_schema_is_refused(schema: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        avro_columns(schema)


@pytest.mark.parametrize(
    ("stored", "kind", "is_read"),
    [
        ("int", "tinyint", True),
        ("int", "bigint", True),
        ("int", "double", False),
        ("long", "int", False),
        ("float", "double", True),
        ("double", "float", False),
        ("string", "varchar", True),
        ("string", "binary", False),
        ("timestamp", "timestamp_ntz", True),
        ("long", "timestamp_ntz", False),
        ("timestamp-millis", "timestamp_ltz", True),
        ("timestamp-micros", "bigint", True),
        ("timestamp-millis", "bigint", False),
        ("time-micros", "bigint", False),
        ("uuid", "string", False),
        ("decimal(5, 2)", "decimal", True),
        ("decimal(9, 4)", "decimal", False),
        ("int", "decimal", False),
        ("struct", "int", False),
    ],
)
def test_stored_types_are_read_or_refused(stored: str, kind: str, is_read: bool) -> None:
    more = {"precision": 9, "scale": 2} if kind == "decimal" else {}
    found = find_blocker(hive_columns([HiveColumn("x", {"name": kind, **more})]), [column("x", stored)])
    assert (found == "") is is_read
    assert is_read or f"stores x as {stored}, which Iceberg can't read as " in found


INT = {"name": "int"}
DEEP = {
    "name": "array",
    "element_type": {
        "name": "struct",
        "fields": [{"name": "a", "type": INT}, {"name": "b", "type": {"name": "double"}}],
    },
}


def deep(*fields: FileColumn) -> FileColumn:
    return column("xs", "list", column("element", "struct", *fields))


def test_nested_fields_are_checked_too() -> None:
    expected = hive_columns([HiveColumn("xs", DEEP)])
    assert find_blocker(expected, [deep(column("a", "int"))]) == ""
    found = find_blocker(expected, [deep(column("a", "int"), column("b", "int"))])
    assert "stores xs.element.b as int" in found
    assert "stores xs.element as int, which Iceberg can't read as struct" in find_blocker(
        expected, [column("xs", "list", column("element", "int"))]
    )


def test_file_without_a_column_with_default_is_refused() -> None:
    columns = hive_columns([HiveColumn("a", INT), HiveColumn("b", INT)], {"b": "5"})
    assert find_blocker(columns, [column("b", "int")]) == ""
    assert "lacks b, which is 5 there, and would be null" in find_blocker(columns, [column("a", "int")])


def test_field_ids_of_a_file_must_equal_the_tables() -> None:
    columns = hive_columns([HiveColumn("a", INT), HiveColumn("b", INT)], ids={("a",): 1, ("b",): 2})
    a, b, c = (column(name, "int") for name in "abc")
    for file in (
        [a, b],
        [a._replace(id=1), b._replace(id=2)],
        [b._replace(id=2), c._replace(id=3)],
        [a._replace(id=1), c],
    ):
        assert find_blocker(columns, file) == ""
    for file, other in (
        ([a._replace(id=2), b._replace(id=1)], "a"),
        ([a._replace(id=1), b], "b"),
        ([a._replace(id=1), c._replace(id=2)], "c"),
    ):
        assert f"has field ids, by which Iceberg finds columns, and {other} would" in find_blocker(
            columns, file
        )


def test_field_ids_in_arrays_are_checked_too() -> None:
    number = {"field-id": 5, "name": "a", "type": "int"}
    inner = {"type": "array", "items": {"type": "record", "name": "in", "fields": [number]}, "element-id": 2}
    file = avro_columns(avro({"name": "xs", "type": inner, "field-id": 1}))
    table = [HiveColumn("xs", DEEP)]
    ids = iceberg_ids(table)
    assert ids == {("xs",): 1, ("xs", "element"): 2, ("xs", "element", "a"): 3, ("xs", "element", "b"): 4}
    assert "and a would be another one" in find_blocker(hive_columns(table, ids=ids), file)
    ids[("xs", "element", "a")] = 5
    assert find_blocker(hive_columns(table, ids=ids), file) == ""


def test_orc_columns_are_found_in_any_case_or_by_position() -> None:
    columns = hive_columns([HiveColumn("a", INT), HiveColumn("xs", DEEP)])
    spelled = [column("A", "int"), deep(column("B", "double"))]
    assert find_blocker(read_by_orc(columns, spelled), spelled) == ""
    placed = [column("_col0", "string"), column("_col1", "list", column("element", "struct"))]
    assert "stores a as string" in find_blocker(read_by_orc(columns, placed), placed)


def test_avro_columns_are_found_by_the_exact_names_of_the_schema() -> None:
    inner = {"type": "record", "name": "in", "fields": [{"name": "theB", "type": "int", "aliases": ["b"]}]}
    schema = avro(
        {"name": "userId", "type": "int", "aliases": ["id"]},
        {"name": "XS", "type": {"type": "array", "items": inner}},
    )
    kinds = {"name": "struct", "fields": [{"name": "theb", "type": INT}]}
    columns = [
        HiveColumn("userid", INT),
        HiveColumn("xs", {"name": "array", "element_type": kinds}),
        HiveColumn("day", {"name": "string"}),
    ]
    reader = avro_columns(schema)
    named = read_by_avro(hive_columns(columns), reader)
    assert [each.names for each in named] == [("userId", "id"), ("XS",), ("day",)]
    for name in ("userId", "id"):
        assert find_blocker(named, [column(name, "int")]) == ""
        assert "stores userId as string" in find_blocker(named, [column(name, "string")])
    assert "calls userId userid, so that Hive may read it" in find_blocker(named, [column("userid", "int")])

    field = {"id": 4, "name": "theb", "type": "int"}
    listed = {"type": "list", "element-id": 3, "element": {"type": "struct", "fields": [field]}}
    fields = [
        {"id": 1, "name": "userid", "type": "int"},
        {"id": 2, "name": "xs", "type": listed},
        {"id": 5, "name": "day", "type": "string"},
    ]
    assert with_avro_names(mapping_of({"type": "struct", "fields": fields}), reader) == [
        {"field-id": 1, "names": ["userId", "id"]},
        {
            "field-id": 2,
            "names": ["XS"],
            "fields": [
                {
                    "field-id": 3,
                    "names": ["element"],
                    "fields": [{"field-id": 4, "names": ["theB", "b"]}],
                }
            ],
        },
        {"field-id": 5, "names": ["day"]},
    ]
