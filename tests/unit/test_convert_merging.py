"""Merges of the schemas of many files."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.errors import Refused
from tableferry.formats.parquet.files import FileSchema
from tableferry.formats.parquet.schema_merge import Merged, Widening, merge, widens
from tableferry.spark import types
from tableferry.spark.types import Array, DataType, Decimal, Field, Map, Primitive, Struct


def schema(**columns: DataType) -> FileSchema:
    return FileSchema(Struct(tuple(Field(name, kind) for name, kind in columns.items())), ())


def merged(*schemas: FileSchema) -> Merged:
    return merge((schema, f"{number}.parquet") for number, schema in enumerate(schemas))


def refused(*schemas: FileSchema) -> Refused:
    with pytest.raises(Refused) as caught:
        merged(*schemas)
    return caught.value


def test_merged_columns_keep_order_of_first_occurrence() -> None:
    merged_schema = merged(schema(b=types.LONG, a=types.STRING), schema(c=types.DATE, a=types.STRING))
    assert merged_schema.columns == Struct(
        (Field("b", types.LONG), Field("a", types.STRING), Field("c", types.DATE))
    )
    assert merged_schema.widenings == ()


def test_merged_columns_are_nullable() -> None:
    inner = Struct((Field("x", types.LONG, nullable=False),))
    required = Struct(
        (
            Field("s", inner, nullable=False),
            Field("l", Array(inner, False), nullable=False),
            Field("m", Map(types.STRING, inner, False), nullable=False),
        )
    )
    loose = Struct((Field("x", types.LONG),))
    assert merged(FileSchema(required, ())).columns == Struct(
        (Field("s", loose), Field("l", Array(loose)), Field("m", Map(types.STRING, loose)))
    )


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (types.BYTE, types.SHORT),
        (types.SHORT, types.INTEGER),
        (types.INTEGER, types.LONG),
        (types.BYTE, types.LONG),
        (types.FLOAT, types.DOUBLE),
        (types.INTEGER, types.DOUBLE),
        (types.DATE, types.TIMESTAMP_NTZ),
        (types.INTEGER, Decimal(10, 0)),
        (types.BYTE, Decimal(12, 2)),
        (types.LONG, Decimal(20, 0)),
        (Decimal(5, 2), Decimal(10, 4)),
    ],
)
def test_types_widen_at_any_depth(narrow: Primitive, wide: Primitive) -> None:
    def nested(leaf: Primitive) -> FileSchema:
        inner = Struct((Field("x", leaf),))
        return schema(a=leaf, s=inner, l=Array(inner), m=Map(leaf, Array(leaf)))

    for first, other in permutations((narrow, wide)):
        merged_schema = merged(nested(first), nested(other))
        assert merged_schema.columns == nested(wide).columns
        file = "0.parquet" if first == narrow else "1.parquet"
        paths = (("a",), ("s", "x"), ("l", "element", "x"), ("m", "key"), ("m", "value", "element"))
        assert merged_schema.widenings == tuple(
            Widening(path, str(narrow), str(wide), file) for path in paths
        )
    assert widens(narrow, wide)
    assert not widens(wide, narrow)


@pytest.mark.parametrize(
    ("first", "other", "wide"),
    [
        (Decimal(10, 2), Decimal(10, 4), Decimal(12, 4)),
        (types.INTEGER, Decimal(5, 2), Decimal(12, 2)),
        (types.LONG, Decimal(5, 2), Decimal(22, 2)),
        (types.INTEGER, types.FLOAT, types.DOUBLE),
    ],
)
def test_two_types_may_widen_to_a_third(first: Primitive, other: Primitive, wide: Primitive) -> None:
    merged_schema = merged(schema(a=first), schema(a=other))
    assert merged_schema.columns == schema(a=wide).columns
    assert {widening.narrow for widening in merged_schema.widenings} == {str(first), str(other)}


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (types.LONG, types.STRING),
        (types.LONG, types.DOUBLE),
        (types.DATE, types.TIMESTAMP),
        (types.TIMESTAMP, types.TIMESTAMP_NTZ),
        (types.STRING, types.BINARY),
        (types.DOUBLE, Decimal(10, 2)),
        (Decimal(38, 0), Decimal(38, 1)),
        (types.LONG, Array(types.LONG)),
        (Struct((Field("x", types.LONG),)), types.VARIANT),
        (Array(types.LONG), Map(types.STRING, types.LONG)),
    ],
)
def test_conflicting_types_are_named_with_both_files(first: DataType, other: DataType) -> None:
    def nested(kind: DataType) -> FileSchema:
        return schema(a=Struct((Field("b", kind),)))

    for one, two in permutations((first, other)):
        conditions.check(
            refused(nested(one), nested(two)),
            "COLUMN_TYPES_CONFLICT",
            column="a.b",
            type=one,
            file="0.parquet",
            other_type=two,
            other="1.parquet",
        )


def test_conflict_names_a_file_of_the_named_type() -> None:
    conditions.check(
        refused(schema(a=Decimal(30, 0)), schema(a=Decimal(36, 6)), schema(a=Decimal(10, 10))),
        "COLUMN_TYPES_CONFLICT",
        column="a",
        type="decimal(30,0)",
        file="0.parquet",
        other_type="decimal(10,10)",
        other="2.parquet",
    )


def test_unsigned_numbers_do_not_widen_to_decimals() -> None:
    unsigned = FileSchema(schema(a=types.LONG).columns, (), frozenset({("a",)}))
    assert merged(unsigned, schema(a=types.INTEGER)).columns == schema(a=types.LONG).columns
    for schemas in permutations((unsigned, schema(a=Decimal(20, 0)))):
        conditions.check(refused(*schemas), "COLUMN_TYPES_CONFLICT_DECIMAL", column="a")
    stored = FileSchema(schema(a=Decimal(20, 0)).columns, (), frozenset({("a",)}))
    assert merged(stored, schema(a=Decimal(20, 0))).columns == schema(a=Decimal(20, 0)).columns
    for schemas in permutations((stored, schema(a=Decimal(22, 2)))):
        conditions.check(refused(*schemas), "COLUMN_TYPES_CONFLICT_DECIMAL", column="a")


def untyped(**columns: DataType) -> FileSchema:
    """Return the schema of a file with untyped null columns."""
    return FileSchema(
        schema(**columns).columns, (), untyped=frozenset({("a",), ("s", "x"), ("l", "element")})
    )


@pytest.mark.parametrize(
    "kind", [types.BYTE, types.SHORT, types.INTEGER, types.LONG, types.DOUBLE, types.DATE]
)
def test_untyped_nulls_get_the_type_of_other_files(kind: Primitive) -> None:
    def nested(leaf: Primitive) -> dict[str, DataType]:
        return {"a": leaf, "s": Struct((Field("x", leaf),)), "l": Array(leaf)}

    for schemas in permutations((untyped(**nested(types.INTEGER)), schema(**nested(kind)))):
        assert merged(*schemas) == Merged(schema(**nested(kind)).columns)


@pytest.mark.parametrize(
    "kind",
    [
        *(types.STRING, types.BINARY, types.BOOLEAN, types.TIMESTAMP, types.TIMESTAMP_NTZ),
        *(Decimal(5, 2), Decimal(10, 0), Array(types.INTEGER), Struct((Field("x", types.INTEGER),))),
    ],
)
def test_untyped_nulls_are_refused_for_types_that_spark_cannot_read(kind: DataType) -> None:
    for nulls, typed in permutations((0, 1)):
        schemas = [untyped(a=types.INTEGER), schema(a=kind)]
        conditions.check(
            refused(schemas[nulls], schemas[typed]),
            "NULLS_NOT_READABLE_AS_TYPE",
            column="a",
            file=f"{nulls}.parquet",
            type=kind,
            other=f"{typed}.parquet",
        )


def test_untyped_nulls_are_refused_in_any_order_of_widening() -> None:
    schemas = [untyped(a=types.INTEGER), schema(a=types.DATE), schema(a=types.TIMESTAMP_NTZ)]
    for order in permutations(schemas):
        conditions.check(refused(*order), "NULLS_NOT_READABLE_AS_TYPE", type="timestamp_ntz")
    with_float = merged(schema(a=types.FLOAT), untyped(a=types.INTEGER))
    assert with_float.columns == schema(a=types.DOUBLE).columns
    assert [str(widening) for widening in with_float.widenings] == ["`a` from float to double"]


def test_columns_untyped_in_every_file_are_named_with_a_file() -> None:
    nulls = untyped(a=types.INTEGER, s=Struct((Field("x", types.INTEGER),)))
    assert merged(schema(b=types.LONG), nulls, nulls).untyped == {
        ("a",): "1.parquet",
        ("s", "x"): "1.parquet",
    }
    assert merged(schema(a=types.LONG), untyped(a=types.INTEGER)).untyped == {}


def test_spellings_that_differ_only_in_case_are_refused_with_both_files() -> None:
    conditions.check(
        refused(schema(Id=types.LONG), schema(id=types.LONG)),
        "COLUMN_SPELLED_DIFFERENTLY",
        column="Id",
        file="0.parquet",
        other_column="id",
        other="1.parquet",
    )
    nested = [schema(l=Array(Struct((Field(name, types.LONG),)))) for name in ("x", "X")]
    conditions.check(
        refused(*nested), "COLUMN_SPELLED_DIFFERENTLY", column="l.element.x", other_column="l.element.X"
    )


def test_merge_keeps_first_comment_and_declared_lengths() -> None:
    def file(**metadata: str) -> FileSchema:
        return FileSchema(Struct((Field("a", types.STRING, metadata=metadata),)), ())

    assert merged(file(comment="one"), file(comment="two")).columns.fields[0].metadata == {"comment": "one"}
    assert merged(file(), file(comment="two")).columns.fields[0].metadata == {"comment": "two"}
    length = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}
    assert merged(file(**length), file(comment="x")).columns.fields[0].metadata == {"comment": "x", **length}


def test_merge_accepts_repeated_schemas() -> None:
    same = schema(a=types.LONG)
    assert merge((same, f"{number}.parquet") for number in range(1000)) == Merged(same.columns)
    assert merge(()) == Merged(Struct())


leaves: st.SearchStrategy[Primitive] = st.sampled_from(
    [
        *(types.BYTE, types.SHORT, types.INTEGER, types.LONG, types.FLOAT, types.DOUBLE),
        *(Decimal(5, 2), Decimal(10, 0), Decimal(20, 5), Decimal(38, 10)),
        *(types.DATE, types.TIMESTAMP_NTZ, types.TIMESTAMP, types.STRING),
    ]
)


@given(
    st.lists(leaves, min_size=1, max_size=5).flatmap(
        lambda kinds: st.tuples(st.just(kinds), st.permutations(kinds))
    )
)
def test_file_order_changes_only_column_order(
    orders: tuple[list[Primitive], list[Primitive]],
) -> None:
    def outcome(order: list[Primitive]) -> DataType | None:
        try:
            return merged(*(schema(a=kind) for kind in order)).columns
        except Refused:
            return None

    kinds, shuffled = orders
    first_outcome = outcome(kinds)
    assert first_outcome == outcome(shuffled)
    if isinstance(first_outcome, Struct):
        wide = first_outcome.fields[0].type
        assert isinstance(wide, types.Atomic | Decimal)
        assert all(widens(kind, wide) for kind in kinds)
