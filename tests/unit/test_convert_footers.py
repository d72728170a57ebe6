"""Schemas and statistics of footers, and the errors for invalid footers."""

from __future__ import annotations

import base64
import json
import os
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal as Number
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest
from tests.footers import read_footer

from tableferry.formats.parquet.directory_footers import read
from tableferry.formats.parquet.elements import Annotation, Element
from tableferry.formats.parquet.files import Bounds, DataFile, Footer, Leaf, Unreadable
from tableferry.formats.parquet.footers import SchemaCache
from tableferry.formats.parquet.schema import Illegal, interpret
from tableferry.spark import types
from tableferry.spark.types import Array, Decimal, Field, Map, Struct


def written(path: Path, table: pa.Table, **options: Any) -> Footer:
    pq.write_table(table, path, **options)
    footer = read_footer(str(path))
    assert isinstance(footer, Footer), footer
    return footer


def refused(path: Path) -> str:
    footer = read_footer(str(path))
    assert isinstance(footer, Unreadable), footer
    return footer.reason


def types_of(footer: Footer) -> dict[str, types.DataType]:
    return {field.name: field.type for field in footer.schema.columns.fields}


def test_footer_types_equal_spark_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i8": pa.array([1], pa.int8()),
            "i16": pa.array([1], pa.int16()),
            "i32": pa.array([1], pa.int32()),
            "i64": pa.array([1], pa.int64()),
            "u8": pa.array([1], pa.uint8()),
            "u16": pa.array([1], pa.uint16()),
            "u32": pa.array([1], pa.uint32()),
            "u64": pa.array([1], pa.uint64()),
            "f": pa.array([1], pa.float32()),
            "d": pa.array([1], pa.float64()),
            "b": pa.array([True]),
            "s": pa.array(["x"]),
            "ls": pa.array(["x"], pa.large_string()),
            "bin": pa.array([b"x"]),
            "fixed": pa.array([b"x"], pa.binary(1)),
            "date": pa.array([0], pa.date32()),
            "dec": pa.array([Number("1.5")], pa.decimal128(10, 2)),
            "ms": pa.array([0], pa.timestamp("ms", "UTC")),
            "us": pa.array([0], pa.timestamp("us", "Europe/Paris")),
            "ntz": pa.array([0], pa.timestamp("us")),
            "nothing": pa.nulls(1),
            "enum": pa.array(["x"]).dictionary_encode(),
            "took": pa.array([1], pa.duration("us")),
            "list": pa.array([[1]], pa.list_(pa.int16())),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "struct": pa.array([{"a": {"b": 1}}]),
        }
    )
    assert types_of(written(tmp_path / "a.parquet", table)) == {
        "i8": types.BYTE,
        "i16": types.SHORT,
        "i32": types.INTEGER,
        "i64": types.LONG,
        "u8": types.SHORT,
        "u16": types.INTEGER,
        "u32": types.LONG,
        "u64": Decimal(20, 0),
        "f": types.FLOAT,
        "d": types.DOUBLE,
        "b": types.BOOLEAN,
        "s": types.STRING,
        "ls": types.STRING,
        "bin": types.BINARY,
        "fixed": types.BINARY,
        "date": types.DATE,
        "dec": Decimal(10, 2),
        "ms": types.TIMESTAMP,
        "us": types.TIMESTAMP,
        "ntz": types.TIMESTAMP_NTZ,
        "nothing": types.INTEGER,
        "enum": types.STRING,
        "took": types.LONG,
        "list": Array(types.SHORT),
        "map": Map(types.STRING, types.LONG),
        "struct": Struct((Field("a", Struct((Field("b", types.LONG),))),)),
    }


def test_int96_is_timestamp_without_bounds(tmp_path: Path) -> None:
    table = pa.table({"at": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None])})
    footer = written(tmp_path / "a.parquet", table, use_deprecated_int96_timestamps=True)
    assert types_of(footer) == {"at": types.TIMESTAMP}
    assert [bound[:2] for bound in footer.bounds] == [(None, None)]


def test_spark_schema_in_footer_is_used_where_it_fits(tmp_path: Path) -> None:
    spark_schema = Struct(
        (
            Field("id", types.LONG, metadata={"comment": "the key", "delta.columnMapping.id": 1}),
            Field("code", types.STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
            Field("v", types.VARIANT),
        )
    )
    variant = pa.struct([pa.field("value", pa.binary(), False), pa.field("metadata", pa.binary(), False)])
    columns = {
        "id": pa.array([1]),
        "code": pa.array(["x"]),
        "v": pa.array([{"value": b"\0", "metadata": b"\1\0\0"}, None], variant)[:1],
    }
    key = {"org.apache.spark.sql.parquet.row.metadata": types.to_json(spark_schema)}
    fitting = written(tmp_path / "a.parquet", pa.table(columns).replace_schema_metadata(key))
    assert fitting.schema.columns == Struct(
        (
            Field("id", types.LONG, metadata={"comment": "the key"}),
            Field("code", types.STRING),
            Field("v", types.VARIANT),
        )
    )
    # Its metadata have the null count of the Variants, and no statistics of their fields.
    assert fitting.schema.leaves == (
        Leaf(("id",), types.LONG),
        Leaf(("code",), types.STRING),
    )

    more = pa.table({**columns, "more": pa.array([1.5])}).replace_schema_metadata(key)
    other = written(tmp_path / "b.parquet", more)
    assert [field.name for field in other.schema.columns.fields] == ["id", "code", "v", "more"]
    assert [field.metadata for field in other.schema.columns.fields] == [{}, {}, {}, {}]

    broken = pa.table(columns).replace_schema_metadata({next(iter(key)): "{"})
    assert types_of(written(tmp_path / "c.parquet", broken))["id"] == types.LONG


def test_type_that_only_the_spark_schema_has_is_refused(tmp_path: Path) -> None:
    schema = {"type": "struct", "fields": [{"name": "took", "type": "interval day to second"}]}
    spark_schema = json.dumps(schema, separators=(",", ":"))
    table = pa.table({"took": pa.array([1])})
    pq.write_table(
        table.replace_schema_metadata({"org.apache.spark.sql.parquet.row.metadata": spark_schema}),
        tmp_path / "a.parquet",
    )
    assert refused(tmp_path / "a.parquet").startswith("has a column of type interval day to second, which")


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (pa.array([0], pa.timestamp("ns")), "INT64 (TIMESTAMP(NANOS,false))"),
        (pa.array([0], pa.time64("us")), "INT64 (TIME(MICROS,false))"),
        (pa.array([0], pa.time32("ms")), "INT32 (TIME(MILLIS,false))"),
        (pa.array([1], pa.float16()), "FIXED_LEN_BYTE_ARRAY (FLOAT16)"),
        (pa.array([Number(1)], pa.decimal256(40, 0)), "FIXED_LEN_BYTE_ARRAY (DECIMAL(40,0))"),
        (pa.array([b"\0" * 16], pa.uuid()), "FIXED_LEN_BYTE_ARRAY (UUID)"),
    ],
)
def test_types_unreadable_for_spark_are_refused(tmp_path: Path, column: pa.Array, name: str) -> None:
    nested = pa.StructArray.from_arrays([column], ["inner"])
    pq.write_table(pa.table({"outer": nested}), tmp_path / "a.parquet", store_schema=True)
    assert refused(tmp_path / "a.parquet").startswith(
        f"has column `outer.inner` of type {name}, which Spark can't read: write it again"
    )


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (pa.schema([("a", pa.int32()), ("A", pa.int32())]), "`a` and column `A`"),
        (pa.schema([("s", pa.struct([("x", pa.int32()), ("X", pa.int32())]))]), "`s.x` and column `s.X`"),
        (
            pa.schema([("l", pa.list_(pa.struct([("x", pa.int32()), ("X", pa.int32())])))]),
            "`l.element.x` and column `l.element.X`",
        ),
    ],
)
def test_columns_that_differ_only_in_case_are_refused(tmp_path: Path, kind: pa.Schema, names: str) -> None:
    pq.write_table(kind.empty_table(), tmp_path / "a.parquet")
    assert refused(tmp_path / "a.parquet").startswith(
        f"has both column {names}, which Spark can't tell apart"
    )


def test_bounds_cover_all_row_groups(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": pa.array([3, None, 1, 2, None, None, 9]),
            "s": pa.array(["c", "a", "b", None, None, None, "z"]),
            "none": pa.array([None] * 7, pa.int64()),
        }
    )
    footer = written(tmp_path / "a.parquet", table, row_group_size=2)
    assert footer.rows == 7
    assert footer.bounds == (
        Bounds("1", "9", 3),
        Bounds('"a"', '"z"', 3),
        Bounds(None, None, 7),
    )


def test_column_without_statistics_has_no_bounds(tmp_path: Path) -> None:
    table = pa.table({"a": [1, 2, 3], "b": [1, 2, 3]})
    footer = written(tmp_path / "a.parquet", table, write_statistics=["a"], row_group_size=2)
    assert footer.bounds == (Bounds("1", "3", 0), Bounds(None, None, None))


def test_field_null_count_includes_null_structs(tmp_path: Path) -> None:
    table = pa.table({"s": pa.array([{"x": 1}, None, {"x": None}]), "l": pa.array([[1], None, []])})
    footer = written(tmp_path / "a.parquet", table)
    assert footer.schema.leaves == (Leaf(("s", "x"), types.LONG),)
    assert footer.bounds == (Bounds("1", "1", 2),)


def test_empty_file_is_read(tmp_path: Path) -> None:
    footer = written(tmp_path / "a.parquet", pa.schema([("a", pa.int64())]).empty_table())
    assert footer == Footer.of(0, footer.schema, (Bounds(None, None, 0),))


def test_column_names_may_contain_any_character(tmp_path: Path) -> None:
    names = ["a.b", "ü", " ", "x" * 200, "`", "a"]
    footer = written(tmp_path / "a.parquet", pa.table({name: [1] for name in names}))
    assert [leaf.path for leaf in footer.schema.leaves] == [(name,) for name in names]
    assert footer.bounds == (Bounds("1", "1", 0),) * len(names)


def test_footer_with_more_columns_than_a_short_thrift_list_is_read(tmp_path: Path) -> None:
    footer = written(tmp_path / "a.parquet", pa.table({f"c{i}": [str(i)] for i in range(300)}))
    assert footer.bounds == tuple(Bounds(f'"{i}"', f'"{i}"', 0) for i in range(300))


def test_footer_longer_than_first_read_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    footer = written(path, pa.table({"a": range(3000)}), row_group_size=1)
    assert int.from_bytes(path.read_bytes()[-8:-4], "little") > 1 << 16
    assert (footer.rows, footer.bounds) == (3000, (Bounds("0", "2999", 0),))


def test_files_of_all_writers_share_one_schema_object(tmp_path: Path) -> None:
    cache = SchemaCache()
    for number in range(3):
        table = pa.table({"a": [number]})
        if number == 2:
            table = table.replace_schema_metadata({"who": "another"})
        pq.write_table(table, tmp_path / f"{number}.parquet")
    footers = [read_footer(str(tmp_path / f"{number}.parquet"), cache=cache) for number in range(3)]
    schemas = {id(footer.schema) for footer in footers if isinstance(footer, Footer)}
    assert len(schemas) == 1


def test_footers_can_be_pickled(tmp_path: Path) -> None:
    footers = [written(tmp_path / f"{n}.parquet", pa.table({"a": [n], "s": [{"x": "y"}]})) for n in range(2)]
    assert pickle.loads(pickle.dumps(footers)) == footers


def test_without_statistics_footer_has_rows_and_columns(tmp_path: Path) -> None:
    footer = written(tmp_path / "a.parquet", pa.table({"a": [1, 2]}))
    assert read_footer(str(tmp_path / "a.parquet"), cache=SchemaCache(0)) == Footer.of(2, footer.schema, ())


def test_footer_of_another_file_is_refused(tmp_path: Path) -> None:
    """For example, a copy of Dask's ``_metadata``, after any number of row groups."""
    cache, data = SchemaCache(), tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(50), "b": ["x"] * 50}), data, row_group_size=2)
    assert isinstance(read_footer(str(data), cache=cache), Footer)
    footer = pq.read_metadata(data)
    footer.set_file_path("a.parquet")
    footer.write_metadata_file(tmp_path / "b.parquet")

    found = read_footer(str(tmp_path / "b.parquet"), cache=cache)

    assert isinstance(found, Unreadable)
    assert "a column whose values are in another file" in found.reason


@pytest.mark.parametrize("lost", [1, 100])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}], ids=["dictionary", "plain"])
def test_file_that_lost_bytes_before_its_footer_is_refused(
    tmp_path: Path, lost: int, options: dict[str, Any]
) -> None:
    path = tmp_path / "a.parquet"
    written(path, pa.table({"a": range(1000), "b": ["x"] * 1000}), row_group_size=300, **options)
    whole = path.read_bytes()
    path.write_bytes(whole[:200] + whole[200 + lost :])
    assert refused(path).startswith("has a broken footer (it names values beyond its own beginning")


@pytest.mark.parametrize("index", [True, False])
def test_file_with_bytes_between_chunks_and_footer_is_read(tmp_path: Path, index: bool) -> None:
    """These bytes may be indexes, bloom filters or padding."""
    path = tmp_path / "a.parquet"
    footer = written(path, pa.table({"a": [1, 2]}), write_page_index=index)
    whole = path.read_bytes()
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    path.write_bytes(whole[:start] + b"\0" * 60 + whole[start:])
    assert read_footer(str(path)) == footer


def test_files_that_are_not_parquet_are_distinguished(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(100)}), path)
    whole = path.read_bytes()

    def reason(data: bytes) -> str:
        path.write_bytes(data)
        return refused(path)

    assert reason(b"").startswith("is empty (0 bytes)")
    assert reason(b"x").startswith("is not a Parquet file")
    assert reason(b"id,name\n1,a\n").startswith("is not a Parquet file")
    assert reason(whole[:-1]).startswith("is truncated")
    assert reason(whole[:20]).startswith("is truncated")
    assert reason(b"PAR1").startswith("is truncated")
    assert reason(b"PAR1" + b"\xff\xff\xff\x7f" + b"PAR1").startswith("is truncated")
    assert reason(b"PAR1" + b"\0\0\0\0" + b"PAR1").startswith("has a broken footer")
    assert reason(b"\0" + whole[1:]).startswith("has lost its first bytes")
    assert reason(b"\0" * 70_000 + whole).startswith("has lost its first bytes")
    assert reason(whole[:-4] + b"PARE").startswith("has an encrypted footer")
    path.unlink()
    assert refused(path).startswith("has vanished since it was listed")
    path.mkdir()
    assert refused(path).startswith("can't be read (Is a directory)")


def test_file_changed_after_listing_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    assert isinstance(read_footer(str(tmp_path / "a.parquet"), size=size), Footer)
    footer = read_footer(str(tmp_path / "a.parquet"), size=size - 1)
    assert isinstance(footer, Unreadable)
    assert footer.reason.startswith(f"has changed since it was listed, from {size - 1} to {size} bytes")


class Keys(pe.KmsClient):  # type: ignore[misc]
    """A key store without protection."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return base64.b64encode(key_bytes)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return base64.b64decode(wrapped_key)


@pytest.mark.parametrize(
    ("plaintext", "which", "why"),
    [
        (True, {"column_keys": {"k": ["a"]}}, "has encrypted columns"),
        (False, {"column_keys": {"k": ["a"]}}, "has an encrypted footer"),
        (False, {"uniform_encryption": True}, "has an encrypted footer"),
    ],
)
def test_encrypted_files_are_refused(tmp_path: Path, plaintext: bool, which: Any, why: str) -> None:
    connection = pe.KmsConnectionConfig(custom_kms_conf={})
    configuration = pe.EncryptionConfiguration(footer_key="f", plaintext_footer=plaintext, **which)
    factory = pe.CryptoFactory(lambda _: Keys())
    properties = factory.file_encryption_properties(connection, configuration)
    table = pa.table({"a": [1], "b": ["x"]})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    assert refused(tmp_path / "a.parquet") == f"{why}: write it again without encryption"


def listed(root: Path) -> list[DataFile]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return sorted(DataFile(path.relative_to(root).as_posix(), path.stat().st_size, 0) for path in paths)


def test_footers_are_returned_in_listing_order(tmp_path: Path) -> None:
    for number in range(70):
        folder = tmp_path / f"p={number % 7}"
        folder.mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [number]}), folder / f"{number}.parquet")
    files = listed(tmp_path)
    (tmp_path / files[3].path).write_bytes(b"")
    os.truncate(tmp_path / files[40].path, 10)
    results = list(read(tmp_path, files))
    assert [number for number, result in enumerate(results) if isinstance(result, Unreadable)] == [3, 40]
    for file, result in zip(files, results, strict=True):
        if isinstance(result, Footer):
            assert result.bounds[0].lowest == Path(file.path).stem


def test_unreadable_shredded_variant_names_its_column() -> None:
    nanos = Element("typed_value", "optional", Annotation("TIMESTAMP", unit="NANOS"), "INT64")
    binary = Element("metadata", "required", None, "BINARY")
    variant = Element("v", "optional", Annotation("VARIANT", version=1), children=(binary, nanos))
    outer = Element("s", "optional", children=(variant,))
    with pytest.raises(Illegal, match=r"has column `s\.v\.typed_value` of type INT64"):
        interpret(Element("schema", "required", children=(outer,)))


def test_legacy_array_layouts_are_recognised() -> None:
    number = Element("array", "repeated", physical="INT32")
    modern = Element("list", "repeated", children=(Element("element", "optional", physical="INT32"),))
    pair = Element("bag", "repeated", children=(replace(number, repetition="optional"), modern.children[0]))
    fields = (
        Element("old", "optional", Annotation("LIST"), children=(number,)),
        Element("new", "optional", Annotation("LIST"), children=(modern,)),
        Element("pairs", "optional", Annotation("LIST"), children=(pair,)),
        replace(number, name="bare"),
    )
    struct = Element("deep", "optional", children=fields[:2])
    found = interpret(Element("schema", "required", children=(*fields, struct)))
    assert found.two_level == (("old",), ("pairs",), ("bare",), ("deep", "old"))
