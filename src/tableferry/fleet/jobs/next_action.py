"""What happens next to a job, by which mode, and when: pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Literal

from tableferry.errors.catalogue import as_sentence
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.pauses import kept_out, remedy, resume_command
from tableferry.fleet.jobs.transitions import BACK, FORWARD
from tableferry.fleet.jobs.waves import Wave, WaveStatus

Mode = Literal["preprocess", "communicate", "migrate", "shadow", "revert", "close"]


@dataclass(frozen=True)
class NextAction:
    """What comes next.

    Attributes:
        mode: Which mode does it; None where nothing moves by itself.
        what: What it does, or what a person does.
        when: The first moment at which it can; None for the mode's next run.
        wave: The wave that is waited for; empty for none.
    """

    mode: Mode | None
    what: str
    when: datetime | None = None
    wave: str = ""


def next_action(job: Job, waves: Mapping[str, Wave] = MappingProxyType({})) -> NextAction:
    """Say what happens next to a job.

    Args:
        job: The job.
        waves: The waves by their names, without which none is taken to be waited for.
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
        out = as_sentence(kept) + " " if (kept := kept_out(job)) else ""
        return NextAction(None, f"{out}{remedy(job)} Then: {resume_command(job)}")
    if (back := BACK.get(job.pair)) is not None:
        return NextAction("revert", back.action.value)
    match job.pair:
        case State.UNDEFINED, _:
            return NextAction("preprocess", "look at the table, and fill in owners, users and format")
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
                return NextAction("preprocess", "note that it is completed")
            if job.comm_level3_date is None:
                return NextAction("communicate", "the third notification")
            if job.close_at is not None:
                return NextAction("close", "remove what is left of Hive's table", job.close_at)
            archive = "tableferry fleet archive moves it out of the queue"
            if job.record.closed is not None:
                return NextAction(None, f"completed and closed; {archive}")
            close = f"{command('close', job.name)} removes what is left of Hive's table"
            return NextAction(None, f"completed; {archive}, and {close}")
    if (transition := FORWARD.get(job.pair)) is not None:
        return NextAction("migrate", transition.action.value)
    return NextAction(None, f"no mode has a transition from {job.state} to {job.desired_state}")


def _notification_text(which: str, days: int) -> str:
    if days:
        return f"the {which} notification"
    return f"record the day; no {which} notification, because the gap is 0 days"
