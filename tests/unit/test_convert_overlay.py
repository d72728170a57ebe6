"""A Delta log over a Hive table, without a JVM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import deltalake
from tests import conditions

from tableferry.convert.overlay import write_empty
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.spark.tables import TableName
from tableferry.spark.types import LONG, STRING, Field, Struct


def test_log_of_empty_table_has_catalog_columns(tmp_path: Path) -> None:
    columns = Struct((Field("id", LONG, metadata={"comment": "its number"}), Field("k", STRING)))
    entry = Entry(
        TableName(("spark_catalog", "db", "t")),
        "parquet",
        "external",
        f"file:{tmp_path}",
        tmp_path,
        columns=columns,
        partition_columns=(PartitionColumn("k", STRING),),
        comment="nothing yet",
        properties={"team": "a"},
    )
    # Files that an emptied directory may contain.
    (tmp_path / "k=1").mkdir()
    write_empty(entry)
    table = deltalake.DeltaTable(str(tmp_path))
    assert table.file_uris() == []
    assert [field.name for field in table.schema().fields] == ["id", "k"]
    assert table.metadata().partition_columns == ["k"]
    assert table.metadata().description == "nothing yet"
    assert table.metadata().configuration == {"team": "a"}
    with conditions.raises("EMPTY_TABLE_OUT_OF_REACH", table=entry.name):
        write_empty(replace(entry, folder=None))
