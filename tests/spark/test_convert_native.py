"""The native engine, which runs `CONVERT TO DELTA`."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests import conditions, soak

from tableferry.convert import run
from tableferry.convert.catalog.entries import entry
from tableferry.convert.catalog.native_engine import convert, convert_table, list_files
from tableferry.errors import Busy
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark import session
from tableferry.spark.catalog import condition
from tableferry.spark.settings import optional_settings
from tableferry.spark.tables import TableName
from tableferry.spark.types import INTEGER, TIMESTAMP

K = (PartitionColumn("k", INTEGER),)
FAILED = "NATIVE_CONVERSION_FAILED"


def write(spark: SparkSession, folder: Path, *columns: str, partition: str | None = None) -> Path:
    """Add a file of one row to a folder."""
    writer = spark.range(1, numPartitions=1).selectExpr(*columns).write.mode("append")
    (writer.partitionBy(partition) if partition else writer).parquet(str(folder))
    return folder


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def operation(spark: SparkSession, location: str) -> dict[str, str]:
    [row] = spark.sql(f"DESCRIBE HISTORY delta.`{location}`").collect()
    assert row["operation"] == "CONVERT"
    return dict(row["operationParameters"])


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Return a location that only Spark can access, and its local folder."""
    # Hadoop caches mounts by name.
    name = uuid.uuid4().hex
    link = f"fs.viewfs.mounttable.{name}.link./data"
    spark.conf.set(link, f"file:{tmp_path}")
    yield f"viewfs://{name}/data", tmp_path
    spark.conf.unset(link)


@pytest.mark.parametrize("statistics", [True, False])
@soak.slow
def test_native_engine_converts_directory_of_any_name(
    spark: SparkSession, tmp_path: Path, statistics: bool
) -> None:
    folder = tmp_path / "it's `a` b%41 [x]{y}*"
    write(spark, folder, "id", "1 AS `k``ü`", partition="k`ü")
    columns = [PartitionColumn("k`ü", INTEGER)]
    convert(spark, f"file:{folder}", columns, statistics=statistics)
    escaped = str(folder).replace("`", "``")
    assert spark.sql(f"SELECT * FROM delta.`{escaped}`").collect() == [(0, 1)]
    recorded = operation(spark, escaped)
    assert (recorded["collectStats"], recorded["partitionedBy"]) == (str(statistics).lower(), '["k`ü"]')
    # A repeated run changes nothing.
    convert(spark, f"file:{folder}", columns, statistics=statistics)
    assert operation(spark, escaped) == recorded


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("Delta", ""),
        ("Iceberg", "metadata/00000-6c1.metadata.json"),
        ("Hudi", ".hoodie/hoodie.properties"),
    ],
)
def test_folder_inside_a_table_is_refused_on_storage_of_spark_alone(
    spark: SparkSession, mounted: tuple[str, Path], kind: str, metadata: str
) -> None:
    location, folder = mounted
    if metadata:
        (folder / "t" / metadata).parent.mkdir(parents=True)
        (folder / "t" / metadata).write_text("{}")
    else:
        spark.sql(f"CREATE TABLE delta.`{folder / 't'}` (id BIGINT) USING delta")
    for name in ("data", "day=a"):
        write(spark, folder / "t" / name, "id")
    before = snapshot(folder)
    for name in ("data", "day=a"):
        [report] = run([f"{location}/t/{name}"], spark).tables
        assert report.outcome == "refused", report.error
        conditions.check(
            report.error,
            "FOLDER_BELONGS_TO_TABLE",
            folder=f"{location}/t/{name}",
            format=kind,
            table=f"{location}/t",
        )
    assert snapshot(folder) == before


@soak.slow
def test_native_conversion_by_path_keeps_null_partitions(spark: SparkSession, tmp_path: Path) -> None:
    write(spark, tmp_path / "t", "id", "int(null) AS k", partition="k")
    convert(spark, str(tmp_path / "t"), K, statistics=True)
    assert spark.sql(f"SELECT id FROM delta.`{tmp_path}/t` WHERE k IS NULL").collect() == [(0,)]


@pytest.mark.parametrize(
    ("null", "defaults"), [(True, True), *soak.amount([], [(False, False), (True, False)])]
)
@soak.slow
def test_native_conversion_keeps_comments_properties_and_nulls(
    spark: SparkSession,
    schema: str,
    tmp_path: Path,
    null: bool,
    defaults: bool,
) -> None:
    table = f"{schema}.t"
    spark.sql(
        f"CREATE TABLE {table} (id int COMMENT 'the \\'id\\'', k int COMMENT 'kk') USING parquet "
        f"PARTITIONED BY (k) COMMENT 'it\\'s' LOCATION '{tmp_path}/t' TBLPROPERTIES ('a' = 'b')"
    )
    spark.sql(f"INSERT INTO {table} VALUES (1, 1), (2, {'null' if null else 2})")
    table_entry = entry(spark, TableName.parse(table))
    key = "spark.databricks.delta.properties.defaults.checkpointInterval"
    with session.settings(spark, {key: "7"} if defaults else {}, "test"):
        convert_table(spark, table_entry, statistics=True)
    assert entry(spark, TableName.parse(table)).is_delta
    value = "IS NULL" if null else "= 2"
    assert spark.sql(f"SELECT id FROM {table} WHERE k {value}").collect() == [(2,)]
    [detail] = spark.sql(f"DESCRIBE DETAIL {table}").collect()
    properties = {"a": "b"} | ({"delta.checkpointInterval": "7"} if defaults else {})
    assert (detail["description"], detail["properties"]) == ("it's", properties)
    comments = [field.metadata.get("comment") for field in spark.table(table).schema]
    assert comments == ["the 'id'", "kk"]


def test_native_command_by_name_writes_null_partitions_as_string(spark: SparkSession, schema: str) -> None:
    """The reason why such a table is converted by its path. If this test fails, the reason is gone."""
    spark.sql(f"CREATE TABLE {schema}.t (id int, k string) USING parquet PARTITIONED BY (k)")
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, null)")
    spark.sql(f"CONVERT TO DELTA {schema}.t")
    assert spark.sql(f"SELECT * FROM {schema}.t WHERE k IS NULL").collect() == []
    assert spark.table(f"{schema}.t").collect() == [(1, "__HIVE_DEFAULT_PARTITION__")]


def test_native_command_refuses_views_and_other_tables(spark: SparkSession, schema: str) -> None:
    """Refusals of the command, which ours repeat before a run."""
    spark.sql(f"CREATE VIEW {schema}.v AS SELECT 1 AS x")
    spark.sql(f"CREATE TABLE {schema}.c (id int) USING csv")
    spark.sql(f"CREATE TABLE {schema}.p (id int, k int) USING parquet PARTITIONED BY (k)")
    for target, expected in (
        (f"{schema}.v", "DELTA_OPERATION_NOT_ALLOWED_DETAIL"),
        (f"{schema}.c", "DELTA_CONVERT_NON_PARQUET_TABLE"),
        (f"{schema}.p", "DELTA_CONVERSION_NO_PARTITION_FOUND"),
        ("`/no/format`", "DELTA_MISSING_PROVIDER_FOR_CONVERT"),
    ):
        with pytest.raises(PySparkException) as caught:
            spark.sql(f"CONVERT TO DELTA {target}")
        assert condition(caught.value) == expected
    spark.sql(f"INSERT INTO {schema}.p VALUES (1, 1)")
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"CONVERT TO DELTA {schema}.p PARTITIONED BY (k string)")
    assert condition(caught.value) == "DELTA_UNEXPECTED_PARTITION_SCHEMA_FROM_USER"


@soak.slow
def test_native_command_by_name_after_path_adds_missing_properties(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    """The catalog entry switches without a commit, unless the log lacks its properties."""
    write(spark, tmp_path / "t", "id")
    spark.sql(f"CREATE TABLE {schema}.plain USING parquet LOCATION '{tmp_path}/t'")
    spark.sql(f"CREATE TABLE {schema}.more USING parquet LOCATION '{tmp_path}/t' TBLPROPERTIES ('a' = 'b')")
    spark.sql(f"CREATE TABLE {schema}.other USING parquet LOCATION '{tmp_path}/t' TBLPROPERTIES ('c' = 'd')")
    convert(spark, str(tmp_path / "t"), (), statistics=True)
    history = f"DESCRIBE HISTORY delta.`{tmp_path}/t`"
    spark.sql(f"CONVERT TO DELTA {schema}.plain")
    assert spark.sql(history).count() == 1
    spark.sql(f"CONVERT TO DELTA {schema}.more")
    assert spark.sql(history).count() == 2
    with pytest.raises(PySparkException) as caught:
        spark.sql(f"CONVERT TO DELTA {schema}.other")
    assert condition(caught.value) == "DELTA_CONVERT_METASTORE_METADATA_MISMATCH"
    assert spark.table(f"{schema}.plain").collect() == spark.table(f"{schema}.more").collect() == [(0,)]


@pytest.mark.parametrize(
    ("make", "columns", "condition", "parameters"),
    [
        (
            "nothing",
            (),
            FAILED,
            {
                "reason": re.compile("No file found in the directory"),
                "advice": re.compile("nothing to convert"),
            },
        ),
        ("k=1", (), FAILED, {"reason": re.compile(r"(?s)Expecting 0 partition column\(s\).*k=1/")}),
        (
            "k=1",
            (PartitionColumn("z", INTEGER),),
            FAILED,
            {
                "reason": re.compile("Expecting partition column `z`"),
                "advice": re.compile("--partitioned-by"),
            },
        ),
        ("k=a", K, FAILED, {"reason": re.compile("Failed to cast partition value `a`")}),
        (
            "k=1",
            (PartitionColumn("k", TIMESTAMP),),
            "NATIVE_PARTITION_TYPE",
            {"type": "timestamp", "column": "k"},
        ),
        (
            "two types",
            (),
            FAILED,
            {"reason": re.compile("Failed to merge "), "advice": re.compile("differs between files")},
        ),
        ("blank", (), FAILED, {"reason": re.compile("(?s)invalid character")}),
    ],
)
@soak.slow
def test_native_refusal_has_reason_and_leaves_no_log(
    spark: SparkSession,
    tmp_path: Path,
    make: str,
    columns: tuple[PartitionColumn, ...],
    condition: str,
    parameters: dict[str, object],
) -> None:
    root = tmp_path / "t"
    match make:
        case "nothing":
            root.mkdir()
        case "two types":
            write(spark, root, "id")
            write(spark, root, "int(id) AS id")
        case "blank":
            write(spark, root, "id AS `a b`")
        case directory:
            write(spark, root / directory, "id")
    before = snapshot(root)
    with conditions.raises(condition, folder=f"file:{root}", **parameters):
        convert(spark, f"file:{root}", columns, statistics=True)
    assert snapshot(root) == before


@pytest.mark.parametrize("content", [b"", b"no Parquet at all, but long enough", None])
def test_native_refusal_names_file_that_is_not_parquet(
    spark: SparkSession, tmp_path: Path, content: bytes | None
) -> None:
    root = write(spark, tmp_path / "t", "id")
    [whole] = root.glob("*.parquet")
    (root / "broken").write_bytes(whole.read_bytes()[:-9] if content is None else content)
    before = snapshot(root)
    with conditions.raises(
        "NATIVE_CONVERSION_OF_OTHER_FILES",
        folder=f"file:{root}",
        reason=re.compile("t/broken is not a Parquet file"),
    ):
        convert(spark, f"file:{root}", (), statistics=True)
    assert snapshot(root) == before


def test_native_engine_refuses_missing_directory(spark: SparkSession, tmp_path: Path) -> None:
    with conditions.raises("NATIVE_FOLDER_MISSING", reason=re.compile("nothere doesn't exist")):
        convert(spark, f"file:{tmp_path}/nothere", (), statistics=True)
    with conditions.raises("FOLDER_MISSING", folder=f"file:{tmp_path}/nothere"):
        list_files(spark, f"file:{tmp_path}/nothere")
    assert list(tmp_path.iterdir()) == []


def test_failed_native_run_keeps_existing_log_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    with conditions.raises(FAILED, reason=re.compile("No file found")):
        convert(spark, str(tmp_path), (), statistics=True)
    assert (tmp_path / "_delta_log").is_dir()


@soak.slow
def test_native_command_uses_batch_size_of_session(spark: SparkSession, tmp_path: Path) -> None:
    key = "spark.databricks.delta.import.batchSize.statsCollection"
    root = write(spark, tmp_path / "t", "id")
    write(spark, root, "id + 7 AS id")
    spark.conf.set(key, "1")
    try:
        convert(spark, str(root), (), statistics=True)
    finally:
        spark.conf.unset(key)
    assert spark.sql(f"SELECT id FROM delta.`{root}` WHERE id > 5").collect() == [(7,)]


def test_spark_listing_skips_hidden_names_and_opens_no_file(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "a [b]*{c}?\\ %41"
    seen = ["_k=1/x", "_x=1.parquet", "a b%2F/y %.parquet", "k=[1]/é", "plain", "z.tmp"]
    hidden = ["_h/x", ".h/x", "_delta_log/0.json", "_SUCCESS", ".plain.crc", "_metadata", "y._COPYING_"]
    for name in (*seen, *hidden):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * 7)
    # More values than Spark reads into a row.
    with (root / "plain").open("wb") as sparse:
        sparse.truncate(5_000_000_000)
    (root / "empty").mkdir()
    for location in (str(root), f"file:{root}", f"file://{root}/"):
        files = list_files(spark, location)
        assert [file.path for file in files] == seen
        assert {file.path: file.size for file in files} == dict.fromkeys(seen, 7) | {"plain": 5_000_000_000}
        [plain] = (file for file in files if file.path == "plain")
        assert plain.modified == (root / "plain").stat().st_mtime_ns // 1_000_000
    assert list_files(spark, str(root / "empty")) == ()


@soak.slow
def test_native_engine_converts_folder_on_storage_of_spark_alone(
    spark: SparkSession, mounted: tuple[str, Path]
) -> None:
    location, folder = mounted
    root = write(spark, folder / "t", "id", "if(id = 0, null, 1) AS k", partition="k")
    [file] = root.rglob("*.parquet")
    listed = list_files(spark, f"{location}/t")
    name, stat = str(file.relative_to(root)), file.stat()
    assert listed == (DataFile(name, stat.st_size, stat.st_mtime_ns // 1_000_000),)
    convert(spark, f"{location}/t", K, statistics=True)
    assert spark.sql(f"SELECT * FROM delta.`{location}/t` WHERE k IS NULL").collect() == [(0, None)]
    (folder / "empty").mkdir()
    with conditions.raises(FAILED, reason=re.compile("No file found")):
        convert(spark, f"{location}/empty", (), statistics=True)


def test_native_engine_converts_table_on_storage_of_spark_alone(
    spark: SparkSession, schema: str, mounted: tuple[str, Path]
) -> None:
    location, folder = mounted
    ddl = "(id int, k int) USING parquet PARTITIONED BY (k)"
    spark.sql(f"CREATE TABLE {schema}.t {ddl} LOCATION '{location}/t'")
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, null), (2, 2)")
    table_entry = entry(spark, TableName.parse(f"{schema}.t"))
    assert (table_entry.folder, table_entry.location) == (None, f"{location}/t")
    convert_table(spark, table_entry, statistics=False)
    assert spark.sql(f"SELECT id FROM {schema}.t WHERE k IS NULL").collect() == [(1,)]
    assert (folder / "t" / "_delta_log").is_dir()


def test_native_engine_refuses_column_defaults(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id int, n string DEFAULT 'q') USING parquet")
    with conditions.raises("NATIVE_COLUMN_DEFAULTS", table=f"{schema}.t"):
        convert_table(spark, entry(spark, TableName.parse(f"{schema}.t")), statistics=True)


def test_native_command_drops_comment_and_keeps_buckets(spark: SparkSession, schema: str) -> None:
    """Differences from the switch after our own commit."""
    ddl = "(id int) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS COMMENT 'c' TBLPROPERTIES ('a' = 'b')"
    spark.sql(f"CREATE TABLE {schema}.t {ddl}")
    spark.sql(f"INSERT INTO {schema}.t VALUES (1)")
    spark.sql(f"CONVERT TO DELTA {schema}.t")
    [detail] = spark.sql(f"DESCRIBE DETAIL {schema}.t").collect()
    assert (detail["description"], detail["properties"]) == (None, {"a": "b"})
    [row] = spark.sql(f"SHOW TABLE EXTENDED IN {schema} LIKE 't'").collect()
    assert "Num Buckets: 2" in row["information"]
    assert "Table Properties" not in row["information"]


@soak.slow
def test_native_command_skips_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    """The command doesn't add files that were written after the first commit."""
    root = write(spark, tmp_path / "t", "id")
    convert(spark, str(root), (), statistics=True)
    [file] = root.glob("*.parquet")
    shutil.copy(file, root / "late.parquet")
    convert(spark, str(root), (), statistics=True)
    assert spark.sql(f"DESCRIBE HISTORY delta.`{root}`").count() == 1


def test_concurrent_native_runs_commit_once(spark: SparkSession, tmp_path: Path) -> None:
    root = write(spark, tmp_path / "t", "id")

    def run(_: int) -> Busy | None:
        try:
            convert(spark, str(root), (), statistics=True)
        except Busy as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(run, range(2)))
    assert None in ended
    for error in filter(None, ended):
        conditions.check(error, "NATIVE_CONVERSION_RACE", folder=root)
    assert spark.sql(f"DESCRIBE HISTORY delta.`{root}`").count() == 1
    assert spark.sql(f"SELECT * FROM delta.`{root}`").collect() == [(0,)]


def test_optional_setting_that_spark_refuses_is_skipped(spark: SparkSession) -> None:
    taken, refused = "spark.sql.maxMetadataStringLength", "spark.sql.warehouse.dir"
    before = spark.conf.get(taken)
    with optional_settings(spark, {refused: "/nowhere", taken: "77"}):
        assert (spark.conf.get(taken), spark.conf.get(refused) == "/nowhere") == ("77", False)
    assert spark.conf.get(taken) == before
