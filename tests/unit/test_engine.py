"""The definitions of a plan, and errors of flows."""

from __future__ import annotations

import re

from tests.conditions import check

from tableferry.pipelines.engines.port import Engine, apply_definitions
from tableferry.pipelines.engines.streaming.flow_errors import create_flow_error
from tableferry.pipelines.model.flows import CdcSettings, DeltaSource, Flow, Target, View
from tableferry.pipelines.model.steps import DefineTable, DefineView, PlannedFlow
from tableferry.spark.tables import TableName
from tableferry.testing import RecordingEngine

ORDERS = TableName.parse("silver.orders")
SCD1 = CdcSettings(("id",), "at", 1)
TABLE = DefineTable(Target(ORDERS, SCD1))
VIEW = DefineView(
    View("v_orders", "stream", DeltaSource(TableName.parse("bronze.orders")), "x"),
    ORDERS,
    {"bronze.orders": 6},
)
ONCE = PlannedFlow(
    Flow("f_once", "append", ORDERS, "v_orders", once=True), TABLE.target, ORDERS, 0, "start", streamed=False
)
STREAMING = PlannedFlow(Flow("f_orders", "cdc", ORDERS, "v_orders"), TABLE.target, ORDERS, 0, "continue")


def test_engine_receives_each_definition_by_its_method_in_order() -> None:
    calls: list[str] = []

    class TracingEngine(RecordingEngine):
        def define_view(self, definition: DefineView) -> None:
            calls.append("view")
            super().define_view(definition)

        def define_table(self, definition: DefineTable) -> None:
            calls.append("table")
            super().define_table(definition)

        def define_flow(self, flow: PlannedFlow) -> None:
            calls.append("cdc" if flow.cdc else "append")
            super().define_flow(flow)

    recorder = TracingEngine()
    engine: Engine = recorder
    apply_definitions([TABLE, VIEW, ONCE, VIEW, STREAMING], engine)
    assert calls == ["table", "view", "append", "view", "cdc"]
    assert recorder.defined == [TABLE, VIEW, ONCE, VIEW, STREAMING]


def test_definitions_are_described_in_one_line() -> None:
    assert [str(step) for step in (TABLE, VIEW, ONCE, STREAMING)] == [
        "create silver.orders unless it exists",
        "read v_orders from bronze.orders@6",
        "append v_orders to silver.orders, once",
        "apply v_orders to silver.orders as SCD type 1",
    ]


def test_flow_error_has_remedy_for_cause_of_failed_task() -> None:
    class Failed(Exception):
        def __init__(self, text: str, cause: Exception | None = None) -> None:
            super().__init__(text)
            self._cause = cause

    flow = Flow("f_orders", "append", ORDERS, "v_orders", location="orders_main.json: flow")
    read = Failed("[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file x.parquet")
    written = Failed("[TASK_WRITE_FAILED] Task failed while writing rows to x. SQLSTATE: 58030", read)
    error = create_flow_error(flow, Failed("[STREAM_FAILED] terminated", written))
    check(error, "FLOW_FAILED", location="orders_main.json: flow", flow="f_orders", target="silver.orders")
    check(
        error, "FLOW_FAILED", reason="[STREAM_FAILED] terminated", advice=re.compile(r"\(VACUUM\).*Restore")
    )
