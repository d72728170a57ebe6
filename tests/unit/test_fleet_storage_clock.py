"""Workers with wrong clocks agree on the time of the queue's storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import Row
from tests.unit import fleets

from tableferry.fleet.queue import delta
from tableferry.fleet.queue.delta import DeltaStore
from tableferry.fleet.queue.schema import REVISION
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.storage_clock import StorageClock

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
LEASE = timedelta(minutes=15)


@dataclass
class Clocks:
    """The storage's time, and the duration of each measurement."""

    seconds: float = 0.0
    slow: float = 2.0
    measured: list[float] = field(default_factory=list)

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.seconds)

    def measure(self) -> datetime:
        dated = self.now
        self.measured.append(self.seconds)
        self.seconds += self.slow
        return dated

    def clock(self, *, ahead: float = 0.0, slept: float = 0.0) -> StorageClock:
        """Return the clock of a worker whose machine is ahead and doesn't count seconds of sleep."""
        return StorageClock(self.measure, lambda: self.seconds - slept, lambda: self.seconds + ahead)


@given(
    st.floats(-86_400, 86_400),
    st.lists(st.floats(0, 1_000), max_size=8),
    st.floats(0, 10),
)
def test_time_is_that_of_the_storage_for_any_machine_clock(
    ahead: float, waits: list[float], slow: float
) -> None:
    clocks = Clocks(slow=slow)
    clock = clocks.clock(ahead=ahead)
    last = clock()
    for seconds in waits:
        clocks.seconds += seconds
        now = clock()
        # Each of the two sums may be rounded up by a microsecond.
        assert timedelta(microseconds=-1) <= clocks.now - now <= timedelta(seconds=slow + 0.001)
        assert now >= last - timedelta(seconds=slow + 0.001)
        last = now


def test_storage_time_is_measured_every_five_minutes() -> None:
    clocks = Clocks()
    clock = clocks.clock()
    for _ in range(20):
        clock()
        clocks.seconds += 60
    assert [round(second / 60) for second in clocks.measured] == [0, 6, 12, 18]


def test_machine_that_slept_measures_again() -> None:
    clocks = Clocks(slow=0)
    monotonic = [0.0]
    clock = StorageClock(clocks.measure, lambda: monotonic[0], lambda: clocks.seconds)
    clock()
    clocks.seconds += 3600
    monotonic[0] += 1
    assert clock() == clocks.now


def test_worker_with_a_clock_two_hours_ahead_takes_no_valid_claim(tmp_path: Path) -> None:
    store = fleets.opened(tmp_path)
    fleets.Fleet(store).add("orders", at=START)
    clocks = Clocks()
    right, ahead = clocks.clock(), clocks.clock(ahead=7200)

    def claims(worker: str, clock: StorageClock) -> int:
        return len(store.claim(everything(), worker, now=clock(), lease=LEASE, limit=1))

    assert claims("right", right) == 1
    for _ in range(14):
        assert claims("ahead", ahead) == 0
        clocks.seconds += 60
    clocks.seconds += 120
    assert claims("ahead", ahead) == 1
    store.close()


class Answers:
    """A frame of one row."""

    def __init__(self, row: dict[str, object]) -> None:
        self.row = row
        self.columns = list(row)
        self.schema: list[object] = []

    def select(self, *names: str) -> Answers:
        return self

    def selectExpr(self, *texts: str) -> Answers:
        return self

    def collect(self) -> list[Row]:
        return [Row(**self.row)]


class Session:
    """A session without the clock table, or without permission to change it."""

    def sql(self, text: str) -> Answers:
        if text.startswith("ALTER"):
            raise AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] there is no clock")
        if text.startswith("SHOW TBLPROPERTIES"):
            return Answers({"key": "tableferry.queue.upgraded", "value": str(int(REVISION))})
        assert text == "SELECT current_timestamp() AS timestamp"
        return Answers({"timestamp": START})


def test_queue_without_a_clock_table_uses_the_cluster_clock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session: Any = Session()
    store = DeltaStore(session, "spark_catalog.fleet")
    assert START <= store.now() < START + timedelta(minutes=1)
    store.now()
    [warning] = caplog.messages
    assert "this cluster's clock is used" in warning
    assert "\n" not in warning
    assert "Run tableferry fleet init" in warning
    assert warning.endswith("MODIFY on the table spark_catalog.fleet.clock")


def test_claims_are_renewed_in_a_separate_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: dict[str, str | None] = {}
    ran: list[str | None] = []
    session: Any = SimpleNamespace(
        sparkContext=SimpleNamespace(
            getLocalProperty=pools.get, setLocalProperty=lambda name, value: pools.update({name: value})
        )
    )
    monkeypatch.setattr(delta, "in_process", lambda spark: True)
    monkeypatch.setattr(DeltaStore, "update", lambda *given: ran.append(pools["spark.scheduler.pool"]))
    DeltaStore(session, "spark_catalog.fleet").renew([1, 2], "w", START, LEASE)
    assert ran == ["tableferry_claims"]
    assert pools == {"spark.scheduler.pool": None}
