"""The status of a pipeline's flows, from its event log."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from tests.conditions import raises
from tests.workspace import FakeWorkspace

from tableferry.pipelines.engines.databricks.event_log import COMPLETED, FlowEvent, find_newest_events
from tableferry.pipelines.engines.databricks.pipeline import DatabricksPipeline
from tableferry.pipelines.engines.declarative.plan_builder import flow_name
from tableferry.spark.tables import TableName

BOTH = COPY, LIVE = "main.silver.orders_history", "main.silver.f_orders"


def is_completed(event: FlowEvent) -> bool:
    return event.status == COMPLETED


def is_failed(event: FlowEvent) -> bool:
    return event.status == "FAILED"


@pytest.fixture
def ran(logged_in: FakeWorkspace) -> FakeWorkspace:
    """A workspace whose pipeline `p1` ran two updates; the copy completed in the first one."""
    for status in ("QUEUED", "STARTING", "RUNNING"):
        logged_in.flow_progress("p1", COPY, status, update="u1")
    logged_in.flow_progress("p1", COPY, COMPLETED, update="u1", num_output_rows=2**40)
    logged_in.flow_progress("p1", LIVE, "FAILED", update="u1")
    logged_in.events["p1"].append(
        {
            "event_type": "update_progress",
            "timestamp": "2026-01-01T00:00:59.000Z",
            "origin": {"pipeline_id": "p1", "update_id": "u1"},
            "details": {"update_progress": {"state": "COMPLETED"}},
        }
    )
    logged_in.flow_progress("p1", COPY, "EXCLUDED", update="u2")
    logged_in.flow_progress("p1", LIVE, "RUNNING", update="u2")
    return logged_in


def test_find_newest_events_returns_newest_status_of_each_flow(ran: FakeWorkspace) -> None:
    assert find_newest_events("p1", BOTH) == {
        COPY: FlowEvent(COPY, "EXCLUDED", datetime(2026, 1, 1, 0, 0, 6, tzinfo=UTC)),
        LIVE: FlowEvent(LIVE, "RUNNING", datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)),
    }


def test_completed_event_is_found_before_later_updates(ran: FakeWorkspace) -> None:
    events = find_newest_events("p1", BOTH, is_relevant=is_completed)
    assert {name: (event.status, event.rows) for name, event in events.items()} == {COPY: (COMPLETED, 2**40)}


@pytest.mark.parametrize(
    ("name", "flows"), [("orders_history", [COPY]), (COPY, [COPY]), ("history", []), ("f_orders", [LIVE])]
)
def test_flow_is_found_with_and_without_catalog_and_schema(
    ran: FakeWorkspace, name: str, flows: list[str]
) -> None:
    events = find_newest_events("p1", [name])
    assert events.keys() <= {name}
    assert [event.flow for event in events.values()] == flows


def test_paging_stops_when_each_flow_has_an_event(ran: FakeWorkspace) -> None:
    ran.page = 2
    asked = "GET /api/2.0/pipelines/p1/events"
    find_newest_events("p1", ["orders_history", "f_orders"])
    assert ran.asked.count(asked) == 1
    ran.asked.clear()
    find_newest_events("p1", ["f_orders"], is_relevant=is_failed)
    assert ran.asked.count(asked) == 2
    ran.asked.clear()
    assert find_newest_events("p1", [*BOTH, "f_new"]).keys() == {*BOTH}
    assert ran.asked.count(asked) == 4


@pytest.mark.parametrize(("second", "pages"), [(8, 1), (7, 1), (5, 2), (0, 4)])
def test_paging_stops_at_earliest_time(ran: FakeWorkspace, second: int, pages: int) -> None:
    ran.page = 2
    asked = "GET /api/2.0/pipelines/p1/events"
    since = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    assert find_newest_events("p1", ["f_new"], since={"f_new": since}) == {}
    assert ran.asked.count(asked) == pages


def test_events_before_earliest_time_are_ignored(ran: FakeWorkspace) -> None:
    copied, later = (datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (3, 4))
    name = "orders_history"
    assert list(find_newest_events("p1", [name], is_relevant=is_completed, since={name: copied})) == [name]
    assert find_newest_events("p1", [name], is_relevant=is_completed, since={name: later}) == {}
    # The limit applies only to the flow that it names.
    both = find_newest_events("p1", [name, "f_orders"], is_relevant=is_failed, since={name: later})
    assert list(both) == ["f_orders"]


def test_progress_ignores_events_before_migration_start(logged_in: FakeWorkspace) -> None:
    target, other = TableName.parse("silver.orders"), TableName.parse("silver.lines")
    for table in (target, other):
        logged_in.flow_progress("p1", flow_name("f_live", table), COMPLETED)
    flows, pipeline = [(target, "f_live"), (other, "f_live")], DatabricksPipeline("p1")
    started = datetime(2026, 1, 1, 1, tzinfo=UTC)
    progress = pipeline.read_progress(flows, {target.key: started})
    assert [progress[owner.key, flow].done for owner, flow in flows] == [False, True]
    # Events up to five minutes before the start count, because clocks differ.
    progress = pipeline.read_progress(flows, {target.key: datetime(2026, 1, 1, 0, 4, tzinfo=UTC)})
    assert [progress[owner.key, flow].done for owner, flow in flows] == [True, True]


@pytest.mark.parametrize(
    ("events", "started", "done"),
    [
        ([("QUEUED", {}), ("STARTING", {}), ("RUNNING", {})], False, False),
        ([("RUNNING", {}), ("FAILED", {})], False, False),
        ([("RUNNING", {"num_output_rows": 0}), ("IDLE", {}), ("STOPPED", {})], False, False),
        ([("RUNNING", {"num_output_rows": 3}), ("IDLE", {}), ("RUNNING", {})], True, False),
        ([("RUNNING", {"num_output_rows": 3}), ("FAILED", {})], True, False),
        # Metrics of AUTO CDC.
        ([("RUNNING", {"num_upserted_rows": 0, "num_deleted_rows": 1})], True, False),
        ([("COMPLETED", {}), ("FAILED", {})], True, True),
    ],
)
def test_flow_is_started_after_first_committed_batch(
    logged_in: FakeWorkspace, events: list[tuple[str, dict[str, int]]], started: bool, done: bool
) -> None:
    target = TableName.parse("silver.orders")
    for status, metrics in events:
        logged_in.flow_progress("p1", flow_name("f_live", target), status, update="u1", **metrics)
    checkpoint = DatabricksPipeline("p1").read_progress([(target, "f_live")], {})[target.key, "f_live"]
    assert (checkpoint.has_started, checkpoint.done) == (started, done)


def test_pipeline_without_updates_has_no_events(logged_in: FakeWorkspace) -> None:
    logged_in.events["p1"] = []
    assert find_newest_events("p1", BOTH) == {}


def test_missing_pipeline_is_reported(logged_in: FakeWorkspace) -> None:
    with raises(
        "WORKSPACE_REQUEST_FAILED",
        problem="the events of pipeline no/such can't be read",
        reason=re.compile("not found$"),
        advice=re.compile("^Search for it in http://127"),
    ):
        find_newest_events("no/such", BOTH)


def test_invalid_login_is_reported(logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "another")
    advice = re.compile("^Log in with `databricks auth login")
    problem = "the events of pipeline p1 can't be read"
    with raises("WORKSPACE_UNREACHABLE", problem=problem, advice=advice):
        find_newest_events("p1", BOTH)


def test_events_without_documented_fields_are_ignored(logged_in: FakeWorkspace) -> None:
    logged_in.events["p1"] = [
        {"event_type": "flow_progress", "timestamp": "2026-01-01T00:00:00Z", "origin": {"flow_name": "f"}},
        {"event_type": "flow_progress", "timestamp": "2026-01-01T00:00:00Z", "details": None},
    ]
    assert find_newest_events("p1", ["f"]) == {}
