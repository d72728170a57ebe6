"""Decides what a job's next transition does, from the tables that are there: pure, the same each time.

Planning looks at which of the job's names exist and what each is, never at what an earlier run believed it
had done: so a run after a crash plans what is left.
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
    """What a name in the catalog is."""

    HIVE = "hive"
    ICEBERG = "iceberg"
    DELTA = "delta"
    VIEW = "view"
    # In the place of the new table, and not made of the job's Hive table.
    OTHER = "other"

    @property
    def words(self) -> str:
        """The kind, for people."""
        return _WORDS[self]


_WORDS = {
    Kind.HIVE: "a Hive table",
    Kind.ICEBERG: "an Iceberg table",
    Kind.DELTA: "a Delta table",
    Kind.VIEW: "a view",
    Kind.OTHER: "a table that this migration hasn't made",
}


Existing = Mapping[TableName, Kind]
"""Which of a job's names exist, and what each is."""

Transitions = Mapping[tuple[State, State], Transition]
"""The transitions that a run may make, by state and desired state."""


def next_transition(job: Job) -> Transition | None:
    """Return where a job goes next, on or back; None where it rests."""
    return FORWARD.get(job.pair) or BACK.get(job.pair)


def plan(job: Job, existing: Existing) -> tuple[Step, ...]:
    """Return the steps that are left of a job's next transition.

    Raises:
        Refused: The tables aren't as any transition leaves them: somebody else renamed or dropped one.
    """
    transition = next_transition(job)
    if transition is None:
        return ()
    names = Names.of(job)
    match transition.action:
        case Action.BLOCK:
            _demand(existing, names.main, Kind.HIVE)
            return (
                RepeatPreflight(names.main),
                TryShadow(names.main),
                _ahead(job, names),
                BlockWrites(names.main),
            )
        case Action.COPY:
            _demand(existing, names.main, Kind.HIVE)
            rewrite = RewriteRest(names.copy, names.main, job.target_format)
            return (
                MakeExternal(names.main),
                rewrite if job.is_rewritten else MakeTarget(names.main, names.copy, job.target_format),
                CopyDefinition(names.main, names.copy),
                # The switch makes sure that nothing has changed since the block.
                RecordFiles(names.main),
            )
        case Action.SWITCH:
            switch = _switch_elsewhere if names.elsewhere else _switch
            return switch(job, names, existing)
        case Action.UNBLOCK:
            _demand(existing, names.target, target_kind(job))
            unblock: tuple[Step, ...] = (UnblockWrites(names.target), CheckViews(names.main))
            match job.target_format, job.is_rewritten:
                case TargetFormat.DELTA, True:
                    # A change of its properties makes writes fail that are under way.
                    return (AllowLogCleaning(names.target), *unblock)
                case TargetFormat.DELTA, False:
                    warn = WarnOfSharedFiles(names.hive, names.target)
                    return (*unblock, WriteCheckpoint(names.target), warn)
                case _:
                    return unblock
        case Action.ARCHIVE:
            _demand(existing, names.target, target_kind(job))
            return _archive(job, names, existing)
        case Action.BLOCK_COPY:
            archived = _is_hive(existing, names.archived)
            hive = names.archived if archived else names.hive
            if archived and names.hive in existing:
                # Before anybody is kept from writing, for the rename would be refused behind the block.
                raise _taken(names.archived, names.hive, job)
            back = (Rename(names.archived, names.hive),) if archived else ()
            # Before anybody is kept from writing, for what it finds may need a person.
            late, view = CheckLate(names.target, hive, job.target_format), _view(names, existing)
            if names.target not in existing:
                return (RestoreEntry(names.target, hive, job.target_format), *view, *back)
            _demand(existing, names.target, target_kind(job))
            return (late, *view, BlockWrites(names.target), *back)
        case Action.SYNC:
            if names.target not in existing:
                # It was dropped, so there is nothing to copy.
                return ()
            _demand(existing, names.target, target_kind(job))
            hive = _hive_copy(names, existing)
            return (*_in_step(job, names.target, hive), CopyAccess(names.target, hive))
        case Action.SWITCH_BACK if job.state is State.WRITES_BLOCKED:
            # No name was swapped yet: whatever has another one isn't this job's.
            _demand(existing, names.main, Kind.HIVE)
            return ()
        case Action.SWITCH_BACK:
            switch_back = _switch_back_from_elsewhere if names.elsewhere else _switch_back
            return switch_back(job, names, existing)
        case Action.UNBLOCK_HIVE:
            _demand(existing, names.main, Kind.HIVE)
            return (UnblockWrites(names.main), CheckViews(names.main))
        case Action.DROP_COPY:
            _demand(existing, names.main, Kind.HIVE)
            # A run that died may have left it by its last name.
            left = names.copy in existing or names.dropped in existing
            drop = (DropCopy(names.copy, names.main, job.target_format),) if left else ()
            folder = (job.record.rewritten or {}).get("folder")
            # A worker died while it blocked writes, and the job was given up before it went on.
            unblock = (UnblockWrites(names.main),) if job.record.rights else ()
            # While the copy is there to compare with: no shadow run comes any more that would find them.
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


def arrived(job: Job, transition: Transition) -> Job:
    """Return a job in the state that it wanted, wanting the next."""
    return replace(job, state=job.desired_state, desired_state=transition.then)


def dry_run_steps(job: Job, existing: Existing, transitions: Transitions) -> tuple[Step, ...]:
    """Return all the steps that a run by these transitions would do, if nothing interferes.

    Raises:
        Refused: As `plan`.
    """
    steps: list[Step] = []
    names = dict(existing)
    while (transition := transitions.get(job.pair)) is not None:
        planned = plan(job, names)
        for step in planned:
            _name(step, names)
        steps += planned
        job = arrived(job, transition)
    return tuple(steps)


def _name(step: Step, names: dict[TableName, Kind]) -> None:
    """Do what a step does to names."""
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
    """Say whether the new table has its last name, or the Hive table none that its writers know."""
    if not names.elsewhere:
        return existing.get(names.main) is not Kind.HIVE
    new = (Kind.ICEBERG, Kind.DELTA)
    return existing.get(names.target) in new and existing.get(names.copy) not in new


def target_kind(job: Job) -> Kind:
    """Return what the copy of a job is."""
    return Kind.ICEBERG if job.target_format is TargetFormat.ICEBERG else Kind.DELTA


def _ahead(job: Job, names: Names) -> Step:
    """Return what is done before anybody is kept from writing, so that this is for a short time."""
    if job.is_rewritten:
        return RewriteAhead(names.copy, names.main, job.target_format)
    if job.target_format is TargetFormat.ICEBERG:
        return PrepareCopy(names.main, names.copy)
    # A Delta log in the table's directory would be in the way of those who read it as Parquet.
    return CompareAhead(names.main)


def _verify(job: Job, names: Names) -> Step:
    """Return the comparison of the Hive table's rows with the copy's."""
    if job.is_rewritten:
        return VerifyRewritten(names.copy, names.main, job.target_format)
    return Verify(names.main, names.copy)


def _switch(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Rename twice; whatever a crash left of it is finished."""
    away, into = Rename(names.main, names.hive), Rename(names.copy, names.main)
    # Who had opened the Hive table before it was renamed may have written to it a moment later.
    last_look = CheckFence(names.hive)
    if existing.get(names.main) == target_kind(job) and _is_hive(existing, names.hive):
        return (last_look,)
    _demand(existing, names.copy, target_kind(job))
    if names.main not in existing and _is_hive(existing, names.hive):
        return (into, last_look)
    _demand(existing, names.main, Kind.HIVE)
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
    """Give the copy its last name first, so that the old one is missing for the shortest time."""
    into, last_look = Rename(names.copy, names.target), CheckFence(names.hive)
    away = () if names.hive == names.main else (Rename(names.main, names.hive),)
    view = (MakeView(names.main, names.target),) if away else ()
    moved = bool(away) and _is_hive(existing, names.hive)
    if names.target in existing and names.copy not in existing:
        _demand(existing, names.target, target_kind(job))
        if moved and names.main in existing:
            _demand(existing, names.main, Kind.VIEW)
        if moved:
            return (*view, last_look)
        _demand(existing, names.main, Kind.HIVE)
        return (*away, *view, last_look)
    _demand(existing, names.copy, target_kind(job))
    if moved and names.target not in existing and existing.get(names.main) in (None, Kind.VIEW):
        # A worker died while it swapped the names back, to begin again. As in place they are swapped once
        # more, and not back: the last look finds the write again, and only who begins again from there asks
        # whether anybody wrote to the new table, whose copy is made anew otherwise.
        return (into, *view, last_look)
    _demand(existing, names.main, Kind.HIVE)
    if names.target in existing:
        raise _taken(names.copy, names.target, job)
    if moved:
        raise _taken(names.main, names.hive, job)
    return (CheckFence(names.main), _verify(job, names), into, *away, *view, last_look)


def _switch_back(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Rename twice, the other way round; between the two nobody finds the copy, so what it holds is final."""
    into = Rename(names.hive, names.main)
    if _is_hive(existing, names.main) and names.hive not in existing:
        return ()
    _demand(existing, names.hive, Kind.HIVE)
    if names.main not in existing:
        if names.copy not in existing:
            # It was dropped.
            return (into,)
        _demand(existing, names.copy, target_kind(job))
        return (_rest(job, names, names.hive), into)
    _demand(existing, names.main, target_kind(job))
    if names.copy in existing:
        raise _taken(names.main, names.copy, job)
    return (
        *_in_step(job, names.main, names.hive),
        CopyAccess(names.main, names.hive),
        # Here a person can still be asked; behind the rename nobody finds the table meanwhile.
        CheckLate(names.main, names.hive, job.target_format),
        Rename(names.main, names.copy),
        Shadow(names.copy, names.hive, job.target_format),
        into,
    )


def _switch_back_from_elsewhere(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    """Take the new table's name from it, so that what it holds is final, and give the Hive table its own."""
    hive = _hive_copy(names, existing)
    # Before a name is taken from anybody, for what it finds needs a person.
    steps: list[Step] = [] if hive == names.main else list(_view(names, existing))
    # While the Hive table has its first name, somebody else's table may have the new one.
    theirs = existing.get(names.target) is Kind.OTHER and hive == names.main
    if names.target in existing and not theirs:
        _demand(existing, names.target, target_kind(job))
        if names.copy in existing:
            raise _taken(names.target, names.copy, job)
        steps += (*_in_step(job, names.target, hive), CopyAccess(names.target, hive))
        steps.append(CheckLate(names.target, hive, job.target_format))
        steps.append(Rename(names.target, names.copy))
        steps.append(Shadow(names.copy, hive, job.target_format))
    elif existing.get(names.copy) is target_kind(job):
        steps.append(_rest(job, names, hive))
    if hive != names.main:
        if names.main in existing:
            steps.append(DropView(names.main, names.target))
        steps.append(Rename(hive, names.main))
    return tuple(steps)


def _archive(job: Job, names: Names, existing: Existing) -> tuple[Step, ...]:
    # What came between the last look and the rename; a write that may be going on is left to later looks.
    last_look = CheckLate(names.target, names.archived, job.target_format, decide=False)
    if _is_hive(existing, names.archived) and names.hive not in existing:
        return (last_look,)
    if job.record.without_hive_copy and names.archived not in existing:
        # A person confirmed that it's gone, or that the table with its name stays.
        return ()
    _demand(existing, names.hive, Kind.HIVE)
    if names.archived in existing:
        raise _taken(names.hive, names.archived, job)
    late = CheckLate(names.target, names.hive, job.target_format)
    kept_in_step = _in_step(job, names.target, names.hive) if job.probation_gap_days > 0 else ()
    return (late, *kept_in_step, Rename(names.hive, names.archived), last_look)


def _in_step(job: Job, target: TableName, hive: TableName) -> tuple[Step, ...]:
    """Copy what changed to the Hive table, and demand that it's all there."""
    return (Shadow(target, hive, job.target_format), VerifyShadow(target, hive))


def _rest(job: Job, names: Names, hive: TableName) -> Step:
    """Copy to the Hive table what was written to the new one, which has its first name (again)."""
    if job.state is State.ICEBERG_READY:
        # Perhaps it was never switched, and lacks what people went on writing to the Hive table.
        return ShadowWritten(names.copy, hive, job.target_format)
    return Shadow(names.copy, hive, job.target_format)


def _view(names: Names, existing: Existing) -> tuple[Step, ...]:
    """Look at what has the old name of a table that moved elsewhere, for a revert drops that."""
    if names.main in (names.target, names.hive) or names.main not in existing:
        return ()
    _demand(existing, names.main, Kind.VIEW)
    return (CheckView(names.main, names.target),)


def _hive_copy(names: Names, existing: Existing) -> TableName:
    """Return the name that the Hive table has: its last, or, of one that was switched by half, its first."""
    halfway = names.elsewhere and names.hive not in existing
    hive = names.main if halfway else names.hive
    _demand(existing, hive, Kind.HIVE)
    return hive


def _taken(name: TableName, new_name: TableName, job: Job) -> Refused:
    return Refused("TABLE_NAME_TAKEN", new_name=new_name, table=name, command=command("resume", job.name))


def _is_hive(existing: Existing, name: TableName) -> bool:
    return existing.get(name) is Kind.HIVE


def _demand(existing: Existing, name: TableName, kind: Kind) -> None:
    kind_there = existing.get(name)
    if kind_there is kind:
        return
    actual = f"is {kind_there.words}" if kind_there else "doesn't exist"
    raise Refused("MIGRATION_TABLE_MOVED", table=name, actual=actual, expected=kind.words)
