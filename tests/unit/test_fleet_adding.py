"""The names, patterns and files of `fleet add`, and the jobs that it adds."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import conditions
from tests.unit.fleet_jobs import job

from tableferry.errors import SpecError
from tableferry.fleet.jobs.job import OldName, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.operations.table_requests import (
    Pattern,
    TableRequest,
    expand_patterns,
    parse,
    possible_sources,
    read_table_list,
    with_target,
    without_migration_tables,
)
from tableferry.fleet.operations.table_search import query_tables
from tableferry.fleet.queue.records import NewJob
from tableferry.spark.tables import TableName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEMPLATE = NewJob(TableName(), TargetFormat.DELTA, 14, 7, ("all@tea.example",))


def name(text: str) -> TableName:
    return TableName.parse(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("sales.orders", name("hive.sales.orders")),
        (" Sales.Orders ", name("hive.sales.orders")),
        ("main.sales.orders", name("main.sales.orders")),
        ("main/sales/orders", name("main.sales.orders")),
        ("sales/orders", name("hive.sales.orders")),
        ("`sales`.`a.b*`", TableName(("hive", "sales", "a.b*"))),
        ("sales.*", Pattern("hive", "sales", "*")),
        ("main.s*.orders_?", Pattern("main", "s*", "orders_?")),
    ],
)
def test_names_and_patterns_are_parsed(text: str, meant: TableName | Pattern) -> None:
    assert parse(text, "hive") == meant


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("orders", "TABLE_NAME_WITHOUT_SCHEMA"),
        ("*", "TABLE_PATTERN_INVALID"),
        ("a.b.c.*", "TABLE_PATTERN_INVALID"),
        ("a..*", "TABLE_PATTERN_INVALID"),
        ("a.b.c.d", "TABLE_NAME_TOO_LONG"),
        ("", "TABLE_NAME_INVALID"),
        ("*.sales.orders", "TABLE_PATTERN_IN_CATALOG"),
    ],
)
def test_invalid_table_names_and_patterns_are_refused(text: str, condition: str) -> None:
    with conditions.raises(condition, text=text):
        parse(text, "hive")


def test_brackets_in_a_pattern_match_literally() -> None:
    assert Pattern("c", "s", "a[1]*").matches(TableName(("c", "s", "a[1]x")))
    assert not Pattern("c", "s", "a[1]*").matches(TableName(("c", "s", "a1")))


def test_file_with_a_name_in_each_line_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tables.txt"
    file.write_text("# the first wave\nsales.orders\n\nmain/sales/lines  # small\nlogs.*\n")
    assert [request.tables for request in read_table_list(file, TEMPLATE, "hive")] == [
        name("hive.sales.orders"),
        name("main.sales.lines"),
        Pattern("hive", "logs", "*"),
    ]


def test_csv_columns_override_defaults_of_each_job(tmp_path: Path) -> None:
    file = tmp_path / "tables.CSV"
    file.write_text(
        "table,owners,target_format,probation_gap_days\n"
        "sales.orders,a@tea.example; b@tea.example,Iceberg,30\n"
        '"sales.lines",,,\n'
        'sales.notes,"a@tea.example\nb@tea.example",,\n',
    )
    first, second, third = read_table_list(file, TEMPLATE, "hive")
    assert first.job == NewJob(
        TableName(), TargetFormat.ICEBERG, 14, 30, ("a@tea.example", "b@tea.example"), ()
    )
    assert second.job == TEMPLATE
    assert third.job.tbl_owners == first.job.tbl_owners


def test_every_invalid_line_of_a_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    file.write_text("table,initial_gap_days,target_format\norders,,\na.b,-1,\na.c,,orc\na.d,1,delta,4\n")
    with pytest.raises(SpecError) as caught:
        read_table_list(file, TEMPLATE, "hive")
    assert [(problem.path, problem.message.split(".")[0]) for problem in caught.value.problems] == [
        ("line 2", "[TABLE_NAME_WITHOUT_SCHEMA] 'orders' has no schema"),
        ("line 3", "initial_gap_days must be a number of days, at most 36500, but is '-1'"),
        ("line 4", "target_format must be iceberg or delta, but is 'orc'"),
        ("line 5", "has more values than columns"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name\na.b\n", "line 1: unknown column 'name': known are table, owners"),
        (b"owners\na\n", "line 1: the column 'table' is missing"),
        (b"table,table\na.b,a.c\n", "line 1: column 'table' is repeated: keep one"),
        (b'table,owners\na.b,x\na.c,"y\na.d,z\n', "line 3: isn't CSV .*: close each quote"),
        (b'table,owners\na.b,"x"y\n', "line 2: isn't CSV"),
        (b'"table\na.b\n', "line 1: isn't CSV"),
        (b"table,initial_gap_days\na.b,36501\n", "line 2: initial_gap_days must be .*at most 36500"),
        (b"table,initial_gap_days\na.b," + b"9" * 5000, "line 2: initial_gap_days must be .*at most 36500"),
    ],
)
def test_invalid_csv_file_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "tables.csv"
    file.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        read_table_list(file, TEMPLATE, "hive")


def test_unreadable_table_list_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    with conditions.raises("TABLE_LIST_NOT_READABLE", file=file, reason="no such file or directory"):
        read_table_list(file, TEMPLATE, "hive")
    file.write_bytes(b"\xff\xfe")
    with conditions.raises("TABLE_LIST_NOT_UTF8", file=file):
        read_table_list(file, TEMPLATE, "hive")


def test_each_table_gets_one_job_and_a_name_overrides_a_pattern() -> None:
    named = NewJob(TableName(), tbl_owners=("a@tea.example",))

    def find(pattern: Pattern) -> Sequence[TableName]:
        return [name("hive.sales.lines"), name("hive.sales.orders")]

    jobs = expand_patterns(
        [
            TableRequest(Pattern("hive", "sales", "*"), TEMPLATE),
            TableRequest(name("hive.sales.orders"), named),
            TableRequest(name("hive.sales.orders"), TEMPLATE),
        ],
        find,
    )
    assert {added.name: added.tbl_owners for added in jobs} == {
        name("hive.sales.orders"): ("a@tea.example",),
        name("hive.sales.lines"): ("all@tea.example",),
    }


def test_tables_created_by_a_migration_are_left_out() -> None:
    texts = ("orders", "orders_hive", "orders_iceberg", "orders_delta", "lines_hive", "orders_hive_archived")
    jobs = [NewJob(name(f"hive.sales.{text}")) for text in texts]
    known = [job("hive.sales.orders", target_format=TargetFormat.ICEBERG, state=State.WRITES_UNBLOCKED)]

    owners = possible_sources(jobs)
    left, out = without_migration_tables(jobs, known)

    assert {owner.table for owner in owners} == {"orders", "lines"}
    assert [owner.name.table for owner in left] == ["orders", "orders_delta", "lines_hive"]
    assert [owner.table for owner in out] == ["orders_hive", "orders_iceberg", "orders_hive_archived"]


@pytest.mark.parametrize(
    ("state", "begun_at", "expected"),
    [
        (State.UNDEFINED, None, ["orders_hive"]),
        (State.READY, None, ["orders_hive"]),
        (State.READY, NOW, []),
        (State.WRITES_BLOCKED, None, []),
        (State.HIVE_DROPPED, NOW, []),
        (State.ICEBERG_DROPPED, NOW, ["orders_hive"]),
    ],
)
def test_table_with_a_similar_name_is_added(
    state: State, begun_at: datetime | None, expected: list[str]
) -> None:
    asked = [NewJob(name("hive.sales.orders_hive"))]
    left, _ = without_migration_tables(asked, [job("hive.sales.orders", state=state, begun_at=begun_at)])
    assert [owner.name.table for owner in left] == expected


@pytest.mark.parametrize(
    ("written", "made_in", "old_name"),
    [
        ((None, None), (None, None), None),
        (("{catalog}", "{schema}"), (None, None), None),
        (("Spark_Catalog", "Sales"), (None, None), None),
        # An alias of the metastore.
        (("hive_metastore", "sales"), (None, None), None),
        (("hive_metastore", "lake"), ("spark_catalog", "lake"), OldName.TABLE),
        ((None, "{schema}_Lake"), ("spark_catalog", "sales_lake"), OldName.TABLE),
        (("main", None), ("main", "sales"), OldName.TABLE),
        (("main", "{catalog}_{schema}"), ("main", "spark_catalog_sales"), OldName.TABLE),
    ],
)
def test_schema_of_the_new_table_is_resolved(
    written: tuple[str | None, str | None],
    made_in: tuple[str | None, str | None],
    old_name: OldName | None,
) -> None:
    asked = NewJob(
        name("spark_catalog.sales.orders"),
        target_catalog=written[0],
        target_schema=written[1],
        old_name=OldName.TABLE,
    )
    made = with_target(asked, "ice")
    assert ((made.target_catalog, made.target_schema), made.old_name) == (made_in, old_name)
    assert Names.of(made).elsewhere == (made_in != (None, None))


def test_iceberg_alias_of_the_catalog_is_refused() -> None:
    asked = NewJob(name("spark_catalog.sales.orders"), target_catalog="Ice", target_schema="lake")
    with conditions.raises("TARGET_CATALOG_IS_ALIAS", table=asked.name, alias="ice", catalog="spark_catalog"):
        with_target(asked, "ice")


def test_hive_table_that_shares_files_with_a_delta_table_cannot_keep_its_name() -> None:
    asked = NewJob(
        name("spark_catalog.sales.orders"),
        TargetFormat.DELTA,
        target_schema="lake",
        old_name=OldName.TABLE,
    )
    with conditions.raises("DELTA_TABLE_KEEPS_OLD_NAME", table=asked.name):
        with_target(asked, "ice")
    # A rewritten table has separate files.
    assert with_target(replace(asked, rewrite=True), "ice").old_name is OldName.TABLE
    assert with_target(replace(asked, target_schema=None), "ice").old_name is None


def test_file_sets_target_catalog_and_schema(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    file.write_text(
        "table,target_catalog,target_schema,old_name\na.b,main,{schema}_lake,Table\nc.d,,,\n",
        encoding="utf-8",
    )
    template = replace(TEMPLATE, target_schema="lake", old_name=OldName.VIEW)
    places = [
        (request.job.target_catalog, request.job.target_schema, request.job.old_name)
        for request in read_table_list(file, template, "hive")
    ]
    assert places == [("main", "{schema}_lake", OldName.TABLE), (None, "lake", OldName.VIEW)]
    file.write_text("table,old_name\na.b,gone\n", encoding="utf-8")
    with pytest.raises(SpecError, match="old_name must be view or table, but is 'gone'"):
        read_table_list(file, template, "hive")


def test_file_permits_rewrites(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    file.write_text("table,rewrite\na.b,True\nc.d,\ne.f,false\n", encoding="utf-8")
    rewritten = read_table_list(file, replace(TEMPLATE, rewrite=True), "c")
    assert [request.job.rewrite for request in rewritten] == [True, True, False]
    file.write_text("table,rewrite\na.b,yes\n", encoding="utf-8")
    with pytest.raises(SpecError, match="rewrite must be true or false, but is 'yes'"):
        read_table_list(file, TEMPLATE, "c")


def test_byte_order_mark_of_a_pipe_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """PowerShell writes a byte order mark into a pipe."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfa.b\r\nc.d\r\n")))
    read = read_table_list(Path("-"), TEMPLATE, "hive")
    assert [request.tables for request in read] == [name("hive.a.b"), name("hive.c.d")]


def test_pipe_that_is_not_utf_8_is_reported_in_any_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    latin = io.TextIOWrapper(io.BytesIO(b"sales.\xe4\n"), "utf-8", "surrogateescape")
    monkeypatch.setattr(sys, "stdin", latin)
    with conditions.raises("TABLE_LIST_NOT_UTF8", file="-"):
        read_table_list(Path("-"), TEMPLATE, "hive")


def test_unknown_placeholder_in_a_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    file.write_text("table,target_catalog,target_schema\na.b,{catlog}_new,\nc.d,,{schema}_{table}\n")
    with pytest.raises(SpecError) as caught:
        read_table_list(file, TEMPLATE, "hive")
    assert [(problem.path, problem.message) for problem in caught.value.problems] == [
        (
            "line 2",
            "target_catalog accepts only the placeholders {catalog} and {schema}, but is '{catlog}_new'",
        ),
        (
            "line 3",
            "target_schema accepts only the placeholders {catalog} and {schema}, but is '{schema}_{table}'",
        ),
    ]


def test_contradictory_lines_of_a_table_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "tables.csv"
    file.write_text("table,wave\na.b,first\nc.d,first\nA.B,second\nc.d,first\n")
    with pytest.raises(SpecError, match=r"line 4: hive\.a\.b is in line 2 too, with other values: keep one"):
        read_table_list(file, TEMPLATE, "hive")


def test_padded_names_of_a_query_are_stripped() -> None:
    # A CHAR column pads names; MariaDB treats both as equal.
    frame = SimpleNamespace(columns=["a", "b", "c"], collect=lambda: [("Hive ", "sales  ", "orders  ")])
    spark: Any = SimpleNamespace(sql=lambda query: frame)
    assert query_tables(spark, "SELECT …") == [name("hive.sales.orders")]
    frame.collect = lambda: [("hive", "  ", "orders")]
    with conditions.raises("QUERY_ROW_INCOMPLETE", parts=("hive", "", "orders")):
        query_tables(spark, "SELECT …")
