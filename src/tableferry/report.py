"""Print text tables, and create the console that prints them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.table import Table

_MANY = 100


def grid(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table with bold headings; numbers are aligned right, and None is shown as a dash."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for position, name in enumerate(columns):
        numbers = _are_numbers([row[position] for row in rows])
        grid.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(_cell(value) for value in row))
    return grid


def table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a `grid` with a blank line above and below it."""
    console.print()
    if len(rows) < _MANY or not _print_plainly(console, columns, rows):
        console.print(grid(columns, rows))
    console.print()


def _print_plainly(console: Console, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
    """Print a table without rich's layout, which takes a millisecond per row.

    Return False, and print nothing, if a line is too long or has characters other than printable ASCII.
    """
    cells = [columns, *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > console.width or not all(
        cell.isascii() and cell.isprintable() for row in cells for cell in row
    ):
        return False
    numbers = [_are_numbers(column) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, numbers, strict=True)
        )
        for row in cells
    ]
    console.print(lines[0], style="bold")
    console.out("\n".join(lines[1:]), highlight=False)
    return True


def console() -> Console:
    """Return a console without markup and highlighting; outside a terminal its lines have 200 characters."""
    plain = partial(Console, markup=False, highlight=False, emoji=False, soft_wrap=True)
    terminal = plain()
    return terminal if terminal.is_terminal else plain(width=200)


def _are_numbers(column: Sequence[object]) -> bool:
    return all(value is None or isinstance(value, int) for value in column)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
