"""Forecast when a fleet is completed, from its pace in the last weeks and the days that each job waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from math import ceil, sqrt
from typing import Any

from tableferry.fleet.reports.figure_types import (
    ARCHIVED,
    MIGRATED,
    PHASES,
    REVERTED,
    TO_DO,
    Forecast,
    Milestone,
    Pace,
    Phase,
    Span,
    WaitingJobs,
)
from tableferry.fleet.reports.labels import day, tables

WINDOWS = (7, 28)
"""The numbers of days over which the pace is computed."""

MILESTONES: Mapping[Milestone, str] = {MIGRATED: "migrated", ARCHIVED: "finished", REVERTED: "reverted"}
"""The milestones that the pace counts, by its fields."""

HORIZON = 3650
"""How many days ahead a forecast reaches at most."""

_TOO_LONG = "more than ten years"


def paces(reached: Iterable[Sequence[Any]], began: date | None, now: datetime) -> tuple[Pace, ...]:
    """Return the pace in each of the windows that end now, since the fleet began with its first job.

    `reached` has a day, a milestone's name and a number of jobs in each row.
    """
    rows = list(reached)
    return tuple(_pace(rows, days, began, now) for days in WINDOWS)


def _pace(reached: Sequence[Sequence[Any]], days: int, began: date | None, now: datetime) -> Pace:
    today = now.date()
    seen = min(days, (today - began).days) if began else days
    elapsed = max(1.0, seen + (now.hour * 60 + now.minute) / 1440)
    moved = Counter[str]()
    for on, name, jobs in reached:
        moved[name] += int(jobs) if today - timedelta(days=days) <= on <= today else 0
    migrated, finished = moved["migrated"], moved["finished"]
    return Pace(
        days,
        round(elapsed, 2),
        migrated,
        finished,
        moved["reverted"],
        round(migrated / elapsed, 2),
        round(finished / elapsed, 2),
    )


def forecast(waiting: Sequence[WaitingJobs], pace: Sequence[Pace], left_out: int, now: datetime) -> Forecast:
    """Return when the running jobs are completed at the same pace, without jobs being reverted.

    The pace has the longest window last; paused jobs are left out.
    """
    today = now.date()
    forward = [group for group in waiting if not group.is_reverting]
    ahead = [group for group in forward if PHASES[group.state] in TO_DO]
    probation = [group for group in forward if PHASES[group.state] is Phase.PROBATION]
    to_migrate = sum(group.jobs for group in ahead)
    to_finish = to_migrate + sum(group.jobs for group in probation)

    migrated = _migrated(ahead, to_migrate, pace, today)
    completed = _completed(ahead, probation, migrated, pace, today) if to_finish else None
    return Forecast(
        to_migrate,
        to_finish,
        left_out,
        migrated,
        completed,
        _words(to_migrate, to_finish, migrated, completed, pace),
    )


def _migrated(ahead: Sequence[WaitingJobs], jobs: int, pace: Sequence[Pace], today: date) -> Span | None:
    if not jobs:
        return None
    span = _at_pace(jobs, pace, lambda window: window.migrated, today)
    return _not_before(max(_begins(group, today) for group in ahead), span)


def _completed(
    ahead: Sequence[WaitingJobs],
    probation: Sequence[WaitingJobs],
    migrated: Span | None,
    pace: Sequence[Pace],
    today: date,
) -> Span | None:
    """The last job is completed after its probation, and overdue archives only at the pace of archives."""
    ends = [_ends(group, today) for group in probation]
    span = Span(today, today, today)
    if overdue := sum(group.jobs for group, end in zip(probation, ends, strict=True) if end < today):
        archived = _at_pace(overdue, pace, lambda window: window.finished, today)
        if archived is None:
            return None
        span = archived
    if ahead:
        if migrated is None:
            return None
        longest = timedelta(days=max(group.probation_gap_days for group in ahead))
        span = Span(
            max(span.earliest, migrated.earliest + longest),
            max(span.expected, migrated.expected + longest),
            max(span.latest, migrated.latest + longest) if span.latest and migrated.latest else None,
        )
    return _not_before(max(ends, default=today), span)


def _begins(group: WaitingJobs, today: date) -> date:
    """The first day on which jobs can be migrated."""
    if PHASES[group.state] is Phase.MIGRATING:
        return today
    return max(today, group.migration_begins or today + timedelta(days=group.initial_gap_days))


def _ends(group: WaitingJobs, today: date) -> date:
    """The day on which the jobs' probation is over."""
    return group.probation_ends or today + timedelta(days=group.probation_gap_days)


def _at_pace(jobs: int, pace: Sequence[Pace], moved: Callable[[Pace], int], today: date) -> Span | None:
    """Compute with the pace of each window, plus or minus the square root by which a count varies."""
    counts = [(moved(window), window.elapsed) for window in pace]
    expected = _day_of(jobs, counts[-1][0] / counts[-1][1], today)
    earliest = _day_of(jobs, max((count + sqrt(count)) / days for count, days in counts), today)
    latest = _day_of(jobs, min((count - sqrt(count)) / days for count, days in counts), today)
    return Span(earliest, expected, latest) if expected and earliest else None


def _day_of(jobs: int, per_day: float, today: date) -> date | None:
    return today + timedelta(days=ceil(jobs / per_day)) if per_day * HORIZON > jobs else None


def _not_before(first: date, span: Span | None) -> Span | None:
    if span is None:
        return None
    latest = None if span.latest is None else max(first, span.latest)
    return Span(max(first, span.earliest), max(first, span.expected), latest)


def _words(
    to_migrate: int, to_finish: int, migrated: Span | None, completed: Span | None, pace: Sequence[Pace]
) -> str:
    window = pace[-1].days
    if not to_finish:
        return "No table is left to complete, except paused ones and ones that are being reverted."
    if to_migrate and migrated is None:
        if pace[-1].migrated:
            return (
                f"No forecast: at the pace of the last {window} days, the migration of {tables(to_migrate)} "
                f"takes {_TOO_LONG}."
            )
        return (
            f"No forecast: no table was migrated in the last {window} days, and {tables(to_migrate)} remain."
        )
    sentences = []
    if migrated is not None:
        sentences.append(f"The last of {tables(to_migrate)} should be migrated {_when(migrated)}.")
    if completed is not None:
        whose = "all" if migrated is not None else tables(to_finish)
        sentences.append(f"With probation, {whose} should be completed {_when(completed)}.")
    elif pace[-1].finished:
        sentences.append(
            f"No forecast of the end: at the pace of the last {window} days, archiving the tables whose "
            f"probation is over takes {_TOO_LONG}."
        )
    else:
        sentences.append(
            f"No forecast of the end: probations are over, and none was archived in the last {window} days."
        )
    return " ".join(sentences)


def _when(span: Span) -> str:
    if span.earliest == span.latest:
        return f"on {day(span.expected)}"
    around = f"around {day(span.expected)}"
    if span.latest is None:
        return f"{around}, or much later, as the pace is small"
    return f"{around} ({day(span.earliest, span.expected)} to {day(span.latest, span.expected)})"
