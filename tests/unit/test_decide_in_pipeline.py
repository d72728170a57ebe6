"""What is decided otherwise where a declarative pipeline runs the flows."""

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
    only,
    plan,
    view,
)

from tableferry.errors import Finding
from tableferry.pipelines.model.facts import Checkpoint, Facts
from tableferry.pipelines.model.flows import CdcSettings, DataFlow, Migration, Target
from tableferry.pipelines.model.identities import FlowIdentity, Recorded, TableIdentity
from tableferry.pipelines.model.plan import HISTORY_FLOW, TargetPlan
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.steps import (
    DefineAppend,
    DefineTable,
    DefineView,
    Recognise,
    RenameFlow,
    Reset,
)
from tableferry.pipelines.model.target_state import Stored
from tableferry.spark.tables import TableFacts, TableName

MOVED_ON = TableFacts(SOURCE, "source-id", 6)
RAN = Checkpoint(done=True, others=True, offered=0, committed=0)


def defined(target: TargetPlan) -> list[tuple[str, bool]]:
    return [(step.flow.name, step.once) for step in target.steps if isinstance(step, DefineAppend)]


@pytest.mark.parametrize("engine", ["databricks", "declarative"])
def test_live_flows_wait_until_the_copy_is_compared(engine: str) -> None:
    target = only(facts(source=MOVED_ON, stored=Stored(STARTED)), engine=engine)
    assert target.phase == "copying"
    assert defined(target) == [(HISTORY_FLOW, True)]
    (wait,) = target.waits
    check(wait.why, "LEGACY_TABLE_NOT_COPIED", source=LEGACY)
    target = only(facts(source=MOVED_ON, stored=COPIED), engine=engine)
    assert target.phase == "ready"
    assert defined(target) == [(HISTORY_FLOW, True), (FLOW.name, False)]


def test_the_copy_stays_in_the_pipeline_for_a_full_refresh_until_the_migration_is_finished() -> None:
    running = facts(source=MOVED_ON, stored=COPIED, checkpoint=RAN)
    assert defined(only(running, engine="databricks")) == [(HISTORY_FLOW, True), (FLOW.name, False)]
    assert defined(only(running)) == [(FLOW.name, False)]
    finished = replace(running, stored={ORDERS.key: Stored(finished=True)})
    assert defined(only(finished, engine="databricks")) == [(FLOW.name, False)]


def test_a_flow_is_never_left_out_again_and_keeps_its_start() -> None:
    running = facts(source=MOVED_ON, stored=COPIED, checkpoint=RAN)
    target = only(running, engine="databricks")
    assert target.phase == "complete"
    assert [flow.action for flow in target.flows] == ["continue"]
    views = {step.view.name: step.starts for step in target.steps if isinstance(step, DefineView)}
    assert views["v_orders"] == {SOURCE.key: 6}
    assert [step.create for step in target.steps if isinstance(step, DefineTable)] == [True]


def test_source_known_by_name_alone_is_the_recorded_one() -> None:
    # While a pipeline's file is loaded, Databricks may report no more of a table than its version.
    named = replace(MOVED_ON, table_id="")
    assert only(facts(stored=COPIED, source=named), engine="databricks").refusals == ()
    (refusal,) = only(
        facts(stored=COPIED, source=replace(named, table_id="another")), engine="databricks"
    ).refusals
    check(refusal, "SOURCE_RECREATED", source=SOURCE)


def test_run_once_flows_of_the_spec_s_own_are_the_platform_s_to_run_once() -> None:
    once = dataflow(flows=(replace(FLOW, once=True),))
    done = facts(stored=COPIED, checkpoint=Checkpoint(done=True))
    assert (FLOW.name, True) in defined(only(done, once, engine="databricks"))
    assert only(done, once).steps == ()


def test_a_full_refresh_is_the_pipeline_s_own() -> None:
    target = only(facts(stored=COPIED), engine="databricks", full_refresh=frozenset({ORDERS.key}))
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
        # What is appended once there has to be a batch.
        ("databricks", False, True, False),
        ("streaming", True, True, False),
    ],
)
def test_the_copy_streams_a_clone_where_a_flow_has_to_be_a_stream(
    engine: str, cdc: bool, pinned_clone: bool, clone: bool
) -> None:
    settings = CdcSettings(("id",), "at", 2) if cdc else None
    migration = Migration(LEGACY, "hms", pinned_clone=pinned_clone)
    flow = dataflow(target=Target(ORDERS, settings), migration=migration)
    target = only(facts(stored=Stored(STARTED)), flow, engine=engine)
    assert target.clone == (TableName.parse("silver.orders__tableferry_pinned") if clone else None)


PROTECTED = {"pipelines.reset.allowed": "false"}


@pytest.mark.parametrize(
    ("stored", "engine", "switched_on", "properties"),
    [
        (Stored(STARTED), "databricks", True, PROTECTED),
        (COPIED, "declarative", True, PROTECTED),
        # Nothing would bring the history back any more, whatever the spec has of the migration.
        (Stored(finished=True), "databricks", True, PROTECTED),
        (Stored(finished=True), "databricks", False, PROTECTED),
        # What never had a history has all that its sources hold.
        (Stored(), "databricks", False, {}),
        # `run --full-refresh` reads all that it copies before it drops a row.
        (COPIED, "streaming", True, {}),
    ],
)
def test_a_pipeline_may_not_drop_a_copied_history(
    stored: Stored, engine: str, switched_on: bool, properties: dict[str, str]
) -> None:
    staging = Target(TableName.parse("silver.staging"))
    migration = dataflow().migration if switched_on else None
    flow = dataflow(staging=(staging,), migration=migration)
    tables = [
        step.target.properties
        for step in only(facts(source=MOVED_ON, stored=stored), flow, engine=engine).steps
        if isinstance(step, DefineTable)
    ]
    # Rows of a staging table that come again would come twice into a target that keeps what it has.
    assert tables == [properties, properties]


def feeding(**properties: str) -> DataFlow:
    """A spec without a migration, whose table the migrated one reads."""
    table = Target(SOURCE, properties=properties, location="source_main.json: targetDetails")
    flow = replace(FLOW, name="f_source", target=SOURCE, view="v_raw")
    raw = view("v_raw", TableName.parse("raw.orders"))
    return dataflow(target=table, views={"v_raw": raw}, flows=(flow,), migration=None)


def test_what_a_kept_table_reads_from_the_pipeline_is_kept_too() -> None:
    # Else the platform ends every update with INVALID_RESETTABLE_DEPENDENCY.
    def properties(*flows: DataFlow) -> dict[str, dict[str, str]]:
        known = facts(source=None, stored=COPIED)
        steps = plan(known, *flows, engine="databricks").steps
        return {
            str(step.target.name): dict(step.target.properties)
            for step in steps
            if isinstance(step, DefineTable)
        }

    assert properties(feeding(), dataflow()) == {"bronze.orders": PROTECTED, "silver.orders": PROTECTED}
    open_ = Target(ORDERS, properties={"pipelines.reset.allowed": "true"})
    assert properties(feeding(), dataflow(target=open_))["bronze.orders"] == {}


def test_a_kept_table_that_reads_one_that_may_be_refreshed_is_refused() -> None:
    known = facts(source=None, stored=COPIED)
    planned = plan(known, feeding(**{"pipelines.reset.allowed": "true"}), dataflow(), engine="databricks")
    (refusal,) = planned.refusals
    check(refusal, "RESET_ALLOWED_CONTRADICTS_READER", table=SOURCE, reader=ORDERS)
    check(refusal, "RESET_ALLOWED_CONTRADICTS_READER", location="source_main.json: targetDetails")


def test_the_spec_may_allow_a_full_refresh() -> None:
    allowed = Target(ORDERS, properties={"pipelines.reset.allowed": "true", "a": "b"})
    target = only(facts(stored=COPIED), dataflow(target=allowed), engine="databricks")
    assert [step.target.properties for step in target.steps if isinstance(step, DefineTable)] == [
        {"pipelines.reset.allowed": "true", "a": "b"}
    ]


def test_a_start_that_is_gone_is_refused_until_the_flow_has_started() -> None:
    gone = {SOURCE.key: 7}
    late = facts(source=TableFacts(SOURCE, "source-id", 9), stored=COPIED, earliest=gone)
    check(only(late, engine="databricks").refusals[0], "BASELINE_NOT_READABLE", source=SOURCE, version=6)
    started = facts(source=TableFacts(SOURCE, "source-id", 9), stored=COPIED, checkpoint=RAN, earliest=gone)
    assert only(started, engine="databricks").refusals == ()


def test_what_nobody_can_ask_while_a_pipeline_is_defined_refuses_nothing() -> None:
    unknown = facts(
        source=replace(MOVED_ON, table_id=""),
        legacy=TableFacts(LEGACY, "", 9),
        stored=Stored(STARTED),
    )
    assert only(unknown, engine="declarative").refusals == ()


def test_a_flow_that_the_pipeline_would_take_for_a_new_one_is_refused() -> None:
    tracking = replace(COPIED.tracking, started=("f_old",)) if COPIED.tracking else None
    gone = facts(source=MOVED_ON, stored=replace(COPIED, tracking=tracking))
    refused = only(gone, engine="databricks")
    assert refused.steps == ()
    (refusal,) = refused.refusals
    check(refusal, "PIPELINE_FLOW_RENAMED", location="orders_main.json: flow", flow="f_orders", first="f_old")
    assert not any(isinstance(step, RenameFlow) for step in only(gone, engine="databricks").steps)


@pytest.mark.parametrize(
    ("recorded", "is_refused"),
    [
        # An earlier release recorded no sources.
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
    known = facts(source=MOVED_ON, stored=replace(COPIED, tracking=tracking), explicit=6)
    flows = {} if recorded is None else {"f_old": FlowIdentity({}, recorded)}
    identity = TableIdentity("orders-id", 0, flows, "silver.orders_legacy@9", {})
    known = replace(known, recorded={ORDERS.key: Recorded("orders-id", None, identity)})
    target = only(known, engine="databricks")
    if not is_refused:
        assert target.refusals == ()
        return
    [refusal] = target.refusals
    check(refusal, "PIPELINE_FLOW_RENAMED", flow="f_orders", first="f_old")
    assert (
        "keep f_old in the spec with enabled: false, and give readerOptions.startingVersion" in refusal.remedy
    )
    # The remedy: the old flow stays in the spec, so the new one is another flow.
    kept = dataflow(disabled=frozenset({"f_old"}))
    assert only(known, kept, engine="databricks").refusals == ()
    # While the pipeline defines its flows, the ids of its sources are unknown.
    unknown = {**known.tables, SOURCE.key: replace(MOVED_ON, table_id="")}
    assert only(replace(known, tables=unknown), engine="databricks").refusals == ()


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
        source=MOVED_ON,
        stored=Stored(finished=True, finished_by="databricks"),
        explicit=explicit,
        recorded={ORDERS.key: Recorded("orders-id", None, identity)},
    )
    found = [refusal.condition for refusal in only(known, engine="databricks").refusals]
    assert found == (["PIPELINE_FLOW_RENAMED"] if is_refused else [])
    kept = dataflow(disabled=frozenset({"f_old"}))
    assert only(known, kept, engine="databricks").refusals == ()


@pytest.mark.parametrize(("recorded", "is_refused"), [({}, True), ({OTHER.key: "other-id"}, False)])
def test_renamed_flow_of_a_topic_with_a_start_is_refused_in_a_pipeline_if_it_may_read_it_again(
    recorded: dict[str, str], is_refused: bool
) -> None:
    tracking = replace(COPIED.tracking, started=("f_old",)) if COPIED.tracking else None
    topic = Read(
        "v_orders", SOURCE, "orders_main.json: v_orders", 6, unseen=Finding("OTHER_ERROR", reason="x")
    )
    identity = TableIdentity("orders-id", 0, {"f_old": FlowIdentity({}, recorded)}, "", {})
    known = facts(
        source=MOVED_ON,
        stored=replace(COPIED, tracking=tracking),
        reads={(ORDERS.key, "f_orders"): (topic,)},
        recorded={ORDERS.key: Recorded("orders-id", None, identity)},
    )
    found = [refusal.condition for refusal in only(known, engine="databricks").refusals]
    assert found == (["PIPELINE_FLOW_RENAMED"] if is_refused else [])


def test_what_a_pipeline_of_spark_s_own_cannot_do_is_refused_before_anything_starts() -> None:
    once = dataflow(
        flows=(replace(FLOW, once=True),),
        target=Target(ORDERS, CdcSettings(("id",), "at", 2), location="orders_main.json: targetDetails"),
    )
    refused = only(facts(), once, engine="declarative")
    assert refused.steps == ()
    cdc, once_only = refused.refusals
    check(cdc, "AUTO_CDC_NOT_IN_SPARKS_OWN", location="orders_main.json: targetDetails", table=ORDERS)
    check(once_only, "ONCE_NOT_IN_SPARKS_OWN", location="orders_main.json: flow: f_orders")
    assert only(facts(), once, engine="databricks").refusals == ()


def filled_by(engine: str, *started: str) -> Stored:
    """What is stored of a copied target that an engine has filled."""
    assert COPIED.tracking
    return replace(COPIED, tracking=replace(COPIED.tracking, engine=engine, started=started))


@pytest.mark.parametrize(
    ("stored", "engine", "parameters"),
    [
        (
            filled_by("databricks", FLOW.name),
            "streaming",
            {
                "recorded": "a pipeline on Databricks",
                "engine": "The streaming engine",
                "option": "--engine databricks",
                "advice": "rebuild it with --full-refresh silver.orders",
            },
        ),
        # A release before this recorded only which flows a pipeline has run.
        (
            filled_by("", FLOW.name),
            "streaming",
            {"recorded": "a pipeline", "option": "the same --engine as before"},
        ),
        (
            filled_by("declarative"),
            "databricks",
            {"recorded": "a pipeline of Spark's own", "engine": "A pipeline on Databricks"},
        ),
        (
            filled_by("streaming"),
            "declarative",
            {
                "recorded": "the streaming engine",
                "option": "--engine streaming",
                "advice": "drop silver.orders and its folders under /state/tracking and /state/checkpoints, "
                "and the pipeline fills it again from its baselines",
            },
        ),
        (
            Stored(finished=True, finished_by="databricks"),
            "streaming",
            {"recorded": "a pipeline on Databricks"},
        ),
        (
            Stored(finished=True, finished_by="streaming"),
            "databricks",
            {
                "advice": "drop silver.orders and its folder under /state/checkpoints, and the pipeline "
                "fills it with the rows that its sources still have"
            },
        ),
    ],
)
def test_another_engine_would_bring_rows_twice(
    stored: Stored, engine: str, parameters: dict[str, str]
) -> None:
    target = only(facts(source=MOVED_ON, stored=stored, state="/state"), engine=engine)
    assert (target.phase, target.steps) == ("refused", ())
    check(target.refusals[0], "ENGINE_CHANGED", **parameters)


def test_what_the_same_engine_has_filled_goes_on() -> None:
    for engine in ("streaming", "databricks", "declarative"):
        for stored in (filled_by(engine), filled_by(""), Stored(finished=True, finished_by=engine)):
            assert only(facts(source=MOVED_ON, stored=stored), engine=engine).refusals == ()
    for engine in ("databricks", "declarative"):
        ran = facts(source=MOVED_ON, stored=filled_by("", FLOW.name), checkpoint=RAN)
        assert only(ran, engine=engine).refusals == ()


def test_a_full_refresh_by_the_streaming_engine_makes_the_target_its_own() -> None:
    refresh = frozenset({ORDERS.key})
    found = facts(source=MOVED_ON, stored=filled_by("databricks", FLOW.name))
    assert isinstance(only(found, full_refresh=refresh).steps[0], Reset)
    # It died when the rows were dropped and nothing was copied again.
    dropped = facts(source=MOVED_ON, stored=replace(filled_by("databricks", FLOW.name), generation=1))
    assert only(dropped).refusals == ()
    refusal = only(dropped, engine="databricks").refusals[0]
    check(refusal, "ENGINE_CHANGED", recorded="the streaming engine")


def test_a_table_that_the_streaming_engine_has_filled_is_no_pipeline_s() -> None:
    """What an earlier release left says nothing of engines, but the flows' checkpoints have ids."""
    identity = TableIdentity("orders-id", 0, {FLOW.name: FlowIdentity({}, {}, "query-id")})
    for recorded in (Recorded("orders-id", identity), Recorded("orders-id", None, identity)):
        found = facts(source=MOVED_ON, stored=COPIED, recorded={ORDERS.key: recorded})
        refusal = only(found, engine="databricks").refusals[0]
        check(refusal, "ENGINE_CHANGED", recorded="the streaming engine")


KEYED = CdcSettings(("id",), "at", 1)
CDC_FLOW = replace(FLOW, kind="cdc")
MADE_WITH = {"keys": "id", "scd_type": "1", "sequence_by": "at"}
BOUND = TableIdentity(
    "orders-id", 0, {FLOW.name: FlowIdentity(MADE_WITH, {SOURCE.key: "source-id"})}, f"{LEGACY}@9", MADE_WITH
)
FINISHED = Stored(finished=True, finished_by="databricks")


def keyed(cdc: CdcSettings | None = KEYED, **changes: object) -> DataFlow:
    """A spec whose target is filled by AUTO CDC."""
    target = Target(ORDERS, cdc=cdc, location="orders_main.json: targetDetails")
    return dataflow(target=target, flows=(CDC_FLOW if cdc else FLOW,), **changes)


def known(
    bound: TableIdentity | None = BOUND,
    *,
    table_id: str | None = "orders-id",
    checkpoint: Checkpoint = RAN,
    stored: Stored = COPIED,
) -> Facts:
    """What `prepare` finds: the target's table, unless the id is None, and what is recorded of it."""
    found = facts(source=MOVED_ON, stored=stored, checkpoint=checkpoint, state="/state")
    table = None if table_id is None else TableFacts(ORDERS, table_id, 3)
    recorded = Recorded(table_id, None, bound)
    return replace(found, tables={**found.tables, ORDERS.key: table}, recorded={ORDERS.key: recorded})


def recognised(found: Facts, flow: DataFlow | None = None) -> list[TableIdentity]:
    target = only(found, flow or keyed(), engine="databricks")
    assert target.refusals == ()
    return [step.identity for step in target.state_steps if isinstance(step, Recognise)]


def test_a_table_is_known_again_once_its_copy_is_compared() -> None:
    assert recognised(known(None)) == [BOUND]
    assert recognised(known()) == []
    # A copy that differs is made again, and one that isn't compared may be.
    assert COPIED.tracking
    for stored in (replace(COPIED, tracking=replace(COPIED.tracking, verified="differ")), Stored(STARTED)):
        assert recognised(known(None, stored=stored)) == []
    # What an earlier release has finished is known from now on.
    flow_alone = replace(BOUND, history="")
    assert recognised(known(None, stored=FINISHED)) == [flow_alone]
    # A platform that doesn't say which table it is, and a pipeline that is being defined.
    assert recognised(known(None, table_id="")) == []
    assert recognised(known(BOUND, table_id="")) == []
    assert recognised(replace(known(), recorded={})) == []


def test_a_flow_that_has_brought_nothing_may_still_be_changed() -> None:
    sources = {SOURCE.key: "source-id", "bronze.gone": "gone-id"}
    before = replace(BOUND, flows={FLOW.name: FlowIdentity(MADE_WITH, sources)})
    assert recognised(known(before, checkpoint=Checkpoint())) == [BOUND]
    # One that another spec's owner takes out keeps what is recorded of it.
    more = replace(BOUND, flows={**BOUND.flows, "f_off": FlowIdentity(MADE_WITH, {})})
    assert recognised(known(more)) == []


@pytest.mark.parametrize("stored", [COPIED, FINISHED], ids=["copied", "finished"])
@pytest.mark.parametrize(
    ("found", "flow", "condition", "parameters"),
    [
        (
            {"table_id": "new-id"},
            keyed(),
            "PIPELINE_TABLE_REPLACED",
            {"recorded": "orders-id", "found": "new-id"},
        ),
        ({"table_id": None}, keyed(), "PIPELINE_TABLE_MISSING", {}),
        (
            {},
            keyed(CdcSettings(("id", "v"), "at", 1)),
            "FLOW_SETTINGS_CHANGED",
            {"flow": "f_orders", "before": "keys id", "now": "keys id, v"},
        ),
        (
            {},
            keyed(CdcSettings(("id",), "at", 2)),
            "FLOW_SETTINGS_CHANGED",
            {"before": "scd_type 1", "now": "scd_type 2"},
        ),
        ({}, keyed(None), "FLOW_SETTINGS_CHANGED", {"before": "keys id", "now": "no keys"}),
        (
            {"checkpoint": Checkpoint()},
            keyed(CdcSettings(("id", "v"), "at", 1)),
            "TABLE_SETTINGS_CHANGED",
            {"before": "keys id", "now": "keys id, v"},
        ),
        (
            {"bound": replace(BOUND, flows={FLOW.name: FlowIdentity(MADE_WITH, {"bronze.gone": "gone-id"})})},
            keyed(),
            "FLOW_SETTINGS_CHANGED",
            {"before": "sources bronze.gone", "now": re.compile("sources ")},
        ),
    ],
)
def test_a_pipeline_s_table_is_refused_once_it_is_another_or_its_settings_are(
    found: dict[str, Any], flow: DataFlow, condition: str, parameters: dict[str, Any], stored: Stored
) -> None:
    target = only(known(**found, stored=stored), flow, engine="databricks")
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
    # A pipeline that is being defined can't ask, and the spec may be out of its migration.
    if stored.finished:
        plain = replace(flow, migration=None)
        found_again = only(known(**found, stored=stored), plain, engine="databricks").refusals
        check(found_again[0], condition, **parameters)
    defining = replace(known(**found, stored=stored), recorded={}, tables=facts(source=MOVED_ON).tables)
    assert only(defining, flow, engine="databricks").refusals == ()


def test_a_checkpoint_that_a_pipeline_of_spark_s_own_has_lost_is_refused() -> None:
    stored = filled_by("declarative", FLOW.name)
    lost = facts(source=MOVED_ON, stored=stored)
    target = only(lost, engine="declarative")
    assert (target.phase, target.steps) == ("refused", ())
    (refusal,) = target.refusals
    check(refusal, "PIPELINE_CHECKPOINT_MISSING", location="orders_main.json: flow", flow="f_orders")
    assert "pipelines.reset.allowed to true" in refusal.remedy
    # After a full refresh there is a new one, which may not have brought anything yet.
    for checkpoint in (Checkpoint(id="query-id"), RAN):
        assert only(facts(source=MOVED_ON, stored=stored, checkpoint=checkpoint), engine="declarative").steps
    # Who is being defined can't say.
    assert only(replace(lost, checkpoints={}), engine="declarative").steps
