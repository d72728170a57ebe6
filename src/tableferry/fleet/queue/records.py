"""What the queue holds beside its jobs: notifications and events; and jobs that are to be added."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tableferry.fleet.jobs.job import OldName, State, TargetFormat
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class NewJob:
    """A job to add.

    Attributes:
        name: The table, with catalog and schema.
        target_format: What it becomes.
        initial_gap_days: Days between the first notification and the migration.
        probation_gap_days: Days between the second notification and the archive.
        tbl_owners: Mail addresses, if the catalog isn't to be asked.
        downstream_users: Mail addresses of people who read the table.
        wave: The wave that it is migrated with; None if it waits for none.
        target_catalog: The catalog that the new table is made in; None for the Hive table's own.
        target_schema: The schema that the new table is made in; None for the Hive table's own.
        old_name: What the Hive table's name means after the switch; None if it's the new table's name.
        rewrite: Whether its rows may be rewritten, if its files can't become the new table's.
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
    """A notification as the queue remembers it: recorded before it is sent.

    Attributes:
        message_id: Its Message-ID, from its jobs, its level and its recipients.
        level: 1, 2 or 3.
        task_ids: The jobs it is about.
        recipients: Mail addresses.
        recorded_at: When it was recorded.
        sent_at: When a server had taken it; None before.
    """

    message_id: str
    level: int
    task_ids: tuple[int, ...]
    recipients: tuple[str, ...]
    recorded_at: datetime
    sent_at: datetime | None = None


@dataclass(frozen=True)
class Event:
    """A job's change of state, kept for the burn-down and for whoever asks what happened.

    Attributes:
        task_id: The job.
        at: When.
        was: The state before it; the same for a pause or a resume.
        state: The state after it.
        desired_state: The desired state after it.
        paused: Whether it is paused after it.
        pause_reason: Why.
        worker: Who did it.
    """

    task_id: int
    at: datetime
    was: State
    state: State
    desired_state: State
    paused: bool
    pause_reason: str
    worker: str
