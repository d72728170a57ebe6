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
)

from tableferry.pipelines.flows import CdcSettings, Target
from tableferry.pipelines.plans import HISTORY_FLOW, Checkpoint, TargetPlan
from tableferry.pipelines.state import Stored
from tableferry.pipelines.steps import DefineAppend, DefineTable, DefineView, RenameFlow
from tableferry.tables import TableFacts

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
    assert "silver.orders: its pipeline drops and rebuilds it: start an update" in target.refusals[0]


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
