"""Why jobs wait for a person, what that person can do, and how a job goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tableferry.errors import Refused
from tableferry.fleet.commands import command
from tableferry.fleet.job import ACCEPT, FOUND, REWRITABLE, RIGHTS, Job, PauseReason, State
from tableferry.fleet.naming import Names
from tableferry.fleet.transitions import BACK

REMEDIES: Mapping[PauseReason, str] = {
    PauseReason.NONE: "nothing to do",
    PauseReason.IS_CSV_TEXT: "let its rows be rewritten (--rewrite), or leave it in Hive",
    PauseReason.IS_ALREADY_ICEBERG: "nothing to do: it is Iceberg",
    PauseReason.TABLE_NOT_FOUND: "correct the name or the rights to see it",
    PauseReason.MISSING_OWNER: "give the table an owner in the catalog",
    PauseReason.HAS_TIMESTAMP_COLUMN: "let its rows be rewritten (--rewrite), or leave it in Hive",
    PauseReason.EMPTY_TABLE: "drop it, or resume once it has rows",
    PauseReason.REVERTED: "ask its owners what went wrong; resumed, it begins from the start",
    PauseReason.IS_ALREADY_DELTA: "nothing to do: it is Delta",
    PauseReason.IS_VIEW: "nothing to do: add the tables that it reads",
    PauseReason.IS_BUCKETED: "let its rows be rewritten (--rewrite), or choose Delta",
    PauseReason.IS_TRANSACTIONAL: "write it anew as a plain Parquet table, or leave it in Hive",
    PauseReason.UNSUPPORTED_FORMAT: "let its rows be rewritten (--rewrite), or choose Iceberg",
    PauseReason.NOT_REWRITABLE: "write it anew as Parquet in Hive, or leave it there",
    PauseReason.UNSUPPORTED_SCHEMA: "change the column that is named, or leave the table in Hive",
    PauseReason.UNSUPPORTED_LAYOUT: "do what the details say, or leave the table in Hive",
    PauseReason.SHARED_DIRECTORY: "give each table a directory of its own, or drop entries that nobody needs",
    PauseReason.REMOVES_FILES: "set 'external.table.purge' = 'false'",
    PauseReason.MANAGED_TABLE: "make it external, so that its files stay where they are under another name",
    PauseReason.NO_TARGET_SCHEMA: "make the schema that the new table is to be in, or ask for rights to it",
    PauseReason.NAME_TAKEN: "rename or drop the table that has the name",
    PauseReason.WRITTEN_LATE: "give the table the late files' rows (--accept), or set late_files: take",
    PauseReason.WRITTEN_WHILE_BLOCKED: "stop its writers, as nothing could keep them out",
    PauseReason.PARTITIONS_REMOVED: "bring them back, or say that it was meant so (--accept)",
    PauseReason.NEW_TABLE_MISSING: "restore the new table, or revert to the Hive copy",
    PauseReason.NEW_TABLE_REPLACED: "continue with the table in its place (--accept), or rename or drop that",
    PauseReason.NEW_TABLE_UNREADABLE: "restore the new table's files, or revert to the Hive copy",
    PauseReason.HIVE_COPY_MISSING: "continue without it, or in a revert create it again (--accept)",
    PauseReason.HIVE_COPY_REPLACED: "continue without it (--accept); in a revert rename or drop it first",
    PauseReason.HIVE_COPY_CHANGED: "change the new table too, or undo the change of the Hive copy (--accept)",
    PauseReason.ROWS_DIFFER: "compare both tables (tableferry verify) before anything else",
    PauseReason.STEP_REFUSED: "do what the details say",
    PauseReason.STEP_FAILED: "fix what the details say",
    PauseReason.PAUSED_BY_USER: "ask whoever paused it",
}
"""What to do about each reason before the job is resumed."""


def reason(job: Job) -> PauseReason | None:
    """Return why a job is paused; None if it isn't, or if somebody wrote a reason of their own."""
    word = job.pause_reason.partition(":")[0].strip()
    return next((code for code in PauseReason if job.migration_paused and code.value == word), None)


def remedy(job: Job) -> str:
    """Say what to do about a paused job."""
    code = reason(job)
    return remedy_of(code.value if code else "")


def remedy_of(code: str) -> str:
    """Say what to do about a reason, by its code; somebody may have written one of their own."""
    known = next((remedy for reason, remedy in REMEDIES.items() if reason.value == code.strip()), None)
    return known or "see what the reason says"


_ACCEPTED = frozenset(
    (
        PauseReason.NEW_TABLE_REPLACED,
        PauseReason.NEW_TABLE_UNREADABLE,
        PauseReason.HIVE_COPY_MISSING,
        PauseReason.HIVE_COPY_REPLACED,
        PauseReason.HIVE_COPY_CHANGED,
    )
)
_REVERTED = frozenset((PauseReason.NEW_TABLE_MISSING, PauseReason.NEW_TABLE_UNREADABLE))


def resume_command(job: Job) -> str:
    """Return the command by which a paused job continues."""
    why, found = reason(job), job.record.get(FOUND)
    if why in _REVERTED and found and job.pair not in BACK:
        return command("revert --from-archive" if job.state is State.HIVE_DROPPED else "revert", job.name)
    if why in _ACCEPTED and found:
        return command("resume --accept", job.name)
    return command("resume", job.name, *(["--rewrite"] if why in REWRITABLE else []))


def resumed(job: Job, *, accept: bool = False, rewrite: bool = False) -> Job:
    """Return a paused job as it goes on, its attempts counted anew; a reverted one begins from the start.

    With `accept`, what was found is as it should be: late files, removed partitions, rows of a copy that
    is to be dropped, or what `hand_changes` found. With `rewrite`, its rows may be rewritten, and it is
    looked at once more; only a job that hasn't begun can be told so.

    Raises:
        Refused: It has begun.
    """
    if rewrite:
        job = _to_be_rewritten(job)
    job = replace(job, migration_paused=False, pause_reason=PauseReason.NONE.value, shadow_status=None)
    job = job.without_failures().noted(**{ACCEPT: job.record.get(FOUND) if accept else None, FOUND: None})
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
        record={},
    )


def _to_be_rewritten(job: Job) -> Job:
    waits = job.state in (State.UNDEFINED, State.READY, State.ICEBERG_DROPPED)
    # What began and stopped for another reason has a copy, or keeps its writers out: a revert sees to both.
    stopped = job.state is State.READY and job.in_process and reason(job) not in REWRITABLE
    if not waits or stopped or job.record.get(RIGHTS):
        raise Refused(
            "JOB_BEGUN_WITHOUT_REWRITE",
            table=job.name,
            state=job.state,
            command=command("revert", job.name),
        )
    job = replace(job, rewrite=True)
    if job.state is not State.READY:
        return job
    anew = State.UNDEFINED
    return replace(
        job, state=anew, desired_state=anew, to_be_processed=False, in_process=False, begun_at=None
    )


def kept_out(job: Job) -> str:
    """Say from which table a job's writers are kept, if their rights were taken."""
    return left_as(job) if job.record.get(RIGHTS) else ""


def left_as(job: Job) -> str:
    """Say in which condition the tables of a job are while it is paused, if that is worth knowing."""
    names = Names.of(job)
    match job.state:
        case State.WRITES_BLOCKED | State.ICEBERG_READY | State.SYNC_HIVE:
            # On the way back the new table's writers are kept out from its block on.
            back = State.SYNC_HIVE in job.pair
            return f"writes to {names.target if back else names.main} stay blocked"
        case State.ICEBERG_PRIMARY | State.HIVE_PRIMARY:
            written = names.target if job.state is State.ICEBERG_PRIMARY else names.main
            return f"writes to {written} stay blocked, and it has its new place"
        case _ if job.record.get(RIGHTS):
            # Something went wrong behind a block, before its state was saved.
            written = names.main if job.state is State.READY else names.target
            return f"writes to {written} stay blocked"
        case State.WRITES_UNBLOCKED if job.in_process and job.desired_state is not State.ICEBERG_DROPPED:
            return f"{names.hive} isn't kept in step with {names.target}"
        case _:
            return ""
