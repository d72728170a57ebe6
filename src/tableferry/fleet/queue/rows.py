"""Jobs, notifications and events as rows, by their columns' names; lists and mappings stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, get_origin, get_type_hints

from tableferry.fleet.job import Job
from tableferry.fleet.queue.records import Event, NotificationRecord

T = TypeVar("T", Job, NotificationRecord, Event)

_NAMES: Mapping[type, tuple[str, ...]] = {
    record: tuple(field.name for field in fields(record)) for record in (Job, NotificationRecord, Event)
}

JOB_COLUMNS = _NAMES[Job]


def to_row(record: Job | NotificationRecord | Event) -> dict[str, Any]:
    """Return what the columns take of a record; where a field's default is empty, what is empty is None."""
    # A dataclass's own dictionary is faster than asking for each field.
    row = dict(vars(record))
    for name, conversion in _CONVERSIONS[type(record)].items():
        row[name] = conversion.to_column(row[name])
    return row


def from_row(record: type[T], row: Mapping[str, Any]) -> T:
    """Return the record that a row holds; the row may have other columns too."""
    values = {name: row[name] for name in _NAMES[record]}
    for name, conversion in _CONVERSIONS[record].items():
        values[name] = conversion.to_field(values[name])
    return record(**values)


class _Conversion(NamedTuple):
    to_column: Callable[[Any], Any]
    to_field: Callable[[Any], Any]


def _conversions(record: type) -> Mapping[str, _Conversion]:
    """Return how the fields are converted whose values aren't the columns' as they are."""
    conversions = {}
    hints = get_type_hints(record)
    for field in fields(record):
        hint = hints[field.name]
        if get_origin(hint) is tuple:
            required = field.default != ()
            conversions[field.name] = _Conversion(list if required else _list_or_none, _tuple)
        elif get_origin(hint) is Mapping:
            conversions[field.name] = _Conversion(_dict_or_none, _dict)
        elif isinstance(hint, type) and issubclass(hint, StrEnum):
            conversions[field.name] = _Conversion(str, hint)
    return conversions


def _list_or_none(values: tuple[Any, ...]) -> list[Any] | None:
    return list(values) or None


def _tuple(values: list[Any] | None) -> tuple[Any, ...]:
    return tuple(values or ())


def _dict_or_none(values: Mapping[str, Any]) -> dict[str, Any] | None:
    return dict(values) or None


def _dict(values: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return values or {}


_CONVERSIONS: Mapping[type, Mapping[str, _Conversion]] = {record: _conversions(record) for record in _NAMES}
