"""On serverless compute, which has no Iceberg of ours, tables become Delta alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import conditions
from tests.unit.fleets import LEASE, NOW, Fleet, opened

from tableferry import fleet
from tableferry.cli.fleet.options import OpenFleet
from tableferry.fleet.checks.preflight_run import precheck
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.modes.migrator import migrate
from tableferry.fleet.modes.preprocessor import preprocess
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.reverter import revert
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.modes.worker import Worker
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.settings import FleetSettings
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session
from tableferry.spark.redaction import SHOWN
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

NOTHING: Any = None
ORDERS = TableName(("spark_catalog", "sales", "orders"))


def worker(fleet: Fleet, *, serverless: bool = True, dry_run: bool = False) -> Worker:
    warehouse = Warehouse(NOTHING, NOTHING, serverless=serverless)
    return Worker(
        fleet.store, lambda: warehouse, FleetSettings(), "w", FixedClock(NOW + LEASE), dry_run=dry_run
    )


def put(fleet: Fleet, mode: str, target: TargetFormat) -> None:
    """Add a job that is due for a mode."""
    fleet.add("orders", at=NOW, target=target, gap=0)
    if mode == "preprocess":
        return
    fleet.ready("orders", NOW, notified=NOW)
    if mode != "migrate":
        fleet.migrated("orders", NOW)


MODES: dict[str, Callable[[Worker], ModeReport]] = {
    "preprocess": preprocess,
    "migrate": migrate,
    "shadow": shadow,
    "revert": lambda worker: revert(worker, [ORDERS]),
}


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_no_mode_touches_a_table_that_is_to_become_iceberg(tmp_path: Path, mode: str, dry_run: bool) -> None:
    fleet = Fleet(opened(tmp_path))
    put(fleet, mode, TargetFormat.ICEBERG)
    before = fleet.store.jobs(everything())
    with conditions.raises("SERVERLESS_WITHOUT_ICEBERG", catalog="ice"):
        MODES[mode](worker(fleet, dry_run=dry_run))
    assert fleet.store.jobs(everything()) == before


@pytest.mark.parametrize(
    ("serverless", "target"), [(True, TargetFormat.DELTA), (False, TargetFormat.ICEBERG)]
)
def test_what_can_be_written_is_not_refused(tmp_path: Path, serverless: bool, target: TargetFormat) -> None:
    fleet = Fleet(opened(tmp_path))
    put(fleet, "migrate", target)
    with pytest.raises(AttributeError, match="has no attribute 'sql'"):  # it asks for the table
        migrate(worker(fleet, serverless=serverless, dry_run=True))


def test_preflight_says_it_first(tmp_path: Path) -> None:
    warehouse = Warehouse(NOTHING, NOTHING, iceberg_catalog="lake", serverless=True)
    with conditions.raises("SERVERLESS_WITHOUT_ICEBERG", catalog="lake"):
        precheck(Fleet(opened(tmp_path)).store, warehouse, [NewJob(ORDERS, TargetFormat.ICEBERG)])


@pytest.mark.parametrize(
    ("environ", "connect", "serverless"),
    [
        ({"DATABRICKS_RUNTIME_VERSION": "client.4.2"}, False, True),
        ({"DATABRICKS_RUNTIME_VERSION": "17.3", "IS_SERVERLESS": "TRUE"}, False, True),
        ({"DATABRICKS_RUNTIME_VERSION": "17.3"}, False, False),
        ({"DATABRICKS_HOST": "https://w"}, True, True),
        ({"DATABRICKS_HOST": "https://w", "DATABRICKS_SERVERLESS_COMPUTE_ID": "auto"}, True, True),
        ({"DATABRICKS_HOST": "https://w", "DATABRICKS_CLUSTER_ID": "c"}, True, False),
        ({"DATABRICKS_HOST": "https://w"}, False, False),
        ({"SPARK_REMOTE": "sc://s:15002"}, False, False),
        ({}, False, False),
    ],
)
def test_the_session_knows_whether_it_is_serverless(
    environ: dict[str, str],
    connect: bool,
    serverless: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", {"DATABRICKS_CONFIG_FILE": str(tmp_path / "none"), **environ})
    monkeypatch.setattr(session, "has_databricks_connect", lambda: connect)
    assert session.on_serverless() is serverless
    monkeypatch.setattr(fleet, "open_access", lambda *_, **__: NOTHING, raising=False)
    asked: dict[str, str] = {}
    spark: Any = SimpleNamespace(conf=SimpleNamespace(set=asked.__setitem__))
    warehouse = OpenFleet(FleetSettings(), NOTHING, lambda: spark).warehouse()
    assert warehouse.serverless is serverless
    # Serverless compute takes no such setting.
    assert asked == SHOWN | ({} if serverless else {"spark.sql.catalog.ice.cache-enabled": "false"})
