"""The steps of closing, the conditions for the mark, and its removal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests import conditions
from tests.fleet_steps import step_run
from tests.unit import fleets
from tests.unit.fleet_jobs import job
from typer.testing import CliRunner, Result

from tableferry import cli
from tableferry.fleet.closure import leftovers, removal
from tableferry.fleet.closure.closing_plan import closing_steps, mark_for_closing, remove_mark
from tableferry.fleet.closure.leftovers import Leftovers, LeftoverStatus
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.progress_properties import ROOT
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.jobs.job import Job, OldName, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.jobs.steps import NoteLeftovers
from tableferry.fleet.late_files.file_record import FILES
from tableferry.fleet.modes.close import mark_to_close, unmark_to_close
from tableferry.fleet.modes.reverter import _prepare_revert
from tableferry.fleet.operations.selection import select_archived
from tableferry.fleet.queue.selections import everything, finished, numbered, to_close
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry

NOW = fleets.NOW
DAY = timedelta(days=1)
COMPLETED: dict[str, Any] = {
    "state": State.HIVE_DROPPED,
    "desired_state": State.HIVE_DROPPED,
    "comm_level3_date": NOW,
}
NOTE = Leftovers("file:/w/orders", ("file:/w/orders_sync/8cb939a0",)).note()
CLOSED_THEN = {"closed": {"at": "2026-01-02T03:04:05+00:00", "kept": []}}


def steps(job: Job, **existing: Kind) -> list[str]:
    names = Names.of(job)
    there = {getattr(names, name): kind for name, kind in existing.items()}
    return [type(step).__name__ for step in closing_steps(job, there)]


ALL = ["CheckLate", "NoteLeftovers", "DropArchived", "RemoveLeftovers"]


@pytest.mark.parametrize(
    ("columns", "existing", "expected"),
    [
        ({}, {"main": Kind.ICEBERG, "archived": Kind.HIVE}, [*ALL, "AllowCleaning"]),
        ({"target_format": TargetFormat.DELTA}, {"main": Kind.DELTA, "archived": Kind.HIVE}, ALL),
        # A worker crashed after the note and before the drop.
        (
            {"record": {"closing": NOTE}},
            {"main": Kind.ICEBERG, "archived": Kind.HIVE},
            [*ALL, "AllowCleaning"],
        ),
        # A worker crashed after the drop.
        ({"record": {"closing": NOTE}}, {"main": Kind.ICEBERG}, ["RemoveLeftovers", "AllowCleaning"]),
        # A view that users created with the free name doesn't read the removed files.
        (
            {"target_schema": "lake", "old_name": OldName.TABLE},
            {"target": Kind.ICEBERG, "archived": Kind.HIVE, "main": Kind.VIEW},
            [*ALL, "AllowCleaning"],
        ),
        # A user dropped the archived table.
        ({}, {"main": Kind.ICEBERG}, ["NoteLeftovers", "RemoveLeftovers", "AllowCleaning"]),
    ],
)
def test_closing_steps_follow_from_tables_and_record(
    columns: dict[str, Any], existing: Mapping[str, Kind], expected: list[str]
) -> None:
    assert steps(job(**COMPLETED, **columns), **existing) == expected


@pytest.mark.parametrize(
    ("existing", "condition", "parameters"),
    [
        (
            {"archived": Kind.HIVE},
            "NEW_TABLE_GONE_BEFORE_CLOSE",
            {"actual": "doesn't exist", "revert": re.compile("^tableferry fleet revert --from-archive")},
        ),
        (
            {"main": Kind.DELTA, "archived": Kind.HIVE},
            "NEW_TABLE_GONE_BEFORE_CLOSE",
            {"actual": "is a Delta table", "expected": "an Iceberg table"},
        ),
        ({"main": Kind.HIVE}, "NEW_TABLE_GONE_BEFORE_CLOSE", {"actual": "is a Hive table"}),
        (
            {"main": Kind.ICEBERG, "hive": Kind.HIVE},
            "HIVE_TABLE_RECREATED_BEFORE_CLOSE",
            {"table": re.compile("orders_hive$"), "archived": re.compile("orders_hive_archived$")},
        ),
        ({"main": Kind.ICEBERG, "archived": Kind.VIEW}, "ARCHIVED_NAME_TAKEN", {"kind": "a view"}),
    ],
)
def test_closing_refuses_tables_changed_after_archive(
    existing: Mapping[str, Kind], condition: str, parameters: dict[str, Any]
) -> None:
    with conditions.raises(condition, **parameters):
        steps(job(**COMPLETED), **existing)


def test_closing_allows_other_hive_table_with_free_name() -> None:
    moved = job(**COMPLETED, target_catalog="lake", target_schema="sales", old_name=OldName.TABLE)
    closing = steps(moved, target=Kind.ICEBERG, hive=Kind.HIVE, archived=Kind.HIVE)
    assert "DropArchived" in closing


@pytest.mark.parametrize(
    ("columns", "condition", "parameters"),
    [
        ({}, "JOB_NOT_ARCHIVED", {"state": "Undefined"}),
        (
            {"state": State.WRITES_UNBLOCKED, "desired_state": State.WRITES_UNBLOCKED},
            "JOB_NOT_ARCHIVED",
            {"state": "WritesUnblocked"},
        ),
        (
            {**COMPLETED, "desired_state": State.WRITES_BLOCKED},
            "JOB_NOT_ARCHIVED",
            {"state": "HiveDropped"},
        ),
        ({**COMPLETED, "in_process": True}, "JOB_NOT_COMPLETED", {}),
        ({**COMPLETED, "comm_level3_date": None}, "JOB_NOT_NOTIFIED", {}),
        ({**COMPLETED, "migration_paused": True}, "JOB_PAUSED", {"reason": "None"}),
        ({**COMPLETED, "record": CLOSED_THEN}, "JOB_CLOSED", {"date": "2026-01-02"}),
    ],
)
def test_mark_is_refused_for_unfinished_job(
    columns: dict[str, Any], condition: str, parameters: dict[str, Any]
) -> None:
    with conditions.raises(condition, table="spark_catalog.sales.orders", **parameters):
        mark_for_closing(job(**columns), NOW)


def test_mark_is_removed_while_hive_table_exists() -> None:
    completed = job(**COMPLETED)
    assert remove_mark(mark_for_closing(completed, NOW)) == completed
    begun = mark_for_closing(completed, NOW).with_record(closing=NOTE)
    undo = "tableferry fleet close --undo spark_catalog.sales.orders"
    with conditions.raises("JOB_BEING_CLOSED", command=undo):
        remove_mark(begun)
    assert remove_mark(begun, hive_exists=True) == completed
    with conditions.raises("JOB_CLOSED_FINALLY", date="2026-01-02", archived=ARCHIVED):
        remove_mark(completed.with_record(**CLOSED_THEN), hive_exists=True)


@pytest.mark.parametrize(
    ("note", "condition"), [({"closing": NOTE}, "JOB_BEING_CLOSED"), (CLOSED_THEN, "JOB_CLOSED_FINALLY")]
)
def test_revert_removes_mark_and_is_refused_after_closing_began(note: dict[str, Any], condition: str) -> None:
    completed = mark_for_closing(job(**COMPLETED), NOW)
    reverting = _prepare_revert(completed, NOW, from_archive=True)
    assert (reverting.close_at, reverting.desired_state) == (None, State.WRITES_BLOCKED)
    for begun in (
        completed.with_record(**note),
        completed.with_record(**note).paused(PauseReason.STEP_FAILED),
    ):
        with conditions.raises(condition):
            _prepare_revert(begun, NOW, from_archive=True)


def test_leftovers_survive_json_round_trip() -> None:
    full = Leftovers("s3://b/t", ("s3://b/t_sync",), ("s3://b/x/day=1",), "s3://b/t", "Thu Nov 26")
    assert Leftovers.of(json.loads(json.dumps(full.note()))) == full


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> fleets.Fleet:
    """A queue with two completed jobs and a job on probation, and a completed job in its archive."""
    monkeypatch.chdir(tmp_path)
    # These tests need no session.
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    fleet = fleets.Fleet(fleets.opened(tmp_path))
    fleet.add("old", "orders", "lines", "probation", at=fleets.days_ago(60))
    for table in ("old", "orders", "lines", "probation"):
        fleet.ready(table, fleets.days_ago(59), notified=fleets.days_ago(58))
        fleet.migrated(table, fleets.days_ago(40))
    fleet.finished("old", fleets.days_ago(20))
    assert fleet.store.archive(finished(), NOW) == 1
    for table in ("orders", "lines"):
        fleet.finished(table, fleets.days_ago(20))
    return fleet


def mark(store: Store, *tables: str, dry_run: bool = False) -> dict[str, str]:
    queued, archived = select_archived(store, tables)
    at = NOW + 7 * DAY
    markings = mark_to_close(store, queued, archived, at, NOW, "ann", dry_run=dry_run)
    return {marking.job.tbl_name: marking.error for marking in markings}


def due(store: Store, at: Any = NOW + 7 * DAY) -> list[str]:
    return [job.tbl_name for job in store.jobs(to_close(at))]


def test_marked_job_stays_in_queue_or_returns_from_archive(queue: fleets.Fleet) -> None:
    store = queue.store
    assert mark(store, "sales.*", dry_run=True) == {"old": "", "orders": "", "lines": ""}
    assert [job.tbl_name for job in store.archived(everything())] == ["old"]
    assert mark(store, "sales.old", "sales.orders") == {"old": "", "orders": ""}
    assert due(store, NOW + 7 * DAY - timedelta(microseconds=1)) == []
    assert due(store) == ["old", "orders"]
    # Only the third job is finished; the other jobs wait for their closing.
    assert store.archive(finished(), NOW) == 1
    assert [job.tbl_name for job in store.archived(everything())] == ["lines"]
    errors = mark(store, "sales.probation", "sales.lines")
    error = "[JOB_NOT_ARCHIVED] spark_catalog.sales.probation is at WritesUnblocked"
    assert errors["probation"].startswith(error)
    assert due(store) == ["old", "orders", "lines"]


def test_claimed_job_is_not_marked_and_other_jobs_are(queue: fleets.Fleet) -> None:
    store = queue.store
    store.claim(numbered([queue.job("orders").task_id]), "other", now=NOW, lease=fleets.LEASE, limit=1)
    errors = mark(store, "sales.*")
    assert "[JOB_CHANGED]" in errors.pop("orders")
    assert set(errors.values()) == {""}
    # While another worker closes the job, its mark can't be removed and it can't be reverted.
    store.claim(numbered([queue.job("lines").task_id]), "closer", now=NOW, lease=fleets.LEASE, limit=1)
    nothing: Any = None
    [undone] = unmark_to_close(store, [queue.job("lines")], NOW, "ann", nothing)
    assert "[JOB_CHANGED]" in undone.error
    with conditions.raises("JOB_CLAIMED", worker="closer"):
        _prepare_revert(queue.job("lines"), NOW, from_archive=True)


ENTRY = Entry(Kind.HIVE, False, "file:/w/orders", "Thu Nov 26 01:44:09 UTC 2026", "", "", "", "")
ARCHIVED = Names.of(job()).archived
RECORD = "file:/w/orders_sync/known-0f0f0f0f"
BEGUN = replace(Leftovers("file:/w/orders", (RECORD,)), location=ENTRY.location, record=RECORD)
# The same time in another machine's time zone.
SAME = ENTRY._replace(created="Thu Nov 26 02:44:09 CET 2026")
ELSEWHERE = ENTRY._replace(location="file:/w/orders_sync/8cb939a0/n1-0f0f0f0f")
THERE = [
    (SAME, {}, True),
    # A shadow run has changed the location.
    (ELSEWHERE, {FILES: RECORD, ROOT: "file:/w/orders"}, True),
    (ENTRY._replace(location="file:/w/backup"), {}, False),
    (ENTRY._replace(kind=Kind.VIEW), {}, False),
    (None, {}, False),
]


def archived_is(there: Entry | None, properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {ARCHIVED: there} if there else {}
    monkeypatch.setattr(leftovers, "entries", lambda *_: entries)
    table = HiveTable(ARCHIVED, Kind.HIVE, properties=properties)
    monkeypatch.setattr(leftovers, "described", lambda *_: table)


@pytest.mark.parametrize(("there", "properties", "same"), THERE)
def test_replaced_archived_table_is_not_dropped(
    there: Entry | None, properties: dict[str, str], same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Job] = []
    found = replace(BEGUN, outside=("file:/w/other",))
    archived_is(there, properties, monkeypatch)
    monkeypatch.setattr(leftovers, "find_leftovers", lambda *_: found)
    monkeypatch.setattr(leftovers, "require_no_dependents", lambda *_: None)
    nothing: Any = None
    begun = job(**COMPLETED, record={"closing": BEGUN.note()})
    step = NoteLeftovers(Names.of(begun).target, ARCHIVED, TargetFormat.ICEBERG)

    def note(job: Job) -> Job:
        saved.append(job)
        return job

    run = step_run(Warehouse(nothing, nothing), begun, note)
    if same:
        leftovers.note_leftovers(step, run)
        assert [job.record.closing for job in saved] == [found.note()]
    else:
        with conditions.raises("ARCHIVED_TABLE_REPLACED_DURING_CLOSE", table=ARCHIVED):
            leftovers.note_leftovers(step, run)
        assert saved == []


@pytest.mark.parametrize(("there", "properties", "same"), THERE)
def test_mark_is_removed_only_if_recorded_table_exists(
    queue: fleets.Fleet,
    there: Entry | None,
    properties: dict[str, str],
    same: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark(queue.store, "sales.orders")
    queue.change("orders", NOW, record={"closing": BEGUN.note()})
    archived_is(there, properties, monkeypatch)
    nothing: Any = None
    [undoing] = unmark_to_close(queue.store, [queue.job("orders")], NOW, "ann", lambda: nothing)
    assert (undoing.error == "", queue.job("orders").close_at is None) == (same, same)
    assert same or "may be gone already" in undoing.error


def test_note_of_earlier_version_names_only_its_record_as_written() -> None:
    note = {"root": "file:/w/orders", "folders": ["file:/w/orders_sync"], "record": RECORD, "location": "l"}
    assert Leftovers.of(note) == Leftovers("file:/w/orders", (RECORD,), (), "l", "", RECORD)
    assert Leftovers.of({"root": "file:/w/orders"}).written == ()


class Folders:
    """A storage with one directory of folders, and the names in them."""

    def __init__(self, folders: Mapping[str, tuple[str, ...]]) -> None:
        self.folders = dict(folders)

    def all_names(self, path: str) -> tuple[str, ...]:
        name = path.rpartition("/")[2]
        return tuple(sorted(self.folders)) if name == "orders_sync" else self.folders[name]

    def exists(self, path: str) -> bool:
        return True

    def remove(self, path: str) -> None:
        del self.folders[path.rpartition("/")[2]]

    def remove_empty(self, path: str) -> None:
        assert not self.folders


@pytest.mark.parametrize("form", [TargetFormat.ICEBERG, TargetFormat.DELTA])
def test_only_unreferenced_folders_of_migration_are_removed(
    form: TargetFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders of earlier migrations and of users stay, even if their names have the same form."""
    sync, versions = "file:/w/orders_sync", ("n1-0f0f0f0f", "v2-0f0f0f0f")
    names = ("8cb939a0", "11111111", "33333333")
    storage = Folders({
        **dict.fromkeys(names, versions), "22222222": (*versions, "theirs"), "notes": (),
        **dict.fromkeys(("known-0f0f0f0f", "known-aaaaaaaa"), ("part-0.parquet",)),
    })  # fmt: skip
    written = ("known-0f0f0f0f", "8cb939a0", "22222222", "33333333")
    found = Leftovers("file:/w/orders", tuple(f"{sync}/{name}" for name in written), record=RECORD)
    target = Names.of(job()).target
    monkeypatch.setattr(removal, "entries", lambda *_: {target: ENTRY._replace(location="file:/w/lake")})
    monkeypatch.setattr(
        removal, "list_referenced_files", lambda *_: ["/w/orders_sync/33333333/n1-0f0f0f0f/p"]
    )
    monkeypatch.setattr(removal, "list_files", lambda *_: [])
    monkeypatch.setattr(removal, "storage_of", lambda *_: storage)
    nothing: Any = None
    removed = removal.remove(Warehouse(nothing, nothing), target, form, found)
    assert removed.kept == (f"{sync}/33333333",)
    left = ("11111111", "22222222", "known-aaaaaaaa", "notes")
    assert removed.left == tuple(f"{sync}/{name}" for name in left)
    assert set(storage.folders) == {*left, "33333333"}


def test_own_files_of_rewritten_hive_table_are_listed_and_not_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, shadows = (
        ListedFile(f"file:/w/orders/day=a/{name}", 1, 2)
        for name in ("000000_0", "00000_0_tableferry-0f0f0f0f-c000")
    )
    gone: list[str] = []

    def remove(_: object, some: list[str]) -> list[str]:
        gone.extend(some)
        return []

    target = Names.of(job()).target
    own_entry = {target: ENTRY._replace(location="file:/w/lake")}
    monkeypatch.setattr(leftovers, "entries", lambda *_: own_entry)
    monkeypatch.setattr(removal, "entries", lambda *_: own_entry)
    monkeypatch.setattr(removal, "list_referenced_files", lambda *_: [])
    monkeypatch.setattr(removal, "list_files", lambda *_: [own, shadows])
    monkeypatch.setattr(removal, "storage_of", lambda *_: Folders({}))
    monkeypatch.setattr(removal, "_remove_each", remove)
    nothing: Any = None
    warehouse = Warehouse(nothing, nothing)
    removed = removal.remove(warehouse, target, TargetFormat.DELTA, BEGUN, rewritten=True)
    assert (gone, removed.files) == ([shadows.path], 1)
    assert removed.left == ("file:/w/orders (the Hive table's own files)",)
    own_entry[target] = ENTRY._replace(location="file:/w/orders/rewritten")
    with conditions.raises("REWRITTEN_TABLE_AMONG_OLD_FILES"):
        removal.remove(warehouse, target, TargetFormat.DELTA, BEGUN, rewritten=True)


def call(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli.app, ["fleet", "close", "--store", "sqlite:///fleet.db", *arguments])
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result


def test_close_command_marks_and_unmarks_tables(queue: fleets.Fleet) -> None:
    assert "would be marked to be closed" in call("sales.orders", "--dry-run").stdout
    assert queue.job("orders").close_at is None
    shown = call("sales.orders", "--after-days", "3").stdout
    assert "spark_catalog.sales.orders is marked to be closed, from " in shown
    assert "to cancel: tableferry fleet close --undo spark_catalog.sales.orders" in shown
    assert "Next: tableferry fleet close (1 table, from " in shown
    at = queue.job("orders").close_at
    assert at is not None
    assert timedelta(days=2, hours=23) < at - queue.store.now() <= 3 * DAY
    [row] = json.loads(call("sales.orders", "--output", "json").stdout)
    assert (row["table"], row["ok"]) == ("spark_catalog.sales.orders", True)
    again = queue.job("orders").close_at
    assert again is not None
    assert again - at > 3 * DAY
    action = json.loads(
        CliRunner().invoke(cli.app, ["fleet", "list", "sales.orders", *STORE, "--output", "json"]).stdout
    )[0]["next"]
    assert action["mode"] == "close"
    assert "isn't marked to be closed" in call("--undo", "sales.*").stdout
    assert queue.job("orders").close_at is None


STORE = ("--store", "sqlite:///fleet.db")


def test_close_list_shows_leftovers(queue: fleets.Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    call("sales.orders")
    queue.change("lines", NOW, record=CLOSED_THEN)

    def look(warehouse: Any, target: Any, archived: Any, form: Any) -> LeftoverStatus:
        blocker = "a view reads it" if target.table == "orders" else ""
        return LeftoverStatus(archived, "file:/w/t", ("file:/w/t_sync",), False, blocker)

    nothing: Any = None
    monkeypatch.setattr(leftovers, "read_status", look)
    monkeypatch.setattr(
        "tableferry.cli.fleet.options.OpenFleet.warehouse", lambda opened: Warehouse(nothing, nothing)
    )
    listed = json.loads(call("--list", "--output", "json").stdout)
    rows = {row["table"].rpartition(".")[2]: row for row in listed}
    assert rows.keys() == {"old", "orders", "lines"}
    assert (rows["lines"]["hive"], rows["lines"]["closed"]) == (None, "2026-01-02T03:04:05+00:00")
    assert rows["orders"]["hive"] == "spark_catalog.sales.orders_hive_archived"
    assert (rows["orders"]["folders"], rows["orders"]["gc_enabled"]) == (["file:/w/t_sync"], False)
    assert rows["orders"]["close_at"] is not None
    assert rows["old"]["close_at"] is None
    shown = " ".join(call("--list").stdout.split())
    assert "sales.orders can't be closed now: a view reads it" in shown
    assert "Next: tableferry fleet close TABLE…" in shown


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["sales.none"], 1, "[ARCHIVED_JOB_NOT_FOUND] 'sales.none' "),
        (["logs.*"], 1, "[ARCHIVED_JOB_NOT_FOUND] 'logs.*' "),
        (["sales.probation"], 1, "[JOB_NOT_ARCHIVED] spark_catalog.sales.probation is at WritesUnblocked"),
        (["--undo"], 1, "[NO_TABLE_NAMED]"),
        (["--undo", "--list"], 2, "exclude each other"),
        (["--after-days", "3"], 2, "needs the tables"),
        (["--undo", "sales.orders", "--dry-run"], 2, "has no dry run"),
        (["sales.orders", "--after-days", "-1"], 2, "Invalid value for '--after-days'"),
    ],
)
def test_close_reports_refused_table(
    queue: fleets.Fleet, arguments: list[str], status: int, message: str
) -> None:
    result = call(*arguments, status=status)
    assert message in " ".join(result.output.split())
    assert all(job.close_at is None for job in queue.store.jobs(everything()))
