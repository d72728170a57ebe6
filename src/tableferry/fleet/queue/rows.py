"""Conversion between records and rows, by their columns' names; lists and mappings stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave
from tableferry.fleet.queue.records import Event, NotificationRecord

T = TypeVar("T", Job, Wave, NotificationRecord, Event)
_RECORDS: Sequence[type] = (Job, Wave, NotificationRecord, Event)

_NAMES: Mapping[type, tuple[str, ...]] = {
    record: tuple(field.name for field in fields(record)) for record in _RECORDS
}

JOB_COLUMNS = _NAMES[Job]


def to_row(record: Job | Wave | NotificationRecord | Event) -> dict[str, Any]:
    """Return the row of a record; if the default of a field is empty, an empty value is None."""
    # A dataclass's own dictionary is faster than asking for each field.
    row = dict(vars(record))
    for name, conversion in _CONVERSIONS[type(record)].items():
        row[name] = conversion.to_column(row[name])
    return row


def from_row(record: type[T], row: Mapping[str, Any]) -> T:
    """Return the record of a row, which may have more columns."""
    values = {name: row[name] for name in _NAMES[record]}
    for name, conversion in _CONVERSIONS[record].items():
        values[name] = conversion.to_field(values[name])
    return record(**values)


class _Conversion(NamedTuple):
    to_column: Callable[[Any], Any]
    to_field: Callable[[Any], Any]


def _conversions(record: type) -> Mapping[str, _Conversion]:
    """Return the conversions of fields whose values differ from those of the columns."""
    conversions = {}
    hints = get_type_hints(record)
    for field in fields(record):
        hint, optional = hints[field.name], NoneType in get_args(hints[field.name])
        if optional:
            [hint] = [part for part in get_args(hint) if part is not NoneType]
        if get_origin(hint) is tuple:
            to_list = list if field.default != () else lambda values: list(values) or None
            conversions[field.name] = _Conversion(to_list, lambda values: tuple(values or ()))
        elif hint is JobRecord:
            conversions[field.name] = _Conversion(
                lambda record: record.to_json() or None, lambda values: JobRecord.from_json(values or {})
            )
        elif isinstance(hint, type) and issubclass(hint, StrEnum):
            word = _Conversion(str, hint)
            conversions[field.name] = _optional(word) if optional else word
    return conversions


def _optional(conversion: _Conversion) -> _Conversion:
    """Return a conversion that leaves None as it is."""
    to_column, to_field = conversion
    return _Conversion(
        lambda value: None if value is None else to_column(value),
        lambda value: None if value is None else to_field(value),
    )


_CONVERSIONS: Mapping[type, Mapping[str, _Conversion]] = {record: _conversions(record) for record in _NAMES}
