"""The meaning of SOURCE: a folder, a table, a schema, or an invalid source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import conditions

from tableferry.convert.sources import Folder, Schema, Table, parse
from tableferry.errors import TableError
from tableferry.spark.tables import TableName


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a/b", "/a/b"),
        ("/a/b//", "/a/b"),
        ("/", "/"),
        ("/a b ", "/a b "),
        ("./a", "./a"),
        (".", "."),
        ("..", ".."),
        ("a/b", "a/b"),
        ("a/", "./a"),
        ("parquet.`a`", "./a"),
        ("a.b/c.d", "a.b/c.d"),
        ("/a/*", "/a/*"),
        ("~/x/", "/home/someone/x"),
        ("~", "/home/someone"),
        ("parquet.`/a/b`", "/a/b"),
        ("PARQUET.`/a/b/`", "/a/b"),
        ("parquet.`a``b`", "./a`b"),
        ("delta.`/a`", "/a"),
        ("parquet.`s3://bucket/a b/`", "s3://bucket/a b"),
        ("parquet.`file:///a`", "/a"),
        ("file:/a/b", "/a/b"),
        ("file:///a%20b/", "/a b"),
        ("FILE://localhost/a", "/a"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3a://bucket/x%20y/", "s3a://bucket/x%20y"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
        ("hdfs:///", "hdfs:///"),
        ("dbfs:/x/", "dbfs:/x"),
    ],
)
def test_source_with_path_syntax_is_a_path(text: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert parse(text) == Folder(path)


def test_existing_directory_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse("orders") == Table(TableName(("orders",)))
    (tmp_path / "orders").mkdir()
    assert parse("orders") == Folder("./orders")
    assert parse("`orders`") == Table(TableName(("orders",)))
    assert parse("s.orders") == Table(TableName(("s", "orders")))


def test_uri_characters_may_be_literal(tmp_path: Path) -> None:
    assert parse(f"{tmp_path.as_uri()}/a%20b") == Folder(f"{tmp_path}/a b")
    (tmp_path / "a%20b").mkdir()
    assert parse(f"{tmp_path.as_uri()}/a%20b") == Folder(f"{tmp_path}/a%20b")


def test_mounted_workspace_file_systems_are_local(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = {"/dbfs", "/Volumes"}
    monkeypatch.setattr("os.path.isdir", lambda path: path in there)
    assert parse("dbfs:/x/y/") == Folder("/dbfs/x/y")
    assert parse("dbfs:///x") == Folder("/dbfs/x")
    assert parse("dbfs:/Volumes/c/s/v") == Folder("/Volumes/c/s/v")


def test_local_and_remote_are_distinguished() -> None:
    local = {
        text: Folder(text).is_local for text in ("/a", "a", "./s3:/a", "s3://b/a", "dbfs:/a", "hdfs:///a")
    }
    assert local == {
        "/a": True,
        "a": True,
        "./s3:/a": True,
        "s3://b/a": False,
        "dbfs:/a": False,
        "hdfs:///a": False,
    }


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("orders", ("orders",)),
        ("sales.orders", ("sales", "orders")),
        ("main.sales.orders", ("main", "sales", "orders")),
        ("sales.`my orders`", ("sales", "my orders")),
        ("parquet.orders", ("parquet", "orders")),
        ("csv.`orders`", ("csv", "orders")),
    ],
)
def test_dotted_name_is_a_table(text: str, parts: tuple[str, ...]) -> None:
    assert parse(text) == Table(TableName(parts))


@pytest.mark.parametrize(
    ("text", "parts"),
    [("sales.*", ("sales",)), ("main.sales.*", ("main", "sales")), ("`my.sales`.*", ("my.sales",))],
)
def test_name_with_star_is_a_schema(text: str, parts: tuple[str, ...]) -> None:
    assert parse(text) == Schema(parts)
    assert str(Schema(parts)) == text


@pytest.mark.parametrize(
    ("text", "condition", "parameters"),
    [
        ("csv.`/x`", "NOT_PARQUET", {"provider": "a csv", "table": "csv.`/x`"}),
        ("Hudi.`s3://b/x`", "NOT_PARQUET", {"provider": "a hudi", "table": "Hudi.`s3://b/x`"}),
        ("", "SOURCE_MISSING", {"form": re.compile("^a path")}),
        ("  ", "SOURCE_MISSING", {}),
        ("parquet.`/a/b", "SOURCE_NOT_UNDERSTOOD", {"text": "parquet.`/a/b"}),
        ("parquet.'/a/b'", "SOURCE_NOT_UNDERSTOOD", {"text": "parquet.'/a/b'"}),
        ('parquet."/a/b"', "SOURCE_NOT_UNDERSTOOD", {"text": 'parquet."/a/b"'}),
        ("*", "SOURCE_MISSING", {"text": "*"}),
        ("a.b.c.*", "SCHEMA_NAME_INVALID", {"text": "a.b.c.*", "count": 3}),
        (
            "file://server/share",
            "FILE_OF_ANOTHER_MACHINE",
            {"uri": "file://server/share", "machine": "server"},
        ),
    ],
)
def test_invalid_source_is_refused(text: str, condition: str, parameters: dict[str, object]) -> None:
    with conditions.raises(condition, **parameters):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"), [("a.b.c.d", "'a.b.c.d' has 4 parts"), ("a b", "'a b' isn't a table name")]
)
def test_invalid_table_name_is_refused(text: str, message: str) -> None:
    with pytest.raises(TableError) as refused:
        parse(text)
    assert message in str(refused.value)


@given(st.text(st.sampled_from("ab.`/*:~ '\"%s3file-"), max_size=20))
@example("* ")
@example("a.* ")
def test_source_renders_as_it_was_given(text: str) -> None:
    try:
        source = parse(text)
    except TableError:
        return
    assert parse(str(source)) == source
