"""The doctor on real local Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.doctor import DoctorOptions, Outcome, examine
from tableferry.doctor.environment import SCRATCH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def warehouse_of(spark: SparkSession) -> Path:
    tables = spark.conf.get("spark.sql.warehouse.dir") or ""
    return Path(tables.removeprefix("file:")).parent


def test_doctor_passes_on_local_spark_and_removes_its_scratch_objects(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = warehouse_of(spark)
    before = {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    options = DoctorOptions(warehouse=warehouse, state=str(tmp_path / "state" / "migration"))
    report = examine(options, spark=spark)
    assert report.ok, [result for result in report.results if result.outcome is Outcome.FAILED]
    of_spark = {
        result.name for result in report.results if result.place in ("this machine", "state", "tables")
    }
    assert {result.name for result in report.results if result.outcome is Outcome.PASSED} == of_spark
    assert {row[0] for row in spark.sql("SHOW SCHEMAS").collect()} == before
    assert list(tmp_path.iterdir()) == []
    assert list(warehouse.rglob(f"{SCRATCH}*")) == []


def test_doctor_works_in_an_existing_schema(spark: SparkSession, schema: str) -> None:
    warehouse = warehouse_of(spark)
    spark.sql(f"CREATE TABLE {schema}.orders (id BIGINT) USING delta")
    options = DoctorOptions(warehouse=warehouse, schema=schema)
    names = ["rename", "clone-of-pinned-version", "starting-version", "hive-tables", "iceberg-tables"]
    report = examine(options, names=names, spark=spark)
    assert report.ok, report
    assert [result.outcome for result in report.results] == [Outcome.PASSED] * len(names)
    # Temporary views of other tests are listed for every schema.
    listed = spark.sql(f"SHOW TABLES IN {schema}").collect()
    assert [row["tableName"] for row in listed if not row["isTemporary"]] == ["orders"]
