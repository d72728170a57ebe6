"""Measure the update of a Hive copy: the time grows with the change, not with the table.

python benchmarks/shadow.py --partitions 10 100 1000

Creates a Hive table for each number of partitions, replaces it by an Iceberg or a Delta table, changes that
table, and times the run that updates the Hive copy. Bytes are those of the files that the run wrote.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.shadow_runs.update_hive_copy import shadow
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.spark import session
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "bench"
HIVE, TARGET = (TableName(("spark_catalog", SCHEMA, name)) for name in ("t_hive", "t"))

CHANGES: dict[str, Callable[[str], list[str]]] = {
    "nothing": lambda table: [],
    "rows appended to one partition": lambda table: [f"INSERT INTO {table} VALUES (-1, 'new', 1)"],
    "one row deleted": lambda table: [f"DELETE FROM {table} WHERE day = 2 AND id = 2"],
    "10 partitions updated": lambda table: [f"UPDATE {table} SET name = 'new' WHERE day < 10 AND id < 100"],
}


@dataclass(frozen=True)
class Measured:
    """One run: seconds, and bytes written."""

    form: str
    partitions: int
    change: str
    seconds: float
    written: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 100, 1000])
    parser.add_argument("--rows", type=int, default=1000, help="in each partition")
    parser.add_argument("--formats", nargs="*", choices=list(TargetFormat), default=list(TargetFormat))
    arguments = parser.parse_args()
    print(machine(), flush=True)
    measured = []
    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch:
        spark = session.resolve(Path(scratch, "warehouse"), iceberg=True, say=lambda line: None)
        for form in map(TargetFormat, arguments.formats):
            for count in arguments.partitions:
                folder = Path(scratch, f"{form}-{count}")
                measured += measure(spark, folder, form, count, arguments.rows)
        session.stop(spark)
    print(f"\n{markdown(measured, arguments.partitions)}")


def measure(
    spark: SparkSession, folder: Path, form: TargetFormat, partitions: int, rows: int
) -> list[Measured]:
    """Create a table of n partitions, and time a run after each change."""
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    baseline = make(spark, folder, form, partitions, rows)
    warehouse = Warehouse(spark, cast("Access", None))
    table = f"{'ice.' if form is TargetFormat.ICEBERG else ''}{SCHEMA}.t"
    measured = []
    # The first run sets the watermark, and warms up.
    for title, statements in {"first": CHANGES["nothing"], **CHANGES}.items():
        for statement in statements(table):
            spark.sql(statement)
        before = files(folder)
        started = time.perf_counter()
        shadow(warehouse, TARGET, HIVE, form, baseline)
        seconds = time.perf_counter() - started
        written = sum(size for path, size in files(folder).items() if path not in before)
        print(f"{form}, {partitions:,} partitions, {title}: {seconds:.1f} s, {written:,} bytes", flush=True)
        measured.append(Measured(form, partitions, title, seconds, written))
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")
    return measured[1:]


def make(spark: SparkSession, folder: Path, form: TargetFormat, partitions: int, rows: int) -> str:
    """Create the Hive table and the new table; return the watermark."""
    hive = folder / "t_hive"
    spark.sql(
        f"CREATE EXTERNAL TABLE {HIVE.sql} (id BIGINT, name STRING) PARTITIONED BY (day INT) "
        f"STORED AS PARQUET LOCATION '{hive}'"
    )
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the benchmark"):
        spark.sql(
            f"INSERT INTO {HIVE.sql} SELECT id, concat('name ', id), CAST(id % {partitions} AS INT) "
            f"FROM range(0, {partitions * rows}, 1, 1)"
        )
    if form is TargetFormat.DELTA:
        spark.sql(f"CONVERT TO DELTA parquet.`{hive}` PARTITIONED BY (day INT)")
        spark.sql(f"CREATE TABLE {TARGET.sql} USING delta LOCATION '{hive}'")
        return "0"
    target = f"ice.{SCHEMA}.t"
    spark.sql(
        f"CREATE TABLE {target} (id BIGINT, name STRING, day INT) USING iceberg PARTITIONED BY (day) "
        f"LOCATION '{folder}/t_iceberg' TBLPROPERTIES ('gc.enabled' = 'false')"
    )
    spark.sql(
        f"CALL ice.system.add_files(table => '{target}', source_table => 'spark_catalog.{SCHEMA}.t_hive')"
    )
    return str(spark.sql(f"SELECT snapshot_id FROM {target}.snapshots").collect()[0][0])


def files(folder: Path) -> dict[str, int]:
    """List a folder's files with their sizes."""
    return {str(path): path.stat().st_size for path in folder.rglob("*") if path.is_file()}


def machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("pyspark", "delta-spark")]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


def markdown(measured: list[Measured], partitions: list[int]) -> str:
    """Write a table: a row for each format and change, a column for each number of partitions."""
    by_case = {(cell.form, cell.change, cell.partitions): cell for cell in measured}
    heads = ["change", *(f"{count:,} partitions" for count in partitions)]
    rows = [heads, ["---", *["---:"] * len(partitions)]]
    for form, change in dict.fromkeys((cell.form, cell.change) for cell in measured):
        cells = [by_case[form, change, count] for count in partitions]
        texts = [f"{cell.seconds:.1f} s, {cell.written / 1000:,.0f} kB" for cell in cells]
        rows.append([f"{form.capitalize()}: {change}", *texts])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    main()
