"""The next action of a job: the mode or the person that performs it, and the earliest time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from tableferry.errors.catalogue import as_sentence
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.pauses import blocked_writes, remedy, resume_command
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.jobs.waves import Wave, WaveStatus

Mode = Literal["preprocess", "communicate", "migrate", "shadow", "revert", "close"]


@dataclass(frozen=True)
class NextAction:
    """The next action.

    Attributes:
        mode: The mode that performs it; None for a person.
        what: The action in words.
        when: The earliest time; None for the mode's next run.
        wave: The wave that the job waits for; empty for none.
    """

    mode: Mode | None
    what: str
    when: datetime | None = None
    wave: str = ""


def next_action(job: Job, waves: Mapping[str, Wave] = MappingProxyType({})) -> NextAction:
    """Return the next action of a job, also of a completed or paused one.

    A wave that isn't running delays only the start of a migration and the end of probation.

    Args:
        job: The job.
        waves: The waves by their names. A job doesn't wait for a wave that is missing here.
    """
    action = _next_action(job)
    wave = waves.get(job.wave or "")
    if wave is None or wave.status is WaveStatus.RUNNING or job.migration_paused:
        return action
    begins = job.pair == (State.READY, State.WRITES_BLOCKED) and not job.in_process
    ends_probation = action.mode in ("preprocess", "migrate") and job.state is State.WRITES_UNBLOCKED
    if begins or ends_probation:
        start = command("wave start", wave.name)
        return NextAction(None, f"waits for the wave {wave.name}: {start}", wave=wave.name)
    return action


def _next_action(job: Job) -> NextAction:
    if job.migration_paused:
        out = as_sentence(kept) + " " if (kept := blocked_writes(job)) else ""
        return NextAction(None, f"{out}{remedy(job)} Then: {resume_command(job)}")
    if (back := BACK.get(job.pair)) is not None:
        return NextAction("revert", back.action.value)
    match job.pair:
        case State.UNDEFINED, _:
            return NextAction("preprocess", "check the table, and record its owners, readers and format")
        case State.READY, State.WRITES_BLOCKED if not job.in_process:
            if job.migration_begins is None:
                return NextAction("communicate", _notification_text("first", job.initial_gap_days))
            return NextAction("migrate", FORWARD[job.pair].action.value, job.migration_begins)
        case State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED:
            if job.probation_ends is None:
                notification = _notification_text("second", job.probation_gap_days)
                return NextAction("communicate", f"{notification}: probation begins")
            return NextAction("preprocess", "probation is over", job.probation_ends)
        case State.HIVE_DROPPED, State.HIVE_DROPPED:
            if job.in_process:
                return NextAction("preprocess", "record that it is completed")
            if job.comm_level3_date is None:
                return NextAction("communicate", "the third notification")
            if job.close_at is not None:
                return NextAction("close", "remove the remains of the Hive table", job.close_at)
            return NextAction(None, _completion(job))
    if (transition := FORWARD.get(job.pair)) is not None:
        return NextAction("migrate", transition.action.value)
    return NextAction(None, f"no mode has a transition from {job.state} to {job.desired_state}")


def _completion(job: Job) -> str:
    """Return the commands for a completed job, in words."""
    archive = None if job.archived_at else "tableferry fleet archive archives it"
    closed = job.record.closed is not None
    close = None if closed else f"{command('close', job.name)} removes the remains of the Hive table"
    done = "completed and closed" if closed else "completed"
    choices = ", and ".join(filter(None, (archive, close)))
    return f"{done}; {choices}" if choices else done


def _notification_text(which: str, days: int) -> str:
    if days:
        return f"the {which} notification"
    return f"record the day; no {which} notification, because the gap is 0 days"
