"""Plan the steps of a job's next transition from the tables that exist.

The plan depends on the names that exist and on their kinds, and not on the records of an earlier run. So a
run after a crash plans the remaining steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from tableferry.errors import Refused
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.steps import (
    AllowLogCleaning,
    BlockWrites,
    CheckFence,
    CheckLate,
    CheckSuspended,
    CheckView,
    CheckViews,
    CompareAhead,
    CopyAccess,
    CopyDefinition,
    DropCopy,
    DropView,
    MakeExternal,
    MakeManaged,
    MakeTarget,
    MakeView,
    PrepareCopy,
    RecordFiles,
    RemoveRewritten,
    Rename,
    RepeatPreflight,
    RestoreComment,
    RestoreEntry,
    RewriteAhead,
    RewriteRest,
    Shadow,
    ShadowWritten,
    Step,
    TryShadow,
    UnblockWrites,
    Verify,
    VerifyRewritten,
    VerifyShadow,
    WarnOfSharedFiles,
    WriteCheckpoint,
)
from tableferry.fleet.jobs.transitions import BACK, FORWARD, Action, Transition
from tableferry.spark.tables import TableName


class Kind(StrEnum):
    """The kind of a table in the catalog."""

    HIVE = "hive"
    ICEBERG = "iceberg"
    DELTA = "delta"
    VIEW = "view"
    # It has the new table's name, but another process created it.
    OTHER = "other"

    @property
    def description(self) -> str:
        """The kind in a sentence."""
        return _DESCRIPTIONS[self]


_DESCRIPTIONS = {
    Kind.HIVE: "a Hive table",
    Kind.ICEBERG: "an Iceberg table",
    Kind.DELTA: "a Delta table",
    Kind.VIEW: "a view",
    Kind.OTHER: "a table of another process",
}


Existing = Mapping[TableName, Kind]
"""The kind of each of a job's names that exists."""

Transitions = Mapping[tuple[State, State], Transition]
"""The transitions that a run may make, by state and desired state."""


def next_transition(job: Job) -> Transition | None:
    """Return a job's next transition, forward or back; None if it rests."""
    return FORWARD.get(job.pair) or BACK.get(job.pair)


def plan(job: Job, existing: Existing) -> tuple[Step, ...]:
    """Return the remaining steps of a job's next transition.

    Raises:
        Refused: No transition leaves the tables like this: another process renamed or dropped one.
    """
    transition = next_transition(job)
    if transition is None:
        return ()
    names = Names.of(job)
    match transition.action:
        case Action.BLOCK:
            _require_kind(existing, names.main, Kind.HIVE)
            return (
                RepeatPreflight(names.main),
                TryShadow(names.main),
                _step_before_block(job, names),
                BlockWrites(names.main),
            )
        case Action.COPY:
            _require_kind(existing, names.main, Kind.HIVE)
            rewrite = RewriteRest(names.copy, names.main, job.target_format)
            return (
                MakeExternal(names.main),
                rewrite if job.is_rewritten else MakeTarget(names.main, names.copy, job.target_format),
                CopyDefinition(names.main, names.copy),
                # The switch compares the files with these.
                RecordFiles(names.main),
            )
        case Action.SWITCH:
            switch = _switch_elsewhere if names.elsewhere else _switch
            return switch(job, names, existing)
        case Action.UNBLOCK:
            _require_kind(existing, names.target, target_kind(job))
            unblock: tuple[Step, ...] = (UnblockWrites(names.target), CheckViews(names.main))
            match job.target_format, job.is_rewritten:
                case TargetFormat.DELTA, True:
                    # A change of its properties makes concurrent writes fail.
                    return (AllowLogCleaning(names.target), *unblock)
                case TargetFormat.DELTA, False:
                    warn = WarnOfSharedFiles(names.hive, names.target)
                    return (*unblock, WriteCheckpoint(names.target), warn)
                case _:
                    return unblock
        case Action.ARCHIVE:
            _require_kind(existing, names.target, target_kind(job))
            return _archive(job, names, existing)
        case Action.BLOCK_COPY:
            archived = _is_hive(existing, names.archived)
            hive = names.archived if archived else names.hive
            if archived and names.hive in existing:
                # Refused before the block, because the rename after it would fail.
                raise _taken(names.archived, names.hive, job)
            back = (Rename(names.archived, names.hive),) if archived else ()
            # Checked before the block, because its findings may need a person.
            late, view = CheckLate(names.target, hive, job.target_format), _view(names, existing)
            if names.target not in existing:
                return (RestoreEntry(names.target, hive, job.target_format), *view, *back)
            _require_kind(existing, names.target, target_kind(job))
            return (late, *view, BlockWrites(names.target), *back)
        case Action.SYNC:
            if names.target not in existing:
                # It was dropped, so there is nothing to copy.
                return ()
            _require_kind(existing, names.target, target_kind(job))
            hive = _hive_copy(names, existing)
            return (*_copy_changes(job, names.target, hive), CopyAccess(names.target, hive))
        case Action.SWITCH_BACK if job.state is State.WRITES_BLOCKED:
            # No name was swapped yet, so a table with another name isn't this job's.
            _require_kind(existing, names.main, Kind.HIVE)
            return ()
        case Action.SWITCH_BACK:
            switch_back = _switch_back_from_elsewhere if names.elsewhere else _switch_back
            return switch_back(job, names, existing)
        case Action.UNBLOCK_HIVE:
            _require_kind(existing, names.main, Kind.HIVE)
            return (UnblockWrites(names.main), CheckViews(names.main))
        case Action.DROP_COPY:
            _require_kind(existing, names.main, Kind.HIVE)
            # A run that died may have left the copy under the name for the drop.
            left = names.copy in existing or names.dropped in existing
            drop = (DropCopy(names.copy, names.main, job.target_format),) if left else ()
            folder = (job.record.rewritten or {}).get("folder")
            # A worker died during the block, and the job was reverted before it was resumed.
            unblock = (UnblockWrites(names.main),) if job.record.rights else ()
            # Suspended runs are checked while the copy still exists; no later shadow run finds them.
            return (
                *unblock,
                CheckSuspended(names.main),
                *drop,
                *((RemoveRewritten(names.copy, names.main, folder),) if folder else ()),
                *((RestoreComment(names.main),) if job.shares_files else ()),
                MakeManaged(names.main),
            )
        case _:
            assert_never(transition.action)


def after_transition(job: Job, transition: Transition) -> Job:
    """Return a job after a transition: in its desired state, with the next desired state."""
    return replace(job, state=job.desired_state, desired_state=transition.then)


def dry_run_steps(job: Job, existing: Existing, transitions: Transitions) -> tuple[Step, ...]:
    """Return all steps that a run with these transitions would perform.

    Raises:
        Refused: As `plan`.
    """
    steps: list[Step] = []
    names = dict(existing)
    while (transition := transitions.get(job.pair)) is not None:
        planned = plan(job, names)
        for step in planned:
            _apply_to_names(step, names)
        steps += planned
        job = after_transition(job, transition)
    return tuple(steps)


def _apply_to_names(step: Step, names: dict[TableName, Kind]) -> None:
    """Apply the renames, creations and drops of a step to names."""
    match step:
        case Rename(table, to):
            names[to] = names.pop(table)
        case PrepareCopy(_, target):
            names[target] = Kind.ICEBERG
        case MakeTarget(_, target, form) | RewriteAhead(target, _, form) | RewriteRest(target, _, form):
            names[target] = Kind.ICEBERG if form is TargetFormat.ICEBERG else Kind.DELTA
        case MakeView(table, _):
            names[table] = Kind.VIEW
        case DropCopy(table, _, _) | DropView(table, _):
            names.pop(table, None)


def is_switched(names: Names, existing: Existing) -> bool:
    """Return whether the names are swapped: writers of the Hive table don't find it under its old name."""
    if not names.elsewhere:
        return existing.get(names.main) is not Kind.HIVE
    new = (Kind.ICEBERG, Kind.DELTA)
    return existing.get(names.target) in new and existing.get(names.copy) not in new


def target_kind(job: Job) -> Kind:
    """Return the kind of a job's copy."""
    return Kind.ICEBERG if job.target_format is TargetFormat.ICEBERG else Kind.DELTA


def _step_before_block(job: Job, names: Names) -> Step:
    """Return the step before the block that prepares or compares the copy, so that the block is short."""
    if job.is_rewritten:
        return RewriteAhead(names.copy, names.main, job.target_format)
    if job.target_format is TargetFormat.ICEBERG:
        return PrepareCopy(names.main, names.copy)
    # Readers of the directory as Parquet must not find a Delta log in it.
    return CompareAhead(names.main)


def _verify(job: Job, names: Names) -> Step:
    """Return the comparison of the Hive table's rows with the copy's."""
    if job.is_rewritten:
        return VerifyRewritten(names.copy, names.main, job.target_format)
    return Verify(names.main, names.copy)


def _switch(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Rename twice; after a crash, perform the remaining renames."""
    away, into = Rename(names.main, names.hive), Rename(names.copy, names.main)
    # A writer that had opened the Hive table before the rename may have written to it shortly after.
    last_look = CheckFence(names.hive)
    if existing.get(names.main) == target_kind(job) and _is_hive(existing, names.hive):
        return (last_look,)
    _require_kind(existing, names.copy, target_kind(job))
    if names.main not in existing and _is_hive(existing, names.hive):
        return (into, last_look)
    _require_kind(existing, names.main, Kind.HIVE)
    if names.hive in existing:
        raise _taken(names.main, names.hive, job)
    return (
        CheckFence(names.main),
        _verify(job, names),
        away,
        into,
        last_look,
    )


def _switch_elsewhere(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Rename the copy first, so that the old name is missing for the shortest time."""
    into, last_look = Rename(names.copy, names.target), CheckFence(names.hive)
    away = () if names.hive == names.main else (Rename(names.main, names.hive),)
    view = (MakeView(names.main, names.target),) if away else ()
    moved = bool(away) and _is_hive(existing, names.hive)
    if names.target in existing and names.copy not in existing:
        _require_kind(existing, names.target, target_kind(job))
        if moved and names.main in existing:
            _require_kind(existing, names.main, Kind.VIEW)
        if moved:
            return (*view, last_look)
        _require_kind(existing, names.main, Kind.HIVE)
        return (*away, *view, last_look)
    _require_kind(existing, names.copy, target_kind(job))
    if moved and names.target not in existing and existing.get(names.main) in (None, Kind.VIEW):
        # A worker died while it swapped the names back for a restart. They are swapped forward again: the
        # last check finds the write again, and the restart first checks whether the new table was written to.
        return (into, *view, last_look)
    _require_kind(existing, names.main, Kind.HIVE)
    if names.target in existing:
        raise _taken(names.copy, names.target, job)
    if moved:
        raise _taken(names.main, names.hive, job)
    return (CheckFence(names.main), _verify(job, names), into, *away, *view, last_look)


def _switch_back(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Rename twice in reverse; between the renames no writer finds the copy, so its contents are final."""
    into = Rename(names.hive, names.main)
    if _is_hive(existing, names.main) and names.hive not in existing:
        return ()
    _require_kind(existing, names.hive, Kind.HIVE)
    if names.main not in existing:
        if names.copy not in existing:
            # It was dropped.
            return (into,)
        _require_kind(existing, names.copy, target_kind(job))
        return (_copy_last_changes(job, names, names.hive), into)
    _require_kind(existing, names.main, target_kind(job))
    if names.copy in existing:
        raise _taken(names.main, names.copy, job)
    return (
        *_copy_changes(job, names.main, names.hive),
        CopyAccess(names.main, names.hive),
        # Before the rename a person can still decide, because readers find the table.
        CheckLate(names.main, names.hive, job.target_format),
        Rename(names.main, names.copy),
        Shadow(names.copy, names.hive, job.target_format),
        into,
    )


def _switch_back_from_elsewhere(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Rename the new table, so that its contents are final, and give the Hive table its name back."""
    hive = _hive_copy(names, existing)
    # Checked before the renames, because its findings need a person.
    steps: list[Step] = [] if hive == names.main else list(_view(names, existing))
    # While the Hive table has its old name, a table of another process may have the new name.
    is_foreign = existing.get(names.target) is Kind.OTHER and hive == names.main
    if names.target in existing and not is_foreign:
        _require_kind(existing, names.target, target_kind(job))
        if names.copy in existing:
            raise _taken(names.target, names.copy, job)
        steps += (*_copy_changes(job, names.target, hive), CopyAccess(names.target, hive))
        steps.append(CheckLate(names.target, hive, job.target_format))
        steps.append(Rename(names.target, names.copy))
        steps.append(Shadow(names.copy, hive, job.target_format))
    elif existing.get(names.copy) is target_kind(job):
        steps.append(_copy_last_changes(job, names, hive))
    if hive != names.main:
        if names.main in existing:
            steps.append(DropView(names.main, names.target))
        steps.append(Rename(hive, names.main))
    return tuple(steps)


def _archive(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    # Files written between the last check and the rename; later checks decide about a write in progress.
    last_look = CheckLate(names.target, names.archived, job.target_format, decide=False)
    if _is_hive(existing, names.archived) and names.hive not in existing:
        return (last_look,)
    if job.record.without_hive_copy and names.archived not in existing:
        # A person confirmed that the Hive copy is gone, or that the table with its name stays.
        return ()
    _require_kind(existing, names.hive, Kind.HIVE)
    if names.archived in existing:
        raise _taken(names.hive, names.archived, job)
    late = CheckLate(names.target, names.hive, job.target_format)
    kept_in_step = _copy_changes(job, names.target, names.hive) if job.probation_gap_days > 0 else ()
    return (late, *kept_in_step, Rename(names.hive, names.archived), last_look)


def _copy_changes(job: Job, target: TableName, hive: TableName) -> tuple[Step, ...]:
    """Copy the changes to the Hive table, and compare the rows."""
    return (Shadow(target, hive, job.target_format), VerifyShadow(target, hive))


def _copy_last_changes(job: Job, names: Names, hive: TableName) -> Step:
    """Copy the changes of the new table, under its name before the switch, to the Hive table."""
    if job.state is State.ICEBERG_READY:
        # Perhaps it was never switched, and lacks later rows of the Hive table.
        return ShadowWritten(names.copy, hive, job.target_format)
    return Shadow(names.copy, hive, job.target_format)


def _view(names: Names, existing: Existing) -> tuple[Step, ...]:
    """Check the view with the old name of a table in another schema or catalog, because a revert drops it."""
    if names.main in (names.target, names.hive) or names.main not in existing:
        return ()
    _require_kind(existing, names.main, Kind.VIEW)
    return (CheckView(names.main, names.target),)


def _hive_copy(names: Names, existing: Existing) -> TableName:
    """Return the current name of the Hive table; after half a switch, its old name."""
    halfway = names.elsewhere and names.hive not in existing
    hive = names.main if halfway else names.hive
    _require_kind(existing, hive, Kind.HIVE)
    return hive


def _taken(name: TableName, new_name: TableName, job: Job) -> Refused:
    return Refused("TABLE_NAME_TAKEN", new_name=new_name, table=name, command=command("resume", job.name))


def _is_hive(existing: Existing, name: TableName) -> bool:
    return existing.get(name) is Kind.HIVE


def _require_kind(existing: Existing, name: TableName, kind: Kind) -> None:
    kind_there = existing.get(name)
    if kind_there is kind:
        return
    actual = f"is {kind_there.description}" if kind_there else "doesn't exist"
    raise Refused("MIGRATION_TABLE_MOVED", table=name, actual=actual, expected=kind.description)
