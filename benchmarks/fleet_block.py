"""Measure how long a migration locks writers out of a Hive table, by the size of the table.

python benchmarks/fleet_block.py --files 10 100 1000 5000
python benchmarks/fleet_block.py --files 1000 --rows 100000 --format delta --output json

Creates partitioned Hive tables of n Parquet files, and migrates them one after the other to Iceberg and to
Delta, as a worker does. A writer adds one more file to each table directly before its rights are revoked.
Prints the seconds between the revocation and the restoration of the rights, and the seconds of the whole
migration. A small table of each format warms up and isn't counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry.access.metastore_access import MetastoreAccess
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.modes.migrator import migrate
from tableferry.fleet.modes.preprocessor import preprocess
from tableferry.fleet.modes.worker import Worker
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import named
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "bench"
FILES_A_DAY = 100


class Rights(MetastoreAccess):
    """Rights with the times of their revocation and restoration; a writer ends directly before."""

    def __init__(self, spark: SparkSession, last_write: Callable[[], None]) -> None:
        """Store the session and the writer."""
        super().__init__(spark)
        self.last_write, self.taken, self.given_back = last_write, 0.0, 0.0

    def rights_to_write(self, table: TableName) -> Mapping[str, Any]:
        """Return one right until it is revoked."""
        return {} if self.taken else {"writer": "INSERT"}

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Let the writer end, and record the time."""
        self.last_write()
        self.taken = time.perf_counter()

    def give_back(self, table: TableName, rights: Mapping[str, Any]) -> None:
        """Record the time; of two calls the last one counts."""
        self.given_back = time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="*", default=[10, 100, 1000, 5000])
    parser.add_argument("--rows", type=int, default=1000, help="in each file")
    parser.add_argument("--format", nargs="*", choices=list(TargetFormat), default=list(TargetFormat))
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch:
        spark = session.resolve(Path(scratch, "warehouse"), iceberg=True, say=lambda line: None)
        spark.sql(f"CREATE SCHEMA {SCHEMA}")
        for form in map(TargetFormat, arguments.format):
            measure(spark, Path(scratch), form, 5, 10)
        for files, form in product(arguments.files, map(TargetFormat, arguments.format)):
            found = measure(spark, Path(scratch), form, files, arguments.rows)
            if arguments.output == "json":
                print(json.dumps(found), flush=True)
            else:
                print(
                    f"{files:,} files, {found['bytes'] / 2**20:,.1f} MiB, to {form.value}: writers locked "
                    f"out for {found['locked_out']:.1f} s of {found['migrate']:.1f} s",
                    flush=True,
                )
        session.stop(spark)


def measure(spark: SparkSession, scratch: Path, form: TargetFormat, files: int, rows: int) -> dict[str, Any]:
    """Migrate a table of n files, with one more file at the last moment."""
    table = f"t{files}_to_{form.value}"
    name, folder, now = TableName(("spark_catalog", SCHEMA, table)), scratch / table, datetime.now(UTC)
    for number in range(files):
        write(folder / f"day={number // FILES_A_DAY}", number, rows)
    spark.sql(
        f"CREATE EXTERNAL TABLE {name.sql} (id BIGINT, price DOUBLE, name STRING) PARTITIONED BY (day INT) "
        f"STORED AS PARQUET LOCATION '{folder}'"
    )
    spark.sql(f"MSCK REPAIR TABLE {name.sql}")
    store, settings = open_store(f"sqlite:///{scratch / table}.db"), FleetSettings()
    store.create()
    access = Rights(spark, lambda: write(folder / "day=0", files, rows))
    worker = Worker(store, lambda: Warehouse(spark, access), settings, "bench", lambda: datetime.now(UTC))
    store.add([NewJob(name, form, initial_gap_days=0)], now)
    preprocess(worker)
    [job] = store.claim(named([name]), worker.name, now=now, lease=settings.lease, limit=1)
    store.save(replace(job, comm_level1_date=now), now, release=True)
    started = time.perf_counter()
    [report] = migrate(worker).jobs
    seconds = time.perf_counter() - started
    assert report.outcome == "done", report.error
    new = worker.open_warehouse().named(name, form)
    [[count]] = spark.sql(f"SELECT count(*) FROM {new.sql}").collect()
    assert count == (files + 1) * rows, f"{count} rows, not {(files + 1) * rows}"
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    return {
        "format": form.value,
        "files": files,
        "bytes": size,
        "locked_out": round(access.given_back - access.taken, 3),
        "migrate": round(seconds, 3),
    }


def write(day: Path, number: int, rows: int) -> None:
    """Write a file of n rows into a partition's directory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = range(number * rows, (number + 1) * rows)
    table = {
        "id": pa.array(ids, pa.int64()),
        "price": [value / 7 for value in ids],
        "name": [f"item {value}" for value in ids],
    }
    day.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), day / f"part-{number:06}.parquet")


def machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark")]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


if __name__ == "__main__":
    main()
