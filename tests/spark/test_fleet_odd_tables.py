"""Unusual tables are migrated and reverted, or refused before any effect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, dynamic_fleet, errors
from tests.spark.tables import tables_in

from tableferry.fleet.checks.preflight_run import precheck
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.queue.records import NewJob

ICEBERG, DELTA = TargetFormat


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with dynamic_fleet(spark, schema, tmp_path) as ours:
        yield ours


def refusal(ours: Fleet, form: TargetFormat) -> str:
    """Return the reason why table t can't be migrated, or an empty string."""
    [seen] = precheck(ours.store, ours.warehouse, [NewJob(ours.name("t"), form)])
    assert {finding.reason for finding in seen.findings} <= {PauseReason.UNSUPPORTED_LAYOUT}
    return " ".join(finding.text for finding in seen.findings)


@pytest.mark.parametrize(
    ("form", "stored"),
    [
        (DELTA, "STORED AS TEXTFILE"),
        (ICEBERG, "USING json"),
        (ICEBERG, "CLUSTERED BY (id) INTO 2 BUCKETS STORED AS PARQUET"),
        (DELTA, "CLUSTERED BY (id) INTO 2 BUCKETS STORED AS TEXTFILE"),
    ],
)
@soak.slow
def test_partition_column_in_capitals_is_migrated(
    ours: Fleet, tmp_path: Path, form: TargetFormat, stored: str
) -> None:
    """Hive's writer uses lower case for directories, Spark's writer uses the column's spelling."""
    name = ours.name("t").sql
    columns = "(id INT, Day STRING) {} PARTITIONED BY (Day)" if stored.startswith("USING") else (
        "(id INT) PARTITIONED BY (Day STRING) {}"
    )  # fmt: skip
    ours.spark.sql(f"CREATE EXTERNAL TABLE {name} {columns.format(stored)} LOCATION '{tmp_path}/t'")
    ours.spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'a'), (3, 'b')")
    ours.to_probation("t", form=form, rewrite=True)
    for statement in (
        "INSERT INTO {t} VALUES (4, 'new')",
        "DELETE FROM {t} WHERE id = 1",
        "INSERT INTO {t} VALUES (5, 'new')",
    ):
        ours.write("t", statement)
        assert errors(ours.shadow()) == []
        assert ours.rows("t_hive") == ours.rows("t")
    after = ours.rows("t")
    assert after == [(2, "a"), (3, "b"), (4, "new"), (5, "new")]
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == after
    assert tables_in(ours.spark, ours.schema) == ["t"]


def test_empty_file_is_refused_for_delta_and_ignored_for_iceberg(ours: Fleet, tmp_path: Path) -> None:
    name = ours.name("t").sql
    ours.spark.sql(f"CREATE EXTERNAL TABLE {name} (id INT) STORED AS PARQUET LOCATION '{tmp_path}/t'")
    ours.spark.sql(f"INSERT INTO {name} VALUES (1), (2)")
    (tmp_path / "t" / "part-empty").touch()
    assert "part-empty is empty (0 bytes), so it's no Parquet file" in refusal(ours, DELTA)
    ours.to_probation("t")
    assert ours.rows("t") == [(1,), (2,)]
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("option", "value"),
    [("pathGlobFilter", "*.parquet"), pytest.param("datetimeRebaseMode", "LEGACY", marks=soak.slow)],
)
def test_options_that_change_rows_are_refused(ours: Fleet, tmp_path: Path, option: str, value: str) -> None:
    ours.spark.sql(
        f"CREATE TABLE {ours.name('t').sql} (id INT) USING parquet OPTIONS ({option} '{value}') "
        f"LOCATION '{tmp_path}/t'"
    )
    for form in TargetFormat:
        assert f"has the option {option.lower()}, " in refusal(ours, form)


def test_avro_partitions_with_another_schema_are_refused(ours: Fleet, tmp_path: Path) -> None:
    name = ours.name("t").sql
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {name} (id INT) PARTITIONED BY (day STRING) STORED AS AVRO "
        f"LOCATION '{tmp_path}/t'"
    )
    ours.spark.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    assert refusal(ours, ICEBERG) == ""
    ours.spark.sql(f"ALTER TABLE {name} PARTITION (day = 'b') SET SERDEPROPERTIES ('some' = 'thing')")
    assert "other properties of its SerDe, than the table states: ['b']" in refusal(ours, ICEBERG)


@pytest.mark.parametrize("stored", ["parquet", pytest.param("orc", marks=soak.slow)])
def test_older_files_without_a_column_with_default_are_refused(
    ours: Fleet, tmp_path: Path, stored: str
) -> None:
    forms = TargetFormat if stored == "parquet" else (ICEBERG,)
    name = ours.name("t").sql
    ours.spark.sql(f"CREATE TABLE {name} (id INT) USING {stored} LOCATION '{tmp_path}/t'")
    ours.spark.sql(f"INSERT INTO {name} VALUES (1)")
    ours.spark.sql(f"ALTER TABLE {name} ADD COLUMN c INT DEFAULT 5")
    assert ours.rows("t") == [(1, 5)]
    for form in forms:
        assert "would be null in" in refusal(ours, form)
    ours.spark.sql(f"INSERT OVERWRITE {name} SELECT id, 6 FROM VALUES (2) AS v(id)")
    for form in forms:
        assert refusal(ours, form) == ""
        [seen] = precheck(ours.store, ours.warehouse, [NewJob(ours.name("t"), form)])
        reason = any("columns have defaults, c 5, which Spark doesn't" in remark for remark in seen.remarks)
        assert reason is (form is ICEBERG)


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        ("DOUBLE", pa.array([1], pa.int32()), "as INT32, which Iceberg can't read as double"),
        pytest.param(
            "DECIMAL(20, 0)",
            pa.array([1], pa.int64()),
            "as INT64, which Iceberg can't read as decimal",
            marks=soak.slow,
        ),
        pytest.param(
            "MAP<STRING, DOUBLE>",
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int32())),
            "stores x.value as INT32, which Iceberg can't read as double",
            marks=soak.slow,
        ),
        pytest.param(
            "TIMESTAMP_NTZ",
            pa.array([1], pa.date32()),
            "as INT32 (DATE), which Iceberg can't read as time",
            marks=soak.slow,
        ),
    ],
)
def test_parquet_types_that_iceberg_does_not_widen_are_refused(
    ours: Fleet, tmp_path: Path, kind: str, values: pa.Array, reason: str
) -> None:
    ours.spark.sql(f"CREATE TABLE {ours.name('t').sql} (x {kind}) USING parquet LOCATION '{tmp_path}/t'")
    (tmp_path / "t").mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": values}), tmp_path / "t" / "a.parquet")
    assert len(ours.rows("t")) == 1
    assert reason in refusal(ours, ICEBERG)


@pytest.mark.parametrize(
    ("form", "stored", "value", "kind", "reason"),
    [
        ("ORC", "x INT", "1", "DOUBLE", "stores x as int, which Iceberg can't read as double"),
        ("AVRO", "x INT", "1", "DOUBLE", "stores x as int, which Iceberg can't read as double"),
        *(
            pytest.param(*each, marks=soak.slow)
            for each in (
                ("ORC", "`_col0` INT", "1", "STRING", "stores x as int, which Iceberg can't read as string"),
                ("ORC", "x BIGINT", "1", "INT", "stores x as long, which Iceberg can't read as int"),
                (
                    "ORC",
                    "x ARRAY<STRUCT<A: INT>>",
                    "array(struct(1))",
                    "ARRAY<STRUCT<a: STRING>>",
                    "x.element.A",
                ),
                ("ORC", "x DECIMAL(9, 2)", "1.25", "DECIMAL(9, 4)", "as decimal(9, 2), which Iceberg can't"),
                ("ORC", "y INT", "1", "INT", "has none of the table's columns"),
                ("AVRO", "x STRING", "'a'", "BINARY", "stores x as string, which Iceberg can't read as bin"),
                ("AVRO", "x ARRAY<INT>", "array(1)", "ARRAY<DOUBLE>", "stores x.element as int"),
                ("AVRO", "X INT", "1", "INT", "calls x X, so that Hive may read it there, and neither Spark"),
                ("ORC", "x INT", "1", "BIGINT", ""),
                ("AVRO", "x MAP<STRING, INT>", "map('a', 1)", "MAP<STRING, BIGINT>", ""),
            )
        ),
    ],
)
def test_orc_and_avro_types_that_iceberg_does_not_widen_are_refused(
    ours: Fleet, tmp_path: Path, form: str, stored: str, value: str, kind: str, reason: str
) -> None:
    other, name, files = ours.name("other").sql, ours.name("t").sql, tmp_path / "t"
    ours.spark.sql(f"CREATE EXTERNAL TABLE {other} ({stored}) STORED AS {form} LOCATION '{files}'")
    ours.spark.sql(f"INSERT INTO {other} SELECT {value}")
    ours.spark.sql(f"DROP TABLE {other}")
    ours.spark.sql(f"CREATE EXTERNAL TABLE {name} (x {kind}) STORED AS {form} LOCATION '{files}'")
    before = ours.rows("t")
    if reason:
        assert reason in refusal(ours, ICEBERG)
    else:
        ours.to_probation("t")
        assert ours.rows("t") == before


@pytest.mark.parametrize("form", ["PARQUET", "ORC", "AVRO"])
@soak.slow
def test_files_with_other_field_ids_are_refused(ours: Fleet, tmp_path: Path, form: str) -> None:
    """Files of Iceberg, Thrift and older Arrow have such ids; Iceberg then finds columns only by them."""
    made, name = ours.warehouse.iceberg(ours.name("made")).sql, ours.name("t").sql
    columns = ["a INT", "s STRUCT<x: INT, ys: ARRAY<STRUCT<y: INT>>>", "m MAP<STRING, INT>", "b INT"]
    ours.spark.sql(
        f"CREATE TABLE {made} ({', '.join(columns)}) USING iceberg LOCATION '{tmp_path}/made' "
        f"TBLPROPERTIES ('write.format.default' = '{form.lower()}')"
    )
    ours.spark.sql(f"INSERT INTO {made} SELECT 1, struct(2, array(struct(3))), map('k', 4), 5")
    ours.spark.sql(f"DROP TABLE {made}")
    # While its metadata exist, the files belong to an Iceberg table.
    (tmp_path / "made" / "data").rename(tmp_path / "t")
    for listed, is_read in ((columns, True), (columns[::-1], False)):
        ours.spark.sql(f"DROP TABLE IF EXISTS {name}")
        ours.spark.sql(
            f"CREATE EXTERNAL TABLE {name} ({', '.join(listed)}) STORED AS {form} LOCATION '{tmp_path}/t'"
        )
        assert len(ours.rows("t")) == 1
        found = refusal(ours, ICEBERG)
        assert ("has field ids, by which Iceberg finds columns" in found) is not is_read, found


@pytest.mark.parametrize("form", ["ORC", pytest.param("AVRO", marks=soak.slow)])
def test_file_of_another_format_is_refused(ours: Fleet, tmp_path: Path, form: str) -> None:
    name = ours.name("t").sql
    ours.spark.sql(f"CREATE EXTERNAL TABLE {name} (id INT) STORED AS {form} LOCATION '{tmp_path}/t'")
    ours.spark.sql(f"INSERT INTO {name} VALUES (1)")
    (tmp_path / "t" / "part-x").write_text("hello" * 100)
    assert f"part-x isn't an {form} file (" in refusal(ours, ICEBERG)


@soak.slow
def test_orc_columns_in_several_spellings_are_read(ours: Fleet, tmp_path: Path) -> None:
    for columns in ("x INT", "X INT", "x INT, Y INT", "X INT, y INT"):
        other = ours.name("other").sql
        ours.spark.sql(f"CREATE TABLE {other} ({columns}) USING orc LOCATION '{tmp_path}/t'")
        ours.spark.sql(f"INSERT INTO {other} VALUES {'(1, 2)' if ',' in columns else '(1)'}")
        ours.spark.sql(f"DROP TABLE {other}")
    name = ours.name("t").sql
    ours.spark.sql(f"CREATE EXTERNAL TABLE {name} (x INT, y INT) STORED AS ORC LOCATION '{tmp_path}/t'")
    before = [(1, 2), (1, 2), (1, None), (1, None)]
    assert ours.rows("t") == before
    ours.to_probation("t")
    assert ours.rows("t") == before


def avro(*fields: Mapping[str, object]) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": fields})


@pytest.mark.parametrize("by_url", [False, pytest.param(True, marks=soak.slow)])
def test_avro_table_with_capitals_in_schema_and_partitions_is_migrated(
    ours: Fleet, tmp_path: Path, by_url: bool
) -> None:
    """Hive writes columns and directories in lower case; files have the schema's names, or their aliases."""
    name = ours.name("t").sql
    inner = {"type": "record", "name": "deep", "fields": [{"name": "theId", "type": "long"}]}
    old = avro({"name": "oldId", "type": "int"}, {"name": "inPlace", "type": inner})
    new = avro({"name": "userId", "type": "int", "aliases": ["oldId"]}, {"name": "inPlace", "type": inner})
    for schema in (old, new):
        ours.spark.sql(f"DROP TABLE IF EXISTS {name}")
        (tmp_path / "new.avsc").write_text(schema)
        told = f"url' = 'file:{tmp_path}/new.avsc" if by_url else f"literal' = '{schema}"
        ours.spark.sql(
            f"CREATE EXTERNAL TABLE {name} PARTITIONED BY (Day STRING) STORED AS AVRO "
            f"LOCATION '{tmp_path}/t' TBLPROPERTIES ('avro.schema.{told}')"
        )
        ours.spark.sql(f"MSCK REPAIR TABLE {name}")
        ours.spark.sql(f"INSERT INTO {name} SELECT 1, named_struct('theid', 2L), 'a'")
    before = [(1, (2,), "a"), (1, (2,), "a")]
    assert ours.rows("t") == before
    assert refusal(ours, ICEBERG) == ""
    ours.to_probation("t", rewrite=True)
    assert ours.rows("t") == before
    for statement in (
        "INSERT INTO {t} SELECT 3, named_struct('theid', 4L), 'new'",
        "DELETE FROM {t} WHERE Day = 'a'",
        "INSERT INTO {t} SELECT 5, named_struct('theid', 6L), 'new'",
    ):
        ours.write("t", statement)
        assert errors(ours.shadow()) == []
        assert ours.rows("t_hive") == ours.rows("t")
    after = [(3, (4,), "new"), (5, (6,), "new")]
    assert ours.rows("t") == after
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == after
    assert tables_in(ours.spark, ours.schema) == ["t"]


def test_missing_avro_schema_is_refused(ours: Fleet, tmp_path: Path) -> None:
    name, schema = ours.name("t").sql, tmp_path / "t.avsc"
    schema.write_text(avro({"name": "id", "type": "int"}))
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {name} STORED AS AVRO LOCATION '{tmp_path}/t' "
        f"TBLPROPERTIES ('avro.schema.url' = 'file:{schema}')"
    )
    ours.spark.sql(f"INSERT INTO {name} SELECT 1")
    schema.unlink()
    assert "[AVRO_SCHEMA_NOT_READABLE]" in refusal(ours, ICEBERG)


@soak.slow
def test_avro_file_without_a_field_with_default_is_refused(ours: Fleet, tmp_path: Path) -> None:
    name = ours.name("t").sql
    field, more = {"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 5}
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {name} STORED AS AVRO LOCATION '{tmp_path}/t' "
        f"TBLPROPERTIES ('avro.schema.literal' = '{avro(field)}')"
    )
    ours.spark.sql(f"INSERT INTO {name} SELECT 1")
    ours.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('avro.schema.literal' = '{avro(field, more)}')")
    ours.spark.catalog.refreshTable(name)
    assert ours.rows("t") == [(1, 5)]
    assert "lacks b, which is 5 there, and would be null in Iceberg" in refusal(ours, ICEBERG)


def test_preflight_lists_tables_whose_hive_copy_keeps_milliseconds(ours: Fleet, tmp_path: Path) -> None:
    keeps_milliseconds = {
        "(at TIMESTAMP) STORED AS AVRO": True,
        "(s STRUCT<at: TIMESTAMP>) USING json": True,
        "(at TIMESTAMP) USING csv OPTIONS (timestampFormat 'yyyy-MM-dd HH:mm:ss.SSSSSS')": False,
        "(at TIMESTAMP) STORED AS TEXTFILE": False,
        "(at STRING) USING json": False,
    }
    for number, stored in enumerate(keeps_milliseconds):
        ours.spark.sql(f"CREATE TABLE {ours.name(f't{number}').sql} {stored} LOCATION '{tmp_path}/{number}'")
    jobs = [
        NewJob(ours.name(f"t{number}"), ICEBERG, rewrite=True) for number in range(len(keeps_milliseconds))
    ]
    checked = precheck(ours.store, ours.warehouse, jobs)
    assert [seen.findings for seen in checked] == [()] * len(keeps_milliseconds)
    found = [any("store timestamps in milliseconds" in text for text in seen.remarks) for seen in checked]
    assert dict(zip(keeps_milliseconds, found, strict=True)) == keeps_milliseconds


@soak.slow
def test_odd_field_name_is_rewritten_to_delta(ours: Fleet, tmp_path: Path) -> None:
    name = ours.name("t").sql
    ours.spark.sql(
        f"CREATE TABLE {name} (id INT, p STRUCT<`first name`: STRING>) USING json LOCATION '{tmp_path}/t'"
    )
    ours.spark.sql(f"INSERT INTO {name} SELECT 1, named_struct('first name', 'Ann')")
    before = ours.rows("t")
    ours.warehouse = replace(ours.warehouse, column_mapping=True)
    ours.to_probation("t", form=DELTA, rewrite=True)
    assert ours.rows("t") == before
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == before
