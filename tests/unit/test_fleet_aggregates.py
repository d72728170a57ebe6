"""What databases count of a fleet, compared with what Python counts of their jobs, events, notifications."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, Table, delete, insert
from tests.soak import amount

from tableferry.fleet.jobs.job import Job, State, TargetFormat, Trouble
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.queue.aggregates import (
    Aggregates,
    CountByAge,
    CountByDayAdded,
    CountByMove,
    CountByOwners,
    CountBySchema,
    CountByWait,
    CountByWave,
    Group,
)
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import Event, NotificationRecord
from tableferry.fleet.queue.rows import to_row
from tableferry.fleet.queue.schema import events, jobs, jobs_archive, metadata, notifications, waves
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.stuck_jobs import PausedJob, StuckJob
from tableferry.fleet.reports import Run
from tableferry.fleet.status.counting import LISTED, figures
from tableferry.fleet.status.reading import read_status

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
LEASE = timedelta(hours=1)
DAY = timedelta(days=1)
TICK = timedelta(microseconds=1)
WALK = {
    State.WRITES_BLOCKED,
    State.ICEBERG_READY,
    State.ICEBERG_PRIMARY,
    State.SYNC_HIVE,
    State.HIVE_PRIMARY,
}
ENDS = {State.HIVE_DROPPED, State.ICEBERG_DROPPED}
OWNERS = ["ann@example.com", "bob@example.com", 'ü"\\@example.com', "x" * 130 + "1@example.com", "x" * 130]


@dataclass(frozen=True)
class Fleet:
    """All that a queue holds."""

    jobs: Sequence[Job]
    archived: Sequence[Job]
    events: Sequence[Event]
    notifications: Sequence[NotificationRecord]


# Around the instants at which something becomes late, and around midnight.
edges = st.sampled_from([timedelta(0), 3 * LEASE, DAY, 2 * DAY, 12 * LEASE, 30 * DAY])
times = st.builds(
    lambda ago, off: NOW - ago + off, edges, st.sampled_from([-TICK, timedelta(0), TICK])
) | st.datetimes(datetime(2025, 6, 1), datetime(2026, 11, 24), timezones=st.just(UTC))
# From these two a job goes on only when it is asked to.
states = st.sampled_from([*State, *[State.WRITES_UNBLOCKED, State.HIVE_DROPPED] * 3])
noted = st.lists(st.sampled_from(["<0@x>", "<1@x>", "<2@x>"]), max_size=3, unique=True)
reasons = st.sampled_from(["None", "REVERTED", "ROWS_DIFFER: 3: of 9", "ROWS_DIFFER", "IS_VIEW: ü"])


@st.composite
def some_jobs(draw: st.DrawFn, first: int) -> list[Job]:
    made: list[Job] = []
    for number in range(first, first + draw(st.integers(0, 20))):
        state = draw(states)
        job = Job(
            number,
            "spark_catalog",
            "sales",
            f"t{number}",
            created_at=draw(times),
            last_updated_time=draw(times),
            tbl_owners=tuple(draw(st.lists(st.sampled_from(OWNERS), max_size=3, unique=True))),
            to_be_processed=draw(st.booleans()),
            in_process=draw(st.booleans()),
            state=state,
            desired_state=draw(st.just(state) | states),
            initial_gap_days=draw(st.integers(0, 3)),
            probation_gap_days=draw(st.integers(0, 2)),
            comm_level1_date=draw(st.none() | times),
            comm_level2_date=draw(st.none() | times),
            comm_level3_date=draw(st.none() | times),
            begun_at=draw(st.none() | times),
            record=JobRecord(letters={"level": 1, "left": dict.fromkeys(draw(noted))}),
            shadow_watermark=draw(st.sampled_from([None, "1"])),
            shadow_status=draw(st.sampled_from([None, None, "Shadowing"])),
            target_format=draw(st.sampled_from(TargetFormat)),
            wave=draw(st.sampled_from([None, "a", "b"])),
            table_bytes=draw(st.sampled_from([None, 0, 7, 10**13])),
        )
        if draw(st.booleans()):
            job = replace(job, claimed_by="w", lease_until=draw(times))
        if draw(st.integers(0, 3)) == 0:
            job = replace(job, migration_paused=True, pause_reason=draw(reasons))
        made.append(job)
    return made


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    there, gone = draw(some_jobs(1)), draw(some_jobs(100))
    numbers = [job.task_id for job in (*there, *gone)]
    event = st.builds(
        Event,
        st.sampled_from([*numbers, 4711]),
        times,
        states,
        states,
        states,
        st.booleans(),
        reasons,
        st.just("w"),
    )
    recorded = draw(st.lists(times, max_size=3, unique=True))
    sent = [
        NotificationRecord(
            f"<{number}@x>",
            draw(st.integers(1, 3)),
            tuple(draw(st.lists(st.sampled_from([*numbers, 4711]), max_size=3, unique=True))),
            ("ann@example.com",),
            at,
            draw(st.none() | times),
        )
        for number, at in enumerate(recorded)
    ]
    return Fleet(there, gone, draw(st.lists(event, max_size=20)), sent)


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    queue_store = open_store(url)
    assert isinstance(queue_store, SqlStore)
    queue_store.create()
    yield queue_store
    queue_store.close()


# The first has tables.
WAVES = (Wave("a"), Wave("none", WaveStatus.PAUSED, "3 of 20 tables failed", 4))

# A notification that wasn't sent, about a job that is gone.
GONE = NotificationRecord("<1@x>", 1, (4711,), ("ann@example.com",), NOW - timedelta(days=3))


@example(fleet=Fleet([], [], [], [GONE]))
@settings(max_examples=amount(5, 20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fleet=fleets())
def test_a_database_counts_as_python_would(store: SqlStore, fleet: Fleet) -> None:
    with store._engine.begin() as connection:
        write(connection, fleet)
    assert read_status(store, NOW, rest=3 * LEASE) == figures(plainly(fleet), NOW)


def write(connection: Connection, fleet: Fleet) -> None:
    rows: dict[Table, list[dict[str, object]]] = {
        jobs: [to_row(job) for job in fleet.jobs],
        jobs_archive: [{**to_row(job), "archived_at": NOW} for job in fleet.archived],
        events: [
            {
                "task_id": event.task_id,
                "at": event.at,
                "day": event.at.date(),
                "was": event.was,
                "state": event.state,
                "desired_state": event.desired_state,
                "paused": event.paused,
                "pause_reason": event.pause_reason,
                "worker": event.worker,
            }
            for event in fleet.events
        ],
        notifications: [to_row(record) for record in fleet.notifications],
        waves: [to_row(wave) for wave in WAVES],
    }
    for table in metadata.sorted_tables:
        connection.execute(delete(table))
        if rows.get(table):
            connection.execute(insert(table), rows[table])


def plainly(fleet: Fleet) -> Aggregates:
    """Count one by one."""
    stuck = (
        _stuck_by(
            Trouble.SHADOW_BEHIND,
            "the Hive copy isn't kept in step",
            (
                (job.last_updated_time if job.shadow_status else job.comm_level2_date, job)
                for job in fleet.jobs
                if _behind(job)
            ),
        ),
        _stuck_by(
            Trouble.CLAIM_LAPSED,
            "worker {claimed_by} claimed it and gives no sign of life",
            ((job.lease_until, job) for job in fleet.jobs if _lapsed(job)),
        ),
        _stuck_by(
            Trouble.NOT_MOVING,
            "writes are blocked, and no run goes on with it",
            ((_changed(fleet, job), job) for job in fleet.jobs if job.state in WALK and _rests(fleet, job)),
        ),
        _stuck_by(
            Trouble.NOT_MOVING,
            "its migration has started, and no run goes on with it",
            ((_started(fleet, job), job) for job in fleet.jobs if _waits_for_its_block(fleet, job)),
        ),
        _stuck_by(
            Trouble.NOT_MOVING,
            "asked for, and no run took it up",
            (
                (_changed(fleet, job), job)
                for job in fleet.jobs
                if job.state not in WALK and _rests(fleet, job)
            ),
        ),
        _unsent(fleet),
    )
    paused = _by_time(
        (_changed(fleet, job), job)
        for job in fleet.jobs
        if job.migration_paused and job.state is not State.ICEBERG_DROPPED
    )[:LISTED]
    named = {job.task_id for by_rule in stuck for job in by_rule} | {task_id for task_id, _ in paused}
    return Aggregates(
        groups=tuple(Group(job.state, job.migration_paused, job.target_format, 1) for job in fleet.jobs),
        reasons=_pauses(fleet),
        by_age=tuple(CountByAge(_changed(fleet, job).date(), job.state, 1) for job in fleet.jobs),
        by_owners=tuple(
            CountByOwners(job.tbl_owners, job.state, job.migration_paused, 1) for job in fleet.jobs
        ),
        by_schema=tuple(
            CountBySchema(
                f"{job.catalog_name}.{job.db_name}", job.state, job.migration_paused, 1, job.table_bytes or 0
            )
            for job in (*fleet.jobs, *fleet.archived)
        ),
        waves=WAVES,
        by_wave=tuple(
            CountByWave(job.wave, job.state, job.migration_paused, 1, job.table_bytes or 0)
            for job in (*fleet.jobs, *fleet.archived)
            if job.wave is not None
        ),
        archived=tuple((job.target_format, 1) for job in fleet.archived),
        waiting=tuple(
            CountByWait(
                job.state,
                job.desired_state,
                job.wave,
                job.initial_gap_days,
                job.probation_gap_days,
                _day(job.comm_level2_date if job.state is State.WRITES_UNBLOCKED else job.comm_level1_date),
                1,
            )
            for job in fleet.jobs
            if not job.migration_paused and job.state not in ENDS
        ),
        moved=tuple(
            CountByMove(event.at.date(), event.was, event.state, 1)
            for event in fleet.events
            if event.was is not event.state
            and event.state not in (State.ICEBERG_READY, State.ICEBERG_PRIMARY)
        ),
        by_day_added=tuple(
            CountByDayAdded(job.created_at.date(), 1) for job in (*fleet.jobs, *fleet.archived)
        ),
        runs=_runs(fleet),
        stuck=stuck,
        paused=tuple(PausedJob(task_id, since) for task_id, since in paused),
        listed={job.task_id: job for job in fleet.jobs if job.task_id in named},
    )


def _runs(fleet: Fleet) -> tuple[Run, ...]:
    lately = [event for event in fleet.events if event.at > NOW - 7 * DAY]
    by_worker: dict[str, list[Event]] = {}
    for event in lately:
        by_worker.setdefault(event.worker, []).append(event)
    return tuple(
        Run(worker, max(event.at for event in done), len(done), sum(event.paused for event in done))
        for worker, done in by_worker.items()
    )


def _stuck_by(
    trouble: Trouble, words: str, jobs: Iterable[tuple[datetime | None, Job]]
) -> tuple[StuckJob, ...]:
    return tuple(StuckJob(task_id, since, trouble, words) for task_id, since in _by_time(jobs))


def _by_time(jobs: Iterable[tuple[datetime | None, Job]]) -> list[tuple[int, datetime]]:
    known = sorted((since, job.task_id) for since, job in jobs if since is not None)
    return [(task_id, since) for since, task_id in known]


def _pauses(fleet: Fleet) -> tuple[tuple[str, int], ...]:
    codes = [job.pause_reason.split(":")[0] for job in fleet.jobs if job.migration_paused]
    return tuple((code, codes.count(code)) for code in dict.fromkeys(codes))


def _unsent(fleet: Fleet) -> tuple[StuckJob, ...]:
    words = "its notification of level {level} was recorded and not sent"
    stuck: dict[int, StuckJob] = {}
    for record in sorted(fleet.notifications, key=lambda record: record.recorded_at):
        if record.sent_at is None and record.recorded_at < NOW - DAY:
            since, level = record.recorded_at, record.level
            for job in fleet.jobs:
                if job.task_id in record.task_ids and record.message_id in job.record.letters["left"]:
                    late = StuckJob(job.task_id, since, Trouble.NOTIFICATION_NOT_SENT, words, level)
                    if _is_to_be_told(job):
                        stuck.setdefault(job.task_id, late)
    return tuple(stuck.values())


def _is_to_be_told(job: Job) -> bool:
    if job.migration_paused:
        return False
    match job.pair:
        case State.READY, State.WRITES_BLOCKED:
            in_turn = job.wave in (None, *(wave.name for wave in WAVES if wave.status is WaveStatus.RUNNING))
            return job.to_be_processed and job.comm_level1_date is None and in_turn
        case State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED:
            return job.in_process and job.comm_level2_date is None
        case State.HIVE_DROPPED, State.HIVE_DROPPED:
            return not job.in_process and job.comm_level3_date is None
    return False


def _changed(fleet: Fleet, job: Job) -> datetime:
    return max((event.at for event in fleet.events if event.task_id == job.task_id), default=job.created_at)


def _started(fleet: Fleet, job: Job) -> datetime:
    return max(_changed(fleet, job), job.begun_at or _changed(fleet, job))


def _waits_for_its_block(fleet: Fleet, job: Job) -> bool:
    late = _started(fleet, job) < NOW - 3 * LEASE
    return job.state is State.READY and job.in_process and not job.migration_paused and _free(job) and late


def _free(job: Job) -> bool:
    return job.lease_until is None or job.lease_until <= NOW


def _lapsed(job: Job) -> bool:
    return job.lease_until is not None and job.lease_until < NOW


def _rests(fleet: Fleet, job: Job) -> bool:
    if job.migration_paused or not _free(job):
        return False
    asked = job.state in (State.WRITES_UNBLOCKED, State.HIVE_DROPPED) and job.state is not job.desired_state
    if asked and job.desired_state is State.HIVE_DROPPED and job.wave not in (None, WAVES[0].name):
        # Its wave isn't running, so no run is to archive it.
        return False
    late = 3 * LEASE if job.state in WALK else DAY
    return (job.state in WALK or asked) and _changed(fleet, job) < NOW - late


def _behind(job: Job) -> bool:
    on_probation = job.in_process and job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    broken = job.shadow_status is not None and _free(job) and job.last_updated_time < NOW - DAY
    late = job.comm_level2_date is not None and job.comm_level2_date < NOW - 2 * DAY
    never = job.shadow_watermark is None and late
    return not job.migration_paused and on_probation and job.probation_gap_days > 0 and (broken or never)


def _day(time: datetime | None) -> date | None:
    return None if time is None else time.date()
