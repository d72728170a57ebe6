"""Measure a hand-over: seconds until a table's flows run in it, or in a verified copy of it.

A stream has filled a table with all but the last of its source's commits. Then a project takes it over, or
copies it, by the stream's checkpoint or by comparing rows (``handOver: content``). Each run also processes
the last commit.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry import pipelines
from tableferry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMMITS = 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000, 10_000_000])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tableferry-bench-"))
    try:
        spark = session.resolve(folder / "warehouse")
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        print(f"{machine}, Spark {spark.version}")
        print(f"{'rows':>11} {'taken over':>11} {'copied':>8} {'copied, by content':>19}")
        measure(spark, folder, 1_000)
        for rows in arguments.rows:
            seconds = measure(spark, folder, rows)
            print(f"{rows:>11,} {seconds[0]:>9.1f} s {seconds[1]:>6.1f} s {seconds[2]:>17.1f} s")
        session.stop(spark)
    finally:
        shutil.rmtree(folder)


def measure(spark: SparkSession, folder: Path, rows: int) -> tuple[float, float, float]:
    """Return the seconds that each way takes, once each."""
    schema, root = f"rows_{rows}", folder / str(rows)
    spark.sql(f"CREATE SCHEMA {schema}")
    for commit in range(COMMITS):
        ids = spark.range(commit * rows // COMMITS, (commit + 1) * rows // COMMITS)
        frame = ids.selectExpr("id", "id % 1000 AS customer", "uuid() AS note", "current_timestamp() AS at")
        frame.write.format("delta").mode("append").saveAsTable(f"{schema}.src")
        if commit == COMMITS - 2:
            stream(spark, schema, root)
    copied = project(schema, root / "copied", "copied", {"checkpointLocation": str(root / "old")}, {})
    by_content = project(schema, root / "by_content", "by_content", {}, {"handOver": "content"})
    taken = {"checkpointLocation": str(root / "old")}
    taken_over = project(schema, root / "taken", "legacy", taken, {"mode": "takeOver"})
    seconds = [timed(spark, each) for each in (copied, by_content, taken_over)]
    for table in ("legacy", "copied", "by_content"):
        assert spark.table(f"{schema}.{table}").count() == rows, table
    spark.sql(f"DROP SCHEMA {schema} CASCADE")
    return seconds[2], seconds[0], seconds[1]


def stream(spark: SparkSession, schema: str, root: Path) -> None:
    """Let the old stream process all commits."""
    writer = spark.readStream.table(f"{schema}.src").writeStream.format("delta").trigger(availableNow=True)
    writer.option("checkpointLocation", str(root / "old")).toTable(f"{schema}.legacy").awaitTermination()


def project(schema: str, root: Path, target: str, source: dict[str, Any], details: dict[str, Any]) -> Path:
    """Write a project of one target."""
    spec = {
        "dataFlowId": target,
        "dataFlowGroup": "g",
        "dataFlowType": "standard",
        "sourceSystem": "s",
        "sourceType": "delta",
        "sourceViewName": "v_src",
        "sourceDetails": {"database": schema, "table": "src"},
        "mode": "stream",
        "targetFormat": "delta",
        "targetDetails": {"database": schema, "table": target},
        "tableMigrationDetails": {
            "enabled": True,
            "catalogType": "uc",
            "sourceDetails": {"database": schema, "table": "legacy", **source},
            **details,
        },
    }
    for name, content in (
        ("dataflows/d/dataflowspec/target_main.json", spec),
        ("pipeline_configs/global.json", {"table_migration_state_volume_path": "state"}),
    ):
        path = root / name
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return root


def timed(spark: SparkSession, root: Path) -> float:
    """Run a project, and return its seconds."""
    started = time.perf_counter()
    assert pipelines.run(root, spark).ok
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
