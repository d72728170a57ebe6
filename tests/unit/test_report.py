"""Long and short text tables have the same format."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tableferry import report


def printed(monkeypatch: pytest.MonkeyPatch, many: int, rows: list[tuple[object, ...]], width: int) -> str:
    text = io.StringIO()
    monkeypatch.setattr(report, "_MANY", many)
    report.table(Console(file=text, width=width), ("table", "rows", "description"), rows)
    return text.getvalue()


@pytest.mark.parametrize("width", [30, 200])
@pytest.mark.parametrize("name", ["sales.orders", "übersicht", "大きさ", "two\nlines"])
def test_long_table_looks_as_a_short_one(monkeypatch: pytest.MonkeyPatch, name: str, width: int) -> None:
    rows: list[tuple[object, ...]] = [("sales.lines", 1_234_567, None), (name, None, "a source of orders")]
    assert printed(monkeypatch, 0, rows, width) == printed(monkeypatch, 1000, rows, width)
