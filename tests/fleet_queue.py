"""Tests of every store; the test module of each store imports them and provides the fixture `queue`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest
from sqlalchemy import delete, func, select
from tests import conditions, soak

from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.jobs.waves import Wave, WaveLoad, WaveStatus
from tableferry.fleet.operations.history import events_of, notifications_of
from tableferry.fleet.queue import selections
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.queue.dialects import day_of
from tableferry.fleet.queue.records import Event, NewJob, NotificationRecord
from tableferry.fleet.queue.schema import events, metadata
from tableferry.fleet.queue.selections import Selection, everything, least_recent, named, numbered
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.store import Store
from tableferry.spark.tables import TableName

NOW = datetime(2026, 3, 1, 9, 30, 15, 123457, tzinfo=UTC)
HOUR = timedelta(hours=1)
TICK = timedelta(microseconds=1)
THIS_HOUR = datetime(2026, 3, 1, 9, tzinfo=UTC)


@dataclass(frozen=True)
class Queue:
    """A store for a test.

    Attributes:
        store: Empty.
        reopen: Opens the same queue once more, as another worker does.
        put: Writes jobs as they are, past the store.
    """

    store: Store
    reopen: Callable[[], Store]
    put: Callable[[Sequence[Job]], None]

    def add(self, *tables: str) -> list[Job]:
        """Add tables of one schema, and return all jobs."""
        self.store.add([NewJob(name(table)) for table in tables], NOW)
        return list(self.store.jobs(everything()))

    def claim(self, worker: str = "w", now: datetime = NOW, limit: int = 100, **how: Any) -> Sequence[Job]:
        return self.store.claim(everything(), worker, now=now, lease=HOUR, limit=limit, **how)


def emptied(store: SqlStore) -> None:
    """Delete all rows of a queue in a database, because the creation takes as long as a test."""
    with store._engine.begin() as connection:
        for table in metadata.sorted_tables:
            connection.execute(delete(table))


def name(table: str) -> TableName:
    return TableName(("spark_catalog", "sales", table))


def numbers(jobs: Iterable[Job]) -> list[int]:
    return [job.task_id for job in jobs]


def wave_of(store: Store, name: str) -> Wave:
    (found,) = (wave for wave in store.waves() if wave.name == name)
    return found


def started(store: Store, name: str, **limits: Any) -> Wave:
    """Add a running wave."""
    return store.save_wave(Wave(name, WaveStatus.RUNNING, started_at=NOW - HOUR, **limits))


# Adding.


def test_new_job_has_published_defaults(queue: Queue) -> None:
    assert queue.store.add([NewJob(name("orders"))], NOW) == 1
    [job] = queue.store.jobs(everything())
    assert job == Job(job.task_id, "spark_catalog", "sales", "orders", created_at=NOW, last_updated_time=NOW)


def test_new_job_keeps_its_settings(queue: Queue) -> None:
    wished = NewJob(name("orders"), TargetFormat.DELTA, 3, 30, ("a@x.org", "ü@x.org"), ("b@x.org",))
    queue.store.add([wished], NOW)
    [job] = queue.store.jobs(everything())
    assert (job.target_format, job.initial_gap_days, job.probation_gap_days) == (TargetFormat.DELTA, 3, 30)
    assert (job.tbl_owners, job.downstream_users) == (("a@x.org", "ü@x.org"), ("b@x.org",))


def test_table_that_is_added_repeatedly_has_one_job(queue: Queue) -> None:
    first = [
        NewJob(name("orders")),
        NewJob(TableName(("spark_catalog", "Sales", "ORDERS"))),
        NewJob(name("items")),
    ]
    assert queue.store.add(first, NOW) == 2
    assert queue.store.add([NewJob(name("items")), NewJob(name("stock"))], NOW + HOUR) == 1
    assert sorted(job.tbl_name for job in queue.store.jobs(everything())) == ["items", "orders", "stock"]
    assert queue.store.add([], NOW) == 0


def test_names_with_special_characters_are_stored_unchanged(queue: Queue) -> None:
    odd = [
        "it's",
        'a "b"',
        "x.y",
        "größe",
        "grösse",
        "cafe",
        "café",
        "表",
        "back`tick",
        "a\\b",
        "100%s",
        ":now",
        "a_b",
        "a%b",
    ]
    assert queue.store.add([NewJob(name(table)) for table in odd], NOW) == len(odd)
    assert queue.store.add([NewJob(name(table)) for table in odd], NOW) == 0
    assert sorted(job.tbl_name for job in queue.store.jobs(everything())) == sorted(odd)
    for table in soak.amount(odd[:4], odd):
        assert [job.tbl_name for job in queue.store.jobs(named([name(table)]))] == [table]


def test_name_without_catalog_or_too_long_is_refused(queue: Queue) -> None:
    with conditions.raises("JOB_NAME_INCOMPLETE", table="sales.orders"):
        queue.store.add([NewJob(TableName(("sales", "orders")))], NOW)
    with conditions.raises("TABLE_NAME_PART_TOO_LONG", longest=255):
        queue.store.add([NewJob(name("x" * 256))], NOW)
    assert queue.store.add([NewJob(name("x" * 255))], NOW) == 1


# Reading.


def test_jobs_are_ordered_by_number_and_limited(queue: Queue) -> None:
    all_of_them = numbers(queue.add("c", "a", "b"))
    assert all_of_them == sorted(set(all_of_them))
    assert numbers(queue.store.jobs(everything(), limit=2)) == all_of_them[:2]
    assert numbers(queue.store.jobs(numbered(all_of_them[1:]))) == all_of_them[1:]
    assert queue.store.jobs(numbered([])) == [] == list(queue.store.jobs(named([])))


def test_jobs_of_thousands_of_names_are_found(queue: Queue) -> None:
    queue.add("a", "b")
    asked = [*(name(f"t{number}") for number in range(3000)), name("b")]
    assert [job.tbl_name for job in queue.store.jobs(named(asked))] == ["b"]


def test_jobs_are_counted_by_columns(queue: Queue) -> None:
    first, second, third = queue.add("a", "b", "c")
    queue.store.edit(first.paused(PauseReason.NAME_TAKEN, "sales.a: taken"), NOW + HOUR)
    queue.store.edit(second.paused(PauseReason.NAME_TAKEN), NOW + 2 * HOUR)
    queue.store.edit(replace(third, tbl_owners=("x", "y"), target_format=TargetFormat.DELTA), NOW)
    assert queue.store.counts(everything(), ["migration_paused", "pause_reason"]) == [
        {"migration_paused": False, "pause_reason": "None", "jobs": 1, "oldest": NOW, "newest": NOW},
        {
            "migration_paused": True,
            "pause_reason": "NAME_TAKEN",
            "jobs": 2,
            "oldest": NOW + HOUR,
            "newest": NOW + 2 * HOUR,
        },
    ]
    by_owner = queue.store.counts(everything(), ["tbl_owners", "target_format", "state"])
    assert sorted(
        (count["tbl_owners"], count["target_format"], count["state"], count["jobs"]) for count in by_owner
    ) == [
        ((), "iceberg", "Undefined", 2),
        (("x", "y"), "delta", "Undefined", 1),
    ]
    assert [count["jobs"] for count in queue.store.counts(named([name("a")]), ["state"])] == [1]
    assert queue.store.counts(named([name("z")]), ["state"]) == []


def test_least_recently_changed_jobs_are_found(queue: Queue) -> None:
    first, second, third, _ = queue.add("a", "b", "c", "d")
    for job, hours in ((first, 2), (second, 1), (third, 2)):
        queue.store.edit(replace(job, data_category="changed"), NOW + hours * HOUR)
    found = [
        [job.tbl_name for job in queue.store.jobs(least_recent(queue.store, everything(), count))]
        for count in (1, 2, 3, 9)
    ]
    assert found == [["d"], ["b", "d"], ["a", "b", "d"], ["a", "b", "c", "d"]]
    nothing = numbered([])
    assert list(queue.store.jobs(nothing & least_recent(queue.store, nothing, 1))) == []


# Claiming and saving.


def test_claimed_job_is_claimed_by_no_other_worker(queue: Queue) -> None:
    added = queue.add("a", "b", "c", "d")
    first = queue.claim("w1", limit=2)
    assert numbers(first) == numbers(added)[:2]
    assert {(job.claimed_by, job.lease_until, job.revision) for job in first} == {("w1", NOW + HOUR, 1)}
    assert list(first) == list(queue.store.jobs(numbered(numbers(first))))
    other = queue.reopen()
    rest = other.claim(everything(), "w2", now=NOW, lease=HOUR, limit=10)
    assert numbers(rest) == numbers(added)[2:]
    assert list(queue.claim("w3")) == []
    assert list(queue.claim("w3", limit=0)) == []


def test_lapsed_claim_is_taken_over_and_its_worker_cannot_save(queue: Queue) -> None:
    queue.add("a")
    [mine] = queue.claim("w1")
    assert list(queue.claim("w2", NOW + HOUR - TICK)) == []
    [theirs] = queue.claim("w2", NOW + HOUR)
    with conditions.raises("JOB_CHANGED", table="spark_catalog.sales.a"):
        queue.store.save(replace(mine, state=State.READY), NOW + HOUR)
    assert list(queue.store.jobs(everything())) == [theirs]
    assert queue.store.events() == []


def test_lapsed_claim_without_another_worker_still_saves(queue: Queue) -> None:
    queue.add("a")
    [mine] = queue.claim("w1")
    saved = queue.store.save(replace(mine, state=State.READY), NOW + 2 * HOUR, lease=HOUR)
    assert (saved.lease_until, saved.claimed_by) == (NOW + 3 * HOUR, "w1")
    assert list(queue.store.jobs(everything())) == [saved]


def test_saved_job_is_read_with_all_fields(queue: Queue) -> None:
    queue.add("a")
    [job] = queue.claim()
    full = replace(
        job,
        stg_format="parquet",
        data_category="PII ✓",
        tbl_owners=("a@x.org", 'o"brien'),
        downstream_users=("ö",),
        to_be_processed=True,
        in_process=True,
        state=State.ICEBERG_READY,
        desired_state=State.ICEBERG_PRIMARY,
        initial_gap_days=1,
        probation_gap_days=2,
        comm_level1_date=NOW - TICK,
        comm_level2_date=datetime(2026, 3, 29, 2, 30, tzinfo=UTC),
        comm_level3_date=datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        shadow_watermark="8" * 70_000,
        migration_paused=True,
        pause_reason="STEP_REFUSED: 'x' \\ \"y\" :z",
        shadow_status="Shadowing",
        target_format=TargetFormat.DELTA,
        close_at=NOW + TICK,
        record=JobRecord(
            rights=({"who": "ä", "what": ["MODIFY"]},),
            others={"n": 2**60, "none": None, "deep": {"a": {"b": [1.5, True]}}},
        ),
    )
    saved = queue.store.save(full, NOW + TICK, release=True)
    expected = replace(full, revision=2, last_updated_time=NOW + TICK, claimed_by=None, lease_until=None)
    assert saved == expected
    [read] = queue.store.jobs(everything())
    assert (read, read.record) == (expected, full.record)
    [lapsed] = queue.claim(now=NOW + HOUR)
    cleared = replace(
        lapsed,
        record=JobRecord(),
        tbl_owners=(),
        comm_level1_date=None,
        shadow_watermark=None,
        stg_format=None,
    )
    kept = queue.store.save(cleared, NOW + HOUR)
    assert list(queue.store.jobs(everything())) == [kept]


def test_unclaimed_job_cannot_be_saved(queue: Queue) -> None:
    [job] = queue.add("a")
    with pytest.raises(ClaimLost):
        queue.store.save(job, NOW)


def test_claim_holds_until_it_lapses_or_the_job_changes(queue: Queue) -> None:
    queue.add("a", "b")
    mine, other = queue.claim("w1", limit=2)
    assert queue.store.holds(mine, NOW + HOUR - TICK)
    assert not queue.store.holds(mine, NOW + HOUR)
    assert not queue.store.holds(replace(mine, claimed_by=None), NOW)
    queue.store.renew(numbers([mine, other]), "w2", NOW + HOUR, HOUR)
    assert not queue.store.holds(mine, NOW + HOUR)
    queue.store.renew(numbers([mine]), "w1", NOW + HOUR / 2, HOUR)
    assert queue.store.holds(mine, NOW + HOUR)
    assert numbers(queue.claim("w2", NOW + HOUR)) == numbers([other])
    assert not queue.store.holds(other, NOW + HOUR)
    saved = queue.store.save(mine, NOW + HOUR, lease=HOUR)
    assert not queue.store.holds(mine, NOW + HOUR)
    assert queue.store.holds(saved, NOW + HOUR)
    queue.store.save(saved, NOW + HOUR, release=True)
    queue.store.renew(numbers([mine]), "w1", NOW + HOUR, HOUR)
    assert numbers(queue.claim("w3", NOW + HOUR)) == numbers([mine])


def test_renewal_after_the_read_keeps_a_job_from_being_claimed_and_archived(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.add("a")
    [mine] = queue.claim("w1")
    owner, update, now = queue.reopen(), queue.store.update, NOW + HOUR

    def renew_first(*how: Any) -> int:
        owner.renew([mine.task_id], "w1", now, HOUR)
        return update(*how)

    with monkeypatch.context() as patch:
        patch.setattr(queue.store, "update", renew_first)
        assert queue.store.archive(everything(), now) == 0
        now += HOUR
        # Databases claim in a transaction that locks the jobs.
        patch.setattr(queue.store, "try_claim", partial(Store.try_claim, queue.store))
        assert list(queue.claim("w2", now)) == []
    assert list(queue.store.jobs(everything())) == [replace(mine, lease_until=now + HOUR)]


def test_save_all_writes_jobs_except_lost_ones(queue: Queue) -> None:
    queue.add("a", "b", "c", "d")
    mine = queue.claim("w1")
    [_] = queue.store.claim(numbered([mine[1].task_id]), "w2", now=NOW + HOUR, lease=HOUR, limit=1)
    report = [replace(job, state=State.READY) for job in mine[:3]]
    unclaimed = replace(mine[3], claimed_by=None)
    written = queue.store.save_all([*report, unclaimed], NOW + 2 * HOUR, release=True)
    assert numbers(written) == [mine[0].task_id, mine[2].task_id]
    assert {(job.state, job.claimed_by, job.revision) for job in written} == {(State.READY, None, 2)}
    assert list(queue.store.jobs(numbered(numbers(written)))) == list(written)
    assert list(queue.store.events()) == [
        Event(job.task_id, NOW + 2 * HOUR, State.UNDEFINED, *job.pair, False, "None", "w1") for job in written
    ]
    assert list(queue.store.save_all([], NOW)) == []
    lapsed = queue.store.claim(numbered(numbers(written)), "w1", now=NOW + 3 * HOUR, lease=HOUR, limit=2)
    assert numbers(queue.store.save_all(lapsed, NOW + 3 * HOUR)) == numbers(written)


def test_worker_claims_its_share_before_other_jobs(queue: Queue) -> None:
    added = numbers(queue.add(*(f"t{number}" for number in range(9))))
    own = [number for number in added if number % 3 == 2]
    first = queue.claim("w2", limit=len(own), share=(2, 3))
    assert numbers(first) == own
    rest = queue.claim("w2", limit=100, share=(2, 3))
    assert numbers(rest) == [number for number in added if number not in own]


def test_run_continues_after_thousands_of_jobs(queue: Queue) -> None:
    [job] = queue.add("a")
    for done in (range(1, 70_001), [job.task_id]):
        which = selections.numbered_after(done)
        assert list(queue.store.claim(which, "w1", now=NOW, lease=HOUR, limit=1)) == []
    assert numbers(queue.claim("w1")) == [job.task_id]


def test_store_returns_its_own_time(queue: Queue) -> None:
    now = queue.store.now()
    assert now.utcoffset() == timedelta(0)
    assert abs(now - datetime.now(UTC)) < HOUR / 2


def test_edit_writes_a_job_without_a_claim(queue: Queue) -> None:
    [job] = queue.add("a")
    paused = queue.store.edit(job.paused(PauseReason.PAUSED_BY_USER, "wait"), NOW + TICK, by="ann")
    assert (paused.revision, paused.claimed_by) == (1, None)
    assert list(queue.store.jobs(everything())) == [paused]
    [event] = queue.store.events()
    expected = Event(
        job.task_id,
        NOW + TICK,
        State.UNDEFINED,
        State.UNDEFINED,
        State.UNDEFINED,
        True,
        "PAUSED_BY_USER: wait",
        "ann",
    )
    assert event == expected
    with pytest.raises(ClaimLost):
        queue.store.edit(job, NOW)
    [claimed] = queue.claim()
    with pytest.raises(ClaimLost):
        queue.store.edit(claimed, NOW + HOUR - TICK)
    freed = queue.store.edit(claimed, NOW + HOUR)
    assert (freed.claimed_by, freed.lease_until) == (None, None)


# Archive, notifications, events.


def test_archived_jobs_return_to_the_queue(queue: Queue) -> None:
    first, second, third = queue.add("a", "b", "c")
    [busy] = queue.store.claim(numbered([third.task_id]), "w", now=NOW, lease=HOUR, limit=1)
    assert queue.store.archive(numbered(numbers([first, second, third])), NOW) == 2
    assert list(queue.store.jobs(everything())) == [busy]
    first, second = (replace(job, revision=1, archived_at=NOW) for job in (first, second))
    assert list(queue.store.archived(everything())) == [first, second]
    assert list(queue.store.archived(named([name("b"), name("c")]))) == [second]
    assert [count["jobs"] for count in queue.store.counts(everything(), ["state"])] == [1]
    # An archived table keeps its job.
    assert queue.store.add([NewJob(name("a")), NewJob(name("d"))], NOW) == 1
    [back] = queue.store.unarchive([first.task_id, 4711], NOW + HOUR)
    assert back == replace(first, revision=2, last_updated_time=NOW + HOUR, archived_at=None)
    assert [job.tbl_name for job in queue.store.jobs(everything())] == ["a", "c", "d"]
    assert list(queue.store.archived(everything())) == [second]
    assert list(queue.store.unarchive([first.task_id], NOW)) == []
    assert queue.store.archive(numbered([first.task_id]), NOW) == 1
    archived = replace(back, revision=3, archived_at=NOW)
    assert list(queue.store.archived(numbered([first.task_id]))) == [archived]


def test_archived_job_keeps_its_fields_and_is_neither_claimed_nor_changed(queue: Queue) -> None:
    queue.add("a")
    [claimed] = queue.claim("w1")
    noted = JobRecord(others={"a": [1]})
    done = replace(claimed, state=State.HIVE_DROPPED, desired_state=State.HIVE_DROPPED, record=noted)
    held = queue.store.save(done, NOW, lease=HOUR)
    lapsed = NOW + HOUR
    assert queue.store.archive(everything(), lapsed) == 1
    [archived] = queue.store.archived(everything())
    assert archived == replace(held, revision=held.revision + 1, archived_at=lapsed)
    assert archived.record == noted
    assert list(queue.claim("w2", lapsed)) == []
    assert queue.store.assign([held.task_id], "wave", lapsed) == 0
    assert queue.store.archive(everything(), lapsed) == 0
    queue.store.renew([held.task_id], "w1", lapsed, HOUR)
    for stale in (held, archived):
        assert not queue.store.holds(stale, NOW)
        assert list(queue.store.save_all([stale], lapsed)) == []
        with pytest.raises(ClaimLost):
            queue.store.save(stale, lapsed)
        with pytest.raises(ClaimLost):
            queue.store.edit(stale, lapsed)
    assert list(queue.store.archived(everything())) == [archived]


def test_number_of_an_archived_job_is_not_reused(queue: Queue) -> None:
    *_, last = queue.add("a", "b")
    assert queue.store.archive(numbered([last.task_id]), NOW) == 1
    assert all(job.task_id > last.task_id for job in queue.add("c") if job.tbl_name == "c")


def test_notifications_are_recorded_once_and_marked_sent(queue: Queue) -> None:
    record = NotificationRecord("<1.ä'\"@x>", 1, (1, 2), ("a@x", "b@x"), NOW)
    other = NotificationRecord("<2@x>", 3, (), (), NOW + TICK, NOW + HOUR)
    queue.store.record_notifications([record, other])
    queue.store.record_notifications([replace(record, level=2, recorded_at=NOW + HOUR)])
    queue.store.record_notifications([])
    ids = [record.message_id, other.message_id, "<3@x>"]
    assert queue.store.notifications(ids) == {record.message_id: record, other.message_id: other}
    queue.store.notifications_sent([record.message_id, other.message_id], NOW + 2 * HOUR)
    queue.store.notifications_sent([record.message_id], NOW + 3 * HOUR)
    sent = replace(record, sent_at=NOW + 2 * HOUR)
    assert queue.store.notifications(ids) == {record.message_id: sent, other.message_id: other}
    assert queue.store.notifications([]) == {}
    about = Job(2, "spark_catalog", "sales", "b", created_at=NOW, last_updated_time=NOW)
    assert notifications_of(queue.store, about) == [sent]


def test_change_of_state_or_pause_makes_an_event(queue: Queue) -> None:
    queue.add("a")
    [job] = queue.claim("w1")
    job = queue.store.save(replace(job, state=State.READY, desired_state=State.WRITES_BLOCKED), NOW + TICK)
    job = queue.store.save(replace(job, tbl_owners=("x",)), NOW + 2 * TICK)
    job = queue.store.save(job.paused(PauseReason.EMPTY_TABLE), NOW + 3 * TICK, release=True)
    states = (State.READY, State.WRITES_BLOCKED)
    expected = [
        Event(job.task_id, NOW + TICK, State.UNDEFINED, *states, False, "None", "w1"),
        Event(job.task_id, NOW + 3 * TICK, State.READY, *states, True, "EMPTY_TABLE", "w1"),
    ]
    assert list(queue.store.events()) == expected
    assert list(queue.store.events(NOW + 3 * TICK)) == expected[1:]
    assert events_of(queue.store, job) == expected
    assert queue.store.archive(everything(), NOW) == 1
    assert list(queue.store.events()) == expected


def test_query_counts_events_by_day(queue: Queue) -> None:
    queue.add("a", "b")
    late = datetime(2026, 3, 1, 23, 59, 59, 999999, tzinfo=UTC)
    for number, job in enumerate(queue.claim()):
        queue.store.save(replace(job, state=State.READY), late + number * TICK, release=True)
    day = day_of(events.c.at).label("day")
    query = select(day, events.c.was, events.c.state, func.count()).group_by(
        day, events.c.was, events.c.state
    )
    assert [tuple(row) for row in queue.store.rows(query.order_by(day))] == [
        (date(2026, 3, 1), "Undefined", "Ready", 1),
        (date(2026, 3, 2), "Undefined", "Ready", 1),
    ]


def test_create_keeps_existing_tables(queue: Queue) -> None:
    queue.add("a")
    other = queue.reopen()
    other.create()
    assert len(other.jobs(everything())) == 1


# Selections: the same conditions in Python.


def is_at(job: Job, state: State) -> bool:
    return job.pair == (state, state)


WAVES = (None, "running", "paused", "planned", "gone")


def in_turn(job: Job) -> bool:
    return job.wave in (None, "running")


def wants_preprocessing(job: Job, now: datetime) -> bool:
    ends = job.probation_ends
    return not job.migration_paused and (
        (not job.to_be_processed and not job.in_process and is_at(job, State.UNDEFINED))
        or (
            job.in_process
            and is_at(job, State.WRITES_UNBLOCKED)
            and ends is not None
            and ends <= now
            and in_turn(job)
        )
        or (job.in_process and is_at(job, State.HIVE_DROPPED))
    )


def wants_a_notification(job: Job, now: datetime) -> bool:
    announced = job.to_be_processed and job.pair == (State.READY, State.WRITES_BLOCKED)
    return not job.migration_paused and (
        (announced and job.comm_level1_date is None and in_turn(job))
        or (job.in_process and is_at(job, State.WRITES_UNBLOCKED) and job.comm_level2_date is None)
        or (not job.in_process and is_at(job, State.HIVE_DROPPED) and job.comm_level3_date is None)
    )


def continues(job: Job) -> bool:
    """Return whether the job continues in a paused wave; only an archive waits, without blocked writers."""
    return in_turn(job) or job.desired_state is not State.HIVE_DROPPED


def wants_migrating(job: Job, now: datetime) -> bool:
    announced = job.to_be_processed and job.pair == (State.READY, State.WRITES_BLOCKED)
    begins = job.migration_begins
    return not job.migration_paused and (
        (announced and begins is not None and begins <= now and in_turn(job))
        or (job.in_process and job.pair in FORWARD and continues(job))
    )


def wants_shadowing(job: Job, now: datetime) -> bool:
    probation = job.in_process and is_at(job, State.WRITES_UNBLOCKED) and job.probation_gap_days > 0
    return probation and not job.migration_paused


def wants_a_last_look(job: Job, now: datetime) -> bool:
    sent = job.comm_level3_date
    lately = sent is None or sent > now - timedelta(days=7)
    return is_at(job, State.HIVE_DROPPED) and lately and not job.migration_paused


def wants_reverting(job: Job, now: datetime) -> bool:
    return not job.migration_paused and job.pair in BACK


def is_finished(job: Job, now: datetime) -> bool:
    completed = not job.in_process and is_at(job, State.HIVE_DROPPED) and not job.migration_paused
    return completed and job.comm_level3_date is not None and job.close_at is None


def wants_closing(job: Job, now: datetime) -> bool:
    due = job.close_at is not None and job.close_at <= now
    return due and is_finished(replace(job, close_at=None), now)


def is_elsewhere(job: Job, now: datetime) -> bool:
    live = job.state in (State.WRITES_UNBLOCKED, State.HIVE_DROPPED)
    return live and bool(job.target_catalog or job.target_schema)


SELECTIONS: Mapping[str, tuple[Callable[[datetime], Selection], Callable[[Job, datetime], bool]]] = {
    "to_preprocess": (selections.to_preprocess, wants_preprocessing),
    "to_notify": (lambda now: selections.to_notify(), wants_a_notification),
    "to_migrate": (selections.to_migrate, wants_migrating),
    "to_shadow": (lambda now: selections.to_shadow(), wants_shadowing),
    "archived_lately": (selections.archived_lately, wants_a_last_look),
    "to_revert": (lambda now: selections.to_revert(), wants_reverting),
    "finished": (lambda now: selections.finished(), is_finished),
    "moved_elsewhere": (lambda now: selections.moved_elsewhere(), is_elsewhere),
    "of_schemas": (
        lambda now: selections.of_schemas([TableName(("spark_catalog", "crm")), TableName(("c", "sales"))]),
        lambda job, now: job.db_name == "crm",
    ),
    "to_close": (selections.to_close, wants_closing),
    "everything": (lambda now: everything(), lambda job, now: True),
    "numbered": (lambda now: numbered([1, 2, 5]), lambda job, now: job.task_id in (1, 2, 5)),
    "numbered after": (lambda now: selections.numbered_after([2, 5, 1]), lambda job, now: job.task_id > 5),
    "numbered after, of three": (
        lambda now: selections.numbered_after([4, 7, 5], (1, 3)),
        lambda job, now: job.task_id > (7 if job.task_id % 3 == 1 else 5),
    ),
    "named": (lambda now: named([name("t3"), name("t4")]), lambda job, now: job.tbl_name in ("t3", "t4")),
}

# Every valid pair of states, and some invalid ones.
PAIRS = sorted({*FORWARD, *BACK, *((state, state) for state in State), (State.READY, State.HIVE_DROPPED)})
GAPS = (0, 1, 14, 365)


def notification_times(gap: int) -> list[datetime | None]:
    """Return times of a notification around the instant at which its gap is over."""
    due = NOW - timedelta(days=gap)
    return [None, due - TICK, due, due + TICK, due - timedelta(days=1), due + timedelta(days=1)]


def some_job(number: int, chance: random.Random) -> Job:
    # Few completed jobs have times that meet their selections.
    state, desired = chance.choice([*PAIRS, *[(State.HIVE_DROPPED, State.HIVE_DROPPED)] * 5])
    first, second = chance.choice(GAPS), chance.choice(GAPS)
    return Job(
        number,
        "spark_catalog",
        "crm" if number % 5 == 2 else "sales",
        f"t{number}",
        created_at=NOW,
        last_updated_time=NOW,
        to_be_processed=chance.random() < 0.5,
        in_process=chance.random() < 0.5,
        state=state,
        desired_state=desired,
        initial_gap_days=first,
        probation_gap_days=second,
        comm_level1_date=chance.choice(notification_times(first)),
        comm_level2_date=chance.choice(notification_times(second)),
        comm_level3_date=chance.choice(notification_times(0)),
        close_at=chance.choice((None, NOW - TICK, NOW, NOW + TICK)),
        migration_paused=chance.random() < 0.2,
        wave=chance.choice(WAVES),
        target_catalog=None if number % 3 else "lake",
        target_schema=None if number % 4 else "sales_lake",
    )


def check_selections(queue: Queue, jobs: Sequence[Job]) -> None:
    """Compare the jobs of each selection with the condition in Python."""
    if not queue.store.waves():
        for status in WaveStatus:
            queue.store.save_wave(Wave(status.value, status))
    queue.put(jobs)
    for title, (selection, expected) in SELECTIONS.items():
        actual = queue.store.jobs(selection(NOW))
        assert numbers(actual) == sorted(job.task_id for job in jobs if expected(job, NOW)), title


def test_gaps_end_at_the_exact_time(queue: Queue) -> None:
    """Both gaps, one microsecond before their end, at it and after it."""
    waiting = replace(some_job(0, random.Random(1)), migration_paused=False)
    announced = replace(
        waiting,
        to_be_processed=True,
        in_process=False,
        state=State.READY,
        desired_state=State.WRITES_BLOCKED,
    )
    probation = replace(
        waiting,
        to_be_processed=False,
        in_process=True,
        state=State.WRITES_UNBLOCKED,
        desired_state=State.WRITES_UNBLOCKED,
    )
    jobs: list[Job] = []
    for gap, which in product(GAPS, range(6)):
        at = notification_times(gap)[which]
        jobs.append(replace(announced, initial_gap_days=gap, comm_level1_date=at))
        jobs.append(replace(probation, probation_gap_days=gap, comm_level2_date=at))
    jobs = [replace(job, task_id=number, tbl_name=f"t{number}") for number, job in enumerate(jobs, 1)]
    # Four gaps; three of the six times are due.
    assert sum(wants_migrating(job, NOW) for job in jobs) == 12
    assert sum(wants_preprocessing(job, NOW) for job in jobs) == 12
    check_selections(queue, jobs)


def test_selections_match_python(queue: Queue) -> None:
    chance = random.Random(2026)
    jobs = [some_job(number, chance) for number in range(1, 401)]
    for title, (_, expected) in SELECTIONS.items():
        assert any(expected(job, NOW) for job in jobs), title
    check_selections(queue, jobs)


# Waves.


def test_wave_is_stored_and_changed_by_its_reader(queue: Queue) -> None:
    store = queue.store
    assert list(store.waves()) == []
    first = store.save_wave(Wave("w-1"))
    assert first == Wave("w-1", revision=1)
    every = Wave("A.2", WaveStatus.PAUSED, "é: '3'", 4, "22:00-06:00", "Europe/Berlin", 25, NOW, revision=0)
    second = store.save_wave(every)
    assert second == replace(every, revision=1)
    assert list(store.waves()) == [second, first]
    third = store.save_wave(replace(first, status=WaveStatus.RUNNING, started_at=NOW, tables_at_once=2))
    assert wave_of(queue.reopen(), "w-1") == third
    # A write of an older revision is refused, and so is a second wave with the name.
    for other in (replace(first, stop_percent=99), Wave("w-1", stop_percent=99), Wave("w-3", revision=4)):
        with conditions.raises("WAVE_CHANGED", wave=other.name):
            store.save_wave(other)
    assert list(store.waves()) == [second, third]


def test_assign_puts_unstarted_jobs_into_a_wave(queue: Queue) -> None:
    tables = ("new", "ready", "begun", "held", "probation", "lapsed")
    new, ready, begun, held, probation, lapsed = (
        Job(number, "spark_catalog", "sales", table, created_at=NOW, last_updated_time=NOW)
        for number, table in enumerate(tables, 1)
    )
    ready = replace(ready, state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
    begun = replace(begun, state=State.READY, desired_state=State.WRITES_BLOCKED, in_process=True)
    held = replace(held, claimed_by="w", lease_until=NOW + TICK)
    lapsed = replace(lapsed, claimed_by="w", lease_until=NOW)
    probation = replace(probation, state=State.WRITES_UNBLOCKED, desired_state=State.WRITES_UNBLOCKED)
    before = [new, ready, begun, held, probation, lapsed]
    queue.put(before)
    assert queue.store.assign(numbers([*before, *before]), "w1", NOW) == 3
    after = list(queue.store.jobs(everything()))
    assert [job.wave for job in after] == ["w1", "w1", None, None, None, "w1"]
    for old, job in zip(before, after, strict=True):
        changed = {"wave": "w1", "revision": 1, "claimed_by": None, "lease_until": None}
        assert job == (replace(old, **changed, last_updated_time=NOW) if job.wave else old)  # type: ignore[arg-type]
    # Existing jobs stay as they are.
    assert queue.store.assign(numbers(before), "w1", NOW) == 0
    assert queue.store.assign([new.task_id], "w2", NOW) == 1
    assert queue.store.assign(numbers(before), None, NOW) == 3
    assert {job.wave for job in queue.store.jobs(everything())} == {None}
    assert queue.store.assign([], "w1", NOW) == 0


def test_job_keeps_its_wave_in_the_archive(queue: Queue) -> None:
    queue.store.add([NewJob(name("orders"), wave="w1")], NOW)
    [job] = queue.claim()
    assert job.wave == "w1"
    ends: dict[str, Any] = {"state": State.HIVE_DROPPED, "desired_state": State.HIVE_DROPPED}
    sizes: dict[str, Any] = {"table_files": 3, "table_bytes": 3 * 10**12, "begun_at": NOW}
    done = queue.store.save(replace(job, **ends, **sizes), NOW, release=True)
    assert queue.store.archive(everything(), NOW) == 1
    archived = replace(done, revision=done.revision + 1, archived_at=NOW)
    assert list(queue.store.archived(everything())) == [archived]
    back = replace(done, revision=done.revision + 2)
    assert queue.store.unarchive([job.task_id], NOW) == [back]


def test_loads_of_waves_match_python(queue: Queue) -> None:
    chance = random.Random(7)
    jobs = []
    for number in range(1, 101):
        job = some_job(number, chance)
        jobs.append(
            replace(
                job,
                wave=chance.choice([None, "a", "b", "c"]),
                pause_reason=chance.choice(["ROWS_DIFFER: 3", "PAUSED_BY_USER", "REVERTED"])
                if job.migration_paused
                else "None",
                last_updated_time=chance.choice([NOW - HOUR, NOW - HOUR - TICK, NOW]),
                claimed_by=chance.choice([None, "w"]),
                lease_until=chance.choice([NOW, NOW + TICK]),
                begun_at=chance.choice([None, NOW - HOUR, THIS_HOUR - TICK, THIS_HOUR, NOW]),
                table_bytes=chance.choice([None, 1, 10**13]),
            )
        )
    started(queue.store, "a")
    started(queue.store, "b")
    queue.store.save_wave(Wave("c"))
    queue.put(jobs)
    assert queue.store.wave_loads(NOW) == {wave: _load(jobs, wave) for wave in "abc"}
    assert sum(load.failed for load in queue.store.wave_loads(NOW).values()) > 0
    assert sum(load.taken for load in queue.store.wave_loads(NOW).values()) > 0


def _load(jobs: Sequence[Job], wave: str) -> WaveLoad:
    mine = [job for job in jobs if job.wave == wave]

    def failed(job: Job) -> bool:
        code = job.pause_reason.split(":")[0]
        begun = job.in_process or code == "REVERTED"
        since = wave != "c" and job.last_updated_time >= NOW - HOUR
        return job.migration_paused and begun and code != "PAUSED_BY_USER" and since

    def taken(job: Job) -> bool:
        moving = job.pair in FORWARD and job.desired_state is not State.HIVE_DROPPED
        held = job.claimed_by is not None and job.lease_until is not None and job.lease_until > NOW
        announced = job.in_process or job.comm_level1_date is not None
        return moving and held and announced and not job.migration_paused

    return WaveLoad(len(mine), sum(map(failed, mine)), sum(map(taken, mine)))
