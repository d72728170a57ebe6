"""Finish of a migration on Databricks from a laptop without Java and databricks-connect."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.conftest import ProjectFiles
from tests.workspace import FakeWorkspace
from typer.testing import CliRunner, Result

from tableferry import cli, storage
from tableferry.pipelines.engines.declarative.plan_builder import flow_name
from tableferry.pipelines.model.target_state import Baseline, Cutover, MigrationStart, PinnedCopy, Tracking
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.tables import TableName

PIPELINE = "p1"
TARGET, LEGACY = TableName.parse("silver.orders"), TableName.parse("silver.orders_legacy")
SOURCE = TableName.parse("bronze.orders")
EVENTS = f"GET /api/2.0/pipelines/{PIPELINE}/events"
# A time before the first event in the fake's log.
STARTED = datetime(2025, 12, 31, tzinfo=UTC)


@pytest.fixture
def flow(project: ProjectFiles, logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch) -> str:
    """The streaming flow of a pipeline in a workspace; this machine has the specs and a login."""
    volume = logged_in.make_volume("main", "bronze", "state")
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": volume})
    project.write("dataflows/sales/dataflowspec/orders_main.json", project.append())
    logged_in.pipelines[PIPELINE] = {
        "pipeline_id": PIPELINE,
        "name": "migration",
        "spec": {
            "configuration": {
                "tableferry.project": "/Workspace/elsewhere",
                "tableferry.environment": "dev",
                "tableferry.tokens": "pipeline_catalog=main, pipeline_schema=silver",
            }
        },
    }
    logged_in.events[PIPELINE] = []
    monkeypatch.setenv("PATH", "")
    for name in ("JAVA_HOME", "SPARK_REMOTE", "TABLEFERRY_PIPELINE_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tableferry.spark.session.has_databricks_connect", lambda: False)
    (live,) = project.load(environment="dev").dataflows[0].streaming_flows
    return live.name


@pytest.fixture
def store(flow: str) -> StateStore:
    """The state of a migration that has started."""
    store = StateStore(Path("/Volumes/main/bronze/state"), PIPELINE, "databricks")
    assert store.record_start(start())
    return store


def start(pipeline_id: str = PIPELINE) -> MigrationStart:
    baselines = {SOURCE.key: Baseline(SOURCE, "id-1", 4, ("v_orders",))}
    return MigrationStart(pipeline_id, TARGET, PinnedCopy(LEGACY, "id-2", 7), baselines, STARTED)


def call(command: str, project: ProjectFiles, *more: str) -> Result:
    arguments = ["pipelines", command, str(project.root), "--engine", "databricks", "--pipeline-id", PIPELINE]
    return CliRunner().invoke(cli.app, [*arguments, *more])


def finish(project: ProjectFiles, *more: str) -> Result:
    """Finish migrations, whose hand-over these tests assume."""
    return call("finish", project, "--accept-assumed", *more)


def test_finish_refuses_assumed_hand_over(
    project: ProjectFiles, store: StateStore, flow: str, logged_in: FakeWorkspace
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", started=(flow,)))
    refused = call("finish", project)
    assert refused.exit_code == 1
    assert_error_contains(refused, r"ASSUMED_HAND_OVER_NOT_COMPARED.* --accept-assumed")
    assert not store.read(TARGET).finished


@pytest.mark.parametrize("enabled", [False, None])
def test_finish_refuses_assumed_hand_over_without_migration_in_spec(
    project: ProjectFiles, store: StateStore, flow: str, enabled: bool | None
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", started=(flow,)))
    spec = project.append()
    if enabled is None:
        del spec["tableMigrationDetails"]
    else:
        spec["tableMigrationDetails"]["enabled"] = enabled
    project.write("dataflows/sales/dataflowspec/orders_main.json", spec)
    assert_error_contains(call("finish", project), r"The hand-over was assumed.* --accept-assumed")
    assert not store.read(TARGET).finished
    assert finish(project).exit_code == 0
    assert store.read(TARGET).finished


def test_finish_removes_state_of_complete_migration(
    project: ProjectFiles, store: StateStore, flow: str, logged_in: FakeWorkspace
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, copied=0, copied_rows=9, verified="match"))
    logged_in.flow_progress(PIPELINE, f"main.silver.{flow_name(flow, TARGET)}", "COMPLETED")
    done = finish(project)
    assert (done.exit_code, done.stderr) == (0, "")
    assert store.read(TARGET).finished
    assert [path for path in logged_in.files if "initial_versions" in path or "tracking" in path] == []
    second = finish(project, "--target", "silver.orders", "--output", "json")
    assert (second.exit_code, '"already"' in second.stdout) == (0, True)


def test_finish_refuses_flow_whose_first_batch_failed(
    project: ProjectFiles, store: StateStore, flow: str, logged_in: FakeWorkspace
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, copied=0, copied_rows=9, verified="match"))
    for status in ("QUEUED", "STARTING", "RUNNING", "FAILED"):
        logged_in.flow_progress(PIPELINE, f"main.silver.{flow_name(flow, TARGET)}", status)
    refused = finish(project)
    assert refused.exit_code == 1
    assert_error_contains(
        refused, r"The migration isn't complete \(copied, ready to flow; \w+ hasn't run yet\)"
    )
    assert not store.read(TARGET).finished


def test_finish_skips_event_log_for_flows_recorded_as_started(
    project: ProjectFiles, store: StateStore, flow: str, logged_in: FakeWorkspace
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", started=(flow,)))
    assert finish(project).exit_code == 0
    assert store.read(TARGET).finished
    assert EVENTS not in logged_in.asked


def test_finish_refuses_migration_of_other_engine(
    project: ProjectFiles, store: StateStore, flow: str, logged_in: FakeWorkspace
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", engine="streaming"))
    logged_in.flow_progress(PIPELINE, f"main.silver.{flow_name(flow, TARGET)}", "COMPLETED")
    refused = finish(project)
    assert refused.exit_code == 1
    assert_error_contains(
        refused, r"silver\.orders: Its flows are run by the streaming engine\. .* --engine streaming"
    )
    assert not store.read(TARGET).finished


def test_finish_drops_clone_before_state(
    project: ProjectFiles, store: StateStore, flow: str, logged_in: FakeWorkspace
) -> None:
    settings = {"keys": ["id"], "sequence_by": "at", "scd_type": "2"}
    project.write("dataflows/sales/dataflowspec/orders_main.json", project.append(cdcSettings=settings))
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", started=(flow,)))
    logged_in.pipelines[PIPELINE]["spec"]["catalog"] = "main"
    clone = "main.silver.orders__tableferry_pinned"
    logged_in.put_table(clone)
    logged_in.closed.add(clone)
    refused = finish(project)
    assert refused.exit_code == 1
    assert_error_contains(
        refused, r"silver\.orders__tableferry_pinned, which only a copy has read, can't be dropped \("
    )
    assert not store.read(TARGET).finished
    logged_in.closed.clear()
    assert finish(project).exit_code == 0
    assert store.read(TARGET).finished
    assert clone not in logged_in.tables


@pytest.mark.parametrize(
    ("tracking", "why"),
    [
        (None, r"copying; \w+ hasn't run yet"),
        (Tracking({}), r"copying; \w+ hasn't run yet"),
        (Tracking({}, 0, 9, "differ"), r"copied, but the copy differs; \w+ hasn't run yet"),
        (Tracking({}, 0, 9, "match"), r"copied, ready to flow; \w+ hasn't run yet"),
    ],
    ids=["no progress", "not copied", "differs", "waits"],
)
def test_finish_refuses_incomplete_migration(
    project: ProjectFiles, store: StateStore, logged_in: FakeWorkspace, tracking: Tracking | None, why: str
) -> None:
    if tracking:
        store.record_progress(start(), tracking)
    logged_in.page = 1
    for update in range(4):
        logged_in.flow_progress(PIPELINE, "main.silver.another", "COMPLETED", update=f"u{update}")
    before = dict(logged_in.files)
    refused = finish(project)
    assert refused.exit_code == 1
    assert_error_contains(
        refused, rf"silver\.orders: The migration isn't complete \({why}\)\.\s+Run the job that prepares"
    )
    assert logged_in.files == before


def test_finish_refuses_migration_without_start_under_this_pipeline(
    project: ProjectFiles, flow: str, logged_in: FakeWorkspace
) -> None:
    assert_error_contains(finish(project), r"silver\.orders: The migration isn't complete \(not begun\)")
    StateStore(Path("/Volumes/main/bronze/state"), "old").record_start(start("old"))
    assert_error_contains(finish(project), r"\(not begun; it began under pipelineId=old\)")
    assert EVENTS not in logged_in.asked


def test_finish_reads_event_log_back_to_migration_start(
    project: ProjectFiles, store: StateStore, logged_in: FakeWorkspace
) -> None:
    store.record_progress(start(), Tracking({}, 0, 9, "match"))
    logged_in.page = 1
    for day in (1, 30, 31):
        logged_in.first_event = datetime(2025, 12, day, 12, tzinfo=UTC)
        logged_in.flow_progress(PIPELINE, "main.silver.another", "COMPLETED")
    assert finish(project).exit_code == 1
    assert logged_in.asked.count(EVENTS) == 2


@pytest.mark.parametrize("command", ["plan", "status", "prepare", "compare"])
def test_commands_that_need_tables_name_packages_to_install(
    project: ProjectFiles, store: StateStore, command: str
) -> None:
    refused = call(command, project)
    assert refused.exit_code == 1
    assert_error_contains(
        refused,
        r"tables of pipeline p1 are in its workspace, which Spark on this machine can't reach.*"
        r"Run `pip install 'tableferry\[connect,databricks\]'` in a separate environment",
    )
    assert storage.exists(store.migration_start_file(TARGET))


def assert_error_contains(result: Result, sentence: str) -> None:
    assert re.search(sentence, " ".join(result.stderr.split())), result.stderr


def test_finish_decides_again_if_state_changed_before_the_lock(
    project: ProjectFiles, store: StateStore, flow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", started=(flow,)))
    locked = storage.locked

    def refresh_and_lock(*arguments: Any) -> AbstractContextManager[None]:
        # The streaming engine starts a full refresh after the first decision.
        store.start_generation(TARGET, 1)
        return locked(*arguments)

    monkeypatch.setattr(storage, "locked", refresh_and_lock)
    refused = finish(project)
    assert refused.exit_code == 1
    assert_error_contains(refused, r"ENGINE_CHANGED")
    assert not store.read(TARGET).finished


def test_finish_refuses_unfinished_cutover_and_keeps_a_finished_one(
    project: ProjectFiles, store: StateStore, flow: str
) -> None:
    renamed = TableName.parse("silver.orders_legacy__legacy")
    cutover = Cutover(LEGACY, renamed, "id-2", "switching", STARTED)
    store.record_progress(start(), Tracking({SOURCE.key: 5}, 0, 9, "match", started=(flow,)))
    store.record_cutover(TARGET, cutover)
    refused = finish(project)
    assert refused.exit_code == 1
    assert "[CUTOVER_UNFINISHED]" in refused.stderr
    store.record_cutover(TARGET, replace(cutover, phase="done"))
    assert finish(project).exit_code == 0
    state = store.read(TARGET)
    assert state.finished
    assert state.cutover == replace(cutover, phase="done")
