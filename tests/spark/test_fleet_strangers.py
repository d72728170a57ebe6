"""Tables, files and partitions of other processes stay unchanged in the places that a migration uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests import conditions, soak
from tests.spark.fleets import Fleet, dynamic_fleet, errors, hive_table
from tests.spark.tables import tables_in

from tableferry.fleet.checks.preflight_run import precheck
from tableferry.fleet.closure import leftovers
from tableferry.fleet.closure.leftovers import Leftovers
from tableferry.fleet.copies.rewrite import rewritten_copy, writer
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.jobs.job import PauseReason, State, TargetFormat
from tableferry.fleet.warehouse import hive, table_descriptions
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

ICEBERG, DELTA = TargetFormat
FORMATS = [ICEBERG, pytest.param(DELTA, marks=soak.slow)]
RETENTION = "delta.logRetentionDuration"


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    with dynamic_fleet(spark, schema, tmp_path) as ours:
        yield ours


def text_table(ours: Fleet, folder: Path) -> TableName:
    """Create a text table, whose rows must be rewritten."""
    name = ours.name("t")
    hive_table(ours.spark, name.sql, folder / "t", [(1, "a"), (2, "b")], "TEXTFILE")
    return name


def copy_name(ours: Fleet, form: TargetFormat) -> TableName:
    return ours.name(f"t_{form.value}")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("made", ["STORED AS PARQUET", pytest.param("USING {}", marks=soak.slow)])
def test_foreign_table_with_the_copys_name_stays_after_a_revert(
    ours: Fleet, tmp_path: Path, form: TargetFormat, made: str, caplog: pytest.LogCaptureFixture
) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    ours.add("t", form=form)
    assert errors(ours.preprocess()) == []
    name = copy_name(ours, form)
    named = ours.warehouse.named(name, form) if made.startswith("USING") else name
    ours.spark.sql(f"CREATE TABLE {named.sql} {made.format(form.value)} AS SELECT 7 AS id")
    assert errors(ours.revert("t")) == []
    assert ours.rows(name) == [(7,)]
    assert f"that wasn't made of {ours.name('t')}, and stays as it is" in caplog.text


@soak.slow
def test_table_whose_directory_is_named_like_a_copys_is_migrated(ours: Fleet, tmp_path: Path) -> None:
    """Another table has the name of a directory of an earlier trial."""
    folder, beside = tmp_path / "t_delta" / "20240131", tmp_path / "t_delta" / "20240131_sync_try"
    hive_table(ours.spark, ours.name("t").sql, folder, [(1, "a")])
    hive_table(ours.spark, ours.name("u").sql, beside, [(2, "b")])
    before = ours.rows("t"), ours.rows("u")
    ours.to_probation("t", form=DELTA)
    assert (ours.rows("t"), ours.rows("u")) == before
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == before[0]
    assert not (folder / "_delta_log").exists()
    assert not list(folder.parent.glob("20240131_sync/try-*"))


@soak.slow
def test_foreign_delta_table_in_the_same_directory_stays(ours: Fleet, tmp_path: Path) -> None:
    hive_table(ours.spark, ours.name("t").sql, tmp_path / "t", [(1, "a")])
    ours.add("t", form=DELTA)
    assert errors(ours.preprocess()) == []
    ours.spark.sql(f"CONVERT TO DELTA parquet.`{tmp_path}/t` PARTITIONED BY (day STRING)")
    name = copy_name(ours, DELTA)
    ours.spark.sql(f"CREATE TABLE {name.sql} USING delta LOCATION '{tmp_path}/t'")
    ours.spark.sql(f"DELETE FROM {name.sql}")
    assert errors(ours.revert("t")) == []
    assert ours.rows(name) == []


@pytest.mark.parametrize("form", FORMATS)
@soak.slow
def test_rewrite_is_refused_if_its_directory_is_not_empty(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    text_table(ours, tmp_path)
    feed = tmp_path / f"t_{form.value}" / "feed.csv"
    ours.add("t", form=form, rewrite=True)
    assert errors(ours.preprocess()) == []
    feed.parent.mkdir()
    feed.write_text("7")
    [seen] = precheck(ours.store, ours.warehouse, [ours.job("t")])
    assert [finding.reason for finding in seen.findings] == [PauseReason.UNSUPPORTED_LAYOUT]
    assert f"t_{form.value}, to which the rows are written, isn't empty: it contains feed.csv" in str(seen)
    ours.notify()
    ours.clock.turn(days=14)
    [refused] = errors(ours.migrate())
    assert "isn't empty: it contains feed.csv" in refused
    assert errors(ours.revert("t")) == []
    assert feed.read_text() == "7"


@pytest.mark.parametrize("form", FORMATS)
@soak.slow
def test_revert_removes_only_the_rewritten_files(ours: Fleet, tmp_path: Path, form: TargetFormat) -> None:
    text_table(ours, tmp_path)
    ours.to_probation("t", form=form, rewrite=True)
    folder = tmp_path / f"t_{form.value}"
    (folder / "feed.csv").write_text("7")
    assert errors(ours.revert("t")) == []
    assert [path.name for path in folder.iterdir()] == ["feed.csv"]
    assert [row[0] for row in ours.rows("t")] == [1, 2]


@pytest.mark.parametrize("form", FORMATS)
@soak.slow
def test_close_of_a_rewritten_table_keeps_files_of_dropped_partitions(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    name = text_table(ours, tmp_path)
    ours.spark.sql(f"ALTER TABLE {name.sql} DROP PARTITION (day = 'b')")
    dropped = [path.name for path in (tmp_path / "t/day=b").glob("part-*")]
    assert dropped
    ours.to_probation("t", form=form, rewrite=True)
    ours.to_archive("t")
    ours.mark("t", days=0)
    # The partition that it reads now was added later, so the new table lacks its rows.
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/part-of-others").write_text("9")
    archived = ours.name("t_hive_archived").sql
    ours.spark.sql(f"ALTER TABLE {archived} ADD PARTITION (day = 'z') LOCATION '{tmp_path}/landing'")
    files = sorted(path.name for path in (tmp_path / "t").rglob("part-*"))
    assert set(dropped) < set(files)
    assert errors(ours.close()) == []
    # The close lists the Hive table's own files, and removes none of them.
    assert sorted(path.name for path in (tmp_path / "t").rglob("part-*")) == files
    assert (tmp_path / "landing/part-of-others").exists()
    assert not (tmp_path / "t_sync").exists()
    assert [row[0] for row in ours.rows("t")] == [1]


@soak.slow
def test_files_of_rewritten_hive_table_without_entry_stay_after_close(ours: Fleet, tmp_path: Path) -> None:
    text_table(ours, tmp_path)
    ours.to_probation("t", rewrite=True)
    ours.to_archive("t")
    ours.spark.sql(f"DROP TABLE {ours.name('t_hive_archived').sql}")
    files = sorted((tmp_path / "t").rglob("part-*"))
    ours.mark("t", days=0)
    assert errors(ours.close()) == []
    assert sorted((tmp_path / "t").rglob("part-*")) == files
    assert f"file:{tmp_path}/t (the Hive table's own files)" in ours.job("t").record.left_directories


def test_new_table_among_hives_files_is_not_closed(ours: Fleet, tmp_path: Path) -> None:
    name = copy_name(ours, ICEBERG)
    ours.spark.sql(
        f"CREATE TABLE {ours.warehouse.iceberg(name).sql} (id INT) USING iceberg LOCATION '{tmp_path}/odd'"
    )
    for root in (f"file:{tmp_path}/odd", f"file:{tmp_path}", f"file:{tmp_path}/odd/data"):
        with conditions.raises("REWRITTEN_TABLE_AMONG_OLD_FILES", folder=re.compile("odd")):
            leftovers.require_apart(ours.warehouse, name, Leftovers(root))
    leftovers.require_apart(ours.warehouse, name, Leftovers(f"file:{tmp_path}/od"))


@pytest.mark.parametrize("first", [True, pytest.param(False, marks=soak.slow)])
def test_commit_of_a_suspended_worker_replaces_no_newer_rows(
    ours: Fleet, tmp_path: Path, first: bool
) -> None:
    source, name = text_table(ours, tmp_path), copy_name(ours, ICEBERG)

    def ahead() -> None:
        warehouse = replace(ours.warehouse, prepared=PreparedCopy())
        writer.write_before_block(warehouse, source, name, ICEBERG)

    table = hive.require_hive_table(ours.warehouse, source)
    if not first:
        ahead()
    before = rewritten_copy.open_copy(ours.warehouse, table, name, ICEBERG)
    ours.spark.sql(f"INSERT INTO {source.sql} PARTITION (day = 'a') VALUES (3, NULL)")
    ahead()
    # The suspended worker read older rows of the Hive table; an empty selection represents them.
    with pytest.raises(SPARK_ERRORS):
        rewritten_copy.write(ours.warehouse, table, before, {"day=a": "old"}, ("false", "day = 'a'"))
    assert [row[0] for row in ours.rows(name)] == [1, 2, 3]


@soak.slow
def test_delta_copy_keeps_its_commits_until_the_switch(ours: Fleet, tmp_path: Path) -> None:
    source, name = text_table(ours, tmp_path), copy_name(ours, DELTA)
    writer.write_before_block(replace(ours.warehouse, prepared=PreparedCopy()), source, name, DELTA)
    assert table_descriptions.properties(ours.spark, name)[RETENTION] == "interval 36500 days"
    ours.spark.sql(f"DROP TABLE {name.sql}")
    for path in sorted((tmp_path / "t_delta").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    ours.to_probation("t", form=DELTA, rewrite=True)
    assert RETENTION not in table_descriptions.properties(ours.spark, source)


@pytest.mark.parametrize("stored", ["PARQUET", pytest.param("TEXTFILE", marks=soak.slow)])
def test_partition_of_a_wrong_type_pauses_only_its_table(ours: Fleet, tmp_path: Path, stored: str) -> None:
    for table in ("odd", "t"):
        ours.spark.sql(
            f"CREATE EXTERNAL TABLE {ours.name(table).sql} (id INT) PARTITIONED BY (month INT) "
            f"STORED AS {stored} LOCATION '{tmp_path}/{table}'"
        )
        ours.spark.sql(f"INSERT INTO {ours.name(table).sql} PARTITION (month = 1) VALUES (1)")
    unchecked = {"spark.sql.legacy.skipTypeValidationOnAlterPartition": "true"}
    with session.settings(ours.spark, unchecked, "the test"):
        ours.spark.sql(f"ALTER TABLE {ours.name('odd').sql} ADD PARTITION (month = 'tmp')")
    ours.add("odd", "t", rewrite=stored == "TEXTFILE")
    jobs = [ours.job("odd"), ours.job("t")]
    odd, sound = precheck(ours.store, ours.warehouse, jobs)
    assert precheck(ours.store, ours.warehouse, jobs, concurrency=2) == [odd, sound]
    assert sound.findings == ()
    [finding] = odd.findings
    [refused] = errors(ours.preprocess())
    assert finding.text in refused
    assert "that each partition's value has the type of its column" in refused
    assert ours.job("t").state is State.READY


@pytest.mark.parametrize("form", FORMATS)
@soak.slow
def test_table_with_a_name_that_spark_redacts_is_migrated_and_reverted(
    ours: Fleet, tmp_path: Path, form: TargetFormat
) -> None:
    """Spark hides properties whose names contain a word such as url, token or secret."""
    table = "secret_page_urls"
    ours.spark.sql(
        f"CREATE EXTERNAL TABLE {ours.name(table).sql} (id INT, token STRING) STORED AS PARQUET "
        f"LOCATION '{tmp_path}/{table}' TBLPROPERTIES ('home' = 'https://example.com/?url=1')"
    )
    ours.spark.sql(f"INSERT INTO {ours.name(table).sql} VALUES (1, 'a'), (2, 'b')")
    ours.to_probation(table, form=form)
    new = ours.warehouse.named(ours.name(table), form)
    assert table_descriptions.properties(ours.spark, new)["home"] == "https://example.com/?url=1"
    # An unpartitioned Hive copy is rewritten as a whole, in another directory.
    ours.write(table, "DELETE FROM {t} WHERE id = 1")
    assert errors(ours.shadow()) == []
    assert errors(ours.revert(table)) == []
    assert tables_in(ours.spark, ours.schema) == [table]
    assert ours.rows(table) == [(2, "b")]
    assert not (tmp_path / table / "_delta_log").exists()


@soak.slow
def test_delta_table_that_became_managed_keeps_its_files(ours: Fleet) -> None:
    name = ours.name("t")
    ours.spark.sql(f"CREATE TABLE {name.sql} (id INT) STORED AS PARQUET")
    ours.spark.sql(f"INSERT INTO {name.sql} VALUES (1), (2)")
    ours.to_probation("t", form=DELTA)

    def managed(entry: Any) -> None:
        entry.setTableType("MANAGED_TABLE")
        entry.putToParameters("EXTERNAL", "FALSE")

    metastore.alter(ours.spark, name, managed)
    [refused] = errors(ours.revert("t"))
    assert "[MANAGED_TABLE_WOULD_MOVE]" in refused
    assert ours.rows("t") == ours.rows("t_hive") == [(1,), (2,)]

    def external(entry: Any) -> None:
        entry.setTableType("EXTERNAL_TABLE")
        entry.putToParameters("EXTERNAL", "TRUE")

    metastore.alter(ours.spark, name, external)
    assert errors(ours.revert("t")) == []
    assert ours.rows("t") == [(1,), (2,)]
