"""The facts that are read for a target in each phase of its migration."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from tests.unit.test_decide import LEGACY, NOW, ORDERS, dataflow

from tableferry.pipelines.model.flows import Migration
from tableferry.pipelines.model.target_state import MigrationStart, PinnedCopy, TargetState, Tracking
from tableferry.pipelines.planning.pipeline_port import LoadingPipeline, Pipeline
from tableferry.pipelines.planning.target_needs import decide_needs

COPY = Migration(LEGACY, "uc", hand_over="checkpoint")
COPY_START = MigrationStart("p", ORDERS, PinnedCopy(LEGACY, "legacy-id", 9), {}, NOW)
STARTED = TargetState(COPY_START, Tracking({}))
COPIED = replace(STARTED, tracking=Tracking({}, copied=0))
TAKEN_OVER = replace(COPIED, migration_start=replace(COPY_START, copy=PinnedCopy(ORDERS, "id", 9)))
BEFORE_START = {"legacy_table", "target", "target_rows", "hand_over", "brokers"}


def list_needs(
    state: TargetState,
    migration: Migration | None = COPY,
    pipeline: Pipeline | None = None,
    *,
    is_refreshed: bool = False,
    for_report: bool = False,
) -> set[str]:
    """List the names of the needed facts."""
    flow = dataflow(migration=migration)
    needs = decide_needs(flow, state, state, pipeline, is_refreshed=is_refreshed, for_report=for_report)
    return {name for name, is_needed in asdict(needs).items() if is_needed}


@pytest.mark.parametrize(
    ("state", "needed"),
    [
        (TargetState(), BEFORE_START),
        (STARTED, {"legacy_table", "brokers"}),
        (COPIED, {"brokers"}),
        (replace(COPIED, resetting=True), {"legacy_table", "brokers", "flows_restart"}),
        (TargetState(finished=True), set()),
    ],
    ids=["unstarted", "copying", "copied", "resetting", "finished"],
)
def test_phase_of_copy_decides_needs(state: TargetState, needed: set[str]) -> None:
    assert list_needs(state) == needed | {"filled_tables", "orphans"}


def test_target_without_migration_needs_its_tables_only() -> None:
    assert list_needs(TargetState(), migration=None) == {"filled_tables", "orphans"}


def test_take_over_needs_legacy_writes_after_start_and_no_rows_before() -> None:
    take_over = replace(COPY, table=ORDERS, take_over=True)
    tables = {"filled_tables", "orphans", "brokers"}
    assert list_needs(TargetState(), take_over) == tables | BEFORE_START - {"target_rows"}
    assert list_needs(TAKEN_OVER, take_over) == tables | {"legacy_writes"}


def test_report_needs_legacy_writes_of_copy() -> None:
    assert "legacy_writes" not in list_needs(COPIED)
    assert "legacy_writes" in list_needs(COPIED, for_report=True)


def test_full_refresh_needs_legacy_table_and_no_orphans() -> None:
    assert list_needs(COPIED, is_refreshed=True) == {
        "filled_tables",
        "legacy_table",
        "brokers",
        "flows_restart",
    }


def test_pipeline_that_is_being_defined_needs_nothing_that_it_cannot_answer() -> None:
    pipeline = LoadingPipeline("databricks")
    assert list_needs(TargetState(), pipeline=pipeline) == {"legacy_table", "target", "target_rows"}
    assert list_needs(COPIED, pipeline=pipeline) == set()
