"""The plan of a target from its facts: flows that start or wait, refusals with their remedies."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

import pytest
from rich.console import Console
from tests.conditions import check, names, raises

from tableferry.errors import Finding
from tableferry.formats.delta.row_changes import RowChanges
from tableferry.pipelines.model.facts import Checkpoint, Facts, HandOver, LegacyWrites, UnknownHandOver
from tableferry.pipelines.model.flows import (
    HISTORY_FLOW,
    CdcSettings,
    DataFlow,
    DeltaSource,
    Flow,
    HandOverMethod,
    Migration,
    Project,
    SqlSource,
    Start,
    Target,
    View,
)
from tableferry.pipelines.model.identities import FlowIdentity, TableEvidence, TableIdentity
from tableferry.pipelines.model.plan import Plan, PlanRequest, TargetPlan
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.pipelines.model.steps import (
    AdoptRenamedState,
    AdoptState,
    DefineTable,
    DefineView,
    PlannedFlow,
    RecordStart,
    RemoveMigration,
    RenameFlow,
    ResetTarget,
)
from tableferry.pipelines.model.target_state import (
    Baseline,
    Certainty,
    Cutover,
    MigrationStart,
    PinnedCopy,
    TargetState,
    Tracking,
)
from tableferry.pipelines.planning.decide import decide
from tableferry.pipelines.planning.facts import rename_legacy_tables
from tableferry.pipelines.reports import plan_data, print_plan
from tableferry.pipelines.take_over_undo import check_undo
from tableferry.spark.tables import TableFacts, TableName
from tableferry.verify.verdict import Aggregate, Verdict

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ORDERS, LEGACY = TableName.parse("silver.orders"), TableName.parse("silver.orders_legacy")
SOURCE, OTHER = TableName.parse("bronze.orders"), TableName.parse("bronze.extra")
FLOW = Flow("f_orders", "append", ORDERS, "v_orders", location="orders_main.json: flow")


def view(name: str, table: TableName) -> View:
    return View(name, "stream", DeltaSource(table), f"orders_main.json: {name}")


def dataflow(**changes: object) -> DataFlow:
    flow = DataFlow(
        "orders",
        "orders_main.json",
        Target(ORDERS, location="orders_main.json: targetDetails"),
        (),
        {"v_orders": view("v_orders", SOURCE)},
        (FLOW,),
        Migration(LEGACY, "hms", location="orders_main.json: tableMigrationDetails"),
    )
    return replace(flow, **changes)  # type: ignore[arg-type]


def facts(
    *,
    source: TableFacts | None = TableFacts(SOURCE, "source-id", 5),
    legacy: TableFacts | None = TableFacts(LEGACY, "legacy-id", 9),
    stored: TargetState = TargetState(),
    checkpoint: Checkpoint = Checkpoint(),
    explicit: int | None = None,
    **more: object,
) -> Facts:
    made = Facts(
        {SOURCE.key: source, LEGACY.key: legacy},
        {ORDERS.key: stored},
        {(ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "orders_main.json: v_orders", explicit),)},
        {(ORDERS.key, "f_orders"): checkpoint},
    )
    return replace(made, **more)  # type: ignore[arg-type]


STARTED = MigrationStart(
    "p",
    ORDERS,
    PinnedCopy(LEGACY, "legacy-id", 9),
    {SOURCE.key: Baseline(SOURCE, "source-id", 5, ("v_orders",))},
    NOW,
)
COPIED = TargetState(STARTED, Tracking({SOURCE.key: 5}, 0, 10, "match"))
READ_TO_6 = Checkpoint({"source-id": DeltaOffset(7, True)}, offered=1, committed=1)


def plan(known: Facts, *flows: DataFlow, **request: object) -> Plan:
    project = Project("/p", "p", flows or (dataflow(),), "/state")
    return decide(project, known, replace(PlanRequest("p", NOW), **request))  # type: ignore[arg-type]


def plan_target(known: Facts, *flows: DataFlow, **request: object) -> TargetPlan:
    (target,) = plan(known, *flows, **request).targets
    return target


def test_migration_of_legacy_table_with_earlier_target_is_refused() -> None:
    earlier = {"legacy-id": ("targetTable=silver.old",)}
    target = plan_target(facts(unclaimed_state_folders=earlier, state="/state"))
    [refusal] = target.refusals
    check(refusal, "LEGACY_TABLE_MIGRATED_BEFORE", table="silver.orders_legacy", state="/state")
    assert refusal.parameters["folders"] == ("targetTable=silver.old",)
    assert "run with --adopt" in refusal.remedy
    assert target.steps == ()
    # A started migration has its own state.
    assert plan_target(facts(unclaimed_state_folders=earlier, stored=COPIED)).refusals == ()
    several = {"legacy-id": ("targetTable=silver.old", "targetTable=silver.older")}
    [refusal] = plan_target(facts(unclaimed_state_folders=several), adopt=True).refusals
    check(refusal, "LEGACY_TABLE_MIGRATED_BEFORE")


def test_plan_that_adopts_renamed_target_contains_all_its_steps() -> None:
    folders = {ORDERS.key: "targetTable=silver.old"}
    known = facts(stored=COPIED, checkpoint=READ_TO_6, renamed_state_folders=folders)
    [missing] = plan_target(known, adopt=True).refusals
    check(missing, "RENAMED_TARGET_MISSING", target=ORDERS, folder="targetTable=silver.old")
    assert "ALTER TABLE ... RENAME TO `silver`.`orders`" in missing.remedy
    known = replace(known, tables={**known.tables, ORDERS.key: TableFacts(ORDERS, "id", 4)})
    adopting = plan_target(known, adopt=True)
    assert adopting.refusals == ()
    assert adopting.state_steps == (AdoptRenamedState(ORDERS, "targetTable=silver.old"),)
    # The other steps are those of a target that has kept its name.
    assert adopting.steps[1:] == plan_target(replace(known, renamed_state_folders={})).steps
    assert [flow.action for flow in adopting.flows] == ["idle"]


def test_first_plan_records_start_copies_and_omits_live_flow() -> None:
    target = plan_target(facts())
    assert target.phase == "new"
    assert target.steps[0] == RecordStart(STARTED)
    assert [step.name for step in target.steps if isinstance(step, PlannedFlow)] == ["f_tableferry_history"]
    assert [(wait.table, wait.baseline, wait.current) for wait in target.waits] == [(SOURCE, 5, 5)]


def test_hand_over_of_old_streams_pins_copy_and_baselines() -> None:
    handed = HandOver(8, {"source-id": 3}, {"query": 12})
    target = plan_target(facts(hand_overs={ORDERS.key: handed}))
    copy = PinnedCopy(LEGACY, "legacy-id", 8)
    baselines = {SOURCE.key: Baseline(SOURCE, "source-id", 3, ("v_orders",))}
    start = replace(STARTED, copy=copy, baselines=baselines, batches={"query": 12}, certainty="recorded")
    assert target.steps[0] == RecordStart(start)
    assert target.notes[0] == (
        "the hand-over point is recorded by the old streams: batch 12 of their checkpoints"
    )
    (read,) = (step for step in target.steps if isinstance(step, DefineView) and not step.once)
    assert read.starts == {SOURCE.key: 4}

    # An explicit start doesn't need the position of the old streams.
    other = HandOver(8, {}, {"query": 12})
    assert not plan_target(facts(hand_overs={ORDERS.key: other}, explicit=2)).refusals


@pytest.mark.parametrize(
    ("handed", "condition", "parameters"),
    [
        (
            UnknownHandOver(Finding("OLD_STREAM_KEEPS_STATE", folder="/old")),
            "OLD_STREAM_KEEPS_STATE",
            {"location": "orders_main.json: tableMigrationDetails", "folder": "/old"},
        ),
        (
            HandOver(8, {}, {"query": 12}),
            "SOURCE_NOT_READ_BY_OLD_STREAMS",
            {"location": "orders_main.json: v_orders", "table": LEGACY, "source": SOURCE},
        ),
        (
            HandOver(8, {"source-id": 3, "lost-id": 4}, {"query": 12}),
            "OLD_SOURCE_NOT_FOLLOWED",
            {"table": LEGACY, "source": "the Delta table with the id lost-id", "target": ORDERS},
        ),
    ],
)
def test_hand_over_of_old_streams_with_other_sources_is_refused(
    handed: HandOver | UnknownHandOver, condition: str, parameters: dict[str, object]
) -> None:
    target = plan_target(facts(hand_overs={ORDERS.key: handed}))
    [refusal] = target.refusals
    check(refusal, condition, **parameters)
    assert refusal.message.startswith("orders_main.json: ")
    assert target.steps == ()


def dataflow_by(hand_over: HandOverMethod) -> DataFlow:
    (migration,) = filter(None, [dataflow().migration])
    return dataflow(migration=replace(migration, hand_over=hand_over))


def test_proved_hand_over_point_is_recorded_as_proved() -> None:
    handed = HandOver(9, {"source-id": 3}, {}, "proved", "silver.orders_legacy@9 holds exactly that")
    target = plan_target(facts(hand_overs={ORDERS.key: handed}), dataflow_by("content"))
    baselines = {SOURCE.key: Baseline(SOURCE, "source-id", 3, ("v_orders",))}
    assert target.steps[0] == RecordStart(replace(STARTED, baselines=baselines, certainty="proved"))
    assert target.notes[0].endswith("is proved: silver.orders_legacy@9 holds exactly that")
    # A plan without facts about the hand-over point notes that plan and run search for it.
    target = plan_target(facts(), dataflow_by("content"))
    assert (target.phase, target.steps, target.refusals) == ("new", (), ())
    assert target.notes == ("plan and run search for the hand-over point",)
    # The plan contains the best match of the search.
    nearest = Verdict("old", "new", Aggregate(1), Aggregate(2))
    target = plan_target(
        facts(hand_overs={ORDERS.key: UnknownHandOver(Finding("OTHER_ERROR", reason="None fits."), nearest)}),
        dataflow_by("content"),
    )
    assert (target.phase, target.nearest) == ("refused", nearest)


TAKEN_OVER = dataflow(
    migration=Migration(ORDERS, "hms", take_over=True, hand_over="checkpoint", location="orders_main.json: m")
)
TAKEN = MigrationStart(
    "p",
    ORDERS,
    PinnedCopy(ORDERS, "orders-id", 8),
    {SOURCE.key: Baseline(SOURCE, "source-id", 3, ("v_orders",))},
    NOW,
    {"query": 12},
    "recorded",
)


def taken_over(**more: object) -> Facts:
    known = facts(**more)  # type: ignore[arg-type]
    return replace(known, tables={**known.tables, ORDERS.key: TableFacts(ORDERS, "orders-id", 8)})


def test_take_over_starts_flow_without_copy() -> None:
    handed = HandOver(8, {"source-id": 3}, {"query": 12})
    target = plan_target(taken_over(hand_overs={ORDERS.key: handed}), TAKEN_OVER)
    assert target.steps[0] == RecordStart(TAKEN)
    assert [step.name for step in target.steps if isinstance(step, PlannedFlow)] == ["f_orders"]
    assert not any(step.create for step in target.steps if isinstance(step, DefineTable))
    older = HandOver(7, {"source-id": 3}, {"query": 11})
    (refusal,) = plan_target(taken_over(hand_overs={ORDERS.key: older}), TAKEN_OVER).refusals
    check(refusal, "TAKE_OVER_OF_OLDER_VERSION", location="orders_main.json: m", version=8, hand_over=7)


@pytest.mark.parametrize("engine", ["databricks", "declarative"])
@pytest.mark.parametrize(
    ("stored", "flow", "location"),
    [
        pytest.param(TargetState(), TAKEN_OVER, "orders_main.json: m", id="new"),
        pytest.param(TargetState(TAKEN, Tracking({}, 0)), TAKEN_OVER, "orders_main.json: m", id="begun"),
        pytest.param(
            TargetState(finished=True, taken_over=True), TAKEN_OVER, "orders_main.json: m", id="finished"
        ),
        pytest.param(
            TargetState(finished=True, taken_over=True),
            dataflow(migration=None),
            "orders_main.json",
            id="removed",
        ),
        pytest.param(TargetState(TAKEN), dataflow(migration=None), "orders_main.json", id="switched off"),
    ],
)
def test_take_over_is_refused_in_a_pipeline(
    stored: TargetState, flow: DataFlow, location: str, engine: str
) -> None:
    handed = {ORDERS.key: HandOver(8, {"source-id": 3}, {"query": 12})}
    target = plan_target(taken_over(stored=stored, hand_overs=handed), flow, engine=engine)
    (refusal,) = target.refusals
    check(refusal, "TAKE_OVER_IN_PIPELINE", location=location, target=ORDERS)
    assert "tableferry pipelines run" in refusal.remedy
    assert (target.phase, target.steps) == ("refused", ())


def test_target_taken_over_refuses_full_refresh_and_other_writers() -> None:
    stored = TargetState(TAKEN, Tracking({SOURCE.key: 5}, 0))
    assert plan_target(taken_over(stored=stored), TAKEN_OVER).phase == "ready"
    (refusal,) = plan_target(
        taken_over(stored=stored), TAKEN_OVER, full_refresh=frozenset({ORDERS.key})
    ).refusals
    check(refusal, "REFRESH_OF_TAKEN_OVER_TABLE", target=ORDERS)
    writes = {ORDERS.key: LegacyWrites({"query": 13}, 9)}
    (refusal,) = plan_target(taken_over(stored=stored, legacy_writes=writes), TAKEN_OVER).refusals
    check(refusal, "WRITTEN_SINCE_TAKE_OVER", target=ORDERS, version=9)
    check(refusal, "WRITTEN_SINCE_TAKE_OVER", writers="its old stream (up to batch 13)")
    assert "RESTORE TABLE `silver`.`orders` TO VERSION AS OF 8" in refusal.remedy
    undoing = replace(stored, undoing=True)
    (refusal,) = plan_target(taken_over(stored=undoing), TAKEN_OVER).refusals
    check(refusal, "UNDO_OF_TARGET_UNFINISHED", target=ORDERS)


def test_flow_with_baseline_within_commit_starts_at_offset() -> None:
    part = {"source-id": '{"index":2}'}
    handed = HandOver(8, {"source-id": 3}, {"query": 12}, within=part)
    target = plan_target(taken_over(hand_overs={ORDERS.key: handed}), TAKEN_OVER)
    assert str(target.steps[0]).endswith("bronze.orders@3 and a part of 4")
    (flow,) = (step for step in target.steps if isinstance(step, PlannedFlow))
    (read,) = (step for step in target.steps if isinstance(step, DefineView))
    assert (flow.start_offset, read.starts) == ('{"index":2}', {SOURCE.key: None})
    # After the start the checkpoint has the offset; its first two batches wrote no rows.
    baselines = {SOURCE.key: replace(TAKEN.baselines[SOURCE.key], within='{"index":2}')}
    stored = TargetState(replace(TAKEN, baselines=baselines), Tracking({SOURCE.key: 5}, 0))
    begun = Checkpoint(
        {"source-id": DeltaOffset(4, False)}, offered=1, committed=1, id="own", has_start_offset=True
    )
    identity = TableIdentity("orders-id", 0, {"f_orders": FlowIdentity({}, {SOURCE.key: "source-id"}, "own")})
    recorded = {ORDERS.key: TableEvidence("orders-id", identity, identity, {"own": -1})}
    target = plan_target(taken_over(stored=stored, checkpoint=begun, table_evidence=recorded), TAKEN_OVER)
    assert [flow.action for flow in target.flows] == ["continue"]
    lost = replace(begun, offered=2, committed=2)
    (refusal,) = plan_target(
        taken_over(stored=stored, checkpoint=lost, table_evidence=recorded), TAKEN_OVER
    ).refusals
    check(refusal, "CHECKPOINT_AHEAD_OF_TARGET", flow="f_orders", table=ORDERS)


def test_hand_over_explicit_requires_explicit_starts() -> None:
    (refusal,) = plan_target(facts(), dataflow_by("explicit")).refusals
    check(refusal, "EXPLICIT_START_MISSING", location="orders_main.json: v_orders", source=SOURCE)
    assert "give readerOptions.startingVersion" in refusal.remedy
    target = plan_target(facts(explicit=3), dataflow_by("explicit"))
    assert names(target.warnings) == ["HAND_OVER_ASSUMED_FROM_SPEC"]


def test_full_refresh_of_table_with_reset_not_allowed_is_refused() -> None:
    kept = Target(
        ORDERS, properties={"pipelines.reset.allowed": "false"}, location="orders_main.json: targetDetails"
    )
    target = plan_target(facts(stored=COPIED), dataflow(target=kept), full_refresh=frozenset({ORDERS.key}))
    (refusal,) = target.refusals
    check(refusal, "REFRESH_NOT_ALLOWED", table=ORDERS, property="pipelines.reset.allowed")
    check(refusal, "REFRESH_NOT_ALLOWED", location="orders_main.json: targetDetails")


def test_plan_of_same_facts_is_equal() -> None:
    assert plan(facts(stored=COPIED)) == plan(facts(stored=COPIED))


@pytest.mark.parametrize("version", [6, 7])
def test_flow_starts_at_version_after_baseline(version: int) -> None:
    target = plan_target(facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", version)))
    assert target.phase == "ready"
    (read,) = (step for step in target.steps if isinstance(step, DefineView))
    assert read.starts == {SOURCE.key: 6}


@pytest.mark.parametrize(("version", "engine"), [(7, "streaming"), (7, "declarative"), (5, "streaming")])
def test_flow_of_two_sources_starts_when_one_is_ready(version: int, engine: str) -> None:
    reads = tuple(Read("v_orders", table, "orders_main.json: v_orders") for table in (SOURCE, OTHER))
    baselines = {**STARTED.baselines, OTHER.key: Baseline(OTHER, "other-id", 2, ("v_orders",))}
    known = facts(
        source=TableFacts(SOURCE, "source-id", version),
        stored=TargetState(replace(STARTED, baselines=baselines), Tracking({}, 0, 9, "match")),
        reads={(ORDERS.key, "f_orders"): reads},
    )
    known = replace(known, tables={**known.tables, OTHER.key: TableFacts(OTHER, "other-id", 2)})
    target = plan_target(known, engine=engine)
    [flow] = target.flows
    if (version, engine) == (7, "streaming"):
        assert (flow.action, flow.starts_ahead, flow.waits) == ("start", True, ())
        assert flow.starts == {"v_orders": {SOURCE.key: 6, OTHER.key: 3}}
        assert target.notes == (
            "f_orders begins without bronze.extra, which has no commit after its baseline yet",
        )
    else:
        assert flow.action == "wait"
        assert {wait.table for wait in flow.waits} == ({OTHER} if version == 7 else {SOURCE, OTHER})


def test_started_flow_of_two_sources_keeps_start_of_unread_source() -> None:
    reads = tuple(Read("v_orders", table, "orders_main.json: v_orders") for table in (SOURCE, OTHER))
    baselines = {**STARTED.baselines, OTHER.key: Baseline(OTHER, "other-id", 2, ("v_orders",))}
    started = facts(
        source=TableFacts(SOURCE, "source-id", 6),
        stored=TargetState(replace(STARTED, baselines=baselines), Tracking({}, 0, 9, "match")),
        checkpoint=replace(READ_TO_6, has_untracked_sources=True),
        reads={(ORDERS.key, "f_orders"): reads},
    )

    def at(version: int, earliest: int = 0) -> TargetPlan:
        tables = {**started.tables, OTHER.key: TableFacts(OTHER, "other-id", version)}
        return plan_target(replace(started, tables=tables, earliest={OTHER.key: earliest}))

    assert [at(version).flows[0].action for version in (2, 3)] == ["idle", "continue"]
    assert at(3).flows[0].starts == {"v_orders": {SOURCE.key: None, OTHER.key: 3}}
    (refusal,) = at(4, earliest=4).refusals
    check(refusal, "BASELINE_NOT_READABLE", source=OTHER, version=3, earliest=4)


def test_flow_without_new_commits_is_idle() -> None:
    target = plan_target(
        facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 6), checkpoint=READ_TO_6)
    )
    assert (target.phase, target.steps) == ("complete", ())


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint({"source-id": DeltaOffset(6, True)}, offered=1, committed=1),
        Checkpoint({"source-id": DeltaOffset(7, False)}, offered=1, committed=1),
        replace(READ_TO_6, committed=0),
    ],
    ids=["commits left", "commit partly read", "batch pending"],
)
def test_flow_with_pending_or_new_commits_continues(checkpoint: Checkpoint) -> None:
    target = plan_target(
        facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 6), checkpoint=checkpoint)
    )
    assert target.flows[0].action == "continue"


def test_interrupted_copy_restarts_from_pinned_version() -> None:
    moved = facts(
        stored=TargetState(STARTED),
        legacy=TableFacts(LEGACY, "legacy-id", 30),
        source=TableFacts(SOURCE, "source-id", 8),
    )
    target = plan_target(moved)
    assert target.phase == "copying"
    assert target.migration_start == STARTED
    assert not [step for step in target.steps if isinstance(step, RecordStart)]


def test_full_refresh_copies_pinned_version_again() -> None:
    known = facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 8), checkpoint=READ_TO_6)
    target = plan_target(known, full_refresh=frozenset({ORDERS.key}))
    assert target.steps[0] == ResetTarget(ORDERS, (ORDERS,), 1, {ORDERS.key: (HISTORY_FLOW,)})
    assert target.copy
    assert target.flows[0].starts == {"v_orders": {SOURCE.key: 6}}
    assert target.migration_start == STARTED


RENAMED = TableName.parse("silver.orders_legacy__legacy")
SWITCHING = Cutover(LEGACY, RENAMED, "legacy-id", "switching", NOW)


def test_unfinished_cutover_refuses_full_refresh_but_not_the_flows() -> None:
    stored = replace(COPIED, cutover=SWITCHING)
    known = facts(stored=stored, checkpoint=READ_TO_6, legacy=None)
    target = plan_target(known)
    assert (target.phase, names(target.warnings)) == ("complete", ["CUTOVER_UNFINISHED"])
    refreshed = plan_target(known, full_refresh=frozenset({ORDERS.key}))
    assert names(refreshed.refusals) == ["CUTOVER_UNFINISHED"]


def test_plan_after_cutover_finds_the_legacy_table_under_its_new_name() -> None:
    start = replace(STARTED, copy=replace(STARTED.copy, table=RENAMED))
    stored = replace(COPIED, migration_start=start, cutover=replace(SWITCHING, phase="done"))
    project = rename_legacy_tables(Project("/p", "p", (dataflow(),), "/state"), {ORDERS.key: stored})
    (cut_over,) = project.dataflows
    assert cut_over.migration is not None
    assert cut_over.migration.table == RENAMED
    known = facts(stored=stored, checkpoint=READ_TO_6)
    renamed = {**known.tables, LEGACY.key: None, RENAMED.key: TableFacts(RENAMED, "legacy-id", 9)}
    known = replace(known, tables=renamed)
    target = plan_target(known, cut_over)
    assert (target.phase, target.refusals, target.warnings) == ("complete", (), ())
    assert "silver.orders_legacy is a view of silver.orders" in target.notes[0]
    refreshed = plan_target(known, cut_over, full_refresh=frozenset({ORDERS.key}))
    assert refreshed.refusals == ()
    assert refreshed.copied_history is not None
    assert refreshed.copied_history.migration.table == RENAMED
    # The view has another id, and is never taken for the legacy table.
    other = replace(known, tables={**renamed, RENAMED.key: TableFacts(RENAMED, "another-id", 9)})
    assert plan_target(other, cut_over, full_refresh=frozenset({ORDERS.key})).refusals


def test_interrupted_full_refresh_is_resumed() -> None:
    target = plan_target(facts(stored=replace(COPIED, generation=1, resetting=True), checkpoint=READ_TO_6))
    assert target.steps[0] == ResetTarget(ORDERS, (ORDERS,), 1, {ORDERS.key: (HISTORY_FLOW,)})
    assert target.copy


def test_explicit_start_has_priority_and_is_noted() -> None:
    target = plan_target(facts(stored=COPIED, explicit=2))
    assert target.flows[0].starts == {"v_orders": {SOURCE.key: 2}}
    assert "v_orders starts at 2 of bronze.orders, as the spec states" in target.notes


def test_flow_waits_for_explicit_start_after_newest_version() -> None:
    assert plan_target(facts(stored=COPIED, explicit=6)).flows[0].action == "wait"


def test_source_without_start_or_automatic_versions_is_warned_with_sizes() -> None:
    flow = dataflow(migration=Migration(LEGACY, "hms", auto_starting_versions=False))
    target = plan_target(facts(rows={SOURCE.key: 1234}), flow)
    (warning,) = target.warnings
    check(warning, "SOURCE_READ_FROM_START", view="v_orders", source=SOURCE, size="6 commits, 1,234 rows")
    assert target.flows[0].action == "start"
    assert target.migration_start is not None
    assert target.migration_start.baselines == {}


def test_renamed_view_keeps_baseline_of_source() -> None:
    renamed = dataflow(
        views={"v_new": view("v_new", SOURCE)}, flows=(replace(FLOW, view="v_new", name="f_new"),)
    )
    read = Read("v_new", SOURCE, "orders_main.json: v_new")
    known = facts(
        stored=COPIED, source=TableFacts(SOURCE, "source-id", 7), reads={(ORDERS.key, "f_new"): (read,)}
    )
    assert plan_target(known, renamed).flows[0].starts == {"v_new": {SOURCE.key: 6}}


def test_standard_flow_with_renamed_view_continues_from_checkpoint() -> None:
    renamed = dataflow(
        views={"v_new": view("v_new", SOURCE)}, flows=(replace(FLOW, view="v_new", name="f_v_new"),)
    )
    read = Read("v_new", SOURCE, "orders_main.json: v_new")
    known = facts(
        stored=COPIED,
        source=TableFacts(SOURCE, "source-id", 6),
        reads={(ORDERS.key, "f_v_new"): (read,)},
        checkpoints={},
        orphaned_checkpoints={ORDERS.key: {"f_orders": READ_TO_6}},
    )
    target = plan_target(known, renamed)
    assert target.steps == (RenameFlow(ORDERS, 0, "f_orders", "f_v_new"),)
    assert target.flows[0].action == "idle"


@pytest.mark.parametrize(
    ("start", "is_refused"),
    [(0, True), (6, True), (7, False), ("latest", True), ("timestamp:2026-01-01", True)],
)
def test_renamed_flow_that_starts_before_its_old_checkpoint_is_refused(
    start: Start, is_refused: bool
) -> None:
    renamed = dataflow(
        views={"v_new": view("v_new", SOURCE)}, flows=(replace(FLOW, view="v_new", name="f_v_new"),)
    )
    read = Read("v_new", SOURCE, "orders_main.json: v_new", start)
    known = facts(
        stored=COPIED,
        source=TableFacts(SOURCE, "source-id", 8),
        reads={(ORDERS.key, "f_v_new"): (read,)},
        checkpoints={},
        orphaned_checkpoints={ORDERS.key: {"f_orders": READ_TO_6}},
        state="/state",
    )
    target = plan_target(known, renamed)
    if not is_refused:
        assert (target.refusals, target.flows[0].starts) == ((), {"v_new": {SOURCE.key: start}})
        return
    [refusal] = target.refusals
    check(
        refusal,
        "RENAMED_FLOW_READS_AGAIN",
        flow="f_v_new",
        start=start,
        old="f_orders",
        last=6,
        later=" or start f_v_new at version 7 or later",
    )
    # After the folder is removed, the flow starts at its explicit start.
    assert plan_target(replace(known, orphaned_checkpoints={}), renamed).refusals == ()
    # A full refresh drops the rows and all checkpoints.
    if start != "latest":
        assert plan_target(known, renamed, full_refresh=frozenset({ORDERS.key})).refusals == ()


@pytest.mark.parametrize(
    "earlier", [READ_TO_6, Checkpoint({"source-id": DeltaOffset(7, True)}, offered=0), Checkpoint(done=True)]
)
def test_migration_of_target_whose_flows_have_run_before_is_refused(earlier: Checkpoint) -> None:
    known = facts(checkpoint=earlier)
    target = plan_target(known)
    [refusal] = target.refusals
    check(refusal, "FLOWS_RAN_BEFORE_MIGRATION", flows=["f_orders"], target=ORDERS)
    assert target.steps == ()
    begun = plan_target(known, full_refresh=frozenset({ORDERS.key}))
    assert begun.refusals == ()
    assert [type(step) for step in begun.steps[:2]] == [RecordStart, ResetTarget]
    # A checkpoint that has no batch yet has read nothing.
    assert plan_target(facts(checkpoint=Checkpoint(id="query"))).refusals == ()


@pytest.mark.parametrize("hand_over", ["checkpoint", "version"])
@pytest.mark.parametrize(
    "earlier", [READ_TO_6, Checkpoint({"source-id": DeltaOffset(7, True)}, offered=0), Checkpoint(done=True)]
)
def test_take_over_of_target_whose_flows_have_run_before_is_refused(
    earlier: Checkpoint, hand_over: HandOverMethod
) -> None:
    assert TAKEN_OVER.migration is not None
    spec = replace(TAKEN_OVER, migration=replace(TAKEN_OVER.migration, hand_over=hand_over))
    handed = {ORDERS.key: HandOver(8, {"source-id": 3}, {"query": 12})} if hand_over == "checkpoint" else {}
    known = taken_over(checkpoint=earlier, hand_overs=handed, state="/state")
    target = plan_target(known, spec)
    [refusal] = target.refusals
    check(refusal, "FLOWS_RAN_BEFORE_TAKE_OVER", flows=["f_orders"], target=ORDERS, state="/state")
    assert (
        "ALTER TABLE `silver`.`orders` UNSET TBLPROPERTIES IF EXISTS ('tableferry.flows')" in refusal.remedy
    )
    assert target.steps == ()
    # The remedy removes the checkpoints.
    begun = plan_target(replace(known, checkpoints={}), spec)
    assert (begun.refusals, type(begun.steps[0])) == ((), RecordStart)


REFUSALS: dict[str, tuple[Facts, str, dict[str, object]]] = {
    "the legacy table is missing": (facts(legacy=None), "LEGACY_TABLE_MISSING", {"table": LEGACY}),
    "the source is missing": (facts(source=None), "SOURCE_TABLE_MISSING", {"source": SOURCE}),
    "the target has other data": (
        facts(nonempty_targets=frozenset({ORDERS.key})),
        "TARGET_NOT_EMPTY",
        {"target": ORDERS},
    ),
    "the source was recreated": (
        facts(stored=COPIED, source=TableFacts(SOURCE, "new-id", 2)),
        "SOURCE_RECREATED",
        {"source": SOURCE, "target": ORDERS},
    ),
    "the legacy table was recreated before the copy": (
        facts(stored=TargetState(STARTED), legacy=TableFacts(LEGACY, "new-id", 0)),
        "LEGACY_TABLE_RECREATED",
        {"table": LEGACY, "version": 9},
    ),
    "the version after the baseline can't be read": (
        facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 9), earliest={SOURCE.key: 8}),
        "BASELINE_NOT_READABLE",
        {"version": 6, "earliest": 8},
    ),
    "rows of the source were changed": (
        facts(
            stored=COPIED,
            source=TableFacts(SOURCE, "source-id", 9),
            row_changes={(ORDERS.key, "f_orders", SOURCE.key): RowChanges(8, "UPDATE", 3, False)},
        ),
        "SOURCE_ROWS_CHANGED",
        {
            "flow": "f_orders",
            "source": SOURCE,
            "version": 8,
            "operation": "UPDATE",
            "rows": "3 rows",
            "next": 9,
        },
    ),
    "the state is another pipeline's": (
        facts(stored=TargetState(elsewhere=("old",))),
        "STATE_OF_OTHER_PIPELINE",
        {"pipeline": "p"},
    ),
    "the spec names another legacy table": (
        facts(stored=replace(COPIED, migration_start=replace(STARTED, copy=PinnedCopy(OTHER, "x", 1)))),
        "LEGACY_TABLE_CHANGED_IN_SPEC",
        {"recorded": OTHER, "table": LEGACY},
    ),
}


@pytest.mark.parametrize("case", REFUSALS, ids=list(REFUSALS))
def test_unsafe_plan_is_refused_with_remedy_and_without_steps(case: str) -> None:
    known, condition, parameters = REFUSALS[case]
    target = plan_target(known)
    check(
        next(finding for finding in target.refusals if finding.condition == condition),
        condition,
        **parameters,
    )
    assert (target.phase, target.steps) == ("refused", ())


def test_source_added_after_baseline_needs_explicit_start() -> None:
    extra = replace(FLOW, name="f_extra", view="v_extra")
    flow = dataflow(
        views={"v_orders": view("v_orders", SOURCE), "v_extra": view("v_extra", OTHER)}, flows=(FLOW, extra)
    )
    reads = {
        (ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "a"),),
        (ORDERS.key, "f_extra"): (Read("v_extra", OTHER, "orders_main.json: v_extra"),),
    }
    tables = {SOURCE.key: TableFacts(SOURCE, "source-id", 5), OTHER.key: TableFacts(OTHER, "other-id", 3)}
    target = plan_target(facts(stored=COPIED, reads=reads, tables=tables), flow)
    (refusal,) = target.refusals
    check(refusal, "SOURCE_ADDED_AFTER_BASELINE", location="orders_main.json: v_extra", source=OTHER)
    assert "give readerOptions.startingVersion (0 = all of it)" in refusal.remedy


def test_state_of_another_pipeline_is_the_only_finding_of_its_target() -> None:
    known = facts(stored=TargetState(elsewhere=("old",)), adoptable_states={ORDERS.key: COPIED})
    # The legacy table of a copied target isn't read.
    without_legacy = replace(known, tables={**known.tables, LEGACY.key: None})
    assert names(plan_target(without_legacy).refusals) == ["STATE_OF_OTHER_PIPELINE"]


def test_adopted_state_continues_without_second_copy() -> None:
    known = facts(
        stored=TargetState(elsewhere=("old",)),
        source=TableFacts(SOURCE, "source-id", 7),
        adoptable_states={ORDERS.key: COPIED},
    )
    target = plan_target(known, adopt=True)
    assert target.steps[0] == AdoptState(ORDERS, "old")
    assert target.flows[0].starts == {"v_orders": {SOURCE.key: 6}}
    assert not target.copy


@pytest.mark.parametrize("certainty", ["proved", "recorded"])
def test_state_of_complete_migration_is_removed_when_switched_off(certainty: Certainty) -> None:
    stored = replace(COPIED, migration_start=replace(STARTED, certainty=certainty))
    known = facts(stored=stored, source=TableFacts(SOURCE, "source-id", 6), checkpoint=READ_TO_6)
    assert plan_target(known, dataflow(migration=None)).steps == (RemoveMigration(ORDERS),)


def test_run_keeps_state_of_an_assumed_migration_whose_spec_has_no_migration_details() -> None:
    known = facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 6), checkpoint=READ_TO_6)
    target = plan_target(known, dataflow(migration=None))
    assert (target.steps, target.refusals, target.phase) == ((), (), "complete")
    assert names(target.warnings) == ["ASSUMED_MIGRATION_SWITCHED_OFF"]


def test_incomplete_migration_that_is_switched_off_is_refused() -> None:
    target = plan_target(facts(stored=COPIED), dataflow(migration=None))
    assert names(target.refusals) == ["MIGRATION_SWITCHED_OFF"]


def test_finished_migration_in_spec_continues_with_warning() -> None:
    done = TargetState(finished=True)
    known = facts(stored=done, checkpoint=READ_TO_6, source=TableFacts(SOURCE, "source-id", 8))
    target = plan_target(known)
    assert target.phase == "finished"
    assert target.flows[0].action == "continue"
    assert not target.copy
    assert [step.create for step in target.steps if isinstance(step, DefineTable)] == [False]
    assert names(refreshed(known).refusals)[0] == "REFRESH_OF_FINISHED_MIGRATION"
    assert plan_target(facts(stored=done)).phase == "finished"


def refreshed(known: Facts, *flows: DataFlow) -> TargetPlan:
    return plan_target(known, *flows, full_refresh=frozenset({ORDERS.key}))


def test_interrupted_adoption_is_resumed() -> None:
    elsewhere = TargetState(STARTED, elsewhere=("old",))
    target = plan_target(facts(stored=elsewhere, adoptable_states={ORDERS.key: COPIED}))
    assert target.steps[0] == AdoptState(ORDERS, "old")
    assert not target.copy
    stranger = replace(COPIED, migration_start=replace(STARTED, recorded_at=datetime(2025, 1, 1, tzinfo=UTC)))
    assert plan_target(facts(stored=elsewhere, adoptable_states={ORDERS.key: stranger})).copy


def test_switched_off_migration_of_other_pipeline_is_refused() -> None:
    known = facts(stored=TargetState(elsewhere=("old",)))
    (refusal,) = plan_target(known, dataflow(migration=None)).refusals
    check(refusal, "MIGRATION_SWITCHED_OFF_ELSEWHERE", target=ORDERS, others=("old",))
    started = replace(known, checkpoints={(ORDERS.key, "f_orders"): READ_TO_6})
    assert not plan_target(started, dataflow(migration=None)).refusals


def test_two_flows_that_would_continue_one_checkpoint_are_refused() -> None:
    flows = (replace(FLOW, name="f_eu"), replace(FLOW, name="f_us"))
    reads = {(ORDERS.key, flow.name): (Read("v_orders", SOURCE, "here"),) for flow in flows}
    target = plan_target(
        facts(
            stored=COPIED,
            reads=reads,
            checkpoints={},
            orphaned_checkpoints={ORDERS.key: {"f_orders": READ_TO_6}},
        ),
        dataflow(flows=flows),
    )
    (refusal,) = target.refusals
    check(refusal, "RENAMED_FLOW_CONTINUED_TWICE", flow="f_us", other="f_eu", old="f_orders")


def test_explicit_start_latest_is_version_after_baseline() -> None:
    reads = {(ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "orders_main.json: v_orders", "latest"),)}
    known = facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 7), reads=reads)
    assert plan_target(known).flows[0].starts == {"v_orders": {SOURCE.key: 6}}
    plain = replace(known, states={})
    refusals = plan_target(plain, dataflow(migration=None)).refusals
    assert names(refusals) == ["START_LATEST_WITHOUT_BASELINE"]


@pytest.mark.parametrize("order", [1, -1])
def test_live_flow_that_shares_view_with_run_once_flow_keeps_start(order: int) -> None:
    flows = (replace(FLOW, name="f_init", once=True), FLOW)[::order]
    target = plan_target(
        facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 7)), dataflow(flows=flows)
    )
    (read,) = (step for step in target.steps if isinstance(step, DefineView))
    assert (read.starts, read.once) == ({SOURCE.key: 6}, False)


def test_full_refresh_of_append_only_table_is_refused() -> None:
    target = Target(
        ORDERS, properties={"delta.appendOnly": "TRUE"}, location="orders_main.json: targetDetails"
    )
    (refusal,) = refreshed(facts(stored=COPIED), dataflow(target=target)).refusals
    check(refusal, "REFRESH_OF_APPEND_ONLY_TABLE", table=ORDERS)


class TestTwoTargets:
    """Silver reads bronze, which the same project fills."""

    GOLD, GOLD_LEGACY = TableName.parse("gold.orders"), TableName.parse("gold.orders_legacy")
    READER = Flow("f_gold", "append", GOLD, "v_gold", location="gold_main.json: flow")

    def gold(self, migration: bool = True) -> DataFlow:
        return DataFlow(
            "gold",
            "gold_main.json",
            Target(self.GOLD),
            (),
            {"v_gold": view("v_gold", ORDERS)},
            (self.READER,),
            Migration(self.GOLD_LEGACY, "hms") if migration else None,
        )

    def facts(
        self,
        orders: TableFacts | None,
        orders_state: TargetState,
        gold_state: TargetState = TargetState(),
        **more: object,
    ) -> Facts:
        base = facts(stored=orders_state, source=TableFacts(SOURCE, "source-id", 8))
        both = replace(
            base,
            tables={
                **base.tables,
                ORDERS.key: orders,
                self.GOLD_LEGACY.key: TableFacts(self.GOLD_LEGACY, "gold-id", 0),
            },
            states={**base.states, self.GOLD.key: gold_state},
            reads={
                **base.reads,
                (self.GOLD.key, "f_gold"): (Read("v_gold", ORDERS, "gold_main.json: v_gold"),),
            },
        )
        return replace(both, **more)  # type: ignore[arg-type]

    def test_reader_starts_after_copy_of_source_and_source_flows_wait_for_reader(
        self,
    ) -> None:
        first, second = plan(self.facts(None, TargetState(STARTED)), self.gold(), dataflow()).targets
        assert (first.target, first.phase, second.phase) == (ORDERS, "copying", "later")
        assert first.flows[0].action == "wait"
        assert second.steps == ()

    def test_reader_records_baseline_before_source_flows_start(self) -> None:
        planned = plan(self.facts(TableFacts(ORDERS, "orders-id", 1), COPIED), self.gold(), dataflow())
        first, second = planned.targets
        assert first.flows[0].action == "start"
        assert isinstance(planned.steps[0], RecordStart)
        assert second.migration_start is not None
        assert second.migration_start.baselines[ORDERS.key].version == 1
        assert second.flows[0].action == "wait"

    def test_source_that_project_creates_later_needs_explicit_start(self) -> None:
        plain = dataflow(migration=None)
        _, second = plan(self.facts(None, TargetState()), self.gold(), plain).targets
        check(second.refusals[0], "PRODUCED_SOURCE_MISSING", source=ORDERS)

    def test_full_refresh_that_reader_would_process_twice_is_refused(self) -> None:
        orders = TableFacts(ORDERS, "orders-id", 4)
        migration_start = MigrationStart(
            "p",
            self.GOLD,
            PinnedCopy(self.GOLD_LEGACY, "gold-id", 0),
            {ORDERS.key: Baseline(ORDERS, "orders-id", 1)},
            NOW,
        )
        both = frozenset({ORDERS.key, self.GOLD.key})
        known = self.facts(orders, COPIED, TargetState(migration_start, Tracking({}, 0)))
        first, _ = plan(known, self.gold(), dataflow(), full_refresh=both).targets
        check(first.refusals[0], "REFRESH_REPEATS_ROWS_OF_MIGRATED_READER", reader="gold.orders", version=2)
        known, plain = self.facts(orders, COPIED), self.gold(migration=False)
        first, _ = plan(known, plain, dataflow(), full_refresh=frozenset({ORDERS.key})).targets
        check(first.refusals[0], "REFRESH_REPEATS_ROWS_OF_READER", reader="gold.orders")
        assert not plan(known, plain, dataflow(), full_refresh=both).refusals

    def test_copy_that_reader_would_process_as_new_rows_is_refused(self) -> None:
        """The reader started while the spec of its source was skipped or had no migration."""
        orders = TableFacts(ORDERS, "orders-id", 4)
        copy = PinnedCopy(self.GOLD_LEGACY, "gold-id", 0)
        begun = MigrationStart("p", self.GOLD, copy, {ORDERS.key: Baseline(ORDERS, "orders-id", 1)}, NOW)
        both = (self.gold(), dataflow())
        found = self.facts(orders, TargetState(), TargetState(begun, Tracking({}, 0)))
        first, _ = plan(found, *both).targets
        assert first.steps == ()
        (refusal,) = first.refusals
        check(refusal, "READER_WOULD_TAKE_HISTORY", reader="gold.orders", target=ORDERS)
        finished = (self.gold(migration=False), dataflow())
        first, _ = plan(self.facts(orders, TargetState(), TargetState(finished=True)), *finished).targets
        assert names(first.refusals) == ["READER_WOULD_TAKE_HISTORY"]
        # An explicit start of the reader, or another source, makes the copy safe.
        reads = {**found.reads, (self.GOLD.key, "f_gold"): (Read("v_gold", ORDERS, "x", 0),)}
        assert not plan(replace(found, reads=reads), *both).targets[0].refusals
        reads = {**found.reads, (self.GOLD.key, "f_gold"): (Read("v_gold", OTHER, "x"),)}
        assert not plan(replace(found, reads=reads), *both).targets[0].refusals
        # A reader without its own history reads all rows, and a started migration continues.
        assert not plan(self.facts(orders, TargetState()), *finished).targets[0].refusals
        started = self.facts(orders, TargetState(STARTED), TargetState(begun, Tracking({}, 0)))
        assert not plan(started, *both).targets[0].refusals

    def test_looked_up_table_is_filled_before_its_reader(self) -> None:
        lookup = View("v_gold", "stream", SqlSource("SELECT * FROM STREAM(bronze.x) JOIN silver.orders"), "x")
        reads = {(self.GOLD.key, "f_gold"): (Read("v_gold", OTHER, "x"),)}
        gold = replace(self.gold(migration=False), views={"v_gold": lookup})
        planned = plan(replace(self.facts(None, TargetState()), reads=reads), gold, dataflow(migration=None))
        assert [target.target for target in planned.targets] == [ORDERS, self.GOLD]

    def test_source_with_explicit_starts_is_read_from_its_start(self) -> None:
        plain = dataflow(migration=None)
        known = self.facts(None, TargetState())
        reads = {**known.reads, (ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "x", 3),)}
        _, second = plan(replace(known, reads=reads), self.gold(), plain).targets
        assert second.refusals == ()
        assert second.phase == "new"
        assert second.flows[0].starts == {}


def test_properties_for_databricks_are_noted_elsewhere_and_row_filter_is_refused() -> None:
    target = plan_target(facts(), dataflow(target=Target(ORDERS, cluster_auto=True)))
    assert target.notes == ("clusterByAuto is for Databricks: elsewhere silver.orders isn't clustered",)
    filtered = dataflow(
        target=Target(ORDERS, row_filter="only_mine ON (id)", location="orders_main.json: here")
    )
    (refusal,) = plan_target(facts(), filtered).refusals
    check(refusal, "ROW_FILTER_NOT_OUTSIDE_DATABRICKS", location="orders_main.json: here", table=ORDERS)
    assert not plan_target(facts(), filtered, engine="databricks").refusals


def test_plan_shows_each_finding_with_its_condition_and_its_remedy_on_the_next_line() -> None:
    planned = plan(facts(source=None))
    out = StringIO()
    print_plan(Console(file=out, width=300), planned)
    lines = out.getvalue().splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("  ! "))
    assert lines[first] == (
        "  ! [SOURCE_TABLE_MISSING] orders_main.json: v_orders: Table bronze.orders doesn't exist."
    )
    assert lines[first + 1] == "    Restore it, or correct the spec."
    [target] = plan_data(planned)["targets"]
    assert target["refusals"][0]["condition"] == "SOURCE_TABLE_MISSING"
    assert target["refusals"][0]["parameters"]["source"] == "bronze.orders"
    waiting = plan_data(plan(facts(stored=COPIED)))["targets"][0]["waitingFor"]
    assert [wait["why"]["condition"] for wait in waiting] == ["SOURCE_AT_BASELINE"]


CDC = Target(ORDERS, cdc=CdcSettings(("id",), "at", 1), location="orders_main.json: targetDetails")


@pytest.mark.parametrize(
    "stored", [TargetState(), TargetState(STARTED), COPIED], ids=["new", "begun", "copied"]
)
def test_streaming_cdc_is_refused_through_spark_connect(stored: TargetState) -> None:
    flows = dataflow(target=CDC, flows=(replace(FLOW, kind="cdc"),))
    target = plan_target(facts(stored=stored), flows, through_connect=True)
    (refusal,) = target.refusals
    check(
        refusal,
        "STREAMING_CDC_THROUGH_CONNECT",
        location="orders_main.json: flow",
        flow="f_orders",
        target=ORDERS,
    )
    assert "--engine databricks" in refusal.remedy
    assert (target.phase, target.steps) == ("refused", ())
    assert plan_target(facts(stored=stored), flows).refusals == ()
    # A pipeline applies AUTO CDC itself.
    assert plan_target(facts(stored=stored), flows, engine="databricks", through_connect=True).refusals == ()


@pytest.mark.parametrize(
    "flows",
    [
        pytest.param(dataflow(), id="append"),
        pytest.param(dataflow(target=CDC, flows=(replace(FLOW, kind="cdc", once=True),)), id="run-once CDC"),
    ],
)
def test_other_flows_run_through_spark_connect(flows: DataFlow) -> None:
    target = plan_target(facts(), flows, through_connect=True)
    assert target.refusals == ()
    assert target.copy


@pytest.mark.parametrize(
    ("stored", "flow", "condition"),
    [
        pytest.param(COPIED, dataflow(), "NOT_TAKEN_OVER", id="copied"),
        pytest.param(TargetState(finished=True), TAKEN_OVER, "UNDO_AFTER_FINISH", id="finished"),
        pytest.param(TargetState(), TAKEN_OVER, "NOTHING_TAKEN_OVER_YET", id="not begun"),
        pytest.param(
            TargetState(TAKEN, Tracking({}, 0, engine="databricks")),
            TAKEN_OVER,
            "UNDO_BY_OTHER_ENGINE",
            id="other engine",
        ),
    ],
)
def test_undo_is_refused_without_take_over_by_streaming_engine(
    stored: TargetState, flow: DataFlow, condition: str
) -> None:
    known = taken_over(stored=stored)
    with raises(condition, target=ORDERS):
        check_undo(plan(known, flow), known)
