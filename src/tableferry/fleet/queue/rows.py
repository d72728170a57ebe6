"""A job, a letter and an event as rows, by their columns' names; lists and mappings stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tableferry.fleet.job import Job, State, TargetFormat
from tableferry.fleet.queue.store import Event, NotificationRecord

JOB_COLUMNS = tuple(each.name for each in fields(Job))


def of_job(job: Job) -> dict[str, Any]:
    """Return a job as a row; what is empty is None."""
    row = {name: getattr(job, name) for name in JOB_COLUMNS}
    row["tbl_owners"] = list(job.tbl_owners) or None
    row["downstream_users"] = list(job.downstream_users) or None
    row["record"] = dict(job.record) or None
    for name in ("state", "desired_state", "target_format"):
        row[name] = row[name].value
    return row


def to_job(row: Mapping[str, Any]) -> Job:
    """Return a row as a job."""
    values = {name: row[name] for name in JOB_COLUMNS}
    values["tbl_owners"] = tuple(values["tbl_owners"] or ())
    values["downstream_users"] = tuple(values["downstream_users"] or ())
    values["record"] = values["record"] or {}
    values["state"] = State(values["state"])
    values["desired_state"] = State(values["desired_state"])
    values["target_format"] = TargetFormat(values["target_format"])
    return Job(**values)


def of_letter(letter: NotificationRecord) -> dict[str, Any]:
    """Return a letter as a row."""
    return {
        "message_id": letter.message_id,
        "level": letter.level,
        "task_ids": list(letter.task_ids),
        "recipients": list(letter.recipients),
        "recorded_at": letter.recorded_at,
        "sent_at": letter.sent_at,
    }


def to_letter(row: Mapping[str, Any]) -> NotificationRecord:
    """Return a row as a letter."""
    return NotificationRecord(
        row["message_id"],
        row["level"],
        tuple(row["task_ids"]),
        tuple(row["recipients"]),
        row["recorded_at"],
        row["sent_at"],
    )


def to_event(row: Mapping[str, Any]) -> Event:
    """Return a row as an event."""
    return Event(
        row["task_id"],
        row["at"],
        State(row["was"]),
        State(row["state"]),
        State(row["desired_state"]),
        row["paused"],
        row["pause_reason"],
        row["worker"],
    )
