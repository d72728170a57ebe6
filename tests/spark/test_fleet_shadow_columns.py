"""A Hive copy whose columns are renamed, dropped or retyped in the table that took its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleet_shadowing import DELTA, ICEBERG, Pair

from tableferry.errors import Refused
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse import metastore
from tableferry.fleet.warehouse.shadow.changes import Action
from tableferry.tables import TableName

ROWS = ((1, "a", 1, "mon"), (2, "b", 2, "mon"), (3, "c", None, "tue"))
COLUMNS = "id INT, name STRING, n2 INT"
MON, TUE = "day=mon", "day=tue"
# Amid the partitions, and when the columns are replaced; in a soak after each change.
CHANGES = range(8) if soak.SOAKING else (3, 4)
OPTIONS = {
    ICEBERG: {},
    DELTA: {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
}


def made(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat, stored: str = "PARQUET"
) -> Pair:
    pair = Pair(spark, schema, tmp_path, form, COLUMNS, "day STRING", stored, options=OPTIONS[form])
    return pair.make(*ROWS)


def described(pair: Pair) -> list[str]:
    """The copy's columns and their types."""
    fields = pair.spark.table(pair.hive).schema.fields
    return [f"{field.name} {field.dataType.simpleString()}" for field in fields if field.name != "day"]


@pytest.mark.parametrize(
    ("form", "stored"),
    [
        pytest.param(ICEBERG, "AVRO", marks=soak.only),
        # In make test test_fleet_shadow_random.py has new columns.
        pytest.param(DELTA, "PARQUET", marks=soak.only),
        pytest.param(ICEBERG, "PARQUET", marks=soak.only),
        pytest.param(ICEBERG, "ORC", marks=soak.only),
    ],
)
def test_every_row_is_written_anew(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat, stored: str
) -> None:
    pair = made(spark, schema, tmp_path, form, stored)
    pair.insert((4, "d", 4, "tue"))
    pair.rename_column("name", "title")
    pair.widen_column("id")
    pair.insert((5, "e", 5, "mon"))
    result = pair.shadow()
    assert "id, name of the Hive copy were renamed, dropped or retyped" in result.compared
    assert {change.partition: (change.action, change.rows) for change in result.done} == {
        MON: (Action.REWRITTEN, 3),
        TUE: (Action.REWRITTEN, 2),
    }
    assert described(pair) == ["id bigint", "title string", "n2 int"]
    assert pair.shadow().done == ()
    # The metastore doesn't let a string's place become an int's, and there Iceberg has its tables too.
    lost, kept = ("n2", "title string") if form is ICEBERG else ("title", "n2 int")
    value = "f" if form is ICEBERG else 6
    pair.drop_column(lost)
    pair.insert((2**40, value, "wed"))
    assert f"{lost} of the Hive copy" in pair.shadow().compared
    assert described(pair) == ["id bigint", kept]
    pair.insert((7, value, "wed"))
    assert pair.done() == {"day=wed": (Action.APPENDED, 1)}


@soak.only  # test_fleet_shadow.py has what ends so while rows change.
def test_a_run_that_ends_after_any_change(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = made(spark, schema, tmp_path, ICEBERG)
    before = "name"
    for at in CHANGES:
        pair.rename_column(before, before := f"c{at}")
        pair.insert((10 + at, "x", 1, "mon"))
        assert pair.crash(at)
        pair.shadow()


@soak.slow
def test_partitions_get_the_columns_too(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Hive itself reads a partition by the columns that the metastore has for it."""
    pair = made(spark, schema, tmp_path, ICEBERG)
    pair.add_column("extra")
    pair.insert((4, "d", 4, 4, "tue"))
    assert pair.done() == {TUE: (Action.APPENDED, 1)}
    jvm = spark._jvm
    assert jvm is not None
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    conf = jvm.org.apache.hadoop.hive.conf.HiveConf(hadoop, hadoop.getClass())
    client = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
    partitions = client.listPartitions(schema, "t_hive", -1)
    client.close()
    actual = [[column.getName() for column in partition.getSd().getCols()] for partition in partitions]
    assert actual == [["id", "name", "n2", "extra"]] * 2


def test_columns_that_hive_does_not_see(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id INT, at TIMESTAMP_NTZ) USING parquet")
    name = TableName(("spark_catalog", schema, "t"))
    metastore.set_columns(spark, name, {"id": None, "at": None, "Extra": "bigint"})
    assert [field.simpleString() for field in spark.table(f"{schema}.t").schema] == [
        "id:int",
        "at:timestamp_ntz",
        "Extra:bigint",
    ]


@soak.slow
def test_a_first_column_that_the_metastore_keeps(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = Pair(spark, schema, tmp_path, DELTA, "name STRING, id INT", keys="", options=OPTIONS[DELTA])
    pair.make(("a", 1))
    pair.drop_column("name")
    pair.insert((2,))
    with pytest.raises(Refused, match=r"first column .* can't become id, .*disallow.incompatible.col"):
        pair.run()


def test_a_column_that_hive_partitions_by_stays(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = made(spark, schema, tmp_path, ICEBERG)
    pair.sql(f"ALTER TABLE {pair.target} DROP PARTITION FIELD day")
    pair.sql(f"ALTER TABLE {pair.target} RENAME COLUMN day TO d")
    pair.sql(f"INSERT INTO {pair.target} VALUES (9, 'i', 9, 'mon')")
    with pytest.raises(Refused, match=r"partitioned by day \(string\), which is no longer there"):
        pair.run()
