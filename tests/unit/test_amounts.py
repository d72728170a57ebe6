"""Format of counts and lists in messages."""

from __future__ import annotations

from tableferry.amounts import counted, first_of, joined


def test_counts_are_formatted() -> None:
    assert [counted(count, "table") for count in (0, 1, 1204)] == ["0 tables", "1 table", "1,204 tables"]
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def test_lists_are_formatted() -> None:
    assert [joined("abc"[:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert joined(["a", "b"], "or") == "a or b"
    assert first_of(["a", "b", "c"]) == "a, b, c"
    assert first_of([1, 2, 3], "more files", most=1) == "1 and 2 more files"
    assert first_of(["a"] * 1209).endswith("a, a and 1,204 more")
    assert first_of([]) == ""
