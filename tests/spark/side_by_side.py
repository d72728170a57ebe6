"""One directory converted twice, by Tableferry and by Spark's own command, and what differs between them."""

from __future__ import annotations

import datetime as dt
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
from pyarrow.dataset import ParquetReadOptions
from pyspark.sql import SparkSession

from tableferry import convert
from tableferry.spark.catalog import SPARK_ERRORS

FIRST = "_delta_log/00000000000000000000.json"


@dataclass(frozen=True)
class Twins:
    """Three copies of a directory: one for each engine, and one that stays Parquet."""

    ours: Path
    native: Path
    plain: Path


@dataclass(frozen=True)
class Log:
    """A table's first commit.

    Attributes:
        info: Its ``commitInfo``.
        metadata: Its ``metaData``, with the schema as data.
        protocol: Its ``protocol``, with the features as sets.
        adds: Its ``add`` actions by path, with the statistics as data, digit by digit.
    """

    info: dict[str, Any]
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    adds: dict[str, dict[str, Any]]

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in their order."""
        return [field["name"] for field in self.metadata["schemaString"]["fields"]]

    @property
    def values(self) -> dict[str, dict[str, Any]]:
        """The partition values of each file."""
        return {path: add["partitionValues"] for path, add in self.adds.items()}


def twins(folder: Path, make: Callable[[Path], object]) -> Twins:
    """Make a directory, and copies of it with the same times."""
    both = Twins(folder / "ours", folder / "native", folder / "plain")
    make(both.ours)
    for copy in (both.native, both.plain):
        shutil.copytree(both.ours, copy, symlinks=True)
    return both


def content(root: Path) -> dict[str, bytes | None]:
    """All that is in a directory, byte for byte."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")
    }


def ours(root: Path, partitioned_by: str | None = None, **options: Any) -> convert.TableReport:
    """Convert by Tableferry, without Spark."""
    [report] = convert.run([str(root)], partitioned_by=partitioned_by, resolve=_no_session, **options).tables
    return report


def native(spark: SparkSession, root: Path, partitioned_by: str = "", *, statistics: bool = True) -> None:
    """Convert by Spark."""
    by = f" PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    spark.sql(f"CONVERT TO DELTA parquet.`{root}`{'' if statistics else ' NO STATISTICS'}{by}").collect()


def native_refusal(spark: SparkSession, root: Path, partitioned_by: str = "") -> str:
    """Return Spark's complete message when it refuses to convert."""
    try:
        native(spark, root, partitioned_by)
    except SPARK_ERRORS as error:
        return str(error)
    raise AssertionError(f"Spark converts {root}")


def converted(
    spark: SparkSession,
    both: Twins,
    partitioned_by: str = "",
    statistics: convert.Statistics = convert.Statistics.FOOTERS,
) -> tuple[Log, Log]:
    """Convert one twin by each; return the logs, ours first."""
    report = ours(both.ours, partitioned_by or None, statistics=statistics, include_subfolders=True)
    assert report.outcome == "converted", report.error
    native(spark, both.native, partitioned_by, statistics=statistics is not convert.Statistics.NONE)
    return log(both.ours), log(both.native)


def log(root: Path) -> Log:
    """Read a table's first commit."""
    actions: dict[str, dict[str, Any]] = {}
    adds = {}
    # No other character ends a line, though some text has such characters.
    for line in (root / FIRST).read_text(encoding="utf-8").split("\n")[:-1]:
        [(kind, action)] = json.loads(line).items()
        if kind == "add":
            assert action["path"] not in adds
            adds[action["path"]] = action
            if "stats" in action:
                action["stats"] = json.loads(action["stats"], parse_float=Decimal)
        else:
            assert kind not in actions
            actions[kind] = action
    metadata, protocol = actions["metaData"], actions["protocol"]
    metadata["schemaString"] = json.loads(metadata["schemaString"])
    for key in ("readerFeatures", "writerFeatures"):
        if key in protocol:
            protocol[key] = set(protocol[key])
    return Log(actions["commitInfo"], metadata, protocol, adds)


def differences(our_log: Log, other: Log) -> set[str]:
    """Return the differences between our log and the native one, except for ids, times and order.

    Columns are compared without their order, which is random in the native log: it's the order of Spark's
    tasks. Statistics are compared column by column: ``minValues.a.b: nothing for 7``.
    """
    differing = set()
    for key in ("description", "format", "partitionColumns", "configuration"):
        if our_log.metadata.get(key) != other.metadata.get(key):
            differing.add(f"{key}: {our_log.metadata.get(key)} for {other.metadata.get(key)}")
    mine, theirs = (dict(_columns(side.metadata["schemaString"])) for side in (our_log, other))
    for name in mine.keys() | theirs.keys():
        if mine.get(name) != theirs.get(name):
            differing.add(f"{name}: {mine.get(name)} for {theirs.get(name)}")
    if our_log.protocol != other.protocol:
        differing.add(f"protocol: {our_log.protocol} for {other.protocol}")
    differing |= {f"{path}: left out" for path in other.adds.keys() - our_log.adds.keys()}
    differing |= {f"{path}: added" for path in our_log.adds.keys() - other.adds.keys()}
    for path in our_log.adds.keys() & other.adds.keys():
        mine, theirs = our_log.adds[path], other.adds[path]
        for key in (mine.keys() | theirs.keys()) - {"stats"}:
            if mine.get(key) != theirs.get(key):
                differing.add(f"{path} {key}: {mine.get(key)} for {theirs.get(key)}")
        mine, theirs = dict(_leaves(mine.get("stats", {}))), dict(_leaves(theirs.get("stats", {})))
        for key in mine.keys() | theirs.keys():
            if mine.get(key) != theirs.get(key):
                differing.add(f"{key}: {mine.get(key, 'nothing')} for {theirs.get(key, 'nothing')}")
    return differing


def _columns(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each column and field with its type and metadata."""
    match kind:
        case {"type": "struct", "fields": fields}:
            yield path, "struct"
            for field in fields:
                name = f"{path}.{field['name']}"
                yield f"{name} itself", (field["nullable"], field["metadata"])
                yield from _columns(field["type"], name)
        case {"type": "array", "elementType": element, "containsNull": null}:
            yield path, f"array {null}"
            yield from _columns(element, f"{path}.element")
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": null}:
            yield path, f"map {null}"
            yield from _columns(key, f"{path}.key")
            yield from _columns(value, f"{path}.value")
        case _:
            yield path, kind


def _leaves(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from _leaves(inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", inner


def assert_same_rows(spark: SparkSession, both: Twins, *, deltars: bool = True) -> Counter[str]:
    """Hold that Spark reads the same from both tables and the Parquet files, and delta-rs from ours."""
    rows = assert_our_rows(spark, both, deltars=deltars)
    assert rows == spark_rows(spark, both.native)
    return rows


def assert_our_rows(spark: SparkSession, both: Twins, *, deltars: bool = True) -> Counter[str]:
    """Compare our rows with the plain files, if Spark wrote no native table."""
    our_rows = spark_rows(spark, both.ours)
    reader = spark.read.schema(spark.read.format("delta").load(str(both.ours)).schema)
    # Without partitions, Spark reads files in subfolders only with this option.
    if not any(path.is_dir() and "=" in path.name for path in both.plain.iterdir()):
        reader = reader.option("recursiveFileLookup", "true")
    assert our_rows == rows(reader.parquet(str(both.plain)).toArrow())
    if deltars:
        assert our_rows == deltars_rows(both.ours)
    return our_rows


def spark_rows(spark: SparkSession, root: Path) -> Counter[str]:
    """Return the rows that Spark reads from a Delta table."""
    return rows(spark.read.format("delta").load(str(root)).toArrow())


def deltars_rows(root: Path) -> Counter[str]:
    """Return the rows that delta-rs reads from a Delta table."""
    # Arrow would take the 96 bits of older timestamps for nanoseconds, which end in 2262.
    wide = ParquetReadOptions(coerce_int96_timestamp_unit="us")
    dataset = deltalake.DeltaTable(root).to_pyarrow_dataset(parquet_read_options=wide)
    return rows(pa.table(dataset.to_table()))


def rows(table: pa.Table) -> Counter[str]:
    """Return rows under Python's equality as SQL has it, with nulls and NaN equal."""
    return Counter(repr(_normal(row)) for row in table.to_pylist())


def _normal(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case dt.datetime() if value.tzinfo:
            return value.astimezone(dt.UTC).isoformat()
        case dict():
            return tuple((key, _normal(inner)) for key, inner in sorted(value.items()))
        case list() | tuple():
            return [_normal(inner) for inner in value]
        case _:
            return value


def _no_session() -> Any:
    raise AssertionError("a folder needs no Spark")
