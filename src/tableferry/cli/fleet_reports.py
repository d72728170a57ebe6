"""What the modes of a fleet report: lines for people, data for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.amounts import counted
from tableferry.fleet.job import Job
from tableferry.fleet.next_action import next_action
from tableferry.fleet.reports import JobReport, ModeReport
from tableferry.fleet.wave import Wave

if TYPE_CHECKING:
    from tableferry.fleet.modes.communicate import CommunicateReport


def report_lines(report: ModeReport, dry_run: bool, waves: Mapping[str, Wave]) -> Iterator[str]:
    """Say what a run did: what it would do, or what needs a person, how many of each, and what comes next."""
    for result in report.jobs:
        job = result.job
        if dry_run:
            yield f"{job.name}: {job.state} → {job.desired_state}" if result.did else str(job.name)
            yield from (f"  {line}" for line in result.did)
        if result.error:
            yield f"{job.name} {result.outcome}: {result.error}"
        elif result.outcome == "paused":
            yield f"{job.name} paused: {job.pause_reason}"
    counts = Counter(result.outcome for result in report.jobs)
    if not counts:
        yield "No job is due; tableferry fleet list says what each one waits for."
        return
    yield ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    if not dry_run:
        yield from next_step_lines([result.job for result in report.jobs], waves)


def notification_lines(communicated: CommunicateReport, folder: Path | None) -> Iterator[str]:
    """Say what came of the letters, and what comes next."""
    for unsent in communicated.left_out:
        tables = unsent.tables
        about = str(tables[0]) if len(tables) == 1 else counted(len(tables), "table")
        yield f"{unsent.recipient} gets no letter about {about}: {unsent.why}"
    yield from communicated.problems
    letters = counted(communicated.sent, "letter")
    if folder is not None:
        yield f"{letters} in {folder}; nothing was sent."
        if communicated.unneeded:
            without = counted(communicated.unneeded, "table")
            yield f"No letter for {without} whose gap is 0 days: a real run only notes the day."
        return
    if not (communicated.sent or communicated.failed or communicated.untold or communicated.jobs):
        yield "No letter is due."
        return
    repeated = (
        f", {communicated.repeated:,} of them perhaps for the second time" if communicated.repeated else ""
    )
    failed = f", {communicated.failed:,} not sent" if communicated.failed else ""
    yield f"{letters} sent{repeated}{failed}"
    for level, jobs in communicated.jobs.items():
        yield f"{counted(jobs, 'table')} past the letters of level {level}: {_AFTER[level]}"
    if communicated.untold:
        yield f"Next: tableferry fleet communicate ({counted(communicated.untold, 'table')})"


_AFTER = {
    1: "tableferry fleet migrate takes them when their first gap is over",
    2: "probation has begun, and tableferry fleet shadow keeps Hive in step until it ends",
    3: "they are completed, and tableferry fleet archive moves them out of the queue",
}


def next_step_lines(jobs: Iterable[Job], waves: Mapping[str, Wave]) -> Iterator[str]:
    """Say which modes go on with these jobs, and from when on, or which waves are to be started before."""
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
    """Return a job's report for programs."""
    job = result.job
    return {
        "table": job.name,
        "outcome": result.outcome,
        "state": job.state,
        "desiredState": job.desired_state,
        "pauseReason": job.pause_reason if job.migration_paused else None,
        "did": result.did,
        "error": result.error,
    }
