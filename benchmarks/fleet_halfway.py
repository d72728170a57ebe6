"""Rows of a fleet in the middle of its migration: a tenth isn't checked yet, a third is on probation.

Of 100,000 jobs a tenth is archived, and the events are 450,000, over ten months.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Engine, insert, text

from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.queue.conditions import chunks
from tableferry.fleet.queue.records import to_row
from tableferry.fleet.queue.schema import events, jobs

TEAMS = 500
_DAYS = 300
_SHARES = {
    "new": 8,
    "ready": 22,
    "paused": 4,
    "walking": 1,
    "probation": 30,
    "through": 23,
    "archived": 10,
    "back": 2,
}
_AGES = {"ready": (1, 40), "paused": (1, 60), "walking": (0, 1), "probation": (0, 30), "back": (5, 150)}
_STEP = timedelta(minutes=7)


@dataclass
class JobHistory:
    """A job and its events."""

    job: Job
    archived: bool = False
    happened: list[dict[str, Any]] = field(default_factory=list)

    def change(self, at: datetime, **values: Any) -> None:
        """Change the job, with the event that a store would write."""
        before, self.job = self.job, replace(self.job, last_updated_time=at, **values)
        if (before.pair, before.migration_paused) != (self.job.pair, self.job.migration_paused):
            self.happened.append(
                {
                    "task_id": self.job.task_id,
                    "at": at,
                    "day": at.date(),
                    "was": before.state.value,
                    "state": self.job.state.value,
                    "desired_state": self.job.desired_state.value,
                    "paused": self.job.migration_paused,
                    "pause_reason": self.job.pause_reason,
                    "worker": "migrate-host-4711",
                }
            )

    def advance(self, at: datetime, steps: int = 9) -> datetime:
        """Advance the job until it waits."""
        transitions = {**BACK, **FORWARD}
        while steps and (transition := transitions.get(self.job.pair)) is not None:
            at, steps = at + _STEP, steps - 1
            self.change(at, state=self.job.desired_state, desired_state=transition.then)
        return at


def fill(engine: Engine, count: int, now: datetime) -> int:
    """Write a fleet into an empty queue, and return the number of its events."""
    written = 0
    for some in chunks(histories(count, now), 5000):
        rows_of_jobs = [
            to_row(replace(history.job, archived_at=now if history.archived else None)) for history in some
        ]
        happened = [event for history in some for event in history.happened]
        with engine.begin() as connection:
            for table, rows in ((jobs, rows_of_jobs), (events, happened)):
                for part in chunks(rows):
                    connection.execute(insert(table), part)
        written += len(happened)
    if engine.dialect.name == "postgresql":
        # Its own process does so some minutes later.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
    return written


def histories(count: int, now: datetime) -> Iterator[JobHistory]:
    """Yield jobs with their events, the same on each call."""
    chance = random.Random(2026)
    kinds, shares = list(_SHARES), list(_SHARES.values())
    for number in range(1, count + 1):
        yield _history(number, chance.choices(kinds, shares)[0], chance, now)


def _history(number: int, kind: str, chance: random.Random, now: datetime) -> JobHistory:
    nearest, farthest = _AGES.get(kind, (40, 200))
    last = now - timedelta(days=chance.uniform(nearest, farthest))
    team = chance.randrange(TEAMS)
    people: Sequence[int] = (team, (team + 1) % TEAMS) if team % 3 == 0 else (team,)
    # Schemas are added by the day.
    added = (last - timedelta(days=chance.uniform(30, _DAYS - 200))).replace(
        hour=9, minute=0, second=0, microsecond=0
    )
    history = JobHistory(
        Job(
            number,
            "spark_catalog",
            f"db{number % 200}",
            f"table_{number}",
            created_at=added,
            last_updated_time=added,
            stg_format="parquet",
            tbl_owners=tuple(f"owner{person}@example.org" for person in people),
            downstream_users=tuple(f"user{chance.randrange(5000)}@example.org" for _ in range(3)),
            target_format=chance.choice(list(TargetFormat)),
            probation_gap_days=14,
            record=JobRecord(others={"listing": f"{chance.getrandbits(128):x}"}),
        )
    )
    if kind == "new":
        return history
    notified = last - timedelta(days=15)
    history.change(notified, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
    if chance.random() < 0.1:
        history.change(notified + _STEP, migration_paused=True, pause_reason="MISSING_OWNER: no owner")
        history.change(notified + 2 * _STEP, migration_paused=False, pause_reason="None")
    history.change(notified + 3 * _STEP, comm_level1_date=notified + 3 * _STEP)
    match kind:
        case "ready":
            return history
        case "paused":
            reason = chance.choice([reason for reason in PauseReason if reason is not PauseReason.NONE])
            history.change(last, migration_paused=True, pause_reason=f"{reason.value}: {number} is why")
            return history
        case "walking":
            history.change(last, in_process=True, to_be_processed=False)
            history.advance(last, chance.randrange(1, 4))
            return history
    history.change(last, in_process=True, to_be_processed=False)
    at = history.advance(last)
    history.change(at + _STEP, comm_level2_date=at + _STEP, shadow_watermark="1")
    if kind in ("through", "archived"):
        at += timedelta(days=15)
        history.change(at, desired_state=State.HIVE_DROPPED)
        history.advance(at, 1)
        history.change(at + 2 * _STEP, in_process=False, comm_level3_date=at)
        history.archived = kind == "archived"
    elif kind == "back":
        at += timedelta(days=2)
        history.change(at, desired_state=State.WRITES_BLOCKED)
        history.advance(at)
        history.change(at + _STEP, migration_paused=True, pause_reason="REVERTED", in_process=False)
    elif chance.random() < 0.5:
        # Kept in step a moment ago.
        history.change(now - timedelta(hours=chance.uniform(0, 20)), shadow_watermark="2")
    return history
