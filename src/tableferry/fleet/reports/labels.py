"""The words of the figures in the terminal and on the page."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from tableferry.amounts import counted, first_of, size
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.reports.figure_types import Due, Figures, Phase, Stuck, StuckCount, WaveCount


def tables(count: int) -> str:
    """Count tables."""
    return counted(count, "table")


def day(value: date, beside: date | None = None) -> str:
    """Write a day, without its year if it's written beside one of the same year."""
    alone = beside is None or beside.year != value.year
    return f"{value.day} {value:%B %Y}" if alone else f"{value.day} {value:%B}"


def moment(value: datetime) -> str:
    """Write a time of UTC."""
    return f"{day(value.date())}, {value:%H:%M} UTC"


def age(since: datetime, now: datetime) -> str:
    """Return how long ago a time is, in its largest unit."""
    passed = max(now - since, timedelta(0))
    if passed.days:
        return counted(passed.days, "day")
    hours, minutes = divmod(passed.seconds // 60, 60)
    return counted(hours, "hour") if hours else counted(minutes, "minute")


def people(owners: tuple[str, ...]) -> str:
    """Return a table's owners: one, and the number of others."""
    return first_of(owners, most=1) or "no owner"


def headline(figures: Figures) -> str:
    """Return how many tables are completed."""
    if not figures.total:
        return "There is no table in the queue yet: tableferry fleet add TABLE…"
    return (
        f"{figures.in_phase(Phase.COMPLETED):,} of {tables(figures.total)} are completed ({percent(figures)})"
    )


def percent(figures: Figures) -> str:
    """Return the share of completed tables; 100 only for all of them, and 0 only for none."""
    completed = figures.in_phase(Phase.COMPLETED)
    share = 100 * completed / figures.total if figures.total else 0.0
    if 0 < completed < figures.total:
        share = min(max(share, 0.1), 99.9)
    return f"{share:.0f} %" if share in (0, 100) else f"{share:.1f} %"


def rate(per_day: float) -> str:
    """Return a number per day, as exactly as it is known."""
    return f"{per_day:,.0f}" if per_day >= 100 else f"{per_day:,.1f}"


def stuck_headline(figures: Figures) -> str:
    """Return how many tables are stuck."""
    if not figures.stuck_total:
        return "No table is stuck"
    return f"{tables(figures.stuck_total)} {'is' if figures.stuck_total == 1 else 'are'} stuck"


def why(stuck: Stuck | StuckCount) -> str:
    """Return the trouble, with a capital."""
    return stuck.words[0].upper() + stuck.words[1:]


def commands(cause: StuckCount) -> str:
    """Return the commands that resolve one cause."""
    return first_of(cause.commands, most=3)


def wave_status(wave: Wave) -> str:
    """Return a wave's status and its reason."""
    return f"{wave.status}: {wave.reason}" if wave.reason else wave.status.value


def limits(wave: Wave) -> str:
    """Return the limits of a wave."""
    bounds = [
        f"{counted(wave.tables_at_once, 'table')} at once" if wave.tables_at_once is not None else "",
        f"from {wave.hours} ({wave.time_zone})" if wave.hours else "",
        f"paused when more than {wave.stop_percent} % fail",
    ]
    return ", ".join(filter(None, bounds))


def moved(wave: WaveCount) -> str:
    """Return how much of a wave's tables is moved, where their sizes are known."""
    return f"{size(wave.bytes_moved)} of {size(wave.bytes)}" if wave.bytes else "unknown"


def due(figures: Due) -> list[tuple[str, int, int, int]]:
    """Return due tables, as rows: the kind, overdue, today, within 7 days."""
    return [
        ("To migrate", figures.migrations_overdue, figures.migrations_today, figures.migrations_week),
        ("To archive", figures.archives_overdue, figures.archives_today, figures.archives_week),
    ]
