"""Facts of tables in the catalog, also where the definition of a pipeline limits the statements."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from tests.conditions import raises

from tableferry.errors import Failed, TableError, TableferryError
from tableferry.formats.hive.catalog_tables import shown_tables
from tableferry.spark import catalog
from tableferry.spark.tables import TableFacts, TableName

ORDERS = TableName.parse("bronze.orders")


class Refusal(PySparkException):
    """An error of a condition."""

    def __init__(self, condition: str) -> None:
        super().__init__(f"[{condition}] refused")
        self.named = condition

    def getCondition(self) -> str:
        return self.named


class Session:
    """A session in which some statements are refused."""

    def __init__(self, **refused: str) -> None:
        self.refused = refused
        self.answers: Mapping[str, list[dict[str, Any]]] = {
            "TABLE": [
                {"col_name": "", "data_type": "", "comment": ""},
                {"col_name": "# Detailed Table Information", "data_type": ""},
                {"col_name": "Provider", "data_type": "delta"},
                {"col_name": "Location", "data_type": "s3://bucket/orders"},
            ],
            "DETAIL": [{"format": "delta", "id": "the-id", "properties": {"a": "b"}}],
            "HISTORY": [{"version": 7}],
        }

    def sql(self, statement: str) -> SimpleNamespace:
        what = statement.split()[1]
        if what in self.refused:
            raise Refusal(self.refused[what])
        return SimpleNamespace(collect=lambda: self.answers[what])


def facts(session: Any, *, defining: bool) -> TableFacts | None:
    return catalog.facts(session, ORDERS, defining=defining)


@pytest.mark.parametrize(
    "condition", ["UNSUPPORTED_PIPELINE_SPARK_SQL_COMMAND", "INSUFFICIENT_PERMISSIONS", "SOMETHING_ELSE"]
)
@pytest.mark.parametrize("statement", ["DETAIL", "TABLE"])
def test_statement_that_a_pipeline_refuses_does_not_fail_its_update(condition: str, statement: str) -> None:
    session = Session(**{statement: condition})
    known = facts(session, defining=True)
    assert known
    assert (known.version, known.table_id) == (7, "" if statement == "DETAIL" else "the-id")
    # Outside a pipeline, a table without an id could be confused with a recreated table.
    with raises("TABLE_NOT_DESCRIBABLE", table="bronze.orders", reason=re.compile("refused")):
        facts(session, defining=False)


@pytest.mark.parametrize("defining", [True, False])
@pytest.mark.parametrize("statement", ["DETAIL", "TABLE"])
def test_missing_table_has_no_facts(statement: str, defining: bool) -> None:
    assert facts(Session(**{statement: "TABLE_OR_VIEW_NOT_FOUND"}), defining=defining) is None


def test_pipeline_requires_the_version_of_a_table() -> None:
    with raises("TABLE_NOT_DESCRIBABLE"):
        facts(Session(HISTORY="UNSUPPORTED_PIPELINE_SPARK_SQL_COMMAND"), defining=True)


@pytest.mark.parametrize(
    ("kind", "name", "parameters"),
    [
        (TableError, "TABLES_NOT_LISTABLE", {"schema": "db"}),
        (Failed, "VIEW_NOT_READABLE", {"location": "a.json", "view": "v"}),
    ],
)
def test_spark_error_becomes_condition_and_other_errors_pass(
    kind: type[TableferryError], name: str, parameters: dict[str, str]
) -> None:
    reason = "[GONE] it is gone"

    def fail(error: Exception) -> None:
        raise error

    with raises(name, **parameters, reason=reason) as raised, catalog.explaining(name, kind, **parameters):
        fail(PySparkException(f"{reason}\nJVM stacktrace: …"))
    assert type(raised.value) is kind
    assert isinstance(raised.value.__cause__, PySparkException)
    with pytest.raises(ValueError, match="mine"), catalog.explaining(name, kind, **parameters):
        raise ValueError("mine")


class Renaming:
    """A session whose listing fails the given number of times, because tables are renamed concurrently."""

    def __init__(self, often: int, condition: str = "TABLE_OR_VIEW_NOT_FOUND") -> None:
        self.left, self.condition, self.asked = often, condition, 0

    def sql(self, query: str) -> Renaming:
        assert query == "SHOW TABLE EXTENDED IN `c`.`s` LIKE 'a|b'"
        self.asked += 1
        return self

    def collect(self) -> list[Row]:
        if self.left:
            self.left -= 1
            raise Refusal(self.condition)
        return [Row(tableName="b")]


def test_listing_is_repeated_if_tables_are_renamed_concurrently() -> None:
    session: Any = Renaming(3)
    assert shown_tables(session, TableName(("c", "s")), ["a", "b"]) == [Row(tableName="b")]
    assert session.asked == 4


@pytest.mark.parametrize(
    ("often", "condition", "asked"), [(99, "TABLE_OR_VIEW_NOT_FOUND", 10), (1, "DENIED", 1)]
)
def test_listing_that_keeps_failing_raises_the_error(often: int, condition: str, asked: int) -> None:
    session: Any = Renaming(often, condition)
    with pytest.raises(Refusal, match=condition):
        shown_tables(session, TableName(("c", "s")), ["a", "b"])
    assert session.asked == asked


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            PySparkException(errorClass="ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": "x"}),
            "ATTRIBUTE_NOT_SUPPORTED",
        ),
        # pyspark raises Delta's exceptions so if it has no class for them.
        (PySparkException("[DELTA_CONCURRENT_WRITE] ConcurrentWriteException: …"), "DELTA_CONCURRENT_WRITE"),
        (PySparkException("Connection refused"), ""),
    ],
)
def test_condition_of_a_spark_error_is_also_read_from_its_text(error: Exception, expected: str) -> None:
    assert catalog.condition(error) == expected
