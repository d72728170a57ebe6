"""Partition values and file metrics in a manifest."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import parser
from pyiceberg.expressions.visitors import _StrictMetricsEvaluator
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, NestedField
from tests import conditions

from tableferry.fleet.copies.iceberg_files.data_files import (
    Change,
    Entry,
    Leaf,
    Leaves,
    Value,
    partition_values,
    read_entries,
    sample_files,
)
from tableferry.fleet.copies.iceberg_files.manifest import data_file
from tableferry.fleet.hive_tables.hive_table import HiveColumn, HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.formats.hive.partitions import NULL, CatalogPartition
from tableferry.formats.parquet.iceberg_metrics import read_end
from tableferry.spark.tables import TableName


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("int", "-07", -7),
        ("int", "2147483647", 2**31 - 1),
        ("int", "2147483648", None),
        ("tinyint", "-129", None),
        ("bigint", "2147483648", 2**31),
        ("int", "1_0", None),
        ("int", "x", None),
        ("date", "1969-12-31", -1),
        ("date", "2023-02-30", None),
        ("date", "0000-01-01", None),
        ("date", "2023-2-3", None),
        ("string", "a%2Fb %25", "a/b %"),
        ("varchar", "", ""),
        ("double", "1.5", None),
        ("timestamp_ltz", "2024-01-01", None),
    ],
)
def test_partition_values_are_parsed_by_column_type(kind: str, text: str, expected: Value) -> None:
    table = HiveTable(
        TableName(("spark_catalog", "s", "t")),
        Kind.HIVE,
        columns=(HiveColumn("P", {"name": kind}), HiveColumn("q", {"name": "int"})),
        partition_columns=("P", "q"),
    )
    found = partition_values(table, f"p={text}/q={NULL}")
    assert found == (None if expected is None else (expected, None))


def entry_of(folder: Path, table: pa.Table, kind: str = "double") -> Entry:
    """Describe a file of a table that is partitioned by `Day`; its columns x and Day have the ids 1 and 2."""
    pq.write_table(table, path := folder / "a.parquet")
    source = HiveTable(
        TableName(("spark_catalog", "s", "t")),
        Kind.HIVE,
        location=f"file:{folder.parent}",
        columns=(HiveColumn("x", {"name": "double"}), HiveColumn("Day", {"name": "string"})),
        partition_columns=("Day",),
    )
    partition, file = CatalogPartition("day=mon", f"file:{folder}"), ListedFile(f"file:{path}", 1, 0)
    change, end = Change(source, [partition], [file], {}), read_end(str(path), path.stat().st_size)
    leaves: Leaves = {("x",): Leaf(1, kind), ("Day",): Leaf(2, "string")}
    entries = read_entries(change, leaves, lambda _: [end])
    assert entries is not None
    return entries[0]


def test_partition_column_in_a_file_gets_no_metrics(tmp_path: Path) -> None:
    metrics = entry_of(tmp_path, pa.table({"x": [1.0], "Day": ["tue"]})).metrics
    # Otherwise Iceberg would skip the file for Day = 'mon', the value of all its rows.
    assert 2 not in metrics.lowest | metrics.highest | metrics.nulls | metrics.sizes


def test_delete_does_not_remove_a_whole_file_with_nan(tmp_path: Path) -> None:
    file = data_file(entry_of(tmp_path, pa.table({"x": [1.0, float("nan")]})))
    schema = Schema(NestedField(1, "x", DoubleType(), required=False))
    # Iceberg removes whole files by this evaluator. In Spark, NaN isn't below 5.
    assert not _StrictMetricsEvaluator(schema, parser.parse("x < 5.0")).eval(file)


@pytest.mark.parametrize(("precision", "scale", "refused"), [(9, 2, False), (18, 2, False), (18, 4, True)])
def test_decimals_with_another_scale_are_refused(
    tmp_path: Path, precision: int, scale: int, refused: bool
) -> None:
    table = pa.table({"x": pa.array([Decimal("1.23")], pa.decimal128(9, 2))})
    if not refused:
        assert entry_of(tmp_path, table, f"decimal({precision}, {scale})").metrics.lowest == {1: b"\x7b"}
        return
    with conditions.raises(
        "DECIMAL_SCALE_DIFFERS", file=re.compile("a.parquet"), column="x", found=2, expected=4
    ):
        entry_of(tmp_path, table, f"decimal({precision}, {scale})")


def test_sample_files_include_each_spelling_of_a_column(tmp_path: Path) -> None:
    """Hive ignores the case of column names. Iceberg finds only the exact names in its mapping."""
    source = HiveTable(
        TableName(("spark_catalog", "s", "t")),
        Kind.HIVE,
        location=f"file:{tmp_path}",
        columns=(HiveColumn("id", {"name": "int"}), HiveColumn("name", {"name": "string"})),
    )
    files = []
    for number, names in enumerate([["ID", "name"], ["Id", "name"], ["Id", "name"], ["id", "name", "ID2"]]):
        pq.write_table(
            pa.table([[1], ["a"], [2]][: len(names)], names), path := tmp_path / f"{number}.parquet"
        )
        files.append(ListedFile(f"file:{path}", path.stat().st_size, 0))
    leaves: Leaves = {("id",): Leaf(1, "int"), ("name",): Leaf(2, "string")}
    entries = read_entries(
        Change(source, [], files, {}),
        leaves,
        lambda files: [read_end(file.path.removeprefix("file:"), file.size) for file in files],
    )
    assert entries is not None
    samples = [Path(sample).name for sample in sample_files(source, entries, leaves)]
    assert samples in (["0.parquet", "1.parquet"], ["0.parquet", "2.parquet"])
