"""Views of Auto Loader: refused outside Databricks, and started by their own options on Databricks."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conditions import check
from tests.unit.conftest import ProjectFiles
from tests.unit.test_decide import FLOW, LEGACY, NOW, ORDERS, dataflow

from tableferry import pipelines
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.flows import AUTO_LOADER, Migration, Project, ReaderSource, View
from tableferry.pipelines.model.plan import EngineKind, PlanRequest, TargetPlan
from tableferry.pipelines.model.reads import list_streamed_reads
from tableferry.pipelines.model.steps import PlannedFlow, RecordStart
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning.decide import decide
from tableferry.spark.local_metastore import LocalMetastore
from tableferry.spark.tables import TableFacts
from tableferry.workspace import RUNTIME_VARIABLE

OPTIONS = {"cloudFiles.format": "json", "modifiedAfter": "2026-11-01T00:00:00Z"}
VIEW = View(
    "v_orders", "stream", ReaderSource(AUTO_LOADER, OPTIONS, "/in"), "orders_main.json: sourceDetails"
)
MIGRATION = Migration(LEGACY, "uc", hand_over="explicit", location="orders_main.json: tableMigrationDetails")


class Functions:
    """The functions of a session outside Databricks."""

    def functionExists(self, name: str) -> bool:
        return name != "current_version"


class Session(LocalMetastore):
    """A session without tables."""

    catalog = Functions()


def decided(engine: EngineKind, *, auto_loader: bool, migration: Migration | None = None) -> TargetPlan:
    """Decide on a target whose only view is of Auto Loader."""
    flow = dataflow(views={"v_orders": VIEW}, migration=migration)
    facts = Facts(
        {LEGACY.key: TableFacts(LEGACY, "legacy-id", 9)},
        {ORDERS.key: TargetState()},
        {(ORDERS.key, FLOW.name): list_streamed_reads(flow.views, FLOW.view, {})},
        auto_loader=auto_loader,
    )
    plan = decide(Project("/p", "p", (flow,), "/state"), facts, PlanRequest("p", NOW, engine=engine))
    return plan.targets[0]


@pytest.mark.parametrize("engine", ["streaming", "declarative"])
@pytest.mark.parametrize("migration", [None, MIGRATION])
def test_view_of_auto_loader_is_refused_outside_databricks(
    engine: EngineKind, migration: Migration | None
) -> None:
    target = decided(engine, auto_loader=False, migration=migration)
    (refusal,) = target.refusals
    check(refusal, "AUTO_LOADER_ONLY_ON_DATABRICKS", location=VIEW.location, view=VIEW.name)
    assert target.steps == ()


def test_streaming_engine_on_databricks_starts_auto_loader_by_its_own_options() -> None:
    target = decided("streaming", auto_loader=True, migration=MIGRATION)
    assert target.refusals == ()
    (begin,) = (step for step in target.steps if isinstance(step, RecordStart))
    assert (begin.migration_start.baselines, begin.migration_start.certainty) == ({}, "assumed")
    flows = [(step.name, step.start_offset) for step in target.steps if isinstance(step, PlannedFlow)]
    assert (FLOW.name, "") in flows


def test_pipeline_on_databricks_declares_auto_loader() -> None:
    target = decided("databricks", auto_loader=True)
    assert target.refusals == ()
    assert [step.name for step in target.steps if isinstance(step, PlannedFlow)] == [FLOW.name]


@pytest.mark.parametrize("in_runtime", [True, False])
def test_session_tells_whether_auto_loader_exists(
    project: ProjectFiles, monkeypatch: pytest.MonkeyPatch, in_runtime: bool
) -> None:
    """The session is asked for a function that only Databricks has, unless this is a Databricks runtime."""
    if in_runtime:
        monkeypatch.setenv(RUNTIME_VARIABLE, "17.3")
    written: dict[str, Any] = project.append(
        sourceType="cloudFiles", sourceDetails={"path": "/in", "readerOptions": OPTIONS}
    )
    del written["tableMigrationDetails"]
    project.write("dataflows/sales/dataflowspec/orders_main.json", written)
    session: Any = Session(lambda schema, table: None)
    status = pipelines.status(project.load(environment="dev"), session, pipeline_id="p1")
    (target,) = status.plan.targets
    assert [refusal.condition for refusal in target.refusals] == (
        [] if in_runtime else ["AUTO_LOADER_ONLY_ON_DATABRICKS"]
    )
