"""Conversions on storage that only Spark can access, with inferred partitions."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak

from tableferry import convert
from tableferry.convert.catalog import native_engine


@pytest.fixture
def far(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """Return a location that Spark can access by a Hadoop file system, and this process can't."""
    # Hadoop caches mounts by name.
    name = uuid.uuid4().hex
    link = f"fs.viewfs.mounttable.{name}.link./data"
    spark.conf.set(link, f"file:{tmp_path}")
    spark.sql("SELECT id, int(id % 2) AS k, 'a' AS day FROM range(4)").write.partitionBy("k", "day").parquet(
        f"{tmp_path}/t"
    )
    yield f"viewfs://{name}/data/t"
    spark.conf.unset(link)


@soak.slow
def test_storage_of_spark_alone_is_converted_by_native_engine(
    spark: SparkSession, far: str, tmp_path: Path
) -> None:
    planned = convert.run([far], spark, dry_run=True).tables[0]

    assert planned.plan is not None
    assert (planned.plan.engine, planned.plan.because) == ("native", "only Spark reaches its storage")
    assert (planned.plan.files, [str(column) for column in planned.plan.partition_columns]) == (
        4,
        ["k int", "day string"],
    )
    assert not (tmp_path / "t" / "_delta_log").exists()

    done = convert.run([far], spark, verify=True).tables[0]

    assert (done.outcome, done.error) == ("converted", None)
    assert done.verdict is not None
    assert done.verdict.matches
    rows = spark.sql(f"SELECT id, k, day FROM delta.`{far}` ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(0, 0, "a"), (1, 1, "a"), (2, 0, "a"), (3, 1, "a")]
    assert convert.run([far], spark).tables[0].outcome == "already"
    with conditions.raises("UNDO_OUT_OF_REACH", folder=far):
        convert.undo(far, spark)


@soak.slow
def test_file_missing_in_native_log_is_reported(
    spark: SparkSession, far: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = "SELECT 9 AS id, 1 AS k, 'a' AS day"

    def write() -> None:
        spark.sql(late).write.partitionBy("k", "day").mode("append").parquet(f"{tmp_path}/t")

    real = native_engine.convert

    def slow(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        write()

    with monkeypatch.context() as patched:
        patched.setattr(native_engine, "convert", slow)
        failed = convert.run([far], spark).tables[0]
    afterwards = convert.run([far], spark).tables[0]

    assert failed.outcome == "failed"
    conditions.check(
        failed.error,
        "FILES_CHANGED_DURING_NATIVE_CONVERSION",
        table=far,
        changes=re.compile("^k=1/day=a/part-"),
    )
    assert afterwards.outcome == "refused"
    conditions.check(
        afterwards.error,
        "FILES_CHANGED_SINCE_CONVERSION",
        changes=re.compile("appeared"),
        undo=re.compile(f"remove {re.escape(far)}/_delta_log"),
    )


def test_tableferry_engine_refuses_storage_of_spark_alone(spark: SparkSession, far: str) -> None:
    table = convert.run([far], spark, engine=convert.Engine.TABLEFERRY).tables[0]

    assert table.outcome == "refused"
    conditions.check(table.error, "LOG_OUT_OF_REACH", table=far)


@soak.slow
def test_native_engine_option_converts_local_folder(spark: SparkSession, far: str, tmp_path: Path) -> None:
    table = convert.run(
        [f"{tmp_path}/t"], spark, engine=convert.Engine.NATIVE, statistics=convert.Statistics.NONE
    ).tables[0]

    assert table.outcome == "converted"
    [history] = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/t`").select("operationParameters").collect()
    assert history[0]["collectStats"] == "false"
    assert spark.read.format("delta").load(f"{tmp_path}/t").count() == 4
