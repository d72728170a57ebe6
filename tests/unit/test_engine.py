"""A plan's definitions, drawn on an engine."""

from __future__ import annotations

from tableferry.pipelines.engine import Engine, draw
from tableferry.pipelines.flows import CdcSettings, DeltaSource, Flow, Target, View
from tableferry.pipelines.steps import DrawAppend, DrawCdc, DrawTable, DrawView, describe
from tableferry.tables import TableName
from tableferry.testing import RecordingEngine

ORDERS = TableName.parse("silver.orders")
SCD1 = CdcSettings(("id",), "at", 1)
TABLE = DrawTable(Target(ORDERS, SCD1))
VIEW = DrawView(
    View("v_orders", "stream", DeltaSource(TableName.parse("bronze.orders")), "x"),
    ORDERS,
    {"bronze.orders": 6},
)
ONCE = DrawAppend(Flow("f_once", "append", ORDERS, "v_orders", once=True), ORDERS, 0, once=True)
LIVE = DrawCdc(Flow("f_orders", "cdc", ORDERS, "v_orders"), ORDERS, 0, SCD1)


def test_an_engine_gets_each_definition_by_its_own_verb_and_in_order() -> None:
    calls: list[str] = []

    class Spelling(RecordingEngine):
        def view(self, definition: DrawView) -> None:
            calls.append("view")
            super().view(definition)

        def table(self, definition: DrawTable) -> None:
            calls.append("table")
            super().table(definition)

        def append(self, definition: DrawAppend) -> None:
            calls.append("append")
            super().append(definition)

        def cdc(self, definition: DrawCdc) -> None:
            calls.append("cdc")
            super().cdc(definition)

    recorder = Spelling()
    engine: Engine = recorder
    draw([TABLE, VIEW, ONCE, VIEW, LIVE], engine)
    assert calls == ["table", "view", "append", "view", "cdc"]
    assert recorder.drawn == [TABLE, VIEW, ONCE, VIEW, LIVE]


def test_each_definition_is_described_in_one_line() -> None:
    assert [describe(one) for one in (TABLE, VIEW, ONCE, LIVE)] == [
        "create silver.orders unless it's there",
        "read v_orders from bronze.orders@6",
        "append v_orders to silver.orders, once",
        "apply v_orders to silver.orders as SCD type 1",
    ]
