"""Directories of files with many columns and row groups, as real lakes have them, by several writers."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 100
WRITERS = ("pyarrow", "spark", "polars")
FOLDER = "day=2020-01-01"


@dataclass(frozen=True)
class Shape:
    """The columns, row groups and writer of a directory's files."""

    files: int
    columns: int
    groups: int
    writer: str

    @property
    def title(self) -> str:
        """Files, columns and row groups of each file."""
        return f"{self.files}, {self.columns}, {self.groups} by {self.writer}"


SHAPES = tuple(
    Shape(*sizes, writer) for sizes in ((300, 100, 8), (200, 500, 1), (20, 20, 400)) for writer in WRITERS
)


def write(shape: Shape, folder: Path) -> None:
    """Write the files, in one partition; Spark and Polars write again what pyarrow has written."""
    import pyarrow.parquet as pq

    first = folder / FOLDER if shape.writer == "pyarrow" else folder / "first"
    first.mkdir(parents=True)
    for number in range(shape.files):
        rows = table(shape.columns, GROUP_ROWS * shape.groups, number)
        pq.write_table(rows, first / f"part-{number:05}.parquet", row_group_size=GROUP_ROWS)
    if shape.writer == "spark":
        _by_spark(first, folder / FOLDER)
    elif shape.writer == "polars":
        _by_polars(first, folder / FOLDER)
    if first != folder / FOLDER:
        shutil.rmtree(first)


def table(columns: int, rows: int, seed: int) -> pa.Table:
    """Make rows of eight kinds of columns, by turns."""
    import pyarrow as pa
    import pyarrow.compute as pc

    begin = 1_704_067_200_000_000
    chance = pc.random(rows, initializer=seed)
    made = {}
    for number in range(columns):
        numbers = pc.cast(pc.floor(pc.multiply(chance, float((number + 2) * 10_000))), pa.int64())
        match number % 8:
            case 0:
                column = numbers
            case 1:
                column = pc.cast(numbers, pa.int32())
            case 2:
                column = pc.multiply(chance, 1000.0)
            case 3:
                column = pc.binary_join_element_wise("item", pc.cast(numbers, pa.string()), " ")
            case 4:
                column = pc.cast(pc.add(numbers, begin), pa.timestamp("us", "UTC"))
            case 5:
                column = pc.cast(pc.cast(numbers, pa.int32()), pa.date32())
            case 6:
                cents = pc.cast(pc.round(pc.multiply(chance, 1000.0), 2), pa.decimal128(12, 2))
                column = pc.if_else(pc.less(chance, 0.1), None, cents)
            case _:
                column = pc.less(chance, 0.5)
        made[f"column_{number}"] = column
    return pa.table(made)


def _by_spark(first: Path, folder: Path) -> None:
    from tableferry.spark import session

    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as scratch:
        spark = session.resolve(Path(scratch, "warehouse"), say=lambda text: None)
        # One task, and so one file, for each existing file.
        spark.conf.set("spark.sql.files.openCostInBytes", str(1 << 30))
        rows = spark.read.parquet(str(first))
        rows.write.option("parquet.block.row.count.limit", GROUP_ROWS).parquet(str(folder))
        session.stop(spark)
    for path in folder.iterdir():
        if path.suffix != ".parquet" or path.name.startswith((".", "_")):
            path.unlink()


def _by_polars(first: Path, folder: Path) -> None:
    import polars as pl  # type: ignore[import-not-found, unused-ignore]

    folder.mkdir()
    for path in first.iterdir():
        pl.read_parquet(path).write_parquet(folder / path.name, row_group_size=GROUP_ROWS)
