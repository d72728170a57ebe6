"""What happened to one job: its changes of state, and the notifications that it is in."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import select

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.records import Event, NotificationRecord
from tableferry.fleet.queue.rows import from_row
from tableferry.fleet.queue.schema import events, notifications
from tableferry.fleet.queue.store import Store


def events_of(store: Store, job: Job) -> list[Event]:
    """Return a job's changes of state or pause, by their time."""
    names = [field.name for field in fields(Event)]
    query = select(*(events.c[name] for name in names)).where(events.c.task_id == job.task_id)
    rows = store.rows(query.order_by(events.c.at, events.c.event_id))
    return [from_row(Event, dict(zip(names, row, strict=True))) for row in rows]


def notifications_of(store: Store, job: Job) -> list[NotificationRecord]:
    """Return the notifications that a job is in, by their level and time."""
    names = [column.name for column in notifications.c]
    rows = store.rows(
        select(notifications).order_by(
            notifications.c.level, notifications.c.recorded_at, notifications.c.message_id
        )
    )
    records = (from_row(NotificationRecord, dict(zip(names, row, strict=True))) for row in rows)
    # No two databases look into JSON alike, and a notification is about many jobs: there are few of them.
    return [record for record in records if job.task_id in record.task_ids]
