"""Decides what a job needs after people dropped or replaced one of its two tables: pure.

Open this to see which combination of the new table, the Hive copy and the job's phase leads to which finding
and command. docs/how-to/tables-changed-by-hand.md shows the same as tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tableferry.fleet.commands import command
from tableferry.fleet.job import WITHOUT_COPY, Job, PauseReason, State, TargetFormat
from tableferry.fleet.naming import Names
from tableferry.fleet.transitions import BACK, Action


class Condition(StrEnum):
    """The condition of the new table or the Hive copy.

    `REPLACED` is another table with the name: for the new table one of the same format, which can take its
    place. `TAKEN` is a table of another format, or a view, with the new table's name.
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
    """What a person confirms by the command; the text is what the job's record contains."""

    FINISH_WITHOUT_COPY = "finish-without-hive-copy"
    RESTORE_COPY = "restore-hive-copy"
    ADOPT = "adopt-new-table"
    GIVE_UP_NEW_TABLE = "give-up-new-table"


@dataclass(frozen=True)
class HandChange:
    """A change that stops a job, and the command that resolves it.

    Attributes:
        reason: The reason with which the job pauses.
        text: What is wrong, and what the command does.
        command: The command that resolves it.
        acceptance: What `resume --accept`, or the revert that the command starts, confirms; None for nothing.
    """

    reason: PauseReason
    text: str
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


def find_hand_change(job: Job, new: Condition, hive: Condition) -> HandChange | None:
    """Return what stops a job whose tables are in these conditions; None if nothing does.

    A revert continues without the new table: the Hive copy has all rows that were copied to it.
    """
    phase = phase_of(job)
    if phase is None:
        return None
    match new:
        case Condition.SOUND:
            return _hive_change(job, phase, hive)
        case Condition.MISSING if phase is Phase.REVERTING and hive is Condition.SOUND:
            return None
        case Condition.MISSING:
            return _missing(job, phase, hive)
        case Condition.REPLACED:
            return _replaced(job)
        case Condition.TAKEN:
            return _taken(job, phase, hive)
        case Condition.FILES_GONE:
            return _unreadable(job, phase, hive)


def _hive_change(job: Job, phase: Phase, hive: Condition) -> HandChange | None:
    """Return what a Hive copy's condition means while the new table has all rows."""
    names, without = Names.of(job), bool(job.record.get(WITHOUT_COPY))
    missing = hive is Condition.MISSING
    if hive not in (Condition.MISSING, Condition.REPLACED) or phase in (Phase.UNBLOCKING, Phase.ARCHIVED):
        return None
    reason = PauseReason.HIVE_COPY_MISSING if missing else PauseReason.HIVE_COPY_REPLACED
    accept = command("resume --accept", job.name)
    actual = "doesn't exist" if missing else "isn't the Hive table of this migration"
    if phase is Phase.PROBATION:
        if without:
            return None
        stays = "" if missing else f", and leaves {names.hive} alone"
        return HandChange(
            reason,
            f"{names.hive} {actual}; {names.target} has all rows. Finish without a Hive copy{stays}: "
            f"{accept}. Or restore {names.hive} and resume",
            accept,
            Acceptance.FINISH_WITHOUT_COPY,
        )
    if missing:
        return HandChange(
            reason,
            f"{names.hive} {actual}; {names.target} has all rows. Create {names.hive} again from them: "
            f"{accept}",
            accept,
            Acceptance.RESTORE_COPY,
        )
    return HandChange(
        reason,
        f"{names.hive} {actual}, and the revert needs that name: rename or drop it. Then create {names.hive} "
        f"again from the rows of {names.target}: {accept}",
        accept,
        Acceptance.RESTORE_COPY,
    )


def _missing(job: Job, phase: Phase, hive: Condition) -> HandChange:
    target, reason = Names.of(job).target, PauseReason.NEW_TABLE_MISSING
    gone = f"{target} doesn't exist: it was dropped or renamed"
    if hive is not Condition.SOUND:
        restore = f". Restore {target} over its files ({restore_hint(job)})"
        return _without_rows(job, reason, hive, f"{gone}, and", restore)
    revert = _revert(job, phase)
    later = "the rows that were written later are lost"
    if job.target_format is TargetFormat.DELTA:
        later = "later rows are recovered if the Delta log is left"
    return HandChange(
        reason,
        f"{gone}. {hive_name(job)} has {_rows_until(job)}; {later}. Revert to it: {revert}",
        revert,
        Acceptance.GIVE_UP_NEW_TABLE,
    )


def _replaced(job: Job) -> HandChange:
    target, accept = Names.of(job).target, command("resume --accept", job.name)
    return HandChange(
        PauseReason.NEW_TABLE_REPLACED,
        f"{target} isn't the table that was made of {job.name}: it was recreated. If it has the right "
        f"rows, continue with it: {accept}. Otherwise rename or drop it, and resume",
        accept,
        Acceptance.ADOPT,
    )


def _taken(job: Job, phase: Phase, hive: Condition) -> HandChange:
    target = Names.of(job).target
    other = f"{target} is a table of another format, or a view, in the new table's place: rename or drop it"
    if hive is not Condition.SOUND:
        restore = f": restore {target} over its files ({restore_hint(job)})"
        return _without_rows(job, PauseReason.NAME_TAKEN, hive, f"{other}.", restore)
    way = command("resume", job.name) if phase is Phase.REVERTING else _revert(job, phase)
    return HandChange(
        PauseReason.NAME_TAKEN,
        f"{other}. {hive_name(job)} has {_rows_until(job)}. Then revert to it: {way}",
        way,
    )


def _unreadable(job: Job, phase: Phase, hive: Condition) -> HandChange:
    target, reason = Names.of(job).target, PauseReason.NEW_TABLE_UNREADABLE
    gone = f"the metadata files of {target} are gone"
    if hive is not Condition.SOUND:
        return _without_rows(job, reason, hive, f"{gone}, and", ". Restore the files from a backup")
    reverting = phase is Phase.REVERTING
    way = command("resume --accept", job.name) if reverting else _revert(job, phase)
    return HandChange(
        reason,
        f"{gone}. Restore them and resume. Or drop the entry of {target} and revert to {hive_name(job)}, "
        f"which has {_rows_until(job)}; later rows are lost: {way}",
        way,
        Acceptance.GIVE_UP_NEW_TABLE,
    )


def _without_rows(job: Job, reason: PauseReason, hive: Condition, problem: str, restore: str) -> HandChange:
    """Return the change of a job of which no table has the rows, until the new one is restored."""
    resume = command("resume", job.name)
    text = f"{problem} {hive_name(job)} is {hive}, so no table has the rows{restore}; then: {resume}"
    return HandChange(reason, text, resume)


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
