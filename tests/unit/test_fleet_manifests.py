"""What a manifest says of a partition's values."""

from __future__ import annotations

import pytest

from tableferry.fleet.plan import Kind
from tableferry.fleet.warehouse.data_files import values_of
from tableferry.fleet.warehouse.eligibility import HiveColumn, HiveTable
from tableferry.fleet.warehouse.manifest_file import Value
from tableferry.hive.partitions import NULL
from tableferry.tables import TableName


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
def test_values_are_those_of_their_types_or_none(kind: str, text: str, expected: Value) -> None:
    table = HiveTable(
        TableName(("spark_catalog", "s", "t")),
        Kind.HIVE,
        columns=(HiveColumn("P", {"name": kind}), HiveColumn("q", {"name": "int"})),
        partition_columns=("P", "q"),
    )
    found = values_of(table, f"p={text}/q={NULL}")
    assert found == (None if expected is None else (expected, None))
