from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from tests.unit.fleets import LEASE, NOW, Fleet, days_ago, opened, small, small_figures
from typer.testing import CliRunner

from tableferry.cli import app
from tableferry.cli.command import as_json
from tableferry.fleet.jobs.job import PauseReason, State, TargetFormat, Trouble
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.fleet.queue.selections import everything, finished, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports.figure_types import Figures, Phase
from tableferry.fleet.reports.status import read_status, read_waves
from tableferry.fleet.reports.terminal import as_text, watch
from tableferry.spark.tables import TableName


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    queue_store = opened(tmp_path)
    yield queue_store
    queue_store.close()


@pytest.fixture
def figures() -> Figures:
    return small_figures()


def test_status_counts_each_job_in_one_state(figures: Figures) -> None:
    counts = {count.state: count.jobs for count in figures.states}
    assert {state: jobs for state, jobs in counts.items() if jobs} == {
        State.UNDEFINED: 1,
        State.READY: 2,
        State.ICEBERG_READY: 1,
        State.WRITES_UNBLOCKED: 1,
        State.HIVE_DROPPED: 1,
        State.ICEBERG_DROPPED: 1,
    }
    assert [count.state for count in figures.states][:2] == [State.UNDEFINED, State.READY]
    assert figures.total == sum(counts.values()) == 7


def test_age_counts_from_last_change_of_state(figures: Figures) -> None:
    ages = {age.phase: age for age in figures.ages}
    assert ages[Phase.NEW].under_week == 1
    assert ages[Phase.MIGRATING].under_week == 1
    assert ages[Phase.PROBATION].under_week == 1
    assert ages[Phase.COMPLETED].under_month == 1
    assert (
        sum(
            age.today + age.under_week + age.under_month + age.under_quarter + age.older
            for age in figures.ages
        )
        == figures.total
    )


def test_claim_keeps_age_of_job(store: Store) -> None:
    fleet = small(store)
    fleet.change("half", days_ago(0.1), shadow_watermark="2")
    ages = {age.phase: age for age in read_status(store, NOW).ages}
    assert ages[Phase.MIGRATING].under_week == 1


def test_job_counts_for_each_owner(figures: Figures) -> None:
    rows = {owner.owner: owner for owner in figures.owners}
    assert figures.owner_count == 2
    assert rows["ann@example.com"].jobs == 7
    assert (rows["bob@example.com"].jobs, rows["bob@example.com"].to_do) == (1, 1)
    assert rows["ann@example.com"].paused == 2


def test_owners_after_the_first_fifteen_are_one_row(store: Store) -> None:
    fleet = Fleet(store)
    for number in range(20):
        fleet.add(f"t{number}", at=NOW, owners=(f"o{number:02}@example.com",))
    fleet.add("nobodys", at=NOW, owners=())
    figures = read_status(store, NOW)
    assert figures.owner_count == 20
    assert figures.owners[-1].owner is None
    assert sum(owner.jobs for owner in figures.owners) == 21
    assert "" in {owner.owner for owner in figures.owners}


def test_schema_counts_archived_jobs(store: Store) -> None:
    fleet = small(store)
    for number in range(16):
        fleet.add(f"t{number}", at=NOW, schema=f"s{number:02}")
    store.archive(finished(), NOW)
    figures = read_status(store, NOW)
    assert figures.schema_count == 17
    assert [row.schema for row in figures.schemas[:2]] == ["spark_catalog.sales", "spark_catalog.s00"]
    sales = figures.schemas[0]
    assert (sales.jobs, sales.to_do, sales.probation, sales.completed, sales.reverted, sales.paused) == (
        7, 4, 1, 1, 1, 2,
    )  # fmt: skip
    assert (figures.schemas[-1].schema, figures.schemas[-1].jobs) == (None, 2)


def test_wave_counts_archived_jobs_and_bytes(store: Store) -> None:
    small(store)
    store.archive(finished(), NOW)
    figures = read_status(store, NOW)
    assert figures.waves == read_waves(store)
    first, later = figures.waves
    assert (first.wave.name, first.jobs, first.to_do, first.completed) == ("first", 2, 1, 1)
    assert (first.bytes, first.bytes_moved) == (3 * 10**9, 3 * 10**9)
    assert (later.wave.status, later.jobs, later.bytes) == (WaveStatus.PLANNED, 0, 0)
    assert figures.schemas[0].bytes == 3 * 10**9
    shown = printed(figures)
    assert re.search(r"first +running +1 +0 +1 +0 +0 +2 +3.0 GB of 3.0 GB", shown)
    assert "first: 2 tables at once, paused when more than 10 % fail" in shown


def test_stuck_jobs_are_grouped_by_trouble(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("a", "b", "c", "d", at=days_ago(30))
    for table in ("a", "b", "c"):
        fleet.ready(table, days_ago(29), notified=days_ago(29))
        fleet.migrated(table, days_ago(2 if table == "a" else 3), steps=2)
    name = TableName(("spark_catalog", "sales", "d"))
    store.claim(named([name]), "w", now=days_ago(1), lease=LEASE, limit=1)
    first, second = read_status(store, NOW).stuck_causes
    assert (first.words, first.jobs, first.since, first.commands) == (
        "writes are blocked, and no run continues it",
        3,
        days_ago(3),
        ("tableferry fleet migrate",),
    )
    assert (second.words, second.jobs, second.commands) == (
        "the claim of worker … has lapsed",
        1,
        ("tableferry fleet preprocess",),
    )


def test_paused_jobs_are_counted_by_reason_code(figures: Figures) -> None:
    assert {pause.reason: pause.remedy for pause in figures.pauses} == {
        "ROWS_DIFFER": "Compare both tables (tableferry verify) before you continue.",
        "REVERTED": "Ask its owners for the reason. A resumed job begins from the start.",
    }
    assert {pause.reason: pause.jobs for pause in figures.pauses} == {"ROWS_DIFFER": 1, "REVERTED": 1}
    (waiting,) = figures.paused_jobs
    assert waiting.reason == "ROWS_DIFFER: 3 of 1,000 rows"
    assert waiting.since == days_ago(30)
    assert waiting.command == "tableferry fleet resume spark_catalog.sales.paused"


def test_format_counts_all_and_completed_jobs(figures: Figures) -> None:
    assert [(counted.target_format, counted.jobs, counted.completed) for counted in figures.formats] == [
        (TargetFormat.ICEBERG, 6, 1),
        (TargetFormat.DELTA, 1, 0),
    ]


def test_job_with_blocked_writes_and_no_change_is_stuck(figures: Figures) -> None:
    (stuck,) = figures.stuck
    assert (str(stuck.table), stuck.trouble, stuck.since) == (
        "spark_catalog.sales.half",
        Trouble.NOT_MOVING,
        days_ago(2),
    )
    assert stuck.command == "tableferry fleet migrate"


def test_job_that_changed_within_rest_is_not_stuck(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("quick", at=days_ago(30))
    fleet.ready("quick", days_ago(29), notified=days_ago(29))
    fleet.migrated("quick", NOW - 2 * LEASE, steps=1)
    assert read_status(store, NOW, rest=3 * LEASE).stuck == ()
    assert len(read_status(store, NOW, rest=1.5 * LEASE).stuck) == 1


def test_job_with_lapsed_claim_is_stuck(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("held", "lost", at=days_ago(1))
    everything_there = store.jobs(finished() | ~finished())
    assert len(everything_there) == 2
    store.claim(finished() | ~finished(), "gone", now=NOW - 3 * LEASE, lease=LEASE, limit=1)
    store.claim(finished() | ~finished(), "here", now=NOW, lease=LEASE, limit=1)
    held = {job.claimed_by for job in store.jobs(finished() | ~finished())}
    stuck = read_status(store, NOW).stuck
    # The first claim had lapsed, so the second is of the same job.
    assert held == {"here", None}
    assert stuck == ()
    later = read_status(store, NOW + 2 * LEASE).stuck
    assert [(stuck_job.trouble, stuck_job.words) for stuck_job in later] == [
        (Trouble.CLAIM_LAPSED, "the claim of worker here has lapsed")
    ]
    assert later[0].command == "tableferry fleet preprocess"


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        (
            {"state": State.READY, "desired_state": State.WRITES_BLOCKED, "to_be_processed": True},
            "communicate",
        ),
        (
            {
                "state": State.READY,
                "desired_state": State.WRITES_BLOCKED,
                "to_be_processed": True,
                "comm_level1_date": days_ago(20),
            },
            "migrate",
        ),
        ({"state": State.WRITES_UNBLOCKED, "desired_state": State.WRITES_UNBLOCKED}, "communicate"),
        (
            {
                "state": State.WRITES_UNBLOCKED,
                "desired_state": State.WRITES_UNBLOCKED,
                "comm_level2_date": days_ago(2),
            },
            "shadow",
        ),
        (
            {"state": State.HIVE_DROPPED, "desired_state": State.HIVE_DROPPED, "in_process": True},
            "preprocess",
        ),
        (
            {
                "state": State.HIVE_DROPPED,
                "desired_state": State.HIVE_DROPPED,
                "in_process": False,
                "comm_level3_date": days_ago(2),
            },
            "shadow",
        ),
        ({"state": State.WRITES_BLOCKED, "desired_state": State.SYNC_HIVE}, "revert"),
    ],
)
def test_lapsed_claim_names_mode_that_claims_job_next(
    store: Store, values: dict[str, object], mode: str
) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(30))
    fleet.change("t", days_ago(1), **values)
    store.claim(finished() | ~finished(), "gone", now=NOW - 3 * LEASE, lease=LEASE, limit=1)
    (stuck,) = read_status(store, NOW).stuck
    assert (stuck.trouble, stuck.command) == (Trouble.CLAIM_LAPSED, f"tableferry fleet {mode}")


def test_job_with_notification_unsent_for_a_day_is_stuck(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("a", "b", "c", at=days_ago(5))
    numbers = tuple(fleet.job(table).task_id for table in ("a", "b", "c"))
    for table, key in (("a", "<1@x>"), ("b", "<1@x>"), ("c", "<2@x>")):
        fleet.ready(table, days_ago(5))
        fleet.change(table, days_ago(2), record={"letters": {"level": 1, "left": {key: None}}})
    store.record_notifications(
        [
            NotificationRecord("<1@x>", 1, numbers[:2], ("ann@example.com",), days_ago(2)),
            NotificationRecord("<2@x>", 1, numbers[2:], ("ann@example.com",), days_ago(0.5)),
        ]
    )
    stuck = read_status(store, NOW).stuck
    assert [(stuck_job.task_id, stuck_job.trouble) for stuck_job in stuck] == [
        (number, Trouble.NOTIFICATION_NOT_SENT) for number in numbers[:2]
    ]
    assert {stuck_job.command for stuck_job in stuck} == {"tableferry fleet communicate"}
    store.notifications_sent(["<1@x>"], NOW)
    assert read_status(store, NOW).stuck == ()


@pytest.mark.parametrize(
    "values",
    [
        {"migration_paused": True, "pause_reason": "PAUSED_BY_USER"},
        {"record": {"letters": {"level": 1, "left": {"<2@x>": None}}}},
        {"record": {}},
        {"comm_level1_date": days_ago(1)},
        {"state": State.HIVE_DROPPED, "desired_state": State.HIVE_DROPPED, "comm_level3_date": days_ago(1)},
        {"wave": "later"},
    ],
    ids=["paused", "recomposed", "reverted and resumed", "notified", "completed", "in a planned wave"],
)
def test_notification_that_no_run_sends_makes_no_job_stuck(store: Store, values: dict[str, object]) -> None:
    fleet = Fleet(store)
    store.save_wave(Wave("later"))
    fleet.add("a", at=days_ago(5))
    fleet.ready("a", days_ago(5))
    noted = {"letters": {"level": 1, "left": {"<1@x>": None}}}
    fleet.change("a", days_ago(3), record=noted)
    number = fleet.job("a").task_id
    notification = NotificationRecord("<1@x>", 1, (number,), ("ann@example.com",), days_ago(2))
    store.record_notifications([notification])
    assert len(read_status(store, NOW).stuck) == 1
    fleet.change("a", days_ago(1), **values)
    assert read_status(store, NOW).stuck == ()


def test_completed_job_with_interrupted_shadow_is_not_stuck(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(40))
    fleet.ready("t", days_ago(39), notified=days_ago(39))
    fleet.migrated("t", days_ago(20))
    fleet.change("t", days_ago(2), shadow_status="Shadowing")
    assert [stuck.trouble for stuck in read_status(store, NOW).stuck] == [Trouble.SHADOW_DELAYED]
    fleet.finished("t", days_ago(2))
    assert read_status(store, NOW).stuck == ()


def test_migration_interrupted_before_its_block_is_stuck(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(30))
    fleet.ready("t", days_ago(29), notified=days_ago(29))
    fleet.change("t", NOW - 2 * LEASE, in_process=True, to_be_processed=False, begun_at=NOW - 2 * LEASE)
    assert read_status(store, NOW, rest=3 * LEASE).stuck == ()
    (stuck,) = read_status(store, NOW, rest=1.5 * LEASE).stuck
    assert (stuck.words, stuck.since, stuck.command) == (
        "its migration has started, and no run continues it",
        NOW - 2 * LEASE,
        "tableferry fleet migrate",
    )


def test_lapsed_claim_in_paused_wave_names_wave_start(store: Store) -> None:
    fleet = Fleet(store)
    store.save_wave(Wave("first one", WaveStatus.PAUSED))
    fleet.add("t", at=days_ago(30))
    fleet.ready("t", days_ago(29), notified=days_ago(29))
    fleet.change("t", days_ago(20), wave="first one")
    store.claim(everything(), "gone", now=NOW - 3 * LEASE, lease=LEASE, limit=1)
    (stuck,) = read_status(store, NOW).stuck
    assert (stuck.trouble, stuck.command) == (
        Trouble.CLAIM_LAPSED,
        "tableferry fleet wave start 'first one'",
    )


def test_claim_keeps_time_of_request(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(40))
    fleet.ready("t", days_ago(39), notified=days_ago(39))
    fleet.migrated("t", days_ago(20))
    fleet.finished("t", days_ago(10))
    fleet.change("t", days_ago(3), desired_state=State.WRITES_BLOCKED)
    fleet.change("t", days_ago(0.1))
    (stuck,) = read_status(store, NOW).stuck
    assert (stuck.words, stuck.since) == (
        "an archive or a revert is requested, and no run performs it",
        days_ago(3),
    )


@pytest.mark.parametrize(
    ("values", "at"),
    [({"shadow_status": "Shadowing"}, days_ago(1.5)), ({"shadow_watermark": None}, days_ago(3))],
    ids=["broken off", "never started"],
)
def test_job_with_outdated_hive_copy_is_stuck(store: Store, values: dict[str, object], at: object) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(30))
    fleet.ready("t", days_ago(29), notified=days_ago(29))
    fleet.migrated("t", days_ago(3))
    assert read_status(store, NOW).stuck == ()
    fleet.change("t", days_ago(1.5), **values)
    (stuck,) = read_status(store, NOW).stuck
    assert (stuck.trouble, stuck.since, stuck.command) == (
        Trouble.SHADOW_DELAYED,
        at,
        "tableferry fleet shadow",
    )


def test_revert_without_run_is_stuck_after_a_day(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(30))
    fleet.ready("t", days_ago(29), notified=days_ago(29))
    fleet.migrated("t", days_ago(10))
    fleet.change("t", days_ago(0.9), desired_state=State.WRITES_BLOCKED)
    assert read_status(store, NOW).stuck == ()
    (stuck,) = read_status(store, NOW + timedelta(days=1)).stuck
    assert (stuck.words, stuck.command) == (
        "an archive or a revert is requested, and no run performs it",
        "tableferry fleet revert",
    )


def test_archive_that_waits_for_wave_is_not_stuck(store: Store) -> None:
    fleet = Fleet(store)
    wave = store.save_wave(Wave("w", WaveStatus.RUNNING))
    fleet.add("t", at=days_ago(30))
    fleet.ready("t", days_ago(29), notified=days_ago(29))
    fleet.migrated("t", days_ago(20))
    fleet.change("t", days_ago(5), desired_state=State.HIVE_DROPPED, wave="w")
    assert [stuck.words for stuck in read_status(store, NOW).stuck] == [
        "an archive or a revert is requested, and no run performs it"
    ]
    store.save_wave(replace(wave, status=WaveStatus.PAUSED))
    assert read_status(store, NOW).stuck == ()


def test_due_counts_overdue_today_and_week(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("yesterday", "today", "tomorrow", "next_week", "unnotified", at=days_ago(40))
    for table, days in (("yesterday", 15), ("today", 14), ("tomorrow", 13), ("next_week", 7)):
        fleet.ready(table, days_ago(30), notified=days_ago(days))
    fleet.ready("unnotified", days_ago(30))
    # No migration claims a table that is being reverted, and no notification is due.
    fleet.add("going_back", "unnotified_back", at=days_ago(40))
    fleet.ready("going_back", days_ago(30), notified=days_ago(15))
    fleet.ready("unnotified_back", days_ago(30))
    for table in ("going_back", "unnotified_back"):
        fleet.change(table, days_ago(2), desired_state=State.ICEBERG_DROPPED)
    fleet.add("over", "ends_today", at=days_ago(40))
    for table, switched in (("over", 20), ("ends_today", 14)):
        fleet.ready(table, days_ago(39), notified=days_ago(38))
        fleet.migrated(table, days_ago(switched))
    due = read_status(store, NOW).due
    assert (due.migrations_overdue, due.migrations_today, due.migrations_week) == (1, 1, 2)
    assert (due.archives_overdue, due.archives_today, due.archives_week) == (1, 1, 1)
    assert due.notifications == 1


def test_due_archive_names_preprocess_and_migrate(store: Store) -> None:
    fleet = Fleet(store)
    fleet.add("t", at=days_ago(40))
    fleet.ready("t", days_ago(39), notified=days_ago(38))
    fleet.migrated("t", days_ago(14))
    fleet.change("t", days_ago(0), desired_state=State.HIVE_DROPPED)
    lines = printed(read_status(store, NOW)).splitlines()
    # The first ends the probation, as it has here, and the second archives.
    assert lines[lines.index("Next:") + 1 :] == [
        "  tableferry fleet preprocess",
        "  tableferry fleet migrate",
    ]


def test_pace_counts_the_last_7_and_28_days(figures: Figures) -> None:
    week, month = figures.pace
    assert (week.days, week.migrated, week.finished) == (7, 1, 0)
    assert (month.days, month.migrated, month.finished, month.reverted) == (28, 1, 1, 0)
    assert month.elapsed == 28.5
    assert month.migrated_per_day == round(1 / 28.5, 2)


def test_pause_on_probation_is_not_counted_as_migration(store: Store) -> None:
    fleet = small(store)
    fleet.paused("probation", days_ago(1), PauseReason.PAUSED_BY_USER)
    fleet.change("probation", days_ago(1), migration_paused=False, pause_reason="None")
    assert read_status(store, NOW).pace[0].migrated == 1


def test_days_add_up_and_end_with_current_counts(figures: Figures) -> None:
    days = {day.day: day for day in figures.days}
    assert figures.days[0].day == days_ago(60).date()
    assert figures.days[-1].day == NOW.date()
    first = days[days_ago(60).date()]
    assert (first.new, first.to_do, first.completed) == (6, 6, 0)
    assert days[days_ago(40).date()].probation == 2
    assert days[days_ago(39).date()].reverted == 1
    last = figures.days[-1]
    assert {phase: getattr(last, phase.value) for phase in Phase} == {
        phase: figures.in_phase(phase) for phase in Phase
    }
    assert {
        day.new + day.ready + day.migrating + day.probation + day.completed + day.reverted
        for day in figures.days
    } == {6, 7}


def test_archived_jobs_stay_in_all_figures(store: Store) -> None:
    small(store)
    before = read_status(store, NOW)
    assert store.archive(finished(), NOW) == 1
    after = read_status(store, NOW)
    assert after.archived == 1
    assert (after.total, after.days, after.formats, after.pace) == (
        before.total,
        before.days,
        before.formats,
        before.pace,
    )
    assert after.in_phase(Phase.COMPLETED) == 1


def test_empty_queue_has_no_days(store: Store) -> None:
    figures = read_status(store, NOW)
    assert (figures.total, figures.days, figures.stuck, figures.owner_count) == (0, (), (), 0)
    assert "no table in the queue" in printed(figures)


def test_json_has_stable_keys(figures: Figures) -> None:
    data = json.loads(as_json(figures))
    assert list(data) == [
        "at", "total", "archived", "paused", "states", "ages", "owners", "owner_count", "schemas",
        "schema_count", "waves", "pauses", "formats", "stuck", "stuck_causes", "stuck_total", "paused_jobs",
        "runs",
        "due", "pace", "forecast", "days",
    ]  # fmt: skip
    assert data["stuck"][0] == {
        "task_id": data["stuck"][0]["task_id"],
        "table": "spark_catalog.sales.half",
        "trouble": "not_moving",
        "words": "writes are blocked, and no run continues it",
        "state": "IcebergReady",
        "since": "2026-11-20T12:00:00+00:00",
        "owners": ["ann@example.com"],
        "command": "tableferry fleet migrate",
    }


def test_text_begins_with_stuck_tables(figures: Figures) -> None:
    lines = printed(figures).splitlines()
    assert lines[0] == "1 of 7 tables are completed (14.3 %)"
    assert "1 table is stuck" in lines[3]
    assert lines[5].split("  ")[0] == "Writes are blocked, and no run continues it"
    assert lines[5].endswith("1  2 days  tableferry fleet migrate")
    assert "spark_catalog.sales.half" in lines[9]
    ends = lines[lines.index("Next:") + 1 :]
    assert "  tableferry fleet migrate" in ends
    assert "  tableferry fleet resume spark_catalog.sales.paused" in ends


def test_next_commands_have_an_effect(store: Store) -> None:
    fleet = Fleet(store)
    store.save_wave(Wave("later"))
    fleet.add("view", "told", "waits", at=days_ago(5))
    fleet.paused("view", days_ago(4), PauseReason.IS_VIEW, "it's a view")
    fleet.ready("told", days_ago(4), notified=days_ago(3))
    fleet.ready("waits", days_ago(4))
    fleet.change("waits", days_ago(4), wave="later")
    assert "Next:" not in printed(read_status(store, NOW))
    fleet.add("text", "new", "unnotified", at=days_ago(5))
    fleet.paused("text", days_ago(3), PauseReason.IS_CSV_TEXT, "it's text")
    fleet.ready("unnotified", days_ago(4))
    figures = read_status(store, NOW)
    assert figures.due.notifications == 1
    lines = printed(figures).splitlines()
    assert lines[lines.index("Next:") + 1 :] == [
        "  tableferry fleet resume spark_catalog.sales.text --rewrite",
        "  tableferry fleet preprocess",
        "  tableferry fleet communicate",
    ]


def test_watch_refreshes_until_ctrl_c(store: Store) -> None:
    fleet = small(store)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            raise KeyboardInterrupt
        fleet.finished("probation", NOW)

    console = Console(force_terminal=True, width=160, height=60, record=True, markup=False)
    with console.capture() as captured:
        watch(lambda: read_status(store, NOW), console, seconds=5, wait=wait)
    assert waited == [5, 5]
    shown = captured.get()
    assert shown.index("1 of 7 tables are completed") < shown.index("2 of 7 tables are completed")


def printed(figures: Figures) -> str:
    console = Console(markup=False, highlight=False, soft_wrap=True, width=200)
    with console.capture() as captured:
        console.print(as_text(figures))
    return captured.get()


def test_fleet_of_one_day_has_one_day_and_no_forecast(store: Store) -> None:
    Fleet(store).add("t", at=NOW - timedelta(hours=1))
    figures = read_status(store, NOW)
    assert [day.day for day in figures.days] == [date(2026, 11, 22)]
    assert figures.pace[0].elapsed == 1
    assert figures.forecast.words.startswith("No forecast")


def test_command_prints_text_json_and_page(store: Store, tmp_path: Path) -> None:
    small(store)
    queue = ["fleet", "status", "--store", f"sqlite:///{tmp_path}/fleet.db"]
    run = CliRunner()
    shown = run.invoke(app, queue)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("1 of 7 tables are completed")
    page = tmp_path / "fleet.html"
    written = run.invoke(app, [*queue, "--html", str(page), "--output", "json"])
    assert json.loads(written.stdout)["total"] == 7
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    missing = run.invoke(app, [*queue, "--html", str(tmp_path / "no" / "fleet.html")])
    assert missing.exit_code == 1
    assert "can't be written" in missing.stderr
    assert run.invoke(app, [*queue, "--watch", "--output", "json"]).exit_code == 2
