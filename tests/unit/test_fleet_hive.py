"""What a table's description says of the format of its files."""

from __future__ import annotations

import pytest

from tableferry.fleet.warehouse.hive import table_of
from tableferry.spark.tables import TableName

_HIVE = "org.apache.hadoop.hive.ql.io"


@pytest.mark.parametrize(
    ("serde", "input_format", "expected"),
    [
        ("org.apache.hadoop.hive.serde2.OpenCSVSerde", "org.apache.hadoop.mapred.TextInputFormat", "csv"),
        (f"{_HIVE}.parquet.serde.ParquetHiveSerDe", f"{_HIVE}.parquet.MapredParquetInputFormat", "parquet"),
        (
            "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
            f"{_HIVE}.SequenceFileInputFormat",
            "sequencefile",
        ),
        # Hive reads what they choose of the files, and Spark all.
        (
            f"{_HIVE}.parquet.serde.ParquetHiveSerDe",
            "org.apache.hudi.hadoop.HoodieParquetInputFormat",
            "other",
        ),
        (f"{_HIVE}.orc.OrcSerde", "", "other"),
        # Their files name others, to which people write without any change to be seen here.
        ("org.apache.hadoop.hive.serde2.OpenCSVSerde", f"{_HIVE}.SymlinkTextInputFormat", "other"),
        (f"{_HIVE}.parquet.serde.ParquetHiveSerDe", f"{_HIVE}.SymlinkTextInputFormat", "other"),
    ],
)
def test_a_format_is_told_by_the_classes_that_read_it(serde: str, input_format: str, expected: str) -> None:
    description = {
        "provider": "hive",
        "type": "EXTERNAL",
        "columns": [],
        "serde_library": serde,
        "input_format": input_format,
    }
    assert table_of(TableName(("c", "s", "t")), description).format == expected
