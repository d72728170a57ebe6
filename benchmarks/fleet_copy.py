"""Measure the copy of a Hive table to Iceberg, compared with Iceberg's add_files and snapshot.

python benchmarks/fleet_copy.py --files 2000 20000
python benchmarks/fleet_copy.py --files 2000 --output json

Creates a partitioned Hive table of small Parquet files and, in turns in one session, an Iceberg table over
its files: by the fleet's copy step, by ``add_files`` into an empty table, and by ``snapshot``. The first turn
warms up and isn't counted. Prints the medians of the other turns, in seconds of the whole step.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

from tableferry.fleet.copies import iceberg
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.spark import session
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "bench"
SOURCE, TARGET = (TableName(("spark_catalog", SCHEMA, name)) for name in ("t", "t_iceberg"))
FILES_A_DAY, ROWS = 100, 100
COLUMNS = "id bigint, qty int, price double, name string, at timestamp, d date, amt decimal(12,2), ok boolean"
WAYS = ("ours", "add_files", "snapshot")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="*", default=[2000])
    parser.add_argument("--repeat", type=int, default=3, help="turns that count")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    print(machine(), flush=True)
    for count in arguments.files:
        with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch:
            spark = session.resolve(Path(scratch, "warehouse"), iceberg=True, say=lambda line: None)
            found = measure(spark, Path(scratch, "lake"), count, arguments.repeat)
            session.stop(spark)
        if arguments.output == "text":
            times = ", ".join(f"{way} {seconds:.1f} s" for way, seconds in found.items())
            print(f"{count:,} files: {times}", flush=True)
        else:
            print(json.dumps({way: round(seconds, 3) for way, seconds in found.items()}), flush=True)


def measure(spark: SparkSession, folder: Path, files: int, repeat: int) -> dict[str, float]:
    """Copy a table of n files in each way, in turns."""
    warehouse = Warehouse(spark, cast("Access", None))
    make(spark, folder, files)
    copies = {"ours": ours, "add_files": add_files, "snapshot": snapshot}
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(1 + repeat):
        for way, copy in copies.items():
            started = time.perf_counter()
            copy(warehouse)
            taken[way].append(time.perf_counter() - started)
            table = warehouse.iceberg(TARGET).sql
            [[count]] = spark.sql(f"SELECT count(*) FROM {table}.files").collect()
            assert count == files, f"{way} made a table of {count} files, not of {files}"
            spark.sql(f"DROP TABLE {table}")
    return {way: median(seconds[1:]) for way, seconds in taken.items()}


def make(spark: SparkSession, folder: Path, files: int) -> None:
    """Create a Hive table with n files, a hundred in each partition."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number in range(files):
        ids = range(number * ROWS, (number + 1) * ROWS)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "qty": pa.array([value % 50 for value in ids], pa.int32()),
                "price": [value / 7 for value in ids],
                "name": [f"item {value}" for value in ids],
                "at": pa.array([1_700_000_000_000_000 + value for value in ids], pa.timestamp("us", "UTC")),
                "d": pa.array([value % 9000 for value in ids], pa.int32()).cast(pa.date32()),
                "amt": pa.array([value % 1000 for value in ids], pa.int32()).cast(pa.decimal128(12, 2)),
                "ok": [value % 2 == 0 for value in ids],
            }
        )
        day = folder / f"day={number // FILES_A_DAY}"
        day.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, day / f"part-{number:06}.parquet")
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    spark.sql(
        f"CREATE EXTERNAL TABLE {SOURCE.sql} ({COLUMNS}) PARTITIONED BY (day int) STORED AS parquet "
        f"LOCATION '{folder}'"
    )
    spark.sql(f"MSCK REPAIR TABLE {SOURCE.sql}")


def ours(warehouse: Warehouse) -> None:
    iceberg.create_copy(warehouse, SOURCE, TARGET)


def add_files(warehouse: Warehouse) -> None:
    table = hive.require_hive_table(warehouse, SOURCE)
    target = warehouse.iceberg(TARGET)
    warehouse.spark.sql(iceberg.create_statement(table, target))
    warehouse.spark.sql(
        f"CALL {target.parts[0]}.system.add_files(table => '{target.sql}', source_table => '{SOURCE.sql}')"
    ).collect()


def snapshot(warehouse: Warehouse) -> None:
    target = warehouse.iceberg(TARGET)
    warehouse.spark.sql(
        f"CALL {target.parts[0]}.system.snapshot(source_table => '{SOURCE.sql}', table => '{target.sql}')"
    ).collect()


def machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark")]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


if __name__ == "__main__":
    main()
