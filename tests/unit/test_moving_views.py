"""A run over views, with the catalog left out: which jobs count, and in which order views are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tableferry.fleet.job import State, TargetFormat
from tableferry.fleet.moving_views import ViewOptions, move_views
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import finished, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.view_moves.planning import ViewMove
from tableferry.fleet.view_moves.reports import ViewsReport
from tableferry.fleet.view_moves.view import View
from tableferry.fleet.warehouse import new_views
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DROPPED = State.HIVE_DROPPED


def name(table: str) -> TableName:
    return TableName(("spark_catalog", "sales", table))


@dataclass
class Catalog:
    """What stands for the catalog: views by their names, and what was made."""

    store: Store
    views: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)

    def read(self, _: Warehouse, schema: TableName, wanted: Callable[[TableName], bool]) -> list[View]:
        assert schema == TableName(("spark_catalog", "sales"))
        names = filter(wanted, map(name, self.views))
        return [View(view, self.views[view.table], ("spark_catalog", "sales")) for view in names]

    def make(self, _: Warehouse, move: ViewMove, **how: Any) -> None:
        self.made[move.view.name.table] = move.text

    def table(self, table: str, **columns: Any) -> None:
        """Make a job whose table has gone to the schema lake, and is completed."""
        self.store.add([NewJob(name(table), TargetFormat.DELTA, target_schema="lake")], NOW)
        [job] = self.store.jobs(named([name(table)]))
        done = {"state": DROPPED, "desired_state": DROPPED, "comm_level3_date": NOW, "in_process": False}
        self.store.edit(replace(job, **{**done, **columns}), NOW)

    def run(self, *views: str, **how: Any) -> dict[str, str]:
        # The session isn't asked for anything.
        warehouse = Warehouse(None, None)  # type: ignore[arg-type]
        self.report = move_views(self.store, warehouse, ViewOptions(views, **how))
        return {view.view.table: view.outcome for view in self.report.views}

    report: ViewsReport = field(default_factory=ViewsReport)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    store = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    store.create()
    catalog = Catalog(store)
    monkeypatch.setattr(new_views, "read", catalog.read)
    monkeypatch.setattr(new_views, "is_there", lambda *_: None)
    monkeypatch.setattr(new_views, "check", lambda *_, **__: None)
    monkeypatch.setattr(new_views, "lost_settings", lambda *_: "")
    monkeypatch.setattr(new_views, "make", catalog.make)
    monkeypatch.setattr(new_views, "carry_access", lambda *_: None)
    return catalog


def test_archived_jobs_count_too(catalog: Catalog) -> None:
    catalog.table("orders")
    catalog.table("items")
    assert catalog.store.archive(finished(), NOW) == 2
    catalog.views = {"v": "SELECT * FROM orders", "w": "SELECT * FROM items"}
    assert catalog.run(dry_run=True) == {"v": "planned", "w": "planned"}
    [items] = catalog.store.archived(named([name("items")]))
    [items] = catalog.store.unarchive([items.task_id], NOW)
    catalog.store.edit(replace(items, desired_state=State.WRITES_BLOCKED), NOW)
    # That one is being reverted.
    assert catalog.run() == {"v": "moved"}
    assert catalog.made == {"v": "SELECT * FROM `spark_catalog`.`lake`.`orders`"}


def test_views_in_a_circle_are_refused_and_the_others_made_in_order(catalog: Catalog) -> None:
    catalog.table("orders")
    catalog.views = {
        "orders": "SELECT * FROM lake.orders",
        "a": "SELECT * FROM b, c",
        "b": "SELECT * FROM d",
        "c": "SELECT * FROM d",
        "d": "SELECT * FROM orders",
        "x": "SELECT * FROM y, orders",
        "y": "SELECT * FROM x",
        "z": "SELECT 1 AS one",
    }
    # The view that stands for the table isn't one of these, nor is that over no table.
    outcomes = catalog.run()
    assert list(catalog.made) == ["d", "b", "c", "a"]
    assert {outcomes.pop(view) for view in ("x", "y")} == {"refused"}
    assert set(outcomes.values()) == {"moved"}
    error = catalog.report.views[-1].error
    assert error.startswith("[VIEW_CYCLE] spark_catalog.sales.x and spark_catalog.sales.y read each other")


def test_named_views_bring_along_what_they_read(catalog: Catalog) -> None:
    catalog.table("orders")
    catalog.views = {"b": "SELECT * FROM orders", "a": "SELECT * FROM b", "c": "SELECT * FROM orders"}
    assert catalog.run("sales.a") == {"b": "moved", "a": "moved"}
    assert catalog.run("SALES") == {"b": "moved", "a": "moved", "c": "moved"}
    assert catalog.run("sales.c*", "spark_catalog.sales.b") == {"b": "moved", "c": "moved"}


def test_a_schema_whose_tables_went_to_several_places_says_nothing_of_its_views(catalog: Catalog) -> None:
    catalog.table("orders")
    catalog.table("items", target_schema=None)
    catalog.views = {"v": "SELECT * FROM orders"}
    assert catalog.run() == {"v": "refused"}
    assert "[VIEWS_OF_SEVERAL_SCHEMAS]" in catalog.report.views[0].error
