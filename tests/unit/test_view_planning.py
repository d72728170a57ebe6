"""The views to move, their destination and their order, decided from jobs and view texts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions
from tests.unit.fleet_jobs import job

from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.views.planning import (
    Places,
    View,
    ViewMove,
    decide,
    destination,
    in_order,
    is_switched,
    with_inputs,
)
from tableferry.spark.redaction import HIDDEN
from tableferry.spark.tables import TableName

LAKE = TableName(("spark_catalog", "lake"))


def moved(table: str, **columns: Any) -> Job:
    unblocked = State.WRITES_UNBLOCKED
    where = {"state": unblocked, "desired_state": unblocked, "target_schema": "lake"}
    form = {"target_format": TargetFormat.DELTA, "task_id": int.from_bytes(table.encode())}
    return job(f"spark_catalog.sales.{table}", **{**form, **where, **columns})


def view(name: str, text: str) -> View:
    return View(TableName(("spark_catalog", "sales", name)), text, ("spark_catalog", "sales"))


def one_line(text: str) -> str:
    return " ".join(text.split())


def of(jobs: list[Job]) -> Places:
    places = Places("ice")
    places.add(jobs)
    return places


def decided(text: str, places: Places, *, partial: bool = False) -> ViewMove:
    old = view("v", text)
    return decide(old, LAKE, places, partial=partial)


def test_table_is_switched_from_the_switch_until_its_revert() -> None:
    pairs = [(state, desired) for state in State for desired in State]
    live = {pair for pair in pairs if is_switched(moved("t", state=pair[0], desired_state=pair[1]))}
    unblocked, dropped = State.WRITES_UNBLOCKED, State.HIVE_DROPPED
    assert live >= {(unblocked, unblocked), (unblocked, dropped), (dropped, dropped)}
    assert not live & BACK.keys()
    assert {state for state, _ in live} == {unblocked, dropped}


def test_views_move_to_the_schema_to_which_all_tables_of_their_schema_moved() -> None:
    schema = TableName(("spark_catalog", "sales"))
    not_yet = moved("c", target_schema="other", state=State.READY)
    assert destination(schema, [moved("a"), moved("b"), not_yet]) == LAKE
    with conditions.raises("VIEWS_OF_SEVERAL_SCHEMAS", schemas=["spark_catalog.lake", "spark_catalog.sales"]):
        destination(schema, [moved("a"), moved("b", target_schema=None)])


def test_each_name_of_a_moved_table_is_replaced() -> None:
    places = of([moved("d"), moved("i", target_format=TargetFormat.ICEBERG)])
    move = decided("SELECT * FROM d, spark_catalog.sales.D, hive_metastore.sales.d, lake.d", places)
    new = "`spark_catalog`.`lake`.`d`"
    assert one_line(move.text) == f"SELECT * FROM {new}, {new}, {new}, {new}"
    # Iceberg tables are read through Iceberg's catalog.
    move = decided("SELECT sales.i.id FROM i, ice.lake.i x, lake.i y", places)
    new = "`ice`.`lake`.`i`"
    assert one_line(move.text) == f"SELECT i.id FROM {new}, ice.lake.i AS x, {new} AS y"
    assert move.new == TableName(("spark_catalog", "lake", "v"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT * FROM a, ready", "sales.ready (its job is at Ready)"),
        ("SELECT * FROM a, alone", "sales.alone (no migration of this fleet has moved it)"),
        ("SELECT * FROM a JOIN left_view", "sales.left_view (a view that stays)"),
        ("SELECT * FROM back", "sales.back (its job is at WritesUnblocked)"),
    ],
)
def test_view_over_unmoved_sources_is_refused_unless_partial_moves_are_permitted(
    text: str, reason: str
) -> None:
    ready = moved("ready", state=State.READY, desired_state=State.WRITES_BLOCKED)
    back = moved("back", desired_state=State.WRITES_BLOCKED)
    places = of([moved("a"), ready, back])
    places.left.add("sales.left_view")
    with conditions.raises("VIEW_SOURCES_NOT_MOVED", sources=[f"spark_catalog.{reason}"]):
        decided(text, places)
    move = decided(text, places, partial=True)
    [stays] = move.stays
    assert stays.sql in move.text


def test_view_over_sources_that_never_move_is_moved() -> None:
    places = of([moved("a"), moved("in_place", target_schema=None)])
    places.moved["sales.base"] = TableName(("spark_catalog", "lake", "base"))
    move = decided("SELECT * FROM base, in_place, lake.a, parquet.`/x`, range(3)", places)
    assert move.stays == ()
    assert one_line(move.text) == (
        "SELECT * FROM `spark_catalog`.`lake`.`base`, `spark_catalog`.`sales`.`in_place`, "
        "`spark_catalog`.`lake`.`a`, parquet.`/x`, range(3)"
    )
    assert move.over == (TableName(("spark_catalog", "lake", "base")),)
    assert sorted(base.tbl_name for base in move.bases) == ["a", "in_place"]


def test_views_in_a_diamond_are_ordered_and_views_in_a_cycle_are_left_out() -> None:
    diamond = {"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": {"table"}}
    assert in_order(diamond) == (["d", "b", "c", "a"], [])
    cycle = {"x": {"y"}, "y": {"x"}, "over_it": {"y", "a"}}
    assert in_order({**diamond, **cycle}) == (["d", "b", "c", "a"], ["over_it", "x", "y"])
    assert in_order({"itself": {"itself"}}) == ([], ["itself"])
    assert with_inputs(["b"], diamond) == {"b", "d"}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh"), max_size=3)))
def test_order_has_each_view_after_its_inputs(reads: dict[str, set[str]]) -> None:
    order, left = in_order(reads)
    assert sorted(order + left) == sorted(reads)
    for position, name in enumerate(order):
        assert reads[name] & reads.keys() <= set(order[:position])
    # Each remaining view reads another remaining view.
    assert all(reads[name] & set(left) for name in left)


def test_create_statement_contains_columns_comments_properties_and_schema_mode() -> None:
    old = View(
        TableName(("spark_catalog", "sales", "v")),
        "SELECT 1",
        ("spark_catalog", "sales"),
        (("a b", "it's a\\b"), ("c", "")),
        "all of it",
        {
            "team": "x",
            "tableferry.source": "older",
            "transient_lastDdlTime": "1",
            "view.sqlConfig.x": "y",
            "docs_url": HIDDEN,
        },
        schema_mode="BINDING",
    )
    move = ViewMove(old, TableName(("main", "lake", "v")), "SELECT 2", "SELECT 1")
    properties = f"('tableferry.definition' = '{move.definition}', 'tableferry.source' = 'sales.v'"
    assert move.statement(replace=False) == (
        r"CREATE VIEW `main`.`lake`.`v` (`a b` COMMENT 'it\'s a\\b', `c`) COMMENT 'all of it' "
        f"TBLPROPERTIES {properties}, 'team' = 'x') WITH SCHEMA BINDING AS SELECT 2"
    )
    evolving = replace(
        move, view=View(old.name, old.text, old.namespace, old.columns, schema_mode="EVOLUTION")
    )
    assert evolving.statement(replace=True) == (
        f"CREATE OR REPLACE VIEW `main`.`lake`.`v` TBLPROPERTIES ('tableferry.definition' = "
        f"'{evolving.definition}', 'tableferry.source' = 'sales.v') WITH SCHEMA EVOLUTION AS SELECT 2"
    )
    assert evolving.definition != move.definition
