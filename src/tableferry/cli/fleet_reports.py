"""What the modes of a fleet tell: lines for people, data for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.cli.fleet_options import many
from tableferry.fleet.job import Job
from tableferry.fleet.next_action import next_action
from tableferry.fleet.reports import JobReport, ModeReport

if TYPE_CHECKING:
    from tableferry.fleet.modes.communicate import CommunicateReport


def report_lines(done: ModeReport, dry_run: bool) -> Iterator[str]:
    """Say what a run did: what it would do, or what needs a person, how many of each, and what comes next."""
    for one in done.jobs:
        if dry_run:
            yield (
                f"{one.job.name}: {one.job.state} → {one.job.desired_state}" if one.did else str(one.job.name)
            )
            yield from (f"  {line}" for line in one.did)
        if one.error:
            yield f"{one.job.name} {one.outcome}: {one.error}"
        elif one.outcome == "paused":
            yield f"{one.job.name} paused: {one.job.pause_reason}"
    counts = Counter(one.outcome for one in done.jobs)
    if not counts:
        yield "No job is due."
        return
    yield ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    if not dry_run:
        yield from next_modes([one.job for one in done.jobs])


def notification_lines(communicated: CommunicateReport, folder: Path | None) -> Iterator[str]:
    """Say what came of the letters, and what comes next."""
    for each in communicated.left_out:
        about = str(each.tables[0]) if len(each.tables) == 1 else many(len(each.tables), "table")
        yield f"{each.recipient} gets no letter about {about}: {each.why}"
    yield from communicated.problems
    repeated = (
        f", {communicated.repeated:,} of them perhaps for the second time" if communicated.repeated else ""
    )
    if folder is not None:
        yield f"{many(communicated.sent, 'letter')} in {folder}; nothing was sent."
        return
    if not (communicated.sent or communicated.failed or communicated.untold or communicated.jobs):
        yield "No letter is due."
        return
    yield f"{many(communicated.sent, 'letter')} sent{repeated}" + (
        f", {communicated.failed:,} not sent" if communicated.failed else ""
    )
    for level, jobs in communicated.jobs.items():
        yield f"{many(jobs, 'table')} past the letters of level {level}: {_AFTER[level]}"
    if communicated.untold:
        yield f"Next: tableferry fleet communicate ({many(communicated.untold, 'table')})"


_AFTER = {
    1: "tableferry fleet migrate takes them when their first gap is over",
    2: "probation has begun, and tableferry fleet shadow keeps Hive in step until it ends",
    3: "they are completed, and tableferry fleet archive moves them out of the queue",
}


def next_modes(jobs: Iterable[Job]) -> Iterator[str]:
    """Say which modes go on with these jobs, and from when on; the nearest first."""
    due: dict[str, list[datetime | None]] = {}
    for job in jobs:
        comes = next_action(job)
        if comes.mode is not None:
            due.setdefault(comes.mode, []).append(comes.when)
    for mode, times in due.items():
        dates = [when for when in times if when is not None]
        begins = f", from {min(dates):%Y-%m-%d %H:%M} UTC on" if len(dates) == len(times) else ""
        yield f"Next: tableferry fleet {mode} ({many(len(times), 'table')}{begins})"


def data(one: JobReport) -> dict[str, object]:
    """Return a job's report for programs."""
    job = one.job
    return {
        "table": job.name,
        "outcome": one.outcome,
        "state": job.state,
        "desiredState": job.desired_state,
        "pauseReason": job.pause_reason if job.migration_paused else None,
        "did": one.did,
        "error": one.error,
    }
