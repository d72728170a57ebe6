"""Files that are added to Iceberg tables have the same metrics as with Iceberg's add_files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.warehouses import NoAccess

from tableferry.errors import TableError
from tableferry.fleet.copies import iceberg
from tableferry.fleet.copies.iceberg_files import iceberg_commit
from tableferry.fleet.copies.iceberg_files.data_files import Change
from tableferry.fleet.warehouse import hive, table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_files import listing
from tableferry.fleet.warehouse.job_tables import kinds
from tableferry.formats.hive.partitions import NULL
from tableferry.spark.tables import TableName

SCHEMA = "fleet_iceberg_commit"

COLUMNS = {
    "tiny": ("tinyint", pa.int8(), [-128, 127, None]),
    "small": ("smallint", pa.int16(), [-5, 300, 7]),
    "i": ("int", pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "big": ("bigint", pa.int64(), [-(2**63), 2**63 - 1, 0]),
    "wider": ("bigint", pa.int32(), [-7, 7, None]),
    "f": ("float", pa.float32(), [-1.5, 0.0, 2.5]),
    "d": ("double", pa.float64(), [0.0, 0.0, 1e300]),
    "nan": ("double", pa.float64(), [float("nan"), 1.0, 2.0]),
    "short": ("string", pa.string(), ["b", "a", None]),
    "long": ("string", pa.string(), ["x" * 15 + "\U0010ffff" + "y", "é" * 40, "z" * 16]),
    "last": ("string", pa.string(), ["\U0010ffff" * 20, "a", "b"]),
    "bin": ("binary", pa.binary(), [b"\x00", b"\xfe" * 15 + b"\xff\xff", b"a"]),
    "ones": ("binary", pa.binary(), [b"\xff" * 20, b"a", b"b"]),
    "ok": ("boolean", pa.bool_(), [True, None, True]),
    "day": ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "at": ("timestamp", pa.timestamp("us", "UTC"), [datetime(1969, 1, 1), datetime(2024, 1, 1), None]),
    "millis": ("timestamp", pa.timestamp("ms", "UTC"), [datetime(1969, 1, 1), datetime(2024, 1, 1), None]),
    "cents": ("decimal(9, 2)", pa.decimal128(9, 2), [Decimal("-1.28"), Decimal("1.27"), None]),
    "money": (
        "decimal(18, 4)",
        pa.decimal128(18, 4),
        [Decimal("-0.0129"), Decimal("99999999999999.9999"), None],
    ),
    "huge": ("decimal(38, 3)", pa.decimal128(38, 3), [Decimal("-32.768"), Decimal("32.767"), None]),
    "nothing": ("int", pa.int32(), [None, None, None]),
    "nested": (
        "struct<a: int, b: struct<c: string>>",
        pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.string())]))]),
        [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}],
    ),
    "list": ("array<int>", pa.list_(pa.int32()), [[1, None], None, []]),
    "map": ("map<string, double>", pa.map_(pa.string(), pa.float64()), [[("k", 1.5)], None, []]),
    "deep": (
        "array<struct<x: int, tags: array<string>, m: map<int, date>>>",
        pa.list_(
            pa.struct(
                [
                    ("x", pa.int32()),
                    ("tags", pa.list_(pa.string())),
                    ("m", pa.map_(pa.int32(), pa.date32())),
                ]
            )
        ),
        [[{"x": 1, "tags": ["a", "b"], "m": [(1, date(2026, 1, 1))]}], [], None],
    ),
    "last_one": ("int", pa.int32(), [1, 2, None]),
}
TABLE = pa.table({name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()})
# Iceberg 1.12 reads milliseconds as microseconds, in bounds and in rows. If a row group has no bounds,
# Iceberg uses the bounds of the other row groups for the file. Here that group contains only NaN, which
# Iceberg ignores, but its bounds could also have been too long to be written. Arrow's bounds of floats don't
# show a NaN; with them Iceberg would delete a whole file for a DELETE of the other rows.
DIFFERENT = tuple(1 + list(COLUMNS).index(name) for name in ("millis", "nan", "f", "d"))
DDL = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession) -> Iterator[Warehouse]:
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    yield Warehouse(spark, NoAccess())
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def make(warehouse: Warehouse, name: str, folder: Path, partitioned: str = "") -> TableName:
    """Create a Hive table over the files in a folder."""
    table = TableName(("spark_catalog", SCHEMA, name))
    by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {table.sql} ({DDL}) {by} STORED AS parquet LOCATION '{folder}'"
    )
    if partitioned:
        warehouse.spark.sql(f"MSCK REPAIR TABLE {table.sql}")
    return table


def copies(warehouse: Warehouse, source: TableName) -> tuple[TableName, TableName]:
    """Create two Iceberg tables, and fill one by ``add_files`` and the other by our commit."""
    table = hive.require_hive_table(warehouse, source)
    partitions = hive.partitions(warehouse, table)
    files = listing(warehouse, table, partitions).read
    theirs, ours = (TableName((*source.parts[:-1], f"{source.table}_{way}")) for way in ("theirs", "ours"))
    for number, target in enumerate((theirs, ours)):
        statement = iceberg.create_statement(table, warehouse.iceberg(target))
        warehouse.spark.sql(statement.replace("_iceberg'", f"_iceberg{number}'"))
    iceberg._add_files(warehouse, source, theirs)
    assert iceberg_commit.append(warehouse, ours, Change(table, partitions, files, {})) is not None
    return theirs, ours


def file_entries(warehouse: Warehouse, table: TableName) -> list[dict[str, Any]]:
    """Return each file's entry in the metadata table, without Spark's readable copy of the metrics."""
    name = warehouse.iceberg(table).sql
    rows = warehouse.spark.sql(f"SELECT * FROM {name}.files ORDER BY file_path").drop("readable_metrics")
    return [row.asDict(recursive=True) for row in rows.collect()]


@pytest.mark.parametrize(
    "options", [{}, {"row_group_size": 1}, {"write_statistics": ["i", "short"]}], ids=str
)
def test_parquet_metrics_equal_those_of_add_files(
    warehouse: Warehouse, tmp_path: Path, options: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    for number in range(3):
        pq.write_table(TABLE.slice(0, number + 1), tmp_path / f"{number}.parquet", **options)
    source = make(warehouse, f"all_{abs(hash(request.node.name))}", tmp_path)
    theirs, ours = copies(warehouse, source)
    alike(warehouse, theirs, ours, but=DIFFERENT)


def alike(warehouse: Warehouse, theirs: TableName, ours: TableName, *, but: Sequence[int] = ()) -> None:
    """Assert that both tables have the same entries, except for the bounds of some columns."""
    for one, other in zip(file_entries(warehouse, theirs), file_entries(warehouse, ours), strict=True):
        for key, values in one.items():
            for bounds in (values, other[key]) if key in ("lower_bounds", "upper_bounds") else ():
                for column in but:
                    bounds.pop(column, None)
            assert (key, values) == (key, other[key])
    names = [warehouse.iceberg(table).sql for table in (theirs, ours)]
    rows = [sorted(map(repr, warehouse.spark.table(name).collect())) for name in names]
    assert rows[0] == rows[1] != []


PARTITIONED = "p int, `On` date, word string"


@soak.slow
def test_partition_values_equal_those_of_add_files(warehouse: Warehouse, tmp_path: Path) -> None:
    null = "__HIVE_DEFAULT_PARTITION__"
    for number, directory in enumerate(
        (
            "p=7/On=2024-02-29/word=plain",
            "p=-07/On=0001-01-01/word=it's%3A 100%25",
            f"p={null}/On={null}/word={null}",
            "p=0/On=9999-12-31/word=é 🙂",
        )
    ):
        (tmp_path / directory).mkdir(parents=True)
        pq.write_table(TABLE.slice(0, 1), tmp_path / directory / f"{number}.parquet")
    source = make(warehouse, "partitioned", tmp_path, PARTITIONED)
    theirs, ours = copies(warehouse, source)
    alike(warehouse, theirs, ours, but=DIFFERENT)
    for table in (theirs, ours):
        name = warehouse.iceberg(table).sql
        found = warehouse.spark.sql(f"SELECT * FROM {name} WHERE `On` = DATE'2024-02-29' AND word LIKE 'pl%'")
        assert found.count() == 1


def test_worker_suspended_before_its_commit_adds_no_file_twice(warehouse: Warehouse, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    source = make(warehouse, "asleep", tmp_path)
    target = TableName((*source.parts[:-1], "asleep_iceberg"))
    awake: list[int] = []

    def other() -> None:
        # The first effect creates the table, the second adds its files.
        if kinds(warehouse, (target,)) and not awake:
            awake.append(iceberg.create_copy(warehouse, source, target))

    with pytest.raises(TableError, match="stale"):
        iceberg.create_copy(replace(warehouse, guard=other), source, target)
    assert awake == [1]
    assert len(file_entries(warehouse, target)) == 1
    assert iceberg.create_copy(warehouse, source, target) == 1
    assert len(file_entries(warehouse, target)) == 1


@pytest.mark.parametrize("form", ["orc", "avro"])
def test_orc_and_avro_metrics_equal_those_of_add_files(
    warehouse: Warehouse, tmp_path: Path, form: str
) -> None:
    table = TableName(("spark_catalog", SCHEMA, form))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {table.sql} (id INT, name STRING, cents DECIMAL(9, 2), tags ARRAY<STRING>) "
        f"PARTITIONED BY (year INT, place STRING) STORED AS {form} LOCATION '{tmp_path}'"
    )
    warehouse.spark.sql(
        f"INSERT INTO {table.sql} PARTITION (year = 2024, place = 'x/ é%') "
        "VALUES (1, 'a', 1.25, array('b')), (2, NULL, NULL, NULL)"
    )
    warehouse.spark.sql(
        f"INSERT INTO {table.sql} PARTITION (year = 2025, place = '{NULL}') SELECT 3, 'c', 0, NULL"
    )
    theirs, ours = copies(warehouse, table)
    found = file_entries(warehouse, ours)
    assert {file["file_format"] for file in found} == {form.upper()}
    assert found == file_entries(warehouse, theirs)
    read = [warehouse.spark.table(warehouse.iceberg(copy).sql).collect() for copy in (ours, theirs)]
    assert sorted(read[0]) == sorted(read[1])

    flat = TableName(("spark_catalog", SCHEMA, f"{form}_flat"))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {flat.sql} (id INT) STORED AS {form} LOCATION '{tmp_path}_flat'"
    )
    warehouse.spark.sql(f"INSERT INTO {flat.sql} VALUES (7)")
    theirs, ours = copies(warehouse, flat)
    assert file_entries(warehouse, ours) == file_entries(warehouse, theirs)
    assert warehouse.spark.table(warehouse.iceberg(ours).sql).collect() == [(7,)]


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize("by_spark", [False, True])
def test_no_row_is_skipped_or_deleted_because_of_partition_columns_or_nan(
    warehouse: Warehouse, tmp_path: Path, form: str, by_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "day=mon").mkdir()
    if form == "parquet":
        values = pa.table({"x": [1.0, float("nan"), 2.0], "day": ["tue"] * 3})
        pq.write_table(values, tmp_path / "day=mon/a.parquet")
    else:
        rows = "SELECT explode(array(1D, double('NaN'), 2D)) AS x, 'tue' AS day"
        warehouse.spark.sql(rows).coalesce(1).write.mode("append").orc(str(tmp_path / "day=mon"))
    source = TableName(("spark_catalog", SCHEMA, f"hidden_{form}_{by_spark}".lower()))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {source.sql} (x DOUBLE) PARTITIONED BY (day STRING) STORED AS {form} "
        f"LOCATION '{tmp_path}'"
    )
    warehouse.spark.sql(f"MSCK REPAIR TABLE {source.sql}")
    if by_spark:
        monkeypatch.setattr(iceberg_commit, "append", lambda *_: None)
    target = TableName((*source.parts[:-1], f"{source.table}_iceberg"))
    assert iceberg.create_copy(warehouse, source, target) == 1
    ice = warehouse.iceberg(target).sql
    assert not any(
        key.startswith("write.metadata")
        for key in table_descriptions.properties(warehouse.spark, warehouse.iceberg(target))
    )
    assert warehouse.spark.sql(f"SELECT * FROM {ice} WHERE day = 'mon'").count() == 3
    warehouse.spark.sql(f"DELETE FROM {ice} WHERE x < 5")
    assert [str(row[0]) for row in warehouse.spark.sql(f"SELECT x FROM {ice}").collect()] == ["nan"]


@pytest.mark.parametrize("by_spark", [False, True])
def test_no_row_is_skipped_because_a_row_group_has_no_bounds(
    warehouse: Warehouse, tmp_path: Path, by_spark: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers omit the bounds of long values, and Iceberg then uses those of the other row groups."""
    table = pa.table({"id": [1, 2], "s": pa.array([{"name": "z" * 5000}, {"name": "a"}])})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1)
    source = TableName(("spark_catalog", SCHEMA, f"unbounded_{by_spark}".lower()))
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {source.sql} (id BIGINT, s STRUCT<name: STRING>) STORED AS parquet "
        f"LOCATION '{tmp_path}'"
    )
    if by_spark:
        monkeypatch.setattr(iceberg_commit, "append", lambda *_: None)
    target = TableName((*source.parts[:-1], f"{source.table}_iceberg"))
    assert iceberg.create_copy(warehouse, source, target) == 1
    found = warehouse.spark.table(warehouse.iceberg(target).sql).where("s.name LIKE 'z%'")
    assert [row.id for row in found.collect()] == [1]


def test_copy_that_was_left_empty_gets_the_current_columns(warehouse: Warehouse, tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([2**40])}), tmp_path / "a.parquet")
    source = TableName(("spark_catalog", SCHEMA, "widened"))
    target = TableName((*source.parts[:-1], "widened_iceberg"))
    as_files = f"STORED AS parquet LOCATION '{tmp_path}'"

    def dies() -> None:
        # The first effect creates the table, the second adds its files.
        if kinds(warehouse, (target,)):
            raise TableError("a worker died")

    warehouse.spark.sql(f"CREATE EXTERNAL TABLE {source.sql} (c INT) {as_files}")
    with pytest.raises(TableError, match="a worker died"):
        iceberg.create_copy(replace(warehouse, guard=dies), source, target)
    warehouse.spark.sql(f"DROP TABLE {source.sql}")
    warehouse.spark.sql(f"CREATE EXTERNAL TABLE {source.sql} (c BIGINT) {as_files}")
    assert iceberg.create_copy(warehouse, source, target) == 1
    assert warehouse.spark.table(warehouse.iceberg(target).sql).collect() == [(2**40,)]


def test_files_written_by_spark_have_the_metrics_of_add_files(warehouse: Warehouse, tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    first = make(warehouse, "first", tmp_path)
    warehouse.spark.table(first.sql).write.parquet(str(tmp_path / "b"))
    theirs, ours = copies(warehouse, make(warehouse, "by_spark", tmp_path / "b"))
    alike(warehouse, theirs, ours)


@pytest.mark.parametrize(
    ("column", "values", "partitioned"),
    [
        (f"c int, m struct<{', '.join(f'f{n}: int' for n in range(100))}>", pa.array([1]), ""),
        ("c int", pa.array([1]), "p double"),
        ("c int", None, ""),
    ],
    ids=["more than 100 fields, some nested", "a partition's type", "a file that isn't Parquet"],
)
def test_unsupported_tables_are_left_to_add_files(
    warehouse: Warehouse,
    tmp_path: Path,
    column: str,
    values: pa.Array | None,
    partitioned: str,
    request: pytest.FixtureRequest,
) -> None:
    directory = tmp_path / "p=1.5" if partitioned else tmp_path
    directory.mkdir(exist_ok=True)
    if values is None:
        (directory / "a.parquet").write_bytes(b"PAR1 and no more")
    else:
        pq.write_table(pa.table({"c": values}), directory / "a.parquet")
    source = TableName(("spark_catalog", SCHEMA, f"left_{len(column)}{bool(partitioned)}{values is None}"))
    by = f"PARTITIONED BY ({partitioned})" if partitioned else ""
    warehouse.spark.sql(
        f"CREATE EXTERNAL TABLE {source.sql} ({column}) {by} STORED AS parquet LOCATION '{tmp_path}'"
    )
    if partitioned:
        warehouse.spark.sql(f"MSCK REPAIR TABLE {source.sql}")
    table = hive.require_hive_table(warehouse, source)
    partitions = hive.partitions(warehouse, table)
    target = TableName((*source.parts[:-1], f"{source.table}_iceberg"))
    warehouse.spark.sql(iceberg.create_statement(table, warehouse.iceberg(target)))
    files = listing(warehouse, table, partitions).read
    assert len(files) == 1
    assert None is iceberg_commit.append(warehouse, target, Change(table, partitions, files, {}))
    assert file_entries(warehouse, target) == []
