"""Streams that read Kafka: offsets, reader options, and the start of a flow."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.conditions import check
from tests.unit.test_decide import ORDERS, STARTED, dataflow, facts, plan_target

from tableferry.errors import Finding
from tableferry.pipelines.handover.finder import HandOverFinder
from tableferry.pipelines.model import source_offsets, topics
from tableferry.pipelines.model.facts import Checkpoint, HandOver, UnknownHandOver
from tableferry.pipelines.model.flows import Project, ReaderSource, View
from tableferry.pipelines.model.plan import TargetPlan
from tableferry.pipelines.model.reads import Read
from tableferry.pipelines.model.steps import DefineView, PlannedFlow, RecordStart, RenameFlow, Step
from tableferry.pipelines.model.target_state import Baseline, TargetState, Tracking
from tableferry.pipelines.model.topics import KafkaOffset, KafkaRange
from tableferry.spark.tables import TableName

TOPIC = TableName.at("kafka://orders")
OPTIONS = {"subscribe": "orders", "startingOffsets": "earliest"}
KAFKA = View("v_orders", "stream", ReaderSource("kafka", OPTIONS), "orders_main.json: v_orders")
NO_TABLE = Finding("SOURCE_NOT_A_TABLE", format="kafka")
READ = Read("v_orders", TOPIC, KAFKA.location, None, NO_TABLE, OPTIONS, "give startingOffsets")
BATCH_3 = KafkaOffset({("orders", 0): 6, ("orders", 1): 4})
BROKER_RANGE = KafkaRange(
    KafkaOffset({("orders", 0): 0, ("orders", 1): 4, ("orders", 2): 0}),
    KafkaOffset({("orders", 0): 9, ("orders", 1): 4, ("orders", 2): 1}),
)
HAND_OVER = HandOver(8, {}, {"query": 3}, kafka={"kafka:orders": BATCH_3})
SEED = '{"orders":{"0":6,"1":4,"2":0}}'


def planned(*, read: Read = READ, **more: Any) -> TargetPlan:
    request = {key: more.pop(key) for key in ("engine",) if key in more}
    known: dict[str, Any] = {
        "reads": {(ORDERS.key, "f_orders"): (read,)},
        "hand_overs": {ORDERS.key: HAND_OVER},
        "brokers": {TOPIC.key: BROKER_RANGE},
        **more,
    }
    return plan_target(facts(**known), dataflow(views={"v_orders": KAFKA}), **request)


def test_first_plan_records_the_offset_with_added_partitions() -> None:
    target = planned()
    (begin,) = (step for step in target.steps if isinstance(step, RecordStart))
    baseline = begin.migration_start.baselines[TOPIC.key]
    assert baseline == Baseline(TOPIC, "kafka:orders", 10, ("v_orders",), SEED)
    assert str(begin).endswith(f"baselines kafka://orders at {SEED}")
    (flow,) = (step for step in target.steps if isinstance(step, PlannedFlow) and step.name == "f_orders")
    assert flow.start_offset == SEED
    (view,) = (step for step in target.steps if isinstance(step, DefineView) and not step.once)
    assert str(view) == "read v_orders from kafka://orders@checkpoint"


def test_pipeline_passes_the_offset_to_the_view_at_every_update() -> None:
    baselines = {TOPIC.key: Baseline(TOPIC, "kafka:orders", 10, ("v_orders",), SEED)}
    stored = TargetState(
        replace(STARTED, baselines=baselines), Tracking({}, 0, 10, "match", engine="databricks")
    )
    for checkpoint in (Checkpoint(), Checkpoint(committed=4, offered=4)):
        target = planned(stored=stored, checkpoint=checkpoint, brokers={}, engine="databricks")
        (view,) = (step for step in target.steps if isinstance(step, DefineView) and not step.once)
        assert view.starts == {TOPIC.key: SEED}
        assert topics.start_options(OPTIONS, SEED) == {"subscribe": "orders", "startingOffsets": SEED}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {
                "brokers": {
                    TOPIC.key: replace(
                        BROKER_RANGE, first=KafkaOffset({**BROKER_RANGE.first.next, ("orders", 0): 8})
                    )
                }
            },
            "partition 0 of orders contains offsets 8 to 9, and 6 to 8 have expired",
        ),
        (
            {
                "brokers": {
                    TOPIC.key: replace(
                        BROKER_RANGE, end=KafkaOffset({**BROKER_RANGE.end.next, ("orders", 1): 2})
                    )
                }
            },
            "partition 1 of orders contains offsets 4 to 2, but was recreated, because 4 is next",
        ),
        (
            {
                "brokers": {
                    TOPIC.key: KafkaRange(KafkaOffset({("orders", 0): 0}), KafkaOffset({("orders", 0): 9}))
                }
            },
            "partition 1 of orders is missing",
        ),
        (
            {"brokers": {TOPIC.key: Finding("BROKER_NOT_ANSWERING", topic=TOPIC, reason="no answer")}},
            "v_orders: The broker of kafka://orders doesn't return its offsets (no answer)",
        ),
        ({"brokers": {}}, "weren't read from its broker"),
        (
            {"hand_overs": {ORDERS.key: replace(HAND_OVER, kafka={})}, "read": replace(READ, kafka={})},
            "don't read",
        ),
        (
            {"hand_overs": {ORDERS.key: replace(HAND_OVER, kafka={"kafka:x": KafkaOffset({("x", 0): 1})})}},
            "The old streams of silver.orders_legacy don't read kafka://orders",
        ),
        (
            {
                "hand_overs": {
                    ORDERS.key: replace(
                        HAND_OVER, kafka={"kafka:orders": BATCH_3, "kafka:x": KafkaOffset({("x", 0): 1})}
                    )
                }
            },
            "read kafka:x, which no flow of silver.orders follows",
        ),
        (
            {
                "reads": {
                    (ORDERS.key, "f_orders"): (
                        READ,
                        Read("v_2", TableName.at("kafka://x"), "", "its own options"),
                    )
                }
            },
            "f_orders reads other sources than kafka://orders",
        ),
    ],
)
def test_flow_that_cant_start_at_the_offset_is_refused(changes: dict[str, Any], sentence: str) -> None:
    target = planned(**changes)
    assert any(sentence in refusal.message for refusal in target.refusals), target.refusals
    assert target.steps == ()


def test_renamed_flow_keeps_its_checkpoint() -> None:
    baselines = {TOPIC.key: Baseline(TOPIC, "kafka:orders", 10, ("v_orders",), SEED)}
    stored = TargetState(replace(STARTED, baselines=baselines), Tracking({}, 0, 10, "match"))

    def steps(read: KafkaOffset) -> tuple[Step, ...]:
        ran = Checkpoint(kafka={"kafka:…": read}, has_untracked_sources=True, offered=4, committed=4, id="f")
        return planned(stored=stored, orphaned_checkpoints={ORDERS.key: {"f_old": ran}}).steps

    assert steps(BATCH_3)[0] == RenameFlow(ORDERS, 0, "f_old", "f_orders")
    assert not any(isinstance(step, RenameFlow) for step in steps(KafkaOffset({("x", 0): 1})))


def test_start_in_the_users_options_wins_over_the_checkpoint() -> None:
    target = planned(read=replace(READ, explicit="its own options"), hand_overs={})
    assert not target.refusals
    (begin,) = (step for step in target.steps if isinstance(step, RecordStart))
    assert begin.migration_start.baselines == {}


@pytest.mark.parametrize(
    ("options", "offset", "expected"),
    [
        ({"subscribe": "a, b"}, {("a", 0): 1, ("b", 0): 1}, True),
        ({"subscribe": "a,b"}, {("a", 0): 1}, False),
        ({"SubscribePattern": "a.*"}, {("a", 0): 1, ("ab", 3): 1}, True),
        ({"subscribePattern": "a"}, {("ab", 0): 1}, False),
        ({"assign": '{"a":[0,1]}'}, {("a", 0): 1}, True),
        ({"assign": '{"a":[0]}'}, {("b", 0): 1}, False),
    ],
)
def test_reader_subscribes_to_all_topics_of_an_offset(
    options: dict[str, str], offset: dict[tuple[str, int], int], *, expected: bool
) -> None:
    assert topics.is_subscribed(options, KafkaOffset(offset)) is expected


def test_reader_options_are_recognized_in_any_case() -> None:
    assert topics.has_start_offsets({"STARTINGOFFSETS": '{"a":{"0":1}}'})
    assert topics.has_start_offsets({"startingTimestamp": "1"})
    assert not topics.has_start_offsets({"startingOffsets": "latest"})
    assert topics.has_start({"startingoffsets": "latest"})
    assert not topics.has_start({"subscribe": "a"})
    read = topics.range_options(
        {"subscribe": "a", "startingoffsets": "latest", "maxOffsetsPerTrigger": "1"},
        KafkaOffset({("a", 0): 1}),
        KafkaOffset({("a", 0): 4, ("a", 1): 2}),
    )
    assert read == {
        "subscribe": "a",
        "startingOffsets": '{"a":{"0":1,"1":0}}',
        "endingOffsets": '{"a":{"0":4,"1":2}}',
    }
    patient = topics.probe_options({"kafka.request.timeout.ms": "99", "startingOffsets": "latest"})
    assert (patient["kafka.request.timeout.ms"], patient["startingOffsets"]) == ("99", "earliest")


def test_furthest_offset_is_chosen_by_partition() -> None:
    line = '{"orders":{"0":6,"1":4}}'
    others = ["-", '{"other":{"0":99}}', '{"orders":{"0":5,"1":7,"2":1}}', '{"seqNum":4}']
    assert source_offsets.select_latest_offset(line, others) == '{"orders":{"0":6,"1":7,"2":1}}'
    assert source_offsets.select_latest_offset(line, ['{"other":{"0":9}}']) == line
    assert source_offsets.select_latest_offset("-", [line]) == "-"
    delta = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":%d,"index":-1,"isStartingVersion":false}'
    assert source_offsets.select_latest_offset(delta % 3, [delta % 5, delta % 4, line]) == delta % 5


@pytest.mark.parametrize(
    "line", ["-", "{}", '{"logOffset":7}', '{"seqNum":4,"sourceVersion":1}', '{"a":{}}', '{"a":{"x":1}}']
)
def test_offset_of_another_source_is_unknown(line: str) -> None:
    assert source_offsets.parse_offset(line) is None


def test_flow_that_reads_several_topics_has_one_offset() -> None:
    known = source_offsets.parse_offset('{"b":{"0":2},"a":{"0":1,"10":3}}')
    assert known == ("kafka:a,b", KafkaOffset({("a", 0): 1, ("a", 10): 3, ("b", 0): 2}))
    assert str(known[1]) == '{"a":{"0":1,"10":3},"b":{"0":2}}'
    assert known[1].offset_sum == 6


@pytest.mark.parametrize("read", [READ, replace(READ, kafka=None, is_auto_loader=True)])
def test_source_without_versions_is_refused_for_content(read: Read) -> None:
    flow = dataflow(views={"v_orders": KAFKA})
    by_content = replace(flow, migration=replace(flow.migration, hand_over="content"))  # type: ignore[type-var]
    spark: Any = None
    project = Project("/p", "p", (by_content,), "/state")
    reads = {(ORDERS.key, "f_orders"): (read,)}
    finder = HandOverFinder(spark, project, {}, reads, False, 100)
    found = finder.find([by_content])[ORDERS.key]
    assert isinstance(found, UnknownHandOver)
    check(found.why, "SOURCE_WITHOUT_VERSIONS", source="kafka://orders")
