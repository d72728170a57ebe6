"""The file format in a Hive table's description."""

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
        # With these, Hive reads only some of the files, but Spark reads all.
        (
            f"{_HIVE}.parquet.serde.ParquetHiveSerDe",
            "org.apache.hudi.hadoop.HoodieParquetInputFormat",
            "other",
        ),
        (f"{_HIVE}.orc.OrcSerde", "", "other"),
        # Their files are lists of other files, so a listing shows no changes to the data.
        ("org.apache.hadoop.hive.serde2.OpenCSVSerde", f"{_HIVE}.SymlinkTextInputFormat", "other"),
        (f"{_HIVE}.parquet.serde.ParquetHiveSerDe", f"{_HIVE}.SymlinkTextInputFormat", "other"),
    ],
)
def test_serde_and_input_format_decide_file_format(serde: str, input_format: str, expected: str) -> None:
    description = {
        "provider": "hive",
        "type": "EXTERNAL",
        "columns": [],
        "serde_library": serde,
        "input_format": input_format,
    }
    assert table_of(TableName(("c", "s", "t")), description).format == expected
