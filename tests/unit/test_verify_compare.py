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


def test_equal_tallies_match_and_say_what_was_left_out() -> None:
    same = Aggregate(1200, (5, -7))
    verdict = compared({(): (same, same)}, excluded=("loaded_at",))
    assert verdict.matches
    assert verdict.rows_match
    assert render(verdict).splitlines()[0] == (
        "old and new match: 1,200 rows, the same in every column but the excluded loaded_at."
    )
    assert verdict.source.hash == "0000000000000005fffffffffffffff9"


def test_groups_of_rows_are_put_together_by_adding_both_sums() -> None:
    assert Aggregate(2, (3, 5)) + Aggregate(1, (1, 1)) == Aggregate(3, (4, 6))


def test_two_empty_tables_match() -> None:
    verdict = compared({})
    assert verdict.matches
    assert render(verdict).startswith("old and new match: 0 rows,")


def test_either_sum_alone_breaks_the_match() -> None:
    for other in (Aggregate(2, (1, 3)), Aggregate(2, (2, 2)), Aggregate(3, (1, 2))):
        assert not compared({(): (Aggregate(2, (1, 2)), other)}).rows_match


def test_a_widened_type_is_reported_and_matches_while_a_missing_column_does_not() -> None:
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


def test_partitions_roll_up_and_only_those_that_differ_are_reported() -> None:
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


def test_of_very_many_partitions_those_furthest_apart_are_kept() -> None:
    aggregates: dict[tuple[str | None, ...], tuple[Aggregate, Aggregate]] = {
        (str(at),): (Aggregate(at, (at, at)), Aggregate()) for at in range(1, PARTITIONS_LISTED + 2)
    }
    verdict = compared(aggregates, partition_columns=("n",))
    assert verdict.differing_partitions == PARTITIONS_LISTED + 1
    assert len(verdict.partition_differences) == PARTITIONS_SHOWN
    assert min(partition.source.rows for partition in verdict.partition_differences) == PARTITIONS_LISTED - 18
    assert "10,001 of 10,001 partitions differ; 20 of them:" in render(verdict)


def test_rows_of_one_key_are_paired_by_likeness() -> None:
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


def test_a_row_with_a_million_copies_takes_no_more_room_than_is_shown() -> None:
    differences = pair_rows(["id"], [Surplus(1, ("k",), 10**9, (1,), ("k",))])
    assert differences == (RowDifference(("k",), "source-only"),) * ROWS_SHOWN


def test_the_whole_verdict_is_json_and_text() -> None:
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
def test_the_type_that_holds_both_exactly(left: str, right: str, common: str | None) -> None:
    for type_ in (common_type(kind(left), kind(right)), common_type(kind(right), kind(left))):
        assert (type_.simpleString() if type_ else None) == common


def test_nested_types_meet_field_by_field() -> None:
    left = StructType().add("A", "integer").add("b", "string")
    right = StructType().add("B", "string").add("a", "long")
    common = common_type(left, right)
    assert common is not None
    assert common.simpleString() == "struct<A:bigint,b:string>"
    assert common_type(left, right.add("c", "integer")) is None


def test_a_struct_may_have_no_fields() -> None:
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
def test_references(text: str, name: TableName, version: int | None) -> None:
    assert Reference.parse(text) == Reference(name, version)


@pytest.mark.parametrize("text", ["orders@latest", "orders@", "a.b.c.d", "orders@-1"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(TableError) as caught:
        Reference.parse(text)
    assert caught.value.condition in ("VERSION_INVALID", "TABLE_NAME_TOO_LONG")
