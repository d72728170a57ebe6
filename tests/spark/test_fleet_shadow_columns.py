"""Shadow runs after columns of the new table were added, renamed, dropped or retyped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from tests import conditions, soak
from tests.spark.fleet_shadowing import DELTA, ICEBERG, Pair

from tableferry.fleet.hive_copy import column_limits
from tableferry.fleet.hive_copy.update_plan import Action
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.spark.tables import TableName
from tableferry.spark.types import declared as declared_type

ROWS = ((1, "a", 1, "mon"), (2, "b", 2, "mon"), (3, "c", None, "tue"))
COLUMNS = "id INT, name STRING, n2 INT"
NARROW = "id INT, n SMALLINT, title VARCHAR(5), deep STRUCT<a:TINYINT,b:VARCHAR(3)>"
MON, TUE = "day=mon", "day=tue"
# The changes after which a run ends: between partitions, and at the columns; in a soak, each.
CHANGES = range(8) if soak.SOAKING else (3, 4)
OPTIONS = {
    ICEBERG: {},
    DELTA: {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
}


def declared(pair: Pair) -> list[str]:
    """Return the copy's columns with their types and the lengths of texts."""
    fields = [field for field in pair.spark.table(pair.hive).schema if field.name != "day"]
    return [f"{field.name} {declared_type(field)}" for field in fields]


def made(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat, stored: str = "PARQUET"
) -> Pair:
    pair = Pair(spark, schema, tmp_path, form, COLUMNS, "day STRING", stored, options=OPTIONS[form])
    return pair.make(*ROWS)


def described(pair: Pair) -> list[str]:
    """Return the copy's columns with their types."""
    fields = pair.spark.table(pair.hive).schema.fields
    return [f"{field.name} {field.dataType.simpleString()}" for field in fields if field.name != "day"]


@pytest.mark.parametrize(
    ("form", "stored"),
    [
        pytest.param(ICEBERG, "AVRO", marks=soak.only),
        # In make test, test_fleet_shadow_random.py adds columns.
        pytest.param(DELTA, "PARQUET", marks=soak.only),
        pytest.param(ICEBERG, "PARQUET", marks=soak.only),
        pytest.param(ICEBERG, "ORC", marks=soak.only),
    ],
)
def test_changed_columns_cause_a_rewrite_of_every_row(
    spark: SparkSession, schema: str, tmp_path: Path, form: TargetFormat, stored: str
) -> None:
    pair = made(spark, schema, tmp_path, form, stored)
    pair.insert((4, "d", 4, "tue"))
    pair.rename_column("name", "title")
    pair.widen_column("id")
    pair.insert((5, "e", 5, "mon"))
    result = pair.shadow()
    assert "id, name of the Hive copy were renamed, dropped or retyped" in result.comparison_reason
    assert {change.partition: (change.action, change.rows) for change in result.updates} == {
        MON: (Action.REWRITTEN, 3),
        TUE: (Action.REWRITTEN, 2),
    }
    assert described(pair) == ["id bigint", "title string", "n2 int"]
    assert pair.shadow().updates == ()
    # The metastore, which also has Iceberg's tables, refuses an int at the position of a string.
    lost, kept = ("n2", "title string") if form is ICEBERG else ("title", "n2 int")
    value = "f" if form is ICEBERG else 6
    pair.drop_column(lost)
    pair.insert((2**40, value, "wed"))
    assert f"{lost} of the Hive copy" in pair.shadow().comparison_reason
    assert described(pair) == ["id bigint", kept]
    pair.insert((7, value, "wed"))
    assert pair.done() == {"day=wed": (Action.APPENDED, 1)}


@soak.only  # test_fleet_shadow.py ends runs while rows change.
def test_column_change_resumes_after_a_crash_at_any_change(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = made(spark, schema, tmp_path, ICEBERG)
    before = "name"
    for at in CHANGES:
        pair.rename_column(before, before := f"c{at}")
        pair.insert((10 + at, "x", 1, "mon"))
        assert pair.crash(at)
        pair.shadow()


@soak.slow
def test_added_column_is_added_to_each_partition(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    """Hive reads a partition with the columns that the metastore stores for it."""
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


def test_column_is_added_to_a_table_with_types_that_hive_lacks(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id INT, at TIMESTAMP_NTZ) USING parquet")
    name = TableName(("spark_catalog", schema, "t"))
    metastore.set_columns(spark, name, {"id": None, "at": None, "Extra": "bigint"})
    assert [field.simpleString() for field in spark.table(f"{schema}.t").schema] == [
        "id:int",
        "at:timestamp_ntz",
        "Extra:bigint",
    ]


@soak.slow
def test_drop_that_the_metastore_refuses_is_reported(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, DELTA, "name STRING, id INT", keys="", options=OPTIONS[DELTA])
    pair.make(("a", 1))
    pair.drop_column("name")
    pair.insert((2,))
    with conditions.raises("METASTORE_REFUSES_COLUMN_CHANGE", column="id"):
        pair.run()


def test_renamed_partition_column_is_refused(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    pair = made(spark, schema, tmp_path, ICEBERG)
    pair.sql(f"ALTER TABLE {pair.target} DROP PARTITION FIELD day")
    pair.sql(f"ALTER TABLE {pair.target} RENAME COLUMN day TO d")
    pair.sql(f"INSERT INTO {pair.target} VALUES (9, 'i', 9, 'mon')")
    with conditions.raises("PARTITION_COLUMN_DROPPED", column="day", type="string"):
        pair.run()


@pytest.mark.parametrize(
    "stored",
    ["PARQUET", pytest.param("ORC", marks=soak.slow)],
)
@soak.slow
def test_hive_column_too_narrow_for_a_value_is_widened(
    spark: SparkSession, schema: str, tmp_path: Path, stored: str
) -> None:
    """Iceberg lacks Hive's narrow integers and lengths of texts."""
    pair = Pair(spark, schema, tmp_path, ICEBERG, NARROW, "day STRING", stored)
    pair.make((1, -1, "a", None, "mon"), (2, 2, "b", None, "tue"))

    def insert(row: str, *values: Any) -> dict[str, tuple[Action, int | None]]:
        pair.sql(f"INSERT INTO {pair.target} VALUES {row}")
        pair.rows[values] += 1
        return pair.done()

    appended = {MON: (Action.APPENDED, 1)}
    fits = "(3, 32767, 'abcde', struct(-128, 'abc'), 'mon')"
    assert insert(fits, 3, 32767, "abcde", Row(a=-128, b="abc"), "mon") == appended
    narrow = ["id int", "n smallint", "title varchar(5)", "deep struct<a:tinyint,b:varchar(3)>"]
    assert declared(pair) == narrow
    assert insert("(4, 32768, 'a', null, 'mon')", 4, 32768, "a", None, "mon") == appended
    assert declared(pair) == ["id int", "n int", *narrow[2:]]
    assert insert("(5, 1, 'a     ', null, 'mon')", 5, 1, "a     ", None, "mon") == appended
    assert declared(pair) == ["id int", "n int", "title string", narrow[3]]
    row = (6, 2, "b", Row(a=1, b="abcd"), "mon")
    assert insert("(6, 2, 'b', struct(1, 'abcd'), 'mon')", *row) == appended
    assert declared(pair) == ["id int", "n int", "title string", "deep struct<a:int,b:string>"]
    # Earlier partitions get the wider columns too, so that rows can be written after a revert.
    pair.sql(f"INSERT INTO {pair.hive} VALUES (7, 40000, 'abcdef', struct(1000, 'abcd'), 'tue')")
    pair.rows[(7, 40000, "abcdef", Row(a=1000, b="abcd"), "tue")] += 1
    assert pair.read() == pair.rows


def test_partition_value_too_large_for_the_hive_type_is_refused(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG, "id INT", "n SMALLINT").make((1, 1))
    pair.insert((2, 40000))
    with conditions.raises(
        "PARTITION_VALUE_NOT_IN_HIVE", column="n", value=40000, type="smallint", new_column="`n` INT"
    ):
        pair.run()


def test_values_too_large_for_hive_are_found_at_any_depth(spark: SparkSession, schema: str) -> None:
    spark.sql(
        f"CREATE TABLE {schema}.t (a ARRAY<STRUCT<n: TINYINT, s: STRING, `string`: VARCHAR(2)>>, "
        "m MAP<VARCHAR(3), ARRAY<ARRAY<SMALLINT>>>, plain ARRAY<STRING>) STORED AS PARQUET"
    )
    a, m, plain = spark.table(f"{schema}.t").schema
    assert column_limits.unfit_condition(plain) == ""
    rows = """
        (1, array(named_struct('n', 127, 's', 'long', 'string', 'ab')), map('abc', array(array(32767)))),
        (2, array(null, named_struct('n', 128, 's', '', 'string', '')), map('abc', array(null))),
        (3, array(named_struct('n', 1, 's', '', 'string', 'abc')), map('abcd', null)),
        (4, null, map('a', array(null, array(null, -32769))))
    """
    conditions = ", ".join(f"coalesce({column_limits.unfit_condition(field)}, false)" for field in (a, m))
    found = spark.sql(f"SELECT id, {conditions} FROM VALUES {rows} AS t(id, a, m) ORDER BY id").collect()
    assert [tuple(row)[1:] for row in found] == [(False, False), (True, False), (True, True), (False, True)]


@pytest.mark.parametrize("at", soak.amount([1], range(4)))
@soak.slow
def test_widening_of_columns_resumes_after_a_crash(
    spark: SparkSession, schema: str, tmp_path: Path, at: int
) -> None:
    pair = Pair(spark, schema, tmp_path, ICEBERG, "id INT, n TINYINT, title VARCHAR(2)", "day STRING")
    pair.make((1, 1, "a", "mon"), (2, 2, "b", "tue"))
    pair.insert((3, 300, "abc", "mon"), (4, 300, "abc", "wed"))
    pair.delete("id = 2", lambda row: row[0] == 2)
    assert pair.crash(at)
    pair.shadow()
    assert declared(pair) == ["id int", "n int", "title string"]
