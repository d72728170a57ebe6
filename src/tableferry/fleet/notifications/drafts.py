"""Draft the notifications that are due: which recipients are told about which tables, at which level.

Only decides: reads no queue and sends nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Literal
from uuid import uuid4

from tableferry.fleet.jobs.job import Job, State
from tableferry.fleet.notifications.addresses import LeftOut, recipients_of
from tableferry.fleet.queue.conditions import chunks
from tableferry.fleet.queue.records import NotificationRecord
from tableferry.spark.tables import TableName

Level = Literal[1, 2, 3]
"""1 announces the migration, 2 the probation, 3 the end of the migration."""

Audience = Literal["owner", "user"]


def level(job: Job) -> Level:
    """Return the level of the notification that is due for a job."""
    match job.state:
        case State.WRITES_UNBLOCKED:
            return 2
        case State.HIVE_DROPPED:
            return 3
        case _:
            return 1


def is_needed(job: Job) -> bool:
    """Return whether a job's step takes days; recipients of a step without days get no notification."""
    initial, probation = job.initial_gap_days > 0, job.probation_gap_days > 0
    return {1: initial, 2: probation, 3: initial or probation}[level(job)]


def with_date(job: Job, now: datetime) -> Job:
    """Return the job with the date of its notification."""
    match level(job):
        case 1:
            return replace(job, comm_level1_date=now)
        case 2:
            return replace(job, comm_level2_date=now)
        case 3:
            return replace(job, comm_level3_date=now)


def draft(
    jobs: Iterable[Job],
    covered: Collection[tuple[int, str]],
    *,
    now: datetime,
    domain: str,
    id_domain: str,
    batch: int,
) -> tuple[list[NotificationRecord], list[LeftOut]]:
    """Draft the missing notifications, each with a new Message-ID.

    An owner gets one per level, about all tables of that owner. Readers share one if they read exactly the
    same tables, so that no recipient is told about tables of others.

    Args:
        jobs: The jobs whose notifications are due.
        covered: Pairs of a job's number and an address that an earlier notification covers.
        now: The time to record.
        domain: The setting `MailSettings.domain`, which completes names to addresses.
        id_domain: The domain of the Message-IDs.
        batch: The maximum number of readers per notification.

    Returns:
        The drafts, and the owners and readers without an address.
    """
    owned: dict[tuple[Level, str], list[int]] = defaultdict(list)
    read: dict[tuple[Level, str], list[int]] = defaultdict(list)
    left_out: dict[tuple[str, str], list[TableName]] = defaultdict(list)
    for job in sorted(filter(is_needed, jobs), key=lambda job: job.task_id):
        recipients = recipients_of(job, domain)
        for name_and_reason in recipients.left_out:
            left_out[name_and_reason].append(job.name)
        for tasks, addresses in ((owned, recipients.owners), (read, recipients.readers)):
            for to in addresses:
                if (job.task_id, to) not in covered:
                    tasks[level(job), to].append(job.task_id)
    same_tables: dict[tuple[Level, tuple[int, ...]], list[str]] = defaultdict(list)
    for (due, to), task_ids in read.items():
        same_tables[due, tuple(task_ids)].append(to)
    envelopes: list[tuple[Level, tuple[int, ...], tuple[str, ...]]] = [
        (due, tuple(task_ids), (to,)) for (due, to), task_ids in owned.items()
    ]
    for (due, tables_read), readers in same_tables.items():
        envelopes += [(due, tables_read, tuple(some)) for some in chunks(sorted(readers), batch)]
    drafts = [
        NotificationRecord(f"<{due}-{uuid4().hex}@{id_domain}>", due, task_ids, to, now)
        for due, task_ids, to in sorted(envelopes)
    ]
    return drafts, [
        LeftOut(name, tuple(sorted(tables)), why) for (name, why), tables in sorted(left_out.items())
    ]


def audience(recipients: Collection[str], jobs: Iterable[Job], domain: str) -> Audience:
    """Return ``owner`` for a single recipient who owns all the tables, otherwise ``user``."""
    owner = len(recipients) == 1 and all(
        next(iter(recipients)) in recipients_of(job, domain).owners for job in jobs
    )
    return "owner" if owner else "user"
