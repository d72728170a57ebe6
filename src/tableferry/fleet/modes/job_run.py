"""Run a claimed job from state to state: read the tables, plan, perform, save.

Each new state is saved with the claim held. If the worker dies, another worker claims the job after the lease
has expired, and plans its next steps from the existing tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from tableferry.errors import Refused, StateError, TableError, TableferryError, first_line, is_sparks
from tableferry.fleet.access.fence import WrittenDuringBlock
from tableferry.fleet.access.write_block import RevokedPrivileges
from tableferry.fleet.clock import Clock
from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import blocked_writes
from tableferry.fleet.jobs.step_plan import (
    Kind,
    Transitions,
    after_transition,
    dry_run_steps,
    is_switched,
    plan,
)
from tableferry.fleet.jobs.steps import BlockWrites, CheckLate, DropView, Rename, Step, UnblockWrites
from tableferry.fleet.jobs.transitions import FORWARD, Action, Transition
from tableferry.fleet.modes.hand_change_pauses import (
    pausing_at_lost_metadata,
    report_hand_change,
    resolve_hand_changes,
)
from tableferry.fleet.modes.performer import perform
from tableferry.fleet.modes.results import JobReport
from tableferry.fleet.queue.changes import ClaimLost, claim_lost
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import job_tables, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
from tableferry.fleet.warehouse.step_run import StepPaused
from tableferry.spark.tables import TableName

# The number of restarts or failures after which the job pauses for a person.
ATTEMPTS = 3


@dataclass
class JobRun:
    """A worker's run of one claimed job.

    Attributes:
        job: The job as it was last saved, or with changes that are saved next.
        warehouse: The tables; a change requires a valid claim.
        lease: The time for which each save extends the claim.
        actions: The performed actions, one line each.
        unblocked_at: The time at which this run last unblocked writes, in seconds since 1970.
    """

    job: Job
    store: Store
    warehouse: Warehouse
    clock: Clock
    lease: timedelta
    actions: list[str] = field(default_factory=list)
    unblocked_at: float | None = None

    def __post_init__(self) -> None:
        names = Names.of(self.job)
        if names.elsewhere:
            self.warehouse.prepare_catalog(names.target.parts[0])
        cache = job_tables.JobTableCache(names.all)
        self.warehouse = replace(
            self.warehouse, table_cache=cache, prepared=PreparedCopy(), guard=self.require_claim
        )

    def require_claim(self) -> None:
        """Check that this worker still holds the claim; after a suspension, another worker may hold it.

        Raises:
            ClaimLost: Another worker may have claimed the job.
        """
        if not self.store.holds(self.job, self.clock()):
            raise claim_lost(self.job)

    def save(self, job: Job) -> Job:
        """Save the job and extend the claim."""
        self.job = self.store.save(job, self.clock(), lease=self.lease)
        return self.job

    def perform(self, step: Step) -> None:
        """Perform a step, and add it to the actions."""
        try:
            self.job = perform(step, self.job, self.warehouse, self.save)
        except ClaimLost:
            raise
        except Exception:
            self._give_back_stray_rights(step)
            raise
        self._give_back_stray_rights(step)
        self.actions.append(str(step))
        if isinstance(step, UnblockWrites):
            self.unblocked_at = self.clock().timestamp()
        if isinstance(step, CheckLate) and (sentence := self.job.record.late_files_not_looked_for):
            self.actions.append(sentence)

    def _give_back_stray_rights(self, step: Step) -> None:
        """Give back rights that this run took after it had lost the claim.

        The worker that unblocks writes gives rights back again after it has deleted their record. This run
        checks the record after it has taken rights. So one of the two gives them back.

        Raises:
            ClaimLost: Another worker has claimed the job.
        """
        if not isinstance(step, BlockWrites) or self.store.holds(self.job, self.clock()):
            return
        current = self.store.jobs(numbered([self.job.task_id]))
        noted = [note for job in current for note in (*job.record.rights, *job.record.withheld_rights)]
        access, names = self.warehouse.access, Names.of(self.job)
        for note in self.job.record.rights:
            taken = RevokedPrivileges.of(note)
            if note not in noted and taken.apply_to(step.table, access, names):
                # `Warehouse.effect` would refuse this, because the claim is lost.
                access.give_back(step.table, taken.rights)
        raise claim_lost(self.job)

    def release(self, job: Job) -> None:
        """Save the job and release the claim."""
        self.job = self.store.save(job, self.clock(), release=True)

    def end(self, job: Job) -> None:
        """Save the job after a successful run, release the claim and reset the failure count."""
        self.release(job.without_failures())


def run_job(run: JobRun, transitions: Transitions) -> JobReport:
    """Run a job through these transitions; errors of the job are reported and never raised."""
    return run_and_report(run, partial(advance, transitions=transitions))


def advance(run: JobRun, transitions: Transitions) -> JobReport:
    """Make a job's transitions until none of these applies, save each state, and release the claim.

    Errors are raised, and the claim is kept then: `run_and_report` handles both. The outcome is "done", also
    if no transition applied.
    """
    while (transition := transitions.get(run.job.pair)) is not None:
        _make_transition(run, transition)
    run.end(run.job)
    return JobReport(run.job, "done", tuple(run.actions))


def dry_run_report(job: Job, warehouse: Warehouse, transitions: Transitions) -> JobReport:
    """Return the steps that a run through these transitions would perform."""
    try:
        if (stopped := report_hand_change(job, warehouse)) is not None:
            return stopped
        steps = dry_run_steps(job, job_tables.list_job_tables(warehouse, Names.of(job)), transitions)
    except TableferryError as error:
        return JobReport(job, "paused", (), error.one_line)
    return JobReport(job, "planned", tuple(map(str, steps)))


def run_and_report(run: JobRun, work: Callable[[JobRun], JobReport]) -> JobReport:
    """Run a job's work; errors of the job become its report, and are saved for the next run."""
    try:
        return _run_recording_errors(run, work)
    except ClaimLost as error:
        # The claim may also be lost while an error is saved.
        return JobReport(run.job, "lost", tuple(run.actions), error.one_line)


def _run_recording_errors(run: JobRun, work: Callable[[JobRun], JobReport]) -> JobReport:
    try:
        return work(run)
    except ClaimLost:
        raise
    except StepPaused as error:
        run.job = run.job.with_record(found=error.found)
        return _pause(run, error.pause.reason, error.pause.text)
    except WrittenDuringBlock as error:
        return _pause(run, PauseReason.WRITTEN_WHILE_BLOCKED, error.one_line)
    except Refused as error:
        return _pause(run, PauseReason.STEP_REFUSED, error.one_line)
    except (TableError, StateError) as error:
        return _fail(run, error.one_line)
    except Exception as error:
        # A Spark error concerns one table; other unexpected errors end the run.
        if not is_sparks(error):
            raise
        return _fail(run, f"Spark failed ({first_line(error)})")


def _make_transition(run: JobRun, transition: Transition) -> None:
    """Perform the steps of one transition, and save the new state."""
    names = Names.of(run.job)
    resolve_hand_changes(run)
    steps = plan(run.job, job_tables.list_job_tables(run.warehouse, names))
    for step in steps:
        try:
            with pausing_at_lost_metadata(run):
                run.perform(step)
        except WrittenDuringBlock as error:
            if _restart_block(run, names, error.one_line):
                return
            if not _settle_late_files(run, names):
                raise
    now = run.clock().timestamp()
    # Steps after the unblock don't count as blocked time.
    ended = (run.unblocked_at or now) if transition.action is Action.UNBLOCK else now
    run.save(_with_duration(_reached(run.job, transition), transition, ended))


def _with_duration(job: Job, transition: Transition, now: float) -> Job:
    """Record the duration of the block and the table's size for the forecast."""
    match transition.action:
        case Action.BLOCK:
            size = {key: job.record.fence.get(key, 0) for key in ("files", "bytes")}
            return job.with_record(blocked={"since": now, **size})
        case Action.UNBLOCK if job.record.blocked is not None:
            blocked = job.record.blocked
            took = {"seconds": round(now - blocked["since"], 1), **blocked}
            return job.with_record(blocked=None, moved=took)
        case _:
            return job


def _reached(job: Job, transition: Transition) -> Job:
    """Return the job in the state that the transition reached, with the next desired state."""
    job = replace(after_transition(job, transition), shadow_status=None)
    if job.pair == (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED):
        reverted = job.paused(PauseReason.REVERTED, job.record.rows_lost)
        job = replace(reverted, in_process=False, shadow_watermark=None)
    if job.state is State.HIVE_DROPPED:
        # A person's acceptance applies only to the findings at that time.
        job = job.with_record(accept="")
    return job.without_failures()


def _restart_block(run: JobRun, names: Names, why: str) -> bool:
    """Restart the job at the block of writes to copy new rows; False if it can't be restarted.

    A job restarts `ATTEMPTS` times at most. The restart may recreate the copy, so it's refused after another
    process has written to the copy.
    """
    times = run.job.record.began_again + 1
    if times > ATTEMPTS:
        return False
    tables = job_tables.list_job_tables(run.warehouse, names)
    switched = is_switched(names, tables)
    if _is_written_to(run, names.target if switched else names.copy):
        return False
    if switched:
        run.perform(Rename(names.target, names.copy))
        # A write may have been committed right before the rename; a later write doesn't find the name.
        if _is_written_to(run, names.copy):
            run.perform(Rename(names.copy, names.target))
            return False
        if tables.get(names.main) is Kind.VIEW:
            run.perform(DropView(names.main, names.target))
        if names.hive != names.main:
            run.perform(Rename(names.hive, names.main))
    run.actions.append(f"{why}: starting again at the block of {names.main}")
    restarted = replace(run.job, state=State.READY, desired_state=State.WRITES_BLOCKED)
    run.save(restarted.with_record(began_again=times))
    return True


def _is_written_to(run: JobRun, copy: TableName) -> bool:
    """Return whether a process wrote to a copy after the Hive table's definition was copied."""
    return (
        target_versions.current_version(run.warehouse, copy, run.job.target_format)
        != run.job.shadow_watermark
    )


def _settle_late_files(run: JobRun, names: Names) -> bool:
    """Settle new files in the Hive table's directories as late files; False before the switch.

    After the switch, the new table may contain new rows, so the names aren't swapped back. The files are
    handled like all late files. Without a file record they can't be settled.
    """
    if not is_switched(names, job_tables.list_job_tables(run.warehouse, names)):
        return False
    run.perform(CheckLate(names.target, names.hive, run.job.target_format, decide=False))
    return not run.job.record.late_files_not_looked_for


def _pause(run: JobRun, reason: PauseReason, why: str) -> JobReport:
    """Pause the job for a person; before the switch, unblock writes during the pause."""
    try:
        _unblock_writers(run)
    except ClaimLost:
        raise
    except Exception as error:
        # The cause of the pause may also prevent the unblock. Writes stay blocked then until the job resumes.
        if not isinstance(error, TableferryError) and not is_sparks(error):
            raise
        cause = error.one_line if isinstance(error, TableferryError) else first_line(error)
        why = f"{why.removesuffix('.')}; and writes to {run.job.name} couldn't be unblocked ({cause})"
    paused = replace(run.job.paused(reason, why), shadow_status=None)
    run.release(paused.with_record(began_again=0))
    out = f"; {kept}" if (kept := blocked_writes(run.job)) else ""
    return JobReport(run.job, "paused", tuple(run.actions), why.removesuffix(".") + out if out else why)


def _unblock_writers(run: JobRun) -> None:
    if run.job.pair not in FORWARD:
        return
    names = Names.of(run.job)
    if run.job.state in (State.ICEBERG_PRIMARY, State.WRITES_UNBLOCKED):
        # After the switch a Hive table with this name is the Hive copy, or one that another process created.
        return
    tables = job_tables.list_job_tables(run.warehouse, names)
    if tables.get(names.main) is Kind.HIVE and not is_switched(names, tables):
        run.perform(UnblockWrites(names.main))
        run.job = replace(run.job, state=State.READY, desired_state=State.WRITES_BLOCKED)


def _fail(run: JobRun, why: str) -> JobReport:
    """Leave the job in its state for the next run, or pause it after too many failures."""
    times = run.job.record.failures + 1
    if times >= ATTEMPTS:
        return _pause(run, PauseReason.STEP_FAILED, f"{why.removesuffix('.')}, {times} times")
    failed = replace(run.job, shadow_status=None)
    run.release(failed.with_record(failures=times, last_error=why[:500]))
    return JobReport(run.job, "failed", tuple(run.actions), why)
