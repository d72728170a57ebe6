"""Partitions and listings, compared with Spark's for directories that Spark can read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tableferry.convert.discovery.listing import list_files
from tableferry.formats.hive.partition_inference import Partitions, infer
from tableferry.spark.types import LONG, Field, Struct, to_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [
    {"i": "1", "l": "3000000000", "d": "2024-02-29", "t": "2024-01-01 10%3A00%3A00", "s": "a%2Fb", "m": "x"},
    {"i": "-2", "l": "4", "d": "2023-12-31", "t": "1999-12-31 23%3A59%3A59.5", "s": "%25 %3D", "m": "7"},
    {"i": "__HIVE_DEFAULT_PARTITION__", "l": "0", "d": "0999-01-01", "t": "__HIVE_DEFAULT_PARTITION__"}
    | {"s": "2024-02-30", "m": "2024-01-01"},
]


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[None]:
    """Restore the session's time zone after the test."""
    before = spark.conf.get("spark.sql.session.timeZone")
    assert before is not None
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def write(root: Path) -> Partitions:
    for number, row in enumerate(ROWS):
        folder = root.joinpath(*(f"{name}={text}" for name, text in row.items()))
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [number]}), folder / f"{number}.parquet")
    return infer(list_files(root))


def test_partition_types_and_values_equal_spark_inference(
    spark: SparkSession, zone: None, tmp_path: Path
) -> None:
    actual = write(tmp_path)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert spark.conf.get("spark.sql.sources.partitionColumnTypeInference.enabled") == "true"
    table = spark.read.parquet(str(tmp_path))
    fields = table.drop("id").schema.fields
    assert [str(column) for column in actual.columns] == [
        f"{field.name} {field.dataType.simpleString()}" for field in fields
    ]
    ours = {
        file.path.rsplit("/", 1)[1]: values
        for file, values in zip(list_files(tmp_path), actual.values, strict=True)
    }
    logged = "date_format(t, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'\")"
    read = [logged if field.name == "t" else f"CAST({field.name} AS STRING)" for field in fields]
    assert ours == {
        f"{number}.parquet": tuple(values) for number, *values in table.selectExpr("id", *read).collect()
    }


def test_timestamp_partitions_are_the_same_instant_for_every_reader(
    spark: SparkSession, zone: None, tmp_path: Path
) -> None:
    actual = write(tmp_path)
    schema = Struct((Field("id", LONG), *(Field(column.name, column.type) for column in actual.columns)))
    names = [column.name for column in actual.columns]
    meta = {"id": "one", "format": {"provider": "parquet", "options": {}}, "schemaString": to_json(schema)}
    actions: list[object] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**meta, "partitionColumns": names, "configuration": {}, "createdTime": 0}},
    ]
    for file, values in zip(list_files(tmp_path), actual.values, strict=True):
        add = {
            "path": quote(file.path),
            "size": file.size,
            "modificationTime": file.modified,
            "dataChange": True,
        }
        actions.append({"add": {**add, "partitionValues": dict(zip(names, values, strict=True))}})
    (tmp_path / "_delta_log").mkdir()
    log = tmp_path / "_delta_log/00000000000000000000.json"
    log.write_text("\n".join(json.dumps(action) for action in actions))

    expected = [(0, 1704103200_000000), (1, 946684799_500000), (2, None)]
    for name in ("UTC", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", name)
        table = spark.read.format("delta").load(str(tmp_path))
        assert sorted(map(tuple, table.selectExpr("id", "unix_micros(t)").collect())) == expected
        assert table.where("t = TIMESTAMP'2024-01-01T10:00:00Z'").count() == 1
    arrow = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table(columns=["id", "t"]).sort_by("id")
    assert (
        list(zip(*arrow.set_column(1, "t", arrow["t"].cast(pa.int64())).to_pydict().values(), strict=True))
        == expected
    )


def test_committed_sink_files_equal_files_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    source, sink = tmp_path / "source", tmp_path / "a sink%"
    for number in range(4):
        source.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [number], "k": [f"x/ %{number % 2}"]}), source / f"{number}.parquet")
    stream = spark.readStream.schema("id LONG, k STRING").option("maxFilesPerTrigger", 1).parquet(str(source))
    compact = "spark.sql.streaming.fileSink.log.compactInterval"
    spark.conf.set(compact, "2")
    try:
        query = (
            stream.writeStream.format("parquet")
            .partitionBy("k")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(sink))
        )
        assert query.awaitTermination(300)
    finally:
        spark.conf.unset(compact)
    committed = list_files(sink)
    some = committed[0].path
    (sink / some).with_name("tried.parquet").write_bytes((sink / some).read_bytes())
    assert (sink / "_spark_metadata/3.compact").exists()
    assert list_files(sink) == committed
    assert sorted(path.name for path in map(Path, spark.read.parquet(str(sink)).inputFiles())) == sorted(
        path.name for path in (Path(file.path) for file in committed)
    )
    assert infer(committed).values == (("x/ %0",), ("x/ %0",), ("x/ %1",), ("x/ %1",))
    sink.rename(tmp_path / "moved")
    assert list_files(tmp_path / "moved") == committed
