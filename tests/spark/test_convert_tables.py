"""End-to-end conversions of catalog tables: rows and catalog entries."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak

from tableferry import convert
from tableferry.convert.catalog import partitions, switch
from tableferry.convert.catalog.entries import entry
from tableferry.convert.catalog.partitions import partitions_of
from tableferry.convert.discovery.listing import list_files
from tableferry.formats.delta import initial_commit
from tableferry.formats.hive.catalog_entry import Entry
from tableferry.spark.redaction import CORE_CAN_BE_SET, HIDDEN, SHOWN
from tableferry.spark.tables import TableName

FIRST = "00000000000000000000.json"

# Both Parquet providers, each in the schema's location and elsewhere.
FORMS = {
    "spark": "(id bigint COMMENT 'the id', name string, d date COMMENT 'day', place string) USING parquet "
    "PARTITIONED BY (d, place)",
    "hive": "(id bigint COMMENT 'the id', name string) PARTITIONED BY (d date COMMENT 'day', place string) "
    "STORED AS parquet",
}
PLACES = ("a/b c", "100% ü=é", "null")


def make(spark: SparkSession, table: str, form: str, folder: Path | None = None) -> list[str]:
    """Create a table with a null, an escaped and a date value in its partitions; return its rows."""
    where = f"LOCATION '{folder}'" if folder else ""
    spark.sql(
        f"CREATE {'EXTERNAL ' if folder and form == 'hive' else ''}TABLE {table} {FORMS[form]} {where} "
        "COMMENT 'of events' TBLPROPERTIES ('team' = 'a')"
    )
    for number, partition in enumerate(PLACES):
        literal = partition if partition == "null" else f"'{partition}'"
        day = "null" if partition == "null" else f"DATE'2024-01-0{number + 1}'"
        spark.sql(
            f"INSERT INTO {table} PARTITION (d = {day}, place = {literal}) VALUES ({number}, 'n{number}')"
        )
    return rows(spark, table)


def name(table: str) -> TableName:
    return TableName.parse(f"spark_catalog.{table}")


def entry_of(spark: SparkSession, table: str) -> Entry:
    return entry(spark, name(table))


def folder_of(spark: SparkSession, table: str) -> Path:
    folder = entry_of(spark, table).folder
    assert folder is not None
    return folder


def rows(spark: SparkSession, table: str) -> list[str]:
    return sorted(str(row) for row in spark.table(table).collect())


def content(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
        for path in sorted(root.rglob("*"))
    }


def versions(spark: SparkSession, table: str) -> list[int]:
    return sorted(row["version"] for row in spark.sql(f"DESCRIBE HISTORY {table}").collect())


def actions(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "_delta_log" / FIRST).read_text().splitlines()]


def external(spark: SparkSession, table: str, columns: str, root: Path, rest: str = "") -> None:
    spark.sql(f"CREATE TABLE {table} ({columns}) USING parquet {rest} LOCATION '{root}'")


def write(path: Path, columns: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def converted(sources: str | Sequence[str], spark: SparkSession, **options: Any) -> convert.TableReport:
    [done] = convert.run([sources] if isinstance(sources, str) else sources, spark, **options).tables
    return done


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ("hive", "external"),
        ("spark", "managed"),
        pytest.param("hive", "managed", marks=soak.only),
        pytest.param("spark", "external", marks=soak.only),
    ],
)
@soak.slow
def test_catalog_conversion_changes_only_provider(
    spark: SparkSession, schema: str, tmp_path: Path, form: str, kind: str
) -> None:
    table = f"{schema}.t"
    before = make(spark, table, form, tmp_path / "a table" if kind == "external" else None)
    old = entry_of(spark, table)
    root = folder_of(spark, table)
    files = content(root)

    done = converted(table, spark, verify=True)

    assert (done.outcome, done.error) == ("converted", None)
    assert done.verdict is not None
    assert done.verdict.matches
    new = entry_of(spark, table)
    assert (new.is_delta, new.type, new.location, new.owner) == (True, old.type, old.location, old.owner)
    assert rows(spark, table) == before
    assert spark.sql(f"SELECT id FROM {table} WHERE d IS NULL AND place IS NULL").collect() == [(2,)]
    assert spark.sql(f"SELECT id FROM {table} WHERE place = '{PLACES[0]}'").collect() == [(0,)]
    assert spark.sql(f"SELECT id FROM {table} WHERE d = DATE'2024-01-02'").collect() == [(1,)]
    after = content(root)
    assert {path: after.get(path) for path in files} == files
    assert set(after) - set(files) == {"_delta_log", f"_delta_log/{FIRST}"}
    by_deltalake = deltalake.DeltaTable(root).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["d"], row["place"]) for row in by_deltalake] == [
        (date(2024, 1, 1), PLACES[0]),
        (date(2024, 1, 2), PLACES[1]),
        (None, None),
    ]

    comments = [field.metadata.get("comment") for field in spark.table(table).schema]
    assert comments == ["the id", None, "day", None]
    details = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()}
    assert details["Comment"] == "of events"
    assert ("team", "a") in [tuple(row) for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()]

    spark.sql(f"INSERT INTO {table} VALUES (9, 'new', DATE'2024-02-01', 'x')")
    assert spark.table(table).count() == 4
    assert sorted(map(str, spark.sql(f"SELECT * FROM {table} VERSION AS OF 0").collect())) == before
    spark.sql(f"DROP TABLE {table}")
    assert root.exists() is (kind == "external")


def test_convert_keeps_catalog_column_and_adds_file_column(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    write(tmp_path / "t" / "a.parquet", {"extra": [1.5], "id": [1]})
    external(spark, f"{schema}.t", "id bigint, later string", tmp_path / "t")

    done = converted(f"{schema}.t", spark)

    assert done.plan is not None
    assert any("`extra`" in note for note in done.plan.notes), done.plan.notes
    assert spark.table(f"{schema}.t").columns == ["id", "later", "extra"]
    assert rows(spark, f"{schema}.t") == ["Row(id=1, later=None, extra=1.5)"]


def test_catalog_types_that_conflict_with_files_are_refused(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    write(tmp_path / "t" / "a.parquet", {"id": ["one"]})
    external(spark, f"{schema}.t", "id int", tmp_path / "t")
    before = content(tmp_path)

    done = converted(f"{schema}.t", spark, statistics=convert.Statistics.NONE)

    assert done.outcome == "refused"
    conditions.check(
        done.error,
        "COLUMN_TYPES_CONFLICT",
        column="id",
        type="int",
        file=re.compile(f"{schema}.t"),
        other_type="string",
        other="a.parquet",
    )
    assert content(tmp_path) == before
    assert not entry_of(spark, f"{schema}.t").is_delta


@soak.slow
def test_catalog_types_wider_than_files_are_kept(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    narrow = {"id": pa.array([1, -2, None], pa.int32()), "x": pa.array([0.5, None, 2.0], pa.float32())}
    write(tmp_path / "t" / "a.parquet", narrow)
    external(spark, f"{schema}.t", "id bigint, x double", tmp_path / "t")

    done = converted(f"{schema}.t", spark, verify=True)

    assert (done.outcome, done.error) == ("converted", None)
    spark.sql(f"INSERT INTO {schema}.t VALUES (5000000000, 1e300)")
    assert [row[0] for row in spark.sql(f"SELECT id FROM {schema}.t WHERE id < 0").collect()] == [-2]
    read = deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table()
    assert sorted(read["id"].drop_null().to_pylist()) == [-2, 1, 5_000_000_000]


def test_redacted_property_keeps_its_value(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    if spark.conf.get(CORE_CAN_BE_SET, "true") == "false":
        # A test of fleets before this one has the session show them.
        for setting in reversed(SHOWN):
            spark.conf.unset(setting)
    home = "https://example.com/?url=1"
    write(tmp_path / "t" / "a.parquet", {"id": [1]})
    external(spark, f"{schema}.t", "id bigint", tmp_path / "t")
    spark.sql(f"ALTER TABLE {schema}.t SET TBLPROPERTIES ('home' = '{home}', 'token' = 'x')")

    done = converted(f"{schema}.t", spark)

    assert (done.outcome, done.error) == ("converted", None)
    configuration = spark.sql(f"DESCRIBE DETAIL {schema}.t").collect()[0]["properties"]
    assert (configuration["home"], configuration["token"]) == (home, "x")
    # The session redacts them again.
    shown = {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {schema}.t").collect()}
    assert shown["home"] == HIDDEN


@soak.slow
def test_hive_table_gets_mixed_case_column_names_of_files(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    write(tmp_path / "t" / "k=1" / "a.parquet", {"userId": [1], "Name": ["x"]})
    ddl = "(userid bigint COMMENT 'who', name string) PARTITIONED BY (k int) STORED AS parquet"
    spark.sql(f"CREATE EXTERNAL TABLE {schema}.t {ddl} LOCATION '{tmp_path}/t'")
    spark.sql(f"MSCK REPAIR TABLE {schema}.t")

    done = converted(f"{schema}.t", spark, verify=True)

    assert (done.outcome, done.error) == ("converted", None)
    assert spark.table(f"{schema}.t").columns == ["userId", "Name", "k"]
    assert spark.table(f"{schema}.t").schema["userId"].metadata["comment"] == "who"
    assert spark.sql(f"SELECT userid, name, k FROM {schema}.t WHERE userid = 1").collect() == [(1, "x", 1)]
    add = actions(tmp_path / "t")[3]["add"]
    assert json.loads(add["stats"])["minValues"] == {"userId": 1, "Name": "x"}
    assert deltalake.DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist() == [
        {"userId": 1, "Name": "x", "k": 1}
    ]


@soak.slow
def test_two_tables_on_one_path_share_one_log(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    write(tmp_path / "t" / "a.parquet", {"id": [1]})
    for table in ("first", "second"):
        external(spark, f"{schema}.{table}", "id bigint", tmp_path / "t")

    done = convert.run([f"{schema}.first", f"{schema}.second"], spark)

    assert [table.outcome for table in done.tables] == ["converted", "switched"]
    for table in ("first", "second"):
        assert entry_of(spark, f"{schema}.{table}").is_delta
        assert versions(spark, f"{schema}.{table}") == [0]
    spark.sql(f"INSERT INTO {schema}.first VALUES (2)")
    assert spark.table(f"{schema}.second").count() == 2


def test_convert_switches_entry_of_table_converted_by_path(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    table = f"{schema}.t"
    before = make(spark, table, "hive", tmp_path / "t")
    assert convert.run([str(tmp_path / "t")], spark).ok

    planned = converted(table, spark, dry_run=True)
    done = converted(table, spark)

    assert planned.plan is not None
    assert [type(step).__name__ for step in planned.plan.steps] == ["SwitchEntry"]
    assert (done.outcome, done.error) == ("switched", None)
    assert rows(spark, table) == before
    # The log lacked its properties: one more commit adds them without changing files.
    assert versions(spark, table) == [0, 1]
    assert ("team", "a") in [tuple(row) for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()]
    assert converted(table, spark).outcome == "already"


@soak.slow
def test_parquet_rows_written_after_commit_are_added_or_named(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = f"{schema}.first", f"{schema}.second"
    write(tmp_path / "t" / "a.parquet", {"id": [1]})
    for table in (first, second):
        external(spark, table, "id bigint", tmp_path / "t")
    with monkeypatch.context() as patched:
        dying(patched, 2)
        with pytest.raises(Death):
            convert.run([first], spark)
    spark.sql(f"INSERT INTO {first} VALUES (2)")

    # The catalog entry is Parquet, so the rows are those of the files.
    done = converted(first, spark, verify=True)

    assert (done.outcome, done.error) == ("converted", None)
    assert done.verdict is not None
    assert done.verdict.matches
    assert rows(spark, first) == ["Row(id=1)", "Row(id=2)"]
    assert versions(spark, first) == [0]

    # A job that writes Parquet during the switch is detected too.
    convert.undo(first, spark)
    late, real = tmp_path / "t" / "late.parquet", switch.switch_to_delta

    def switch_late(*arguments: Any, **options: Any) -> None:
        write(late, {"id": [9]})
        real(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(switch, "switch_to_delta", switch_late)
        failed = converted(first, spark)
    assert failed.outcome == "failed"
    conditions.check(
        failed.error,
        "FILES_CHANGED_DURING_SWITCH",
        table=first,
        changes=re.compile("late.parquet appeared"),
    )
    late.unlink()

    # The other table of the folder is still Parquet, and writers write Parquet to it.
    spark.sql(f"INSERT INTO {second} VALUES (3)")
    refused = converted(second, spark)
    assert refused.outcome == "refused"
    conditions.check(
        refused.error,
        "FILES_CHANGED_UNDER_TWO_ENTRIES",
        table=second,
        delta_tables=first,
        first=first,
    )
    assert not entry_of(spark, second).is_delta
    assert converted(first, spark).outcome == "refused"
    convert.undo(first, spark)
    assert [table.outcome for table in convert.run([first, second], spark).tables] == [
        "converted",
        "switched",
    ]
    assert rows(spark, first) == rows(spark, second) == ["Row(id=1)", "Row(id=2)", "Row(id=3)"]


def test_entry_is_switched_to_used_log_only_if_it_has_the_files(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    table, root = f"{schema}.t", tmp_path / "a table"
    write(root / "a b.parquet", {"id": [1]})
    external(spark, table, "id bigint", root)
    assert convert.run([str(root)], spark).ok
    spark.sql(f"INSERT INTO delta.`{root}` VALUES (2)")
    write(root / "late.parquet", {"id": [3]})

    refused = converted(table, spark)

    assert refused.outcome == "refused"
    conditions.check(
        refused.error,
        "DELTA_AND_PARQUET_DIFFER",
        table=table,
        changes=re.compile("late.parquet appeared$"),
    )
    assert not entry_of(spark, table).is_delta
    (root / "late.parquet").unlink()
    done = converted(table, spark, verify=True)
    assert (done.outcome, done.error) == ("switched", None)
    assert done.verdict is not None
    assert done.verdict.matches
    assert rows(spark, table) == ["Row(id=1)", "Row(id=2)"]


@soak.slow
def test_convert_of_schema_converts_all_parquet_tables(
    spark: SparkSession, schema: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for table in ("a", "c"):
        make(spark, f"{schema}.{table}", "spark")
    make(spark, f"{schema}.b", "hive", tmp_path / "b")
    bad = tmp_path / "b" / "d=2024-01-01" / "place=a%2Fb c" / "notes.txt"
    bad.write_text("x")
    spark.sql(f"CREATE VIEW {schema}.v AS SELECT 1 AS x")
    spark.sql(f"CREATE TABLE {schema}.lines (id int) USING csv")
    spark.sql(f"CREATE TABLE {schema}.done (id int) USING delta")

    with caplog.at_level(logging.INFO, "tableferry"):
        done = convert.run([f"{schema}.*"], spark)

    outcomes = {table.source.rpartition(".")[2]: table.outcome for table in done.tables}
    assert outcomes == {
        "a": "converted",
        "b": "refused",
        "c": "converted",
        "done": "already",
        "lines": "skipped",
        "v": "skipped",
    }
    assert not done.ok
    report = [message for message in caplog.messages if message.startswith("[")]
    assert [message.partition(" ")[0] for message in report] == [f"[{number}/6]" for number in range(1, 7)]
    [refused] = [table for table in done.tables if table.outcome == "refused"]
    conditions.check(refused.error, "UNREADABLE_FILES", files=re.compile("notes.txt"))
    assert refused.source == f"{schema}.b"
    assert [table.skipped for table in done.tables if table.outcome == "skipped"] == [
        f"{schema}.lines is a csv table",
        f"{schema}.v is a view",
    ]

    bad.unlink()
    result = convert.run([f"{schema}.*"], spark)
    assert result.ok
    assert {table.outcome for table in result.tables if table.source.endswith((".a", ".c"))} == {"already"}
    assert [table.outcome for table in result.tables if table.source.endswith(".b")] == ["converted"]

    by_name = convert.run([f"{schema}.v", f"{schema}.lines", f"{schema}.nothing"], spark)
    assert not by_name.ok
    view, lines, nothing = (table.error for table in by_name.tables)
    conditions.check(view, "TABLE_IS_VIEW", table=f"{schema}.v")
    conditions.check(lines, "NOT_PARQUET", provider="a csv", table=f"{schema}.lines")
    conditions.check(nothing, "TABLE_NOT_FOUND", table=f"{schema}.nothing")


@pytest.mark.parametrize("form", sorted(FORMS))
@soak.slow
def test_mismatched_partitions_require_msck(
    spark: SparkSession, schema: str, tmp_path: Path, form: str
) -> None:
    table, root = f"{schema}.t", tmp_path / "t"
    make(spark, table, form, root)
    shutil.copytree(root / "d=2024-01-01", root / "d=2024-03-01")
    shutil.rmtree(root / "d=2024-01-02")
    before = content(root)

    refused = converted(table, spark)

    assert refused.outcome == "refused"
    for part in ("d=2024-03-01", "d=2024-01-02", "--msck"):
        conditions.check(refused.error, "CATALOG_PARTITIONS_DIFFER", differences=re.compile(part))
    assert content(root) == before

    done = converted(table, spark, msck=True)
    assert (done.outcome, done.error) == ("converted", None)
    assert [str(row["d"]) for row in spark.sql(f"SELECT d FROM {table} ORDER BY d").collect()] == [
        "None",
        "2024-01-01",
        "2024-03-01",
    ]


@pytest.mark.parametrize("msck", [False, True])
def test_partition_outside_the_folder_is_refused(
    spark: SparkSession, schema: str, tmp_path: Path, msck: bool
) -> None:
    table = f"{schema}.t"
    make(spark, table, "hive", tmp_path / "t")
    shutil.copytree(tmp_path / "t" / "d=2024-01-01" / "place=a%2Fb c", tmp_path / "elsewhere")
    spec = "PARTITION (d = DATE'2024-05-05', place = 'out')"
    spark.sql(f"ALTER TABLE {table} ADD {spec} LOCATION '{tmp_path}/elsewhere'")
    before = content(tmp_path)

    done = converted(table, spark, msck=msck)

    assert done.outcome == "refused"
    outside = f"d=2024-05-05/place=out at file:{tmp_path}/elsewhere"
    conditions.check(done.error, "CATALOG_PARTITIONS_DIFFER", differences=re.compile(re.escape(outside)))
    assert content(tmp_path) == before
    assert spark.table(table).count() == 4


def test_mapped_columns_are_read_by_name(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    columns = {"a name": [1, 2], "in": [{"x,y": "u"}, None], "plain": ["p", "q"]}
    write(tmp_path / "t" / "the day=2024-01-01" / "a.parquet", columns)
    external(
        spark,
        f"{schema}.t",
        "`a name` bigint, `in` struct<`x,y`: string>, plain string, `the day` date",
        tmp_path / "t",
        "PARTITIONED BY (`the day`)",
    )
    spark.sql(f"MSCK REPAIR TABLE {schema}.t")
    before = rows(spark, f"{schema}.t")

    done = converted(f"{schema}.t", spark, column_mapping=True, verify=True)

    assert (done.outcome, done.error) == ("converted", None)
    assert rows(spark, f"{schema}.t") == before
    chosen = (
        f"SELECT `a name`, `in`.`x,y` FROM {schema}.t WHERE `a name` = 1 AND `the day` = DATE'2024-01-01'"
    )
    assert spark.sql(chosen).collect() == [(1, "u")]
    spark.sql(f"ALTER TABLE {schema}.t RENAME COLUMN `a name` TO tidy")
    spark.sql(f"INSERT INTO {schema}.t VALUES (3, null, 'r', null)")
    assert spark.sql(f"SELECT sum(tidy) FROM {schema}.t").collect() == [(6,)]
    # A reader without support for the feature refuses the table.
    table = deltalake.DeltaTable(tmp_path / "t")
    with pytest.raises(Exception, match=r"(?i)columnMapping"):
        table.to_pyarrow_table()


PARTITION_VALUES: dict[str, tuple[str, Any]] = {
    "b": ("boolean", True),
    "ti": ("tinyint", -1),
    "si": ("smallint", 300),
    "i": ("int", 7),
    "l": ("bigint", 5_000_000_000),
    "f": ("float", 1.5),
    "do": ("double", 2.25),
    "de": ("decimal(20,2)", Decimal("123456789012345678.90")),
    "da": ("date", date(2024, 2, 29)),
    "ts": ("timestamp", datetime(2024, 1, 1, 10, 30, 0, 250000)),
    "s": ("string", "a/b:c %"),
}


@soak.slow
def test_verify_matches_partitions_of_every_type(spark: SparkSession, schema: str, tmp_path: Path) -> None:
    table = f"{schema}.t"
    columns = ", ".join(f"{column} {kind}" for column, (kind, _) in PARTITION_VALUES.items())
    external(
        spark, table, f"id int, {columns}", tmp_path / "t", f"PARTITIONED BY ({', '.join(PARTITION_VALUES)})"
    )
    values = [value for _, value in PARTITION_VALUES.values()]
    frame = spark.createDataFrame([(1, *values), (2, *([None] * len(values)))], f"id int, {columns}")
    frame.write.insertInto(table)
    before = rows(spark, table)

    done = converted(table, spark, verify=True)

    assert (done.outcome, done.error) == ("converted", None)
    assert done.verdict is not None
    assert done.verdict.matches
    assert rows(spark, table) == before


@pytest.mark.parametrize(
    "tampering", ["a value is another", *soak.amount([], ["a file is left out", "a file counts twice"])]
)
@soak.slow
def test_verify_finds_rows_changed_by_wrong_log(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tampering: str
) -> None:
    table = f"{schema}.t"
    make(spark, table, "spark", tmp_path / "t")
    real = initial_commit.put

    def put(root: Path, table_id: str, lines: Any, **options: Any) -> None:
        written = list(lines)
        match tampering:
            case "a file is left out":
                written.pop()
            case "a value is another":
                written = [line.replace('"d":"2024-01-01"', '"d":"2024-01-09"') for line in written]
            case _:
                add = json.loads(written[-1])["add"]
                shutil.copy(root / unquote(add["path"]), root / "_copy.parquet")
                written.append(json.dumps({"add": add | {"path": "_copy.parquet"}}) + "\n")
        real(root, table_id, written, **options)

    monkeypatch.setattr(initial_commit, "put", put)

    done = converted(table, spark, verify=True)

    assert done.outcome == "failed"
    if tampering == "a value is another":
        assert done.verdict is not None
        assert not done.verdict.matches
        conditions.check(done.error, "ROWS_DIFFER_AFTER_CONVERSION", source=table)
    else:
        # The log is compared with the directory before the rows.
        changes = re.compile("parquet (appeared|vanished)")
        conditions.check(done.error, "FILES_CHANGED_DURING_SWITCH", changes=changes, source=table)
    monkeypatch.undo()
    convert.undo(table, spark)
    assert converted(table, spark, verify=True).outcome == "converted"


class Death(BaseException):
    """The end of a process, which no code catches."""


def dying(patched: pytest.MonkeyPatch, at: int) -> list[str]:
    """Die directly before the given effect of a conversion; return the effects so far."""
    done: list[str] = []
    for module, name_ in (
        (partitions, "register_partitions"),
        (initial_commit, "put"),
        (switch, "switch_to_delta"),
        # Only the statement follows it.
        (switch, "_configuration"),
    ):
        real = getattr(module, name_)

        def effect(*arguments: Any, _real: Any = real, _name: str = name_, **options: Any) -> Any:
            if len(done) + 1 == at:
                raise Death
            done.append(_name)
            return _real(*arguments, **options)

        patched.setattr(module, name_, effect)
    return done


def test_next_run_finishes_conversion_that_crashed(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = 0
    for at in range(1, 10):
        table, root = f"{schema}.t{at}", tmp_path / str(at)
        before = make(spark, table, "hive", root)
        shutil.copytree(root / "d=2024-01-01", root / "d=2024-03-01")
        with monkeypatch.context() as patched:
            done = dying(patched, at)
            try:
                convert.run([table], spark, msck=True)
                died = False
            except Death:
                died = True
        deaths += died
        if not died:
            break
        assert (root / "_delta_log").exists() is ("put" in done)
        finished = converted(table, spark, msck=True)
        assert finished.outcome == ("switched" if "put" in done else "converted")
        assert entry_of(spark, table).is_delta
        assert versions(spark, table) == [0]
        assert spark.table(table).count() == len(before) + 1
    assert deaths == 4


@soak.slow
def test_concurrent_conversions_commit_and_switch_once(
    spark: SparkSession, schema: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f"{schema}.t"
    before = make(spark, table, "hive", tmp_path / "t")
    together, real = threading.Barrier(2), initial_commit.put

    def put(root: Path, table_id: str, lines: Any, **options: Any) -> None:
        together.wait(60)
        real(root, table_id, lines, **options)

    monkeypatch.setattr(initial_commit, "put", put)
    done: list[convert.TableReport] = []
    threads = [threading.Thread(target=lambda: done.append(converted(table, spark))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(report.outcome for report in done) == ["converted", "failed"]
    [error] = [report.error for report in done if report.outcome == "failed"]
    conditions.check(error, "CONVERTED_BY_ANOTHER_PROCESS", table=tmp_path / "t")
    assert versions(spark, table) == [0]
    assert entry_of(spark, table).is_delta
    assert rows(spark, table) == before
    assert os.listdir(tmp_path / "t" / "_delta_log") == [FIRST]


def test_convert_adds_only_files_of_catalog_partitions(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    """Files outside the catalog's partitions aren't part of the table, before and after."""
    table = f"{schema}.t"
    make(spark, table, "spark", tmp_path / "t")
    before = entry_of(spark, table)
    assert not partitions_of(spark, before, list_files(tmp_path / "t"))
    (tmp_path / "t" / "_temporary" / "0").mkdir(parents=True)
    write(tmp_path / "t" / "_temporary" / "0" / "half.parquet", {"id": [99]})
    (tmp_path / "t" / ".hidden").write_text("x")

    assert converted(table, spark, verify=True).outcome == "converted"

    assert spark.table(table).count() == 3
