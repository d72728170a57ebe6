"""Decide how a job continues after people dropped or replaced one of its two tables.

Open this to see which combination of the new table, the Hive copy and the job's phase leads to which finding
and command. docs/how-to/tables-changed-by-hand.md shows the same as tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tableferry.errors import Refused
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.transitions import BACK, Action
from tableferry.spark.tables import TableName


class Condition(StrEnum):
    """The condition of the new table or the Hive copy.

    `REPLACED` is a different table with the name. For the new table it has the same format, so that it can
    replace the new table. `TAKEN` is a table of another format, or a view, with the new table's name.
    """

    SOUND = "sound"
    MISSING = "missing"
    REPLACED = "replaced"
    TAKEN = "taken"
    FILES_GONE = "files gone"


class Phase(StrEnum):
    """The phases in which a job has both tables."""

    UNBLOCKING = "unblocking"
    PROBATION = "probation"
    ARCHIVED = "archived"
    REVERTING = "reverting"


class Acceptance(StrEnum):
    """The acceptance of a finding by a command; the job's record contains the text."""

    FINISH_WITHOUT_COPY = "finish-without-hive-copy"
    RESTORE_COPY = "restore-hive-copy"
    ADOPT = "adopt-new-table"
    GIVE_UP_NEW_TABLE = "give-up-new-table"


@dataclass(frozen=True)
class HandChange:
    """A change that stops a job, and the command that resolves it.

    Attributes:
        finding: The change, and the remedy.
        command: The command that resolves it.
        acceptance: The acceptance that `resume --accept` or a revert records; None for other commands.
    """

    finding: PauseFinding
    command: str
    acceptance: Acceptance | None = None


_PHASES: Mapping[tuple[State, State], Phase] = MappingProxyType(
    {
        (State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED): Phase.UNBLOCKING,
        (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED): Phase.PROBATION,
        (State.WRITES_UNBLOCKED, State.HIVE_DROPPED): Phase.PROBATION,
        (State.HIVE_DROPPED, State.HIVE_DROPPED): Phase.ARCHIVED,
        **{
            pair: Phase.REVERTING
            for pair, transition in BACK.items()
            if transition.action in (Action.BLOCK_COPY, Action.SYNC)
            or (transition.action is Action.SWITCH_BACK and pair[0] is State.SYNC_HIVE)
        },
    }
)


def phase_of(job: Job) -> Phase | None:
    """Return the phase of a job; None where it has only one of the two tables, or its copy isn't live."""
    return _PHASES.get(job.pair)


def hive_name(job: Job) -> str:
    """Return the Hive copy's name in the job's phase."""
    names = Names.of(job)
    return str(names.archived if job.state is State.HIVE_DROPPED else names.hive)


def find_hand_change(
    job: Job, new: Condition, hive: Condition, renames: Mapping[TableName, str]
) -> HandChange | None:
    """Return the change that stops a job whose tables are in these conditions, or None.

    A revert continues without the new table: the Hive copy has all rows that were copied to it.

    Args:
        job: The job.
        new: The new table's condition.
        hive: The Hive copy's condition.
        renames: For each table in the place of one of the two, the statement that renames it.
    """
    phase = phase_of(job)
    if phase is None:
        return None
    match new:
        case Condition.SOUND:
            return _hive_change(job, phase, hive, renames)
        case Condition.MISSING if phase is Phase.REVERTING and hive is Condition.SOUND:
            return None
        case Condition.MISSING:
            return _missing(job, phase, hive)
        case Condition.REPLACED:
            return _replaced(job)
        case Condition.TAKEN:
            return _taken(job, phase, hive, renames)
        case Condition.FILES_GONE:
            return _unreadable(job, phase, hive)


def _hive_change(
    job: Job, phase: Phase, hive: Condition, renames: Mapping[TableName, str]
) -> HandChange | None:
    """Return the change of the Hive copy that stops the job while the new table has all rows."""
    names, without = Names.of(job), bool(job.record.without_hive_copy)
    missing = hive is Condition.MISSING
    if hive not in (Condition.MISSING, Condition.REPLACED) or phase in (Phase.UNBLOCKING, Phase.ARCHIVED):
        return None
    reason = PauseReason.HIVE_COPY_MISSING if missing else PauseReason.HIVE_COPY_REPLACED
    accept = command("resume --accept", job.name)
    if phase is Phase.PROBATION:
        if without:
            return None
        refusal = (
            Refused("HIVE_COPY_GONE_ON_PROBATION", table=names.target, hive=names.hive, command=accept)
            if missing
            else Refused("HIVE_COPY_OTHER_ON_PROBATION", table=names.target, hive=names.hive, command=accept)
        )
        return HandChange(PauseFinding(reason, refusal), accept, Acceptance.FINISH_WITHOUT_COPY)
    refusal = (
        Refused("HIVE_COPY_GONE_IN_REVERT", table=names.target, hive=names.hive, command=accept)
        if missing
        else Refused(
            "HIVE_COPY_OTHER_IN_REVERT",
            table=names.target,
            hive=names.hive,
            statement=renames[names.hive],
            command=accept,
        )
    )
    return HandChange(PauseFinding(reason, refusal), accept, Acceptance.RESTORE_COPY)


def _missing(job: Job, phase: Phase, hive: Condition) -> HandChange:
    target, copy, reason = Names.of(job).target, hive_name(job), PauseReason.NEW_TABLE_MISSING
    if hive is not Condition.SOUND:
        resume = command("resume", job.name)
        refusal = Refused(
            "NEW_TABLE_AND_COPY_GONE",
            table=target,
            hive=copy,
            condition=hive,
            statement=restore_hint(job),
            command=resume,
        )
        return HandChange(PauseFinding(reason, refusal), resume)
    revert, rows = _revert(job, phase), _rows_until(job)
    refusal = (
        Refused("NEW_DELTA_TABLE_GONE", table=target, hive=copy, rows=rows, command=revert)
        if job.target_format is TargetFormat.DELTA
        else Refused("NEW_TABLE_GONE", table=target, hive=copy, rows=rows, command=revert)
    )
    return HandChange(PauseFinding(reason, refusal), revert, Acceptance.GIVE_UP_NEW_TABLE)


def _replaced(job: Job) -> HandChange:
    target, accept = Names.of(job).target, command("resume --accept", job.name)
    refusal = Refused("NEW_TABLE_RECREATED", table=target, source=job.name, command=accept)
    return HandChange(PauseFinding(PauseReason.NEW_TABLE_REPLACED, refusal), accept, Acceptance.ADOPT)


def _taken(job: Job, phase: Phase, hive: Condition, renames: Mapping[TableName, str]) -> HandChange:
    target, copy, reason = Names.of(job).target, hive_name(job), PauseReason.NAME_TAKEN
    resume = command("resume", job.name)
    if hive is not Condition.SOUND:
        refusal = Refused(
            "NEW_TABLE_NAME_TAKEN_AND_COPY_GONE",
            table=target,
            hive=copy,
            condition=hive,
            rename=renames[target],
            restore=restore_hint(job),
            command=resume,
        )
        return HandChange(PauseFinding(reason, refusal), resume)
    in_revert = phase is Phase.REVERTING
    way = resume if in_revert else _revert(job, phase)
    refusal = Refused(
        "NEW_TABLE_NAME_TAKEN",
        table=target,
        hive=copy,
        rows=_rows_until(job),
        statement=renames[target],
        command=way,
    )
    acceptance = None if in_revert else Acceptance.GIVE_UP_NEW_TABLE
    return HandChange(PauseFinding(reason, refusal), way, acceptance)


def _unreadable(job: Job, phase: Phase, hive: Condition) -> HandChange:
    target, copy, reason = Names.of(job).target, hive_name(job), PauseReason.NEW_TABLE_UNREADABLE
    if hive is not Condition.SOUND:
        resume = command("resume", job.name)
        refusal = Refused(
            "NEW_TABLE_METADATA_AND_COPY_GONE", table=target, hive=copy, condition=hive, command=resume
        )
        return HandChange(PauseFinding(reason, refusal), resume)
    way = command("resume --accept", job.name) if phase is Phase.REVERTING else _revert(job, phase)
    refusal = Refused("NEW_TABLE_METADATA_GONE", table=target, hive=copy, rows=_rows_until(job), command=way)
    return HandChange(PauseFinding(reason, refusal), way, Acceptance.GIVE_UP_NEW_TABLE)


def rows_lost(job: Job) -> str:
    """Return the sentence that reports which rows a revert can't copy, because the new table is gone."""
    return f"{Names.of(job).target} was gone before the revert: {hive_name(job)} has {_rows_until(job)}"


def restore_hint(job: Job) -> str:
    """Return the statement that restores a dropped table's entry."""
    target = Names.of(job).target
    if job.target_format is TargetFormat.DELTA:
        return f"CREATE TABLE {target.sql} USING delta LOCATION …"
    return "CALL ….system.register_table"


def _rows_until(job: Job) -> str:
    word = "version" if job.target_format is TargetFormat.DELTA else "snapshot"
    return f"its rows up to {word} {job.shadow_watermark}" if job.shadow_watermark else "its rows"


def _revert(job: Job, phase: Phase) -> str:
    return command("revert --from-archive" if phase is Phase.ARCHIVED else "revert", job.name)
