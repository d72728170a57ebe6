"""The root bundle's job `convert`, with the parameters of its file; not run on Databricks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests import soak
from tests.spark.tables import tables_in

from tableferry.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


class Job:
    """Return a job of the root bundle, by default `convert`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "convert") -> None:
        self.monkeypatch = monkeypatch
        written = yaml.safe_load((ROOT / "resources" / "convert.job.yml").read_text("utf-8"))
        self.definition: dict[str, Any] = written["resources"]["jobs"][name]

    def run(self, **params: str) -> list[str]:
        """Run the tasks whose condition is true, and return their names; ``params`` as with ``--params``."""
        given = {entry["name"]: entry["default"] for entry in self.definition["parameters"]} | params
        outcomes: dict[str, str] = {}
        ran = []
        for task in self.definition["tasks"]:
            if any(outcomes[entry["task_key"]] != entry["outcome"] for entry in task.get("depends_on", ())):
                continue
            if condition := task.get("condition_task"):
                assert condition["op"] == "EQUAL_TO"
                left, right = (filled(condition[side], given) for side in ("left", "right"))
                outcomes[task["task_key"]] = "true" if left == right else "false"
                continue
            wheel = task["python_wheel_task"]
            assert wheel["entry_point"] == "tableferry"
            ran.append(task["task_key"])
            parameters = [filled(parameter, given) for parameter in wheel["parameters"]]
            self.monkeypatch.setattr("sys.argv", ["tableferry", *parameters])
            main()
        return ran


def filled(text: str, given: dict[str, str]) -> str:
    """Replace the job's parameters in a text by their values, as the platform does."""
    for name, value in given.items():
        text = text.replace("{{job.parameters." + name + "}}", value)
    return text


def providers(spark: SparkSession, schema: str) -> dict[str, str]:
    """Return the provider of each table of a schema."""
    providers_ = {}
    for table in tables_in(spark, schema):
        described = spark.sql(f"DESCRIBE TABLE EXTENDED {schema}.{table}")
        providers_[table] = described.where("col_name = 'Provider'").collect()[0]["data_type"].lower()
    return providers_


@pytest.fixture
def job(spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return the job and a schema with two Parquet tables and a CSV table."""
    spark.sql(f"CREATE TABLE {schema}.orders USING parquet AS SELECT id, id * 2 AS amount FROM range(10)")
    spark.sql(
        f"CREATE TABLE {schema}.events USING parquet PARTITIONED BY (day) AS "
        "SELECT id, date_add(DATE '2026-01-01', CAST(id % 3 AS INT)) AS day FROM range(9)"
    )
    spark.sql(f"CREATE TABLE {schema}.notes USING csv AS SELECT 'a' AS note")
    return Job(monkeypatch)


PARQUET = {"orders": "parquet", "events": "parquet", "notes": "csv"}
DELTA = {"orders": "delta", "events": "delta", "notes": "csv"}


@soak.slow
def test_job_plans_unless_dry_run_is_false(
    spark: SparkSession, schema: str, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    for params in ({}, {"dry_run": "False"}, {"dry_run": ""}):
        assert job.run(sources=f"{schema}.*", **params) == ["plan"]
        output = capsys.readouterr().out
        assert "orders" in output
        assert "events" in output
        assert providers(spark, schema) == PARQUET
    assert job.run(sources=f"{schema}.*", dry_run="false") == ["convert"]
    assert providers(spark, schema) == DELTA
    assert spark.table(f"{schema}.orders").selectExpr("count(*)", "sum(amount)").collect() == [(10, 90)]
    assert spark.table(f"{schema}.events").where("day = DATE '2026-01-02'").count() == 3
    # A repeated run has nothing left to do.
    assert job.run(sources=f"{schema}.*", dry_run="false") == ["convert"]
    assert spark.sql(f"DESCRIBE HISTORY {schema}.orders").count() == 1


@soak.slow
def test_sync_job_updates_converted_tables(
    spark: SparkSession, schema: str, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.run(sources=f"{schema}.orders", dry_run="false")
    table = f"{schema}.orders"
    folder = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"]
    spark.sql("SELECT 100 AS id, 1 AS amount").write.mode("append").parquet(folder)
    assert Job(monkeypatch, "convert_sync").run(sources=f"{schema}.*") == ["sync"]
    assert spark.sql(f"SELECT count(*), max(id) FROM {table}").collect() == [(11, 100)]
    assert providers(spark, schema) == {**PARQUET, "orders": "delta"}


def test_job_accepts_list_of_tables(spark: SparkSession, schema: str, job: Job) -> None:
    spark.sql(f"CREATE TABLE {schema}.others USING parquet AS SELECT 1 AS id")
    job.run(sources=f"{schema}.orders, {schema}.events", dry_run="false")
    assert providers(spark, schema) == {**DELTA, "others": "parquet"}


@soak.slow
def test_refused_table_fails_job_after_converting_the_others(
    spark: SparkSession, schema: str, job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "part-0.parquet").write_text("no Parquet file")
    spark.sql(f"CREATE TABLE {schema}.broken (id INT) USING parquet LOCATION '{tmp_path}/broken'")
    sources = f"{schema}.broken,{schema}.orders,{schema}.events"
    for dry_run, after in (("true", PARQUET), ("false", DELTA)):
        with pytest.raises(SystemExit) as left:
            job.run(sources=sources, dry_run=dry_run)
        assert left.value.code == 1
        assert "part-0.parquet" in "".join(capsys.readouterr())
        assert providers(spark, schema) == {**after, "broken": "parquet"}
    assert [path.name for path in (tmp_path / "broken").iterdir()] == ["part-0.parquet"]


def test_job_without_sources_exits_with_wrong_usage(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for sources in ("", " , \n"):
        with pytest.raises(SystemExit) as left:
            job.run(sources=sources, dry_run="false")
        assert left.value.code == 2
        assert "name a SOURCE" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
