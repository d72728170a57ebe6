"""A job's note of its notifications, from when they are recorded until all are sent.

Queues of version 0.2 contain such notes, so their JSON keys stay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.notifications.drafts import level

_LEVEL, _WAITING, _REFUSED_SINCE = "level", "left", "put_off"


@dataclass(frozen=True)
class Note:
    """The progress of one notification.

    Attributes:
        waiting: The recipients who don't have it yet; None before the first attempt: all.
        refused_since: The time when the mail server first asked a recipient to wait.
    """

    waiting: frozenset[str] | None = None
    refused_since: datetime | None = None


def notes_of(job: Job) -> Mapping[str, Note]:
    """Return a job's notes for the level that is due, by Message-ID."""
    noted = job.record.letters
    if noted.get(_LEVEL) != level(job):
        return {}
    since = noted.get(_REFUSED_SINCE, {})
    return {
        key: Note(
            None if waiting is None else frozenset(waiting),
            datetime.fromisoformat(since[key]) if key in since else None,
        )
        for key, waiting in noted[_WAITING].items()
    }


def with_notes(job: Job, notes: Mapping[str, Note]) -> Job:
    """Return the job with these notes and no others."""
    if not notes:
        return job.with_record(letters={})
    waiting = {key: None if note.waiting is None else sorted(note.waiting) for key, note in notes.items()}
    noted: dict[str, Any] = {_LEVEL: level(job), _WAITING: waiting}
    since = {key: note.refused_since.isoformat() for key, note in notes.items() if note.refused_since}
    if since:
        noted[_REFUSED_SINCE] = since
    return job.with_record(letters=noted)
