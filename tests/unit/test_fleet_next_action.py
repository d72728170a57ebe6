"""The next action of a job, the remedy of a pause, and how a job is resumed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import conditions
from tests.unit.fleet_jobs import NOW, job

from tableferry.fleet.jobs.job import REWRITABLE, Job, PauseReason, State
from tableferry.fleet.jobs.next_action import NextAction, next_action
from tableferry.fleet.jobs.pauses import describe_tables, reason, remedy, remedy_of, resumed
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.jobs.waves import Wave, WaveStatus

S = State
RESTING: dict[str, Any] = {
    "in_process": True,
    "state": S.WRITES_UNBLOCKED,
    "desired_state": S.WRITES_UNBLOCKED,
}
COMPLETED: dict[str, Any] = {"state": S.HIVE_DROPPED, "desired_state": S.HIVE_DROPPED}
READY: dict[str, Any] = {"state": S.READY, "desired_state": S.WRITES_BLOCKED, "to_be_processed": True}


@pytest.mark.parametrize(
    ("columns", "mode", "when"),
    [
        ({}, "preprocess", None),
        (READY, "communicate", None),
        ({**READY, "comm_level1_date": NOW}, "migrate", NOW + timedelta(days=14)),
        ({**READY, "to_be_processed": False, "in_process": True}, "migrate", None),
        ({"in_process": True, "state": S.ICEBERG_READY, "desired_state": S.ICEBERG_PRIMARY}, "migrate", None),
        (RESTING, "communicate", None),
        (
            {**RESTING, "comm_level2_date": NOW, "probation_gap_days": 7},
            "preprocess",
            NOW + timedelta(days=7),
        ),
        ({**RESTING, "desired_state": S.HIVE_DROPPED}, "migrate", None),
        ({**COMPLETED, "in_process": True}, "preprocess", None),
        (COMPLETED, "communicate", None),
        ({**COMPLETED, "comm_level3_date": NOW}, None, None),
        ({**RESTING, "desired_state": S.WRITES_BLOCKED}, "revert", None),
    ],
)
def test_next_mode_is_named_with_its_time(
    columns: dict[str, Any], mode: str | None, when: datetime | None
) -> None:
    action = next_action(job(**columns))
    assert (action.mode, action.when) == (mode, when)
    assert action.what


@pytest.mark.parametrize("status", WaveStatus)
@pytest.mark.parametrize(
    ("columns", "waits"),
    [
        ({}, False),
        (READY, True),
        ({**READY, "comm_level1_date": NOW}, True),
        ({**READY, "to_be_processed": False, "in_process": True}, False),
        ({**RESTING, "comm_level2_date": NOW}, True),
        (RESTING, False),
        ({**RESTING, "desired_state": S.HIVE_DROPPED}, True),
        ({**COMPLETED, "in_process": True}, False),
        ({**RESTING, "desired_state": S.WRITES_BLOCKED}, False),
    ],
)
def test_job_that_waits_for_a_wave_has_the_start_command(
    columns: dict[str, Any], waits: bool, status: WaveStatus
) -> None:
    waiting = job(**columns, wave="w1")
    action = next_action(waiting, {"w1": Wave("w1", status)})
    if waits and status is not WaveStatus.RUNNING:
        what = "waits for the wave w1: tableferry fleet wave start w1"
        assert action == NextAction(None, what, wave="w1")
    else:
        assert action == next_action(waiting)


def test_step_without_days_has_no_notification() -> None:
    without: dict[str, Any] = {"initial_gap_days": 0, "probation_gap_days": 0}
    first, second = (next_action(job(**columns, **without)).what for columns in (READY, RESTING))
    assert first == "record the day; no first notification, because the gap is 0 days"
    assert second == "record the day; no second notification, because the gap is 0 days: probation begins"


def test_every_transition_has_a_mode() -> None:
    for transitions, mode in ((FORWARD, "migrate"), (BACK, "revert")):
        for state, desired in transitions:
            action = next_action(job(state=state, desired_state=desired, in_process=True))
            assert action == NextAction(action.mode, transitions[state, desired].action.value)
            assert action.mode == mode


@pytest.mark.parametrize("state", list(State))
def test_any_pair_of_states_has_a_next_action(state: State) -> None:
    for desired in State:
        for in_process in (False, True):
            for notified in (None, NOW):
                columns: dict[str, Any] = {"in_process": in_process, "comm_level1_date": notified}
                assert next_action(job(state=state, desired_state=desired, **columns)).what
    assert next_action(job(state=S.READY, desired_state=S.READY, comm_level1_date=NOW)).mode is None


def test_paused_job_has_a_remedy_and_a_command() -> None:
    paused = job().paused(PauseReason.IS_CSV_TEXT, "it is text")
    assert reason(paused) is PauseReason.IS_CSV_TEXT
    assert next_action(paused).what == (
        f"{remedy_of('IS_CSV_TEXT')} Then: tableferry fleet resume spark_catalog.sales.orders --rewrite"
    )
    spaced = Job(
        1, "spark_catalog", "sales", "my table", created_at=NOW, last_updated_time=NOW, migration_paused=True
    )
    assert next_action(spaced).what.endswith("tableferry fleet resume 'spark_catalog.sales.`my table`'")
    assert remedy(job(migration_paused=True, pause_reason="on holiday")) == "Follow the reason."
    assert reason(job()) is None


def test_remedy_of_rewritable_reasons_names_the_rewrite() -> None:
    assert {reason for reason in PauseReason if "--rewrite" in remedy_of(reason.value)} == REWRITABLE


def test_reference_lists_every_reason_with_its_remedy() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "reference" / "states.md").read_text(encoding="utf-8")
    remedies = dict(re.findall(r"^\| `([A-Z_]+)` \| .*? \| (.+?) \|$", guide, re.M))
    assert remedies == {
        reason.value: remedy_of(reason.value) for reason in PauseReason if reason is not PauseReason.NONE
    }


def test_resumed_job_keeps_its_state() -> None:
    job_run = job(state=S.ICEBERG_READY, desired_state=S.ICEBERG_PRIMARY, in_process=True, record={"a": 1})
    assert resumed(job_run.paused(PauseReason.ROWS_DIFFER, "2 rows")) == job_run


def test_resume_resets_the_attempts() -> None:
    failing = job(state=S.ICEBERG_READY, record={"failures": 2, "last_error": "x", "a": 1})
    failing = replace(failing, shadow_status="Shadowing")
    assert resumed(failing.paused(PauseReason.STEP_FAILED)) == job(state=S.ICEBERG_READY, record={"a": 1})


def test_resumed_reverted_job_starts_from_the_beginning() -> None:
    back = job(
        state=S.ICEBERG_DROPPED,
        desired_state=S.ICEBERG_DROPPED,
        comm_level1_date=NOW,
        comm_level2_date=NOW,
        begun_at=NOW,
        tbl_owners=("a@tea.example",),
        record={"rights": 1},
    ).paused(PauseReason.REVERTED)
    assert resumed(back) == job(tbl_owners=("a@tea.example",))


def test_condition_of_the_tables_of_a_paused_job_is_reported() -> None:
    assert describe_tables(job(**READY)) == ""
    assert describe_tables(job(state=S.WRITES_BLOCKED)) == "writes to spark_catalog.sales.orders stay blocked"
    assert "orders_hive isn't kept in step" in describe_tables(job(**RESTING))
    # At this time it has its old name again.
    assert describe_tables(job(**{**RESTING, "desired_state": S.ICEBERG_DROPPED})) == ""


@pytest.mark.parametrize(
    ("state", "desired", "where"),
    [
        # A worker died after the block, before the state was saved.
        (S.READY, S.WRITES_BLOCKED, "sales"),
        (S.WRITES_UNBLOCKED, S.WRITES_BLOCKED, "lake"),
        (S.HIVE_DROPPED, S.WRITES_BLOCKED, "lake"),
        (S.WRITES_BLOCKED, S.ICEBERG_READY, "sales"),
        (S.WRITES_BLOCKED, S.SYNC_HIVE, "lake"),
    ],
)
def test_blocked_writes_are_reported_in_every_state(state: State, desired: State, where: str) -> None:
    moving = job(state=state, desired_state=desired, in_process=True, target_schema="lake")
    blocked = f"writes to spark_catalog.{where}.orders stay blocked"
    assert describe_tables(moving.with_record(rights=[{"grants": {}}])) == blocked
    assert ("stay blocked" in describe_tables(moving)) is (state is S.WRITES_BLOCKED)


@pytest.mark.parametrize(
    ("why", "record"),
    [
        # Only a revert unblocks writes, and it refuses a job without a preflight.
        (PauseReason.IS_CSV_TEXT, {"rights": [{"grants": {}}]}),
        # The preflight would find that the name of its copy is taken.
        (PauseReason.ROWS_DIFFER, {}),
    ],
)
def test_started_job_is_not_resumed_with_a_rewrite(why: PauseReason, record: dict[str, Any]) -> None:
    begun: dict[str, Any] = {**READY, "to_be_processed": False, "in_process": True}
    revert = "tableferry fleet revert spark_catalog.sales.orders"
    with conditions.raises("JOB_BEGUN_WITHOUT_REWRITE", command=revert):
        resumed(job(**begun, record=record).paused(why), rewrite=True)
    restarted = resumed(job(**begun, begun_at=NOW).paused(PauseReason.IS_CSV_TEXT), rewrite=True)
    assert (restarted.state, restarted.begun_at) == (S.UNDEFINED, None)


def test_paused_job_reports_blocked_writes() -> None:
    stopped = job(state=S.WRITES_BLOCKED, desired_state=S.SYNC_HIVE).paused(PauseReason.ROWS_DIFFER)
    assert "stay blocked" not in next_action(stopped).what
    assert next_action(stopped.with_record(rights=[{"grants": {}}])).what == (
        "Writes to spark_catalog.sales.orders stay blocked. Compare both tables (tableferry verify) before "
        "you continue. Then: tableferry fleet resume spark_catalog.sales.orders"
    )
