"""Which session a client gets, and what it says where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tableferry import session
from tableferry.catalog import in_process
from tableferry.errors import SessionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_remote_gives_a_session_on_the_server(spark: SparkSession, server: str) -> None:
    said: list[str] = []
    assert session.resolve(say=said.append) is spark
    assert said == [f"Spark: Spark Connect at {server}"]
    assert spark.version == "4.1.4"
    assert not in_process(spark)


def test_rows_of_the_client_s_own_reach_the_server(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, "é"), (2, None)], "id int, name string")
    assert [tuple(row) for row in frame.orderBy("id").collect()] == [(1, "é"), (2, None)]


def test_where_nobody_listens_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1/;token=secret")
    with pytest.raises(SessionError) as told:
        session.resolve(say=lambda line: None)
    assert str(told.value) == (
        "no Spark Connect server answers at sc://localhost:1, which is what SPARK_REMOTE says (failed to "
        "connect to all addresses): start it, or unset SPARK_REMOTE to work locally"
    )
