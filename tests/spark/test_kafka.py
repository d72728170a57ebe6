"""Old streams that read Kafka are handed over at their checkpoints' offsets, with a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from rich.console import Console
from tests import soak
from tests.broker import Broker
from tests.conditions import raises
from tests.spark.projects import Project
from tests.spark.test_take_over import run_with_crash

from tableferry import pipelines
from tableferry.errors import Refused
from tableferry.pipelines import PipelineView
from tableferry.pipelines.model import topics
from tableferry.pipelines.model.flows import ReaderSource
from tableferry.pipelines.reports import print_verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "v string, partition int, offset bigint"
SELECT = ["CAST(value AS STRING) AS v", "partition", "offset"]

Old = Callable[..., None]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("kafka") / "broker")
    yield broker
    broker.kill()


_topics = count(1)


@pytest.fixture
def topic(broker: Broker) -> str:
    """Create a topic with two partitions; each test has its own."""
    name = f"orders_{next(_topics)}"
    broker.create(name, 2)
    return name


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("out_legacy", COLUMNS)
    return project


@pytest.fixture
def old(project: Project, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> Old:
    """Return a function that runs the old stream over all available records."""

    def run(target: str = "out_legacy", topic: str = topic) -> None:
        stream(spark, broker, topic, tmp_path / "old", f"{project.schema}.{target}")

    return run


def stream(spark: SparkSession, broker: Broker, topic: str, checkpoint: Path, table: str) -> None:
    """Read all available records, in batches of at most four records."""
    reader = spark.readStream.format("kafka").options(**options(broker), subscribe=topic)
    reader = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    writer = reader.load().selectExpr(*SELECT).writeStream.trigger(availableNow=True).format("delta")
    writer = writer.option("checkpointLocation", str(checkpoint))
    try:
        writer.toTable(table).awaitTermination()
    except StreamingQueryException as error:
        # After a batch of a killed run, Spark 4.1 fails here once (SPARK-57438).
        if '"scala.Option.get()" is null' not in str(error):
            raise
        writer.toTable(table).awaitTermination()


def options(broker: Broker) -> dict[str, str]:
    """Return the reader's options with the default timeouts, which a slow machine needs."""
    return {"kafka.bootstrap.servers": broker.address}


def soon_given_up(broker: Broker) -> dict[str, str]:
    """Return the reader's options with short timeouts, for a broker that is killed."""
    return {
        **options(broker),
        "kafka.default.api.timeout.ms": "1500",
        "kafka.request.timeout.ms": "1000",
        "kafkaConsumer.pollTimeoutMs": "1500",
        "fetchOffset.numRetries": "1",
    }


def migrate(
    project: Project, broker: Broker, topic: str, checkpoint: Path, target: str = "out", **details: Any
) -> None:
    """Write the spec whose flow reads the topic from where the old stream stopped."""
    reader = {**details.pop("options", options(broker)), "subscribe": topic, "startingOffsets": "earliest"}
    legacy = {"checkpointLocation": str(checkpoint), **details.pop("legacy", {})}
    project.standard(
        target,
        {"readerOptions": reader, "selectExp": SELECT},
        sourceType="kafka",
        tableMigrationDetails=project.migration(target, legacy, **details),
    )


def values(project: Project, table: str = "out") -> list[str]:
    return sorted(row[0] for row in project.rows(table))


def numbered(first: int, last: int) -> list[str]:
    return [f"{number:03}" for number in range(first, last)]


def verified(project: Project) -> str:
    """Return the output of `verify`, in one line."""
    out = StringIO()
    print_verify(Console(file=out, width=300), project.verify())
    return " ".join(out.getvalue().replace(f"{project.schema}.", "").split())


@soak.slow
def test_flow_starts_at_the_old_streams_offsets(
    project: Project, broker: Broker, topic: str, old: Old, tmp_path: Path
) -> None:
    """During the migration, the topic gets a partition, and the old stream keeps running."""
    broker.send(topic, numbered(0, 10), 2)
    old()
    taken = len(values(project, "out_legacy"))
    broker.send(topic, numbered(10, 20), 2)
    broker.widen(topic, 3)
    broker.send(topic, numbered(20, 30), 3)
    migrate(project, broker, topic, tmp_path / "old")
    with project.nothing_written():
        plan = project.plan()
    step = str(plan.steps[0])
    assert step.endswith(f'baselines kafka://{topic} at {{"{topic}":{{"0":5,"1":5,"2":0}}}}')
    assert "recorded by the old streams" in plan.targets[0].notes[0]
    assert project.run().ok
    assert (taken, values(project)) == (10, numbered(0, 30))
    assert "30 rows of out_legacy@" in (text := verified(project))
    assert "and 20 later records of Kafka" in text
    # The old stream keeps running and is ahead of the flow.
    broker.send(topic, numbered(30, 33), 3)
    old()
    assert "proved: it contains exactly the 30 rows" in verified(project)
    assert project.run().ok
    assert values(project) == numbered(0, 33) == values(project, "out_legacy")
    # A run that crashed in its last batch didn't write this file.
    (checkpoint,) = project.state.glob("checkpoints/targetTable=*.out/generation=0/f_v_out")
    newest = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    assert project.run().ok
    assert values(project) == numbered(0, 33)
    assert "of Kafka" not in verified(project)
    assert project.run(full_refresh=[f"{project.schema}.out"]).ok
    assert values(project) == numbered(0, 33)
    project.insert("out_legacy", ("by hand", 0, 0))
    assert "by hand" in verified(project)
    assert project.finish(verify=False).finished
    broker.send(topic, numbered(33, 36), 3)
    assert project.run().ok
    assert values(project) == numbered(0, 36)


def test_expired_offsets_are_refused_with_the_remaining_range(
    project: Project, broker: Broker, topic: str, old: Old, tmp_path: Path
) -> None:
    broker.send(topic, numbered(0, 4), 2)
    old()
    broker.send(topic, numbered(4, 14), 2)
    broker.expire(topic, 1, before=6)
    migrate(project, broker, topic, tmp_path / "old")
    left = f"partition 1 of {topic} contains offsets 6 to 7, and 2 to 6 have expired"
    with pytest.raises(Refused, match=left):
        project.run()
    assert not project.spark.catalog.tableExists(f"{project.schema}.out")
    # Another topic is refused too.
    broker.create(again := f"{topic}_again", 2)
    migrate(project, broker, again, tmp_path / "old")
    with raises("SOURCE_NOT_READ_BY_OLD_STREAMS", source=f"kafka://{again}"):
        project.run()


@soak.only  # Spark handles a dead broker; the tests above cover expired records.
def test_broker_that_is_killed_loses_no_record(
    project: Project, broker: Broker, topic: str, old: Old, tmp_path: Path
) -> None:
    broker.send(topic, numbered(0, 10), 2)
    old()
    broker.send(topic, numbered(10, 20), 2)
    migrate(project, broker, topic, tmp_path / "old", options=soon_given_up(broker))
    broker.kill()
    with raises("BROKER_NOT_ANSWERING", topic=f"kafka://{topic}"):
        project.run()
    broker.start()

    def dies(what: str) -> None:
        if what.startswith("stream "):
            broker.kill()

    with raises("FLOW_FAILED", advice=re.compile("Check that the broker of readerOptions answers")):
        pipelines.run(project.root, project.spark, before=dies)
    assert values(project) == numbered(0, 10)
    broker.start()
    assert project.run().ok
    assert values(project) == numbered(0, 20)
    # The flow now has its own checkpoint, so older records may expire.
    for partition in (0, 1):
        broker.expire(topic, partition, before=10)
    broker.send(topic, numbered(20, 24), 2)
    assert project.run().ok
    assert values(project) == numbered(0, 24)
    broker.send(topic, numbered(24, 28), 2)
    broker.expire(topic, 0, before=14)
    with raises("FLOW_FAILED", advice=re.compile("The broker has dropped records")):
        project.run()


@soak.slow
def test_compacted_topic_is_streamed_and_gives_no_proof(
    project: Project, broker: Broker, old: Old, tmp_path: Path
) -> None:
    topic, later = "compacted", count()
    settings = {"cleanup.policy": "compact", "segment.ms": "20", "min.cleanable.dirty.ratio": "0.001"}
    broker.create(topic, 1, settings)
    broker.send(topic, numbered(0, 8), 1, key="a")
    old(topic=topic)
    taken = values(project, "out_legacy")
    broker.send(topic, numbered(8, 16), 1, key="a")
    while sum(value != "later" for _, value in broker.read(topic)) > 1:
        # The newest segment isn't compacted; a later record closes it.
        broker.send(topic, ["later"], 1, key=str(next(later)))
    migrate(project, broker, topic, tmp_path / "old")
    assert project.run().ok
    assert values(project)[: len(taken)] == taken
    streamed = [value for offset, value in broker.read(topic) if offset >= 8]
    assert values(project) == sorted([*taken, *streamed])
    assert "The other records were compacted" in verified(project)


def test_view_in_a_pipeline_starts_at_the_old_streams_offsets(
    project: Project, spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    broker.send(topic, numbered(0, 10), 2)
    reader = {**options(broker), "subscribe": topic, "startingOffsets": "earliest"}
    key, start = topics.source_name(reader).key, f'{{"{topic}":{{"0":3,"1":4}}}}'
    view = PipelineView(
        "v", ReaderSource("kafka", reader, select=tuple(SELECT)), "main: v", starts={key: start}
    )
    rows = pipelines.read(spark, view).writeStream.trigger(availableNow=True)
    rows = rows.format("delta").option("checkpointLocation", str(tmp_path / "pipeline"))
    rows.toTable(f"{project.schema}.out_legacy").awaitTermination()
    assert values(project, "out_legacy") == ["006", "008", "009"]


@soak.slow
def test_table_is_taken_over_and_given_back(
    project: Project, broker: Broker, topic: str, old: Old, tmp_path: Path
) -> None:
    project.create("out", COLUMNS)
    broker.send(topic, numbered(0, 10), 2)
    old(target="out")
    migrate(project, broker, topic, tmp_path / "old", mode="takeOver", legacy={"table": "out"})
    broker.send(topic, numbered(10, 20), 2)
    assert project.run().ok
    assert values(project) == numbered(0, 20)
    broker.widen(topic, 3)
    broker.send(topic, numbered(20, 30), 3)
    assert project.run().ok
    assert pipelines.undo(project.root, project.spark)
    old(target="out")
    assert values(project) == numbered(0, 30)
    broker.send(topic, numbered(30, 36), 3)
    old(target="out")
    broker.send(topic, numbered(36, 40), 3)
    assert project.run().ok
    assert values(project) == numbered(0, 40)


EVENTS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 6)),
    st.tuples(st.just("widen"), st.none()),
    st.tuples(st.just("old"), st.none()),
    st.tuples(st.just("run"), st.none() | st.integers(0, 8)),
    st.tuples(st.just("undo"), st.none() | st.integers(0, 4)),
)


@soak.only
def test_every_record_arrives_once_from_old_stream_or_flow(
    schema: str, spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """Copy or take over, undo, take over again, with crashes at every effect and added partitions."""
    numbers = count()

    @soak.slow_examples(soak.amount(2, 16))
    @given(st.booleans(), st.lists(EVENTS, min_size=5, max_size=12))
    def scenario(takes_over: bool, events: list[tuple[str, int | None]]) -> None:
        number = next(numbers)
        topic, folder, sent, partitions = f"any_{number}", tmp_path / f"old_{number}", count(), 1
        shop = Project(tmp_path / f"shop_{number}", schema, spark)
        target = f"out_{number}"
        legacy = target if takes_over else f"{target}_legacy"
        shop.create(legacy, COLUMNS)
        broker.create(topic, 1)

        def old() -> None:
            stream(spark, broker, topic, folder, f"{schema}.{legacy}")

        broker.send(topic, [str(next(sent))], 1)
        old()
        mode = "takeOver" if takes_over else "copy"
        migrate(shop, broker, topic, folder, target, mode=mode, legacy={"table": legacy})
        ours = False
        for kind, value in [*events, ("send", 2), ("run", None), ("send", 1), ("run", None), ("old", None)]:
            match kind:
                case "send":
                    broker.send(topic, [str(next(sent)) for _ in range(value or 1)], partitions)
                case "widen":
                    partitions += 1
                    broker.widen(topic, partitions)
                case "old" if not (ours and takes_over):
                    old()
                case "run":
                    ours = True
                    run_with_crash(partial(pipelines.run, shop.root, spark), value)
                case "undo" if ours and takes_over:
                    # A run must finish the crashed one first.
                    run_with_crash(partial(pipelines.run, shop.root, spark), None)
                    run_with_crash(partial(pipelines.undo, shop.root, spark), value)
                    run_with_crash(partial(pipelines.undo, shop.root, spark), None, "NOTHING_TAKEN_OVER_YET")
                    ours = False
        assert sorted(int(value) for value in values(shop, target)) == list(range(next(sent)))
        if not takes_over:
            assert shop.verify().ok

    scenario()
