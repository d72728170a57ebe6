"""Turns what a command found into text for people or JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from tableferry.tables import TableName


def as_json(value: object) -> str:
    """Write a value as indented JSON: dataclasses by their fields, table names and times as text."""
    return json.dumps(_plain(value), indent=2, ensure_ascii=False)


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


def _plain(value: object) -> Any:
    match value:
        case TableName():
            return str(value)
        case datetime() | date():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | bool() | int() | float() | None:
            return value
        case Sequence() | set() | frozenset():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _:
            return str(value)
