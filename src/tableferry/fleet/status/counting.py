"""Computes the figures from the queue's aggregates: pure, the same each time."""

from __future__ import annotations

from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job, State, TargetFormat, Trouble
from tableferry.fleet.jobs.next_action import next_action
from tableferry.fleet.jobs.pauses import remedy_of, resume_command
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.jobs.waves import WaveStatus
from tableferry.fleet.status.figures import (
    PHASES,
    STATE_WORDS,
    TO_DO,
    AgeCount,
    Day,
    Due,
    Figures,
    FormatCount,
    OwnerCount,
    PauseCount,
    PausedTable,
    Phase,
    SchemaCount,
    StateCount,
    Stuck,
    StuckCount,
    WaveCount,
)
from tableferry.fleet.status.forecast import forecast, paces

if TYPE_CHECKING:
    from tableferry.fleet.jobs.waves import Wave
    from tableferry.fleet.queue.aggregates import (
        Aggregates,
        CountByAge,
        CountByDayAdded,
        CountByMove,
        CountByOwners,
        CountBySchema,
        CountByWait,
        CountByWave,
        Group,
    )
    from tableferry.fleet.queue.stuck_jobs import StuckJob
    from tableferry.fleet.reports import Run

T = TypeVar("T")

LISTED = 100
"""How many stuck and how many paused jobs are listed by name."""

TOP = 15
"""How many owners, and how many schemas, have a row of their own."""

LATEST_RUNS = 20
"""How many workers that did something lately are listed."""

LONGEST = 366
"""How many days the series goes back at most."""


# In days: where one group of ages ends and the next begins.
_AGES = (1, 7, 30, 90)


def figures(aggregates: Aggregates, now: datetime) -> Figures:
    """Compute how far the fleet is."""
    archived = sum(jobs for _, jobs in aggregates.archived)
    states = _states(aggregates.groups, archived)
    owners, owner_count = _owners(aggregates.by_owners)
    schemas, schema_count = _schemas(aggregates.by_schema)
    stuck = _stuck(aggregates)
    pace = paces(aggregates.moved, min((count.added for count in aggregates.by_day_added), default=None), now)
    paused = sum(group.jobs for group in aggregates.groups if group.paused)
    return Figures(
        at=now,
        total=sum(count.jobs for count in states),
        archived=archived,
        paused=paused,
        states=states,
        ages=_ages(aggregates.by_age, now.date()),
        owners=owners,
        owner_count=owner_count,
        schemas=schemas,
        schema_count=schema_count,
        waves=wave_counts(aggregates.waves, aggregates.by_wave),
        pauses=_pauses(aggregates.reasons),
        formats=_formats(aggregates.groups, aggregates.archived),
        stuck=tuple(stuck[:LISTED]),
        stuck_causes=_stuck_causes(aggregates.stuck, {job.task_id: job.command for job in stuck}),
        stuck_total=len({job.task_id for by_rule in aggregates.stuck for job in by_rule}),
        paused_jobs=tuple(_paused(aggregates)),
        runs=tuple(sorted(aggregates.runs, key=_recency, reverse=True)[:LATEST_RUNS]),
        due=_due(aggregates.waiting, aggregates.waves, now.date()),
        pace=pace,
        forecast=forecast(aggregates.waiting, pace, paused, now),
        days=_days(states, aggregates.by_day_added, aggregates.moved, now.date()),
    )


def _states(groups: Sequence[Group], archived: int) -> tuple[StateCount, ...]:
    jobs, paused = Counter[State](), Counter[State]()
    jobs[State.HIVE_DROPPED] = archived
    for group in groups:
        jobs[group.state] += group.jobs
        paused[group.state] += group.jobs if group.paused else 0
    return tuple(StateCount(state, STATE_WORDS[state], jobs[state], paused[state]) for state in PHASES)


def _ages(by_age: Sequence[CountByAge], today: date) -> tuple[AgeCount, ...]:
    ages: defaultdict[Phase, list[int]] = defaultdict(lambda: [0] * (len(_AGES) + 1))
    for group in by_age:
        ages[PHASES[group.state]][bisect(_AGES, (today - group.since).days)] += group.jobs
    return tuple(AgeCount(phase, *ages[phase]) for phase in Phase)


def _owners(by_owners: Sequence[CountByOwners]) -> tuple[tuple[OwnerCount, ...], int]:
    by_owner: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in by_owners:
        for owner in group.owners or ("",):
            _count(by_owner[owner], group)
    return _rows(OwnerCount, by_owner), len(by_owner.keys() - {""})


def _schemas(by_schema: Sequence[CountBySchema]) -> tuple[tuple[SchemaCount, ...], int]:
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in by_schema:
        _count(counts[group.schema], group)
        counts[group.schema]["bytes"] += group.bytes
    return _rows(SchemaCount, counts), len(counts)


def wave_counts(waves: Sequence[Wave], by_wave: Sequence[CountByWave]) -> tuple[WaveCount, ...]:
    """Return what each wave is at."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for group in by_wave:
        _count(counts[group.wave], group)
        counts[group.wave]["bytes"] += group.bytes
        if _column(group.state) in ("probation", "completed"):
            counts[group.wave]["bytes_moved"] += group.bytes
    return tuple(_row(WaveCount, wave, counts[wave.name]) for wave in waves)


def _count(counts: Counter[str], group: CountByOwners | CountBySchema | CountByWave) -> None:
    counts["jobs"] += group.jobs
    counts[_column(group.state)] += group.jobs
    counts["paused"] += group.jobs if group.paused else 0


def _row(row: type[T], first: object, counts: Mapping[str, int]) -> T:
    """Return a row of counts: behind its first field, each by its name."""
    values = (counts[field.name] for field in fields(row)[1:])  # type: ignore[arg-type]
    return row(first, *values)  # type: ignore[call-arg]


def _rows(row: type[T], by_name: Mapping[str, Counter[str]]) -> tuple[T, ...]:
    """Give those that have most to do a row, then those that have most, and the others one together."""

    def left(name: str) -> tuple[int, int, str]:
        counts = by_name[name]
        return -(counts["to_do"] + counts["probation"]), -counts["jobs"], name

    ranked = sorted(by_name, key=left)
    rows = [_row(row, name, by_name[name]) for name in ranked[:TOP]]
    if rest := ranked[TOP:]:
        together = Counter[str]()
        for name in rest:
            together.update(by_name[name])
        rows.append(_row(row, None, together))
    return tuple(rows)


def _column(state: State) -> str:
    match PHASES[state]:
        case phase if phase in TO_DO:
            return "to_do"
        case Phase.GOING_BACK | Phase.REVERTED:
            return "reverted"
        case phase:
            return phase.value


def _pauses(reasons: Iterable[tuple[str, int]]) -> tuple[PauseCount, ...]:
    counts = (PauseCount(reason, jobs, remedy_of(reason)) for reason, jobs in reasons)
    return tuple(sorted(counts, key=lambda count: (-count.jobs, count.reason)))


def _formats(
    groups: Sequence[Group], archived: Sequence[tuple[TargetFormat, int]]
) -> tuple[FormatCount, ...]:
    jobs, completed = Counter[TargetFormat](), Counter[TargetFormat]()
    for form, count in archived:
        jobs[form] += count
        completed[form] += count
    for group in groups:
        jobs[group.target_format] += group.jobs
        completed[group.target_format] += group.jobs if group.state is State.HIVE_DROPPED else 0
    return tuple(FormatCount(form, jobs[form], completed[form]) for form in TargetFormat)


def _stuck(aggregates: Aggregates) -> list[Stuck]:
    """The jobs that are listed, each by the first rule that applies to it."""
    waves = {wave.name: wave for wave in aggregates.waves}
    listed: dict[int, Stuck] = {}
    for stuck_job in (stuck_job for by_rule in aggregates.stuck for stuck_job in by_rule):
        job = aggregates.listed.get(stuck_job.task_id)
        if job is not None and job.task_id not in listed:
            listed[job.task_id] = Stuck(
                job.task_id,
                job.name,
                stuck_job.trouble,
                stuck_job.words.format(claimed_by=job.claimed_by, level=stuck_job.level),
                job.state,
                stuck_job.since,
                job.tbl_owners,
                _command_after(stuck_job.trouble, job, waves),
            )
    return sorted(listed.values(), key=lambda stuck: (stuck.since, stuck.task_id))


def _stuck_causes(stuck: Iterable[Sequence[StuckJob]], commands: Mapping[int, str]) -> tuple[StuckCount, ...]:
    """Group stuck jobs by the first rule that applies to each; the commands are those of jobs by number."""
    causes: dict[tuple[Trouble, str], list[StuckJob]] = {}
    seen: set[int] = set()
    for job in (job for by_rule in stuck for job in by_rule):
        if job.task_id not in seen:
            seen.add(job.task_id)
            words = job.words.format(claimed_by="…", level=job.level)
            causes.setdefault((job.trouble, words), []).append(job)
    counts = (
        StuckCount(
            trouble,
            words,
            len(alike),
            min(job.since for job in alike),
            tuple(
                command
                for command, _ in Counter(
                    commands[job.task_id] for job in alike if job.task_id in commands
                ).most_common()
            ),
        )
        for (trouble, words), alike in causes.items()
    )
    return tuple(sorted(counts, key=lambda count: (-count.jobs, count.words)))


def _command_after(trouble: Trouble, job: Job, waves: Mapping[str, Wave]) -> str:
    """The command that puts a trouble right."""
    match trouble:
        case Trouble.CLAIM_LAPSED:
            return _command_that_takes(job, waves)
        case Trouble.NOTIFICATION_NOT_SENT:
            return command("communicate")
        case Trouble.SHADOW_BEHIND:
            return command("shadow")
        case Trouble.NOT_MOVING:
            return command("revert" if job.pair in BACK else "migrate")


def _command_that_takes(job: Job, waves: Mapping[str, Wave]) -> str:
    """The command that takes a job next, and with it a claim that has lapsed, or that lets it be taken."""
    if job.migration_paused:
        return resume_command(job)
    on_probation = job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    if on_probation and job.probation_gap_days > 0 and (job.shadow_status or job.probation_ends):
        return command("shadow")
    action = next_action(job, waves)
    if action.wave:
        return command("wave start", action.wave)
    # Late files of a completed job are still looked for.
    return command(action.mode or ("shadow" if job.state is State.HIVE_DROPPED else "communicate"))


def _paused(aggregates: Aggregates) -> Iterator[PausedTable]:
    for paused in aggregates.paused[:LISTED]:
        if (job := aggregates.listed.get(paused.task_id)) is not None:
            yield PausedTable(
                job.task_id,
                job.name,
                job.pause_reason,
                job.state,
                paused.since,
                job.tbl_owners,
                resume_command(job),
            )


def _recency(run: Run) -> tuple[datetime, str]:
    return run.last, run.worker


def _due(waiting: Sequence[CountByWait], waves: Iterable[Wave], today: date) -> Due:
    """Say what is due; a wave that isn't running lets none of its tables begin, and no probation end."""
    running = {None, *(wave.name for wave in waves if wave.status is WaveStatus.RUNNING)}
    in_turn = [group for group in waiting if group.wave in running]
    onward = [group for group in in_turn if not group.is_reverting]
    first = [group for group in onward if group.state is State.READY]
    migrations = [(group.migration_begins, group.jobs) for group in first]
    archives = [
        (group.probation_ends, group.jobs) for group in onward if group.state is State.WRITES_UNBLOCKED
    ]
    on_probation = (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    second = [group for group in waiting if (group.state, group.desired_state) == on_probation]
    notifications = sum(group.jobs for group in (*first, *second) if group.notified is None)
    return Due(*_by_day(migrations, today), *_by_day(archives, today), notifications)


def _by_day(due: Iterable[tuple[date | None, int]], today: date) -> tuple[int, int, int]:
    """Sum up what was due before today, what is today, and what is in this week."""
    late = now = week = 0
    for day, jobs in due:
        if day is None:
            continue
        late += jobs if day < today else 0
        now += jobs if day == today else 0
        week += jobs if today <= day < today + timedelta(days=7) else 0
    return late, now, week


def _days(
    states: Sequence[StateCount],
    by_day_added: Sequence[CountByDayAdded],
    moved: Sequence[CountByMove],
    today: date,
) -> tuple[Day, ...]:
    """Go back from what is now, day by day, undoing what happened on each."""
    changes: defaultdict[date, Counter[Phase]] = defaultdict(Counter)
    for move in moved:
        changes[move.day][PHASES[move.state]] += move.jobs
        changes[move.day][PHASES[move.was]] -= move.jobs
    for added in by_day_added:
        changes[added.added][Phase.NEW] += added.jobs
    if not by_day_added:
        return ()
    first = max(min(min(changes), today), today - timedelta(days=LONGEST))
    counts = Counter[Phase]()
    for state in states:
        counts[PHASES[state.state]] += state.jobs
    series: list[Day] = []
    day = today
    while day >= first:
        # What somebody wrote into the queue by hand has no events: never fewer than none.
        series.append(Day(day, *(max(0, counts[phase]) for phase in Phase)))
        counts.subtract(changes[day])
        day -= timedelta(days=1)
    return tuple(reversed(series))
