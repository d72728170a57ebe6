"""Turns jobs into notifications: who hears of which tables, in how few mails, and under which Message-ID.

Pure: the same jobs and the same notifications remembered give the same notifications, each time.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from tableferry.fleet.job import Job, State
from tableferry.fleet.notifications.addresses import LeftOut, people
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.fleet.queue.statements import chunks
from tableferry.spark.tables import TableName

Level = Literal[1, 2, 3]
"""1 announces the migration, 2 the probation, 3 that it's over."""

Audience = Literal["owner", "user"]


@dataclass(frozen=True)
class Composed:
    """The notifications that are to be recorded, and the owners and users who have no address for one."""

    notifications: tuple[NotificationRecord, ...]
    left_out: tuple[LeftOut, ...]


def level(job: Job) -> Level:
    """Return the level of the notification that a job to be told of is due."""
    match job.state:
        case State.WRITES_UNBLOCKED:
            return 2
        case State.HIVE_DROPPED:
            return 3
        case _:
            return 1


def is_needed(job: Job) -> bool:
    """Say whether anybody is to be told: a step that has no days has no notification."""
    match level(job):
        case 1:
            return job.initial_gap_days > 0
        case 2:
            return job.probation_gap_days > 0
        case 3:
            return job.initial_gap_days > 0 or job.probation_gap_days > 0


def with_date(job: Job, now: datetime) -> Job:
    """Return the job with the date of the notification that it was due."""
    match level(job):
        case 1:
            return replace(job, comm_level1_date=now)
        case 2:
            return replace(job, comm_level2_date=now)
        case 3:
            return replace(job, comm_level3_date=now)


def compose(
    jobs: Iterable[Job],
    done: Collection[tuple[int, str]],
    *,
    now: datetime,
    domain: str,
    sent_from: str,
    batch: int,
) -> Composed:
    """Write a notification of each level to each owner, and to users who read the same tables one together.

    `done` says of which job who has a notification of that level, or will get one that is recorded. `domain`
    is added to names that aren't mail addresses, and `sent_from` is that of the Message-IDs.
    """
    owners: dict[tuple[Level, str], set[int]] = defaultdict(set)
    users: dict[tuple[Level, str], set[int]] = defaultdict(set)
    left_out: dict[tuple[str, str], set[TableName]] = defaultdict(set)
    for job in filter(is_needed, jobs):
        due, who = level(job), people(job, domain)
        for name_and_why in who.left_out:
            left_out[name_and_why].add(job.name)
        for tasks, addresses in ((owners, who.owners), (users, who.users)):
            for to in addresses:
                if (job.task_id, to) not in done:
                    tasks[due, to].add(job.task_id)
    together: dict[tuple[Level, tuple[int, ...]], list[str]] = defaultdict(list)
    for (due, to), numbers in users.items():
        together[due, tuple(sorted(numbers))].append(to)
    envelopes: list[tuple[Level, tuple[int, ...], tuple[str, ...]]] = [
        (due, tuple(sorted(numbers)), (to,)) for (due, to), numbers in owners.items()
    ]
    for (due, task_ids), readers in together.items():
        envelopes += [(due, task_ids, tuple(chunk)) for chunk in chunks(sorted(readers), batch)]
    notifications = tuple(
        NotificationRecord(message_id(due, task_ids, to, sent_from), due, task_ids, to, now)
        for due, task_ids, to in sorted(envelopes)
    )
    nobody = [LeftOut(name, tuple(sorted(tables)), why) for (name, why), tables in sorted(left_out.items())]
    return Composed(notifications, tuple(nobody))


def message_id(
    due: int, task_ids: Sequence[int], recipients: Sequence[str], sent_from: str, edition: int = 0
) -> str:
    """Return the Message-ID of a notification, the same for the same level, sorted jobs and recipients.

    Editions count those that say once more what one of an earlier migration of these tables said.
    """
    parts = [str(due), ",".join(map(str, task_ids)), ",".join(recipients)]
    if edition:
        parts.append(str(edition))
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"<{due}-{digest}@{sent_from}>"


def audience(notification: NotificationRecord, jobs: Iterable[Job], domain: str) -> Audience:
    """Say to whom a notification speaks: to an owner of all its tables, or to users."""
    if len(notification.recipients) == 1 and all(
        notification.recipients[0] in people(job, domain).owners for job in jobs
    ):
        return "owner"
    return "user"


def noted(job: Job) -> Mapping[str, tuple[str, ...] | None]:
    """Return the notifications noted on a job for the level that it is due.

    Each Message-ID comes with the recipients who are still to get it; None where that isn't known, so all.
    """
    note = job.record.get("letters", {})
    if note.get("level") != level(job):
        return {}
    return {key: None if left is None else tuple(left) for key, left in note["left"].items()}


def put_off(job: Job) -> Mapping[str, datetime]:
    """Return when a server first refused recipients of the notifications noted on a job, by Message-ID."""
    since = job.record.get("letters", {}).get("put_off", {})
    return {key: datetime.fromisoformat(since[key]) for key in noted(job) if key in since}


def note(
    job: Job,
    notifications: Mapping[str, Iterable[str] | None],
    put_off: Mapping[str, datetime] | None = None,
) -> Job:
    """Return the job with these notifications noted on it, and no others.

    Args:
        job: The job.
        notifications: The recipients who are still to get each; None where that isn't known, so all.
        put_off: When a server first refused one of them.
    """
    if not notifications:
        return job.noted(letters=None)
    left = {key: None if to is None else sorted(to) for key, to in notifications.items()}
    letters: dict[str, Any] = {"level": level(job), "left": left}
    if put_off:
        letters["put_off"] = {key: since.isoformat() for key, since in put_off.items()}
    return job.noted(letters=letters)


def binding(notification: NotificationRecord, jobs: Mapping[int, Job]) -> bool:
    """Say whether a recorded notification may have been sent.

    It was, or all of its jobs that are in the queue have it noted.
    """
    fellows = [jobs[task] for task in notification.task_ids if task in jobs]
    return notification.sent_at is not None or all(
        notification.message_id in job.record.get("letters", {}).get("left", {}) for job in fellows
    )
