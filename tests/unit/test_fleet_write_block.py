"""Revoked write privileges are restored only on tables that they apply to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import conditions
from tests.unit.fleet_jobs import NOW
from tests.workspace import FakeWorkspace

from tableferry import workspace
from tableferry.access.metastore_access import MetastoreAccess
from tableferry.access.unity_catalog import UnityAccess
from tableferry.fleet.access import fence
from tableferry.fleet.access.catalog_access import AccessByCatalog
from tableferry.fleet.access.write_block import TABLE
from tableferry.fleet.jobs.job import OldName
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import describe_tables
from tableferry.fleet.jobs.steps import BlockWrites, MakeView, UnblockWrites
from tableferry.fleet.modes.job_run import JobRun
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import old_name_view
from tableferry.fleet.warehouse.context import Access, Warehouse
from tableferry.spark.tables import TableName
from tableferry.testing import FixedClock

LEASE = timedelta(hours=1)
WRITERS = {"etl": {"MODIFY", "SELECT"}}
READERS = {"etl": {"SELECT"}}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(fence, "mark", lambda warehouse, table: {})
    store = open_store(f"sqlite:///{tmp_path / 'fleet.db'}")
    store.create()
    yield store
    store.close()


class Slow(UnityAccess):
    """Unity Catalog with a delay before a revocation."""

    sleep: Callable[[], None] = staticmethod(lambda: None)

    def take(self, table: TableName, rights: Mapping[str, Any]) -> None:
        hook, Slow.sleep = Slow.sleep, staticmethod(lambda: None)
        hook()
        super().take(table, rights)


def no_rows(query: str) -> Sequence[Sequence[Any]]:
    return []


def access(*unity: str) -> AccessByCatalog:
    """The access of a session in which these catalogs are in Unity Catalog."""

    def open_one(catalog: str) -> Access:
        nothing: Any = None
        return Slow(workspace.client(), no_rows) if catalog in unity else MetastoreAccess(nothing)

    return AccessByCatalog(open_one)


def moving(store: Store, source: str, target_catalog: str, *unity: str) -> JobRun:
    """Claim the job of a table that moves to another catalog."""
    name = TableName((source, "shop", "orders"))
    new = NewJob(name, target_catalog=target_catalog, target_schema="lake", old_name=OldName.VIEW)
    store.add([new], NOW)
    return claimed(store, FixedClock(NOW), *unity)


def claimed(store: Store, clock: FixedClock, *unity: str) -> JobRun:
    spark: Any = SimpleNamespace(conf=SimpleNamespace(get=lambda *_: None))
    [job] = store.claim(everything(), f"at {clock()}", now=clock(), lease=LEASE, limit=1)
    return JobRun(job, store, Warehouse(spark, access(*unity)), clock, LEASE)


def noted_as_before(run: JobRun) -> None:
    """Replace the job's records by those of an earlier version, which don't name the table."""
    rights = run.job.record.rights
    old = tuple({key: value for key, value in note.items() if key != TABLE} for note in rights)
    run.job = run.job.with_record(rights=old)


@pytest.mark.parametrize("old_notes", [False, True])
def test_revert_to_a_metastore_ignores_privileges_of_the_new_table(
    store: Store, logged_in: FakeWorkspace, old_notes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run = moving(store, "hive_metastore", "uc", "uc")
    names = Names.of(run.job)
    logged_in.put_table(str(names.target), **WRITERS)
    run.perform(BlockWrites(names.target))
    assert logged_in.granted(str(names.target)) == READERS
    # The copy at that time, which is dropped next.
    logged_in.rename_table(str(names.target), str(names.copy))
    if old_notes:
        noted_as_before(run)
    with caplog.at_level("INFO"):
        run.perform(UnblockWrites(names.main))
    assert (run.job.record.rights, run.job.record.withheld_rights) == ((), ())
    # Rows that a principal wrote to it now would be lost.
    assert logged_in.granted(str(names.copy)) == READERS
    assert any(f"aren't given back on {names.main}" in message for message in caplog.messages)


@pytest.mark.parametrize("old_notes", [False, True])
def test_revert_restores_privileges_of_the_hive_table_from_a_catalog_without_privileges(
    store: Store, logged_in: FakeWorkspace, old_notes: bool, caplog: pytest.LogCaptureFixture
) -> None:
    run = moving(store, "uc", "glue", "uc")
    names = Names.of(run.job)
    logged_in.put_table(str(names.main), **WRITERS)
    run.perform(BlockWrites(names.main))
    logged_in.rename_table(str(names.main), str(names.hive))
    if old_notes:
        noted_as_before(run)
    # A worker may crash before it saves the state.
    for _ in range(2):
        run.perform(UnblockWrites(names.target))
        assert not run.job.record.rights
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert any(f"aren't given back on {names.target}" in message for message in warnings)
    # Rows that a principal wrote to it now would be missing in the new table.
    assert logged_in.granted(str(names.hive)) == READERS
    assert "stay blocked" not in describe_tables(run.job)

    run.perform(BlockWrites(names.target))
    logged_in.rename_table(str(names.hive), str(names.main))
    run.perform(UnblockWrites(names.main))
    assert logged_in.granted(str(names.main)) == WRITERS
    assert (run.job.record.rights, run.job.record.withheld_rights) == ((), ())


@pytest.mark.parametrize("old_notes", [False, True])
def test_privileges_are_restored_on_the_new_table_within_unity_catalog(
    store: Store, logged_in: FakeWorkspace, old_notes: bool
) -> None:
    run = moving(store, "old", "uc", "old", "uc")
    names = Names.of(run.job)
    logged_in.put_table(str(names.main), **WRITERS)
    run.perform(BlockWrites(names.main))
    logged_in.rename_table(str(names.main), str(names.hive))
    logged_in.put_table(str(names.target), **READERS)
    if old_notes:
        noted_as_before(run)
    run.perform(UnblockWrites(names.target))
    assert logged_in.granted(str(names.target)) == WRITERS
    assert logged_in.granted(str(names.hive)) == READERS
    assert (run.job.record.rights, run.job.record.withheld_rights) == ((), ())


@pytest.mark.parametrize("target_catalog", ["uc", "glue"])
def test_readers_of_a_table_get_select_on_the_view_with_its_name(
    store: Store, logged_in: FakeWorkspace, target_catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = moving(store, "uc", target_catalog, "uc")
    names = Names.of(run.job)
    logged_in.put_table(str(names.main), "boss@corp.com", **WRITERS)
    run.perform(BlockWrites(names.main))
    logged_in.rename_table(str(names.main), str(names.hive))

    def create_view(_: Warehouse, name: TableName, target: TableName) -> None:
        logged_in.put_table(str(name), "someone@example.com")
        logged_in.tables[str(name)]["table_type"] = "VIEW"

    monkeypatch.setattr(old_name_view, "create_view", create_view)
    run.perform(MakeView(names.main, names.target))
    assert logged_in.granted(str(names.main)) == READERS
    assert logged_in.tables[str(names.main)]["owner"] == "boss@corp.com"


@pytest.mark.parametrize("old_notes", [False, True])
def test_session_without_unity_catalog_is_refused(
    store: Store, logged_in: FakeWorkspace, old_notes: bool
) -> None:
    run = moving(store, "hive_metastore", "uc", "uc")
    names = Names.of(run.job)
    logged_in.put_table(str(names.target), **WRITERS)
    run.perform(BlockWrites(names.target))
    if old_notes:
        noted_as_before(run)
    run.warehouse = replace(run.warehouse, access=access())
    for step in (UnblockWrites(names.main), UnblockWrites(names.target), BlockWrites(names.target)):
        with conditions.raises("RIGHTS_TAKEN_IN_UNITY_CATALOG"):
            run.perform(step)
    assert run.job.record.rights


def test_privileges_are_revoked_again_only_on_their_table(store: Store, logged_in: FakeWorkspace) -> None:
    run = moving(store, "hive_metastore", "uc", "uc")
    names = Names.of(run.job)
    logged_in.put_table(str(names.target), **WRITERS)
    run.perform(BlockWrites(names.target))
    run.perform(BlockWrites(names.main))
    assert len(run.job.record.rights) == 1
    logged_in.put_table(str(names.target), **WRITERS)
    run.perform(BlockWrites(names.target))
    assert logged_in.granted(str(names.target)) == READERS


@pytest.mark.parametrize("reverted", [False, True])
def test_delayed_worker_keeps_privileges_that_only_a_revert_restores(
    store: Store, logged_in: FakeWorkspace, reverted: bool
) -> None:
    slow = moving(store, "uc", "glue", "uc")
    names = Names.of(slow.job)
    logged_in.put_table(str(names.main), **WRITERS)

    def resume() -> None:
        quick = claimed(store, FixedClock(NOW + 2 * LEASE), "uc")
        quick.perform(BlockWrites(names.main))
        quick.perform(UnblockWrites(names.target))
        if reverted:
            quick.perform(UnblockWrites(names.main))
        quick.release(quick.job)

    Slow.sleep = staticmethod(resume)
    with pytest.raises(ClaimLost):
        slow.perform(BlockWrites(names.main))
    assert logged_in.granted(str(names.main)) == (WRITERS if reverted else READERS)
