"""What is decided otherwise where a declarative pipeline runs the flows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.test_decide import (
    BEGUN,
    COPIED,
    FLOW,
    LEGACY,
    ORDERS,
    SOURCE,
    dataflow,
    facts,
    only,
    plan,
    view,
)

from tableferry.pipelines.flows import CdcSettings, DataFlow, Migration, Target
from tableferry.pipelines.plans import HISTORY_FLOW, Checkpoint, TargetPlan
from tableferry.pipelines.state import Stored
from tableferry.pipelines.steps import DefineAppend, DefineTable, DefineView, RenameFlow
from tableferry.tables import TableFacts, TableName

MOVED_ON = TableFacts(SOURCE, "source-id", 6)
RAN = Checkpoint(done=True, others=True, offered=0, committed=0)


def defined(target: TargetPlan) -> list[tuple[str, bool]]:
    return [(step.flow.name, step.once) for step in target.steps if isinstance(step, DefineAppend)]


@pytest.mark.parametrize("engine", ["databricks", "declarative"])
def test_live_flows_wait_until_the_copy_is_compared(engine: str) -> None:
    target = only(facts(source=MOVED_ON, stored=Stored(BEGUN)), engine=engine)
    assert target.phase == "copying"
    assert defined(target) == [(HISTORY_FLOW, True)]
    assert [(wait.table, wait.why) for wait in target.waits] == [(LEGACY, "isn't copied and compared yet")]
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


def test_run_once_flows_of_the_spec_s_own_are_the_platform_s_to_run_once() -> None:
    once = dataflow(flows=(replace(FLOW, once=True),))
    done = facts(stored=COPIED, checkpoint=Checkpoint(done=True))
    assert (FLOW.name, True) in defined(only(done, once, engine="databricks"))
    assert only(done, once).steps == ()


def test_a_full_refresh_is_the_pipeline_s_own() -> None:
    target = only(facts(stored=COPIED), engine="databricks", full_refresh=frozenset({ORDERS.key}))
    assert target.steps == ()
    assert target.refusals == (
        "silver.orders: its pipeline drops and rebuilds it: start an update of the pipeline with a full "
        "refresh of silver.orders, for which its tableProperties must set pipelines.reset.allowed to true",
    )


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
    target = only(facts(stored=Stored(BEGUN)), flow, engine=engine)
    assert target.clone == (TableName.parse("silver.orders__tableferry_pinned") if clone else None)


PROTECTED = {"pipelines.reset.allowed": "false"}


@pytest.mark.parametrize(
    ("stored", "engine", "switched_on", "properties"),
    [
        (Stored(BEGUN), "databricks", True, PROTECTED),
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
    table = Target(SOURCE, properties=properties, place="source_main.json: targetDetails")
    flow = replace(FLOW, name="f_source", target=SOURCE, view="v_raw")
    raw = view("v_raw", TableName.parse("raw.orders"))
    return dataflow(target=table, views={"v_raw": raw}, flows=(flow,), migration=None)


def test_what_a_kept_table_reads_from_the_pipeline_is_kept_too() -> None:
    # Else the platform ends every update with INVALID_RESETTABLE_DEPENDENCY.
    def properties(*flows: DataFlow) -> dict[str, dict[str, str]]:
        found = facts(source=None, stored=COPIED)
        steps = plan(found, *flows, engine="databricks").steps
        return {
            str(step.target.name): dict(step.target.properties)
            for step in steps
            if isinstance(step, DefineTable)
        }

    assert properties(feeding(), dataflow()) == {"bronze.orders": PROTECTED, "silver.orders": PROTECTED}
    open_ = Target(ORDERS, properties={"pipelines.reset.allowed": "true"})
    assert properties(feeding(), dataflow(target=open_))["bronze.orders"] == {}


def test_a_kept_table_that_reads_one_that_may_be_refreshed_is_refused() -> None:
    found = facts(source=None, stored=COPIED)
    planned = plan(found, feeding(**{"pipelines.reset.allowed": "true"}), dataflow(), engine="databricks")
    assert planned.refusals == (
        "source_main.json: targetDetails: bronze.orders has pipelines.reset.allowed=true, and silver.orders, "
        "which reads it, may not be refreshed in full: set it in both specs, or in neither",
    )


def test_the_spec_may_allow_a_full_refresh() -> None:
    allowed = Target(ORDERS, properties={"pipelines.reset.allowed": "true", "a": "b"})
    target = only(facts(stored=COPIED), dataflow(target=allowed), engine="databricks")
    assert [step.target.properties for step in target.steps if isinstance(step, DefineTable)] == [
        {"pipelines.reset.allowed": "true", "a": "b"}
    ]


def test_a_start_that_is_gone_is_refused_until_the_flow_has_started() -> None:
    gone = {SOURCE.key: 7}
    late = facts(source=TableFacts(SOURCE, "source-id", 9), stored=COPIED, earliest=gone)
    assert "can't be read from version 6 any more" in only(late, engine="databricks").refusals[0]
    started = facts(source=TableFacts(SOURCE, "source-id", 9), stored=COPIED, checkpoint=RAN, earliest=gone)
    assert only(started, engine="databricks").refusals == ()


def test_what_nobody_can_ask_while_a_pipeline_is_defined_refuses_nothing() -> None:
    unknown = facts(
        source=replace(MOVED_ON, table_id=""),
        legacy=TableFacts(LEGACY, "", 9),
        stored=Stored(BEGUN),
    )
    assert only(unknown, engine="declarative").refusals == ()


def test_a_flow_that_the_pipeline_would_take_for_a_new_one_is_refused() -> None:
    tracking = replace(COPIED.tracking, started=("f_old",)) if COPIED.tracking else None
    gone = facts(source=MOVED_ON, stored=replace(COPIED, tracking=tracking))
    refused = only(gone, engine="databricks")
    assert refused.steps == ()
    assert refused.refusals == (
        "orders_main.json: flow: f_orders is new, and f_old, which the pipeline has run, isn't in the spec "
        "any more: the pipeline keeps a flow's checkpoint under its name, so the rows behind the baseline "
        "would come twice: name it f_old again, or give readerOptions.startingVersion",
    )
    own_start = facts(source=MOVED_ON, stored=replace(COPIED, tracking=tracking), explicit=6)
    assert only(own_start, engine="databricks").refusals == ()
    assert not any(isinstance(step, RenameFlow) for step in only(gone, engine="databricks").steps)


def test_what_a_pipeline_of_spark_s_own_cannot_do_is_refused_before_anything_starts() -> None:
    once = dataflow(
        flows=(replace(FLOW, once=True),),
        target=Target(ORDERS, CdcSettings(("id",), "at", 2), place="orders_main.json: targetDetails"),
    )
    refused = only(facts(), once, engine="declarative")
    assert refused.steps == ()
    assert [refusal.split(", which")[0] for refusal in refused.refusals] == [
        "orders_main.json: targetDetails: silver.orders is a target of AUTO CDC",
        "orders_main.json: flow: f_orders runs once",
    ]
    assert only(facts(), once, engine="databricks").refusals == ()
