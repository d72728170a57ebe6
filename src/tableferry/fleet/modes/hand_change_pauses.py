"""Pause a job whose new table or Hive copy people dropped or replaced.

After a person confirms how the job continues (`resume --accept`), this module performs the confirmed action.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, assert_never

from tableferry.errors import TableError, is_sparks
from tableferry.fleet.checks.table_conditions import (
    has_lost_metadata,
    rename_statements,
    table_conditions,
)
from tableferry.fleet.jobs.hand_changes import (
    Acceptance,
    Condition,
    HandChange,
    Phase,
    find_hand_change,
    phase_of,
    rows_lost,
)
from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind, target_kind
from tableferry.fleet.jobs.steps import AdoptTable, DropEntry, RestoreHiveCopy, Step
from tableferry.fleet.modes.results import JobReport
from tableferry.fleet.queue.changes import ClaimLost
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import StepPaused


class RunningJob(Protocol):
    """The job that a run works on.

    Attributes:
        actions: The performed actions, one line each.
    """

    job: Job
    warehouse: Warehouse
    actions: list[str]

    def save(self, job: Job) -> Job:
        """Save the job, and extend the claim."""

    def perform(self, step: Step) -> None:
        """Perform a step if the claim is still valid."""


def resolve_hand_changes(run: RunningJob) -> None:
    """Pause at tables that people dropped or replaced, unless a person confirmed how to continue.

    Raises:
        StepPaused: A person must decide.
        TableError: The schema can't be listed, or a table can't be described or changed.
    """
    if not _has_both(run.job, run.warehouse):
        return
    conditions = _conditions(run)
    while change := _find(run.job, run.warehouse, *conditions):
        if change.acceptance is None or run.job.record.accept != change.acceptance:
            raise _paused_by(change)
        with pausing_at_lost_metadata(run):
            resolved = _resolve(run, change.acceptance, *conditions)
        if not resolved:
            raise _paused_by(change)
        conditions = _conditions(run)
    _note_conditions(run, *conditions)


@contextmanager
def pausing_at_lost_metadata(run: RunningJob) -> Iterator[None]:
    """Pause a job that fails inside a ``with`` because the new table's metadata files are missing.

    Raises:
        StepPaused: The metadata files are missing.
    """
    try:
        yield
    except ClaimLost:
        raise
    except Exception as error:
        known = isinstance(error, TableError) or is_sparks(error)
        if not known or phase_of(run.job) is None or not has_lost_metadata(run.warehouse, run.job):
            raise
        _, hive = table_conditions(run.warehouse, run.job)
        change = _find(run.job, run.warehouse, Condition.FILES_GONE, hive)
        if change is None:
            raise
        raise _paused_by(change) from error


def report_hand_change(job: Job, warehouse: Warehouse) -> JobReport | None:
    """Return the report of a dry run for a job that a run would pause; None if it wouldn't.

    Raises:
        TableError: As `resolve_hand_changes`.
    """
    if not _has_both(job, warehouse):
        return None
    change = _find(job, warehouse, *table_conditions(warehouse, job))
    return None if change is None else JobReport(job, "paused", (), change.finding.text)


def _find(job: Job, warehouse: Warehouse, new: Condition, hive: Condition) -> HandChange | None:
    taken = Condition.TAKEN is new or Condition.REPLACED is hive
    return find_hand_change(job, new, hive, rename_statements(warehouse, job) if taken else {})


def _has_both(job: Job, warehouse: Warehouse) -> bool:
    """Return whether a job is in a phase with both tables, before a revert swaps the names back."""
    if phase_of(job) is None:
        return False
    if job.state is not State.SYNC_HIVE:
        return True
    names = Names.of(job)
    tables = job_tables.list_job_tables(warehouse, names)
    found = tables.get(names.target)
    # While the Hive copy has its own name, a table of another kind isn't the renamed Hive table.
    return found is target_kind(job) or (found is not None and tables.get(names.hive) is Kind.HIVE)


def _conditions(run: RunningJob) -> tuple[Condition, Condition]:
    """Return the conditions of both tables; read the new table's files only if the remedy needs them."""
    new, hive = table_conditions(run.warehouse, run.job)
    given_up = run.job.record.accept == Acceptance.GIVE_UP_NEW_TABLE
    has_only_rows = (
        hive is not Condition.SOUND
        and phase_of(run.job) in (Phase.PROBATION, Phase.REVERTING)
        and not run.job.record.without_hive_copy
    )
    if new is Condition.SOUND and (given_up or has_only_rows) and has_lost_metadata(run.warehouse, run.job):
        new = Condition.FILES_GONE
    return new, hive


def _resolve(run: RunningJob, acceptance: Acceptance, new: Condition, hive: Condition) -> bool:
    """Perform the action that a person confirmed; return whether it's possible now."""
    names, form = Names.of(run.job), run.job.target_format
    match acceptance:
        case Acceptance.FINISH_WITHOUT_COPY:
            run.save(run.job.with_record(without_hive_copy=True, accept=""))
            run.actions.append(f"{names.target} is finished without a Hive copy")
        case Acceptance.RESTORE_COPY if hive is Condition.MISSING:
            run.perform(RestoreHiveCopy(names.target, names.hive, form))
            run.save(run.job.with_record(compare_all=True, without_hive_copy=False, accept=""))
        case Acceptance.ADOPT:
            run.perform(AdoptTable(names.target, names.main, form))
            run.save(run.job.with_record(accept=""))
        case Acceptance.GIVE_UP_NEW_TABLE if (
            new is Condition.FILES_GONE and phase_of(run.job) is Phase.REVERTING
        ):
            run.perform(DropEntry(names.target))
            run.save(run.job.with_record(accept=""))
        case Acceptance.RESTORE_COPY | Acceptance.GIVE_UP_NEW_TABLE:
            return False
        case _:
            assert_never(acceptance)
    return True


def _note_conditions(run: RunningJob, new: Condition, hive: Condition) -> None:
    """Record the rows that a revert can't copy, and remove records that no longer apply."""
    job = run.job
    lost = rows_lost(job) if new is Condition.MISSING and job.state is not State.WRITES_UNBLOCKED else ""
    noted = job.with_record(rows_lost=lost)
    if hive is Condition.SOUND:
        noted = noted.with_record(without_hive_copy=False)
    if noted != job:
        run.save(noted)
        if lost:
            run.actions.append(lost)


def _paused_by(change: HandChange) -> StepPaused:
    return StepPaused(change.finding, change.acceptance or "")
