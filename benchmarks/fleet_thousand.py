"""Measure the tables per hour that one worker or several workers check and migrate, with tiny tables.

python benchmarks/fleet_thousand.py --tables 200
python benchmarks/fleet_thousand.py --tables 1000 --queue postgresql --workers 8 --at-once 1 --output json

Creates a queue and Hive tables of one small file each, checks them as ``fleet preflight`` and ``fleet
preprocess`` do, announces all, and runs the migrator from ``Ready`` to probation. One command runs the
preflight, for any number of workers. Ten tables warm up and aren't counted. The workers are threads of one
process, each with a Spark session. PostgreSQL and MariaDB run in separate folders, and their commits wait for
the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[1]
# Replace this folder, because its modules would hide others of the same names.
sys.path[0] = str(ROOT)

from tests import servers  # noqa: E402

from tableferry.access.metastore_access import MetastoreAccess  # noqa: E402
from tableferry.fleet.checks.preflight_run import precheck  # noqa: E402
from tableferry.fleet.jobs.job import TargetFormat  # noqa: E402
from tableferry.fleet.modes.migrator import migrate  # noqa: E402
from tableferry.fleet.modes.preprocessor import preprocess  # noqa: E402
from tableferry.fleet.modes.results import ModeReport  # noqa: E402
from tableferry.fleet.modes.worker import Worker  # noqa: E402
from tableferry.fleet.queue.opening import PASSWORD_VARIABLE, open_store  # noqa: E402
from tableferry.fleet.queue.records import NewJob  # noqa: E402
from tableferry.fleet.queue.selections import named  # noqa: E402
from tableferry.fleet.settings import FleetSettings  # noqa: E402
from tableferry.fleet.warehouse.context import Warehouse  # noqa: E402
from tableferry.spark import session  # noqa: E402
from tableferry.spark.tables import TableName  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "bench"
WARM_UP = 10
QUEUES = ("sqlite", "postgresql", "mariadb", "delta")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--format", choices=("iceberg", "delta"), default="iceberg")
    parser.add_argument("--queue", choices=QUEUES, default="sqlite")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4, help="tables that a worker moves concurrently")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    os.environ[PASSWORD_VARIABLE] = servers.PASSWORD
    print(machine(), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch,
        queue(arguments.queue, Path(scratch)) as url,
    ):
        spark = session.resolve(Path(scratch, "warehouse"), iceberg=True, say=lambda line: None)
        found = measure(spark, Path(scratch, "lake"), url, arguments)
        session.stop(spark)
    if arguments.output == "json":
        print(json.dumps(found), flush=True)
    else:
        print(
            f"{found['tables']:,} tables: preflight in {found['preflight']:.1f} s, preprocess in "
            f"{found['preprocess']:.1f} s, migrated in {found['migrate']:.1f} s: "
            f"{found['an_hour']:,.0f} an hour"
        )


@contextmanager
def queue(kind: str, scratch: Path) -> Iterator[str]:
    """Yield the URL of a queue that doesn't exist yet."""
    match kind:
        case "postgresql":
            with servers.postgresql(durable=True) as url:
                yield url
        case "mariadb":
            with servers.mariadb(durable=True) as url:
                yield url
        case "delta":
            yield "delta:spark_catalog.fleet"
        case _:
            yield f"sqlite:///{scratch}/fleet.db"


def measure(spark: SparkSession, folder: Path, url: str, arguments: argparse.Namespace) -> dict[str, float]:
    """Migrate a few tables to warm up, and then the measured ones."""
    workers = [
        worker(session.beside(spark) or spark, url, number, arguments) for number in range(arguments.workers)
    ]
    workers[0].store.create()
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    move(workers, make(spark, folder, "warm", WARM_UP), arguments.format)
    taken = move(workers, make(spark, folder, "t", arguments.tables), arguments.format)
    for each in workers:
        each.store.close()
    an_hour = round(arguments.tables / taken["migrate"] * 3600)
    return {"tables": arguments.tables, **taken, "an_hour": an_hour}


def worker(spark: SparkSession, url: str, number: int, arguments: argparse.Namespace) -> Worker:
    """Return one of several workers, each with a session and a connection to the queue."""
    warehouse = Warehouse(spark, MetastoreAccess(spark))
    return Worker(
        open_store(url, spark),
        lambda: warehouse,
        FleetSettings(tables_at_once=arguments.at_once),
        f"bench-{number}",
        lambda: datetime.now(UTC),
        share=(number, arguments.workers),
    )


def move(workers: Sequence[Worker], names: Sequence[TableName], form: str) -> dict[str, float]:
    """Check, announce and migrate tables; return the seconds of the check and of the migration."""
    store, now, lease = workers[0].store, datetime.now(UTC), workers[0].settings.lease
    started = time.perf_counter()
    new = [NewJob(name, TargetFormat(form)) for name in names]
    seen = precheck(store, workers[0].open_warehouse(), new, workers[0].settings.tables_at_once)
    prechecked = round(time.perf_counter() - started, 3)
    assert not any(table.findings for table in seen)
    store.add([NewJob(name, TargetFormat(form), initial_gap_days=0) for name in names], now)
    looked = timed(preprocess, workers, len(names))
    claimed = store.claim(named(names), workers[0].name, now=now, lease=lease, limit=len(names))
    store.save_all([replace(job, comm_level1_date=now) for job in claimed], now, release=True)
    migrated = timed(migrate, workers, len(names))
    return {"preflight": prechecked, "preprocess": looked, "migrate": migrated}


def timed(mode: Callable[[Worker], ModeReport], workers: Sequence[Worker], count: int) -> float:
    """Run a mode in all workers, and return the seconds until n tables are done."""
    started = time.perf_counter()
    with ThreadPoolExecutor(len(workers)) as pool:
        reports = [job for report in pool.map(mode, workers) for job in report.jobs]
    seconds = time.perf_counter() - started
    wrong = [job.error or job.job.pause_reason for job in reports if job.outcome != "done"]
    assert not wrong, wrong[:3]
    assert len(reports) == count, f"{len(reports)} tables, not {count}"
    return round(seconds, 3)


def make(spark: SparkSession, folder: Path, prefix: str, count: int) -> Sequence[TableName]:
    """Create Hive tables of one small file each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = []
    for number in range(count):
        table = f"{prefix}{number:05}"
        (folder / table).mkdir(parents=True)
        rows = {"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", "b", None]}
        pq.write_table(pa.table(rows), folder / table / "part-0.parquet")
        name = TableName(("spark_catalog", SCHEMA, table))
        spark.sql(
            f"CREATE EXTERNAL TABLE {name.sql} (id BIGINT COMMENT 'its number', name STRING) "
            f"STORED AS PARQUET LOCATION '{folder / table}'"
        )
        names.append(name)
    return names


def machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark")]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


if __name__ == "__main__":
    main()
