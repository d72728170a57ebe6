"""Two workers in separate processes and Spark sessions on one metastore, which isn't Derby's embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests import fleet_sessions, metastore, servers, soak
from tests.fleet_sessions import Process

from tableferry.fleet.jobs.job import State, TargetFormat
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.spark.tables import TableName

SCHEMA = "two_sessions"
OLD = [(1, "mon"), (2, "tue"), (3, None)]
FORTNIGHT = 14 * 24 * 60
LAPSE = FleetSettings().lease_minutes + 1
# The number of the change after which a table is between its two renames.
BETWEEN_RENAMES = 3


@dataclass
class Two:
    """Two workers on a queue.

    Attributes:
        address: The address of the metastore.
        folder: The folder of the tables.
        store: The queue.
        first: The worker that is killed.
        second: The worker that continues.
        minutes: The minutes that have passed.
    """

    address: str
    folder: Path
    store: Store
    first: Process
    second: Process
    minutes: int = 0

    def add(self, formats: dict[str, TargetFormat]) -> None:
        """Create tables whose migration is due in a fortnight, and let the fortnight pass."""
        self.second.call(fleet_sessions.make, self.folder, dict.fromkeys(formats, OLD)).result()
        # The probation is so long that no run archives a table.
        jobs = [NewJob(name(table), form, probation_gap_days=10_000) for table, form in formats.items()]
        assert self.store.add(jobs, datetime(2026, 3, 1, tzinfo=UTC)) == len(jobs)
        assert self.second.call(fleet_sessions.announce).result() == []
        self.turn(FORTNIGHT)

    def turn(self, minutes: int) -> None:
        """Let time pass for both workers."""
        self.minutes += minutes
        for process in (self.first, self.second):
            with suppress(BrokenProcessPool):
                process.call(fleet_sessions.turn, minutes)

    def restart(self) -> None:
        """Restart the killed worker."""
        self.first.close()
        self.first = Process("first", self.address, SCHEMA, self.folder)
        self.first.call(fleet_sessions.turn, self.minutes)

    def state(self, table: str) -> State:
        [job] = self.store.jobs(named([name(table)]))
        return job.state

    def rows(self, table: str) -> list[tuple[int, str | None]]:
        return self.second.call(fleet_sessions.rows, table).result()


def name(table: str) -> TableName:
    return TableName(("spark_catalog", SCHEMA, table))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    (home := tmp_path / "metastore").mkdir()
    with (
        servers.or_skip(metastore.serving(home)) as address,
        closing(open_store(f"sqlite:///{tmp_path / 'fleet.db'}")) as store,
    ):
        store.create()
        first, second = (Process(name, address, SCHEMA, tmp_path) for name in ("first", "second"))
        two = Two(address, tmp_path, store, first, second)
        try:
            yield two
        finally:
            two.first.close()
            two.second.close()


@soak.slow
def test_second_session_finishes_the_tables_of_a_killed_one(two: Two) -> None:
    two.add({"a": TargetFormat.ICEBERG, "b": TargetFormat.DELTA})
    both = (two.first, two.second)
    running = [process.call(fleet_sessions.work, share, 1) for share, process in enumerate(both)]
    done = [one.result() for one in running]
    assert sorted(table for one in done for table in one) == ["a", "b"]
    assert {result for one in done for result in one.values()} == {"done"}

    # Both write to the Iceberg table concurrently; a commit that replaced another commit would lose rows.
    count = soak.amount(4, 25)
    numbers = [range(10, 10 + count), range(100, 100 + count)]
    expected = [*OLD, *((number, "new") for mine in numbers for number in mine)]
    writing = [
        process.call(fleet_sessions.append, "a", mine) for process, mine in zip(both, numbers, strict=True)
    ]
    for one in writing:
        one.result()
    assert two.rows("a") == sorted(expected, key=repr)

    shares = soak.amount([0], [0, 1])
    for share in shares:
        for dies_at in soak.amount([BETWEEN_RENAMES], range(30)):
            if not kill_one(two, share, dies_at):
                assert dies_at > BETWEEN_RENAMES
                break


def kill_one(two: Two, share: int, dies_at: int) -> bool:
    """Let the first worker die at a change and the second one continue; return whether it died."""
    tables = {f"i{share}_{dies_at}": TargetFormat.ICEBERG, f"d{share}_{dies_at}": TargetFormat.DELTA}
    two.add(tables)
    # In a soak, the worker dies during every second change, which Spark's Java continues for a moment.
    dies_in = 0.05 if soak.SOAKING and dies_at % 2 else None
    dying = two.first.call(fleet_sessions.work, share, 1, dies_at, dies_in)
    living = two.second.call(fleet_sessions.work, 1 - share, 1)
    assert list(living.result().values()) == ["done"]
    if died := isinstance(dying.exception(), BrokenProcessPool):
        # Its claim is valid until it expires.
        assert two.second.call(fleet_sessions.work, 0, 10).result() == {}
        two.turn(LAPSE)
        # A worker that dies a moment after the last change may have saved the final state.
        left = [table for table in tables if two.state(table) is not State.WRITES_UNBLOCKED]
        done = two.second.call(fleet_sessions.work, 0, 10).result()
        assert done == dict.fromkeys(left, "done")
        assert len(left) == 1 or (not left and dies_in is not None)
        if soak.SOAKING:
            two.restart()
    else:
        assert list(dying.result().values()) == ["done"]
    for table in tables:
        assert two.state(table) is State.WRITES_UNBLOCKED
        assert two.rows(table) == sorted(OLD, key=repr)
    return died
