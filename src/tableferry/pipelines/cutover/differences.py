"""The differences between a legacy table and its target that readers notice, as findings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tableferry.errors import Finding
from tableferry.pipelines.cutover.facts import Column, Entry

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_WIDER: dict[str, frozenset[str]] = {
    "tinyint": frozenset({"smallint", "int", "bigint", "double"}),
    "smallint": frozenset({"int", "bigint", "double"}),
    "int": frozenset({"bigint", "double"}),
    "float": frozenset({"double"}),
    "date": frozenset({"timestamp_ntz"}),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


def find_differences(legacy: Entry, target: Entry) -> Iterator[Finding]:
    """Yield a finding for each kind of difference between the columns and rules of two tables.

    The order of the columns and the comments don't differ for readers: the view has those of the legacy
    table.
    """
    known = {column.name.lower(): column for column in legacy.columns}
    actual = {column.name.lower(): column for column in target.columns}
    both = [(column, actual[key]) for key, column in known.items() if key in actual]
    table, new = legacy.name, target.name
    if lost := [column.name for key, column in known.items() if key not in actual]:
        yield Finding("READERS_LOSE_COLUMNS", table=table, target=new, columns=lost)
    if more := [column.name for key, column in actual.items() if key not in known]:
        yield Finding("READERS_SEE_MORE_COLUMNS", table=table, target=new, columns=more)
    changed = [(before, now) for before, now in both if before.type != now.type]
    wider = [pair for pair in changed if is_wider(pair[0].type, pair[1].type)]
    if wider:
        yield Finding("READERS_SEE_WIDER_TYPES", table=table, target=new, columns=_describe_types(wider))
    if others := [pair for pair in changed if pair not in wider]:
        yield Finding("READERS_SEE_OTHER_TYPES", table=table, target=new, columns=_describe_types(others))
    if nullable := [now.name for before, now in both if now.is_nullable and not before.is_nullable]:
        yield Finding("READERS_SEE_NULLABLE_COLUMNS", table=table, target=new, columns=nullable)
    if plain := [now.name for before, now in both if before.generated and before.generated != now.generated]:
        yield Finding("READERS_SEE_GENERATED_COLUMNS_AS_PLAIN", table=table, target=new, columns=plain)
    if missing := [rule for rule in legacy.constraints if rule not in target.constraints]:
        yield Finding("READERS_LOSE_CONSTRAINTS", table=table, target=new, constraints=missing)
    if legacy.partition_columns and legacy.partition_columns != target.partition_columns:
        before, after = (_describe_layout(table) for table in (legacy, target))
        yield Finding("READERS_LOSE_LAYOUT", table=table, target=new, before=before, after=after)


def is_wider(before: str, now: str) -> bool:
    """Return whether a type contains every value of another one, so that readers get the same values."""
    if now in _WIDER.get(before, ()):
        return True
    after = _DECIMAL.fullmatch(now)
    if after is None:
        return False
    digits, scale = int(after[1]), int(after[2])
    if before in _INTEGERS:
        return digits - scale >= _DIGITS[before]
    if decimal := _DECIMAL.fullmatch(before):
        return scale >= int(decimal[2]) and digits - scale >= int(decimal[1]) - int(decimal[2])
    return False


def _describe_types(pairs: Sequence[tuple[Column, Column]]) -> list[str]:
    return [f"{before.name} ({before.type}, now {now.type})" for before, now in pairs]


def _describe_layout(table: Entry) -> str:
    return ", ".join(table.partition_columns) or "no column"
