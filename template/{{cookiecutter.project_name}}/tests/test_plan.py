"""What src/migration defines of a plan, on a pipeline that only remembers; it needs no Spark."""

from types import SimpleNamespace
from typing import Any

from tableferry.pipelines import (
    DeltaSource,
    Expectation,
    Flow,
    Join,
    JoinSide,
    JoinSource,
    PipelinePlan,
    PipelineRuntime,
    PipelineTable,
    PipelineView,
    PlannedFlow,
    SqlSource,
    Target,
)
from tableferry.spark.tables import TableName

from migration import flows, starting_versions, views

ORDERS, CUSTOMERS = TableName.parse("bronze.orders"), TableName.parse("bronze.customers")
TARGET = TableName.parse("silver.orders")


class Pipeline:
    """The functions of a pipeline's API; `defined` holds what they were called with, and what builds it."""

    def __init__(self) -> None:
        self.defined: dict[str, tuple[str, dict[str, Any], Any]] = {}

    def create_streaming_table(self, name: str, **arguments: Any) -> None:
        self.defined[name] = ("table", arguments, None)

    def temporary_view(self, name: str, **arguments: Any) -> Any:
        return lambda build: self.defined.update({name: ("view", arguments, build)})

    def append_flow(self, name: str, **arguments: Any) -> Any:
        return lambda build: self.defined.update({name: ("flow", arguments, build)})

    def expect_all_or_drop(self, rules: dict[str, str]) -> Any:
        return lambda build: lambda: f"{build()}, without what breaks {rules}"

    expect_all = expect_all_or_fail = expect_all_or_drop


# A session whose readers say what they were asked for.
SPARK: Any = SimpleNamespace(
    read=SimpleNamespace(table=lambda name: f"{name} as it is now"),
    readStream=SimpleNamespace(table=lambda name: f"{name} as it goes on"),
    sql=lambda statement: f"({statement})",
)


def view(source: Any, starts: dict[str, Any] | None = None, **more: Any) -> PipelineView:
    return PipelineView("v", source, "orders_main.json", starts=starts or {}, **more)


def flow(name: str, view: str, *rules: Expectation, once: bool = False, **more: Any) -> PlannedFlow:
    table = Target(TARGET, expectations=rules)
    return PlannedFlow(Flow(name, "append", TARGET, view, once=once), table, TARGET, 0, "start", **more)


def test_a_stream_starts_right_behind_the_history() -> None:
    source = DeltaSource(ORDERS, options={"startingVersion": "0", "maxFilesPerTrigger": "1"})
    for start, options in {
        7: {"maxFilesPerTrigger": "1", "startingVersion": "7"},
        "timestamp:2026-01-01": {"maxFilesPerTrigger": "1", "startingTimestamp": "2026-01-01"},
        # Its checkpoint says where it goes on.
        None: {"maxFilesPerTrigger": "1"},
    }.items():
        assert starting_versions.patched(view(source, {ORDERS.key: start})).source.options == options
    # The plan gives a table without history no start: it's read as the spec says.
    assert starting_versions.patched(view(source, {CUSTOMERS.key: 7})).source.options == source.options


def test_of_a_join_the_streams_alone_get_a_start() -> None:
    sides = (JoinSide("o", "stream", DeltaSource(ORDERS)), JoinSide("c", "static", DeltaSource(CUSTOMERS)))
    source = JoinSource(sides, (Join("left", "o.id = c.id"),))
    patched = starting_versions.patched(view(source, {ORDERS.key: 7, CUSTOMERS.key: 3})).source
    assert [side.source.options for side in patched.sides] == [{"startingVersion": "7"}, {}]


def test_a_view_of_the_pipelines_own_is_read_when_the_pipeline_runs() -> None:
    dp, asked = Pipeline(), []
    runtime = PipelineRuntime(dp, SimpleNamespace(sql=asked.append))
    plan = PipelinePlan((), (view(SqlSource("SELECT * FROM STREAM(v_other)"), inside=True),), ())
    views.define(runtime, plan)
    assert (runtime.frames, asked) == ({}, [])
    dp.defined["v"][2]()
    assert asked == ["SELECT * FROM STREAM(v_other)"]


def test_the_history_flows_once_and_live_rows_follow() -> None:
    dp = Pipeline()
    table = PipelineTable("silver.orders", {"comment": "Orders", "row_filter": None}, "orders_main.json")
    rule = Expectation("positive", "id > 0", "drop")
    history = flow("history", "v_history", once=True, streamed=False, is_initial_copy=True)
    flows.define(PipelineRuntime(dp, SPARK), PipelinePlan((table,), (), (history, flow("live", "v", rule))))
    defined_by_name = {
        name: (kind, arguments, build and build()) for name, (kind, arguments, build) in dp.defined.items()
    }
    assert defined_by_name == {
        "silver.orders": ("table", {"comment": "Orders"}, None),
        "history": ("flow", {"target": "silver.orders", "once": True}, "v_history as it is now"),
        "rows_of_live": ("view", {}, "v as it goes on, without what breaks {'positive': 'id > 0'}"),
        "live": ("flow", {"target": "silver.orders"}, "rows_of_live as it goes on"),
    }
