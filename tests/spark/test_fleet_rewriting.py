"""Rows are rewritten if the new table can't use the Hive table's files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.fleets import Fleet, errors, fleet
from tests.spark.tables import tables_in

from tableferry.fleet.checks.preflight_run import precheck
from tableferry.fleet.copies.comparison import RowsDiffer
from tableferry.fleet.copies.rewrite import rewritten_copy, writer
from tableferry.fleet.copies.rewrite.partitions import CommitNote
from tableferry.fleet.jobs.job import State, TargetFormat
from tableferry.fleet.jobs.pauses import resumed
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
from tableferry.formats.hive.partitions import NULL
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

ICEBERG, DELTA = TargetFormat
FORMATS = [ICEBERG, pytest.param(DELTA, marks=soak.slow)]


class Stored(NamedTuple):
    """The storage of a table, and its rows."""

    definition: str
    columns: str = "id INT, at TIMESTAMP, amount DECIMAL(10,2), name STRING"
    partitions: str = "day STRING"
    more: str = "TIMESTAMP '2026-02-01 00:00:00', 2.50, 'more'"


TEXT = Stored("ROW FORMAT DELIMITED FIELDS TERMINATED BY '|' STORED AS TEXTFILE")
STORED = {
    "text": TEXT,
    "csv": Stored("USING csv"),
    "json": Stored("USING json"),
    "orc": Stored("STORED AS ORC"),
    "bucketed": Stored("CLUSTERED BY (id) INTO 2 BUCKETS STORED AS PARQUET"),
    "sequence": Stored("STORED AS SEQUENCEFILE", "id INT, kept BOOLEAN", more="true"),
    "whole": Stored("STORED AS TEXTFILE", partitions=""),
    "nested": Stored(
        "STORED AS TEXTFILE",
        "id INT, a ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, INT>, b BINARY, f FLOAT, d DATE",
        more="array(named_struct('x', 1, 'y', 'q')), map('k', 2), X'0A0B', float('1.5'), DATE'0001-01-01'",
    ),
    # A table property, not a SerDe property, defines the text of a null.
    "nulls": Stored(
        f"{TEXT.definition} TBLPROPERTIES ('serialization.null.format' = '')",
        "id INT, name STRING",
        more="NULL",
    ),
    "char": Stored(TEXT.definition, "id INT, code CHAR(5), label VARCHAR(7)", more="'ab', 'l'"),
    "opencsv": Stored(
        "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde' STORED AS TEXTFILE",
        "id STRING, name STRING",
        more="'more'",
    ),
}
WAYS = [
    ("text", ICEBERG),
    pytest.param("json", DELTA, marks=soak.slow),
    pytest.param("whole", DELTA, marks=soak.slow),
    pytest.param("bucketed", ICEBERG, marks=soak.slow),
    pytest.param("nulls", ICEBERG, marks=soak.slow),
    pytest.param("char", DELTA, marks=soak.slow),
]
MORE_WAYS = [
    *(("text", DELTA), ("csv", ICEBERG), ("csv", DELTA), ("json", ICEBERG), ("orc", DELTA), ("orc", ICEBERG)),
    *(("sequence", ICEBERG), ("sequence", DELTA), ("whole", ICEBERG), ("nested", ICEBERG), ("nested", DELTA)),
    *(("opencsv", ICEBERG), ("opencsv", DELTA)),
]


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    """Provide an empty fleet in a session that writes dynamic partitions."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        yield fleet(spark, schema, tmp_path)


def table(ours: Fleet, folder: Path, stored: Stored, name: str = "facts") -> None:
    """Create a table with three rows, one of them in the null partition, if it has partitions."""
    columns = stored.columns
    if stored.partitions and stored.definition.startswith("USING"):
        columns, by = f"{stored.columns}, {stored.partitions}", "PARTITIONED BY (day)"
    else:
        by = f"PARTITIONED BY ({stored.partitions})" if stored.partitions else ""
    definition = f"{by} {stored.definition}"
    if stored.definition.startswith("USING"):
        definition = f"{stored.definition} {by}"
    ours.spark.sql(f"CREATE TABLE {ours.schema}.{name} ({columns}) {definition} LOCATION '{folder / name}'")
    for number, day in ((1, "'a'"), (2, "'b c'"), (3, "NULL")):
        insert(ours, f"{ours.schema}.{name}", stored, number, day)


def insert(ours: Fleet, table: str, stored: Stored, number: int, day: str = "'a'") -> None:
    values = f"{number}, {stored.more}" + (f", {day}" if stored.partitions else "")
    ours.spark.sql(f"INSERT INTO {table} VALUES ({values})")


def with_nulls(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(None if value == NULL else value for value in row) for row in rows), key=repr)


@pytest.mark.parametrize(("how", "form"), [*WAYS, *soak.amount([], MORE_WAYS)])
def test_rewritten_table_is_migrated_and_reverted(
    ours: Fleet, tmp_path: Path, how: str, form: TargetFormat
) -> None:
    stored = STORED[how]
    table(ours, tmp_path, stored)
    # Hive's readers return the directory's name for a null partition, and the new table returns a null.
    before = ours.rows("facts")
    ours.add("facts", form=form, rewrite=True)
    assert errors(ours.preprocess()) == []
    ours.notify()
    ours.clock.turn(days=14)
    [planned] = ours.migrate(dry_run=True).jobs
    [done] = ours.migrate().jobs
    assert done.error == ""
    assert (done.outcome, done.actions) == ("done", planned.actions)
    assert ours.rows("facts_hive") == before
    assert ours.rows("facts") == with_nulls(before)
    ours.notify()

    values = f"4, {stored.more}" + (", 'a'" if stored.partitions else "")
    ours.write("facts", f"INSERT INTO {{t}} VALUES ({values})")
    if stored.partitions:
        ours.write("facts", f"INSERT INTO {{t}} VALUES (5, {stored.more}, 'new')")
    # Shadow appends to the Hive table's directories, and after a delete it rewrites partitions in new ones.
    assert errors(ours.shadow()) == []
    assert errors(ours.shadow()) == []
    ours.write("facts", "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.shadow()) == []
    after = ours.rows("facts")
    assert len(after) == (4 if stored.partitions else 3)
    assert with_nulls(ours.rows("facts_hive")) == after

    ours.clock.turn(days=14)
    assert errors(ours.preprocess()) == []
    assert errors(ours.migrate()) == []
    assert ours.job("facts").pair == (State.HIVE_DROPPED, State.HIVE_DROPPED)
    assert errors(ours.revert("facts", from_archive=True)) == []
    assert tables_in(ours.spark, ours.schema) == ["facts"]
    assert with_nulls(ours.rows("facts")) == after
    rewritten_copy = tmp_path / f"facts_{form.value}"
    assert not rewritten_copy.exists()
    insert(ours, f"{ours.schema}.facts", stored, 9)
    assert len(ours.rows("facts")) == len(after) + 1


class Died(Exception):
    """A worker died."""


def dying(warehouse: Warehouse, effects: int) -> Warehouse:
    """Return a warehouse whose worker dies after a number of effects."""
    left = iter(range(effects))

    def guard() -> None:
        if next(left, None) is None:
            raise Died

    return replace(warehouse, guard=guard, prepared=PreparedCopy())


@soak.slow
def test_rewritten_delta_table_has_lengths_and_defaults(ours: Fleet, tmp_path: Path) -> None:
    """Each session has its own text for Delta's commits."""
    columns = "id INT, code CHAR(5), label VARCHAR(3), kind STRING DEFAULT 'x'"
    table(ours, tmp_path, Stored("USING csv", columns, more="'ab', 'l', 'y'"))
    with session.settings(ours.spark, {"spark.databricks.delta.commitInfo.userMetadata": "nightly"}, "audit"):
        ahead(ours, DELTA)
    copy = copy_name(ours, DELTA).sql
    ours.spark.sql(f"INSERT INTO {copy} (id, code, day) VALUES (4, 'ab', 'a')")
    found = ours.spark.sql(f"SELECT id, kind FROM {copy} WHERE code = 'ab' ORDER BY id").collect()
    assert [tuple(row) for row in found] == [(1, "y"), (2, "y"), (3, "y"), (4, "x")]
    with pytest.raises(SPARK_ERRORS, match=r"(?i)exceed"):
        ours.spark.sql(f"INSERT INTO {copy} (id, label, day) VALUES (5, 'long', 'a')")


def ahead(ours: Fleet, form: TargetFormat) -> Warehouse:
    """Rewrite a table's rows in chunks of one partition, and return the warehouse."""
    warehouse = replace(ours.warehouse, rewrite_chunk=1, prepared=PreparedCopy())
    writer.write_before_block(warehouse, ours.name("facts"), copy_name(ours, form), form)
    return warehouse


def copy_name(ours: Fleet, form: TargetFormat) -> TableName:
    return ours.name(f"facts_{form.value}")


def commits(ours: Fleet, form: TargetFormat) -> list[dict[str, str | None]]:
    """Return the partitions that each commit of the copy wrote."""
    name = copy_name(ours, form)
    if form is ICEBERG:
        query = f"SELECT summary['{rewritten_copy.NOTE}'] FROM {ours.warehouse.iceberg(name).sql}.snapshots"
        notes = ours.spark.sql(f"{query} ORDER BY committed_at").collect()
    else:
        notes = ours.spark.sql(f"DESCRIBE HISTORY {name.sql}").select("userMetadata").collect()[::-1]
    return [dict(CommitNote.of(row[0]).partitions) for row in notes if row[0]]


DAYS = ["day=__HIVE_DEFAULT_PARTITION__", "day=a", "day=b c"]


@pytest.mark.parametrize("form", [TargetFormat.ICEBERG, pytest.param(TargetFormat.DELTA, marks=soak.slow)])
def test_written_chunks_are_kept_after_a_crash_at_any_point(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    table(ours, tmp_path, TEXT)
    source, name = ours.name("facts"), copy_name(ours, form)
    warehouse = replace(ours.warehouse, rewrite_chunk=1)
    # The first effect creates the copy, and each later one writes a partition.
    for _ in range(3):
        with pytest.raises(Died):
            writer.write_before_block(dying(warehouse, 1), source, name, form)
    assert [list(partitions) for partitions in commits(ours, form)] == [DAYS[:1], DAYS[1:2]]
    # The resumed run compares all partitions, and writes none twice.
    assert writer.write_before_block(dying(warehouse, 1), source, name, form) == 3
    assert [list(partitions) for partitions in commits(ours, form)] == [[day] for day in DAYS]
    assert with_nulls(ours.rows("facts")) == ours.rows(name)


@pytest.mark.parametrize("form", FORMATS)
@soak.slow
def test_rows_written_during_the_rewrite_are_copied(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    table(ours, tmp_path, TEXT)
    source, name, events = ours.name("facts"), copy_name(ours, form), count()

    def between() -> None:
        match next(events):
            case 1:
                insert(ours, source.sql, TEXT, 4, "'c'")
            case 3:
                # The files of the next chunk are removed after the listing.
                ours.spark.sql(
                    f"INSERT OVERWRITE {source.sql} PARTITION (day) VALUES (5, {TEXT.more}, 'b c')"
                )

    warehouse = replace(ours.warehouse, rewrite_chunk=1, prepared=PreparedCopy(), guard=between)
    writer.write_before_block(warehouse, source, name, form)
    insert(ours, source.sql, TEXT, 6, "'a'")
    hive.list_table_files(warehouse, hive.require_hive_table(warehouse, source))
    assert writer.write_during_block(warehouse, source, name, form) == 3
    assert writer.require_rewritten_rows(warehouse, source, name, form) == 4
    assert sorted(row[0] for row in ours.rows(name)) == [1, 3, 4, 5, 6]
    assert with_nulls(ours.rows("facts")) == ours.rows(name)


@pytest.mark.parametrize("form", [pytest.param(TargetFormat.ICEBERG, marks=soak.slow), TargetFormat.DELTA])
def test_only_changed_partitions_are_rewritten_while_writes_are_blocked(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    table(ours, tmp_path, TEXT)
    source, name = ours.name("facts"), copy_name(ours, form)
    warehouse = ahead(ours, form)
    written = len(commits(ours, form))
    insert(ours, source.sql, TEXT, 4, "'a'")
    ours.spark.sql(f"ALTER TABLE {source.sql} DROP PARTITION (day = 'b c')")
    hive.list_table_files(warehouse, hive.require_hive_table(warehouse, source))
    assert writer.write_during_block(warehouse, source, name, form) == 2
    [changed, gone, *_] = commits(ours, form)[written:]
    assert list(changed) == ["day=a"]
    assert gone == {"day=b c": None}
    assert writer.require_rewritten_rows(warehouse, source, name, form) == 2
    assert writer.require_rewritten_rows(warehouse, source, name, form) == 0
    assert len(ours.rows(name)) == 3
    assert with_nulls(ours.rows("facts")) == ours.rows(name)


@pytest.mark.parametrize("form", [TargetFormat.ICEBERG, pytest.param(TargetFormat.DELTA, marks=soak.slow)])
@soak.slow
def test_chunk_of_a_suspended_worker_is_not_committed_after_the_block(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    table(ours, tmp_path, TEXT)
    source, name = ours.name("facts"), copy_name(ours, form)
    ahead(ours, form)
    described = hive.require_hive_table(ours.warehouse, source)
    before = rewritten_copy.read(ours.warehouse, name, form)
    warehouse = ahead(ours, form)
    writer.write_during_block(warehouse, source, name, form)
    wanted = ours.rows(name)
    if form is DELTA:
        # Then the table may have its final name and newer rows.
        ours.spark.sql(f"DELETE FROM {name.sql} WHERE id = 1")
        wanted = ours.rows(name)
        # It rereads the copy afterwards, and finds the other rows.
        with conditions.raises("REWRITTEN_COPY_WRITTEN"):
            rewritten_copy.write(
                ours.warehouse, described, before, {"day=a": "old"}, ("day = 'a'", "day = 'a'")
            )
    else:
        # It doesn't find the table by its first name; until then it writes the same rows.
        rewritten_copy.write(ours.warehouse, described, before, {"day=a": "old"}, ("day = 'a'", "day = 'a'"))
    assert ours.rows(name) == wanted


@pytest.mark.parametrize("how", ["text", pytest.param("json", marks=soak.slow)])
@soak.slow
def test_partitions_that_spark_cannot_filter_in_a_metastore_are_written(
    ours: Fleet, tmp_path: Path, how: str
) -> None:
    table(ours, tmp_path, STORED[how])
    for number, day in enumerate(("'it\\'s \"so\"'", "'c:\\\\'"), 4):
        insert(ours, ours.name("facts").sql, STORED[how], number, day)
    ahead(ours, ICEBERG)
    assert len(ours.rows("facts")) == 5
    assert with_nulls(ours.rows("facts")) == ours.rows(copy_name(ours, ICEBERG))


@soak.slow
def test_wrong_rows_are_found_and_rewritten(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, TEXT)
    warehouse, source, name = ahead(ours, ICEBERG), ours.name("facts"), copy_name(ours, ICEBERG)
    described = hive.require_hive_table(warehouse, source)
    copy = rewritten_copy.read(warehouse, name, ICEBERG)
    held = {"day=a": copy.held["day=a"].digest}
    rewritten_copy.write(warehouse, described, copy, held, ("false", "day = 'a'"))
    assert len(ours.rows(name)) == 2
    with pytest.raises(RowsDiffer):
        writer.require_rewritten_rows(warehouse, source, name, ICEBERG)
    ahead(ours, ICEBERG)
    assert len(ours.rows(name)) == 3


@soak.slow
def test_foreign_tables_and_commits_stay_unchanged(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, TEXT)
    name = copy_name(ours, DELTA)
    ours.spark.sql(f"CREATE TABLE {name.sql} (other INT) USING delta")
    with conditions.raises("COPY_NAME_TAKEN", table=name):
        ahead(ours, DELTA)
    ours.spark.sql(f"DROP TABLE {name.sql}")
    ahead(ours, DELTA)
    ours.spark.sql(f"DELETE FROM {name.sql} WHERE id = 1")
    with conditions.raises("REWRITTEN_COPY_WRITTEN", table=name, operation="DELETE", version=4):
        ahead(ours, DELTA)


@soak.slow
def test_table_with_changed_read_options_is_rewritten_from_the_start(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, TEXT)
    ahead(ours, ICEBERG)
    ours.spark.sql(f"ALTER TABLE {ours.name('facts').sql} ADD COLUMNS (late STRING)")
    ahead(ours, ICEBERG)
    assert [list(partitions) for partitions in commits(ours, ICEBERG)] == [[day] for day in DAYS]
    assert with_nulls(ours.rows("facts")) == ours.rows(copy_name(ours, ICEBERG))


def test_table_that_hive_reads_differently_than_spark_is_refused(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, TEXT)
    ours.spark.sql(f"ALTER TABLE {ours.name('facts').sql} SET TBLPROPERTIES ('skip.header.line.count' = '1')")
    ours.add("facts", rewrite=True)
    [refused] = errors(ours.preprocess())
    assert refused.startswith("NOT_REWRITABLE: ")
    assert "skip.header.line.count" in refused


@soak.slow
def test_job_paused_for_its_files_resumes_with_rewrite(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, TEXT)
    ours.add("facts")
    [refused] = errors(ours.preprocess())
    assert refused.startswith("IS_CSV_TEXT: ")
    assert "rewrite: true" in refused
    [job] = ours.store.claim(everything(), "ann", now=ours.clock(), lease=ours.settings.lease, limit=1)
    ours.store.save(resumed(job, rewrite=True), ours.clock(), release=True)
    assert errors(ours.preprocess()) == []
    assert ours.job("facts").is_rewritten
    [seen] = precheck(ours.store, ours.warehouse, [ours.job("facts")])
    assert (seen.rewritten, seen.findings, seen.partitions) == (True, (), 3)


@pytest.mark.parametrize("form", FORMATS)
@soak.slow
def test_closing_removes_what_shadow_wrote_and_lists_the_hive_table_s_own_files(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    table(ours, tmp_path, TEXT)
    ours.to_probation("facts", form=form, rewrite=True)
    ours.write("facts", f"INSERT INTO {{t}} VALUES (4, {TEXT.more}, 'a')")
    ours.to_archive("facts")
    after = ours.rows("facts")
    own = {file for file in (tmp_path / "facts").rglob("part-*") if "tableferry-" not in file.name}
    ours.mark("facts", days=0)
    assert errors(ours.close()) == []
    assert tables_in(ours.spark, ours.schema) == ["facts"]
    assert ours.rows("facts") == after
    assert {*(tmp_path / "facts").rglob("part-*")} == own
    assert not list((tmp_path / "facts").rglob("*tableferry-*"))
    assert list(ours.job("facts").record.left_directories) == [
        f"file:{tmp_path}/facts (the Hive table's own files)"
    ]
    assert not (tmp_path / "facts_sync").exists()
    ours.write("facts", f"INSERT INTO {{t}} VALUES (5, {TEXT.more}, 'a')")
    assert len(ours.rows("facts")) == len(after) + 1


@soak.slow
def test_null_partition_of_avro_equals_that_of_iceberg(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, Stored("STORED AS AVRO", "id INT, name STRING", more="'more'"))
    assert (3, "more", NULL) in ours.rows("facts")
    ours.to_probation("facts")
    assert (3, "more", None) in ours.rows("facts")


@soak.slow
def test_copy_has_columns_that_were_added_after_the_sessions_first_read(ours: Fleet, tmp_path: Path) -> None:
    """A copy without them accepts no rows, and each later run would reuse it."""
    table(ours, tmp_path, STORED["json"])
    name = ours.name("facts").sql
    assert "late" not in ours.spark.table(name).columns
    other = session.beside(ours.spark)
    assert other is not None
    other.sql(f"ALTER TABLE {name} ADD COLUMNS (late STRING)")
    ahead(ours, DELTA)
    assert "late" in ours.spark.table(copy_name(ours, DELTA).sql).columns
    assert with_nulls(ours.rows("facts")) == ours.rows(copy_name(ours, DELTA))


def test_unreadable_file_fails_despite_session_settings(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, STORED["orc"])
    [file] = (tmp_path / "facts" / "day=a").glob("part-*")
    file.write_bytes(file.read_bytes()[:20])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    with session.settings(ours.spark, {"spark.sql.files.ignoreCorruptFiles": "true"}, "the test"):
        ours.spark.catalog.refreshTable(ours.name("facts").sql)
        assert len(ours.rows("facts")) == 2
        with conditions.raises("COMPARISON_FAILED"):
            ahead(ours, DELTA)


def test_copy_recreated_while_writes_are_blocked_is_compared_as_a_whole(ours: Fleet, tmp_path: Path) -> None:
    table(ours, tmp_path, TEXT)
    warehouse, source, name = ahead(ours, DELTA), ours.name("facts"), copy_name(ours, DELTA)
    assert writer.require_rewritten_rows(warehouse, source, name, DELTA) == 0
    ours.spark.sql(f"ALTER TABLE {source.sql} ADD COLUMNS (late STRING)")
    hive.list_table_files(warehouse, hive.require_hive_table(warehouse, source))
    # Its chunks have the same versions as those of the previous copy.
    assert writer.write_during_block(warehouse, source, name, DELTA) == 3
    assert writer.require_rewritten_rows(warehouse, source, name, DELTA) == 3
