"""Pauses of jobs: the reasons, their remedies, and how a job is resumed."""

from __future__ import annotations

from dataclasses import replace

from tableferry.errors import Refused
from tableferry.errors.catalogue import conditions
from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import REWRITABLE, Job, PauseReason, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.transitions import BACK

NOTHING_TO_DO = frozenset((PauseReason.IS_ALREADY_ICEBERG, PauseReason.IS_ALREADY_DELTA, PauseReason.IS_VIEW))
"""Reasons of tables that need no migration."""


def reason(job: Job) -> PauseReason | None:
    """Return the reason of a pause; None if the job isn't paused, or if a person wrote another reason."""
    word = job.pause_reason.partition(":")[0].strip()
    return next((code for code in PauseReason if job.migration_paused and code.value == word), None)


def remedy(job: Job) -> str:
    """Return the remedy for a paused job."""
    code = reason(job)
    return remedy_of(code.value if code else "")


def remedy_of(code: str) -> str:
    """Return the remedy for a reason's code.

    For any other text, such as a person's reason or a code with details, it is the advice to follow the
    reason.
    """
    known = code.strip() in {reason.value for reason in PauseReason if reason is not PauseReason.NONE}
    return conditions()[code.strip()].remedy if known else "Follow the reason."


_ACCEPTED = frozenset(
    (
        PauseReason.NEW_TABLE_REPLACED,
        PauseReason.NEW_TABLE_UNREADABLE,
        PauseReason.HIVE_COPY_MISSING,
        PauseReason.HIVE_COPY_REPLACED,
        PauseReason.HIVE_COPY_CHANGED,
    )
)
_REVERTED = frozenset(
    (PauseReason.NAME_TAKEN, PauseReason.NEW_TABLE_MISSING, PauseReason.NEW_TABLE_UNREADABLE)
)


def resume_command(job: Job) -> str:
    """Return the command by which a paused job continues."""
    why, found = reason(job), job.record.found
    if why in _REVERTED and found and job.pair not in BACK:
        return command("revert --from-archive" if job.state is State.HIVE_DROPPED else "revert", job.name)
    if why in _ACCEPTED and found:
        return command("resume --accept", job.name)
    return command("resume", job.name, *(["--rewrite"] if why in REWRITABLE else []))


def resumed(job: Job, *, accept: bool = False, rewrite: bool = False) -> Job:
    """Return a paused job resumed, with its attempts reset; a reverted job starts from the beginning.

    With `accept`, the finding is accepted: late files, removed partitions, rows of a copy that is dropped, or
    a finding of `hand_changes`. With `rewrite`, its rows may be rewritten, and it is checked again; this is
    refused after the migration has started.

    Raises:
        Refused: It has begun.
    """
    if rewrite:
        job = _to_be_rewritten(job)
    job = replace(job, migration_paused=False, pause_reason=PauseReason.NONE.value, shadow_status=None)
    job = job.without_failures().with_record(accept=job.record.found if accept else "", found="")
    if job.state is not State.ICEBERG_DROPPED:
        return job
    return replace(
        job,
        to_be_processed=False,
        in_process=False,
        state=State.UNDEFINED,
        desired_state=State.UNDEFINED,
        comm_level1_date=None,
        comm_level2_date=None,
        comm_level3_date=None,
        begun_at=None,
        shadow_watermark=None,
        record=JobRecord(),
    )


def _to_be_rewritten(job: Job) -> Job:
    waits = job.state in (State.UNDEFINED, State.READY, State.ICEBERG_DROPPED)
    # A job that started and stopped for another reason has a copy, or blocks writes: a revert ends both.
    stopped = job.state is State.READY and job.in_process and reason(job) not in REWRITABLE
    if not waits or stopped or job.record.rights:
        raise Refused(
            "JOB_BEGUN_WITHOUT_REWRITE",
            table=job.name,
            state=job.state,
            command=command("revert", job.name),
        )
    job = replace(job, rewrite=True)
    if job.state is not State.READY:
        return job
    first = State.UNDEFINED
    return replace(
        job, state=first, desired_state=first, to_be_processed=False, in_process=False, begun_at=None
    )


def blocked_writes(job: Job) -> str:
    """Return on which table writes are blocked, if privileges were revoked; otherwise empty."""
    return describe_tables(job) if job.record.rights else ""


def describe_tables(job: Job) -> str:
    """Return the condition of a paused job's tables, if writes are blocked or shadow runs stopped."""
    names = Names.of(job)
    match job.state:
        case State.WRITES_BLOCKED | State.ICEBERG_READY | State.SYNC_HIVE:
            # In a revert, the writes to the new table are blocked.
            back = State.SYNC_HIVE in job.pair
            return f"writes to {names.target if back else names.main} stay blocked"
        case State.ICEBERG_PRIMARY | State.HIVE_PRIMARY:
            written = names.target if job.state is State.ICEBERG_PRIMARY else names.main
            return f"writes to {written} stay blocked, and it has its new place"
        case _ if job.record.rights:
            # A step failed after a block, before the state was saved.
            written = names.main if job.state is State.READY else names.target
            return f"writes to {written} stay blocked"
        case State.WRITES_UNBLOCKED if job.in_process and job.desired_state is not State.ICEBERG_DROPPED:
            return f"{names.hive} isn't kept in step with {names.target}"
        case _:
            return ""
