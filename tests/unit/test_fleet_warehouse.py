"""Eligibility, name mappings and types of tables; without Spark."""

from __future__ import annotations

from typing import Any

import pytest
from tests import conditions

from tableferry.fleet.checks.eligibility import find_obstacles
from tableferry.fleet.checks.facts import GivenFacts
from tableferry.fleet.copies.iceberg import list_metrics_modes
from tableferry.fleet.copies.iceberg_files.name_mapping import (
    leaf_ids,
    mapping_of,
    with_file_names,
    with_orc_positions,
)
from tableferry.fleet.hive_tables.hive_table import HiveColumn, HiveTable, iceberg_type, stored_types
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.spark.tables import TableName

NAME = TableName(("spark_catalog", "db", "t"))
STRING = {"name": "string", "collation": "UTF8_BINARY"}


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


def table(*columns: HiveColumn, by: tuple[str, ...] = (), **more: Any) -> HiveTable:
    facts = {"format": "parquet", **more}
    return HiveTable(NAME, Kind.HIVE, columns=columns, partition_columns=by, **facts)


def ineligibility(table: HiveTable, form: TargetFormat) -> PauseFinding | None:
    return next(find_obstacles(GivenFacts(table), form), None)


def struct(*fields: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    return kind("struct", fields=[{"name": name, "type": of} for name, of in fields])


@pytest.mark.parametrize(
    ("of", "path", "named"),
    [
        (kind("void"), "c", "void"),
        (struct(("a", kind("interval day to second"))), "c.a", "interval day to second"),
        (kind("array", element_type=kind("char", length=3)), "c.element", "char"),
        (kind("map", key_type=kind("variant"), value_type=STRING), "c.key", "variant"),
    ],
)
def test_refusal_of_unsupported_type_has_column_path(of: dict[str, Any], path: str, named: str) -> None:
    finding = ineligibility(table(HiveColumn("c", of)), TargetFormat.ICEBERG)
    assert finding is not None
    assert finding.reason is PauseReason.UNSUPPORTED_SCHEMA
    conditions.check(finding.refusal, "COLUMN_TYPE_NOT_IN_NEW_TABLE", table=NAME, column=path, type=named)
    to_delta = ineligibility(table(HiveColumn("c", of)), TargetFormat.DELTA)
    assert (to_delta is not None) == named.startswith(("void", "interval"))


def test_timestamp_partition_column_is_refused_only_for_iceberg() -> None:
    by_time = table(HiveColumn("at", kind("timestamp_ltz")), by=("AT",))
    assert ineligibility(by_time, TargetFormat.DELTA) is None
    finding = ineligibility(by_time, TargetFormat.ICEBERG)
    assert finding is not None
    assert finding.parameters["column"] == "at"


@pytest.mark.parametrize(
    ("name", "form", "refused"),
    [
        ("_metadata", TargetFormat.ICEBERG, True),
        ("_Metadata", TargetFormat.DELTA, True),
        ("_FILE", TargetFormat.ICEBERG, True),
        ("_partition", TargetFormat.ICEBERG, True),
        ("_last_updated_sequence_number", TargetFormat.ICEBERG, True),
        ("_pos", TargetFormat.DELTA, False),
        ("_change_type", TargetFormat.ICEBERG, False),
        ("metadata", TargetFormat.ICEBERG, False),
    ],
)
def test_reserved_column_name_is_refused(name: str, form: TargetFormat, refused: bool) -> None:
    for by in ((), (name,)):
        finding = ineligibility(table(HiveColumn(name, STRING), by=by), form)
        assert (finding is not None) is refused
        if finding is not None:
            assert finding.reason is PauseReason.UNSUPPORTED_SCHEMA
            conditions.check(finding.refusal, "COLUMN_NAME_RESERVED", table=NAME, column=name)
    assert ineligibility(table(HiveColumn("s", struct((name, STRING)))), form) is None


def test_hive_type_is_written_as_iceberg_type() -> None:
    nested = struct(
        ("a b", kind("decimal", precision=10, scale=2)),
        ("m", kind("map", key_type=kind("varchar", length=9), value_type=kind("tinyint"))),
        ("l", kind("array", element_type=kind("smallint"))),
    )
    nested["fields"][0]["comment"] = "it's"
    assert iceberg_type(nested) == (
        "struct<`a b`: decimal(10, 2) COMMENT 'it\\'s', `m`: map<string, int>, `l`: array<int>>"
    )
    with pytest.raises(ValueError, match=r"char\(3\)"):
        iceberg_type(kind("char", length=3))


MAPPING = [
    {"field-id": 1, "names": ["id"]},
    {"field-id": 2, "names": ["s"], "fields": [{"field-id": 4, "names": ["a"]}]},
    {"field-id": 3, "names": ["k"]},
]


def test_name_mapping_gets_file_names_at_every_depth() -> None:
    inner = {"type": "struct", "fields": [{"name": "A", "type": "integer"}]}
    file = {"fields": [{"name": "ID", "type": "integer"}, {"name": "S", "type": inner}]}
    assert list(leaf_ids(MAPPING)) == [1, 4, 3]
    spelled = with_file_names(MAPPING, file)
    assert spelled == [
        {"field-id": 1, "names": ["id", "ID"]},
        {"field-id": 2, "names": ["s", "S"], "fields": [{"field-id": 4, "names": ["a", "A"]}]},
        {"field-id": 3, "names": ["k"]},
    ]
    assert with_file_names(spelled, file) == spelled


def test_name_mapping_gets_file_names_in_lists_and_maps() -> None:
    fields = [{"field-id": 3, "names": ["a"]}]
    mapping = [
        {"field-id": 1, "names": ["l"], "fields": [{"field-id": 2, "names": ["element"], "fields": fields}]},
        {
            "field-id": 4,
            "names": ["m"],
            "fields": [
                {"field-id": 5, "names": ["key"]},
                {"field-id": 6, "names": ["value"], "fields": fields},
            ],
        },
    ]
    inner = {"type": "struct", "fields": [{"name": "A", "type": "integer"}]}
    file = {
        "fields": [
            {"name": "l", "type": {"type": "array", "elementType": inner}},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": inner}},
        ]
    }
    spelled = with_file_names(mapping, file)
    assert spelled[0]["fields"][0]["fields"][0]["names"] == ["a", "A"]
    assert spelled[1]["fields"][1]["fields"][0]["names"] == ["a", "A"]


def test_name_mapping_skips_ambiguous_file_names() -> None:
    file = {"fields": [{"name": "Id", "type": "integer"}, {"name": "ID", "type": "integer"}]}
    assert with_file_names(MAPPING, file) == MAPPING


def test_columns_of_old_orc_files_are_mapped_by_position() -> None:
    spelled = with_orc_positions([MAPPING[2], *MAPPING[:2]], ("K",))
    assert [struct["names"] for struct in spelled] == [["k"], ["id", "_col0"], ["s", "_col1"]]


def test_column_named_like_orc_position_is_not_mapped_by_position() -> None:
    mapping = [{"field-id": 1, "names": ["_col1"]}, {"field-id": 2, "names": ["b"]}]
    assert [field["names"] for field in with_orc_positions(mapping, ())] == [["_col1", "_col0"], ["b"]]


@pytest.mark.parametrize(("form", "texts"), [("parquet", {"name": "counts"}), ("orc", {})])
def test_add_files_stores_no_unreliable_bounds(form: str, texts: dict[str, str]) -> None:
    struct_column = HiveColumn(
        "s", struct(("d", kind("double")), ("l", kind("array", element_type=kind("float"))))
    )
    columns = (
        HiveColumn("F", kind("float")),
        struct_column,
        HiveColumn("name", STRING),
        HiveColumn("k", kind("double")),
    )
    assert dict(list_metrics_modes(table(*columns, by=("K",), format=form))) == {
        "F": "counts",
        "s.d": "counts",
        "k": "none",
        **texts,
    }


def test_name_mapping_contains_schema_names() -> None:
    inner = {"type": "struct", "fields": [{"id": 5, "name": "a", "type": "int"}]}
    pairs = {"type": "map", "key-id": 6, "key": "string", "value-id": 7, "value": inner}
    schema = {
        "fields": [
            {"id": 1, "name": "id", "type": "int"},
            {"id": 2, "name": "l", "type": {"type": "list", "element-id": 4, "element": "int"}},
            {"id": 3, "name": "m", "type": pairs},
        ]
    }
    assert mapping_of(schema) == [
        {"field-id": 1, "names": ["id"]},
        {"field-id": 2, "names": ["l"], "fields": [{"field-id": 4, "names": ["element"]}]},
        {
            "field-id": 3,
            "names": ["m"],
            "fields": [
                {"field-id": 6, "names": ["key"]},
                {
                    "field-id": 7,
                    "names": ["value"],
                    "fields": [{"field-id": 5, "names": ["a"]}],
                },
            ],
        },
    ]


def test_stored_types_include_nested_fields_and_elements() -> None:
    number = {"name": "decimal", "precision": 9, "scale": 2}
    deep = {"name": "struct", "fields": [{"name": "In", "type": number}, {"name": "s", "type": STRING}]}
    listed = {"name": "array", "element_type": number}
    pairs = {"name": "map", "key_type": STRING, "value_type": listed}
    columns = [HiveColumn("Price", number), HiveColumn("deep", deep), HiveColumn("some", pairs)]
    assert stored_types(columns) == {
        ("price",): number,
        ("deep", "in"): number,
        ("deep", "s"): STRING,
        ("some", "key"): STRING,
        ("some", "value", "element"): number,
    }
