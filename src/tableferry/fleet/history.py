"""What happened to one job: its changes of state, and the letters that it is in."""

from __future__ import annotations

from sqlalchemy import select

from tableferry.fleet.job import Job, State
from tableferry.fleet.queue.schema import events, letters
from tableferry.fleet.queue.store import Event, NotificationRecord, Store


def events_of(store: Store, job: Job) -> list[Event]:
    """Return a job's changes of state or pause, by their time."""
    c = events.c
    columns = (c.task_id, c.at, c.was, c.state, c.desired_state, c.paused, c.pause_reason, c.worker)
    rows = store.rows(select(*columns).where(c.task_id == job.task_id).order_by(c.at, c.event_id))
    return [
        Event(task_id, at, State(was), State(state), State(desired), bool(paused), reason, worker)
        for task_id, at, was, state, desired, paused, reason, worker in rows
    ]


def notifications_of(store: Store, job: Job) -> list[NotificationRecord]:
    """Return the letters that a job is in, by their level and time."""
    c = letters.c
    columns = (c.message_id, c.level, c.task_ids, c.recipients, c.recorded_at, c.sent_at)
    rows = store.rows(select(*columns).order_by(c.level, c.recorded_at, c.message_id))
    # No two databases look into JSON alike, and a letter is about many jobs: there are few of them.
    return [
        NotificationRecord(message_id, level, tuple(task_ids), tuple(recipients), recorded_at, sent_at)
        for message_id, level, task_ids, recipients, recorded_at, sent_at in rows
        if job.task_id in task_ids
    ]
