"""The figures as they change, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tableferry.fleet.reports import labels
from tableferry.fleet.reports.figures import Figures
from tableferry.fleet.reports.terminal import as_text


def watch(
    read: Callable[[], Figures],
    console: Console,
    *,
    seconds: float,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Show the figures anew every so often, and return when the user presses Ctrl-C.

    Args:
        read: Reads the figures.
        console: Where to.
        seconds: How long to wait between two readings.
        wait: Waits for so many seconds.
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
