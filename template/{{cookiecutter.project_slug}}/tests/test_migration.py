"""The example migrates: its history is copied, new rows go on right behind it, none is lost, none comes twice."""

from pathlib import Path

from pyspark.sql import SparkSession
from sample.load import JOBS, load

from tableferry import pipelines, verify

SAMPLE = Path(__file__).parents[1] / "src" / "sample"


def phases(project: Path, spark: SparkSession) -> dict[str, str]:
    """Say how far each table's migration is."""
    targets = pipelines.status(project, spark, environment="dev").plan.targets
    return {target.target.table: target.phase for target in targets}


def test_every_row_arrives_exactly_once(spark: SparkSession, schema: str, project: Path) -> None:
    load(spark, SAMPLE, schema, "history")
    assert pipelines.run(project, spark, environment="dev").ok
    assert phases(project, spark) == {"customers": "waiting", "orders": "waiting"}
    assert verify.verify_tables(spark, f"{schema}.orders_legacy", f"{schema}.orders").matches

    load(spark, SAMPLE, schema, "new")
    assert pipelines.run(project, spark, environment="dev").ok
    assert phases(project, spark) == {"customers": "complete", "orders": "complete"}

    # What the old jobs would have made of all rows is what the pipeline has made.
    spark.sql(f"CREATE TABLE {schema}.orders_check USING delta AS {JOBS['orders_legacy'].format(schema=schema)}")
    job = JOBS["customers_legacy"].format(schema=schema)
    spark.sql(
        f"CREATE TABLE {schema}.customers_check USING delta AS "
        f"SELECT customer_id, name, city, valid_from AS __START_AT, valid_to AS __END_AT FROM ({job})"
    )
    assert verify.verify_tables(spark, f"{schema}.orders_check", f"{schema}.orders").matches
    assert verify.verify_tables(spark, f"{schema}.customers_check", f"{schema}.customers").matches
    assert spark.table(f"{schema}.orders").count() == 28


def test_a_second_run_changes_nothing(spark: SparkSession, schema: str, project: Path) -> None:
    load(spark, SAMPLE, schema, "history")
    load(spark, SAMPLE, schema, "history")
    assert pipelines.run(project, spark, environment="dev").ok
    before = spark.table(f"{schema}.orders").count()
    assert pipelines.run(project, spark, environment="dev").ok
    assert spark.table(f"{schema}.orders").count() == before == 20
