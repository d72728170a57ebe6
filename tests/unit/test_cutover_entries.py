"""The catalog entry of a name, from the rows that Spark and Databricks return, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import Row, StructType
from tests.conditions import raises

from tableferry.pipelines.cutover.catalog_entries import find_generated, read_entry
from tableferry.pipelines.cutover.facts import Column, Entry
from tableferry.pipelines.cutover.readers import list_view_readers
from tableferry.spark.tables import TableName

NAME = TableName.parse("hive_metastore.silver.orders")


NO_COLUMNS = StructType()

Answers = Mapping[str, Sequence[Row] | Exception]


@dataclass(frozen=True)
class Answer:
    """A DataFrame that has its rows already."""

    rows: Sequence[Row]
    schema: StructType = NO_COLUMNS

    def collect(self) -> Sequence[Row]:
        return self.rows


@dataclass(frozen=True)
class Session:
    """A session that answers statements by their beginning; other statements fail."""

    answers: Answers
    schema: StructType = NO_COLUMNS

    def sql(self, statement: str) -> Answer:
        for beginning, answer in self.answers.items():
            if statement.startswith(beginning):
                if isinstance(answer, Exception):
                    raise answer
                return Answer(answer)
        raise AssertionError(statement)

    def table(self, name: str) -> Answer:
        return Answer((), self.schema)


def session(
    answers: Mapping[str, Sequence[Row] | Exception], schema: StructType = NO_COLUMNS
) -> SparkSession:
    return cast(SparkSession, Session(answers, schema))


def described(*rows: tuple[str, str]) -> list[Row]:
    return [Row(col_name=name, data_type=value, comment="") for name, value in rows]


TABLE = described(
    ("id", "int"),
    ("", ""),
    ("# Detailed Table Information", ""),
    ("Type", "MANAGED"),
    ("Provider", "delta"),
    ("Location", "dbfs:/silver/orders"),
    ("Comment", "Orders"),
    ("", ""),
    ("# Constraints", ""),
    ("pk", "PRIMARY KEY (`id`)"),
)
DETAIL = [
    Row(
        id="table-id",
        partitionColumns=[],
        clusteringColumns=["id"],
        properties={"delta.constraints.positive": "id > 0", "delta.appendOnly": "true"},
    )
]
SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "integer", "nullable": False, "metadata": {"comment": "the key"}}],
    }
)


def test_entry_of_a_table_has_its_id_columns_and_rules() -> None:
    answers: Answers = {
        "DESCRIBE TABLE EXTENDED": TABLE,
        "DESCRIBE DETAIL": DETAIL,
        "SHOW CREATE TABLE": [
            Row("CREATE TABLE orders (\n  id INT GENERATED ALWAYS AS (a + (b)))\nUSING delta")
        ],
    }
    spark = session(answers, SCHEMA)
    assert read_entry(spark, NAME) == Entry(
        NAME,
        "table",
        table_id="table-id",
        columns=(Column("id", "int", is_nullable=False, comment="the key", generated="a + (b)"),),
        comment="Orders",
        partition_columns=("id",),
        constraints=("positive CHECK (id > 0)", "pk PRIMARY KEY (`id`)"),
        moves_with_name=True,
        location="dbfs:/silver/orders",
    )
    in_unity_catalog = read_entry(spark, TableName.parse("main.silver.orders"))
    assert not in_unity_catalog.moves_with_name


def test_entry_of_a_view_has_its_marker() -> None:
    view = described(("# Detailed Table Information", ""), ("Type", "VIEW"))
    properties = [Row(key="tableferry.cutover", value="table-id"), Row(key="a", value="b")]
    spark = session({"DESCRIBE TABLE EXTENDED": view, "SHOW TBLPROPERTIES": properties})
    assert read_entry(spark, NAME) == Entry(NAME, "view", marker="table-id")


def test_entry_without_a_table_is_missing_and_another_error_is_raised() -> None:
    missing = AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] no table")
    assert read_entry(session({"DESCRIBE": missing}), NAME) == Entry(NAME)
    with raises("TABLE_NOT_DESCRIBABLE", table=str(NAME)):
        read_entry(session({"DESCRIBE": AnalysisException("[PERMISSION_DENIED] no")}), NAME)


@pytest.mark.parametrize("provider", ["delta", "parquet"])
def test_table_that_is_not_described_in_detail_has_no_id(provider: str) -> None:
    rows = described(("# Detailed Table Information", ""), ("Type", "EXTERNAL"), ("Provider", provider))
    refused = AnalysisException("[UNSUPPORTED] no details")
    answers: Answers = {"DESCRIBE TABLE EXTENDED": rows, "DESCRIBE DETAIL": refused, "SHOW": refused}
    assert read_entry(session(answers, SCHEMA), NAME).table_id == ""


def test_generated_columns_are_found_in_a_statement() -> None:
    statement = """CREATE TABLE main.silver.orders (
  id INT NOT NULL COMMENT 'GENERATED',
  `a day` DATE GENERATED ALWAYS AS ( CAST(at AS DATE) ) COMMENT 'the day',
  n BIGINT GENERATED ALWAYS AS IDENTITY (START WITH 1),
  last STRING GENERATED ALWAYS AS (upper(v)))
USING delta"""
    assert find_generated(statement) == {"a day": "CAST(at AS DATE)", "last": "upper(v)"}


def test_views_that_read_a_name_are_listed_from_the_catalog() -> None:
    name = TableName.parse("main.silver.orders")
    rows = [
        Row("gold", "report", "SELECT * FROM silver.orders"),
        Row("gold", "other", "SELECT * FROM orders"),
        Row("silver", "orders__cutover_view", "SELECT * FROM orders"),
    ]
    staged = TableName.parse("main.silver.orders__cutover_view")
    spark = session({"SELECT table_schema": rows})
    assert list_view_readers(spark, name, (name, staged), is_unity=True) == (
        TableName.parse("main.gold.report"),
    )


def test_views_that_read_a_name_are_listed_from_the_metastore() -> None:
    text = described(("View Text", "SELECT * FROM silver.orders"))
    answers: dict[str, Sequence[Row] | Exception] = {
        "SHOW SCHEMAS": [Row("gold"), Row("silver")],
        "SHOW VIEWS IN `gold`": [
            Row(viewName="report", isTemporary=False),
            Row(viewName="t", isTemporary=True),
        ],
        "SHOW VIEWS IN `silver`": [],
        "DESCRIBE TABLE EXTENDED `gold`.`report`": text,
    }
    name = TableName.parse("silver.orders")
    found = list_view_readers(session(answers), name, (), is_unity=False)
    assert found == (TableName.parse("gold.report"),)
    denied: Answers = {**answers, "SHOW SCHEMAS": AnalysisException("[PERMISSION_DENIED] no")}
    with raises("VIEWS_NOT_LISTED"):
        list_view_readers(session(denied), name, (), is_unity=False)
