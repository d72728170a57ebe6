"""Verdicts from measures, without Spark's JVM."""

from __future__ import annotations

import json

import pytest
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from tableferry.errors import TableError
from tableferry.spark.tables import TableName
from tableferry.verify import Verdict, render
from tableferry.verify.comparing import Reference
from tableferry.verify.values import common_type
from tableferry.verify.verdict import (
    PARTITIONS_LISTED,
    PARTITIONS_SHOWN,
    ROWS_SHOWN,
    Aggregate,
    ColumnDifference,
    KeyFindings,
    RowDifference,
    SchemaDifferences,
    Surplus,
    ValueDifference,
    compare,
    pair_rows,
)


def compared(
    aggregates: dict[tuple[str | None, ...], tuple[Aggregate, Aggregate]],
    schema: SchemaDifferences | None = None,
    excluded: tuple[str, ...] = (),
    partition_columns: tuple[str, ...] = (),
) -> Verdict:
    return compare(
        aggregates,
        source_label="old",
        target_label="new",
        schema=schema or SchemaDifferences(),
        excluded=excluded,
        partition_columns=partition_columns,
    )


def kind(name: str) -> DataType:
    return StructType().add("column", name).fields[0].dataType


def test_equal_tallies_match_and_list_excluded_columns() -> None:
    same = Aggregate(1200, (5, -7))
    verdict = compared({(): (same, same)}, excluded=("loaded_at",))
    assert verdict.matches
    assert verdict.rows_match
    assert render(verdict).splitlines()[0] == (
        "old and new match: 1,200 rows, the same in every column but the excluded loaded_at."
    )
    assert verdict.source.hash == "0000000000000005fffffffffffffff9"


def test_aggregates_are_added_sum_by_sum() -> None:
    assert Aggregate(2, (3, 5)) + Aggregate(1, (1, 1)) == Aggregate(3, (4, 6))


def test_two_empty_tables_match() -> None:
    verdict = compared({})
    assert verdict.matches
    assert render(verdict).startswith("old and new match: 0 rows,")


def test_one_different_sum_breaks_the_match() -> None:
    for other in (Aggregate(2, (1, 3)), Aggregate(2, (2, 2)), Aggregate(3, (1, 2))):
        assert not compared({(): (Aggregate(2, (1, 2)), other)}).rows_match


def test_widened_type_matches_and_missing_column_does_not() -> None:
    same = Aggregate(1, (5, 5))
    widened = SchemaDifferences(types=(ColumnDifference("n", "int", "bigint", "bigint"),))
    verdict = compared({(): (same, same)}, widened)
    assert verdict.matches
    assert verdict.excludable == ()
    assert "; 1 column changed type and kept every value." in render(verdict)

    broken = SchemaDifferences(("a",), ("b", "c"), (ColumnDifference("d", "date", "timestamp", None),))
    verdict = compared({(): (same, same)}, broken)
    assert verdict.rows_match
    assert not verdict.matches
    assert verdict.excludable == ("a", "b", "c", "d")
    assert render(verdict).splitlines()[0] == (
        "old and new don't match: only old has a; only new has b and c; d can't be compared; every other "
        "column holds the same."
    )


def test_only_different_partitions_are_reported() -> None:
    first, second = Aggregate(1, (10, 11)), Aggregate(2, (20, 21))
    verdict = compared(
        {("b",): (second, first), ("a",): (first, first), (None,): (Aggregate(), first)},
        partition_columns=("day",),
    )
    assert (verdict.source.rows, verdict.target.rows) == (3, 3)
    assert verdict.source == first + second
    assert (verdict.partitions, verdict.differing_partitions) == (3, 2)
    assert [partition.values for partition in verdict.partition_differences] == [(None,), ("b",)]
    assert render(verdict).splitlines()[7:] == [
        "2 of 3 partitions differ:",
        "day   old  new  difference",
        "----  ---  ---  ----------",
        "NULL    0    1          +1",
        "b       2    1          -1",
    ]


def test_partitions_with_largest_differences_are_kept() -> None:
    aggregates: dict[tuple[str | None, ...], tuple[Aggregate, Aggregate]] = {
        (str(at),): (Aggregate(at, (at, at)), Aggregate()) for at in range(1, PARTITIONS_LISTED + 2)
    }
    verdict = compared(aggregates, partition_columns=("n",))
    assert verdict.differing_partitions == PARTITIONS_LISTED + 1
    assert len(verdict.partition_differences) == PARTITIONS_SHOWN
    assert min(partition.source.rows for partition in verdict.partition_differences) == PARTITIONS_LISTED - 18
    assert "10,001 of 10,001 partitions differ; 20 of them:" in render(verdict)


def test_rows_of_one_key_are_paired_by_similarity() -> None:
    rows = [
        Surplus(1, ("k",), 1, (1, 10, 100), ("k", "a", "x")),
        Surplus(1, ("k",), 2, (1, 20, 200), ("k", "b", "y")),
        Surplus(1, ("k",), -1, (1, 20, 300), ("k", "b", "z")),
        Surplus(1, ("k",), -1, (1, 10, 300), ("k", "a", "z")),
        Surplus(2, (None,), -1, (2, 0, 0), (None, None, None)),
    ]
    assert pair_rows(["id", "one", "two"], rows) == (
        RowDifference(("k",), "different", (ValueDifference("two", "x", "z"),)),
        RowDifference(("k",), "different", (ValueDifference("two", "y", "z"),)),
        RowDifference(("k",), "source-only"),
        RowDifference((None,), "target-only"),
    )


def test_many_copies_of_a_row_yield_only_the_shown_differences() -> None:
    differences = pair_rows(["id"], [Surplus(1, ("k",), 10**9, (1,), ("k",))])
    assert differences == (RowDifference(("k",), "source-only"),) * ROWS_SHOWN


def test_verdict_renders_as_json_and_text() -> None:
    rows = (
        RowDifference(("1", None), "different", (ValueDifference("note", None, ""),)),
        RowDifference(
            ("1", "NULL"), "different", (ValueDifference("note", "a" * 500 + "b", "a" * 500 + "c"),)
        ),
        RowDifference(("2", "x"), "source-only"),
    )
    verdict = Verdict(
        "old", "new", Aggregate(3), Aggregate(2), keys=KeyFindings(("id", "k"), 1, 0, 2, 0, 4, rows)
    )
    data = json.loads(json.dumps(verdict.to_dict()))
    assert data["keys"]["rows"][0] == {
        "key": {"id": "1", "k": None},
        "status": "different",
        "values": [{"column": "note", "source": None, "target": ""}],
    }
    assert data["source"] == {"label": "old", "rows": 3, "hash": "0" * 32}
    assert data["excludable"] == ["note"]
    assert render(verdict).splitlines()[6:] == [
        "",
        "By id and k, 3 keys differ: 1 only in old, 0 only in new, 2 with other rows.",
        "The keys aren't unique: new has 4 keys more than once; rows most alike stand side by side.",
        "id  k       column         old             new",
        "--  ------  -------------  --------------  --------------",
        "1   NULL    note           NULL            ''",
        "1   'NULL'  note           …aaaaaaaaaaaab  …aaaaaaaaaaaac",
        "2   x       (only in old)",
        "",
        "Columns that could be excluded: note",
    ]


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        ("integer", "long", "bigint"),
        ("byte", "short", "smallint"),
        ("decimal(10,2)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(10,2)", "long", "decimal(21,2)"),
        ("decimal(38,10)", "decimal(38,18)", None),
        ("float", "double", "double"),
        ("integer", "double", "double"),
        ("long", "double", None),
        ("decimal(15,2)", "double", "double"),
        ("decimal(16,2)", "double", None),
        ("decimal(5,2)", "float", None),
        ("char(3)", "string", "string"),
        ("string", "integer", None),
        ("string", "binary", None),
        ("date", "timestamp_ntz", "timestamp_ntz"),
        ("date", "timestamp", None),
        ("timestamp", "timestamp_ntz", None),
        ("interval day", "interval hour to second", "interval day to second"),
        ("void", "date", "date"),
        ("void", "void", "string"),
        ("variant", "variant", "variant"),
        ("time(6)", "time(6)", None),
    ],
)
def test_common_type_represents_both_types_exactly(left: str, right: str, common: str | None) -> None:
    for type_ in (common_type(kind(left), kind(right)), common_type(kind(right), kind(left))):
        assert (type_.simpleString() if type_ else None) == common


def test_common_type_of_nested_types_is_found_per_field() -> None:
    left = StructType().add("A", "integer").add("b", "string")
    right = StructType().add("B", "string").add("a", "long")
    common = common_type(left, right)
    assert common is not None
    assert common.simpleString() == "struct<A:bigint,b:string>"
    assert common_type(left, right.add("c", "integer")) is None


def test_struct_without_fields_has_common_type() -> None:
    for empty in (ArrayType(StructType()), MapType(StringType(), StructType())):
        assert common_type(empty, empty) == empty


@pytest.mark.parametrize(
    ("text", "name", "version"),
    [
        ("main.sales.orders", TableName(("main", "sales", "orders")), None),
        ("sales.orders@12", TableName(("sales", "orders")), 12),
        ("`a@b`@0", TableName(("a@b",)), 0),
        ("`a@5`", TableName(("a@5",)), None),
        ("/data/orders@3", TableName.at("/data/orders"), 3),
        ("s3://bucket/a@b/orders", TableName.at("s3://bucket/a@b/orders"), None),
        ("delta.`/data/orders`@7", TableName.at("/data/orders"), 7),
    ],
)
def test_table_references_are_parsed(text: str, name: TableName, version: int | None) -> None:
    assert Reference.parse(text) == Reference(name, version)


@pytest.mark.parametrize("text", ["orders@latest", "orders@", "a.b.c.d", "orders@-1"])
def test_invalid_table_reference_is_refused(text: str) -> None:
    with pytest.raises(TableError) as caught:
        Reference.parse(text)
    assert caught.value.condition in ("VERSION_INVALID", "TABLE_NAME_TOO_LONG")
