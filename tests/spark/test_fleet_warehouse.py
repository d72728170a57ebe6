"""Each step of a migration on real tables, with a real Hive metastore, Delta and Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.fleet_steps import copy_definition, drop_copy
from tests.spark.warehouses import NoAccess, contents, rows

from tableferry.fleet.access import fence
from tableferry.fleet.checks.eligibility import find_obstacles
from tableferry.fleet.checks.facts import GivenFacts
from tableferry.fleet.copies import comparison, delta, iceberg
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.warehouse import hive, job_tables, table_renames, views
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import catalog, session
from tableferry.spark.tables import TableName

SCHEMA = "fleet_warehouse"


def table_name(table: str, suffix: str = "") -> TableName:
    return TableName(("spark_catalog", SCHEMA, table + suffix))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(scope="module")
def warehouse(spark: SparkSession, folder: Path) -> Iterator[Warehouse]:
    spark.sql(f"CREATE SCHEMA {SCHEMA}")
    spark.sql(f"USE {SCHEMA}")
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the tables"):
        for statement in statements(folder):
            spark.sql(statement)
    yield Warehouse(spark, NoAccess())
    spark.sql("USE default")
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def statements(folder: Path) -> Iterator[str]:
    # Partition values that are null, special or look like paths; one partition is outside the directory.
    yield (
        "CREATE EXTERNAL TABLE events (id INT COMMENT 'its number', name STRING) COMMENT 'it\\'s events' "
        f"PARTITIONED BY (k STRING COMMENT 'a key') STORED AS PARQUET LOCATION '{folder}/events' "
        "TBLPROPERTIES ('team' = 'a=b, c')"
    )
    yield "INSERT INTO events VALUES (1, 'a', 'x/y'), (2, 'b', NULL), (3, 'c', 'sp ace:%'), (4, 'd', 'é')"
    yield f"ALTER TABLE events ADD PARTITION (k = 'far') LOCATION '{folder}/far away'"
    yield "INSERT INTO events VALUES (5, 'e', 'far')"
    yield "CREATE VIEW events_view AS SELECT id FROM events WHERE id > 1"
    yield f"CREATE VIEW events_view_view AS SELECT * FROM {SCHEMA}.events_view"
    # Spark's Parquet: managed, names in upper case, INT96, nested types, partitioned by a date.
    yield (
        "CREATE TABLE facts (ID BIGINT, At TIMESTAMP, amount DECIMAL(10, 2), "
        "nested STRUCT<a: INT, B: ARRAY<STRING>>, pairs MAP<STRING, INT>, Day DATE) USING parquet "
        "PARTITIONED BY (Day) COMMENT 'facts'"
    )
    yield (
        "INSERT INTO facts VALUES (1, TIMESTAMP '2024-02-29 23:59:59.123456', 1.5, "
        "named_struct('a', 1, 'B', array('x', NULL)), map('k', 1), DATE '2024-02-29'), "
        "(2, TIMESTAMP '1969-12-31 00:00:00', NULL, NULL, NULL, NULL)"
    )
    # Types that Iceberg widens; managed by Hive, without partitions.
    yield "CREATE TABLE narrow (tiny TINYINT, small SMALLINT, short VARCHAR(5), raw BINARY) STORED AS PARQUET"
    yield "INSERT INTO narrow VALUES (-1, 300, 'abc', X'00ff'), (NULL, NULL, NULL, NULL)"
    yield (
        "CREATE TABLE orc_table (id INT, at DATE, tiny TINYINT) PARTITIONED BY (year INT, month INT) "
        "STORED AS ORC"
    )
    yield "INSERT INTO orc_table VALUES (1, DATE '2024-01-01', 7, 2024, 1)"
    yield (
        "CREATE TABLE avro_table (id INT, at TIMESTAMP, amount DECIMAL(5, 1)) PARTITIONED BY (k INT) "
        "STORED AS AVRO"
    )
    yield "INSERT INTO avro_table VALUES (1, TIMESTAMP '2024-01-01 10:00:00.123', 2.5, 1), (2, NULL, NULL, 2)"
    yield "CREATE TABLE empty_table (id INT COMMENT 'a number') PARTITIONED BY (k INT) STORED AS PARQUET"
    yield "CREATE TABLE empty_flat (id INT) STORED AS PARQUET"
    # Tables that pause their jobs.
    yield "CREATE TABLE text_table (id INT) STORED AS TEXTFILE"
    yield ("CREATE TABLE csv_table (id STRING) ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'")
    yield "CREATE TABLE spark_csv (id INT) USING csv"
    yield "CREATE TABLE json_table (id INT) USING json"
    yield "CREATE TABLE sequence_table (id INT) STORED AS SEQUENCEFILE"
    yield "CREATE TABLE rc_table (id INT) STORED AS RCFILE"
    yield "CREATE TABLE bucketed (id INT) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS"
    yield "CREATE TABLE hive_bucketed (id INT) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS PARQUET"
    yield "CREATE TABLE padded (id INT, code CHAR(5)) STORED AS PARQUET"
    yield "CREATE TABLE orc_times (id INT, at TIMESTAMP) STORED AS ORC"
    yield "CREATE TABLE by_time (id INT, at TIMESTAMP) USING parquet PARTITIONED BY (at)"
    yield (
        "CREATE TABLE transactional (id INT) CLUSTERED BY (id) INTO 2 BUCKETS STORED AS ORC "
        "TBLPROPERTIES ('transactional' = 'true')"
    )
    yield "CREATE TABLE a_delta (id INT) USING delta"
    yield f"CREATE TABLE ice.{SCHEMA}.an_iceberg (id INT) USING iceberg"


_IN_A_SOAK = ("narrow", "empty_flat")
WALKED = {
    TargetFormat.ICEBERG: (
        "events",
        # test_fleet_shadow.py migrates ORC, test_fleet_shadow_columns.py an Avro table.
        *soak.amount((), ("orc_table", "avro_table", "empty_table", "facts", *_IN_A_SOAK)),
    ),
    TargetFormat.DELTA: ("facts", *soak.amount((), ("empty_table", *_IN_A_SOAK))),
}
CSV, BUCKETED = PauseReason.IS_CSV_TEXT, PauseReason.IS_BUCKETED
FORMAT, COLUMNS = PauseReason.UNSUPPORTED_FORMAT, PauseReason.UNSUPPORTED_SCHEMA
PAUSES = {
    "text_table": (CSV, CSV),
    "csv_table": (CSV, CSV),
    "spark_csv": (CSV, CSV),
    "json_table": (FORMAT, FORMAT),
    "sequence_table": (FORMAT, FORMAT),
    "rc_table": (PauseReason.NOT_REWRITABLE, PauseReason.NOT_REWRITABLE),
    "bucketed": (BUCKETED, None),
    "hive_bucketed": (BUCKETED, None),
    "transactional": (PauseReason.IS_TRANSACTIONAL, PauseReason.IS_TRANSACTIONAL),
    "padded": (COLUMNS, None),
    "by_time": (COLUMNS, None),
    "orc_times": (PauseReason.HAS_TIMESTAMP_COLUMN, FORMAT),
    "orc_table": (None, FORMAT),
    "avro_table": (None, FORMAT),
    "a_delta": (PauseReason.IS_ALREADY_DELTA, PauseReason.IS_ALREADY_DELTA),
    "an_iceberg": (PauseReason.IS_ALREADY_ICEBERG, PauseReason.IS_ALREADY_ICEBERG),
    "events_view": (PauseReason.IS_VIEW, PauseReason.IS_VIEW),
    "events": (None, None),
    "facts": (None, None),
    "narrow": (None, None),
    "empty_table": (None, None),
}


def target(warehouse: Warehouse, table: str, form: TargetFormat) -> tuple[Names, Callable[..., int], Kind]:
    names = Names.of(NewJob(table_name(table), form))
    if form is TargetFormat.ICEBERG:
        return names, iceberg.create_copy, Kind.ICEBERG
    return names, delta.create_copy, Kind.DELTA


@soak.slow
def test_facts_from_the_catalog_decide_eligibility(warehouse: Warehouse) -> None:
    facts_by_table = {name: hive.facts(warehouse, table_name(name)) for name in PAUSES}
    for name, (to_iceberg, to_delta) in PAUSES.items():
        table = facts_by_table[name]
        assert table is not None
        for form, expected in ((TargetFormat.ICEBERG, to_iceberg), (TargetFormat.DELTA, to_delta)):
            finding = next(find_obstacles(GivenFacts(table), form), None)
            assert (finding and finding.reason) == expected, (name, form, finding)
            assert finding is None or name in finding.message
    assert hive.facts(warehouse, table_name("nothing")) is None
    events = facts_by_table["events"]
    assert events is not None
    assert (events.format, events.managed, events.partition_columns) == ("parquet", False, ("k",))
    assert events.comment == "it's events"
    assert [(partition.name, partition.comment) for partition in events.columns] == [
        ("id", "its number"),
        ("name", ""),
        ("k", "a key"),
    ]
    assert events.properties["team"] == "a=b, c"
    places = {partition.spec: partition.location for partition in hive.partitions(warehouse, events)}
    assert places["k=far"].endswith("/far away")
    assert len(places) == 5


def test_job_tables_are_listed_with_their_kinds(warehouse: Warehouse) -> None:
    main = table_name("events")
    names = Names(main, main, table_name("an_iceberg"), table_name("a_delta"), table_name("EVENTS_view"))
    assert job_tables.list_job_tables(warehouse, names) == {
        names.main: Kind.HIVE,
        names.hive: Kind.ICEBERG,
        names.archived: Kind.DELTA,
        names.copy: Kind.VIEW,
    }
    assert job_tables.kinds(warehouse, (table_name("nothing"),)) == {}
    with conditions.raises("TABLE_NOT_FOUND", table=table_name("nothing")):
        job_tables.kind(warehouse, table_name("nothing"))


@pytest.mark.parametrize(
    ("form", "table"), [(form, table) for form, tables in WALKED.items() for table in tables]
)
@soak.slow
def test_each_step_of_a_migration_and_revert_keeps_rows_and_files(
    warehouse: Warehouse, form: TargetFormat, table: str
) -> None:
    names, make, kind = target(warehouse, table, form)
    before, files = rows(warehouse, names.main), contents(warehouse, names.main)
    was = catalog.described(warehouse.spark, names.main)
    marked = fence.mark(warehouse, names.main)

    managed = table_renames.set_managed(warehouse, names.main, managed=False)
    assert managed == (table != "events")
    assert not table_renames.set_managed(warehouse, names.main, managed=False)
    assert rows(warehouse, names.main) == before
    for _ in range(2):
        make(warehouse, names.main, names.copy)
        copy_definition(warehouse, names.main, names.copy, form)
        assert rows(warehouse, names.copy, kind) == before
        assert rows(warehouse, names.main) == before
    assert job_tables.list_job_tables(warehouse, names) == {names.main: Kind.HIVE, names.copy: kind}
    assert fence.differences(warehouse, names.main, marked) == ""
    comparison.require_same_rows(warehouse, names.main, names.copy)

    for _ in range(2):
        table_renames.rename_table(warehouse, names.main, names.hive)
        assert rows(warehouse, names.hive) == before
        assert fence.differences(warehouse, names.hive, marked) == ""
    for _ in range(2):
        table_renames.rename_table(warehouse, names.copy, names.main)
        assert rows(warehouse, names.main, kind) == before
    assert job_tables.list_job_tables(warehouse, names) == {names.hive: Kind.HIVE, names.main: kind}
    assert views.list_unreadable_views(warehouse, names.main) == ()
    comparison.require_same_rows(warehouse, names.hive, names.main)
    assert contents(warehouse, names.hive) == files

    table_renames.rename_table(warehouse, names.main, names.copy)
    table_renames.rename_table(warehouse, names.hive, names.main)
    assert rows(warehouse, names.main) == before
    for _ in range(2):
        drop_copy(warehouse, names.main, names.copy, form)
    if managed:
        assert table_renames.set_managed(warehouse, names.main, managed=True)
    assert rows(warehouse, names.main) == before
    assert contents(warehouse, names.main) == files
    assert job_tables.list_job_tables(warehouse, names) == {names.main: Kind.HIVE}
    assert fence.differences(warehouse, names.main, marked) == ""
    now = catalog.described(warehouse.spark, names.main)
    same = ("Type", "Owner", "Location", "Comment", "Provider", "Serde Library")
    assert [now.get(key) for key in same] == [was.get(key) for key in same]
