"""A run that adopts the state of a renamed target plans everything before it renames the state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pytest
from arro3.core import Array, DataType, Table
from tests.conditions import raises
from tests.unit.conftest import ProjectFiles

from tableferry import pipelines, storage
from tableferry.pipelines.model.identities import TableIdentity
from tableferry.pipelines.model.plan import Plan
from tableferry.pipelines.model.steps import AdoptRenamedState
from tableferry.pipelines.model.target_state import Baseline, MigrationStart, PinnedCopy, Tracking
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.local_metastore import Entry, LocalMetastore
from tableferry.spark.tables import TableName

OLD, TARGET, LEGACY, SOURCE = (
    TableName.parse(name) for name in ("silver.old", "silver.orders", "silver.orders_legacy", "bronze.orders")
)
FOLDER = "targetTable=silver.old"
QUERY = "5f1c0e3e-0b5e-4a2b-9d0a-1c1f0e7b2a11"


class RenamedProject:
    """A project whose spec names a target `TARGET` that was `OLD` when its copy was made."""

    def __init__(self, project: ProjectFiles, warehouse: Path) -> None:
        self.project, self.warehouse = project, warehouse
        project.write("dataflows/sales/dataflowspec/orders_main.json", project.append())
        self.ids = {name.key: self._create(name) for name in (TARGET, LEGACY, SOURCE)}
        self.store = StateStore(project.root / "state", "p1")

    def _create(self, name: TableName) -> str:
        """Commit a row to a table, and return the table's id."""
        columns = ["ORDER_ID", "AMOUNT", "LOAD_TIMESTAMP"]
        rows = Table.from_arrays([Array([1], type=DataType.int32())] * 3, names=columns)
        batch = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(QUERY, 0)])
        deltalake.write_deltalake(self._folder(name), rows, commit_properties=batch)
        return str(deltalake.DeltaTable(self._folder(name)).metadata().id)

    def _folder(self, name: TableName) -> Path:
        schema, table = name.parts
        return self.warehouse / f"{schema}.db" / table

    def record(self, table_id: str) -> None:
        """Record under the old name that a table with this id has the copied history."""
        copy = PinnedCopy(LEGACY, self.ids[LEGACY.key], 0)
        baselines = {SOURCE.key: Baseline(SOURCE, self.ids[SOURCE.key], 0)}
        start = MigrationStart("p1", OLD, copy, baselines, datetime(2026, 11, 1, tzinfo=UTC))
        assert self.store.record_start(start)
        self.store.record_progress(start, Tracking({SOURCE.key: 0}, 0, 1, "match"))
        self.store.record_table_identity(OLD, 0, OLD, TableIdentity(table_id, 0, {}))
        (flow,) = self.project.load(environment="dev").dataflows[0].streaming_flows
        checkpoint = self.store.checkpoint_folder(OLD, 0, flow.name)
        offset = {
            "sourceVersion": 1, "reservoirId": self.ids[SOURCE.key], "reservoirVersion": 1, "index": -1,
            "isStartingVersion": False,
        }  # fmt: skip
        storage.write_text(checkpoint / "metadata", json.dumps({"id": QUERY}))
        storage.write_text(checkpoint / "offsets/0", f"v1\n{{}}\n{json.dumps(offset)}")
        storage.write_text(checkpoint / "commits/0", "v1\n{}")

    def find(self, schema: str, table: str) -> Entry | None:
        folder = self._folder(TableName((schema, table)))
        return Entry("MANAGED_TABLE", "delta", f"file:{folder}") if folder.exists() else None

    def plan(self) -> Plan:
        return pipelines.plan(self.project.root, **self._options())

    def run(self) -> None:
        pipelines.run(self.project.root, **self._options())

    def _options(self) -> dict[str, Any]:
        return {"spark": LocalMetastore(self.find), "pipeline_id": "p1", "environment": "dev", "adopt": True}

    def files(self) -> Mapping[Path, bytes]:
        """Return the content of each file of the state but the locks."""
        files = (path for path in self.store.volume.rglob("*") if path.is_file())
        return {path: path.read_bytes() for path in files if path.suffix != ".lock"}


@pytest.fixture
def renamed(project: ProjectFiles, tmp_path: Path) -> RenamedProject:
    return RenamedProject(project, tmp_path / "lake")


def test_run_refused_by_adopted_state_writes_nothing(renamed: RenamedProject) -> None:
    # The user has created a table with the new name instead of renaming the old table.
    renamed.record("the id of the old table")
    before = renamed.files()
    with raises("TARGET_REPLACED", recorded="the id of the old table", found=renamed.ids[TARGET.key]):
        renamed.run()
    assert renamed.files() == before


def test_plan_with_adoption_continues_flows_at_their_checkpoints(renamed: RenamedProject) -> None:
    renamed.record(renamed.ids[TARGET.key])
    before = renamed.files()
    plan = renamed.plan()
    assert plan.refusals == ()
    assert plan.steps[0] == AdoptRenamedState(TARGET, FOLDER)
    (target,) = plan.targets
    assert (target.phase, [flow.action for flow in target.flows]) == ("complete", ["idle"])
    assert renamed.files() == before
