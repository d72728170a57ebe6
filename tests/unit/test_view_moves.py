"""Moves of views without a catalog: the jobs that they depend on, and the order of the views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tableferry.fleet.jobs.job import State, TargetFormat
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import finished, named
from tableferry.fleet.queue.store import Store
from tableferry.fleet.views import catalog as view_catalog
from tableferry.fleet.views.moving import ViewOptions, ViewReport, move_views
from tableferry.fleet.views.planning import View, ViewMove
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark.tables import TableName

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DROPPED = State.HIVE_DROPPED


def name(table: str) -> TableName:
    return TableName(("spark_catalog", "sales", table))


@dataclass
class Catalog:
    """A fake catalog: the texts of the views by name, before (`views`) and after a move (`moved`)."""

    store: Store
    views: dict[str, str] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)

    def read(self, _: Warehouse, schema: TableName, wanted: Callable[[TableName], bool]) -> list[View]:
        assert schema == TableName(("spark_catalog", "sales"))
        names = filter(wanted, map(name, self.views))
        return [View(view, self.views[view.table], ("spark_catalog", "sales")) for view in names]

    def make(self, _: Warehouse, move: ViewMove, **how: Any) -> None:
        self.moved[move.view.name.table] = " ".join(move.text.split())

    def add_job(self, table: str, **columns: Any) -> None:
        """Add a completed job whose table was migrated to the schema `lake`."""
        self.store.add([NewJob(name(table), TargetFormat.DELTA, target_schema="lake")], NOW)
        [job] = self.store.jobs(named([name(table)]))
        done = {"state": DROPPED, "desired_state": DROPPED, "comm_level3_date": NOW, "in_process": False}
        self.store.edit(replace(job, **{**done, **columns}), NOW)

    def run(self, *views: str, **how: Any) -> dict[str, str]:
        # The fake catalog needs no session.
        warehouse = Warehouse(None, None)  # type: ignore[arg-type]
        self.reports = move_views(self.store, warehouse, ViewOptions(views, **how))
        return {report.view.table: report.outcome for report in self.reports}

    reports: list[ViewReport] = field(default_factory=list)


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    store = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    store.create()
    catalog = Catalog(store)
    monkeypatch.setattr(view_catalog, "read_views", catalog.read)
    monkeypatch.setattr(view_catalog, "is_current", lambda *_: None)
    monkeypatch.setattr(view_catalog, "check", lambda *_, **__: None)
    monkeypatch.setattr(view_catalog, "lost_settings", lambda *_: "")
    monkeypatch.setattr(view_catalog, "create", catalog.make)
    monkeypatch.setattr(view_catalog, "carry_access", lambda *_: None)
    return catalog


def test_views_of_archived_jobs_are_moved(catalog: Catalog) -> None:
    catalog.add_job("orders")
    catalog.add_job("items")
    assert catalog.store.archive(finished(), NOW) == 2
    catalog.views = {"v": "SELECT * FROM orders", "w": "SELECT * FROM items"}
    assert catalog.run(dry_run=True) == {"v": "planned", "w": "planned"}
    [items] = catalog.store.archived(named([name("items")]))
    [items] = catalog.store.unarchive([items.task_id], NOW)
    catalog.store.edit(replace(items, desired_state=State.WRITES_BLOCKED), NOW)
    # The job of items is being reverted.
    assert catalog.run() == {"v": "moved"}
    assert catalog.moved == {"v": "SELECT * FROM `spark_catalog`.`lake`.`orders`"}


def test_views_in_cycle_are_refused_and_other_views_created_in_order(catalog: Catalog) -> None:
    catalog.add_job("orders")
    catalog.views = {
        "orders": "SELECT * FROM lake.orders",
        "a": "SELECT * FROM b, c",
        "b": "SELECT * FROM d",
        "c": "SELECT * FROM d",
        "d": "SELECT * FROM orders",
        "x": "SELECT * FROM y, orders",
        "y": "SELECT * FROM x",
        "z": "SELECT 1 AS id",
    }
    # The view `orders` replaces the migrated table, and `z` reads no table; neither is moved.
    outcomes = catalog.run()
    assert list(catalog.moved) == ["d", "b", "c", "a"]
    assert {outcomes.pop(view) for view in ("x", "y")} == {"refused"}
    assert set(outcomes.values()) == {"moved"}
    finding = catalog.reports[-1].finding
    assert finding is not None
    assert finding.one_line.startswith(
        "[VIEW_CYCLE] spark_catalog.sales.x, spark_catalog.sales.y read each other"
    )


def test_named_view_is_moved_with_views_that_it_reads(catalog: Catalog) -> None:
    catalog.add_job("orders")
    catalog.views = {"b": "SELECT * FROM orders", "a": "SELECT * FROM b", "c": "SELECT * FROM orders"}
    assert catalog.run("sales.a") == {"b": "moved", "a": "moved"}
    assert catalog.run("SALES") == {"b": "moved", "a": "moved", "c": "moved"}
    assert catalog.run("sales.c*", "spark_catalog.sales.b") == {"b": "moved", "c": "moved"}


def test_view_is_refused_after_tables_of_its_schema_moved_to_several_schemas(catalog: Catalog) -> None:
    catalog.add_job("orders")
    catalog.add_job("items", target_schema=None)
    catalog.views = {"v": "SELECT * FROM orders"}
    assert catalog.run() == {"v": "refused"}
    [report] = catalog.reports
    assert report.finding is not None
    assert report.finding.condition == "VIEWS_OF_SEVERAL_SCHEMAS"
