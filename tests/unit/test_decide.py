"""Decisions from facts alone: what starts, what stays out, what is refused, and that a plan is a function of
its facts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tableferry.pipelines.decide import decide
from tableferry.pipelines.flows import (
    DataFlow,
    DeltaSource,
    Flow,
    HandOverBy,
    Migration,
    Project,
    SqlSource,
    Target,
    View,
)
from tableferry.pipelines.identities import FlowIdentity, Recorded, TableIdentity
from tableferry.pipelines.plans import (
    HISTORY_FLOW,
    Checkpoint,
    Facts,
    HandOver,
    LegacyWrites,
    NoHandOver,
    Plan,
    Request,
    TargetPlan,
)
from tableferry.pipelines.reads import Read
from tableferry.pipelines.source_offsets import Offset
from tableferry.pipelines.state import Baseline, Certainty, MigrationStart, PinnedCopy, Stored, Tracking
from tableferry.pipelines.steps import (
    Adopt,
    AdoptRenamed,
    Begin,
    DefineAppend,
    DefineTable,
    DefineView,
    Forget,
    RenameFlow,
    Reset,
    Start,
)
from tableferry.tables import TableFacts, TableName
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
        "sales",
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
    stored: Stored = Stored(),
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
COPIED = Stored(STARTED, Tracking({SOURCE.key: 5}, 0, 10, "match"))
READ_TO_6 = Checkpoint({"source-id": Offset(7, True)}, offered=1, committed=1)


def plan(known: Facts, *flows: DataFlow, **request: object) -> Plan:
    project = Project("/p", "p", flows or (dataflow(),), "/state")
    return decide(project, known, replace(Request("p", NOW), **request))  # type: ignore[arg-type]


def only(known: Facts, *flows: DataFlow, **request: object) -> TargetPlan:
    (target,) = plan(known, *flows, **request).targets
    return target


def test_a_migration_that_began_for_another_target_is_no_new_one() -> None:
    earlier = {"legacy-id": ("targetTable=silver.old",)}
    target = only(facts(earlier=earlier, state="/state"))
    [refusal] = target.refusals
    assert "a migration of silver.orders_legacy has begun before, for a target that the project no" in refusal
    assert (
        "in the folders targetTable=silver.old under initial_versions, tracking and checkpoints in" in refusal
    )
    assert "If the table was renamed, run with --adopt" in refusal
    assert target.steps == ()
    [missing] = only(facts(earlier=earlier), adopt=True).refusals
    assert "rename the table first (ALTER TABLE ... RENAME TO `silver`.`orders`)" in missing
    existing = {**facts().tables, ORDERS.key: TableFacts(ORDERS, "id", 4)}
    adopting = only(facts(earlier=earlier, tables=existing, filled=frozenset({ORDERS.key})), adopt=True)
    assert (adopting.refusals, adopting.steps) == ((), (AdoptRenamed(ORDERS, "targetTable=silver.old"),))
    # One that goes on has its own.
    assert only(facts(earlier=earlier, stored=COPIED)).refusals == ()


def test_the_first_plan_records_copies_and_leaves_the_live_flow_out() -> None:
    target = only(facts())
    assert target.phase == "new"
    assert target.steps[0] == Begin(STARTED)
    assert [step.flow.name for step in target.steps if isinstance(step, DefineAppend)] == [
        "f_tableferry_history"
    ]
    assert [(wait.table, wait.baseline, wait.current) for wait in target.waits] == [(SOURCE, 5, 5)]


def test_old_streams_say_what_is_copied_and_where_its_flows_start() -> None:
    handed = HandOver(8, {"source-id": 3}, {"query": 12})
    target = only(facts(hand_overs={ORDERS.key: handed}))
    copy = PinnedCopy(LEGACY, "legacy-id", 8)
    baselines = {SOURCE.key: Baseline(SOURCE, "source-id", 3, ("v_orders",))}
    start = replace(STARTED, copy=copy, baselines=baselines, batches={"query": 12}, certainty="recorded")
    assert target.steps[0] == Begin(start)
    assert target.notes[0] == (
        "the hand-over point is recorded by the old streams: batch 12 of their checkpoints"
    )
    (read,) = (step for step in target.steps if isinstance(step, DefineView) and not step.once)
    assert read.starts == {SOURCE.key: 4}

    # Where the user says where a flow starts, nobody needs to know how far the old streams are.
    other = HandOver(8, {}, {"query": 12})
    assert not only(facts(hand_overs={ORDERS.key: other}, explicit=2)).refusals


@pytest.mark.parametrize(
    ("handed", "sentence"),
    [
        (
            NoHandOver("its stream keeps state"),
            "orders_main.json: tableMigrationDetails: its stream keeps state",
        ),
        (
            HandOver(8, {}, {"query": 12}),
            "orders_main.json: v_orders: the old streams of silver.orders_legacy don't read bronze.orders, "
            "so nobody knows which of its rows the history holds: add the checkpoint of the one that does, "
            "or give readerOptions.startingVersion",
        ),
        (
            HandOver(8, {"source-id": 3, "lost-id": 4}, {"query": 12}),
            "orders_main.json: tableMigrationDetails: the old streams of silver.orders_legacy read the Delta "
            "table with the id lost-id, which no flow of silver.orders follows, so what comes into it would "
            "be missing: add it to the spec, or leave its checkpoint out",
        ),
    ],
)
def test_old_streams_of_other_sources_are_refused(handed: HandOver | NoHandOver, sentence: str) -> None:
    target = only(facts(hand_overs={ORDERS.key: handed}))
    assert target.refusals == (sentence,)
    assert target.steps == ()


def by(hand_over: HandOverBy) -> DataFlow:
    (migration,) = filter(None, [dataflow().migration])
    return dataflow(migration=replace(migration, hand_over=hand_over))


def test_a_hand_over_point_that_was_proved_is_recorded_as_such() -> None:
    handed = HandOver(9, {"source-id": 3}, {}, "proved", "silver.orders_legacy@9 holds exactly that")
    target = only(facts(hand_overs={ORDERS.key: handed}), by("content"))
    baselines = {SOURCE.key: Baseline(SOURCE, "source-id", 3, ("v_orders",))}
    assert target.steps[0] == Begin(replace(STARTED, baselines=baselines, certainty="proved"))
    assert target.notes[0].endswith("is proved: silver.orders_legacy@9 holds exactly that")
    # Where nothing is to start, nobody looks for it, and nothing is assumed in its place.
    target = only(facts(), by("content"))
    assert (target.phase, target.steps, target.refusals) == ("new", (), ())
    assert target.notes == ("the hand-over point is looked for by plan and run",)
    # The nearest is shown.
    nearest = Verdict("old", "new", Aggregate(1), Aggregate(2))
    target = only(facts(hand_overs={ORDERS.key: NoHandOver("none fits", nearest)}), by("content"))
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


def test_a_table_is_taken_over_without_a_copy() -> None:
    handed = HandOver(8, {"source-id": 3}, {"query": 12})
    target = only(taken_over(hand_overs={ORDERS.key: handed}), TAKEN_OVER)
    assert target.steps[0] == Begin(TAKEN)
    assert [step.flow.name for step in target.steps if isinstance(step, DefineAppend)] == ["f_orders"]
    assert not any(step.create for step in target.steps if isinstance(step, DefineTable))
    older = HandOver(7, {"source-id": 3}, {"query": 11})
    assert only(taken_over(hand_overs={ORDERS.key: older}), TAKEN_OVER).refusals == (
        "orders_main.json: m: silver.orders is at version 8, and only version 7 could be taken over: let the "
        "old streams take whole commits of their sources, stop them, and run again",
    )
    (refusal,) = only(taken_over(hand_overs={ORDERS.key: handed}), TAKEN_OVER, engine="declarative").refusals
    assert "a pipeline of Spark's own fills none but its own (it has no create_table" in refusal


def test_a_table_that_was_taken_over_is_neither_rebuilt_nor_filled_by_two() -> None:
    stored = Stored(TAKEN, Tracking({SOURCE.key: 5}, 0))
    assert only(taken_over(stored=stored), TAKEN_OVER).phase == "ready"
    (refusal,) = only(taken_over(stored=stored), TAKEN_OVER, full_refresh=frozenset({ORDERS.key})).refusals
    assert "was taken over, so a full refresh would drop its history for good" in refusal
    writes = {ORDERS.key: LegacyWrites({"query": 13}, 9)}
    (refusal,) = only(taken_over(stored=stored, legacy_writes=writes), TAKEN_OVER).refusals
    assert refusal.startswith(
        "silver.orders: its old stream (up to batch 13) has written to it since it was taken over, from "
        "version 9 on"
    )
    assert "RESTORE TABLE `silver`.`orders` TO VERSION AS OF 8" in refusal
    undoing = replace(stored, undoing=True)
    assert only(taken_over(stored=undoing), TAKEN_OVER).refusals == (
        "silver.orders: it's being given back to its old streams: `tableferry pipelines undo` goes on",
    )


def test_a_flow_that_begins_within_a_commit_is_given_its_offset() -> None:
    part = {"source-id": '{"index":2}'}
    handed = HandOver(8, {"source-id": 3}, {"query": 12}, within=part)
    target = only(taken_over(hand_overs={ORDERS.key: handed}), TAKEN_OVER)
    assert str(target.steps[0]).endswith("bronze.orders@3 and a part of 4")
    (flow,) = (step for step in target.steps if isinstance(step, DefineAppend))
    (read,) = (step for step in target.steps if isinstance(step, DefineView))
    assert (flow.seed, read.starts) == ('{"index":2}', {SOURCE.key: None})
    # Once it has begun, its checkpoint says it, which brought nothing by its first two batches.
    baselines = {SOURCE.key: replace(TAKEN.baselines[SOURCE.key], within='{"index":2}')}
    stored = Stored(replace(TAKEN, baselines=baselines), Tracking({SOURCE.key: 5}, 0))
    begun = Checkpoint({"source-id": Offset(4, False)}, offered=1, committed=1, id="own", seeded=True)
    identity = TableIdentity("orders-id", 0, {"f_orders": FlowIdentity({}, {SOURCE.key: "source-id"}, "own")})
    recorded = {ORDERS.key: Recorded("orders-id", identity, identity, {"own": -1})}
    target = only(taken_over(stored=stored, checkpoint=begun, recorded=recorded), TAKEN_OVER)
    assert [flow.action for flow in target.flows] == ["continue"]
    lost = replace(begun, offered=2, committed=2)
    (refusal,) = only(taken_over(stored=stored, checkpoint=lost, recorded=recorded), TAKEN_OVER).refusals
    assert "the checkpoint of f_orders is ahead of silver.orders" in refusal


def test_explicit_starts_are_asked_for_where_the_spec_says_that_it_gives_them() -> None:
    assert only(facts(), by("explicit")).refusals == (
        "orders_main.json: v_orders: handOver explicit needs the start of bronze.orders: give "
        "readerOptions.startingVersion",
    )
    target = only(facts(explicit=3), by("explicit"))
    assert target.notes[0] == ("the hand-over point is assumed: it's what the spec says; --check compares it")


def test_a_table_that_forbids_a_full_refresh_isnt_dropped_by_a_run_either() -> None:
    kept = Target(
        ORDERS, properties={"pipelines.reset.allowed": "false"}, location="orders_main.json: targetDetails"
    )
    target = only(facts(stored=COPIED), dataflow(target=kept), full_refresh=frozenset({ORDERS.key}))
    assert target.refusals == (
        "orders_main.json: targetDetails: silver.orders has pipelines.reset.allowed=false, so its rows can't "
        "be dropped for a full refresh: set it to true in tableProperties first",
    )


def test_the_same_facts_give_the_same_plan() -> None:
    assert plan(facts(stored=COPIED)) == plan(facts(stored=COPIED))


@pytest.mark.parametrize("version", [6, 7])
def test_a_source_that_moved_on_starts_right_behind_its_baseline(version: int) -> None:
    target = only(facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", version)))
    assert target.phase == "ready"
    (read,) = (step for step in target.steps if isinstance(step, DefineView))
    assert read.starts == {SOURCE.key: 6}


@pytest.mark.parametrize(("version", "engine"), [(7, "streaming"), (7, "declarative"), (5, "streaming")])
def test_a_flow_over_two_streams_starts_with_one_of_them(version: int, engine: str) -> None:
    reads = tuple(Read("v_orders", table, "orders_main.json: v_orders") for table in (SOURCE, OTHER))
    baselines = {**STARTED.baselines, OTHER.key: Baseline(OTHER, "other-id", 2, ("v_orders",))}
    known = facts(
        source=TableFacts(SOURCE, "source-id", version),
        stored=Stored(replace(STARTED, baselines=baselines), Tracking({}, 0, 9, "match")),
        reads={(ORDERS.key, "f_orders"): reads},
    )
    known = replace(known, tables={**known.tables, OTHER.key: TableFacts(OTHER, "other-id", 2)})
    target = only(known, engine=engine)
    [flow] = target.flows
    if (version, engine) == (7, "streaming"):
        assert (flow.action, flow.ahead, flow.waits) == ("start", True, ())
        assert flow.starts == {"v_orders": {SOURCE.key: 6, OTHER.key: 3}}
        assert target.notes == (
            "f_orders begins without bronze.extra, which has no commit after its baseline yet",
        )
    else:
        assert flow.action == "wait"
        assert {wait.table for wait in flow.waits} == ({OTHER} if version == 7 else {SOURCE, OTHER})


def test_a_flow_that_began_with_one_stream_minds_what_it_has_not_read_of_the_other() -> None:
    reads = tuple(Read("v_orders", table, "orders_main.json: v_orders") for table in (SOURCE, OTHER))
    baselines = {**STARTED.baselines, OTHER.key: Baseline(OTHER, "other-id", 2, ("v_orders",))}
    started = facts(
        source=TableFacts(SOURCE, "source-id", 6),
        stored=Stored(replace(STARTED, baselines=baselines), Tracking({}, 0, 9, "match")),
        checkpoint=replace(READ_TO_6, others=True),
        reads={(ORDERS.key, "f_orders"): reads},
    )

    def at(version: int, earliest: int = 0) -> TargetPlan:
        tables = {**started.tables, OTHER.key: TableFacts(OTHER, "other-id", version)}
        return only(replace(started, tables=tables, earliest={OTHER.key: earliest}))

    assert [at(version).flows[0].action for version in (2, 3)] == ["idle", "continue"]
    assert at(3).flows[0].starts == {"v_orders": {SOURCE.key: None, OTHER.key: 3}}
    (refusal,) = at(4, earliest=4).refusals
    assert "bronze.extra can't be read from version 3 any more (the oldest is 4)" in refusal


def test_nothing_new_is_nothing_to_do() -> None:
    target = only(facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 6), checkpoint=READ_TO_6))
    assert (target.phase, target.steps) == ("complete", ())


@pytest.mark.parametrize(
    "checkpoint",
    [
        Checkpoint({"source-id": Offset(6, True)}, offered=1, committed=1),
        Checkpoint({"source-id": Offset(7, False)}, offered=1, committed=1),
        replace(READ_TO_6, committed=0),
    ],
    ids=["behind", "in the middle of a commit", "a batch is pending"],
)
def test_a_stream_that_may_have_work_goes_on(checkpoint: Checkpoint) -> None:
    target = only(facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 6), checkpoint=checkpoint))
    assert target.flows[0].action == "continue"


def test_a_copy_that_died_is_made_again_from_the_same_version() -> None:
    moved = facts(
        stored=Stored(STARTED),
        legacy=TableFacts(LEGACY, "legacy-id", 30),
        source=TableFacts(SOURCE, "source-id", 8),
    )
    target = only(moved)
    assert target.phase == "copying"
    assert target.migration_start == STARTED
    assert not [step for step in target.steps if isinstance(step, Begin)]


def test_a_full_refresh_rebuilds_the_same_history() -> None:
    known = facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 8), checkpoint=READ_TO_6)
    target = only(known, full_refresh=frozenset({ORDERS.key}))
    assert target.steps[0] == Reset(ORDERS, (ORDERS,), 1, {ORDERS.key: (HISTORY_FLOW,)})
    assert target.copy
    assert target.flows[0].starts == {"v_orders": {SOURCE.key: 6}}
    assert target.migration_start == STARTED


def test_a_full_refresh_that_died_goes_on() -> None:
    target = only(facts(stored=replace(COPIED, generation=1, resetting=True), checkpoint=READ_TO_6))
    assert target.steps[0] == Reset(ORDERS, (ORDERS,), 1, {ORDERS.key: (HISTORY_FLOW,)})
    assert target.copy


def test_an_explicit_start_wins_and_is_reported() -> None:
    target = only(facts(stored=COPIED, explicit=2))
    assert target.flows[0].starts == {"v_orders": {SOURCE.key: 2}}
    assert "v_orders starts at 2 of bronze.orders, as the spec says" in target.notes


def test_an_explicit_start_that_is_not_there_yet_waits() -> None:
    assert only(facts(stored=COPIED, explicit=6)).flows[0].action == "wait"


def test_without_automatic_versions_a_missing_start_is_a_warning_with_figures() -> None:
    flow = dataflow(migration=Migration(LEGACY, "hms", auto_starting_versions=False))
    target = only(facts(rows={SOURCE.key: 1234}), flow)
    assert any("from its start (6 commits, 1,234 rows)" in note for note in target.notes)
    assert target.flows[0].action == "start"
    assert target.migration_start is not None
    assert target.migration_start.baselines == {}


def test_a_view_that_was_renamed_keeps_its_source_s_baseline() -> None:
    renamed = dataflow(
        views={"v_new": view("v_new", SOURCE)}, flows=(replace(FLOW, view="v_new", name="f_new"),)
    )
    read = Read("v_new", SOURCE, "orders_main.json: v_new")
    known = facts(
        stored=COPIED, source=TableFacts(SOURCE, "source-id", 7), reads={(ORDERS.key, "f_new"): (read,)}
    )
    assert only(known, renamed).flows[0].starts == {"v_new": {SOURCE.key: 6}}


def test_a_standard_flow_whose_view_was_renamed_goes_on_from_its_checkpoint() -> None:
    renamed = dataflow(
        views={"v_new": view("v_new", SOURCE)}, flows=(replace(FLOW, view="v_new", name="f_v_new"),)
    )
    read = Read("v_new", SOURCE, "orders_main.json: v_new")
    known = facts(
        stored=COPIED,
        source=TableFacts(SOURCE, "source-id", 6),
        reads={(ORDERS.key, "f_v_new"): (read,)},
        checkpoints={},
        orphans={ORDERS.key: {"f_orders": READ_TO_6}},
    )
    target = only(known, renamed)
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
        orphans={ORDERS.key: {"f_orders": READ_TO_6}},
        state="/state",
    )
    target = only(known, renamed)
    if not is_refused:
        assert (target.refusals, target.flows[0].starts) == ((), {"v_new": {SOURCE.key: start}})
        return
    [refusal] = target.refusals
    assert refusal == (
        f"orders_main.json: flow: f_v_new starts at {start} of bronze.orders, and f_orders, which the spec "
        "no longer has, has read it up to version 6, so rows may come twice: name it f_orders to let it "
        "continue, or start it at version 7 or later. If its rows must come again, remove the folder of "
        "f_orders under /state/checkpoints"
    )
    # After the folder is removed, the flow starts where the spec says.
    assert only(replace(known, orphans={}), renamed).refusals == ()
    # A full refresh drops the rows and all checkpoints.
    if start != "latest":
        assert only(known, renamed, full_refresh=frozenset({ORDERS.key})).refusals == ()


@pytest.mark.parametrize(
    "earlier", [READ_TO_6, Checkpoint({"source-id": Offset(7, True)}, offered=0), Checkpoint(done=True)]
)
def test_migration_of_target_whose_flows_have_run_before_is_refused(earlier: Checkpoint) -> None:
    known = facts(checkpoint=earlier)
    target = only(known)
    assert target.refusals == (
        "orders_main.json: tableMigrationDetails: f_orders has run before the migration of silver.orders "
        "began, so it would continue there and not after the baselines: empty silver.orders, then run with "
        "--full-refresh silver.orders",
    )
    assert target.steps == ()
    begun = only(known, full_refresh=frozenset({ORDERS.key}))
    assert begun.refusals == ()
    assert [type(step) for step in begun.steps[:2]] == [Begin, Reset]
    # A checkpoint that has no batch yet has read nothing.
    assert only(facts(checkpoint=Checkpoint(id="query"))).refusals == ()


REFUSALS = {
    "the legacy table is missing": (facts(legacy=None), "table silver.orders_legacy doesn't exist"),
    "the source is missing": (facts(source=None), "table bronze.orders doesn't exist"),
    "the target has other data": (
        facts(filled=frozenset({ORDERS.key})),
        "already has data that this migration didn't bring",
    ),
    "the source was made anew": (
        facts(stored=COPIED, source=TableFacts(SOURCE, "new-id", 2)),
        "bronze.orders was dropped and made anew",
    ),
    "the legacy table was made anew before the copy": (
        facts(stored=Stored(STARTED), legacy=TableFacts(LEGACY, "new-id", 0)),
        "silver.orders_legacy was dropped and made anew",
    ),
    "the next version is gone": (
        facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 9), earliest={SOURCE.key: 8}),
        "can't be read from version 6 any more (the oldest is 8)",
    ),
    "the state is another pipeline's": (
        facts(stored=Stored(elsewhere=("old",))),
        "run with --adopt to go on from there",
    ),
    "another legacy table is named now": (
        facts(stored=replace(COPIED, migration_start=replace(STARTED, copy=PinnedCopy(OTHER, "x", 1)))),
        "began with bronze.extra, and the spec now names silver.orders_legacy",
    ),
}


@pytest.mark.parametrize("case", REFUSALS, ids=list(REFUSALS))
def test_what_cannot_be_done_safely_is_refused_with_a_remedy_and_without_steps(case: str) -> None:
    known, text = REFUSALS[case]
    target = only(known)
    assert any(text in refusal for refusal in target.refusals), target.refusals
    assert (target.phase, target.steps) == ("refused", ())


def test_a_source_that_joins_later_is_asked_about() -> None:
    extra = replace(FLOW, name="f_extra", view="v_extra")
    flow = dataflow(
        views={"v_orders": view("v_orders", SOURCE), "v_extra": view("v_extra", OTHER)}, flows=(FLOW, extra)
    )
    reads = {
        (ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "a"),),
        (ORDERS.key, "f_extra"): (Read("v_extra", OTHER, "orders_main.json: v_extra"),),
    }
    tables = {SOURCE.key: TableFacts(SOURCE, "source-id", 5), OTHER.key: TableFacts(OTHER, "other-id", 3)}
    target = only(facts(stored=COPIED, reads=reads, tables=tables), flow)
    assert target.refusals == (
        "orders_main.json: v_extra: bronze.extra joined after the migration of silver.orders began, so "
        "nobody knows where it must start: give readerOptions.startingVersion (0 = all of it)",
    )


def test_adopted_state_goes_on_where_it_was() -> None:
    known = facts(
        stored=Stored(elsewhere=("old",)),
        source=TableFacts(SOURCE, "source-id", 7),
        adoptable={ORDERS.key: COPIED},
    )
    target = only(known, adopt=True)
    assert target.steps[0] == Adopt(ORDERS, "old")
    assert target.flows[0].starts == {"v_orders": {SOURCE.key: 6}}
    assert not target.copy


@pytest.mark.parametrize("certainty", ["proved", "recorded"])
def test_state_that_outlived_a_complete_migration_goes(certainty: Certainty) -> None:
    stored = replace(COPIED, migration_start=replace(STARTED, certainty=certainty))
    known = facts(stored=stored, source=TableFacts(SOURCE, "source-id", 6), checkpoint=READ_TO_6)
    assert only(known, dataflow(migration=None)).steps == (Forget(ORDERS),)


def test_run_keeps_state_of_an_assumed_migration_whose_spec_has_no_migration_details() -> None:
    known = facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 6), checkpoint=READ_TO_6)
    target = only(known, dataflow(migration=None))
    assert (target.steps, target.refusals, target.phase) == ((), (), "complete")
    assert "tableferry pipelines finish --accept-assumed" in target.notes[-1]


def test_switching_an_incomplete_migration_off_is_refused() -> None:
    target = only(facts(stored=COPIED), dataflow(migration=None))
    assert "switched off before the migration is complete" in target.refusals[0]


def test_a_finished_migration_that_the_spec_still_has_goes_on_quietly() -> None:
    done = Stored(finished=True)
    known = facts(stored=done, checkpoint=READ_TO_6, source=TableFacts(SOURCE, "source-id", 8))
    target = only(known)
    assert target.phase == "finished"
    assert target.flows[0].action == "continue"
    assert not target.copy
    assert [step.create for step in target.steps if isinstance(step, DefineTable)] == [False]
    assert "a full refresh would drop the copied history for good" in refreshed(known).refusals[0]
    assert only(facts(stored=done)).phase == "finished"


def refreshed(known: Facts, *flows: DataFlow) -> TargetPlan:
    return only(known, *flows, full_refresh=frozenset({ORDERS.key}))


def test_an_adoption_that_died_is_gone_on_with() -> None:
    elsewhere = Stored(STARTED, elsewhere=("old",))
    target = only(facts(stored=elsewhere, adoptable={ORDERS.key: COPIED}))
    assert target.steps[0] == Adopt(ORDERS, "old")
    assert not target.copy
    stranger = replace(COPIED, migration_start=replace(STARTED, recorded_at=datetime(2025, 1, 1, tzinfo=UTC)))
    assert only(facts(stored=elsewhere, adoptable={ORDERS.key: stranger})).copy


def test_a_migration_that_another_pipeline_began_and_this_one_has_switched_off_is_not_forgotten() -> None:
    known = facts(stored=Stored(elsewhere=("old",)))
    (refusal,) = only(known, dataflow(migration=None)).refusals
    assert "began under pipelineId=old and is switched off before its flows have started" in refusal
    started = replace(known, checkpoints={(ORDERS.key, "f_orders"): READ_TO_6})
    assert not only(started, dataflow(migration=None)).refusals


def test_two_new_flows_do_not_both_go_on_from_one_old_checkpoint() -> None:
    flows = (replace(FLOW, name="f_eu"), replace(FLOW, name="f_us"))
    reads = {(ORDERS.key, flow.name): (Read("v_orders", SOURCE, "here"),) for flow in flows}
    target = only(
        facts(stored=COPIED, reads=reads, checkpoints={}, orphans={ORDERS.key: {"f_orders": READ_TO_6}}),
        dataflow(flows=flows),
    )
    assert target.refusals == (
        "orders_main.json: flow: f_us and f_eu are new, and both read what f_orders did, which the spec no "
        "longer has: give the one that continues it that name",
    )


def test_latest_means_the_recorded_baseline_and_nothing_else() -> None:
    reads = {(ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "orders_main.json: v_orders", "latest"),)}
    known = facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 7), reads=reads)
    assert only(known).flows[0].starts == {"v_orders": {SOURCE.key: 6}}
    plain = replace(known, stored={})
    assert "startingVersion latest is looked up anew" in only(plain, dataflow(migration=None)).refusals[0]


@pytest.mark.parametrize("order", [1, -1])
def test_a_live_flow_keeps_its_start_where_a_run_once_flow_shares_its_view(order: int) -> None:
    flows = (replace(FLOW, name="f_init", once=True), FLOW)[::order]
    target = only(facts(stored=COPIED, source=TableFacts(SOURCE, "source-id", 7)), dataflow(flows=flows))
    (read,) = (step for step in target.steps if isinstance(step, DefineView))
    assert (read.starts, read.once) == ({SOURCE.key: 6}, False)


def test_a_full_refresh_of_a_table_that_only_grows_is_refused() -> None:
    target = Target(
        ORDERS, properties={"delta.appendOnly": "TRUE"}, location="orders_main.json: targetDetails"
    )
    (refusal,) = refreshed(facts(stored=COPIED), dataflow(target=target)).refusals
    assert "has delta.appendOnly, so its rows can't be dropped" in refusal


class TestTwoTargets:
    """Silver reads bronze, which the same project fills."""

    GOLD, GOLD_LEGACY = TableName.parse("gold.orders"), TableName.parse("gold.orders_legacy")
    READER = Flow("f_gold", "append", GOLD, "v_gold", location="gold_main.json: flow")

    def gold(self, migration: bool = True) -> DataFlow:
        return DataFlow(
            "gold",
            "sales",
            "gold_main.json",
            Target(self.GOLD),
            (),
            {"v_gold": view("v_gold", ORDERS)},
            (self.READER,),
            Migration(self.GOLD_LEGACY, "hms") if migration else None,
        )

    def facts(
        self, orders: TableFacts | None, orders_state: Stored, gold_state: Stored = Stored(), **more: object
    ) -> Facts:
        base = facts(stored=orders_state, source=TableFacts(SOURCE, "source-id", 8))
        both = replace(
            base,
            tables={
                **base.tables,
                ORDERS.key: orders,
                self.GOLD_LEGACY.key: TableFacts(self.GOLD_LEGACY, "gold-id", 0),
            },
            stored={**base.stored, self.GOLD.key: gold_state},
            reads={
                **base.reads,
                (self.GOLD.key, "f_gold"): (Read("v_gold", ORDERS, "gold_main.json: v_gold"),),
            },
        )
        return replace(both, **more)  # type: ignore[arg-type]

    def test_the_reader_starts_only_when_its_source_holds_its_copy_and_holds_the_source_s_flows_until_then(
        self,
    ) -> None:
        first, second = plan(self.facts(None, Stored(STARTED)), self.gold(), dataflow()).targets
        assert (first.target, first.phase, second.phase) == (ORDERS, "copying", "later")
        assert first.flows[0].action == "wait"
        assert second.steps == ()

    def test_then_it_records_its_baseline_before_anything_new_flows(self) -> None:
        planned = plan(self.facts(TableFacts(ORDERS, "orders-id", 1), COPIED), self.gold(), dataflow())
        first, second = planned.targets
        assert first.flows[0].action == "start"
        assert isinstance(planned.steps[0], Begin)
        assert second.migration_start is not None
        assert second.migration_start.baselines[ORDERS.key].version == 1
        assert second.flows[0].action == "wait"

    def test_a_source_that_this_project_will_make_is_asked_about(self) -> None:
        plain = dataflow(migration=None)
        _, second = plan(self.facts(None, Stored()), self.gold(), plain).targets
        assert "silver.orders is made by this project and doesn't exist yet" in second.refusals[0]

    def test_a_full_refresh_that_a_reader_would_take_twice_is_refused(self) -> None:
        orders = TableFacts(ORDERS, "orders-id", 4)
        migration_start = MigrationStart(
            "p",
            self.GOLD,
            PinnedCopy(self.GOLD_LEGACY, "gold-id", 0),
            {ORDERS.key: Baseline(ORDERS, "orders-id", 1)},
            NOW,
        )
        both = frozenset({ORDERS.key, self.GOLD.key})
        known = self.facts(orders, COPIED, Stored(migration_start, Tracking({}, 0)))
        first, _ = plan(known, self.gold(), dataflow(), full_refresh=both).targets
        assert "gold.orders, which has its own history and reads it from version 2" in first.refusals[0]
        known, plain = self.facts(orders, COPIED), self.gold(migration=False)
        first, _ = plan(known, plain, dataflow(), full_refresh=frozenset({ORDERS.key})).targets
        assert first.refusals[0].endswith("would take them twice: add --full-refresh gold.orders")
        assert not plan(known, plain, dataflow(), full_refresh=both).refusals

    def test_a_history_that_a_reader_with_its_own_would_take_for_new_rows_is_not_copied(self) -> None:
        """The reader began while the spec of what it reads was skipped, or had no migration."""
        orders = TableFacts(ORDERS, "orders-id", 4)
        copy = PinnedCopy(self.GOLD_LEGACY, "gold-id", 0)
        begun = MigrationStart("p", self.GOLD, copy, {ORDERS.key: Baseline(ORDERS, "orders-id", 1)}, NOW)
        both = (self.gold(), dataflow())
        found = self.facts(orders, Stored(), Stored(begun, Tracking({}, 0)))
        sentence = (
            "orders_main.json: tableMigrationDetails: gold.orders has its own history and takes whatever "
            "comes into silver.orders for new rows, and so this history: drop gold.orders and its state "
            "folders, and migrate it anew behind silver.orders, or leave this history out"
        )
        first, _ = plan(found, *both).targets
        assert (first.refusals, first.steps) == ((sentence,), ())
        finished = (self.gold(migration=False), dataflow())
        first, _ = plan(self.facts(orders, Stored(), Stored(finished=True)), *finished).targets
        assert first.refusals == (sentence,)
        # Where the user says what is new to the reader, and where nothing reads it.
        reads = {**found.reads, (self.GOLD.key, "f_gold"): (Read("v_gold", ORDERS, "x", 0),)}
        assert not plan(replace(found, reads=reads), *both).targets[0].refusals
        reads = {**found.reads, (self.GOLD.key, "f_gold"): (Read("v_gold", OTHER, "x"),)}
        assert not plan(replace(found, reads=reads), *both).targets[0].refusals
        # A reader without a history of its own takes all rows, and what has begun goes on.
        assert not plan(self.facts(orders, Stored()), *finished).targets[0].refusals
        going = self.facts(orders, Stored(STARTED), Stored(begun, Tracking({}, 0)))
        assert not plan(going, *both).targets[0].refusals

    def test_a_table_that_is_only_looked_up_is_filled_first(self) -> None:
        lookup = View("v_gold", "stream", SqlSource("SELECT * FROM STREAM(bronze.x) JOIN silver.orders"), "x")
        reads = {(self.GOLD.key, "f_gold"): (Read("v_gold", OTHER, "x"),)}
        gold = replace(self.gold(migration=False), views={"v_gold": lookup})
        planned = plan(replace(self.facts(None, Stored()), reads=reads), gold, dataflow(migration=None))
        assert [target.target for target in planned.targets] == [ORDERS, self.GOLD]

    def test_a_source_whose_own_starts_are_given_is_read_from_its_start(self) -> None:
        plain = dataflow(migration=None)
        known = self.facts(None, Stored())
        reads = {**known.reads, (ORDERS.key, "f_orders"): (Read("v_orders", SOURCE, "x", 3),)}
        _, second = plan(replace(known, reads=reads), self.gold(), plain).targets
        assert second.refusals == ()
        assert second.phase == "new"
        assert second.flows[0].starts == {}


def test_what_only_databricks_can_do_with_a_table_is_reported_and_a_row_filter_is_never_left_off() -> None:
    target = only(facts(), dataflow(target=Target(ORDERS, cluster_auto=True)))
    assert target.notes[1:] == ("clusterByAuto is for Databricks: elsewhere silver.orders isn't clustered",)
    filtered = dataflow(
        target=Target(ORDERS, row_filter="only_mine ON (id)", location="orders_main.json: here")
    )
    assert only(facts(), filtered).refusals == (
        "orders_main.json: here: rowFilter can't be set outside a Databricks pipeline, and without it "
        "silver.orders would show every row: run the project there, or take rowFilter out here",
    )
    assert not only(facts(), filtered, engine="databricks").refusals
