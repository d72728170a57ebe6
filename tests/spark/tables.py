"""Read and write tables of Spark's catalog in tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def tables_in(spark: SparkSession, schema: str) -> list[str]:
    """Return the names of a schema's tables without temporary views, which `SHOW TABLES` also lists."""
    shown = spark.sql(f"SHOW TABLES IN {schema}").where("NOT isTemporary").sort("tableName")
    return [row["tableName"] for row in shown.collect()]


def schema_folder(spark: SparkSession, schema: str) -> Path:
    """Return the folder of a schema's tables."""
    facts = {row[0]: row[1] for row in spark.sql(f"DESCRIBE SCHEMA {schema}").collect()}
    return Path(facts["Location"].removeprefix("file:"))


def rows_of(folder: Path, columns: Sequence[str] = ()) -> list[tuple[Any, ...]]:
    """Read a Delta table's rows with delta-rs, in a hundredth of the time that Spark takes."""
    import deltalake

    batches = deltalake.DeltaTable(folder).to_pyarrow_table(columns=list(columns) or None).to_batches()
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def append(folder: Path, rows: Sequence[Sequence[object]]) -> None:
    """Append rows to a Delta table with delta-rs."""
    import deltalake
    import pyarrow

    table = deltalake.DeltaTable(folder)
    schema = pyarrow.schema(table.schema().to_arrow())
    named = [dict(zip(schema.names, row, strict=True)) for row in rows]
    deltalake.write_deltalake(table, pyarrow.Table.from_pylist(named, schema=schema), mode="append")


def clean_log(folder: Path) -> None:
    """Drop all commits of a Delta table but the newest; a checkpoint contains their actions."""
    import deltalake

    deltalake.DeltaTable(folder).create_checkpoint()
    *old, _ = sorted(folder.joinpath("_delta_log").glob("*.json"))
    for path in old:
        path.unlink()
