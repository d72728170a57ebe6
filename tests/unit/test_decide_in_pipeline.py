"""The plan of a target whose flows run in a declarative pipeline."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.conditions import check
from tests.unit.test_decide import (
    COPIED,
    FLOW,
    LEGACY,
    ORDERS,
    OTHER,
    SOURCE,
    STARTED,
    dataflow,
    facts,
    plan,
    plan_target,
    view,
)

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.flows import HISTORY_FLOW, CdcSettings, DataFlow, Migration, Target
from tableferry.pipelines.model.identities import FlowIdentity, TableEvidence, TableIdentity
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.steps import (
    DefineTable,
    DefineView,
    PlannedFlow,
    RecordTableIdentity,
    RenameFlow,
    ResetTarget,
)
from tableferry.pipelines.model.target_state import TargetState
from tableferry.spark.tables import TableFacts, TableName

SOURCE_AFTER_BASELINE = TableFacts(SOURCE, "source-id", 6)
RAN = Checkpoint(done=True, has_untracked_sources=True, offered=0, committed=0)


def list_defined_flows(target: TargetPlan) -> list[tuple[str, bool]]:
    return [(step.name, step.once) for step in target.steps if isinstance(step, PlannedFlow)]


@pytest.mark.parametrize("engine", ["databricks", "declarative"])
def test_live_flows_wait_for_comparison_of_copy(engine: str) -> None:
    target = plan_target(facts(source=SOURCE_AFTER_BASELINE, stored=TargetState(STARTED)), engine=engine)
    assert target.phase == "copying"
    assert list_defined_flows(target) == [(HISTORY_FLOW, True)]
    (wait,) = target.waits
    check(wait.why, "LEGACY_TABLE_NOT_COPIED", source=LEGACY)
    target = plan_target(facts(source=SOURCE_AFTER_BASELINE, stored=COPIED), engine=engine)
    assert target.phase == "ready"
    assert list_defined_flows(target) == [(HISTORY_FLOW, True), (FLOW.name, False)]


def test_pipeline_keeps_copy_flow_until_migration_is_finished() -> None:
    running = facts(source=SOURCE_AFTER_BASELINE, stored=COPIED, checkpoint=RAN)
    assert list_defined_flows(plan_target(running, engine="databricks")) == [
        (HISTORY_FLOW, True),
        (FLOW.name, False),
    ]
    assert list_defined_flows(plan_target(running)) == [(FLOW.name, False)]
    finished = replace(running, states={ORDERS.key: TargetState(finished=True)})
    assert list_defined_flows(plan_target(finished, engine="databricks")) == [(FLOW.name, False)]


def test_started_flow_stays_in_pipeline_and_keeps_start() -> None:
    running = facts(source=SOURCE_AFTER_BASELINE, stored=COPIED, checkpoint=RAN)
    target = plan_target(running, engine="databricks")
    assert target.phase == "complete"
    assert [flow.action for flow in target.flows] == ["continue"]
    views = {step.view.name: step.starts for step in target.steps if isinstance(step, DefineView)}
    assert views["v_orders"] == {SOURCE.key: 6}
    assert [step.create for step in target.steps if isinstance(step, DefineTable)] == [True]


def test_source_without_table_id_counts_as_recorded_one() -> None:
    # While a pipeline's file is loaded, Databricks may report no more of a table than its version.
    named = replace(SOURCE_AFTER_BASELINE, table_id="")
    assert plan_target(facts(stored=COPIED, source=named), engine="databricks").refusals == ()
    (refusal,) = plan_target(
        facts(stored=COPIED, source=replace(named, table_id="another")), engine="databricks"
    ).refusals
    check(refusal, "SOURCE_RECREATED", source=SOURCE)


def test_pipeline_always_defines_run_once_flows_of_spec() -> None:
    once = dataflow(flows=(replace(FLOW, once=True),))
    done = facts(stored=COPIED, checkpoint=Checkpoint(done=True))
    assert (FLOW.name, True) in list_defined_flows(plan_target(done, once, engine="databricks"))
    assert plan_target(done, once).steps == ()


def test_full_refresh_by_run_in_pipeline_is_refused() -> None:
    target = plan_target(facts(stored=COPIED), engine="databricks", full_refresh=frozenset({ORDERS.key}))
    assert target.steps == ()
    (refusal,) = target.refusals
    check(refusal, "REFRESH_BY_PIPELINE", target=ORDERS, property="pipelines.reset.allowed")


@pytest.mark.parametrize(
    ("engine", "cdc", "pinned_clone", "clone"),
    [
        # Flows of Spark's own pipelines are streams, and AUTO CDC on Databricks reads one.
        ("declarative", False, True, True),
        ("declarative", False, False, True),
        ("databricks", True, True, True),
        ("databricks", True, False, False),
        # A run-once flow of the databricks engine without AUTO CDC reads a batch.
        ("databricks", False, True, False),
        ("streaming", True, True, False),
    ],
)
def test_copy_reads_clone_if_engine_needs_stream(
    engine: str, cdc: bool, pinned_clone: bool, clone: bool
) -> None:
    settings = CdcSettings(("id",), "at", 2) if cdc else None
    migration = Migration(LEGACY, "hms", pinned_clone=pinned_clone)
    flow = dataflow(target=Target(ORDERS, settings), migration=migration)
    target = plan_target(facts(stored=TargetState(STARTED)), flow, engine=engine)
    assert target.clone == (TableName.parse("silver.orders__tableferry_pinned") if clone else None)


PROTECTED = {"pipelines.reset.allowed": "false"}


@pytest.mark.parametrize(
    ("stored", "engine", "switched_on", "properties"),
    [
        (TargetState(STARTED), "databricks", True, PROTECTED),
        (COPIED, "declarative", True, PROTECTED),
        # After the migration is finished, nothing can restore the history.
        (TargetState(finished=True), "databricks", True, PROTECTED),
        (TargetState(finished=True), "databricks", False, PROTECTED),
        # A target without a copied history contains only rows of its sources.
        (TargetState(), "databricks", False, {}),
        # `run --full-refresh` reads the whole legacy table before it drops a row.
        (COPIED, "streaming", True, {}),
    ],
)
def test_table_with_copied_history_forbids_full_refresh(
    stored: TargetState, engine: str, switched_on: bool, properties: dict[str, str]
) -> None:
    staging = Target(TableName.parse("silver.staging"))
    migration = dataflow().migration if switched_on else None
    flow = dataflow(staging=(staging,), migration=migration)
    tables = [
        step.target.properties
        for step in plan_target(facts(source=SOURCE_AFTER_BASELINE, stored=stored), flow, engine=engine).steps
        if isinstance(step, DefineTable)
    ]
    # A refreshed staging table would write its rows again into a target that keeps its rows.
    assert tables == [properties, properties]


def source_dataflow(**properties: str) -> DataFlow:
    """Return a spec without a migration, whose table the migrated target reads."""
    table = Target(SOURCE, properties=properties, location="source_main.json: targetDetails")
    flow = replace(FLOW, name="f_source", target=SOURCE, view="v_raw")
    raw = view("v_raw", TableName.parse("raw.orders"))
    return dataflow(target=table, views={"v_raw": raw}, flows=(flow,), migration=None)


def test_table_that_protected_table_reads_forbids_full_refresh() -> None:
    # Otherwise Databricks fails every update with INVALID_RESETTABLE_DEPENDENCY.
    def properties(*flows: DataFlow) -> dict[str, dict[str, str]]:
        known = facts(source=None, stored=COPIED)
        steps = plan(known, *flows, engine="databricks").steps
        return {
            str(step.target.name): dict(step.target.properties)
            for step in steps
            if isinstance(step, DefineTable)
        }

    assert properties(source_dataflow(), dataflow()) == {
        "bronze.orders": PROTECTED,
        "silver.orders": PROTECTED,
    }
    open_ = Target(ORDERS, properties={"pipelines.reset.allowed": "true"})
    assert properties(source_dataflow(), dataflow(target=open_))["bronze.orders"] == {}


def test_protected_table_with_source_that_allows_full_refresh_is_refused() -> None:
    known = facts(source=None, stored=COPIED)
    planned = plan(
        known, source_dataflow(**{"pipelines.reset.allowed": "true"}), dataflow(), engine="databricks"
    )
    (refusal,) = planned.refusals
    check(refusal, "RESET_ALLOWED_CONTRADICTS_READER", table=SOURCE, reader=ORDERS)
    check(refusal, "RESET_ALLOWED_CONTRADICTS_READER", location="source_main.json: targetDetails")


def test_spec_can_allow_full_refresh() -> None:
    allowed = Target(ORDERS, properties={"pipelines.reset.allowed": "true", "a": "b"})
    target = plan_target(facts(stored=COPIED), dataflow(target=allowed), engine="databricks")
    assert [step.target.properties for step in target.steps if isinstance(step, DefineTable)] == [
        {"pipelines.reset.allowed": "true", "a": "b"}
    ]


def test_expired_start_is_refused_until_flow_has_started() -> None:
    gone = {SOURCE.key: 7}
    late = facts(source=TableFacts(SOURCE, "source-id", 9), stored=COPIED, earliest=gone)
    check(
        plan_target(late, engine="databricks").refusals[0], "BASELINE_NOT_READABLE", source=SOURCE, version=6
    )
    started = facts(source=TableFacts(SOURCE, "source-id", 9), stored=COPIED, checkpoint=RAN, earliest=gone)
    assert plan_target(started, engine="databricks").refusals == ()


def test_unknown_checkpoints_of_loading_pipeline_refuse_nothing() -> None:
    unknown = facts(
        source=replace(SOURCE_AFTER_BASELINE, table_id=""),
        legacy=TableFacts(LEGACY, "", 9),
        stored=TargetState(STARTED),
    )
    assert plan_target(unknown, engine="declarative").refusals == ()


def test_renamed_flow_without_start_is_refused_in_a_pipeline() -> None:
    tracking = replace(COPIED.tracking, started=("f_old",)) if COPIED.tracking else None
    gone = facts(source=SOURCE_AFTER_BASELINE, stored=replace(COPIED, tracking=tracking))
    refused = plan_target(gone, engine="databricks")
    assert refused.steps == ()
    (refusal,) = refused.refusals
    check(refusal, "PIPELINE_FLOW_RENAMED", location="orders_main.json: flow", flow="f_orders", first="f_old")
    assert not any(isinstance(step, RenameFlow) for step in plan_target(gone, engine="databricks").steps)


@pytest.mark.parametrize(
    ("recorded", "is_refused"),
    [
        # State of an older version lacks the sources.
        (None, True),
        ({SOURCE.key: "source-id"}, True),
        ({OTHER.key: "other-id", SOURCE.key: "source-id"}, True),
        ({OTHER.key: "other-id"}, False),
        # Files or a topic.
        ({}, False),
    ],
)
def test_renamed_flow_with_a_start_is_refused_in_a_pipeline_if_it_may_read_its_source_again(
    recorded: dict[str, str] | None, is_refused: bool
) -> None:
    tracking = replace(COPIED.tracking, started=("f_old",)) if COPIED.tracking else None
    known = facts(source=SOURCE_AFTER_BASELINE, stored=replace(COPIED, tracking=tracking), explicit=6)
    flows = {} if recorded is None else {"f_old": FlowIdentity({}, recorded)}
    identity = TableIdentity("orders-id", 0, flows, "silver.orders_legacy@9", {})
    known = replace(known, table_evidence={ORDERS.key: TableEvidence("orders-id", None, identity)})
    target = plan_target(known, engine="databricks")
    if not is_refused:
        assert target.refusals == ()
        return
    [refusal] = target.refusals
    check(refusal, "PIPELINE_FLOW_RENAMED", flow="f_orders", first="f_old")
    assert (
        "keep f_old in the spec with enabled: false, and give readerOptions.startingVersion" in refusal.remedy
    )
    # The remedy keeps the old flow in the spec, which makes the other flow a new one.
    kept = dataflow(disabled=frozenset({"f_old"}))
    assert plan_target(known, kept, engine="databricks").refusals == ()
    # A pipeline that loads its files doesn't know the ids of its sources.
    unknown = {**known.tables, SOURCE.key: replace(SOURCE_AFTER_BASELINE, table_id="")}
    assert plan_target(replace(known, tables=unknown), engine="databricks").refusals == ()


@pytest.mark.parametrize("explicit", [None, 6])
@pytest.mark.parametrize(
    ("recorded", "is_refused"),
    [
        ({"f_old": {SOURCE.key: "source-id"}}, True),
        ({"f_old": {SOURCE.key: "source-id"}, "f_orders": {SOURCE.key: "source-id"}}, False),
        ({"f_old": {OTHER.key: "other-id"}}, False),
    ],
)
def test_renamed_flow_is_refused_in_a_pipeline_after_the_migration_is_finished(
    recorded: dict[str, dict[str, str]], is_refused: bool, explicit: int | None
) -> None:
    flows = {name: FlowIdentity({}, sources) for name, sources in recorded.items()}
    identity = TableIdentity("orders-id", 0, flows, "silver.orders_legacy@9", {})
    known = facts(
        source=SOURCE_AFTER_BASELINE,
        stored=TargetState(finished=True, finished_by="databricks"),
        explicit=explicit,
        table_evidence={ORDERS.key: TableEvidence("orders-id", None, identity)},
    )
    found = [refusal.condition for refusal in plan_target(known, engine="databricks").refusals]
    assert found == (["PIPELINE_FLOW_RENAMED"] if is_refused else [])
    kept = dataflow(disabled=frozenset({"f_old"}))
    assert plan_target(known, kept, engine="databricks").refusals == ()


@pytest.mark.parametrize(("recorded", "is_refused"), [({}, True), ({OTHER.key: "other-id"}, False)])
def test_renamed_flow_of_a_topic_with_a_start_is_refused_in_a_pipeline_if_it_may_read_it_again(
    recorded: dict[str, str], is_refused: bool
) -> None:
    tracking = replace(COPIED.tracking, started=("f_old",)) if COPIED.tracking else None
    topic = Read(
        "v_orders", SOURCE, "orders_main.json: v_orders", 6, unmanaged=Finding("OTHER_ERROR", reason="x")
    )
    identity = TableIdentity("orders-id", 0, {"f_old": FlowIdentity({}, recorded)}, "", {})
    known = facts(
        source=SOURCE_AFTER_BASELINE,
        stored=replace(COPIED, tracking=tracking),
        reads={(ORDERS.key, "f_orders"): (topic,)},
        table_evidence={ORDERS.key: TableEvidence("orders-id", None, identity)},
    )
    found = [refusal.condition for refusal in plan_target(known, engine="databricks").refusals]
    assert found == (["PIPELINE_FLOW_RENAMED"] if is_refused else [])


def test_features_missing_in_sparks_own_pipelines_are_refused() -> None:
    once = dataflow(
        flows=(replace(FLOW, once=True),),
        target=Target(ORDERS, CdcSettings(("id",), "at", 2), location="orders_main.json: targetDetails"),
    )
    refused = plan_target(facts(), once, engine="declarative")
    assert refused.steps == ()
    cdc, once_only = refused.refusals
    check(cdc, "AUTO_CDC_NOT_IN_SPARKS_OWN", location="orders_main.json: targetDetails", table=ORDERS)
    check(once_only, "ONCE_NOT_IN_SPARKS_OWN", location="orders_main.json: flow: f_orders")
    assert plan_target(facts(), once, engine="databricks").refusals == ()


def stored_by(engine: str, *started: str) -> TargetState:
    """Return the state of a copied target that an engine has filled."""
    assert COPIED.tracking
    return replace(COPIED, tracking=replace(COPIED.tracking, engine=engine, started=started))


@pytest.mark.parametrize(
    ("stored", "engine", "parameters"),
    [
        (
            stored_by("databricks", FLOW.name),
            "streaming",
            {
                "recorded": "a pipeline on Databricks",
                "engine": "The streaming engine",
                "option": "--engine databricks",
                "alternative": " Or rebuild it with --full-refresh silver.orders.",
            },
        ),
        # State of an older version records only the flows that a pipeline has run.
        (
            stored_by("", FLOW.name),
            "streaming",
            {"recorded": "a pipeline", "option": "the same --engine as before"},
        ),
        (
            stored_by("declarative"),
            "databricks",
            {"recorded": "a pipeline of Spark's own", "engine": "A pipeline on Databricks"},
        ),
        (
            stored_by("streaming"),
            "declarative",
            {
                "recorded": "the streaming engine",
                "option": "--engine streaming",
                "alternative": " Or drop silver.orders and its folders under /state/tracking and "
                "/state/checkpoints, and the pipeline fills it again from its baselines.",
            },
        ),
        (
            TargetState(finished=True, finished_by="databricks"),
            "streaming",
            {"recorded": "a pipeline on Databricks"},
        ),
        (
            TargetState(finished=True, finished_by="streaming"),
            "databricks",
            {
                "alternative": " Or drop silver.orders and its folder under /state/checkpoints, and the "
                "pipeline fills it with the rows that its sources still have."
            },
        ),
    ],
)
def test_other_engine_is_refused(stored: TargetState, engine: str, parameters: dict[str, str]) -> None:
    target = plan_target(facts(source=SOURCE_AFTER_BASELINE, stored=stored, state="/state"), engine=engine)
    assert (target.phase, target.steps) == ("refused", ())
    check(target.refusals[0], "ENGINE_CHANGED", **parameters)


def test_target_continues_with_same_engine() -> None:
    for engine in ("streaming", "databricks", "declarative"):
        for stored in (stored_by(engine), stored_by(""), TargetState(finished=True, finished_by=engine)):
            assert (
                plan_target(facts(source=SOURCE_AFTER_BASELINE, stored=stored), engine=engine).refusals == ()
            )
    for engine in ("databricks", "declarative"):
        ran = facts(source=SOURCE_AFTER_BASELINE, stored=stored_by("", FLOW.name), checkpoint=RAN)
        assert plan_target(ran, engine=engine).refusals == ()


def test_full_refresh_by_streaming_engine_changes_engine() -> None:
    refresh = frozenset({ORDERS.key})
    found = facts(source=SOURCE_AFTER_BASELINE, stored=stored_by("databricks", FLOW.name))
    assert isinstance(plan_target(found, full_refresh=refresh).steps[0], ResetTarget)
    # The refresh stopped after it dropped the rows and before the copy.
    dropped = facts(
        source=SOURCE_AFTER_BASELINE, stored=replace(stored_by("databricks", FLOW.name), generation=1)
    )
    assert plan_target(dropped).refusals == ()
    refusal = plan_target(dropped, engine="databricks").refusals[0]
    check(refusal, "ENGINE_CHANGED", recorded="the streaming engine")


def test_target_with_streaming_checkpoints_is_refused_in_a_pipeline() -> None:
    """State of an older version lacks the engine, but the ids of checkpoints show it."""
    identity = TableIdentity("orders-id", 0, {FLOW.name: FlowIdentity({}, {}, "query-id")})
    for recorded in (TableEvidence("orders-id", identity), TableEvidence("orders-id", None, identity)):
        found = facts(source=SOURCE_AFTER_BASELINE, stored=COPIED, table_evidence={ORDERS.key: recorded})
        refusal = plan_target(found, engine="databricks").refusals[0]
        check(refusal, "ENGINE_CHANGED", recorded="the streaming engine")


KEYED = CdcSettings(("id",), "at", 1)
CDC_FLOW = replace(FLOW, kind="cdc")
MADE_WITH = {"keys": "id", "scd_type": "1", "sequence_by": "at"}
BOUND = TableIdentity(
    "orders-id", 0, {FLOW.name: FlowIdentity(MADE_WITH, {SOURCE.key: "source-id"})}, f"{LEGACY}@9", MADE_WITH
)
FINISHED = TargetState(finished=True, finished_by="databricks")


def cdc_dataflow(cdc: CdcSettings | None = KEYED, **changes: object) -> DataFlow:
    """Return a spec whose target is filled by AUTO CDC."""
    target = Target(ORDERS, cdc=cdc, location="orders_main.json: targetDetails")
    return dataflow(target=target, flows=(CDC_FLOW if cdc else FLOW,), **changes)


def prepared_facts(
    bound: TableIdentity | None = BOUND,
    *,
    table_id: str | None = "orders-id",
    checkpoint: Checkpoint = RAN,
    stored: TargetState = COPIED,
) -> Facts:
    """Return the facts of `prepare`: the target (missing if its id is None) and its recorded identity."""
    found = facts(source=SOURCE_AFTER_BASELINE, stored=stored, checkpoint=checkpoint, state="/state")
    table = None if table_id is None else TableFacts(ORDERS, table_id, 3)
    recorded = TableEvidence(table_id, None, bound)
    return replace(found, tables={**found.tables, ORDERS.key: table}, table_evidence={ORDERS.key: recorded})


def list_recorded_identities(found: Facts, flow: DataFlow | None = None) -> list[TableIdentity]:
    target = plan_target(found, flow or cdc_dataflow(), engine="databricks")
    assert target.refusals == ()
    return [step.identity for step in target.state_steps if isinstance(step, RecordTableIdentity)]


def test_identity_is_recorded_after_comparison_of_copy() -> None:
    assert list_recorded_identities(prepared_facts(None)) == [BOUND]
    assert list_recorded_identities(prepared_facts()) == []
    # A copy that differs, or that wasn't compared, can be rebuilt.
    assert COPIED.tracking
    for stored in (
        replace(COPIED, tracking=replace(COPIED.tracking, verified="differ")),
        TargetState(STARTED),
    ):
        assert list_recorded_identities(prepared_facts(None, stored=stored)) == []
    # A target that an older version has finished gets an identity.
    flow_alone = replace(BOUND, history="")
    assert list_recorded_identities(prepared_facts(None, stored=FINISHED)) == [flow_alone]
    # The platform reports no table id, or the pipeline is loading its files.
    assert list_recorded_identities(prepared_facts(None, table_id="")) == []
    assert list_recorded_identities(prepared_facts(BOUND, table_id="")) == []
    assert list_recorded_identities(replace(prepared_facts(), table_evidence={})) == []


def test_flow_without_batch_can_change_its_recorded_settings() -> None:
    sources = {SOURCE.key: "source-id", "bronze.gone": "gone-id"}
    before = replace(BOUND, flows={FLOW.name: FlowIdentity(MADE_WITH, sources)})
    assert list_recorded_identities(prepared_facts(before, checkpoint=Checkpoint())) == [BOUND]
    # A disabled flow keeps its recorded identity.
    more = replace(BOUND, flows={**BOUND.flows, "f_off": FlowIdentity(MADE_WITH, {})})
    assert list_recorded_identities(prepared_facts(more)) == []


@pytest.mark.parametrize("stored", [COPIED, FINISHED], ids=["copied", "finished"])
@pytest.mark.parametrize(
    ("found", "flow", "condition", "parameters"),
    [
        (
            {"table_id": "new-id"},
            cdc_dataflow(),
            "TARGET_REPLACED",
            {"recorded": "orders-id", "found": "new-id"},
        ),
        ({"table_id": None}, cdc_dataflow(), "TARGET_MISSING", {}),
        (
            {},
            cdc_dataflow(CdcSettings(("id", "v"), "at", 1)),
            "FLOW_SETTINGS_CHANGED",
            {"flow": "f_orders", "before": "keys id", "now": "keys id, v"},
        ),
        (
            {},
            cdc_dataflow(CdcSettings(("id",), "at", 2)),
            "FLOW_SETTINGS_CHANGED",
            {"before": "scd_type 1", "now": "scd_type 2"},
        ),
        ({}, cdc_dataflow(None), "FLOW_SETTINGS_CHANGED", {"before": "keys id", "now": "no keys"}),
        (
            {"checkpoint": Checkpoint()},
            cdc_dataflow(CdcSettings(("id", "v"), "at", 1)),
            "TABLE_SETTINGS_CHANGED",
            {"before": "keys id", "now": "keys id, v"},
        ),
        (
            {"bound": replace(BOUND, flows={FLOW.name: FlowIdentity(MADE_WITH, {"bronze.gone": "gone-id"})})},
            cdc_dataflow(),
            "FLOW_SETTINGS_CHANGED",
            {"before": "sources bronze.gone", "now": re.compile("sources ")},
        ),
    ],
)
def test_pipeline_table_with_other_id_or_settings_is_refused(
    found: dict[str, Any], flow: DataFlow, condition: str, parameters: dict[str, Any], stored: TargetState
) -> None:
    target = plan_target(prepared_facts(**found, stored=stored), flow, engine="databricks")
    assert target.steps == ()
    check(target.refusals[0], condition, **parameters, table=ORDERS)
    if "table_id" in found:
        remedy = (
            "remove the folder of silver.orders under /state/checkpoints, to begin again"
            if stored.finished
            else 'remove "tables" from the state.json of silver.orders under /state/checkpoints and '
            "refresh it in full in its pipeline, for which its tableProperties must set "
            "pipelines.reset.allowed to true"
        )
        assert target.refusals[0].remedy.endswith(f"or {remedy}.")
    # A finished target is checked without a migration in the spec; a pipeline that loads its files isn't.
    if stored.finished:
        plain = replace(flow, migration=None)
        found_again = plan_target(prepared_facts(**found, stored=stored), plain, engine="databricks").refusals
        check(found_again[0], condition, **parameters)
    defining = replace(
        prepared_facts(**found, stored=stored),
        table_evidence={},
        tables=facts(source=SOURCE_AFTER_BASELINE).tables,
    )
    assert plan_target(defining, flow, engine="databricks").refusals == ()


def test_lost_checkpoint_of_sparks_own_pipeline_is_refused() -> None:
    stored = stored_by("declarative", FLOW.name)
    lost = facts(source=SOURCE_AFTER_BASELINE, stored=stored)
    target = plan_target(lost, engine="declarative")
    assert (target.phase, target.steps) == ("refused", ())
    (refusal,) = target.refusals
    check(refusal, "PIPELINE_CHECKPOINT_MISSING", location="orders_main.json: flow", flow="f_orders")
    assert "pipelines.reset.allowed to true" in refusal.remedy
    # After a full refresh the flow has another checkpoint, which may have no batch yet.
    for checkpoint in (Checkpoint(id="query-id"), RAN):
        assert plan_target(
            facts(source=SOURCE_AFTER_BASELINE, stored=stored, checkpoint=checkpoint), engine="declarative"
        ).steps
    # A pipeline that loads its files reports no checkpoints.
    assert plan_target(replace(lost, checkpoints={}), engine="declarative").steps
