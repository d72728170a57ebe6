"""Fleets in a real queue, moved as the modes move them, by a clock that is turned."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat, Trouble
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports.figure_types import Day, Figures, PausedTable, Stuck, StuckCount, WaveCount
from tableferry.fleet.reports.status import LISTED, read_status
from tableferry.spark.tables import TableName

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
LEASE = timedelta(hours=1)

_WALK = (
    (State.WRITES_BLOCKED, State.ICEBERG_READY),
    (State.ICEBERG_READY, State.ICEBERG_PRIMARY),
    (State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED),
    (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED),
)
_BACK = (
    (State.WRITES_UNBLOCKED, State.WRITES_BLOCKED),
    (State.WRITES_BLOCKED, State.SYNC_HIVE),
    (State.SYNC_HIVE, State.HIVE_PRIMARY),
    (State.HIVE_PRIMARY, State.WRITES_UNBLOCKED),
    (State.WRITES_UNBLOCKED, State.ICEBERG_DROPPED),
    (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED),
)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


@cache
def _empty() -> bytes:
    """A queue's file; making one takes as long as a test."""
    with TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/fleet.db")
        store.create()
        store.close()
        return Path(folder, "fleet.db").read_bytes()


def opened(folder: Path) -> Store:
    """Open a new queue in a folder."""
    (folder / "fleet.db").write_bytes(_empty())
    return open_store(f"sqlite:///{folder}/fleet.db")


class Fleet:
    """A queue, and what happens to its jobs."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def add(
        self,
        *tables: str,
        at: datetime,
        owners: Iterable[str] = ("ann@example.com",),
        target: TargetFormat = TargetFormat.ICEBERG,
        gap: int = 14,
        probation: int = 14,
        schema: str = "sales",
    ) -> None:
        new = [
            NewJob(TableName(("spark_catalog", schema, table)), target, gap, probation, tuple(owners))
            for table in tables
        ]
        assert self.store.add(new, at) == len(tables)

    def job(self, table: str) -> Job:
        (job,) = self.store.jobs(named([TableName(("spark_catalog", "sales", table))]))
        return job

    def change(self, table: str, at: datetime, **values: object) -> None:
        """Claim a job, change it and give it back; its ``record`` is JSON."""
        if "record" in values:
            values["record"] = JobRecord.from_json(values["record"])  # type: ignore[arg-type]
        name = TableName(("spark_catalog", "sales", table))
        (job,) = self.store.claim(named([name]), "worker", now=at, lease=LEASE, limit=1)
        self.store.save(replace(job, **values), at, release=True)  # type: ignore[arg-type]

    def ready(self, table: str, at: datetime, notified: datetime | None = None) -> None:
        self.change(table, at, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
        if notified is not None:
            self.change(table, notified, comm_level1_date=notified)

    def migrated(self, table: str, at: datetime, *, steps: int = 4, notified: bool = True) -> None:
        """Walk from Ready to probation, or some steps of it."""
        self.change(table, at, in_process=True, to_be_processed=False)
        for state, desired in _WALK[:steps]:
            self.change(table, at, state=state, desired_state=desired)
        if steps == len(_WALK) and notified:
            self.change(table, at, comm_level2_date=at, shadow_watermark="1")

    def finished(self, table: str, at: datetime) -> None:
        self.change(table, at, desired_state=State.HIVE_DROPPED)
        self.change(table, at, state=State.HIVE_DROPPED)
        self.change(table, at, in_process=False, comm_level3_date=at)

    def reverted(self, table: str, at: datetime) -> None:
        for state, desired in _BACK:
            self.change(table, at, state=state, desired_state=desired)
        self.paused(table, at, PauseReason.REVERTED)

    def paused(self, table: str, at: datetime, reason: PauseReason, details: str = "") -> None:
        job = self.job(table).paused(reason, details)
        self.change(table, at, migration_paused=True, pause_reason=job.pause_reason)

    def count(self) -> int:
        return len(self.store.jobs(everything()))


def small(store: Store) -> Fleet:
    """Six tables: one through, one on probation, one half migrated, one waiting, one paused, one back."""
    fleet = Fleet(store)
    fleet.add("done", "probation", "half", "waiting", "paused", "back", at=days_ago(60))
    fleet.add(
        "late", at=days_ago(3), owners=("ann@example.com", "bob@example.com"), target=TargetFormat.DELTA
    )
    store.save_wave(Wave("first", WaveStatus.RUNNING, tables_at_once=2, started_at=days_ago(60)))
    store.save_wave(Wave("later"))
    assert store.assign((fleet.job(table).task_id for table in ("done", "half")), "first", days_ago(60)) == 2
    for table in ("done", "probation", "half", "waiting", "paused", "back"):
        fleet.ready(table, days_ago(59), notified=None if table == "paused" else days_ago(58))
    fleet.paused("paused", days_ago(30), PauseReason.ROWS_DIFFER, "3 of 1,000 rows")
    fleet.change("done", days_ago(41), table_bytes=3 * 10**9)
    fleet.migrated("done", days_ago(40))
    fleet.finished("done", days_ago(20))
    fleet.migrated("back", days_ago(41))
    fleet.reverted("back", days_ago(39))
    fleet.migrated("probation", days_ago(5))
    fleet.migrated("half", days_ago(2), steps=2)
    return fleet


@cache
def small_figures() -> Figures:
    """The figures of a small fleet."""
    with TemporaryDirectory() as folder:
        store = opened(Path(folder))
        small(store)
        figures = read_status(store, NOW)
        store.close()
        return figures


def huge_figures() -> Figures:
    """As many jobs, owners, stuck and paused ones, and days as a page ever shows."""
    small = small_figures()
    name = TableName(("spark_catalog", "a_schema_with_a_long_name", "a_table_with_an_even_longer_name_" * 6))
    stuck = Stuck(
        1,
        name,
        Trouble.NOT_MOVING,
        "writes are blocked",
        State.ICEBERG_READY,
        NOW,
        ("a@b.c",) * 3,
        "tableferry",
    )
    cause = StuckCount(Trouble.NOT_MOVING, "x" * 80, 99_999, NOW, ("tableferry fleet migrate",) * 3)
    paused = PausedTable(
        2, name, "ROWS_DIFFER: " + "x" * 500, State.READY, NOW, (), "tableferry fleet resume x"
    )
    owners = tuple(replace(small.owners[0], owner=f"{'o' * 60}{number}@example.com") for number in range(16))
    days = tuple(
        Day(NOW.date() - timedelta(days=366 - number), 100_000 - 200 * number, 100, 7, 93, 200 * number, 3, 1)
        for number in range(367)
    )
    return replace(
        small,
        total=100_000,
        stuck=(stuck,) * LISTED,
        stuck_causes=(cause,) * 6,
        stuck_total=99_999,
        paused_jobs=(paused,) * LISTED,
        owners=owners,
        owner_count=12_345,
        schemas=tuple(replace(small.schemas[0], schema="s" * 200 + str(number)) for number in range(16)),
        schema_count=1_234,
        waves=tuple(
            WaveCount(
                Wave("w" * 100, WaveStatus.PAUSED, "r" * 500, 9, "22:00-06:00", "Europe/Berlin"),
                *(99_999,) * 6,
                *(10**16,) * 2,
            )
            for _ in range(20)
        ),
        days=days,
    )
