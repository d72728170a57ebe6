from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import soak
from tests.fleet_delta import made, put

from tableferry.fleet.jobs.job import PauseReason, State
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob, NotificationRecord
from tableferry.fleet.queue.selections import everything, finished, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports import labels
from tableferry.fleet.reports.dashboard import datasets
from tableferry.fleet.reports.figure_types import PHASE_WORDS, Phase
from tableferry.fleet.reports.status import read_status
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The dashboard's queries read the real clock.
NOW = datetime.now(UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def named_table(table: str) -> TableName:
    return TableName(("spark_catalog", "sales", table))


def change(store: Store, tables: Sequence[str], at: datetime, **values: Any) -> None:
    chosen = named([named_table(table) for table in tables])
    jobs = store.claim(chosen, "w", now=at, lease=timedelta(hours=1), limit=len(tables))
    saved = store.save_all([replace(job, **values) for job in jobs], at, release=True)
    assert len(saved) == len(tables)


def fill(store: Store) -> NotificationRecord:
    """Add a completed table, a paused one, and one for each reason of being stuck.

    Returns:
        The notification that isn't sent.
    """
    both = ("ann@example.com", "bob@example.com")
    tables = ("done", "half", "paused", "unnotified", "claimed", "outdated", "asked")
    store.add([NewJob(named_table(table), tbl_owners=both) for table in tables], ago(20))
    both_tables = ("done", "half")
    change(store, ["done"], ago(10), wave="first", table_bytes=3 * 10**9)
    change(store, both_tables, ago(10), state=State.READY, desired_state=State.WRITES_BLOCKED)
    blocked = {"state": State.WRITES_BLOCKED, "desired_state": State.ICEBERG_READY, "in_process": True}
    change(store, both_tables, ago(5), **blocked)
    done = {"state": State.ICEBERG_PRIMARY, "desired_state": State.WRITES_UNBLOCKED}
    change(store, ["done"], ago(5), **done)
    change(store, ["done"], ago(5), state=State.WRITES_UNBLOCKED)
    end = {"state": State.HIVE_DROPPED, "desired_state": State.HIVE_DROPPED}
    change(store, ["done"], ago(2), **end, in_process=False, comm_level3_date=ago(2))
    reason = f"{PauseReason.ROWS_DIFFER.value}: 3 rows"
    change(store, ["paused"], ago(3), migration_paused=True, pause_reason=reason)
    back = {"state": State.WRITES_UNBLOCKED, "desired_state": State.WRITES_BLOCKED, "in_process": True}
    change(store, ["asked"], ago(3), **back)
    rests = {"state": State.WRITES_UNBLOCKED, "desired_state": State.WRITES_UNBLOCKED, "in_process": True}
    change(store, ["outdated"], ago(4), **rests, probation_gap_days=10, comm_level2_date=ago(4))
    store.claim(named([named_table("claimed")]), "w", now=ago(1), lease=timedelta(hours=1), limit=1)
    ready = {"state": State.READY, "desired_state": State.WRITES_BLOCKED, "to_be_processed": True}
    noted = JobRecord(letters={"level": 1, "left": {"<1@x>": None}})
    change(store, ["unnotified"], ago(2), **ready, record=noted)
    (unnotified,) = store.jobs(named([named_table("unnotified")]))
    notification = NotificationRecord("<1@x>", 1, (unnotified.task_id,), ("ann@example.com",), ago(2))
    store.record_notifications([notification])
    return notification


@soak.only  # tests/unit/test_fleet_figures.py and test_fleet_dashboard.py read the same queries.
def test_figures_and_datasets_of_delta_queue_are_those_of_sqlite(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    # SQLite writes the rows in a hundredth of the time.
    small = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    small.create()
    notification = fill(small)
    store = made(spark, schema)
    put(spark, schema, small.jobs(everything()), small.events())
    store.record_notifications([notification])
    for each in (small, store):
        each.save_wave(Wave("first", WaveStatus.PAUSED, "3 of 20 tables failed"))
        each.save_wave(Wave("later"))
        assert each.archive(finished(), NOW) == 1
    figures = read_status(small, NOW)
    assert read_status(store, NOW) == figures
    small.close()

    spark.sql(f"USE {schema}")
    try:
        frames = {dataset.name: spark.sql(dataset.query) for dataset in datasets()}
        for dataset in datasets():
            assert tuple(frames[dataset.name].columns) == dataset.columns
        rows = {name: [row.asDict() for row in frame.collect()] for name, frame in frames.items()}
    finally:
        spark.sql("USE default")

    assert figures.total == 7
    assert rows["summary"] == [
        {
            "tables": figures.total,
            "completed": figures.in_phase(Phase.COMPLETED),
            "on_probation": figures.in_phase(Phase.PROBATION),
            "to_do": figures.forecast.to_migrate + figures.forecast.left_out,
            "paused": figures.paused,
            "stuck": figures.stuck_total,
        }
    ]
    troubles = {str(stuck.table): stuck.words for stuck in figures.stuck}
    assert {row["table"]: row["trouble"] for row in rows["stuck"]} == troubles
    assert {table.removeprefix("spark_catalog.sales."): words for table, words in troubles.items()} == {
        "outdated": "the Hive copy isn't up to date",
        "claimed": "the claim of worker w has lapsed",
        "half": "writes are blocked, and no run continues it",
        "asked": "an archive or a revert is requested, and no run performs it",
        "unnotified": "its notification of level 1 was recorded and not sent",
    }
    assert {row["state"]: row["tables"] for row in rows["states"]} == {
        count.words: count.jobs for count in figures.states if count.jobs
    }
    assert [(row["wave"], row["status"], row["tables"], row["to_do"]) for row in rows["waves"]] == [
        (count.wave.name, labels.wave_status(count.wave), count.jobs, count.to_do) for count in figures.waves
    ]
    assert [(row["tables"], row["gigabytes"]) for row in rows["waves"]] == [(1, 3.0), (0, 0.0)]
    assert [(row["schema"], row["tables"], row["gigabytes"]) for row in rows["schemas"]] == [
        (count.schema, count.jobs, count.bytes / 1e9) for count in figures.schemas
    ]
    assert rows["pauses"] == [{"reason": pause.reason, "tables": pause.jobs} for pause in figures.pauses]
    assert {row["owner"]: row["tables"] for row in rows["owners"]} == {
        "ann@example.com": 7,
        "bob@example.com": 7,
    }
    pace = figures.pace[-1]
    moved = {"Migrated": pace.migrated, "Archived": pace.finished}
    assert {row["what"]: row["tables"] for row in rows["pace"]} == moved == {"Migrated": 1, "Archived": 1}
    # The queries may run on the next day.
    over_time = {
        (row["day"], row["phase"]): row["tables"]
        for row in rows["over_time"]
        if row["tables"] and row["day"] <= NOW.date()
    }
    assert over_time == {
        (day.day, PHASE_WORDS[phase]): jobs
        for day in figures.days
        for phase in Phase
        if (jobs := getattr(day, phase.value))
    }
    burn_down = {
        (row["day"], row["series"]): row["tables"] for row in rows["burn_down"] if row["day"] <= NOW.date()
    }
    assert burn_down == {
        (day.day, series): jobs
        for day in figures.days
        for series, jobs in (
            ("Not completed yet", figures.total - day.completed - day.reverted),
            ("Not migrated yet", day.to_do),
        )
    }
    assert len(store.jobs(everything())) == 6
