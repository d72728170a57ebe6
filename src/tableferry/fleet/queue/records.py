"""The queue's records other than jobs and waves, and the conversion between records and rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from tableferry.fleet.jobs.job import Job, OldName, State, TargetFormat
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class NewJob:
    """A job to add.

    Attributes:
        name: The table, with catalog and schema.
        target_format: The format of the new table.
        initial_gap_days: Days between the first notification and the migration.
        probation_gap_days: Days between the second notification and the archive.
        tbl_owners: The owners' e-mail addresses; empty for those of the catalog.
        downstream_users: The e-mail addresses of the table's readers.
        wave: The wave of the table; None for none.
        target_catalog: The catalog of the new table; None for the Hive table's catalog.
        target_schema: The schema of the new table; None for the Hive table's schema.
        old_name: The meaning of the Hive table's name after the switch; None if it is the new table's name.
        rewrite: Whether its rows may be rewritten, if the new table can't use its files.
    """

    name: TableName
    target_format: TargetFormat = TargetFormat.ICEBERG
    initial_gap_days: int = 14
    probation_gap_days: int = 0
    tbl_owners: tuple[str, ...] = ()
    downstream_users: tuple[str, ...] = ()
    wave: str | None = None
    target_catalog: str | None = None
    target_schema: str | None = None
    old_name: OldName | None = None
    rewrite: bool | None = None


@dataclass(frozen=True)
class NotificationRecord:
    """The queue's record of a notification, written before it is sent.

    Attributes:
        message_id: The Message-ID, from the jobs, the level and the recipients.
        level: 1, 2 or 3.
        task_ids: The numbers of its jobs.
        recipients: The e-mail addresses.
        recorded_at: The time of the record.
        sent_at: The time when a server accepted it; None before.
    """

    message_id: str
    level: int
    task_ids: tuple[int, ...]
    recipients: tuple[str, ...]
    recorded_at: datetime
    sent_at: datetime | None = None


@dataclass(frozen=True)
class Event:
    """A job's change of state, for the burn-down and the job's history.

    Attributes:
        task_id: The job.
        at: The time of the change.
        was: The earlier state; the same as `state` for a pause or a resume.
        state: The state after the change.
        desired_state: The desired state after the change.
        paused: Whether the job is paused after the change.
        pause_reason: The reason of the pause.
        worker: The worker or user that made the change.
    """

    task_id: int
    at: datetime
    was: State
    state: State
    desired_state: State
    paused: bool
    pause_reason: str
    worker: str


T = TypeVar("T", Job, Wave, NotificationRecord, Event)
_RECORDS: Sequence[type] = (Job, Wave, NotificationRecord, Event)

_NAMES: Mapping[type, tuple[str, ...]] = {
    record: tuple(field.name for field in fields(record)) for record in _RECORDS
}

JOB_COLUMNS = _NAMES[Job]

# Most jobs have an empty record, and its conversion took longer than that of the rest of the row.
_EMPTY_RECORD = JobRecord()


def to_row(record: Job | Wave | NotificationRecord | Event) -> dict[str, Any]:
    """Return the row of a record; if the default of a field is empty, an empty value is None."""
    # The instance's dictionary is faster than `getattr` for each field.
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
                lambda record: None if record is _EMPTY_RECORD else record.to_json() or None,
                lambda values: JobRecord.from_json(values) if values else _EMPTY_RECORD,
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
