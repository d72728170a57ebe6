"""Each condition of the new table and the Hive copy has a finding and a command, in each phase of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import conditions
from tests.unit.fleet_jobs import job

from tableferry.fleet.checks.table_conditions import rename_statements, table_conditions
from tableferry.fleet.jobs.hand_changes import (
    Acceptance,
    Condition,
    Phase,
    find_hand_change,
    phase_of,
    rows_lost,
)
from tableferry.fleet.jobs.job import LONGEST_REASON, Job, OldName, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.next_action import next_action
from tableferry.fleet.jobs.pauses import resume_command
from tableferry.fleet.jobs.step_plan import Kind, plan
from tableferry.fleet.jobs.steps import Rename, RestoreEntry, Shadow
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.modes.reverter import _prepare_revert
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry

C, R = Condition, PauseReason
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "tables-changed-by-hand.md"
TABLE = "spark_catalog.sales.orders"
REVERT = f"tableferry fleet revert {TABLE}"
FROM_ARCHIVE = f"tableferry fleet revert --from-archive {TABLE}"
RESUME = f"tableferry fleet resume {TABLE}"
ACCEPT = f"tableferry fleet resume --accept {TABLE}"
NOTHING = (None, "")
NAMES = Names.of(job())
RENAMES = {
    name: f"ALTER TABLE {name.sql} RENAME TO {name.sql}_by_hand"
    for name in (NAMES.target, NAMES.hive, NAMES.archived)
}

PAIRS: dict[str, tuple[State, State]] = {
    "unblocking": (State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED),
    "probation": (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED),
    "archiving": (State.WRITES_UNBLOCKED, State.HIVE_DROPPED),
    "archived": (State.HIVE_DROPPED, State.HIVE_DROPPED),
    "reverting": (State.WRITES_UNBLOCKED, State.WRITES_BLOCKED),
    "reverting from the archive": (State.HIVE_DROPPED, State.WRITES_BLOCKED),
    "copying back": (State.WRITES_BLOCKED, State.SYNC_HIVE),
}

# For each pair of conditions: the finding and the command, in each group of phases.
ON = ("unblocking", "probation", "archiving")
BACKWARD = ("reverting", "reverting from the archive", "copying back")
MATRIX: dict[tuple[Condition, Condition], dict[tuple[str, ...], tuple[PauseReason | None, str]]] = {
    (C.SOUND, C.SOUND): {tuple(PAIRS): NOTHING},
    (C.SOUND, C.MISSING): {
        ("unblocking", "archived"): NOTHING,
        ("probation", "archiving"): (R.HIVE_COPY_MISSING, ACCEPT),
        BACKWARD: (R.HIVE_COPY_MISSING, ACCEPT),
    },
    (C.SOUND, C.REPLACED): {
        ("unblocking", "archived"): NOTHING,
        ("probation", "archiving"): (R.HIVE_COPY_REPLACED, ACCEPT),
        BACKWARD: (R.HIVE_COPY_REPLACED, ACCEPT),
    },
    (C.MISSING, C.SOUND): {
        ON: (R.NEW_TABLE_MISSING, REVERT),
        ("archived",): (R.NEW_TABLE_MISSING, FROM_ARCHIVE),
        BACKWARD: NOTHING,
    },
    (C.REPLACED, C.SOUND): {tuple(PAIRS): (R.NEW_TABLE_REPLACED, ACCEPT)},
    (C.TAKEN, C.SOUND): {
        ON: (R.NAME_TAKEN, REVERT),
        ("archived",): (R.NAME_TAKEN, FROM_ARCHIVE),
        BACKWARD: (R.NAME_TAKEN, RESUME),
    },
    (C.FILES_GONE, C.SOUND): {
        ON: (R.NEW_TABLE_UNREADABLE, REVERT),
        ("archived",): (R.NEW_TABLE_UNREADABLE, FROM_ARCHIVE),
        BACKWARD: (R.NEW_TABLE_UNREADABLE, ACCEPT),
    },
    **{
        (new, hive): {tuple(PAIRS): (reason, RESUME)}
        for new, reason in ((C.MISSING, R.NEW_TABLE_MISSING), (C.FILES_GONE, R.NEW_TABLE_UNREADABLE))
        for hive in (C.MISSING, C.REPLACED)
    },
    **{
        (C.REPLACED, hive): {tuple(PAIRS): (R.NEW_TABLE_REPLACED, ACCEPT)} for hive in (C.MISSING, C.REPLACED)
    },
    **{(C.TAKEN, hive): {tuple(PAIRS): (R.NAME_TAKEN, RESUME)} for hive in (C.MISSING, C.REPLACED)},
}


def cells() -> Iterator[tuple[str, Condition, Condition, PauseReason | None, str]]:
    for (new, hive), groups in MATRIX.items():
        for phases, (reason, command) in groups.items():
            for phase in phases:
                yield phase, new, hive, reason, command


def at(phase: str, form: TargetFormat = TargetFormat.ICEBERG, **columns: Any) -> Job:
    state, desired = PAIRS[phase]
    given = {"in_process": True, "probation_gap_days": 14, "shadow_watermark": "7", **columns}
    return job(state=state, desired_state=desired, target_format=form, **given)


def test_matrix_has_every_pair_of_conditions_in_every_phase() -> None:
    entered = [(phase, new, hive) for phase, new, hive, *_ in cells()]
    hives = (C.SOUND, C.MISSING, C.REPLACED)
    assert sorted(entered) == sorted(product(PAIRS, C, hives))
    assert {phase_of(at(phase)) for phase in PAIRS} == set(Phase)


@pytest.mark.parametrize("form", TargetFormat)
@pytest.mark.parametrize(("phase", "new", "hive", "reason", "command"), list(cells()))
def test_changed_tables_have_a_finding_and_its_command(
    phase: str, new: Condition, hive: Condition, reason: PauseReason | None, command: str, form: TargetFormat
) -> None:
    stopped = at(phase, form)
    change = find_hand_change(stopped, new, hive, RENAMES)
    if reason is None:
        assert change is None
        return
    assert change is not None
    assert (change.finding.reason, change.command) == (reason, command)
    assert command in change.finding.text
    paused = stopped.paused(change.finding.reason, change.finding.text).with_record(found=change.acceptance)
    # The column stores the whole reason, and the job's line names the same command.
    assert len(paused.pause_reason) < LONGEST_REASON
    assert resume_command(paused) == command
    assert next_action(paused).what.endswith(f" Then: {command}")


def test_long_reason_keeps_its_start_and_the_command_at_its_end() -> None:
    long = replace(at("probation"), db_name="a_schema_with_a_long_name" * 3)
    target = Names.of(long).target
    renames = {target: f"ALTER VIEW {target.sql} RENAME TO {target.sql}_by_hand"}
    change = find_hand_change(long, C.TAKEN, C.MISSING, renames)
    assert change is not None
    assert len(change.finding.text) > LONGEST_REASON
    reason = long.paused(change.finding.reason, change.finding.text).pause_reason
    assert len(reason) == LONGEST_REASON
    assert reason.startswith("NAME_TAKEN: [NEW_TABLE_NAME_TAKEN_AND_COPY_GONE] ")
    assert reason.endswith(f"Then: {change.command}.")
    assert " … " in reason


@pytest.mark.parametrize(("phase", "new", "hive", "reason", "command"), list(cells()))
def test_command_that_needs_a_free_name_is_after_the_statement_that_frees_it(
    phase: str, new: Condition, hive: Condition, reason: PauseReason | None, command: str
) -> None:
    names, change = NAMES, find_hand_change(at(phase), new, hive, RENAMES)
    taken = None
    if new is C.TAKEN:
        taken = names.target
    elif (new, hive) == (C.SOUND, C.REPLACED) and phase in BACKWARD:
        taken = names.hive
    found = [statement for statement in RENAMES.values() if change and statement in change.finding.text]
    assert found == ([RENAMES[taken]] if taken else [])
    if taken:
        assert change is not None
        before, after = change.finding.remedy.split(RENAMES[taken])
        assert before == "Rename it: "
        assert after.endswith(f": {command}.")


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        (Kind.HIVE, "ALTER TABLE spark_catalog.sales.orders RENAME TO sales.orders_by_hand"),
        (Kind.DELTA, "ALTER TABLE spark_catalog.sales.orders RENAME TO sales.orders_by_hand"),
        (Kind.ICEBERG, "ALTER TABLE ice.sales.orders RENAME TO sales.orders_by_hand"),
        (Kind.VIEW, "ALTER VIEW spark_catalog.sales.orders RENAME TO sales.orders_by_hand"),
    ],
)
def test_statement_that_frees_a_name_is_one_for_the_kind_of_its_table(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, statement: str
) -> None:
    monkeypatch.setattr(job_tables, "kinds", lambda *_: {NAMES.target: kind})
    spark, nothing = SimpleNamespace(conf={}), None
    warehouse = Warehouse(spark, nothing)  # type: ignore[arg-type]
    [(name, renamed)] = rename_statements(warehouse, at("probation")).items()
    assert (name, renamed.replace("`", "")) == (NAMES.target, statement)


def test_job_that_is_finished_without_a_hive_copy_isn_t_stopped_until_it_is_reverted() -> None:
    for hive in (C.MISSING, C.REPLACED):
        for phase in ("probation", "archiving"):
            assert find_hand_change(at(phase, record={"without_hive_copy": True}), C.SOUND, hive, {}) is None
        for phase in BACKWARD:
            change = find_hand_change(at(phase, record={"without_hive_copy": True}), C.SOUND, hive, RENAMES)
            assert change is not None
            assert change.acceptance is Acceptance.RESTORE_COPY


def test_archive_without_a_hive_copy_leaves_a_table_of_its_name_alone() -> None:
    archiving = at("archiving", record={"without_hive_copy": True})
    names = Names.of(archiving)
    assert plan(archiving, {names.target: Kind.ICEBERG}) == ()
    assert plan(archiving, {names.target: Kind.ICEBERG, names.hive: Kind.HIVE}) == ()
    with conditions.raises("MIGRATION_TABLE_MOVED", table=re.compile("orders_hive$"), actual="doesn't exist"):
        plan(at("archiving"), {names.target: Kind.ICEBERG})


@pytest.mark.parametrize("old_name", [None, *OldName])
@pytest.mark.parametrize("form", TargetFormat)
@pytest.mark.parametrize("archived", [False, True])
def test_revert_gives_the_hive_copy_its_name_when_the_new_table_was_dropped(
    form: TargetFormat, old_name: OldName | None, archived: bool
) -> None:
    phase = "reverting from the archive" if archived else "reverting"
    reverting = at(phase, form, old_name=old_name, target_schema="lake" if old_name else None)
    names = Names.of(reverting)
    hive = names.archived if archived else names.hive
    tables = {hive: Kind.HIVE}
    if old_name is OldName.VIEW:
        tables[names.main] = Kind.VIEW
    first = plan(reverting, tables)
    assert RestoreEntry(names.target, hive, form) in first
    if archived:
        assert first[-1] == Rename(names.archived, names.hive)
    tables = {names.hive: Kind.HIVE, **({names.main: Kind.VIEW} if old_name is OldName.VIEW else {})}
    sync = at("copying back", form, old_name=old_name, target_schema=reverting.target_schema)
    assert plan(sync, tables) == ()
    back = job(
        state=State.SYNC_HIVE,
        desired_state=State.HIVE_PRIMARY,
        target_format=form,
        old_name=old_name,
        target_schema=reverting.target_schema,
        in_process=True,
    )
    steps = plan(back, tables)
    assert not any(isinstance(step, Shadow) for step in steps)
    if names.hive != names.main:
        assert steps[-1] == Rename(names.hive, names.main)


def test_revert_of_a_job_that_paused_for_its_lost_table_confirms_the_lost_rows() -> None:
    change = find_hand_change(at("probation"), C.FILES_GONE, C.SOUND, {})
    assert change is not None
    paused = (
        at("probation")
        .paused(change.finding.reason, change.finding.text)
        .with_record(found=change.acceptance)
    )
    reverting = _prepare_revert(paused, paused.created_at, from_archive=False)
    assert reverting.record.accept == Acceptance.GIVE_UP_NEW_TABLE
    assert reverting.pair in BACK
    # A revert that started before a user read the finding requires that.
    assert not _prepare_revert(at("probation"), paused.created_at, from_archive=False).record.accept


def test_lost_rows_are_named_by_the_version_that_the_hive_copy_has() -> None:
    assert rows_lost(at("copying back")) == (
        f"{TABLE} was gone before the revert: {TABLE}_hive has its rows up to snapshot 7"
    )
    assert rows_lost(at("copying back", TargetFormat.DELTA)).endswith("its rows up to version 7")


CREATED = "Sat Nov 28 22:15:16 UTC 2026"


def entry(kind: Kind, properties: str = "", created: str = CREATED) -> Entry:
    return Entry(kind, False, "file:/w/orders", created, "", properties, "", "", "")


@pytest.mark.parametrize(
    ("new", "hive", "conditions"),
    [
        (Kind.ICEBERG, entry(Kind.HIVE), (C.SOUND, C.SOUND)),
        (None, entry(Kind.HIVE), (C.MISSING, C.SOUND)),
        (Kind.OTHER, entry(Kind.HIVE), (C.REPLACED, C.SOUND)),
        (Kind.HIVE, entry(Kind.HIVE), (C.TAKEN, C.SOUND)),
        (Kind.VIEW, None, (C.TAKEN, C.MISSING)),
        (Kind.ICEBERG, entry(Kind.VIEW), (C.SOUND, C.REPLACED)),
        (Kind.ICEBERG, entry(Kind.HIVE, created="Sun Nov 29 22:15:17 UTC 2026"), (C.SOUND, C.REPLACED)),
        (
            Kind.ICEBERG,
            # Restored by the statement from SHOW CREATE TABLE.
            entry(Kind.HIVE, "[tableferry.first_location=file:/w/orders]", "Sun Nov 29 22:15:17 UTC 2026"),
            (C.SOUND, C.SOUND),
        ),
    ],
)
def test_conditions_are_read_from_the_entries_of_both_tables(
    monkeypatch: pytest.MonkeyPatch,
    new: Kind | None,
    hive: Entry | None,
    conditions: tuple[Condition, Condition],
) -> None:
    checked = at("probation", record={"checked": {"location": "file:/w/orders", "created": CREATED}})
    names = Names.of(checked)
    tables = {names.target: new, names.hive: hive.kind if hive else None}
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {n: k for n, k in tables.items() if k})
    monkeypatch.setattr(job_tables, "entries", lambda *_, **how: {names.hive: hive} if hive else {})
    monkeypatch.setattr(job_tables, "kinds", lambda *_: {names.target: Kind.ICEBERG})
    warehouse: Any = SimpleNamespace(spark=None)
    assert table_conditions(warehouse, checked) == conditions


def test_hive_copy_of_a_job_without_a_recorded_check_counts_as_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = Names.of(at("probation"))
    tables = {names.target: Kind.ICEBERG, names.hive: Kind.HIVE}
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: tables)
    monkeypatch.setattr(job_tables, "entries", lambda *_, **how: {names.hive: entry(Kind.HIVE)})
    warehouse: Any = SimpleNamespace(spark=None)
    assert table_conditions(warehouse, at("probation")) == (C.SOUND, C.SOUND)


def test_guide_lists_every_finding_with_its_command() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    listed = set(re.findall(r"`([A-Z_]+)`", text))
    named = {reason.value for *_, reason, _ in cells() if reason}
    assert named <= listed
    for command in ("fleet revert", "fleet revert --from-archive", "fleet resume --accept", "fleet resume"):
        assert f"`{command} sales.orders`" in text.replace("tableferry ", "")
