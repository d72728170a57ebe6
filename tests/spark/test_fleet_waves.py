"""Waves with real tables: a table is migrated only after its wave is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests import soak
from tests.spark.fleets import Fleet, errors, fleet, hive_table
from tests.spark.tables import tables_in

from tableferry.fleet.jobs.job import State, TargetFormat
from tableferry.fleet.jobs.waves import WaveStatus
from tableferry.fleet.operations.wave_commands import pause_wave, set_wave, start_wave
from tableferry.fleet.queue.records import NewJob
from tableferry.spark import session

ROWS = [(1, "a"), (2, "b")]


@pytest.fixture
def ours(spark: SparkSession, schema: str, tmp_path: Path) -> Iterator[Fleet]:
    """Provide a fleet with three Hive tables; two are in a planned wave that migrates one table at a time."""
    with session.settings(spark, {"hive.exec.dynamic.partition.mode": "nonstrict"}, "the test"):
        for table in ("free", "first", "second"):
            hive_table(spark, f"{schema}.{table}", tmp_path / table, ROWS)
        made = fleet(spark, schema, tmp_path)
        set_wave(made.store, "w1", {"tables_at_once": 1})
        made.add("free")
        for table, form in (("first", TargetFormat.ICEBERG), ("second", TargetFormat.DELTA)):
            job = NewJob(made.name(table), form, probation_gap_days=14, wave="w1")
            made.store.add([job], made.clock())
        yield made


@soak.slow
def test_tables_of_a_wave_are_migrated_only_while_it_runs(ours: Fleet) -> None:
    assert errors(ours.preprocess()) == []
    # Two partitions with one file each.
    assert {ours.job(table).table_files for table in ("free", "first", "second")} == {2}
    assert all((ours.job(table).table_bytes or 0) > 100 for table in ("free", "first", "second"))
    ours.notify()
    ours.clock.turn(days=14)
    assert [(job.job.tbl_name, job.outcome) for job in ours.migrate().jobs] == [("free", "done")]
    assert tables_in(ours.spark, ours.schema) == ["first", "free", "free_hive", "second"]
    assert ours.job("first").comm_level1_date is None

    start_wave(ours.store, "w1", ours.clock())
    ours.notify()
    ours.clock.turn(days=14)
    # Two threads, but the wave allows only one to migrate a table.
    ours.settings = ours.settings.model_copy(update={"tables_at_once": 2})
    begun = ours.clock()
    assert sorted(job.job.tbl_name for job in ours.migrate().jobs if job.job.wave) == ["first", "second"]
    assert ours.job("first").begun_at == ours.job("second").begun_at == begun
    for table in ("first", "second"):
        assert len(ours.rows(table)) == len(ROWS)
        assert ours.rows(table) == ours.rows(f"{table}_hive")

    # With one thread the run uses this session, which doesn't see files that another session writes.
    ours.settings = ours.settings.model_copy(update={"tables_at_once": 1})
    pause_wave(ours.store, "w1", "the end of the quarter")
    ours.notify()
    ours.write("first", "INSERT INTO {t} VALUES (3, NULL, 'a')")
    ours.clock.turn(days=14)
    ours.preprocess()
    assert ours.job("free").desired_state is State.HIVE_DROPPED
    assert ours.job("first").desired_state is State.WRITES_UNBLOCKED
    # Shadow runs still update its Hive copy.
    assert errors(ours.shadow()) == []
    assert ours.rows("first_hive") == ours.rows("first")
    assert len(ours.rows("first_hive")) == 3

    assert start_wave(ours.store, "w1", ours.clock()).status is WaveStatus.RUNNING
    ours.preprocess()
    assert errors(ours.migrate()) == []
    assert {ours.job(table).state for table in ("free", "first", "second")} == {State.HIVE_DROPPED}
