"""The names of a plan's tables, views and flows in a pipeline."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conditions import raises
from tests.databricks_pipelines import OLDER, SIGNATURES, Platform

from migration import flows, views
from tableferry import pipelines
from tableferry.pipelines.engines.declarative.plan import PipelinePlan
from tableferry.pipelines.engines.declarative.plan_builder import PipelinePlanBuilder
from tableferry.pipelines.engines.declarative.runtime import PipelineRuntime
from tableferry.pipelines.engines.port import apply_definitions
from tableferry.pipelines.engines.streaming.engine import StreamingEngine
from tableferry.pipelines.model.flows import (
    Expectation,
    Flow,
    Project,
    SnapshotCdc,
    SnapshotFiles,
    SqlSource,
    Target,
    View,
)
from tableferry.pipelines.model.steps import DefineSnapshots, DefineTable, DefineView, PlannedFlow
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.tables import TableName

NO_SPARK: Any = None
TABLE = TableName.parse("silver.days")


def build_plan(name: str, *named: View, rules: tuple[Expectation, ...] = ()) -> PipelinePlan:
    """Build the plan of one flow from the last view into a table."""
    target = TableName.parse(name)
    table = Target(target, expectations=rules)
    flow = Flow("f-1", "append", target, named[-1].name)
    builder = PipelinePlanBuilder(NO_SPARK, Project("/p", "p", ()), databricks=True)
    apply_definitions(
        [
            DefineTable(table),
            *(DefineView(view, target) for view in named),
            PlannedFlow(flow, table, target, 0, "start"),
        ],
        builder,
    )
    return builder.plan


def define_bundle(dp: Any, plan: PipelinePlan) -> None:
    """Define a plan on a pipeline's API, like the bundle."""
    runtime = PipelineRuntime(dp, NO_SPARK)
    views.define(runtime, plan)
    flows.define(runtime, plan)


def sql(name: str, statement: str) -> View:
    return View(name, "stream", SqlSource(statement), "x")


def test_names_with_special_characters_are_quoted_in_pipeline() -> None:
    plan = build_plan(
        "`my-cat`.silver.`2026`",
        sql("v-raw", "SELECT * FROM STREAM(bronze.orders)"),
        sql("v_orders", "SELECT * FROM STREAM(`v-raw`)"),
        rules=(Expectation("positive", "id > 0", "drop"),),
    )
    dp: Any = Platform()
    define_bundle(dp, plan)
    assert list(dp.tables) == ["`my-cat`.silver.`2026`"]
    assert list(dp.views) == ["v_orders", "`v-raw`", "`rows_of_f-1__my_cat_silver_2026`"]
    assert {name: flow["target"] for name, (flow, _) in dp.appends.items()} == {
        "`f-1__my_cat_silver_2026`": "`my-cat`.silver.`2026`"
    }
    assert [view.source.statement for view in plan.views if isinstance(view.source, SqlSource)] == [
        "SELECT * FROM STREAM(`v-raw`)",
        "SELECT * FROM STREAM(`bronze`.`orders`)",
    ]


def test_plain_names_stay_unquoted() -> None:
    plan = build_plan("main.silver.orders", sql("v_orders", "SELECT * FROM STREAM(bronze.orders)"))
    assert [table.name for table in plan.tables] == ["main.silver.orders"]
    assert [(flow.target.plain_sql, flow.flow.view) for flow in plan.flows] == [
        ("main.silver.orders", "v_orders")
    ]


def test_views_that_refer_to_each_other_are_added_once() -> None:
    plan = build_plan("s.t", sql("v_a", "SELECT * FROM v_b"), sql("v_b", "SELECT * FROM STREAM(v_a)"))
    assert sorted(view.name for view in plan.views) == ["v_a", "v_a__whole", "v_b", "v_b__whole"]


def test_databricks_pipeline_defines_snapshot_flows() -> None:
    target = TableName.parse("main.silver.days")
    view = View("v_days", "batch", SqlSource("SELECT * FROM bronze.days"), "x")
    periodic = SnapshotCdc(("id",), 1, "v_days", location="days_main.json: cdcSnapshotSettings")
    files = SnapshotFiles("csv", "/v/day_{version}.csv", "integer")
    for snapshots in (periodic, replace(periodic, scd_type=2, source=files)):
        builder = PipelinePlanBuilder(NO_SPARK, Project("/p", "p", ()), databricks=True)
        filled = DefineSnapshots(Target(target, snapshots=snapshots), target)
        apply_definitions([DefineTable(Target(target)), DefineView(view, target), filled], builder)
        dp: Any = Platform()
        define_bundle(dp, builder.plan)
        ((name, declared),) = dp.snapshots.items()
        assert name == "main.silver.days"
        assert declared["keys"] == ["id"]
        assert declared["stored_as_scd_type"] == snapshots.scd_type
        assert declared["source"] == "v_days" or snapshots.source is files


def test_streaming_engine_refuses_snapshot_flows() -> None:
    step = DefineSnapshots(Target(TABLE, snapshots=SnapshotCdc(("id",), 1, "v_days")), TABLE)
    with raises("SNAPSHOT_CDC_ONLY_ON_DATABRICKS", table=TABLE):
        apply_definitions([step], StreamingEngine(NO_SPARK, StateStore(Path("/state"), "p")))


@pytest.mark.parametrize("older", [True, False])
def test_load_plan_refuses_modules_of_older_bundle(older: bool) -> None:
    dp: Any = Platform(OLDER if older else SIGNATURES)
    with raises("BUNDLE_MODULES_TOO_OLD"):
        pipelines.load_plan(dp, NO_SPARK)


def test_auto_cdc_flow_uses_older_function_or_is_refused() -> None:
    dp: Any = Platform(OLDER)
    dp.create_streaming_table("s.t")
    given = {"target": "s.t", "source": "v", "keys": ["id"], "sequence_by": "at", "once": None}
    PipelineRuntime(dp, NO_SPARK).create_auto_cdc_flow("x", name="f", **given)
    assert list(dp.cdc) == ["f"]
    spark_only = {name: value for name, value in SIGNATURES.items() if "cdc" not in name}
    with raises("RUNTIME_LACKS_FUNCTION", location="x", function="create_auto_cdc_flow"):
        PipelineRuntime(Platform(spark_only), NO_SPARK).create_auto_cdc_flow("x", name="f", **given)
