"""Measure the start of a project: seconds and Spark jobs until every flow is defined, before rows are copied.

For 1, 5, 20 and 100 append targets with a migration and two sources each, in a warm session:

- first start: nothing is recorded; every baseline and pinned copy is found and written;
- later start: every target is copied, and no source has a new commit;
- after a commit: every source has one new commit, so every flow is defined with its starting version.

No table is copied, because only the start is measured: the benchmark creates the targets, and records that
they are copied. The last column compares the CPU seconds of this process and its Java process with those of
one DESCRIBE HISTORY for each source.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
from arro3.core import Array, DataType, Table

from tableferry import pipelines
from tableferry.pipelines.engines.port import apply_definitions
from tableferry.pipelines.model.steps import RecordStart
from tableferry.pipelines.model.target_state import Tracking
from tableferry.pipelines.state.store import StateStore
from tableferry.spark import session
from tableferry.testing import RecordingEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCES = 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--targets", type=int, nargs="*", default=[1, 5, 20, 100])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tableferry-bench-"))
    try:
        spark = session.resolve(folder / "warehouse")
        machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
        print(f"{machine}, Spark {spark.version}")
        print(f"{'targets':>8} {'start':<15} {'seconds':>8} {'Spark jobs':>11} {'of DESCRIBE HISTORY':>20}")
        measure(spark, folder / "warm-up", 2, quiet=True)
        for targets in arguments.targets:
            measure(spark, folder / str(targets), targets)
        session.stop(spark)
    finally:
        shutil.rmtree(folder)


def measure(spark: SparkSession, folder: Path, targets: int, *, quiet: bool = False) -> None:
    """Build a project and time its three kinds of start."""
    schema = f"bench_{targets}_{'warm' if quiet else 'run'}"
    spark.sql(f"CREATE SCHEMA {schema}")
    tables = [
        f"{kind}_{n}" for n in range(targets) for kind in ("legacy", *(f"source{s}" for s in range(SOURCES)))
    ]
    for table in tables:
        write(folder / "tables" / table)
        spark.sql(f"CREATE TABLE {schema}.{table} USING delta LOCATION '{folder / 'tables' / table}'")
    project = folder / "project"
    for n in range(targets):
        write_spec(project, schema, n)
    (project / "pipeline_configs").mkdir()
    settings = {"table_migration_state_volume_path": str(folder / "state")}
    (project / "pipeline_configs" / "global.json").write_text(json.dumps(settings))

    def start() -> None:
        planned = pipelines.plan(project, spark, pipeline_id="bench")
        assert not planned.refusals, planned.refusals
        engine = RecordingEngine()
        store = StateStore(folder / "state", "bench")
        for target in planned.targets:
            for step in target.state_steps:
                assert isinstance(step, RecordStart)
                assert store.record_start(step.migration_start)
            apply_definitions(target.definitions, engine)

    def describe() -> None:
        for table in tables:
            if table.startswith("source"):
                spark.sql(f"DESCRIBE HISTORY {schema}.{table}").collect()

    describe()
    cpu = cpu_seconds(spark)
    describe()
    unit = cpu_seconds(spark) - cpu

    def show(what: str, work: Callable[[], None]) -> None:
        before, started, cpu = jobs(spark), time.perf_counter(), cpu_seconds(spark)
        work()
        seconds, ran = time.perf_counter() - started, jobs(spark) - before
        if not quiet:
            ratio = (cpu_seconds(spark) - cpu) / unit
            print(f"{targets:>8} {what:<15} {seconds:>8.2f} {ran:>11} {ratio:>20.2f}", flush=True)

    show("first start", start)
    store = StateStore(folder / "state", "bench")
    for n in range(targets):
        write(folder / "tables" / f"target_{n}")
        spark.sql(
            f"CREATE TABLE {schema}.target_{n} USING delta LOCATION '{folder / 'tables' / f'target_{n}'}'"
        )
    for planned in pipelines.plan(project, spark, pipeline_id="bench").targets:
        assert planned.migration_start
        store.record_progress(planned.migration_start, Tracking({}, 0, 1, "match"))
    show("later start", start)
    for table in tables:
        if table.startswith("source"):
            write(folder / "tables" / table)
    show("after a commit", start)


def write(path: Path) -> None:
    """Commit one row to a Delta table."""
    row = Table.from_arrays(
        [Array([1], type=DataType.int64()), Array(["a"], type=DataType.utf8())], names=["id", "value"]
    )
    deltalake.write_deltalake(path, row, mode="append")


def write_spec(project: Path, schema: str, n: int) -> None:
    """Write a flow spec: one append flow for each source."""
    flows = {
        f"f_{s}": {
            "flowType": "append_view",
            "flowDetails": {"targetTable": f"{schema}.target_{n}", "sourceView": f"v_{s}"},
            "views": {
                f"v_{s}": {
                    "mode": "stream",
                    "sourceType": "delta",
                    "sourceDetails": {"database": schema, "table": f"source{s}_{n}"},
                }
            },
        }
        for s in range(SOURCES)
    }
    spec = {
        "dataFlowId": f"target_{n}",
        "dataFlowGroup": "bench",
        "dataFlowType": "flow",
        "targetFormat": "delta",
        "targetDetails": {"database": schema, "table": f"target_{n}"},
        "flowGroups": [{"flowGroupId": "main", "flows": flows}],
        "tableMigrationDetails": {
            "enabled": True,
            "catalogType": "hms",
            "sourceDetails": {"database": schema, "table": f"legacy_{n}"},
            # The default compares rows to find the hand-over point: benchmarks/hand_over.py measures that.
            "handOver": "version",
        },
    }
    folder = project / "dataflows" / f"target_{n}" / "dataflowspec"
    folder.mkdir(parents=True)
    (folder / f"target_{n}_main.json").write_text(json.dumps(spec))


def cpu_seconds(spark: SparkSession) -> float:
    """Return the CPU seconds of this process and its Java process."""
    gateway = spark.sparkContext._gateway
    assert gateway
    fields = Path(f"/proc/{gateway.proc.pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(map(int, fields[11:15]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def jobs(spark: SparkSession) -> int:
    """Count the Spark jobs so far: ids are given out in order."""
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(), default=-1) + 1


if __name__ == "__main__":
    main()
