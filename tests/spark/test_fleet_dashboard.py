from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import soak
from tests.fleet_delta import TABLES, made, put

from tableferry.fleet.job import PauseReason, State
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob, NotificationRecord
from tableferry.fleet.queue.selections import everything, finished, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.status.datasets import datasets
from tableferry.fleet.status.figures import Phase
from tableferry.fleet.status.reading import read_status
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The dashboard's queries ask the real clock.
NOW = datetime.now(UTC)


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def named_table(table: str) -> TableName:
    return TableName(("spark_catalog", "sales", table))


def change(store: Store, tables: Sequence[str], at: datetime, **values: Any) -> None:
    wanted = named([named_table(table) for table in tables])
    jobs = store.claim(wanted, "w", now=at, lease=timedelta(hours=1), limit=len(tables))
    saved = store.save_all([replace(job, **values) for job in jobs], at, release=True)
    assert len(saved) == len(tables)


def fill(store: Store) -> NotificationRecord:
    """Add a completed table, one whose writes stay blocked, a paused one, one without its notification.

    Returns:
        The letter.
    """
    both = ("ann@example.com", "bob@example.com")
    tables = ("done", "half", "paused", "untold")
    store.add([NewJob(named_table(table), tbl_owners=both) for table in tables], ago(20))
    both_tables = ("done", "half")
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
    (untold,) = store.jobs(named([named_table("untold")]))
    letter = NotificationRecord("<1@x>", 1, (untold.task_id,), ("ann@example.com",), ago(2))
    store.record_notifications([letter])
    return letter


def test_the_dashboard_says_what_the_command_line_says(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    # Every store keeps the same, and this one in a hundredth of the time.
    small = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    small.create()
    letter = fill(small)
    store = made(spark, schema)
    put(spark, schema, small.jobs(everything()), small.events())
    store.record_notifications([letter])
    small.close()
    assert store.archive(finished(), NOW) == 1
    figures = read_status(store, NOW)

    if not soak.SOAKING:
        # Eighteen reads of rows that are in mind cost a third of those of Delta's tables.
        for name in (*TABLES, "events"):
            table = spark.table(f"{schema}.{name}")
            spark.createDataFrame(table.collect(), table.schema).createOrReplaceTempView(name)
    spark.sql(f"USE {schema}")
    try:
        found = {each.name: spark.sql(each.query) for each in datasets()}
        for each in datasets():
            assert tuple(found[each.name].columns) == each.columns
        rows = {name: [row.asDict() for row in frame.collect()] for name, frame in found.items()}
    finally:
        spark.sql("USE default")
        for name in (*TABLES, "events"):
            spark.catalog.dropTempView(name)

    assert figures.total == 4
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
    assert [(row["table"], row["trouble"].replace("is not", "isn't")) for row in rows["stuck"]] == [
        ("spark_catalog.sales.untold", "its letter was recorded and not sent"),
        ("spark_catalog.sales.half", "writes are blocked, and no run takes it on"),
    ]
    assert {str(each.table) for each in figures.stuck} == {row["table"] for row in rows["stuck"]}
    assert {row["state"]: row["tables"] for row in rows["states"]} == {
        count.words: count.jobs for count in figures.states if count.jobs
    }
    assert rows["pauses"] == [{"reason": each.reason, "tables": each.jobs} for each in figures.pauses]
    assert {row["owner"]: row["tables"] for row in rows["owners"]} == {
        "ann@example.com": 4,
        "bob@example.com": 4,
    }
    assert {row["what"]: row["tables"] for row in rows["pace"]} == {"Migrated": 1, "Archived": 1}
    # The session's days are the machine's, and the figures' are UTC's: at the ends both are the same.
    over_time = {(row["day"], row["phase"]): row["tables"] for row in rows["over_time"]}
    last, first = max(over_time)[0], min(over_time)[0]
    shown = {phase: jobs for (day, phase), jobs in over_time.items() if day == last and jobs}
    assert shown == {"Being migrated": 1, "New": 2, "Completed": 1}
    assert {phase: jobs for (day, phase), jobs in over_time.items() if day == first and jobs} == {"New": 4}
    ends = {row["series"]: row["tables"] for row in rows["burn_down"] if row["day"] == last}
    assert ends == {"Not completed yet": 3, "Not migrated yet": 3}
    today = figures.days[-1]
    assert (today.new, today.migrating, today.completed) == (2, 1, 1)
    assert len(store.jobs(everything())) == 3
