"""The two charts of the page, as paths on a canvas of 1000 by 1000 and places in percent.

The canvas is stretched, so the words beside it are HTML, which keeps its size on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import floor, log10

from tableferry.fleet.reports import labels
from tableferry.fleet.reports.figure_types import PHASE_WORDS, Day, Figures, Phase

_SIZE = 1000.0

# From the bottom up: completed tables first.
STACK = (
    Phase.COMPLETED,
    Phase.PROBATION,
    Phase.MIGRATING,
    Phase.READY,
    Phase.NEW,
    Phase.GOING_BACK,
    Phase.REVERTED,
)

_Point = tuple[float, float]


@dataclass(frozen=True)
class Tick:
    """A mark on an axis.

    Attributes:
        at: Its place in percent, from the left or the top.
        minor: Whether it is left out on a small screen.
    """

    at: float
    text: str
    minor: bool = False


@dataclass(frozen=True)
class Shape:
    """A line or an area.

    Attributes:
        key: Its class, for its colour.
        path: Its outline, as SVG writes it.
        jobs: Its value today.
        label: The place of its name in percent from the top; None if the shape is too thin for one.
    """

    key: str
    name: str
    path: str
    jobs: int
    label: float | None = None


@dataclass(frozen=True)
class Chart:
    """A chart, with the marks of its days across and of its numbers up.

    Attributes:
        shapes: The lines or areas, the topmost first.
        now: Where today is, in percent from the left.
        summary: The same in words.
    """

    shapes: tuple[Shape, ...]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    now: float
    summary: str


def over_time(figures: Figures) -> Chart | None:
    """Stack the phases day by day; None without a day."""
    days = figures.days
    if not days:
        return None
    first, last = _range(days)
    top = _top(max(sum(_counts(day).values()) for day in days))
    floors = [0] * len(days)
    shapes = []
    for phase in STACK:
        counts = [_counts(day)[phase] for day in days]
        if not any(counts):
            continue
        ceilings = [low + count for low, count in zip(floors, counts, strict=True)]
        upper = _points(days, ceilings, first, last, top)
        lower = _points(days, floors, first, last, top)
        middle = 100 - 50 * (floors[-1] + ceilings[-1]) / top
        wide = counts[-1] / top > 0.07
        shapes.append(
            Shape(
                phase.value,
                PHASE_WORDS[phase],
                _path([*upper, *reversed(lower)]) + "Z",
                counts[-1],
                round(middle, 2) if wide else None,
            )
        )
        floors = ceilings
    ordered = tuple(reversed(shapes))
    listed = ", ".join(f"{shape.name.lower()} {shape.jobs:,}" for shape in ordered)
    summary = (
        f"From {labels.day(first)} to {labels.day(figures.at.date())}, when the tables stood so: {listed}."
    )
    return Chart(ordered, _days_marked(first, last), _numbers_marked(top), 100.0, summary)


def burn_down(figures: Figures) -> Chart | None:
    """Draw the tables that aren't switched and aren't completed yet, and the forecast; None without a day."""
    days = figures.days
    if not days:
        return None
    today = figures.at.date()
    first, last = _range(days)
    completed = figures.forecast.completed
    if completed is not None:
        farthest = max(today + timedelta(days=28), today + 2 * (today - first))
        last = max(last, min(completed.latest or completed.expected, farthest))
    open_, to_do = [_open(day) for day in days], [day.to_do for day in days]
    top = _top(max(open_))
    shapes = [
        Shape("open", "Not completed yet", _path(_points(days, open_, first, last, top)), open_[-1]),
        Shape("to-do", "Not migrated yet", _path(_points(days, to_do, first, last, top)), to_do[-1]),
    ]
    if completed is not None:
        start = (_x(today, first, last), _y(open_[-1], top))
        left = _y(open_[-1] - figures.forecast.to_finish, top)
        ends = [_x(day, first, last) for day in (completed.earliest, completed.latest or completed.expected)]
        shapes.append(Shape("range", "Forecast, range", _path([start, *((x, left) for x in ends)]) + "Z", 0))
        expected = (_x(completed.expected, first, last), left)
        shapes.append(Shape("forecast", "Forecast", _path([start, expected]), 0))
    summary = (
        f"From {labels.day(first)} to {labels.day(today)}: {labels.tables(open_[0])} not completed at first, "
        f"{open_[-1]:,} now, {to_do[-1]:,} of them not migrated. {figures.forecast.words}"
    )
    now = _x(today, first, last) / 10
    return Chart(tuple(shapes), _days_marked(first, last), _numbers_marked(top), round(now, 2), summary)


def _open(day: Day) -> int:
    return day.to_do + day.probation + day.going_back


def _counts(day: Day) -> dict[Phase, int]:
    return {phase: getattr(day, phase.value) for phase in Phase}


def _range(days: Sequence[Day]) -> tuple[date, date]:
    """Return the first and the last day; a single day is drawn as wide as two."""
    return days[0].day, max(days[-1].day, days[0].day + timedelta(days=1))


def _x(day: date, first: date, last: date) -> float:
    return _SIZE * (day - first).days / (last - first).days


def _y(count: float, top: int) -> float:
    return _SIZE * (1 - count / top)


def _points(days: Sequence[Day], counts: Iterable[int], first: date, last: date, top: int) -> list[_Point]:
    points = [(_x(day.day, first, last), _y(count, top)) for day, count in zip(days, counts, strict=True)]
    return points if len(points) > 1 else [points[0], (_SIZE, points[0][1])]


def _path(points: Iterable[_Point]) -> str:
    return "M" + "L".join(f"{x:.0f} {y:.1f}".removesuffix(".0") for x, y in points)


def _step(top: int) -> int:
    """Return the distance of marks: 1, 2 or 5 times a power of ten, with at most five marks up to the top."""
    power = int(10 ** max(0, floor(log10(top / 5))))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit * 5 >= top)


def _top(most: int) -> int:
    """Return the end of the axis: the first mark that no value exceeds."""
    most = max(most, 1)
    step = _step(most)
    return -(-most // step) * step


def _numbers_marked(top: int) -> tuple[Tick, ...]:
    step = _step(top)
    return tuple(Tick(round(100 * (1 - count / top), 2), f"{count:,}") for count in range(0, top + 1, step))


def _days_marked(first: date, last: date) -> tuple[Tick, ...]:
    """Mark up to five days, evenly; the first mark of a year has the year."""
    length = (last - first).days
    pieces = min(4, length)
    if pieces == 3:
        pieces = 2 if length % 2 == 0 else 1
    ticks = []
    year = 0
    for piece in range(pieces + 1):
        day = first + timedelta(days=round(length * piece / pieces))
        text = f"{day.day} {day:%b}" + ("" if day.year == year else f" {day.year}")
        year = day.year
        at = 100 * (day - first).days / length
        ticks.append(Tick(round(at, 2), text, minor=pieces == 4 and piece % 2 == 1))
    return tuple(ticks)
