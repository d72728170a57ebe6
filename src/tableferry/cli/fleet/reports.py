"""The reports of a fleet's modes, as lines of text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.amounts import counted
from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.next_action import next_action
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.modes.results import JobReport, ModeReport

if TYPE_CHECKING:
    from tableferry.fleet.modes.communicator import CommunicateReport


def report_lines(report: ModeReport, dry_run: bool, waves: Mapping[str, Wave]) -> Iterator[str]:
    """Yield the report of a run: planned steps, or jobs that need attention; counts; the next commands."""
    for result in report.jobs:
        job = result.job
        if dry_run:
            yield f"{job.name}: {job.state} → {job.desired_state}" if result.actions else str(job.name)
            yield from (f"  {line}" for line in result.actions)
        if result.error:
            yield f"{job.name} {result.outcome}: {result.error}"
        elif result.outcome == "paused":
            yield f"{job.name} paused: {job.pause_reason}"
    counts = Counter(result.outcome for result in report.jobs)
    if not counts:
        yield "No job is due; tableferry fleet list shows the next step of each job."
        return
    yield ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    if not dry_run:
        yield from next_step_lines([result.job for result in report.jobs], waves)


def notification_lines(communicated: CommunicateReport, folder: Path | None) -> Iterator[str]:
    """Yield the report of notifications: recipients without one, counts, and the next commands."""
    for unsent in communicated.left_out:
        tables = unsent.tables
        about = str(tables[0]) if len(tables) == 1 else counted(len(tables), "table")
        yield f"{unsent.recipient} gets no notification about {about}: {unsent.why}"
    yield from communicated.problems
    sent = counted(communicated.sent, "notification")
    if folder is not None:
        yield f"{sent} in {folder}; nothing was sent."
        if communicated.unneeded:
            without = counted(communicated.unneeded, "table")
            yield f"No notification for {without} whose gap is 0 days: a real run only records the date."
        return
    if not (communicated.sent or communicated.failed or communicated.untold or communicated.jobs):
        yield "No notification is due."
        return
    repeated = (
        f", {communicated.repeated:,} of them possibly for the second time" if communicated.repeated else ""
    )
    failed = f", {communicated.failed:,} not sent" if communicated.failed else ""
    yield f"{sent} sent{repeated}{failed}"
    for level, jobs in communicated.jobs.items():
        yield f"{counted(jobs, 'table')} past notification level {level}: {_AFTER[level]}"
    if communicated.untold:
        yield f"Next: tableferry fleet communicate ({counted(communicated.untold, 'table')})"


_AFTER = {
    1: "next is tableferry fleet migrate, after the first gap",
    2: "on probation, in which tableferry fleet shadow updates Hive copies",
    3: "completed; next is tableferry fleet archive, a week later",
}


def next_step_lines(jobs: Iterable[Job], waves: Mapping[str, Wave]) -> Iterator[str]:
    """Yield the next commands for these jobs: modes, with the first date, and waves to start."""
    due: dict[str, list[datetime | None]] = {}
    waiting = Counter[str]()
    for job in jobs:
        action = next_action(job, waves)
        if action.wave:
            waiting[action.wave] += 1
        if action.mode is not None:
            due.setdefault(action.mode, []).append(action.when)
    for mode, times in due.items():
        dates = [when for when in times if when is not None]
        begins = f", from {min(dates):%Y-%m-%d %H:%M} UTC on" if len(dates) == len(times) else ""
        yield f"Next: tableferry fleet {mode} ({counted(len(times), 'table')}{begins})"
    for wave, count in waiting.items():
        yield f"Next: tableferry fleet wave start {wave} ({counted(count, 'table')})"


def job_data(result: JobReport) -> dict[str, object]:
    """Return a job's report for JSON."""
    job = result.job
    return {
        "table": job.name,
        "outcome": result.outcome,
        "state": job.state,
        "desiredState": job.desired_state,
        "pauseReason": job.pause_reason if job.migration_paused else None,
        "did": result.actions,
        "error": result.error,
    }
