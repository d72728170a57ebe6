"""A table that a pipeline on Databricks takes over: what is decided and declared; not run on Databricks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.conditions import check
from tests.databricks_pipelines import OLDER, SIGNATURES, WITHOUT_MANAGED_TABLES, Platform
from tests.unit.test_decide import (
    FLOW,
    ORDERS,
    OTHER,
    SOURCE,
    TAKEN,
    TAKEN_OVER,
    dataflow,
    only,
    plan,
    taken_over,
    view,
)

from migration import flows as bundle
from tableferry.errors import Finding, Refused
from tableferry.pipelines import undoing
from tableferry.pipelines.declaring import check_take_over
from tableferry.pipelines.engine import define
from tableferry.pipelines.flows import (
    DataFlow,
    DeltaSource,
    MetadataColumn,
    OtherSource,
    SqlSource,
    Target,
    View,
)
from tableferry.pipelines.graph import Layout
from tableferry.pipelines.identities import FlowIdentity, Recorded, TableIdentity
from tableferry.pipelines.pipeline_plan import PipelinePlan
from tableferry.pipelines.plans import (
    Checkpoint,
    Facts,
    HandOver,
    LegacyWrites,
    NoHandOver,
    OldCheckpoint,
    Plan,
    TargetPlan,
)
from tableferry.pipelines.reads import Read, followed
from tableferry.pipelines.source_offsets import KafkaOffset, Offset
from tableferry.pipelines.state import Stored, Tracking
from tableferry.pipelines.steps import Begin, DefineAppend, DefineView
from tableferry.spark.tables import TableFacts

OLD = OldCheckpoint("/old", "query", 12, {"source-id": Offset(4, True)})
FILES = OldCheckpoint("/files", "files", 3, {})
KAFKA = OldCheckpoint("/kafka", "kafka", 7, {}, {"kafka:orders": KafkaOffset({("orders", 0): 9})})
RECORDED = Stored(TAKEN, Tracking({SOURCE.key: 5}, 0, engine="databricks"))
RAN = Checkpoint(done=True, others=True, offered=0, committed=0)
PROTECTED = {"pipelines.reset.allowed": "false"}


def known(*old: OldCheckpoint, **more: Any) -> Facts:
    return taken_over(old_checkpoints={ORDERS.key: old or (OLD,)}, **more)


def decided(facts: Facts, flow: DataFlow = TAKEN_OVER) -> TargetPlan:
    return only(facts, flow, engine="databricks")


def handed(*old: OldCheckpoint) -> Mapping[str, HandOver]:
    batches = {checkpoint.query: checkpoint.batch for checkpoint in old or (OLD,)}
    positions = {key: offset.version - 1 for one in old or (OLD,) for key, offset in one.tables.items()}
    return {ORDERS.key: HandOver(8, positions, batches)}


def laid_out(planned: Plan) -> PipelinePlan:
    spark: Any = None
    layout = Layout(spark, planned.project, databricks=True)
    define((step for target in planned.targets for step in target.definitions), layout)
    return layout.plan


def declared(facts: Facts, flow: DataFlow = TAKEN_OVER) -> Any:
    """Let the bundle's own code declare the plan on the platform's functions."""
    platform: Any = Platform()
    spark: Any = None
    bundle.define(platform, spark, laid_out(plan(facts, flow, engine="databricks")), {})
    return platform


def test_the_plan_says_what_is_done_how_sure_it_is_and_what_to_do_before() -> None:
    target = decided(known(hand_overs=handed()))
    assert target.refusals == ()
    # The same is recorded as where Tableferry runs the flows.
    assert target.steps == (Begin(TAKEN),)
    (wait,) = target.waits
    check(wait.why, "TAKE_OVER_NOT_RECORDED", source=ORDERS)
    assert target.notes == (
        "the hand-over point is recorded by the old streams: batch 12 of their checkpoints",
    )
    imported, beta = target.warnings
    check(imported, "CHECKPOINT_WILL_BE_IMPORTED", flow="f_orders", batch=12, folder="/old")
    check(beta, "MANAGED_TABLE_IS_BETA", target=ORDERS)
    ready = decided(known(stored=RECORDED))
    assert (ready.phase, list(map(str, ready.steps))) == (
        "ready",
        [
            "fill silver.orders where it is, as a managed table of the pipeline (create_table)",
            "read v_orders from bronze.orders@checkpoint",
            "append v_orders to silver.orders, from the checkpoint /old",
        ],
    )


@pytest.mark.parametrize("checkpoint", [Checkpoint(), RAN], ids=["not run", "ran"])
def test_the_table_itself_is_declared_and_a_flow_with_the_old_checkpoint(checkpoint: Checkpoint) -> None:
    platform = declared(known(stored=RECORDED, checkpoint=checkpoint))
    assert platform.tables == {"silver.orders": {"table_properties": PROTECTED}}
    assert platform.managed == {"silver.orders"}
    assert {name: flow for name, (flow, _) in platform.appends.items()} == {
        "f_orders__silver_orders": {"target": "silver.orders", "import_checkpoint": "/old"}
    }


def test_a_source_without_a_new_commit_is_not_waited_for() -> None:
    # Where its stream goes on is in the checkpoint, and no start has to be in the source's log.
    quiet = known(stored=RECORDED, source=TableFacts(SOURCE, "source-id", 3), earliest={SOURCE.key: 3})
    target = decided(quiet)
    assert [flow.action for flow in target.flows] == ["start"]
    assert [step.starts for step in target.steps if isinstance(step, DefineView)] == [{SOURCE.key: None}]
    assert decided(replace(quiet, checkpoints={(ORDERS.key, FLOW.name): RAN})).phase == "complete"


def test_what_was_taken_over_stays_a_managed_table_when_its_migration_is_finished() -> None:
    for flow in (TAKEN_OVER, dataflow(migration=None)):
        platform = declared(taken_over(stored=Stored(finished=True, taken_over=True)), flow)
        assert (platform.tables, platform.managed) == (
            {"silver.orders": {"table_properties": PROTECTED}},
            {"silver.orders"},
        )
        (declaration,) = platform.appends.values()
        assert declaration[0] == {"target": "silver.orders"}
    # What was copied is the pipeline's own.
    assert declared(taken_over(stored=Stored(finished=True)), dataflow(migration=None)).managed == set()


def other(name: str, format_: str, **options: str) -> tuple[View, Read]:
    made = View(name, "stream", OtherSource(format_, options), f"orders_main.json: {name}")
    (read,) = followed({name: made}, name, {})
    return made, read


def spec(*inputs: tuple[View, Read]) -> tuple[DataFlow, Mapping[tuple[str, str], tuple[Read, ...]]]:
    """A spec with a flow for each view, and what they read."""
    made = [replace(FLOW, name=f"f_{number}", view=view.name) for number, (view, _) in enumerate(inputs)]
    views = {view.name: view for view, _ in inputs}
    reads = {(ORDERS.key, flow.name): (read,) for flow, (_, read) in zip(made, inputs, strict=True)}
    return replace(TAKEN_OVER, views=views, flows=tuple(made)), reads


FILE_VIEW = other("v_files", "cloudFiles", **{"cloudFiles.includeExistingFiles": "false"})
ORDERS_TOPIC = other("v_topic", "kafka", subscribe="orders", startingOffsets="earliest")


def test_files_and_topics_go_on_from_their_checkpoints_too() -> None:
    flow, reads = spec(FILE_VIEW, ORDERS_TOPIC)
    target = decided(known(FILES, KAFKA, hand_overs=handed(FILES, KAFKA), reads=reads), flow)
    assert target.refusals == ()
    (begin,) = target.steps
    assert isinstance(begin, Begin)
    assert begin.migration_start.batches == {"files": 3, "kafka": 7}
    # A checkpoint names Kafka's topics, but of files nothing.
    (unsure,) = (found for found in target.warnings if found.condition == "IMPORTED_SOURCE_NOT_SHOWN")
    check(unsure, "IMPORTED_SOURCE_NOT_SHOWN", folder="/files", view="v_files")
    stored = replace(RECORDED, migration_start=begin.migration_start)
    platform = declared(known(FILES, KAFKA, stored=stored, reads=reads), flow)
    assert {name: flow["import_checkpoint"] for name, (flow, _) in platform.appends.items()} == {
        "f_0__silver_orders": "/files",
        "f_1__silver_orders": "/kafka",
    }


TWO = Read("v_orders", OTHER, "orders_main.json: v_orders")
ONE = Read("v_orders", SOURCE, "orders_main.json: v_orders")
CHANGES = replace(view("v_orders", SOURCE), source=DeltaSource(SOURCE, change_feed=True))
AGAIN = replace(FLOW, name="f_again")
PAYMENTS = other("v_payments", "kafka", subscribe="payments", startingOffsets="earliest")


@pytest.mark.parametrize(
    ("old", "changes", "reads", "why"),
    [
        pytest.param((OLD,), {}, [(ONE, TWO)], "f_orders reads 2 sources. A checkpoint", id="reads two"),
        pytest.param(
            (replace(OLD, sources=2, tables={**OLD.tables, "other-id": Offset(2, True)}),),
            {}, [(ONE,)], "reads 2 sources, but f_orders reads one", id="its stream reads two",
        ),
        pytest.param(
            (replace(OLD, sources=2),), {}, [(ONE,)], "stream of /old reads 2 sources", id="twice the same",
        ),
        pytest.param(
            (replace(OLD, tables={"other-id": Offset(4, True)}),),
            {}, [(ONE,)], "None of the checkpoints is of a stream that reads", id="another table",
        ),
        pytest.param(
            (OLD, replace(OLD, folder="/second", query="second")),
            {}, [(ONE,)], "f_orders could continue from each of the checkpoints /old, /second", id="several",
        ),
        pytest.param(
            (OLD,), {"flows": (FLOW, AGAIN)}, [(ONE,), (ONE,)],
            "f_orders, f_again would each continue from /old", id="two flows",
        ),
        pytest.param(
            (OLD, FILES), {}, [(ONE,)],
            "No flow of silver.orders has the sources of the stream of /files", id="nobody's",
        ),
        pytest.param(
            (OLD,), {}, [(replace(ONE, explicit=3),)],
            "v_orders sets where it starts", id="a start of its own",
        ),
        pytest.param(
            (OLD,), {"views": {"v_orders": View("v_orders", "stream", SqlSource("SELECT 1"), "v")}},
            [(replace(ONE, unseen=Finding("NO_STREAM_IN_SQL")),)],
            r"Its checkpoint can't be determined. The view's SQL has no STREAM", id="unseen",
        ),
        pytest.param(
            (OLD,), {"views": {"v_orders": replace(view("v_orders", SOURCE), mode="batch")}}, [()],
            "v_orders is read as a batch", id="a batch",
        ),
        pytest.param(
            (replace(OLD, tables={"source-id": Offset(4, False, "line")}),),
            {"views": {"v_orders": CHANGES}},
            [(ONE,)], "/old stopped within version 4 of bronze.orders", id="within a change feed's version",
        ),
        pytest.param(
            (KAFKA,), {"views": {"v_payments": PAYMENTS[0]}, "flows": (replace(FLOW, view="v_payments"),)},
            [(PAYMENTS[1],)], r"a stream that reads what v_payments does \(kafka\)", id="another topic",
        ),
        pytest.param(
            (KAFKA,), {"views": {"v_files": FILE_VIEW[0]}, "flows": (replace(FLOW, view="v_files"),)},
            [(FILE_VIEW[1],)], r"a stream that reads what v_files does \(cloudFiles\)", id="no files",
        ),
    ],
)  # fmt: skip
def test_a_flow_goes_on_only_from_a_checkpoint_that_is_surely_its_own(
    old: tuple[OldCheckpoint, ...], changes: dict[str, Any], reads: list[tuple[Read, ...]], why: str
) -> None:
    flow = replace(TAKEN_OVER, **changes)
    read = {(ORDERS.key, one.name): its for one, its in zip(flow.flows, reads, strict=True)}
    facts = known(*old, hand_overs=handed(*old), reads=read)
    both = {**facts.tables, OTHER.key: TableFacts(OTHER, "other-id", 5)}
    target = decided(replace(facts, tables=both), flow)
    assert target.steps == ()
    assert target.refusals[0].message.startswith("orders_main.json: ")
    assert re.search(why, target.refusals[0].message)
    # What has changed since it was taken over is refused as well, before the pipeline defines anything.
    assert decided(replace(facts, tables=both, stored={ORDERS.key: RECORDED}), flow).steps == ()


def test_rows_within_a_version_are_gone_on_with() -> None:
    within = replace(OLD, tables={"source-id": Offset(4, False, "line")})
    position = {ORDERS.key: HandOver(8, {"source-id": 3}, {"query": 12}, within={"source-id": "line"})}
    target = decided(known(within, hand_overs=position))
    (begin,) = target.steps
    assert isinstance(begin, Begin)
    target = decided(known(within, stored=replace(RECORDED, migration_start=begin.migration_start)))
    # The pipeline imports that position; nothing is made of it here.
    assert [(step.imports, step.seed) for step in target.steps if isinstance(step, DefineAppend)] == [
        ("/old", "")
    ]


def test_a_checkpoint_that_cannot_be_read_is_refused_once_with_its_place() -> None:
    lost = NoHandOver(Finding("NOT_A_CHECKPOINT", folder="/old"))
    facts = taken_over(old_checkpoints={ORDERS.key: lost}, hand_overs={ORDERS.key: lost})
    (refusal,) = decided(facts).refusals
    check(refusal, "NOT_A_CHECKPOINT", folder="/old", location="orders_main.json: m")


def test_tables_that_are_known_by_name_alone_are_those_that_were_recorded() -> None:
    # While a pipeline's file is loaded it may refuse to tell more than a table's version.
    assert not decided(known(stored=RECORDED, source=TableFacts(SOURCE, "", 6))).refusals
    (refusal,) = decided(known(stored=RECORDED, source=TableFacts(SOURCE, "another", 6))).refusals
    check(refusal, "SOURCE_RECREATED", source=SOURCE)


def test_two_writers_are_noticed_by_the_old_checkpoint_whose_ids_the_pipeline_may_keep() -> None:
    went_on = replace(OLD, batch=14, finished=False)
    writes = {ORDERS.key: LegacyWrites({"query": 13}, 9)}
    (refusal,) = decided(known(went_on, stored=RECORDED, legacy_writes=writes)).refusals
    check(refusal, "OLD_STREAM_CONTINUED", target=ORDERS, folder="/old", batch=14, taken=12)
    check(refusal, "OLD_STREAM_CONTINUED", since=", from version 9 of the table on")
    # Its history may be out of reach.
    (refusal,) = decided(known(went_on, stored=RECORDED)).refusals
    check(refusal, "OLD_STREAM_CONTINUED", taken=12, since="")
    # A batch in the table that the old checkpoint hasn't begun is the pipeline's own.
    assert not decided(known(stored=RECORDED, legacy_writes=writes)).refusals
    (refusal,) = decided(known(replace(OLD, query="another"), stored=RECORDED)).refusals
    check(refusal, "IMPORTED_CHECKPOINT_NOT_NAMED", queries=["query"], target=ORDERS)


def test_a_flow_that_the_pipeline_has_run_before_would_import_nothing() -> None:
    (refusal,) = decided(known(hand_overs=handed(), checkpoint=RAN)).refusals
    check(refusal, "IMPORTING_FLOW_ALREADY_RAN", location="orders_main.json: flow", flow="f_orders")


def test_its_history_may_not_be_refreshed_away() -> None:
    open_ = Target(ORDERS, properties={"pipelines.reset.allowed": "true"}, location="orders_main.json: t")
    for stored in (RECORDED, Stored(finished=True, taken_over=True)):
        target = decided(known(stored=stored), replace(TAKEN_OVER, target=open_))
        (refusal,) = target.refusals
        check(refusal, "RESET_ALLOWED_OF_TAKEN_OVER_TABLE", location="orders_main.json: t", target=ORDERS)


def test_a_bundle_of_before_defines_nothing_of_it() -> None:
    # Its modules know only tables and flows, and would read the sources from their start.
    laid = laid_out(plan(known(stored=RECORDED), TAKEN_OVER, engine="databricks"))
    assert (laid.tables, laid.flows) == ((), ())
    assert [flow.import_checkpoint for flow in laid.imports] == ["/old"]
    update_id = MetadataColumn("update", '"string"', detail="update_id")
    with_column = replace(TAKEN_OVER, target=replace(TAKEN_OVER.target, metadata=(update_id,)))
    laid = laid_out(plan(known(stored=RECORDED), with_column, engine="databricks"))
    assert laid.wants_update_id


def test_a_renamed_flow_would_import_the_checkpoint_again() -> None:
    tracking = Tracking({SOURCE.key: 5}, 0, started=("f_old",), engine="databricks")
    (refusal,) = decided(known(stored=Stored(TAKEN, tracking))).refusals
    check(refusal, "PIPELINE_FLOW_RENAMED", first="f_old", otherwise="")


@pytest.mark.parametrize("recorded", [False, True])
def test_another_table_in_its_place_is_noticed(recorded: bool) -> None:
    flows = {FLOW.name: FlowIdentity({}, {SOURCE.key: "source-id"})}
    identity = TableIdentity("orders-id", 0, flows, "silver.orders@8", {})
    there = Recorded("another-id", None, identity if recorded else None)
    (refusal,) = decided(known(stored=RECORDED, recorded={ORDERS.key: there}, state="/state")).refusals
    check(refusal, "PIPELINE_TABLE_REPLACED", table=ORDERS, event="it was taken over", recorded="orders-id")
    same = replace(there, table_id="orders-id")
    target = decided(known(stored=RECORDED, recorded={ORDERS.key: same}))
    assert target.refusals == ()
    assert [str(step) for step in target.state_steps] == (
        [] if recorded else ["record which table silver.orders is"]
    )


@pytest.mark.parametrize(
    ("signatures", "lacking"),
    [
        (SIGNATURES, []),
        (WITHOUT_MANAGED_TABLES, ["create_table", "import_checkpoint of append_flow"]),
        (OLDER, ["create_table", "import_checkpoint of append_flow"]),
        ({**SIGNATURES, "append_flow": WITHOUT_MANAGED_TABLES["append_flow"]}, ["import_checkpoint"]),
    ],
    ids=["new", "older", "dlt", "no import_checkpoint"],
)
def test_a_runtime_that_lacks_the_functions_is_refused_before_anything_is_declared(
    signatures: dict[str, str], lacking: list[str]
) -> None:
    platform = Platform(signatures)
    laid = laid_out(plan(known(stored=RECORDED), TAKEN_OVER, engine="databricks"))
    if not lacking:
        check_take_over(platform, laid)
        return
    with pytest.raises(Refused) as refused:
        check_take_over(platform, laid)
    error = refused.value
    found = [error.finding] if len(lacking) == 1 else error.parameters["findings"]
    assert isinstance(found, Sequence)
    for finding, name in zip(found, lacking, strict=True):
        check(finding, "RUNTIME_CANNOT_TAKE_OVER", function=re.compile(f"^{name}"))
        assert "PREVIEW channel" in finding.remedy
        assert "set mode to copy" in finding.remedy
    # Whoever takes nothing over needs neither.
    check_take_over(platform, laid_out(plan(taken_over(stored=Stored(finished=True)), engine="databricks")))


def test_a_pipeline_of_sparks_own_has_neither() -> None:
    target = only(known(hand_overs=handed()), TAKEN_OVER, engine="declarative")
    (refusal,) = target.refusals
    check(refusal, "TAKE_OVER_NOT_IN_SPARKS_OWN", location="orders_main.json: m")


def given_back(facts: Facts, engine: str = "databricks") -> Refused | None:
    planned = plan(facts, TAKEN_OVER, engine=engine)
    try:
        undoing.check(planned, facts)
    except Refused as refused:
        return refused
    return None


def test_it_is_given_back_as_long_as_the_pipeline_has_not_run_its_flows() -> None:
    assert given_back(known(stored=RECORDED)) is None
    tracking = replace(RECORDED.tracking, started=(FLOW.name,)) if RECORDED.tracking else None
    for ran in (
        known(stored=RECORDED, checkpoint=RAN),
        known(stored=replace(RECORDED, tracking=tracking)),
    ):
        refused = given_back(replace(ran, state="/state"))
        check(refused, "UNDO_AFTER_PIPELINE_RAN", target=ORDERS, flows=["f_orders"], state="/state")
    # Nobody else knows whether it has run.
    check(given_back(known(stored=RECORDED), "streaming"), "UNDO_BY_OTHER_ENGINE", engine="databricks")
    streamed = replace(RECORDED, tracking=Tracking({SOURCE.key: 5}, 0, engine="streaming"))
    refused = given_back(known(stored=replace(streamed, undoing=True)))
    check(refused, "UNDO_BY_OTHER_ENGINE", engine="streaming")
    check(given_back(known(stored=Stored(TAKEN))), "UNDO_STATE_INCOMPLETE", target=ORDERS)
