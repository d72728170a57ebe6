"""The figures in a terminal, once or live: stuck and paused tables first."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tableferry import report
from tableferry.amounts import size
from tableferry.fleet.jobs.pauses import NOTHING_TO_DO
from tableferry.fleet.reports import labels
from tableferry.fleet.reports.figure_types import (
    PHASES,
    Figures,
    OwnerCount,
    PausedTable,
    Phase,
    SchemaCount,
    WaveCount,
)

_LISTED = 8
_BAR = 60


def as_text(figures: Figures) -> RenderableType:
    """Return the figures for a console or a live view."""
    return Group(*_parts(figures))


def _parts(figures: Figures) -> Iterator[RenderableType]:
    yield Text(labels.headline(figures), style="bold")
    if not figures.total:
        return
    yield _bar(figures)
    yield from _stuck(figures)
    yield from _paused(figures)
    yield from _table(
        "States",
        ("State", "Meaning", "Tables", "Paused"),
        [
            (count.state.value, count.words, count.jobs, count.paused or None)
            for count in figures.states
            if count.jobs
        ],
    )
    yield from _table(
        "Owners",
        ("Owner", "To do", "On probation", "Completed", "Reverted", "Paused", "Tables"),
        [
            _counts(owner.owner or "no owner", owner)
            for owner in figures.owners[:_LISTED]
            if owner.owner is not None
        ],
    )
    if figures.waves:
        yield wave_table(figures.waves)
    if figures.schema_count > 1:
        yield from _table(
            "Schemas",
            ("Schema", "To do", "On probation", "Completed", "Reverted", "Paused", "Tables", "Size"),
            [
                (*_counts(each.schema, each), size(each.bytes))
                for each in figures.schemas[:_LISTED]
                if each.schema is not None
            ],
        )
    yield from _table("Due", ("", "Overdue", "Today", "In 7 days"), labels.due(figures.due))
    yield from _table(
        "Pace",
        ("", "Migrated", "A day", "Archived", "A day", "Reverted"),
        [
            (
                f"Last {pace.days} days",
                pace.migrated,
                labels.rate(pace.migrated_per_day),
                pace.finished,
                labels.rate(pace.finished_per_day),
                pace.reverted,
            )
            for pace in figures.pace
        ],
    )
    if figures.runs:
        yield from _table(
            "Last runs",
            ("Worker", "Last", "Changes", "Pauses"),
            [
                (run.worker, f"{labels.age(run.last, figures.at)} ago", run.changes, run.pauses)
                for run in figures.runs[:_LISTED]
            ],
        )
    yield Text(figures.forecast.words)
    yield from _next(figures)


def _bar(figures: Figures) -> Text:
    done = _BAR * figures.in_phase(Phase.COMPLETED) // figures.total
    probation = (
        _BAR * (figures.in_phase(Phase.COMPLETED) + figures.in_phase(Phase.PROBATION)) // figures.total
    )
    return Text.assemble(
        ("█" * done, "green"), ("▓" * (probation - done), "blue"), ("░" * (_BAR - probation), "dim")
    )


def _stuck(figures: Figures) -> Iterator[RenderableType]:
    if not figures.stuck:
        return
    shown = figures.stuck[:_LISTED]
    yield from _table(
        labels.stuck_headline(figures),
        ("Trouble", "Tables", "For", "Command"),
        [
            (
                labels.why(cause),
                cause.jobs,
                labels.age(cause.since, figures.at),
                labels.commands(cause),
            )
            for cause in figures.stuck_causes
        ],
        style="bold red",
    )
    yield from _table(
        "Stuck longest",
        ("Table", "State", "Trouble", "For", "Owner", "Command"),
        [
            (
                stuck.table,
                stuck.state.value,
                labels.why(stuck),
                labels.age(stuck.since, figures.at),
                labels.people(stuck.owners),
                stuck.command,
            )
            for stuck in shown
        ],
    )
    yield from _more(figures.stuck_total - len(shown))


def _paused(figures: Figures) -> Iterator[RenderableType]:
    if figures.pauses:
        yield from _table(
            f"{figures.paused:,} paused",
            ("Reason", "Tables", "Remedy"),
            [(pause.reason, pause.jobs, pause.remedy) for pause in figures.pauses],
        )


def wave_table(waves: Sequence[WaveCount]) -> RenderableType:
    """Return the waves as a table, with their counts and limits."""
    columns = (
        "Wave",
        "Status",
        "To do",
        "On probation",
        "Completed",
        "Reverted",
        "Paused",
        "Tables",
        "Moved",
    )
    rows = [
        (
            *(each.wave.name, labels.wave_status(each.wave)),
            *_counts("", each)[1:],
            labels.moved(each),
        )
        for each in waves
    ]
    limits = [Text(f"{each.wave.name}: {labels.limits(each.wave)}", style="dim") for each in waves]
    return Group(*_table("Waves", columns, rows), *limits)


def _counts(name: str, counts: OwnerCount | SchemaCount | WaveCount) -> tuple[object, ...]:
    return (
        name,
        counts.to_do,
        counts.probation,
        counts.completed,
        counts.reverted,
        counts.paused,
        counts.jobs,
    )


def _next(figures: Figures) -> Iterator[RenderableType]:
    """Yield the next commands."""
    commands = list(dict.fromkeys(stuck.command for stuck in figures.stuck))
    commands += [paused.command for paused in figures.paused_jobs if _can_resume(paused)][:1]
    if figures.due.migrations_overdue + figures.due.migrations_today:
        commands.append("tableferry fleet migrate")
    if figures.due.archives_overdue + figures.due.archives_today:
        # The first ends the probation, the second archives the Hive table.
        commands += ["tableferry fleet preprocess", "tableferry fleet migrate"]
    if any(count.jobs > count.paused for count in figures.states if PHASES[count.state] is Phase.NEW):
        commands.append("tableferry fleet preprocess")
    if figures.due.notifications:
        commands.append("tableferry fleet communicate")
    if commands:
        yield Text()
        yield Text("Next:", style="bold")
        yield from (Text(f"  {command}") for command in dict.fromkeys(commands))


def _can_resume(paused: PausedTable) -> bool:
    """Return whether a paused job has a remedy: a view stays paused."""
    return paused.reason.partition(":")[0] not in NOTHING_TO_DO


def _table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], style: str = "bold"
) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, style=style)
    yield report.grid(columns, rows)


def _more(count: int) -> Iterator[RenderableType]:
    if count > 0:
        yield Text(f"and {count:,} more: --output json or --html FILE lists them")


def watch(
    read: Callable[[], Figures],
    console: Console,
    *,
    seconds: float,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Show the figures again after each interval, until the user presses Ctrl-C.

    Args:
        read: Reads the figures.
        console: The console.
        seconds: The interval.
        wait: Waits for a number of seconds.
    """
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                figures = read()
                footer = f"{labels.moment(figures.at)}, every {seconds:g} seconds; Ctrl-C ends it"
                live.update(Group(as_text(figures), Text(), Text(footer, style="dim")), refresh=True)
                wait(seconds)
    except KeyboardInterrupt:
        return
