"""Tables of text for people, and the console that prints them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.table import Table


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Make a table of rows under bold headings; numbers stand right, None is a dash."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, name in enumerate(columns):
        numbers = all(row[position] is None or isinstance(row[position], int) for row in rows)
        grid.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_cell(value) for value in row))
    return grid


def table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a `grid`, one blank line above and below."""
    console.print()
    console.print(grid(columns, rows))
    console.print()


def console() -> Console:
    """Return a console that prints words as they are; a pipe gets long lines, not folded ones."""
    plain = partial(Console, markup=False, highlight=False, emoji=False, soft_wrap=True)
    terminal = plain()
    return terminal if terminal.is_terminal else plain(width=200)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
