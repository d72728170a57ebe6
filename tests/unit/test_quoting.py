"""Names with hyphens, dots and backticks reach Spark in quotes, in every statement."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tableferry.access import tags
from tableferry.convert.catalog import native_engine, partitions
from tableferry.fleet.copies import copy_removal, iceberg
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.operations import table_search
from tableferry.fleet.operations.table_requests import Pattern
from tableferry.fleet.warehouse import job_tables, table_descriptions, table_renames, target_versions, views
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.delta import commits
from tableferry.formats.hive.catalog_tables import list_tables
from tableferry.formats.hive.sql import pattern
from tableferry.pipelines.state import lease
from tableferry.spark import catalog, session
from tableferry.spark.quoting import quote, unquote
from tableferry.spark.tables import TableFacts, TableName
from tableferry.verify.comparing import Reference

ROOT = Path(__file__).parents[2]
ODD = TableName(("my-cat", "my-schema", "a`b.c"))
OTHER = TableName(("my-cat", "my-schema", "o-ther"))


@pytest.mark.parametrize("name", ["plain", "my-cat", "a`b", "``", "a.b", "`"])
def test_quoted_name_can_be_parsed(name: str) -> None:
    assert unquote(quote(name)) == name
    table = TableName(("c", name))
    assert TableName.parse(table.sql).parts == TableName.parse(table.plain_sql).parts == ("c", name)
    # Spark accepts other names only in backticks.
    assert table.plain_sql == ("c.plain" if name == "plain" else f"c.{quote(name)}")


def test_unquoted_name_is_unchanged() -> None:
    assert [unquote(text) for text in ("my-schema", "`", "")] == ["my-schema", "`", ""]


def test_backtick_in_a_path_is_doubled() -> None:
    table = TableName.at("/lake/it`s/t")
    assert table.sql == "delta.`/lake/it``s/t`"
    assert Reference.parse(table.sql) == Reference(table)
    assert Reference.parse(f"{table.sql}@7") == Reference(table, 7)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["orders", "my-table"], "'orders|my.table'"),
        (["a$b", "a(b", "a|b"], "'a.b|a.b|a.b'"),
        (["*"], "'*'"),
        (["it's", "a\\b"], "'it.s|a.b'"),
    ],
)
def test_pattern_of_names_matches_the_names(names: list[str], written: str) -> None:
    assert pattern(names) == written


class Asked:
    """A session that records statements and returns no rows."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.catalog = SimpleNamespace(
            tableExists=self._named, databaseExists=self._named, setCurrentDatabase=self._named,
            setCurrentCatalog=lambda name: None,
        )  # fmt: skip

    def sql(self, statement: str) -> Any:
        self.statements.append(statement)
        return SimpleNamespace(collect=list, where=lambda _: self, select=lambda *_: self)

    def table(self, name: str) -> Any:
        self._named(name)
        return SimpleNamespace(schema=[], where=lambda _: self)

    def collect(self) -> list[Any]:
        return []

    def _named(self, name: str) -> bool:
        self.statements.append(f"TABLE {name}")
        return True


def in_warehouse(do: Callable[[Warehouse], object]) -> Callable[[Any], object]:
    no_access: Any = None
    return lambda spark: do(Warehouse(spark, no_access, iceberg_catalog="my-cat"))


ASKED: dict[str, Callable[[Any], object]] = {
    "use": lambda spark: session.use(spark, "my-cat", "my-schema"),
    "describe": lambda spark: catalog.described(spark, ODD),
    "facts": lambda spark: catalog.facts(spark, ODD),
    "earliest": lambda spark: catalog.earliest_version(spark, TableFacts(ODD, "id", 1)),
    "exists": lambda spark: catalog.exists(spark, ODD),
    "schema exists": lambda spark: catalog.schema_exists(spark, ODD),
    "batches": lambda spark: commits.newest_batches(spark, TableFacts(ODD, "id", 1), ["query"]),
    "leases": lambda spark: lease.read_lease(spark, ODD),
    "tables": lambda spark: list_tables(spark, ODD.parts[:2], ["a`b.c"]),
    "partitions": lambda spark: partitions.register_partitions(spark, ODD),
    "log": lambda spark: native_engine.has_log(spark, "/lake/my-cat`s"),
    "matching": lambda spark: table_search.find_tables(spark, Pattern("my-cat", "*", "*")),
    "kinds": in_warehouse(lambda warehouse: job_tables.kinds(warehouse, (ODD, OTHER))),
    "properties": lambda spark: table_descriptions.properties(spark, ODD),
    "rename": in_warehouse(lambda warehouse: table_renames.rename_table(warehouse, ODD, OTHER)),
    "snapshot": in_warehouse(
        lambda warehouse: target_versions.current_version(warehouse, ODD, TargetFormat.ICEBERG)
    ),
    "version": in_warehouse(
        lambda warehouse: target_versions.current_version(warehouse, ODD, TargetFormat.DELTA)
    ),
    "add files": in_warehouse(lambda warehouse: iceberg._add_files(warehouse, ODD, OTHER)),
    "views": in_warehouse(lambda warehouse: views.list_views_over(warehouse, ODD)),
    "tags": lambda spark: spark.sql(tags.query(ODD)),
    "set tags": lambda spark: spark.sql(tags.statement(ODD, "my-column", {"my-tag": "my-value"})),
    "location": in_warehouse(lambda warehouse: copy_removal.read_location(warehouse, ODD)),
}  # fmt: skip


@pytest.mark.parametrize("what", ASKED)
def test_every_part_of_a_name_is_quoted(what: str) -> None:
    spark = Asked()
    # Callers may fail at the empty result; only the statements are compared.
    with suppress(Exception):
        ASKED[what](spark)
    assert spark.statements
    for statement in spark.statements:
        outside = re.sub(r"'(?:[^'\\]|\\.)*'|`(?:[^`]|``)*`", "", statement)
        assert not re.search(r"my-|a`b|o-ther|`", outside), statement


# Keywords that are followed by the name of a table, schema, catalog or column.
TAKES_A_NAME = re.compile(
    r"\b(TABLE|FROM|INTO|UPDATE|HISTORY|DETAIL|TO|(SCHEMAS|TABLES|VIEWS|EXTENDED) IN|JOIN|CLONE|COLUMN|"
    r"TBLPROPERTIES|SHOW PARTITIONS|CALL|USE|EXTENDED|LIKE|IF EXISTS|IF NOT EXISTS) $"
)
# Expressions whose value is SQL already: quoted names and whole queries.
SQL_ALREADY = {
    "self._tables.jobs", "self._tables.name(table)", "self._tables.old_archive", "self.jobs", "self.events",
    "archive", "quoted", "rows", "text",
    "path", "log", "new", "old", "refs", "view", "named", "names", "entry.buckets", "_pairs(properties)",
    "move.text", "self._before(self.target)", "after", "part", "written", "column",
}  # fmt: skip


def in_statements() -> Iterator[tuple[str, str]]:
    """Yield each expression in place of a name in SQL, with its location in the package."""
    for file in sorted((ROOT / "src/tableferry").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            before = ""
            for part in node.values if isinstance(node, ast.JoinedStr) else ():
                if isinstance(part, ast.FormattedValue) and TAKES_A_NAME.search(before):
                    yield f"{file.relative_to(ROOT)}:{part.lineno}", ast.unparse(part.value)
                before = str(part.value) if isinstance(part, ast.Constant) else ""


def test_expressions_in_place_of_names_in_sql_are_quoted() -> None:
    quoted = re.compile(r".*\.(plain_)?sql|(quote|literal|pairs|pattern|in_metastore|spec)\(.*\)")
    names = list(in_statements())
    assert len(names) > 80
    assert [
        (location, value)
        for location, value in names
        if not quoted.fullmatch(value) and value not in SQL_ALREADY
    ] == []
