"""Runs a claimed job from state to state: look, plan, perform, save.

Each state that is reached is saved with the claim held; a worker that dies anywhere leaves a job that the
next one claims when the lease has lapsed, and plans anew from the names that are there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from tableferry.errors import Refused, StateError, TableError, TableferryError, first_line, is_sparks
from tableferry.fleet.access.taken_rights import TakenRights
from tableferry.fleet.clock import Clock
from tableferry.fleet.jobs.job import Job, PauseReason, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.pauses import kept_out
from tableferry.fleet.jobs.plan import Kind, Transitions, arrived, dry_run_steps, is_switched, plan
from tableferry.fleet.jobs.steps import BlockWrites, CheckLate, DropView, Rename, Step, UnblockWrites
from tableferry.fleet.jobs.transitions import FORWARD, Action, Transition
from tableferry.fleet.modes.hand_change_stops import (
    report_hand_change,
    resolve_hand_changes,
    stopping_at_lost_metadata,
)
from tableferry.fleet.modes.performer import Stopped, WrittenSince, perform
from tableferry.fleet.modes.results import JobReport
from tableferry.fleet.queue.changes import ClaimLost, lost
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.warehouse import job_tables, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
from tableferry.spark.tables import TableName

# How often a job begins again, or fails, before a person has to look.
ATTEMPTS = 3


@dataclass
class JobRun:
    """A worker's run of one claimed job.

    Attributes:
        job: As it is saved, or about to be.
        warehouse: The tables, which change only as long as the claim holds.
        lease: How long each save holds the claim.
        did: What was done, in lines.
        unblocked: When this run last let writers in, in seconds since 1970.
    """

    job: Job
    store: Store
    warehouse: Warehouse
    clock: Clock
    lease: timedelta
    did: list[str] = field(default_factory=list)
    unblocked: float | None = None

    def __post_init__(self) -> None:
        names = Names.of(self.job)
        if names.elsewhere:
            self.warehouse.prepare_catalog(names.target.parts[0])
        cache = job_tables.JobTableCache(names.all)
        self.warehouse = replace(
            self.warehouse, table_cache=cache, prepared=PreparedCopy(), guard=self.demand_claim
        )

    def demand_claim(self) -> None:
        """Make sure that the job is still this worker's: it may have slept, and another may be at work.

        Raises:
            ClaimLost: It isn't.
        """
        if not self.store.holds(self.job, self.clock()):
            raise lost(self.job)

    def save(self, job: Job) -> Job:
        """Write the job back and hold the claim."""
        self.job = self.store.save(job, self.clock(), lease=self.lease)
        return self.job

    def perform(self, step: Step) -> None:
        """Do a step, and report it."""
        try:
            self.job = perform(step, self.job, self.warehouse, self.save)
        except ClaimLost:
            raise
        except Exception:
            self._give_stray_rights_back(step)
            raise
        self._give_stray_rights_back(step)
        self.did.append(str(step))
        if isinstance(step, UnblockWrites):
            self.unblocked = self.clock().timestamp()
        if isinstance(step, CheckLate) and (sentence := self.job.record.late_files_not_looked_for):
            self.did.append(sentence)

    def _give_stray_rights_back(self, step: Step) -> None:
        """Give back rights that were taken after the claim was lost, and that nobody else would give back.

        Who lets the writers in looks at the rights once more after it has forgotten what was taken; this run,
        after it has taken them, looks at what is forgotten. So one of the two gives them back.

        Raises:
            ClaimLost: The job is another worker's by now.
        """
        if not isinstance(step, BlockWrites) or self.store.holds(self.job, self.clock()):
            return
        current = self.store.jobs(numbered([self.job.task_id]))
        noted = [note for job in current for note in (*job.record.rights, *job.record.withheld_rights)]
        access, names = self.warehouse.access, Names.of(self.job)
        for note in self.job.record.rights:
            taken = TakenRights.of(note)
            if note not in noted and taken.mean_something_on(step.table, access, names):
                # Not through `Warehouse.effect`, which would refuse it: the claim is lost.
                access.give_back(step.table, taken.rights)
        raise lost(self.job)

    def release(self, job: Job) -> None:
        """Write the job back and give the claim up."""
        self.job = self.store.save(job, self.clock(), release=True)

    def end(self, job: Job) -> None:
        """Write the job back whose run did what it was to do: what failed before counts no more."""
        self.release(job.without_failures())


def run_job(run: JobRun, transitions: Transitions) -> JobReport:
    """Run a job as far as these transitions take it; its own errors are reported and never raised."""
    return reported(run, partial(advance, transitions=transitions))


def advance(run: JobRun, transitions: Transitions) -> JobReport:
    """Run a job as far as these transitions take it, for `reported`, which takes its errors."""
    while (transition := transitions.get(run.job.pair)) is not None:
        _once(run, transition)
    run.end(run.job)
    return JobReport(run.job, "done", tuple(run.did))


def dry_run_report(job: Job, warehouse: Warehouse, transitions: Transitions) -> JobReport:
    """Say what a run by these transitions would do, without doing it."""
    try:
        if (stopped := report_hand_change(job, warehouse)) is not None:
            return stopped
        steps = dry_run_steps(job, job_tables.list_job_tables(warehouse, Names.of(job)), transitions)
    except TableferryError as error:
        return JobReport(job, "paused", (), error.one_line)
    return JobReport(job, "planned", tuple(map(str, steps)))


def reported(run: JobRun, work: Callable[[JobRun], JobReport]) -> JobReport:
    """Do a job's work; what goes wrong with it becomes its report, and the row what the next run needs."""
    try:
        return _recorded(run, work)
    except ClaimLost as error:
        # Also while what went wrong was written down: the job is another worker's now.
        return JobReport(run.job, "lost", tuple(run.did), error.one_line)


def _recorded(run: JobRun, work: Callable[[JobRun], JobReport]) -> JobReport:
    try:
        return work(run)
    except ClaimLost:
        raise
    except Stopped as error:
        run.job = run.job.with_record(found=error.found)
        return _pause(run, error.pause.reason, error.pause.text)
    except WrittenSince as error:
        return _pause(run, PauseReason.WRITTEN_WHILE_BLOCKED, error.one_line)
    except Refused as error:
        return _pause(run, PauseReason.STEP_REFUSED, error.one_line)
    except (TableError, StateError) as error:
        return _fail(run, error.one_line)
    except Exception as error:
        # One table's trouble with Spark isn't the others'; what nobody can fix ends the run.
        if not is_sparks(error):
            raise
        return _fail(run, f"Spark failed ({first_line(error)})")


def _once(run: JobRun, transition: Transition) -> None:
    """Make one transition, and save the state that it reached."""
    names = Names.of(run.job)
    resolve_hand_changes(run)
    steps = plan(run.job, job_tables.list_job_tables(run.warehouse, names))
    for step in steps:
        try:
            with stopping_at_lost_metadata(run):
                run.perform(step)
        except WrittenSince as error:
            if _begin_again(run, names, error.one_line):
                return
            if not _settle_late(run, names):
                raise
    now = run.clock().timestamp()
    # What is done when writers are in again isn't what they waited for.
    ended = (run.unblocked or now) if transition.action is Action.UNBLOCK else now
    run.save(_measured(_arrived(run.job, transition), transition, ended))


def _measured(job: Job, transition: Transition, now: float) -> Job:
    """Note how long writers had to wait for a table of this size, by which others are forecast."""
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


def _arrived(job: Job, transition: Transition) -> Job:
    """Return the job in the state that it wanted, wanting the next."""
    job = replace(arrived(job, transition), shadow_status=None)
    if job.pair == (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED):
        reverted = job.paused(PauseReason.REVERTED, job.record.rows_lost)
        job = replace(reverted, in_process=False, shadow_watermark=None)
    if job.state is State.HIVE_DROPPED:
        # What was said to be as it should be holds for what was found then.
        job = job.with_record(accept="")
    return job.without_failures()


def _begin_again(run: JobRun, names: Names, why: str) -> bool:
    """Block once more and copy what was written; False if that was tried often enough, or can't be.

    The copy may be made anew then, so it can't be once somebody has written to it.
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
        # Who committed right before that; a later commit finds no table of that name.
        if _is_written_to(run, names.copy):
            run.perform(Rename(names.copy, names.target))
            return False
        if tables.get(names.main) is Kind.VIEW:
            run.perform(DropView(names.main, names.target))
        if names.hive != names.main:
            run.perform(Rename(names.hive, names.main))
    run.did.append(f"{why}: starting again at the block of {names.main}")
    restarted = replace(run.job, state=State.READY, desired_state=State.WRITES_BLOCKED)
    run.save(restarted.with_record(began_again=times))
    return True


def _is_written_to(run: JobRun, copy: TableName) -> bool:
    """Say whether somebody has written to a copy since the Hive table's definition was carried over."""
    return (
        target_versions.current_version(run.warehouse, copy, run.job.target_format)
        != run.job.shadow_watermark
    )


def _settle_late(run: JobRun, names: Names) -> bool:
    """Settle as late what came into the Hive table's directories; False if the names aren't swapped yet.

    The new table was written to already, so they aren't swapped back: what came is what comes after any
    switch. Without a record of the copy's files it can't be settled either.
    """
    if not is_switched(names, job_tables.list_job_tables(run.warehouse, names)):
        return False
    run.perform(CheckLate(names.target, names.hive, run.job.target_format, decide=False))
    return not run.job.record.late_files_not_looked_for


def _pause(run: JobRun, reason: PauseReason, why: str) -> JobReport:
    """Let the job wait for a person, and, if Hive has its name still, let the writers in meanwhile."""
    try:
        _let_writers_in(run)
    except ClaimLost:
        raise
    except Exception as error:
        # What stopped the job may stop this too. Then writes stay blocked, and it's resumed from here.
        if not isinstance(error, TableferryError) and not is_sparks(error):
            raise
        cause = error.one_line if isinstance(error, TableferryError) else first_line(error)
        why = f"{why.removesuffix('.')}; and the writers of {run.job.name} couldn't be let in ({cause})"
    paused = replace(run.job.paused(reason, why), shadow_status=None)
    run.release(paused.with_record(began_again=0))
    out = f"; {kept}" if (kept := kept_out(run.job)) else ""
    return JobReport(run.job, "paused", tuple(run.did), why.removesuffix(".") + out if out else why)


def _let_writers_in(run: JobRun) -> None:
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
    """Leave the job where it is for the next run, unless it failed often enough."""
    times = run.job.record.failures + 1
    if times >= ATTEMPTS:
        return _pause(run, PauseReason.STEP_FAILED, f"{why.removesuffix('.')}, {times} times")
    failed = replace(run.job, shadow_status=None)
    run.release(failed.with_record(failures=times, last_error=why[:500]))
    return JobReport(run.job, "failed", tuple(run.did), why)
