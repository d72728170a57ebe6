"""A plan's definitions, on an engine."""

from __future__ import annotations

from tableferry.pipelines.engine import Engine, define
from tableferry.pipelines.flows import CdcSettings, DeltaSource, Flow, Target, View
from tableferry.pipelines.steps import DefineAppend, DefineAutoCdc, DefineTable, DefineView
from tableferry.tables import TableName
from tableferry.testing import RecordingEngine

ORDERS = TableName.parse("silver.orders")
SCD1 = CdcSettings(("id",), "at", 1)
TABLE = DefineTable(Target(ORDERS, SCD1))
VIEW = DefineView(
    View("v_orders", "stream", DeltaSource(TableName.parse("bronze.orders")), "x"),
    ORDERS,
    {"bronze.orders": 6},
)
ONCE = DefineAppend(Flow("f_once", "append", ORDERS, "v_orders", once=True), ORDERS, 0, once=True)
STREAMING = DefineAutoCdc(Flow("f_orders", "cdc", ORDERS, "v_orders"), ORDERS, 0, SCD1)


def test_an_engine_gets_each_definition_by_its_own_method_and_in_order() -> None:
    calls: list[str] = []

    class Spelling(RecordingEngine):
        def view(self, definition: DefineView) -> None:
            calls.append("view")
            super().view(definition)

        def table(self, definition: DefineTable) -> None:
            calls.append("table")
            super().table(definition)

        def append(self, definition: DefineAppend) -> None:
            calls.append("append")
            super().append(definition)

        def cdc(self, definition: DefineAutoCdc) -> None:
            calls.append("cdc")
            super().cdc(definition)

    recorder = Spelling()
    engine: Engine = recorder
    define([TABLE, VIEW, ONCE, VIEW, STREAMING], engine)
    assert calls == ["table", "view", "append", "view", "cdc"]
    assert recorder.defined == [TABLE, VIEW, ONCE, VIEW, STREAMING]


def test_each_definition_is_described_in_one_line() -> None:
    assert [str(step) for step in (TABLE, VIEW, ONCE, STREAMING)] == [
        "create silver.orders unless it's there",
        "read v_orders from bronze.orders@6",
        "append v_orders to silver.orders, once",
        "apply v_orders to silver.orders as SCD type 1",
    ]
