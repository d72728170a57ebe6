"""AUTO CDC in plain Python: the expected target after a set of events, in any order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Key = tuple[Hashable, ...]
Row = dict[str, Any]


@dataclass(frozen=True)
class Event:
    """One event in normal form.

    Attributes:
        key: The values of the key columns; empty for a truncate.
        sequence: The value that orders the events; None, the lowest, occurs only in SCD type 1 history.
        operation: upsert, delete or truncate.
        values: The other columns of an upsert; a missing column means None.
        exact: Whether the event was built from a copied row.
    """

    key: Key
    sequence: Any
    operation: Literal["upsert", "delete", "truncate"] = "upsert"
    values: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True)
class Interval:
    """One validity interval of a key."""

    key: Key
    values: Mapping[str, Any]
    start: Any
    end: Any


def scd1(events: Iterable[Event], columns: Sequence[str], *, ignore_nulls: bool = False) -> dict[Key, Row]:
    """Return the row of each key that the target contains."""
    events = list(events)
    truncates = [event.sequence for event in events if event.operation == "truncate"]
    result: dict[Key, Row] = {}
    for key, history in _order_events(events).items():
        row: Row | None = None
        for event in history:
            is_truncated = any(event.sequence is None or event.sequence <= at for at in truncates)
            row = (
                None
                if is_truncated or event.operation == "delete"
                else _apply_upsert(row, event, columns, ignore_nulls)
            )
        if row is not None:
            result[key] = row
    return result


def scd2(
    events: Iterable[Event],
    columns: Sequence[str],
    *,
    ignore_nulls: bool = False,
    tracked: Sequence[str] | None = None,
) -> list[Interval]:
    """Return the intervals of all keys, sorted by start within a key."""
    tracked = columns if tracked is None else tracked
    result = []
    for key, history in _order_events(events).items():
        row: Row | None = None
        start = None
        for event in history:
            if event.operation == "delete":
                if row is not None:
                    result.append(Interval(key, row, start, event.sequence))
                row = None
                continue
            new = _apply_upsert(row, event, columns, ignore_nulls)
            if row is None:
                start = event.sequence
            elif event.exact or any(row[name] != new[name] for name in tracked):
                result.append(Interval(key, row, start, event.sequence))
                start = event.sequence
            row = new
        if row is not None:
            result.append(Interval(key, row, start, None))
    return result


def _apply_upsert(row: Row | None, event: Event, columns: Sequence[str], ignore_nulls: bool) -> Row:
    new = {name: event.values.get(name) for name in columns}
    if row is not None and ignore_nulls and not event.exact:
        new = {name: row[name] if value is None else value for name, value in new.items()}
    return new


def _order_events(events: Iterable[Event]) -> dict[Key, list[Event]]:
    """Return each key's events in order, with only the highest rank per sequence."""
    best: dict[Key, dict[Any, Event]] = {}
    for event in events:
        if event.operation == "truncate":
            continue
        same_key = best.setdefault(event.key, {})
        rival = same_key.get(event.sequence)
        if rival is None or _rank(event) > _rank(rival):
            same_key[event.sequence] = event
        elif _rank(event) == _rank(rival) and event.operation == "upsert" and event.values != rival.values:
            raise ValueError(f"the oracle can't choose between {event} and {rival}")
    return {
        key: [by_sequence[at] for at in sorted(by_sequence, key=lambda at: (at is not None, at))]
        for key, by_sequence in best.items()
    }


def _rank(event: Event) -> int:
    if event.operation == "delete":
        return 0 if event.exact else 3
    return 1 if event.exact else 2
