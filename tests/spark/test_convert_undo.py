"""Undos of converted catalog tables, which restore their entries, on real Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.tables import tables_in

from tableferry import convert
from tableferry.convert.catalog import undo
from tableferry.convert.catalog.entries import entry
from tableferry.convert.catalog.partitions import partitions_of
from tableferry.convert.discovery.listing import list_files
from tableferry.errors import Busy
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.spark.tables import TableName

# Types that SHOW CREATE TABLE doesn't write in valid SQL.
NASTY = r"it\'s a \\ back\nslash " '"é"'

COLUMNS = (
    f"(id int COMMENT '{NASTY}', v varchar(9), s struct<`a b`: int COMMENT 'x', c: map<string, array<int>>>"
)
FORMS = {
    "spark": f"{COLUMNS}, k int COMMENT 'kk', d date) USING parquet OPTIONS (compression = 'gzip') "
    "PARTITIONED BY (k, d)",
    "bucketed": f"{COLUMNS}, k int, d date) USING parquet PARTITIONED BY (k, d) "
    "CLUSTERED BY (id) SORTED BY (v) INTO 2 BUCKETS",
    "hive": f"{COLUMNS}) PARTITIONED BY (k int COMMENT 'kk', d date) STORED AS parquet",
    "serde": f"{COLUMNS}) PARTITIONED BY (k int, d date) "
    "ROW FORMAT SERDE 'org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe' "
    "WITH SERDEPROPERTIES ('a' = 'it\\'s') "
    "STORED AS INPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat' "
    "OUTPUTFORMAT 'org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat'",
}
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("v", pa.string()),
        ("s", pa.struct([("a b", pa.int32()), ("c", pa.map_(pa.string(), pa.list_(pa.int32())))])),
    ]
)
NULL = "__HIVE_DEFAULT_PARTITION__"
TYPES = ("external", "managed")
"""A managed table's folder is in the warehouse, and goes with DROP."""


def make(spark: SparkSession, schema: str, form: str, kind: str, folder: Path) -> str:
    """Create a table of three rows in three partitions, one of them null."""
    table = f"{schema}.t"
    where = f"LOCATION '{folder}'" if kind == "external" else ""
    what = "EXTERNAL TABLE" if where and "USING" not in FORMS[form] else "TABLE"
    spark.sql(
        f"CREATE {what} {table} {FORMS[form]} {where} "
        f"COMMENT '{NASTY}' TBLPROPERTIES ('team' = 'a=b, c', 'k.sql.x' = '{NASTY}')"
    )
    root = entry(spark, name(table)).folder
    assert root is not None
    values = (("7", "2024-01-01"), ("8", "2024-01-02"), (NULL, NULL))
    for number, (k, d) in enumerate(values):
        file = root / f"k={k}" / f"d={d}" / "a.parquet"
        file.parent.mkdir(parents=True)
        columns = {"id": [number], "v": [f"x{number}"], "s": [{"a b": number, "c": [("m", [1])]}]}
        pq.write_table(pa.table(columns, SCHEMA), file)
    spark.sql(f"MSCK REPAIR TABLE {table}")
    return table


def name(table: str) -> TableName:
    return TableName.parse(f"spark_catalog.{table}")


def rows(spark: SparkSession, table: str) -> list[str]:
    return sorted(str(row) for row in spark.table(table).collect())


def lines_of(spark: SparkSession, table: str) -> list[str]:
    """Return Spark's description of a table and its partitions, without times."""
    serde = " AS SERDE" if entry(spark, name(table)).serde else ""
    statement = spark.sql(f"SHOW CREATE TABLE {table}{serde}").collect()[0][0]
    partitions = [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()]
    return [*(line for line in statement.splitlines() if "transient_" not in line), *partitions]


def whole(entry_: Entry) -> Entry:
    properties = {key: of for key, of in entry_.properties.items() if not key.startswith("transient_")}
    return Entry(**{**entry_.__dict__, "properties": properties})


def content(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def neighbours(root: Path) -> list[str]:
    return [path for path in os.listdir(root.parent) if "undo" in path]


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        pytest.param(form, kind, marks=() if (number + TYPES.index(kind)) % 2 else soak.only)
        for number, form in enumerate(sorted(FORMS))
        for kind in TYPES
    ],
)
@soak.slow
def test_undo_restores_catalog_entry(
    spark: SparkSession, schema: str, tmp_path: Path, form: str, kind: str
) -> None:
    table = make(spark, schema, form, kind, tmp_path / "a b%41")
    old = entry(spark, name(table))
    assert old.folder is not None
    before, files, shown = rows(spark, table), content(old.folder), lines_of(spark, table)
    assert convert.run([table], spark, column_mapping=True).ok
    assert entry(spark, name(table)).is_delta

    assert convert.undo(table, spark) == ()

    restored = entry(spark, name(table))
    assert whole(restored) == whole(old)
    assert lines_of(spark, table) == shown
    assert rows(spark, table) == before
    assert content(old.folder) == files
    assert neighbours(old.folder) == []
    assert not partitions_of(spark, restored, list_files(old.folder))

    spark.sql(f"INSERT INTO {table} PARTITION (k = 9, d = null) SELECT 3, 'x3', null")
    assert convert.run([table], spark, column_mapping=True).ok
    assert spark.table(table).count() == 4
    spark.sql(f"DROP TABLE {table}")
    assert old.folder.exists() is (kind == "external")


class Death(BaseException):
    """The end of a process, which no code catches."""


# Every effect of an undo, by its function.
EFFECTS = {
    undo: ("_run", "_rename", "register_partitions"),
    initial_commit: ("set_aside", "forget"),
}


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, at: int) -> Iterator[list[str]]:
    """Die directly before the given effect of an undo."""
    done: list[str] = []
    with monkeypatch.context() as patched:
        for module, names in EFFECTS.items():
            for name in names:
                real = getattr(module, name)

                def effect(*arguments: Any, _real: Any = real, _name: str = name) -> Any:
                    if len(done) + 1 == at:
                        raise Death
                    done.append(f"{_name} {arguments[1] if _name == '_run' else ''}")
                    return _real(*arguments)

                patched.setattr(module, name, effect)
        yield done


@pytest.mark.parametrize(("form", "kind"), [("spark", "external"), *soak.amount([], [("hive", "managed")])])
def test_undo_survives_crash_and_next_undo_resumes(
    spark: SparkSession,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    kind: str,
) -> None:
    table = make(spark, schema, form, kind, tmp_path / "t")
    old = entry(spark, name(table))
    assert old.folder is not None
    before, files, shown = rows(spark, table), content(old.folder), lines_of(spark, table)
    deaths = 0
    for at in soak.amount((2, 3, 5), range(1, 20)):
        assert convert.run([table], spark, column_mapping=True).ok
        with dying(monkeypatch, at) as effects:
            try:
                convert.undo(table, spark)
                died = False
            except Death:
                died = True
        deaths += died
        waiting = old.folder.with_name("_tableferry_undo_t")
        where = waiting if waiting.exists() else old.folder
        assert {path: data for path, data in content(where).items() if path in files} == files, effects
        if died:
            # A killed process leaves the files that `finally` removes.
            lock = old.folder.with_name("_tableferry_undo_t.lock")
            (old.folder / "_tableferry_undo.lock" if kind == "external" else lock).touch()
            convert.undo(table, spark)
        assert whole(entry(spark, name(table))) == whole(old), effects
        assert lines_of(spark, table) == shown, effects
        assert rows(spark, table) == before, effects
        assert content(old.folder) == files
        assert neighbours(old.folder) == []
        assert tables_in(spark, schema) == ["t"]
        if not died:
            break
    assert deaths >= soak.amount(3, 6)


@soak.slow
def test_undo_refuses_table_with_unknown_entry(spark: SparkSession, schema: str) -> None:
    table = f"{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id int, k int) USING parquet PARTITIONED BY (k)")
    spark.sql(f"INSERT INTO {table} VALUES (1, 7), (2, 8)")
    assert convert.run([table], spark, engine=convert.Engine.NATIVE).ok
    root = entry(spark, name(table)).folder
    assert root is not None
    before = rows(spark, table), content(root)

    with conditions.raises("UNDO_ENTRY_NOT_RECORDED", table=table):
        convert.undo(table, spark)

    assert (rows(spark, table), content(root)) == before
    assert entry(spark, name(table)).is_delta
    assert not neighbours(root)


def test_undo_restores_natively_converted_folder(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    spark.range(3).selectExpr("id", "id AS k").write.partitionBy("k").parquet(str(root))
    before = content(root)
    assert convert.run([str(root)], spark, engine=convert.Engine.NATIVE).ok
    assert {"_last_checkpoint", "00000000000000000000.crc"} & set(os.listdir(root / "_delta_log"))

    convert.undo(str(root), spark)

    assert content(root) == before


def test_undo_by_folder_restores_catalog_entry(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    table = make(spark, schema, "hive", "external", tmp_path / "t")
    shown = lines_of(spark, table)
    assert convert.run([table], spark, column_mapping=True).ok

    convert.undo(str(tmp_path / "t"), spark)

    assert lines_of(spark, table) == shown
    assert not (tmp_path / "t" / "_delta_log").exists()

    # The folder's old name doesn't exist any more.
    assert convert.run([table], spark, column_mapping=True).ok
    spark.sql(f"DROP TABLE {table}")
    convert.undo(str(tmp_path / "t"), spark)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_undo_keeps_entry_that_was_not_switched(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    table = make(spark, schema, "spark", "external", tmp_path / "t")
    shown, before = lines_of(spark, table), rows(spark, table)
    assert convert.run([str(tmp_path / "t")], spark, column_mapping=True).ok

    assert convert.undo(table, spark) == ()

    assert (lines_of(spark, table), rows(spark, table)) == (shown, before)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_undo_recreates_renamed_table_under_new_name(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    table = make(spark, schema, "hive", "external", tmp_path / "t")
    before = rows(spark, table)
    assert convert.run([table], spark, column_mapping=True).ok
    spark.sql(f"ALTER TABLE {table} RENAME TO {schema}.u")

    [note] = convert.undo(f"{schema}.u", spark)

    assert f"{schema}.t" in note
    assert rows(spark, f"{schema}.u") == before
    assert entry(spark, name(f"{schema}.u")).serde is not None


@pytest.mark.parametrize("kind", soak.amount(["external"], TYPES))
@soak.slow
def test_undo_refuses_tables_that_would_lose_data(
    spark: SparkSession, schema: str, tmp_path: Path, kind: str
) -> None:
    table = make(spark, schema, "spark", kind, tmp_path / "t")
    root = entry(spark, name(table)).folder
    assert root is not None
    with conditions.raises("NOT_A_DELTA_TABLE", table=root):
        convert.undo(table, spark)
    with conditions.raises("TABLE_NOT_FOUND", table=f"{schema}.nothing"):
        convert.undo(f"{schema}.nothing", spark)
    assert convert.run([table], spark, column_mapping=True).ok
    files = content(root)

    spark.sql(f"CREATE TABLE {schema}.other USING delta LOCATION '{root}'")
    with conditions.raises(
        "UNDO_BLOCKED_BY_OTHER_ENTRIES", others=[TableName((schema, "other"))], table=table
    ):
        convert.undo(table, spark)
    spark.sql(f"DROP TABLE {schema}.other")

    spark.sql(f"CREATE TABLE {schema}.t__tableferry_undo (id int) USING parquet")
    spark.sql(f"INSERT INTO {schema}.t__tableferry_undo VALUES (1)")
    with conditions.raises("UNDO_SPARE_NAME_TAKEN", spare=f"{table}__tableferry_undo"):
        convert.undo(table, spark)
    assert spark.table(f"{schema}.t__tableferry_undo").count() == 1
    spark.sql(f"DROP TABLE {schema}.t__tableferry_undo")

    assert content(root) == files
    assert entry(spark, name(table)).is_delta

    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    files = content(root)
    with conditions.raises("WRITTEN_AFTER_CONVERSION", table=root):
        convert.undo(table, spark)
    assert content(root) == files
    assert spark.table(table).count() == 2
    assert neighbours(root) == []


def test_convert_reports_table_with_interrupted_undo(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    table = make(spark, schema, "hive", "external", tmp_path / "t")
    before = rows(spark, table)
    assert convert.run([table], spark, column_mapping=True).ok
    initial_commit.set_aside(tmp_path / "t")

    [refused] = convert.run([table], spark).tables

    assert refused.outcome == "failed"
    conditions.check(refused.error, "DELTA_LOG_OF_TABLE_MISSING", table=table)
    convert.undo(table, spark)
    assert rows(spark, table) == before


def test_undo_refuses_views_and_other_formats(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE VIEW {schema}.v AS SELECT 1 AS x")
    spark.sql(f"CREATE TABLE {schema}.c (id int) USING csv")
    for table, format_ in (("v", "view"), ("c", "csv")):
        with conditions.raises("UNDO_OF_OTHER_FORMAT", table=f"{schema}.{table}", format=format_):
            convert.undo(f"{schema}.{table}", spark)


def test_undo_refuses_after_concurrent_write(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(spark, schema, "spark", "managed", tmp_path)
    assert convert.run([table], spark, column_mapping=True).ok
    real = initial_commit.set_aside

    def late(root: Path) -> None:
        spark.sql(f"DELETE FROM {table} WHERE id = 1")
        real(root)

    monkeypatch.setattr(initial_commit, "set_aside", late)
    with conditions.raises("WRITTEN_AFTER_CONVERSION"):
        convert.undo(table, spark)

    assert spark.table(table).count() == 2
    assert tables_in(spark, schema) == ["t"]


@soak.slow
def test_concurrent_undo_reports_the_other_one(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(spark, schema, "hive", "managed", tmp_path)
    before = rows(spark, table)
    assert convert.run([table], spark, column_mapping=True).ok
    real, errors = undo._rename, []

    def rename(old: Path, new: Path) -> None:
        real(old, new)
        with pytest.raises(Busy) as caught:
            convert.undo(table, spark)
        errors.append(caught.value)

    monkeypatch.setattr(undo, "_rename", rename)
    convert.undo(table, spark)

    assert len(errors) == 2
    for error in errors:
        conditions.check(error, "LOCK_HELD", task=f"the undo of {table}")
    assert rows(spark, table) == before


def test_undo_keeps_table_that_a_writer_recreated(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(spark, schema, "spark", "managed", tmp_path)
    before = rows(spark, table)
    root = entry(spark, name(table)).folder
    assert root is not None
    assert convert.run([table], spark, column_mapping=True).ok
    real = undo._rename

    def rename(old: Path, new: Path) -> None:
        real(old, new)
        if old == root:
            root.mkdir()
            (root / "late.parquet").write_bytes(b"kept")

    with monkeypatch.context() as patched:
        patched.setattr(undo, "_rename", rename)
        with conditions.raises("UNDO_FOLDER_WRITTEN", folder=root, table=table):
            convert.undo(table, spark)

    assert (root / "late.parquet").read_bytes() == b"kept"
    (root / "late.parquet").rename(tmp_path / "late.parquet")
    root.rmdir()
    convert.undo(table, spark)
    assert rows(spark, table) == before
