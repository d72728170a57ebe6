"""Which columns of ORC and Avro files Iceberg reads as those of a table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tableferry.fleet.warehouse.file_columns import (
    FileColumn,
    avro_columns,
    hindrance,
    hive_columns,
    read_by_avro,
    read_by_orc,
)
from tableferry.fleet.warehouse.hive_table import HiveColumn, iceberg_ids
from tableferry.fleet.warehouse.name_mapping import mapping_of, with_avro_names


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
def test_types_of_avro(kind: object, expected: str) -> None:
    assert avro_columns(avro({"name": "x", "type": kind})) == (column("x", expected),)


def test_named_types_of_avro_are_found_by_their_namespace() -> None:
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


def test_a_record_of_avro_that_holds_itself_ends() -> None:
    schema = avro({"name": "next", "type": ["null", "r"]}, {"name": "x", "type": "int"})
    assert avro_columns(schema) == (column("next", "r"), column("x", "int"))


def test_an_alias_that_is_another_field_s_name_is_left_out() -> None:
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
def test_what_is_no_schema_of_a_record(schema: str) -> None:
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
def test_how_values_may_be_stored(stored: str, kind: str, is_read: bool) -> None:
    more = {"precision": 9, "scale": 2} if kind == "decimal" else {}
    found = hindrance(hive_columns([HiveColumn("x", {"name": kind, **more})]), [column("x", stored)])
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


def test_what_is_in_arrays_and_structs_counts_too() -> None:
    expected = hive_columns([HiveColumn("xs", DEEP)])
    assert hindrance(expected, [deep(column("a", "int"))]) == ""
    found = hindrance(expected, [deep(column("a", "int"), column("b", "int"))])
    assert "stores xs.element.b as int" in found
    assert "stores xs.element as int, which Iceberg can't read as struct" in hindrance(
        expected, [column("xs", "list", column("element", "int"))]
    )


def test_a_column_with_a_default_that_a_file_lacks() -> None:
    columns = hive_columns([HiveColumn("a", INT), HiveColumn("b", INT)], {"b": "5"})
    assert hindrance(columns, [column("b", "int")]) == ""
    assert "lacks b, which is 5 there, and would be null" in hindrance(columns, [column("a", "int")])


def test_a_file_that_numbers_its_columns_must_number_them_as_the_table() -> None:
    columns = hive_columns([HiveColumn("a", INT), HiveColumn("b", INT)], ids={("a",): 1, ("b",): 2})
    a, b, c = (column(name, "int") for name in "abc")
    for file in (
        [a, b],
        [a._replace(id=1), b._replace(id=2)],
        [b._replace(id=2), c._replace(id=3)],
        [a._replace(id=1), c],
    ):
        assert hindrance(columns, file) == ""
    for file, other in (
        ([a._replace(id=2), b._replace(id=1)], "a"),
        ([a._replace(id=1), b], "b"),
        ([a._replace(id=1), c._replace(id=2)], "c"),
    ):
        assert f"has field ids, by which Iceberg finds columns, and {other} would" in hindrance(columns, file)


def test_fields_in_arrays_are_numbered_too() -> None:
    number = {"field-id": 5, "name": "a", "type": "int"}
    inner = {"type": "array", "items": {"type": "record", "name": "in", "fields": [number]}, "element-id": 2}
    file = avro_columns(avro({"name": "xs", "type": inner, "field-id": 1}))
    table = [HiveColumn("xs", DEEP)]
    ids = iceberg_ids(table)
    assert ids == {("xs",): 1, ("xs", "element"): 2, ("xs", "element", "a"): 3, ("xs", "element", "b"): 4}
    assert "and a would be another one" in hindrance(hive_columns(table, ids=ids), file)
    ids[("xs", "element", "a")] = 5
    assert hindrance(hive_columns(table, ids=ids), file) == ""


def test_orc_files_have_columns_of_any_case_or_by_place() -> None:
    columns = hive_columns([HiveColumn("a", INT), HiveColumn("xs", DEEP)])
    spelled = [column("A", "int"), deep(column("B", "double"))]
    assert hindrance(read_by_orc(columns, spelled), spelled) == ""
    placed = [column("_col0", "string"), column("_col1", "list", column("element", "struct"))]
    assert "stores a as string" in hindrance(read_by_orc(columns, placed), placed)


def test_avro_files_have_columns_by_the_very_names_of_a_schema() -> None:
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
        assert hindrance(named, [column(name, "int")]) == ""
        assert "stores userId as string" in hindrance(named, [column(name, "string")])
    assert "calls userId userid, so that Hive may read it" in hindrance(named, [column("userid", "int")])

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
