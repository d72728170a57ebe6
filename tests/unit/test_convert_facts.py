"""Packed bounds and schemas equal the unpacked ones."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.footers import read_footer

from tableferry.convert.catalog.shares import schema_from_text, schema_to_text
from tableferry.formats.parquet.files import Bounds, FileSchema, Footer, Leaf
from tableferry.spark import types
from tableferry.spark.types import Array, Decimal, Field, Map, Struct

# JSON text contains no line ends.
texts = st.none() | st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(st.builds(Bounds, texts, texts, st.none() | st.integers(min_value=0)), max_size=5))
def test_packed_bounds_are_restored(bounds: list[Bounds]) -> None:
    assert Footer.of(1, FileSchema(Struct(), ()), bounds).bounds == tuple(bounds)


def test_packed_bounds_keep_any_string(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"s": ["\n", "a\r\nb\x1f\x7f\u2028", '"\\']}), path)
    footer = read_footer(str(path))
    assert isinstance(footer, Footer)
    assert footer.bounds == (Bounds('"\\n"', '"a\\r\\nb\\u001f\x7f\u2028"', 0),)


def test_packed_schema_is_restored() -> None:
    inner = Struct((Field("x", Decimal(38, 18)), Field("y", types.TIMESTAMP_NTZ, nullable=False)))
    schema = FileSchema(
        Struct(
            (
                Field("a", types.LONG, nullable=False, metadata={"comment": "ä \n"}),
                Field("b.c", inner),
                Field("list", Array(Map(types.STRING, inner, False), False)),
            )
        ),
        (Leaf(("a",), types.LONG), Leaf(("b.c", "x"), Decimal(38, 18))),
        frozenset({("a",), ("list", "element", "key")}),
    )
    assert schema_from_text(schema_to_text(schema)) == schema
    assert schema_to_text(schema_from_text(schema_to_text(schema))) == schema_to_text(schema)
