"""The history of a job: its changes of state and its notifications."""

from __future__ import annotations

from dataclasses import fields

from sqlalchemy import select

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue.records import Event, NotificationRecord, from_row
from tableferry.fleet.queue.schema import events, notifications
from tableferry.fleet.queue.store import Store


def events_of(store: Store, job: Job) -> list[Event]:
    """Return a job's changes of state or pause, by their time."""
    names = [field.name for field in fields(Event)]
    query = select(*(events.c[name] for name in names)).where(events.c.task_id == job.task_id)
    rows = store.rows(query.order_by(events.c.at, events.c.event_id))
    return [from_row(Event, dict(zip(names, row, strict=True))) for row in rows]


def notifications_of(store: Store, job: Job) -> list[NotificationRecord]:
    """Return the notifications about a job, by their level and time."""
    names = [column.name for column in notifications.c]
    rows = store.rows(
        select(notifications).order_by(
            notifications.c.level, notifications.c.recorded_at, notifications.c.message_id
        )
    )
    records = (from_row(NotificationRecord, dict(zip(names, row, strict=True))) for row in rows)
    # Databases differ in their JSON functions. There are few notifications, because each is about many jobs.
    return [record for record in records if job.task_id in record.task_ids]
