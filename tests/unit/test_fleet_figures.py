"""The figures that each database selects, compared with those that Python counts job by job."""

from __future__ import annotations

from collections import Counter
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
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import Event, NotificationRecord, to_row
from tableferry.fleet.queue.schema import events, jobs, metadata, notifications, waves
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.reports.figure_types import (
    PHASES,
    STATE_WORDS,
    TO_DO,
    AgeCount,
    Day,
    Due,
    Figures,
    FormatCount,
    OwnerCount,
    Pace,
    Phase,
    Run,
    SchemaCount,
    StateCount,
    WaitingJobs,
    WaveCount,
)
from tableferry.fleet.reports.forecast import forecast
from tableferry.fleet.reports.status import read_status

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
OWNERS = [
    "ann@example.com",
    "Ann@example.com",
    'ü"\\@example.com',
    'u"\\@example.com',
    "x" * 400 + "1@example.com",
    "x" * 400,
]


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
# A job leaves these two only on request.
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

# Owners that MySQL's default collation takes for one.
OWNED = [
    Job(
        number,
        "spark_catalog",
        "sales",
        f"t{number}",
        created_at=NOW,
        last_updated_time=NOW,
        tbl_owners=(owner,),
    )
    for number, owner in enumerate(OWNERS, 1)
]


@example(fleet=Fleet([], [], [], [GONE]))
@example(fleet=Fleet([*OWNED], [], [], []))
@settings(max_examples=amount(5, 20), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fleet=fleets())
def test_figures_of_each_database_are_those_counted_in_python(store: SqlStore, fleet: Fleet) -> None:
    with store._engine.begin() as connection:
        write(connection, fleet)
    assert_figures(read_status(store, NOW, rest=3 * LEASE), fleet)


def write(connection: Connection, fleet: Fleet) -> None:
    rows: dict[Table, list[dict[str, object]]] = {
        jobs: [
            *map(to_row, fleet.jobs),
            *(to_row(replace(job, archived_at=NOW)) for job in fleet.archived),
        ],
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


def assert_figures(figures: Figures, fleet: Fleet) -> None:
    """Compare each figure with what Python counts."""
    everything = (*fleet.jobs, *fleet.archived)
    assert figures.total == len(everything)
    assert figures.archived == len(fleet.archived)
    assert figures.paused == sum(job.migration_paused for job in everything)
    assert figures.states == tuple(
        StateCount(
            state,
            STATE_WORDS[state],
            sum(job.state is state for job in everything),
            sum(job.state is state and job.migration_paused for job in everything),
        )
        for state in PHASES
    )
    assert figures.ages == tuple(_ages(fleet, phase) for phase in Phase)
    owners = {owner for job in everything for owner in job.tbl_owners or ("",)}
    assert set(figures.owners) == {
        OwnerCount(owner, *_counts(job for job in everything if owner in (job.tbl_owners or ("",))))
        for owner in owners
    }
    assert figures.owner_count == len(owners - {""})
    schema_counts = (*_counts(everything), _bytes(everything))
    assert figures.schemas == (SchemaCount("spark_catalog.sales", *schema_counts),)[: figures.schema_count]
    assert figures.schema_count == min(1, len(everything))
    assert figures.waves == tuple(_wave_count(wave, everything) for wave in WAVES)
    codes = Counter(job.pause_reason.split(":")[0] for job in fleet.jobs if job.migration_paused)
    assert {pause.reason: pause.jobs for pause in figures.pauses} == codes
    assert figures.formats == tuple(
        FormatCount(
            form,
            sum(job.target_format is form for job in everything),
            sum(job.target_format is form and job.state is State.HIVE_DROPPED for job in everything),
        )
        for form in TargetFormat
    )
    stuck = _stuck(fleet)
    assert [(job.task_id, job.trouble, job.words, job.since) for job in figures.stuck] == [
        (job.task_id, trouble, words.format(claimed_by=job.claimed_by), since)
        for since, _, job, trouble, words in stuck
    ]
    assert figures.stuck_total == len(stuck)
    causes = Counter(words.format(claimed_by="…") for *_, words in stuck)
    assert {cause.words: cause.jobs for cause in figures.stuck_causes} == causes
    paused = sorted(
        (_changed(fleet, job), job.task_id)
        for job in fleet.jobs
        if job.migration_paused and job.state is not State.ICEBERG_DROPPED
    )
    assert [(job.since, job.task_id) for job in figures.paused_jobs] == paused
    assert figures.runs == _runs(fleet)
    assert figures.due == _due(fleet)
    assert figures.days == _days(fleet)
    began = min(_changes(fleet), default=date.min)
    assert figures.pace == tuple(_pace(fleet, days, began) for days in (7, 28))
    assert figures.forecast == forecast(_waiting(fleet), figures.pace, figures.paused, NOW)


def _counts(counted: Iterable[Job]) -> tuple[int, ...]:
    """Return the counts of a group: jobs, to_do, probation, completed, reverted, paused."""
    group = list(counted)
    phases = Counter(PHASES[job.state] for job in group)
    return (
        len(group),
        sum(phases[phase] for phase in TO_DO),
        phases[Phase.PROBATION],
        phases[Phase.COMPLETED],
        phases[Phase.REVERTED] + phases[Phase.GOING_BACK],
        sum(job.migration_paused for job in group),
    )


def _bytes(counted: Iterable[Job]) -> int:
    return sum(job.table_bytes or 0 for job in counted)


def _wave_count(wave: Wave, everything: Iterable[Job]) -> WaveCount:
    inside = [job for job in everything if job.wave == wave.name]
    moved = [job for job in inside if PHASES[job.state] in (Phase.PROBATION, Phase.COMPLETED)]
    counts = (*_counts(inside), _bytes(inside), _bytes(moved))
    return WaveCount(wave, *counts)


def _ages(fleet: Fleet, phase: Phase) -> AgeCount:
    days = [
        (NOW.date() - _changed(fleet, job).date()).days for job in fleet.jobs if PHASES[job.state] is phase
    ]
    bounds = [(-9999, 1), (1, 7), (7, 30), (30, 90), (90, 9999)]
    return AgeCount(phase, *(sum(first <= age < end for age in days) for first, end in bounds))


def _runs(fleet: Fleet) -> tuple[Run, ...]:
    recent = [event for event in fleet.events if event.at > NOW - 7 * DAY]
    if not recent:
        return ()
    return (Run("w", max(event.at for event in recent), len(recent), sum(event.paused for event in recent)),)


def _waiting(fleet: Fleet) -> list[WaitingJobs]:
    return [
        WaitingJobs(
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
    ]


def _due(fleet: Fleet) -> Due:
    running = (None, *(wave.name for wave in WAVES if wave.status is WaveStatus.RUNNING))
    migrations: list[int] = []
    archives: list[int] = []
    to_notify = 0
    for job in fleet.jobs:
        onward = job.pair not in BACK and job.wave in running
        if job.migration_paused:
            continue
        if job.state is State.READY and onward:
            to_notify += job.comm_level1_date is None
            if (notified := _day(job.comm_level1_date)) is not None:
                migrations.append((notified - NOW.date()).days + job.initial_gap_days)
        if job.state is State.WRITES_UNBLOCKED:
            notified = _day(job.comm_level2_date)
            to_notify += notified is None and job.desired_state is State.WRITES_UNBLOCKED
            if notified is not None and onward:
                archives.append((notified - NOW.date()).days + job.probation_gap_days)
    counts = [
        sum(first <= day < end for day in due)
        for due in (migrations, archives)
        for first, end in ((-9999, 0), (0, 1), (0, 7))
    ]
    numbers = (*counts, to_notify)
    return Due(*numbers)


def _changes(fleet: Fleet) -> dict[date, Counter[Phase]]:
    """Return the jobs that each phase gained or lost on each day."""
    changes: dict[date, Counter[Phase]] = {}
    for job in (*fleet.jobs, *fleet.archived):
        changes.setdefault(job.created_at.date(), Counter())[Phase.NEW] += 1
    for event in fleet.events:
        if event.was is not event.state:
            on_day = changes.setdefault(event.at.date(), Counter())
            on_day[PHASES[event.state]] += 1
            on_day[PHASES[event.was]] -= 1
    return changes


def _days(fleet: Fleet) -> tuple[Day, ...]:
    everything = (*fleet.jobs, *fleet.archived)
    if not everything:
        return ()
    now = Counter(PHASES[job.state] for job in everything)
    changes = _changes(fleet)
    first = max(min(*changes, NOW.date()), NOW.date() - 366 * DAY)
    days = [first + number * DAY for number in range((NOW.date() - first).days + 1)]
    return tuple(
        Day(
            day,
            *(
                max(0, now[phase] - sum(by[phase] for on, by in changes.items() if day < on <= NOW.date()))
                for phase in Phase
            ),
        )
        for day in days
    )


def _pace(fleet: Fleet, days: int, began: date) -> Pace:
    elapsed = max(1.0, min(days, (NOW.date() - began).days) + 0.5)
    recent = [
        (event.was, event.state)
        for event in fleet.events
        if event.was is not event.state and NOW.date() - days * DAY <= event.at.date() <= NOW.date()
    ]
    migrated = recent.count((State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED))
    finished, reverted = (
        sum(state is end for _, state in recent) for end in (State.HIVE_DROPPED, State.ICEBERG_DROPPED)
    )
    return Pace(
        days,
        elapsed,
        migrated,
        finished,
        reverted,
        round(migrated / elapsed, 2),
        round(finished / elapsed, 2),
    )


Stuck = tuple[datetime, int, Job, Trouble, str]


def _stuck(fleet: Fleet) -> list[Stuck]:
    """Return the stuck jobs, the longest first, each by the first rule that applies."""
    found = ((job, _trouble(fleet, job)) for job in fleet.jobs)
    return sorted(
        (since, job.task_id, job, trouble, words)
        for job, stuck in found
        if stuck
        for since, trouble, words in [stuck]
    )


def _trouble(fleet: Fleet, job: Job) -> tuple[datetime, Trouble, str] | None:
    if _is_outdated(job):
        since = job.last_updated_time if job.shadow_status else job.comm_level2_date
        assert since is not None
        return since, Trouble.SHADOW_DELAYED, "the Hive copy isn't up to date"
    if _lapsed(job):
        assert job.lease_until is not None
        words = "the claim of worker {claimed_by} has lapsed"
        return job.lease_until, Trouble.CLAIM_LAPSED, words
    if job.state in WALK and _rests(fleet, job):
        words = "writes are blocked, and no run continues it"
        return _changed(fleet, job), Trouble.NOT_MOVING, words
    if _waits_for_its_block(fleet, job):
        words = "its migration has started, and no run continues it"
        return _started(fleet, job), Trouble.NOT_MOVING, words
    if _rests(fleet, job):
        return (
            _changed(fleet, job),
            Trouble.NOT_MOVING,
            "an archive or a revert is requested, and no run performs it",
        )
    for record in sorted(fleet.notifications, key=lambda record: record.recorded_at):
        is_late = record.sent_at is None and record.recorded_at < NOW - DAY
        is_recorded_table = job.task_id in record.task_ids and record.message_id in job.record.letters["left"]
        if is_late and is_recorded_table and _is_to_notify(job):
            words = f"its notification of level {record.level} was recorded and not sent"
            return record.recorded_at, Trouble.NOTIFICATION_NOT_SENT, words
    return None


def _is_to_notify(job: Job) -> bool:
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


def _is_outdated(job: Job) -> bool:
    on_probation = job.in_process and job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    broken = job.shadow_status is not None and _free(job) and job.last_updated_time < NOW - DAY
    late = job.comm_level2_date is not None and job.comm_level2_date < NOW - 2 * DAY
    never = job.shadow_watermark is None and late
    return not job.migration_paused and on_probation and job.probation_gap_days > 0 and (broken or never)


def _day(time: datetime | None) -> date | None:
    return None if time is None else time.date()
