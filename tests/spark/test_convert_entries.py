"""Entries of a Hive metastore: their facts, their partitions, and their switch to Delta, on real Spark."""

from __future__ import annotations

import json
import re
import shutil
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import deltalake
import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak

from tableferry.convert.catalog.entries import entry, tables
from tableferry.convert.catalog.native_engine import list_files
from tableferry.convert.catalog.partitions import partitions_of, register_partitions
from tableferry.convert.catalog.switch import switch_to_delta
from tableferry.errors import TableError
from tableferry.formats.hive.catalog_entry import (
    Entry,
    check_declared,
    existence_defaults,
    kept_properties,
    log_columns,
    losses,
    needs_defaults,
)
from tableferry.formats.hive.catalog_tables import list_tables
from tableferry.formats.hive.partition_mismatches import sentences
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.parquet.files import DataFile
from tableferry.spark.tables import TableName
from tableferry.spark.types import INTEGER, STRING, to_json

# Both definitions of a Parquet table.
FORMS = {
    "spark": "(id int COMMENT 'the id', camelCase string, k int COMMENT 'kk') USING parquet "
    "PARTITIONED BY (k)",
    "hive": "(id int COMMENT 'the id', camelCase string) PARTITIONED BY (k int COMMENT 'kk') "
    "STORED AS parquet",
}
PROPERTIES = {"team": "a=b, c", "k.sql.x": "it's"}
COMMENT = "the table's purpose"


@pytest.fixture(params=sorted(FORMS))
def form(request: pytest.FixtureRequest) -> str:
    return FORMS[str(request.param)]


def named(schema: str, table: str) -> TableName:
    return TableName(("spark_catalog", schema, table))


def make(spark: SparkSession, table: str, form: str, folder: Path | None = None) -> None:
    """Create a table of three rows in three partitions, one of them null."""
    where = f"LOCATION '{folder}'" if folder else ""
    spark.sql(
        f"CREATE {'EXTERNAL ' if folder else ''}TABLE {table} {form} {where} "
        "COMMENT 'the table\\'s purpose' TBLPROPERTIES ('team' = 'a=b, c', 'k.sql.x' = 'it\\'s')"
    )
    for number, value in enumerate(("7", "8", "null")):
        spark.sql(f"INSERT INTO {table} PARTITION (k = {value}) VALUES ({number}, 'x{number}')")


def commit(entry: Entry, **metadata: Any) -> None:
    """Write a minimal first commit with all properties of the entry."""
    assert entry.folder is not None
    actions: list[dict[str, Any]] = [
        {"commitInfo": {"timestamp": 1, "operation": "CONVERT", "operationParameters": {}}},
        {"protocol": metadata.pop("protocol", {"minReaderVersion": 1, "minWriterVersion": 2})},
        {
            "metaData": {
                "id": str(uuid.uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": to_json(log_columns(entry)),
                "partitionColumns": [column.name for column in entry.partition_columns],
                "configuration": kept_properties(entry),
                "description": entry.comment,
                **metadata,
            }
        },
    ]
    for file in local_files(entry):
        parts = dict(part.split("=", 1) for part in file.path.split("/")[:-1])
        values = {
            key: None if value == "__HIVE_DEFAULT_PARTITION__" else value for key, value in parts.items()
        }
        add = {"path": quote(file.path), "partitionValues": values, "size": file.size, "modificationTime": 1}
        actions.append({"add": add | {"dataChange": True}})
    log = entry.folder / "_delta_log"
    log.mkdir()
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / "00000000000000000000.json").write_text(lines, encoding="utf-8")


def local_files(entry: Entry) -> list[DataFile]:
    assert entry.folder is not None
    return sorted(
        DataFile(str(path.relative_to(entry.folder)), path.stat().st_size, 1)
        for path in entry.folder.rglob("*.parquet")
        if "_delta_log" not in path.parts
    )


def shown(spark: SparkSession, table: str) -> dict[str, Any]:
    """Return the description of a table without its provider."""
    described = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    properties = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    ours = ("delta.min", "option.", "transient_")
    return {
        "columns": [(field.name, field.dataType, field.metadata) for field in spark.table(table).schema],
        "comment": described.get("Comment"),
        "owner": described["Owner"],
        "type": described["Type"],
        "location": described["Location"],
        "properties": {key: value for key, value in properties.items() if not key.startswith(ours)},
    }


def versions(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["version"] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect())


def test_entry_has_facts_of_table(spark: SparkSession, schema: str, tmp_path: Path, form: str) -> None:
    make(spark, f"{schema}.t", form, tmp_path / "a b%41")
    table_entry = entry(spark, TableName.parse(f"{schema}.t"))
    assert (table_entry.provider, table_entry.type, table_entry.is_delta) == ("parquet", "external", False)
    assert table_entry.folder == tmp_path / "a b%41"
    assert [field.name for field in table_entry.columns.fields] == ["id", "camelCase", "k"]
    assert [field.metadata.get("comment") for field in table_entry.columns.fields] == ["the id", None, "kk"]
    assert table_entry.partition_columns == (PartitionColumn("k", INTEGER),)
    assert table_entry.comment == COMMENT
    assert kept_properties(table_entry) == PROPERTIES
    assert table_entry.owner == spark.sql("SELECT current_user()").collect()[0][0]
    assert not table_entry.buckets


def test_bare_name_is_table_of_current_schema_and_no_temporary_view(spark: SparkSession, schema: str) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW bare AS SELECT 1 AS x")
    spark.catalog.setCurrentDatabase(schema)
    try:
        with conditions.raises("TABLE_NOT_FOUND", table=f"spark_catalog.{schema}.bare"):
            entry(spark, TableName(("bare",)))
        spark.sql(f"CREATE TABLE {schema}.bare (id int) USING parquet")
        assert [field.name for field in entry(spark, TableName(("bare",))).columns.fields] == ["id"]
    finally:
        spark.catalog.setCurrentDatabase("default")
        spark.catalog.dropTempView("bare")


@pytest.mark.parametrize(
    ("ddl", "provider"),
    [
        ("USING csv", "csv"),
        ("USING json", "json"),
        ("STORED AS orc", "orc"),
        ("STORED AS textfile", "text"),
        ("STORED AS avro", "avro"),
    ],
)
def test_other_formats_are_refused_with_message_of_databricks(
    spark: SparkSession, schema: str, ddl: str, provider: str
) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id int) {ddl}")
    message = (
        f"CONVERT TO DELTA only supports parquet tables, but you are trying to convert a {provider} source: "
    )
    with pytest.raises(TableError) as caught:
        entry(spark, named(schema, "t"))
    conditions.check(caught.value, "NOT_PARQUET", provider=f"a {provider}", table=f"spark_catalog.{schema}.t")
    # The sentence equals the one of Databricks.
    assert caught.value.message == f"{message}spark_catalog.{schema}.t."


def test_views_and_missing_tables_are_refused(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE VIEW {schema}.v AS SELECT 1 AS x")
    with conditions.raises("TABLE_IS_VIEW", table=f"spark_catalog.{schema}.v"):
        entry(spark, named(schema, "v"))
    with conditions.raises("TABLE_NOT_FOUND", table=f"spark_catalog.{schema}.nothing"):
        entry(spark, named(schema, "nothing"))
    with conditions.raises("TABLE_NOT_FOUND", table="spark_catalog.no_such_schema.t"):
        entry(spark, named("no_such_schema", "t"))


def test_schema_lists_parquet_tables_and_skipped_ones(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.spark (id int) USING parquet COMMENT 'a\\nProvider: csv\\nLocation: b'")
    spark.sql(f"CREATE TABLE {schema}.hive (id int) STORED AS parquet")
    spark.sql(f"CREATE TABLE {schema}.done (id int) USING delta")
    spark.sql(f"CREATE TABLE {schema}.lines (id int) STORED AS textfile")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT 1 AS x")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW passing AS SELECT 1 AS x")
    actual = tables(spark, [schema])
    assert [table.table for table in actual.tables] == ["done", "hive", "spark"]
    assert [(table.name.table, table.reason) for table in actual.skipped] == [
        ("lines", "is a text table"),
        ("seen", "is a view"),
    ]
    assert list_tables(spark, [schema])["spark"].location.endswith("/spark")
    assert tables(spark, ["spark_catalog", schema]).tables[0] == named(schema, "done")
    assert entry(spark, actual.tables[0]).is_delta
    spark.catalog.dropTempView("passing")
    with pytest.raises(TableError, match="can't be listed"):
        tables(spark, ["no_such_schema"])


@soak.slow
def test_catalog_partitions_are_compared_with_disk(
    spark: SparkSession, schema: str, tmp_path: Path, form: str
) -> None:
    table, root = f"{schema}.t", tmp_path / "t"
    make(spark, table, form, root)
    table_entry = entry(spark, named(schema, "t"))
    assert not partitions_of(spark, table_entry, local_files(table_entry))

    # An empty partition is no mismatch; one elsewhere, a missing one or an unregistered one is.
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (k = 10)")
    assert not partitions_of(spark, table_entry, local_files(table_entry))
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (k = 11)")
    shutil.rmtree(root / "k=11")
    shutil.copytree(root / "k=7", tmp_path / "out, file:side %2F")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (k = 12) LOCATION '{tmp_path}/out, file:side %2F'")
    shutil.copytree(root / "k=7", root / "new")
    spark.sql(f"ALTER TABLE {table} ADD PARTITION (k = 13) LOCATION '{root}/new'")
    shutil.copytree(root / "k=7", root / "k=14")
    # The catalog has both partitions, with swapped values.
    spark.sql(f"ALTER TABLE {table} PARTITION (k = 7) SET LOCATION '{root}/k=8'")
    spark.sql(f"ALTER TABLE {table} PARTITION (k = 8) SET LOCATION '{root}/k=7'")

    mismatches = partitions_of(spark, table_entry, local_files(table_entry))
    assert [partition.spec for partition in mismatches.outside] == ["k=12"]
    assert mismatches.outside[0].location == f"file:{tmp_path}/out, file:side %2F"
    assert [partition.spec for partition in mismatches.elsewhere] == ["k=13", "k=7", "k=8"]
    assert [partition.spec for partition in mismatches.missing] == ["k=11"]
    assert mismatches.unregistered == ("k=14",)
    report = ". ".join(sentences(table_entry.name, table_entry.location, mismatches))
    assert re.search(r"k=12 at .*k=13 at .*k=11 at .*k=14", report)

    register_partitions(spark, table_entry.name)
    second = partitions_of(spark, table_entry, local_files(table_entry))
    assert (second.outside, second.elsewhere) == (mismatches.outside, mismatches.elsewhere)
    assert (second.missing, second.unregistered) == ((), ())


def test_unregistered_partitions_are_found_and_registered(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    spark.range(2).selectExpr("id", "id AS k", "'a:/ é%' AS d").write.partitionBy("k", "d").parquet(
        str(tmp_path / "t")
    )
    ddl = "(id bigint, k int, d string) USING parquet PARTITIONED BY (k, d)"
    spark.sql(f"CREATE TABLE {schema}.t {ddl} LOCATION '{tmp_path}/t'")
    table_entry = entry(spark, named(schema, "t"))
    assert table_entry.partition_columns == (PartitionColumn("k", INTEGER), PartitionColumn("d", STRING))
    mismatches = partitions_of(spark, table_entry, list_files(spark, table_entry.location))
    assert mismatches.unregistered == ("k=0/d=a%3A%2F é%25", "k=1/d=a%3A%2F é%25")
    assert mismatches.fixable
    register_partitions(spark, table_entry.name)
    assert not partitions_of(spark, table_entry, list_files(spark, table_entry.location))


@pytest.mark.parametrize("managed", soak.amount([True], [True, False]))
def test_switch_keeps_description_and_rows_of_table(
    spark: SparkSession, schema: str, tmp_path: Path, form: str, managed: bool
) -> None:
    table = f"{schema}.t"
    make(spark, table, form, None if managed else tmp_path / "t")
    before, rows = shown(spark, table), sorted(map(tuple, spark.table(table).collect()), key=str)
    old = entry(spark, named(schema, "t"))
    commit(old)
    # A run that died here resumes with reread facts.
    resumed = entry(spark, named(schema, "t"))
    assert resumed == old
    switch_to_delta(spark, resumed)
    switch_to_delta(spark, resumed)

    new = entry(spark, named(schema, "t"))
    assert (new.is_delta, new.location, new.owner, new.type) == (True, old.location, old.owner, old.type)
    assert shown(spark, table) == before
    assert versions(spark, table) == [0]
    assert sorted(map(tuple, spark.table(table).collect()), key=str) == rows
    assert spark.sql(f"SELECT id FROM {table} WHERE k IS NULL").collect() == [(2,)]

    spark.sql(f"INSERT INTO {table} VALUES (3, 'x3', 9)")
    assert spark.table(table).count() == 4
    assert spark.sql(f"SELECT * FROM {table} VERSION AS OF 0").count() == 3
    spark.sql(f"DROP TABLE {table}")
    assert old.folder is not None
    assert old.folder.exists() is not managed


def test_switch_without_delta_log_is_refused(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    make(spark, f"{schema}.t", FORMS["spark"], tmp_path / "t")
    table_entry = entry(spark, named(schema, "t"))
    with conditions.raises(
        "DELTA_LOG_MISSING", folder=f"file:{tmp_path}/t", table=f"spark_catalog.{schema}.t"
    ):
        switch_to_delta(spark, table_entry)
    assert not (tmp_path / "t" / "_delta_log").exists()
    assert not entry(spark, named(schema, "t")).is_delta


def test_switch_refuses_second_table_with_other_properties(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    make(spark, f"{schema}.first", FORMS["spark"], tmp_path / "t")
    like = f"{FORMS['spark']} LOCATION '{tmp_path}/t' TBLPROPERTIES"
    spark.sql(f"CREATE TABLE {schema}.second {like} ('team' = 'a=b, c')")
    spark.sql(f"CREATE TABLE {schema}.third {like} ('team' = 'other')")
    commit(entry(spark, named(schema, "first")))
    for name in ("first", "second"):
        switch_to_delta(spark, entry(spark, named(schema, name)))
        assert spark.table(f"{schema}.{name}").count() == 3
    with conditions.raises(
        "LOG_PROPERTIES_DIFFER", table=f"spark_catalog.{schema}.third", properties=["team"]
    ):
        switch_to_delta(spark, entry(spark, named(schema, "third")))
    assert not entry(spark, named(schema, "third")).is_delta
    assert versions(spark, f"{schema}.first") == [0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("delta.enableChangeDataFeed", "true"),
        ("Delta.columnMapping.mode", "name"),
        ("delta.constraints.positive", "id > 0"),
        ("delta.feature.deletionVectors", "supported"),
    ],
)
def test_properties_that_delta_interprets_are_refused(
    spark: SparkSession, schema: str, key: str, value: str
) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id int) USING parquet TBLPROPERTIES ('{key}' = '{value}')")
    with conditions.raises("PROPERTY_ACTIVE_IN_DELTA", property=key):
        kept_properties(entry(spark, named(schema, "t")))


def test_append_only_property_is_kept_and_enforced(spark: SparkSession, schema: str) -> None:
    table = f"{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id int) USING parquet TBLPROPERTIES ('delta.appendOnly' = 'true')")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    table_entry = entry(spark, named(schema, "t"))
    commit(table_entry)
    switch_to_delta(spark, table_entry)
    with pytest.raises(Exception, match="DELTA_CANNOT_MODIFY_APPEND_ONLY"):
        spark.sql(f"DELETE FROM {table}")


@pytest.mark.parametrize(
    "ddl",
    [
        "USING parquet CLUSTERED BY (id) SORTED BY (name) INTO 4 BUCKETS",
        "CLUSTERED BY (id) INTO 4 BUCKETS STORED AS parquet",
    ],
)
@soak.slow
def test_switched_bucketed_table_is_readable_and_writable(spark: SparkSession, schema: str, ddl: str) -> None:
    table = f"{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id int, name string) {ddl}")
    spark.sql(f"INSERT INTO {table} SELECT int(id), 'x' FROM range(20)")
    table_entry = entry(spark, named(schema, "t"))
    assert (table_entry.buckets, table_entry.bucket_columns) == (4, ("id",))
    assert "bucketed by id into 4" in losses(table_entry)[0]
    commit(table_entry)
    switch_to_delta(spark, table_entry)
    # Files of this write aren't buckets; a reader of buckets would lose rows.
    spark.sql(f"INSERT INTO {table} SELECT int(id), 'y' FROM range(20)")
    spark.sql(f"UPDATE {table} SET name = 'z' WHERE id = 3")
    assert spark.sql(f"SELECT * FROM {table} WHERE id = 3").collect() == [(3, "z"), (3, "z")]
    joined = f"SELECT count(*) FROM {table} AS a JOIN {table} AS b USING (id)"
    assert spark.sql(joined).collect() == [(80,)]
    assert spark.sql(f"SELECT count(*) FROM (SELECT id FROM {table} GROUP BY id)").collect() == [(20,)]


def test_switch_keeps_char_and_varchar_lengths(spark: SparkSession, schema: str) -> None:
    table = f"{schema}.t"
    spark.sql(f"CREATE TABLE {table} (c char(3), v varchar(3)) USING parquet")
    spark.sql(f"INSERT INTO {table} VALUES ('a', 'b')")
    table_entry = entry(spark, named(schema, "t"))
    commit(table_entry)
    switch_to_delta(spark, table_entry)
    assert spark.sql(f"SELECT * FROM {table} WHERE c = 'a'").collect() == [("a  ", "b")]
    with pytest.raises(Exception, match="DELTA_EXCEED_CHAR_VARCHAR_LIMIT"):
        spark.sql(f"INSERT INTO {table} VALUES ('a', 'four')")


def test_declared_partition_columns_must_match_catalog(spark: SparkSession, schema: str) -> None:
    spark.sql(f"CREATE TABLE {schema}.t (id int, k int) USING parquet PARTITIONED BY (k)")
    table_entry = entry(spark, named(schema, "t"))
    check_declared(table_entry, [PartitionColumn("K", INTEGER)])
    for declared in ([PartitionColumn("k", STRING)], [], [PartitionColumn("j", INTEGER)]):
        with conditions.raises("PARTITIONED_BY_DIFFERS_FROM_CATALOG", columns="k int"):
            check_declared(table_entry, declared)


@soak.slow
def test_switch_keeps_column_defaults_and_reports_missing_values(spark: SparkSession, schema: str) -> None:
    table = f"{schema}.t"
    spark.sql(f"CREATE TABLE {table} (id int) USING parquet")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (n string DEFAULT 'q')")
    old = entry(spark, named(schema, "t"))
    assert (needs_defaults(old), existence_defaults(old)) == (True, {"n": "'q'"})
    features = ["allowColumnDefaults", "appendOnly", "invariants"]
    commit(old, protocol={"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features})
    switch_to_delta(spark, old)
    spark.sql(f"INSERT INTO {table} (id) VALUES (2)")
    # The first row was 'q' in the Parquet table, so a conversion must refuse it.
    assert sorted(map(tuple, spark.table(table).collect())) == [(1, None), (2, "q")]
    assert old.folder is not None
    assert deltalake.DeltaTable(str(old.folder)).version() == 1
