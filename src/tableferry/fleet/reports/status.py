"""Read the figures from a queue: run the selects, and put their rows together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from tableferry.fleet.commands import command
from tableferry.fleet.jobs.job import Job, State, TargetFormat, Trouble
from tableferry.fleet.jobs.next_action import next_action
from tableferry.fleet.jobs.pauses import remedy_of, resume_command
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.queue.selections import numbered
from tableferry.fleet.queue.store import Store
from tableferry.fleet.reports import figure_queries
from tableferry.fleet.reports.figure_types import (
    AGES,
    PHASES,
    STATE_WORDS,
    AgeCount,
    Day,
    Due,
    Figures,
    FormatCount,
    OwnerCount,
    PauseCount,
    PausedTable,
    Phase,
    Run,
    SchemaCount,
    StateCount,
    Stuck,
    StuckCount,
    WaitingJobs,
    WaveCount,
)
from tableferry.fleet.reports.forecast import MILESTONES, WINDOWS, forecast, paces
from tableferry.fleet.reports.stuck_jobs import Rule, paused_jobs, rules, stuck_jobs
from tableferry.fleet.settings import STUCK_HOURS
from tableferry.spark.tables import TableName

DEFAULT_REST = timedelta(hours=STUCK_HOURS)

LISTED = 100
"""How many stuck and how many paused jobs are listed by name."""

TOP = 15
"""How many owners, and how many schemas, have a separate row."""

LATEST_RUNS = 20
"""How many workers that made changes recently are listed."""

RECENT = timedelta(days=7)
"""How far back runs are listed."""

LONGEST = 366
"""How many days the series goes back at most."""

Row = TypeVar("Row", OwnerCount, SchemaCount)


class _StuckJob(NamedTuple):
    """A row of `stuck_jobs`, with its rule."""

    rule: Rule
    task_id: int
    since: datetime
    level: int | None

    def words(self, claimed_by: str | None) -> str:
        """Return the trouble for people."""
        return self.rule.words.format(claimed_by=claimed_by, level=self.level)


def read_status(store: Store, now: datetime, *, rest: timedelta = DEFAULT_REST) -> Figures:
    """Return the figures of a fleet.

    Args:
        store: The queue.
        now: The time.
        rest: How long a job may stay where a run should continue it before it counts as stuck.
    """
    today = now.date()
    states = _states(store.rows(figure_queries.states()))
    total = sum(count.jobs for count in states)
    paused = sum(count.paused for count in states)
    owners = [
        OwnerCount(owner or "", *map(int, counts)) for owner, *counts in store.rows(figure_queries.owners())
    ]
    schemas = [
        SchemaCount(str(TableName((catalog, schema))), *map(int, counts))
        for catalog, schema, *counts in store.rows(figure_queries.schemas())
    ]
    waves = read_waves(store)
    waves_by_name = {count.wave.name: count.wave for count in waves}
    waiting = [
        WaitingJobs(State(state), State(desired), wave, int(gap), int(probation), notified, int(jobs))
        for state, desired, wave, gap, probation, notified, jobs in store.rows(figure_queries.waiting())
    ]
    changes = [
        (day, Phase(phase), int(jobs))
        for day, phase, jobs in store.rows(figure_queries.changes({phase: phase.value for phase in Phase}))
    ]
    reached = store.rows(figure_queries.milestones(MILESTONES, today - timedelta(days=max(WINDOWS))))
    pace = paces(reached, min((day for day, _, _ in changes), default=None), now)
    stuck = _read_stuck(store, now, rest)
    paused_since = {int(task_id): since for task_id, since in store.rows(paused_jobs(LISTED))}
    shown = [job for jobs in stuck for job in jobs[:LISTED]]
    named = {job.task_id for job in shown} | paused_since.keys()
    jobs = {job.task_id: job for job in store.jobs(numbered(sorted(named)))} if named else {}
    listed_stuck = _listed_stuck(shown, jobs, waves_by_name)
    return Figures(
        at=now,
        total=total,
        archived=int(store.rows(figure_queries.archived())[0][0]),
        paused=paused,
        states=states,
        ages=_ages(store.rows(figure_queries.ages(today))),
        owners=_top(owners),
        owner_count=sum(count.owner != "" for count in owners),
        schemas=_top(schemas),
        schema_count=len(schemas),
        waves=waves,
        pauses=_pauses(store.rows(figure_queries.pauses())),
        formats=_formats(store.rows(figure_queries.formats())),
        stuck=listed_stuck[:LISTED],
        stuck_causes=_stuck_causes(stuck, {job.task_id: job.command for job in listed_stuck}),
        stuck_total=sum(map(len, stuck)),
        paused_jobs=_listed_paused(paused_since, jobs),
        runs=_runs(store.rows(figure_queries.runs(now - RECENT))),
        due=_due(waiting, waves_by_name.values(), today),
        pace=pace,
        forecast=forecast(waiting, pace, paused, now),
        days=_days(states, changes, today) if total else (),
    )


def read_waves(store: Store) -> tuple[WaveCount, ...]:
    """Return the counts of each wave."""
    counted = {wave: tuple(map(int, counts)) for wave, *counts in store.rows(figure_queries.waves())}
    none = (0,) * len(figure_queries.columns_of(WaveCount))
    return tuple(WaveCount(wave, *counted.get(wave.name, none)) for wave in store.waves())


def _states(rows: Iterable[Sequence[Any]]) -> tuple[StateCount, ...]:
    counted = {State(state): (int(jobs), int(paused)) for state, jobs, paused in rows}
    return tuple(StateCount(state, STATE_WORDS[state], *counted.get(state, (0, 0))) for state in PHASES)


def _formats(rows: Iterable[Sequence[Any]]) -> tuple[FormatCount, ...]:
    counted = {TargetFormat(form): (int(jobs), int(completed)) for form, jobs, completed in rows}
    return tuple(FormatCount(form, *counted.get(form, (0, 0))) for form in TargetFormat)


def _ages(rows: Iterable[Sequence[Any]]) -> tuple[AgeCount, ...]:
    by_phase: defaultdict[Phase, list[Sequence[Any]]] = defaultdict(list)
    for state, *counts in rows:
        by_phase[PHASES[State(state)]].append(counts)
    none = [0] * (len(AGES) + 1)
    return tuple(
        AgeCount(phase, *(int(sum(counts)) for counts in zip(none, *by_phase[phase], strict=True)))
        for phase in Phase
    )


def _pauses(rows: Iterable[Sequence[Any]]) -> tuple[PauseCount, ...]:
    counts = (PauseCount(reason, int(jobs), remedy_of(reason)) for reason, jobs in rows)
    return tuple(sorted(counts, key=lambda count: (-count.jobs, count.reason)))


def _runs(rows: Iterable[Sequence[Any]]) -> tuple[Run, ...]:
    made = (Run(worker, last, int(changes), int(pauses)) for worker, last, changes, pauses in rows)
    return tuple(sorted(made, key=lambda run: (run.last, run.worker), reverse=True)[:LATEST_RUNS])


def _top(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Return the rows with most jobs to complete, then those with most jobs; the others are one row."""

    def rank(row: Row) -> tuple[int, int, str]:
        [name, *_] = vars(row).values()
        return -(row.to_do + row.probation), -row.jobs, name

    ranked = sorted(rows, key=rank)
    top, rest = ranked[:TOP], ranked[TOP:]
    if rest:
        counts = zip(*(list(vars(row).values())[1:] for row in rest), strict=True)
        top.append(type(rest[0])(None, *map(sum, counts)))
    return tuple(top)


def _read_stuck(store: Store, now: datetime, rest: timedelta) -> list[list[_StuckJob]]:
    """Return the stuck jobs of each rule, the longest first."""

    def ago(passed: timedelta) -> datetime:
        return now - passed

    by_rule = rules(ago, rest)
    stuck: list[list[_StuckJob]] = [[] for _ in by_rule]
    for task_id, rule, since, _, level in store.rows(stuck_jobs(ago, rest)):
        stuck[rule].append(_StuckJob(by_rule[rule], int(task_id), since, level))
    return [sorted(jobs, key=lambda job: (job.since, job.task_id)) for jobs in stuck]


def _listed_stuck(
    stuck: Iterable[_StuckJob], jobs: Mapping[int, Job], waves: Mapping[str, Wave]
) -> tuple[Stuck, ...]:
    """Describe stuck jobs, the longest first; one that has left the queue since is left out."""
    listed = (
        Stuck(
            job.task_id,
            job.name,
            each.rule.trouble,
            each.words(job.claimed_by),
            job.state,
            each.since,
            job.tbl_owners,
            _command_after(each.rule.trouble, job, waves),
        )
        for each in stuck
        if (job := jobs.get(each.task_id)) is not None
    )
    return tuple(sorted(listed, key=lambda each: (each.since, each.task_id)))


def _listed_paused(paused: Mapping[int, datetime], jobs: Mapping[int, Job]) -> tuple[PausedTable, ...]:
    """Describe paused jobs; one that has left the queue since is left out."""
    return tuple(
        PausedTable(number, job.name, job.pause_reason, job.state, since, job.tbl_owners, resume_command(job))
        for number, since in paused.items()
        if (job := jobs.get(number)) is not None
    )


def _stuck_causes(
    stuck: Iterable[Sequence[_StuckJob]], commands: Mapping[int, str]
) -> tuple[StuckCount, ...]:
    """Group stuck jobs by their trouble; the commands are those of listed jobs."""
    causes: dict[tuple[Trouble, str], list[_StuckJob]] = {}
    for job in (job for by_rule in stuck for job in by_rule):
        causes.setdefault((job.rule.trouble, job.words("…")), []).append(job)
    counts = []
    for (trouble, words), alike in causes.items():
        to_run = Counter(commands[job.task_id] for job in alike if job.task_id in commands)
        since = min(job.since for job in alike)
        counts.append(
            StuckCount(trouble, words, len(alike), since, tuple(each for each, _ in to_run.most_common()))
        )
    return tuple(sorted(counts, key=lambda count: (-count.jobs, count.words)))


def _command_after(trouble: Trouble, job: Job, waves: Mapping[str, Wave]) -> str:
    """Return the command that resolves a trouble."""
    match trouble:
        case Trouble.CLAIM_LAPSED:
            return _command_that_claims(job, waves)
        case Trouble.NOTIFICATION_NOT_SENT:
            return command("communicate")
        case Trouble.SHADOW_DELAYED:
            return command("shadow")
        case Trouble.NOT_MOVING:
            return command("revert" if job.pair in BACK else "migrate")


def _command_that_claims(job: Job, waves: Mapping[str, Wave]) -> str:
    """Return the command that claims a job next, and so replaces a lapsed claim, or that allows the claim."""
    if job.migration_paused:
        return resume_command(job)
    on_probation = job.pair == (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED)
    if on_probation and job.probation_gap_days > 0 and (job.shadow_status or job.probation_ends):
        return command("shadow")
    action = next_action(job, waves)
    if action.wave:
        return command("wave start", action.wave)
    # Shadow searches late files of completed jobs too.
    return command(action.mode or ("shadow" if job.state is State.HIVE_DROPPED else "communicate"))


def _due(waiting: Sequence[WaitingJobs], waves: Iterable[Wave], today: date) -> Due:
    """Count due jobs; those of a wave that isn't running neither begin nor end their probation."""
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
    """Sum up the jobs that were due before today, are due today, and within a week."""
    late = now = week = 0
    for day, jobs in due:
        if day is None:
            continue
        late += jobs if day < today else 0
        now += jobs if day == today else 0
        week += jobs if today <= day < today + timedelta(days=7) else 0
    return late, now, week


def _days(
    states: Sequence[StateCount], changes: Sequence[tuple[date, Phase, int]], today: date
) -> tuple[Day, ...]:
    """Go back from today's counts day by day, and undo the changes of each."""
    by_day: defaultdict[date, Counter[Phase]] = defaultdict(Counter)
    for day, phase, jobs in changes:
        by_day[day][phase] += jobs
    counts = Counter[Phase]()
    for state in states:
        counts[PHASES[state.state]] += state.jobs
    first = max(min(*by_day, today), today - timedelta(days=LONGEST))
    series: list[Day] = []
    day = today
    while day >= first:
        # Rows that a person wrote into the queue have no events: no count is negative.
        series.append(Day(day, *(max(0, counts[phase]) for phase in Phase)))
        counts.subtract(by_day[day])
        day -= timedelta(days=1)
    return tuple(reversed(series))
