from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from tableferry.fleet.jobs.job import State
from tableferry.fleet.reports.figure_types import Forecast, Span, WaitingJobs
from tableferry.fleet.reports.forecast import forecast, paces

NOW = datetime(2026, 11, 22, 0, 0, tzinfo=UTC)
TODAY = NOW.date()
BEGAN = date(2026, 1, 1)


def waiting(
    jobs: int,
    state: State = State.READY,
    desired: State = State.WRITES_BLOCKED,
    *,
    told_days_ago: int | None = 30,
    gap: int = 14,
    switched: int | None = None,
    probation: int = 14,
) -> WaitingJobs:
    def ago(days: int | None) -> date | None:
        return None if days is None else TODAY - timedelta(days=days)

    notified = switched if state is State.WRITES_UNBLOCKED else told_days_ago
    return WaitingJobs(state, desired, None, gap, probation, ago(notified), jobs)


def on_probation(jobs: int, switched: int, probation: int = 14) -> WaitingJobs:
    return waiting(
        jobs, State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED, switched=switched, probation=probation
    )


Reached = list[tuple[date, str, int]]


def moved(migrated: int, finished: int, *, days: int = 28) -> Reached:
    """Return the numbers of jobs that reached a milestone on each of the last days."""
    return [
        (TODAY - timedelta(days=day), name, jobs)
        for day in range(1, days + 1)
        for name, jobs in (("migrated", migrated), ("finished", finished))
    ]


def seen(jobs: list[WaitingJobs], history: Reached, left_out: int = 0) -> Forecast:
    return forecast(jobs, paces(history, BEGAN, NOW), left_out, NOW)


def after(days: int) -> date:
    return TODAY + timedelta(days=days)


def test_forecast_continues_pace_of_last_weeks() -> None:
    result = seen([waiting(1000)], moved(100, 100))
    assert result.migrated is not None
    assert result.migrated.expected == after(10)
    assert result.migrated.earliest <= result.migrated.expected <= (result.migrated.latest or date.max)
    assert result.completed is not None
    assert result.completed.expected == after(10 + 14)


def test_forecast_is_after_gaps_of_each_job() -> None:
    result = seen([waiting(1, told_days_ago=4, gap=14, probation=30)], moved(1000, 1000))
    assert result.migrated == Span(after(10), after(10), after(10))
    assert result.completed == Span(after(40), after(40), after(40))


def test_job_without_notification_waits_its_whole_gap() -> None:
    result = seen(
        [waiting(1, State.UNDEFINED, State.UNDEFINED, told_days_ago=None, gap=21)], moved(1000, 1000)
    )
    assert result.migrated is not None
    assert result.migrated.earliest == after(21)


def test_forecast_of_probation_is_its_end() -> None:
    result = seen([on_probation(5, switched=4)], [])
    assert (result.to_migrate, result.to_finish, result.migrated) == (0, 5, None)
    assert result.completed == Span(after(10), after(10), after(10))
    assert result.words == "With probation, 5 tables should be completed on 2 December 2026."


def test_fleet_without_migrations_has_no_forecast() -> None:
    result = seen([waiting(3)], [])
    assert (result.migrated, result.completed) == (None, None)
    assert result.words == "No forecast: no table was migrated in the last 28 days, and 3 tables remain."


def test_fleet_without_archives_has_no_forecast_of_completion() -> None:
    result = seen([on_probation(5, switched=20)], moved(5, 0))
    assert result.completed is None
    assert "none was archived" in result.words


def test_forecast_after_ten_years_is_no_forecast() -> None:
    few = moved(1, 1, days=1)
    result = seen([waiting(4000)], few)
    assert (result.migrated, result.completed) == (None, None)
    assert result.words == (
        "No forecast: at the pace of the last 28 days, the migration of 4,000 tables takes more than ten "
        "years."
    )
    result = seen([on_probation(4000, switched=20)], few)
    assert result.completed is None
    assert result.words == (
        "No forecast of the end: at the pace of the last 28 days, archiving the tables whose probation is "
        "over takes more than ten years."
    )


def test_forecast_of_single_migration_has_no_latest_day() -> None:
    once = [(TODAY - timedelta(days=20), "migrated", 1)]
    result = seen([waiting(2)], once)
    assert result.migrated is not None
    assert result.migrated.latest is None
    assert "or much later" in result.words


def test_forecast_leaves_out_reverting_jobs() -> None:
    back = waiting(4, State.WRITES_BLOCKED, State.SYNC_HIVE)
    asked = waiting(4, State.WRITES_UNBLOCKED, State.WRITES_BLOCKED, switched=3)
    result = seen([back, asked], moved(1, 1), left_out=2)
    assert (result.to_finish, result.left_out) == (0, 2)
    assert (
        result.words == "No table is left to complete, except paused ones and ones that are being reverted."
    )


def test_pace_of_young_fleet_counts_its_days() -> None:
    week, month = paces(moved(10, 0, days=2), TODAY - timedelta(days=2), NOW)
    assert (week.elapsed, month.elapsed) == (2, 2)
    assert week.migrated_per_day == month.migrated_per_day == 10


def test_forecast_words_name_days() -> None:
    assert seen([waiting(1000)], moved(100, 100)).words == (
        "The last of 1,000 tables should be migrated around 2 December 2026 (2 December to 3 December). "
        "With probation, all should be completed around 16 December 2026 (16 December to 17 December)."
    )


@given(
    jobs=st.lists(
        st.one_of(
            st.builds(
                waiting,
                st.integers(1, 50_000),
                told_days_ago=st.one_of(st.none(), st.integers(0, 400)),
                gap=st.integers(0, 365),
                probation=st.integers(0, 365),
            ),
            st.builds(on_probation, st.integers(1, 50_000), st.integers(0, 400), st.integers(0, 365)),
        ),
        max_size=6,
    ),
    rates=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    days=st.integers(0, 28),
)
def test_forecast_is_ordered_and_after_every_gap(
    jobs: list[WaitingJobs], rates: tuple[int, int], days: int
) -> None:
    result = seen(jobs, moved(*rates, days=days))
    for span in (result.migrated, result.completed):
        if span is not None:
            assert TODAY <= span.earliest <= span.expected <= (span.latest or date.max)
    if result.completed is not None:
        ends = [
            (job.notified or TODAY) + timedelta(days=job.probation_gap_days)
            for job in jobs
            if job.state is State.WRITES_UNBLOCKED
        ]
        assert result.completed.earliest >= max(ends, default=TODAY)
        if result.migrated is not None:
            assert result.completed.earliest >= result.migrated.earliest
    assert result.words
