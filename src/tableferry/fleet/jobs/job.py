"""The migration of one table: a row of the queue, as a frozen dataclass without Spark or a database.

The columns, their order, meaning and defaults are those of the ``jobs`` table that Netflix published with its
Hive-to-Iceberg migration; columns after ``last_updated_time`` are additional. The queue's table has a
column for each field.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from tableferry.fleet.jobs.record import JobRecord
from tableferry.spark.tables import TableName


class State(StrEnum):
    """The state of a migration; the stored words are the published ones, also for a job to Delta."""

    UNDEFINED = "Undefined"
    READY = "Ready"
    WRITES_BLOCKED = "WritesBlocked"
    ICEBERG_READY = "IcebergReady"
    ICEBERG_PRIMARY = "IcebergPrimary"
    WRITES_UNBLOCKED = "WritesUnblocked"
    HIVE_DROPPED = "HiveDropped"
    SYNC_HIVE = "SyncHive"
    HIVE_PRIMARY = "HivePrimary"
    ICEBERG_DROPPED = "IcebergDropped"


LONGEST_NAME = 255
"""The longest part of a table's name: 30 characters in the published tool, up to 255 in Unity Catalog."""

LONGEST_REASON = 512
"""The number of characters of a pause reason that the column stores."""
_START_OF_REASON = 170
_OMISSION = " … "


MOST_LEFT_DIRECTORIES = 100
"""The number of directories that a record lists at most; they are in the same folder."""

LONGEST_GAP = 36_500
"""The largest gap in days: a century. Later days can exceed the largest date."""


class TargetFormat(StrEnum):
    """The format of a new table."""

    ICEBERG = "iceberg"
    DELTA = "delta"


class OldName(StrEnum):
    """The meaning of a table's old name if the new table is in another schema or catalog."""

    VIEW = "view"
    TABLE = "table"


class PauseReason(StrEnum):
    """Why a job waits for a person; ``pause_reason`` begins with a reason; a colon and details may follow."""

    NONE = "None"
    # Published reasons.
    IS_CSV_TEXT = "IS_CSV_TEXT"
    IS_ALREADY_ICEBERG = "IS_ALREADY_ICEBERG"
    TABLE_NOT_FOUND = "TABLE_NOT_FOUND"
    MISSING_OWNER = "MISSING_OWNER"
    HAS_TIMESTAMP_COLUMN = "HAS_TIMESTAMP_COLUMN"
    EMPTY_TABLE = "EMPTY_TABLE"
    REVERTED = "REVERTED"
    # Additional reasons.
    IS_ALREADY_DELTA = "IS_ALREADY_DELTA"
    IS_VIEW = "IS_VIEW"
    IS_BUCKETED = "IS_BUCKETED"
    IS_TRANSACTIONAL = "IS_TRANSACTIONAL"
    UNSUPPORTED_FORMAT = "UNSUPPORTED_FORMAT"
    NOT_REWRITABLE = "NOT_REWRITABLE"
    UNSUPPORTED_SCHEMA = "UNSUPPORTED_SCHEMA"
    UNSUPPORTED_LAYOUT = "UNSUPPORTED_LAYOUT"
    SHARED_DIRECTORY = "SHARED_DIRECTORY"
    REMOVES_FILES = "REMOVES_FILES"
    MANAGED_TABLE = "MANAGED_TABLE"
    NAME_TAKEN = "NAME_TAKEN"
    NO_TARGET_SCHEMA = "NO_TARGET_SCHEMA"
    WRITTEN_WHILE_BLOCKED = "WRITTEN_WHILE_BLOCKED"
    WRITTEN_LATE = "WRITTEN_LATE"
    PARTITIONS_REMOVED = "PARTITIONS_REMOVED"
    NEW_TABLE_MISSING = "NEW_TABLE_MISSING"
    NEW_TABLE_REPLACED = "NEW_TABLE_REPLACED"
    NEW_TABLE_UNREADABLE = "NEW_TABLE_UNREADABLE"
    HIVE_COPY_MISSING = "HIVE_COPY_MISSING"
    HIVE_COPY_REPLACED = "HIVE_COPY_REPLACED"
    HIVE_COPY_CHANGED = "HIVE_COPY_CHANGED"
    ROWS_DIFFER = "ROWS_DIFFER"
    STEP_REFUSED = "STEP_REFUSED"
    STEP_FAILED = "STEP_FAILED"
    PAUSED_BY_USER = "PAUSED_BY_USER"


REWRITABLE = frozenset(
    (
        PauseReason.IS_CSV_TEXT,
        PauseReason.UNSUPPORTED_FORMAT,
        PauseReason.IS_BUCKETED,
        PauseReason.HAS_TIMESTAMP_COLUMN,
    )
)
"""Pause reasons of jobs that can continue if their rows may be rewritten."""


class Trouble(StrEnum):
    """Why a job that isn't paused needs attention."""

    CLAIM_LAPSED = "claim_lapsed"
    NOT_MOVING = "not_moving"
    NOTIFICATION_NOT_SENT = "letter_not_sent"
    SHADOW_DELAYED = "shadow_behind"


@dataclass(frozen=True)
class Job:
    """One row of the queue.

    Attributes:
        task_id: The row's number.
        catalog_name: The catalog, such as ``spark_catalog`` or ``hive_metastore``.
        db_name: The schema.
        tbl_name: The table, by its name before and after the migration.
        stg_format: How the table is stored: ``parquet``, ``orc``, ``avro``, ``text``, …
        data_category: A label of the table's data.
        tbl_owners: The owners' mail addresses.
        downstream_users: The mail addresses of its readers.
        to_be_processed: The migration is announced, or will be, and hasn't started.
        in_process: Its migration has started and isn't complete; probation is part of it.
        state: The current state.
        desired_state: The next state; the same as ``state`` while the job rests.
        initial_gap_days: Days between the first notification and the migration.
        probation_gap_days: Days between the second notification and the archive; 0 for no probation.
        comm_level1_date: The time of the first notification.
        comm_level2_date: The time of the second notification.
        comm_level3_date: The time of the third notification.
        shadow_watermark: The target's snapshot id (Delta: version) up to which the Hive copy has its rows.
        migration_paused: The job waits until a person resumes it.
        pause_reason: A `PauseReason`, followed by a colon and details.
        shadow_status: The progress of the current shadow run.
        created_at: When the job was added.
        last_updated_time: When the row last changed.
        target_format: The format of the new table.
        revision: The number of changes of the row. A write is refused if the row has another revision.
        claimed_by: The worker that has claimed it.
        lease_until: The end of the claim.
        record: Records of steps for later steps.
        wave: Its wave, or None.
        table_files: The number of files of the table when the preprocessor checked it.
        table_bytes: The size of these files in bytes.
        begun_at: The last time when a worker started its migration.
        close_at: The time after which the remains of the Hive table may be removed; None if they stay.
        target_catalog: The catalog of the new table; None for the Hive table's catalog.
        target_schema: The schema of the new table; None for the Hive table's schema.
        old_name: The meaning of the Hive table's name after the switch; None if the new table has the name.
        rewrite: Whether its rows may be rewritten, if the new table can't keep its files.
        archived_at: When the job was archived; None while it is in the queue.
    """

    task_id: int
    catalog_name: str
    db_name: str
    tbl_name: str
    stg_format: str | None = None
    data_category: str = "UNKNOWN"
    tbl_owners: tuple[str, ...] = ()
    downstream_users: tuple[str, ...] = ()
    to_be_processed: bool = False
    in_process: bool = False
    state: State = State.UNDEFINED
    desired_state: State = State.UNDEFINED
    initial_gap_days: int = 14
    probation_gap_days: int = 0
    comm_level1_date: datetime | None = None
    comm_level2_date: datetime | None = None
    comm_level3_date: datetime | None = None
    shadow_watermark: str | None = None
    migration_paused: bool = False
    pause_reason: str = PauseReason.NONE.value
    shadow_status: str | None = None
    created_at: datetime = field(kw_only=True)
    last_updated_time: datetime = field(kw_only=True)
    target_format: TargetFormat = TargetFormat.ICEBERG
    revision: int = 0
    claimed_by: str | None = None
    lease_until: datetime | None = None
    record: JobRecord = field(default_factory=JobRecord, hash=False)
    wave: str | None = None
    table_files: int | None = None
    table_bytes: int | None = None
    begun_at: datetime | None = None
    close_at: datetime | None = None
    target_catalog: str | None = None
    target_schema: str | None = None
    old_name: OldName | None = None
    rewrite: bool | None = None
    archived_at: datetime | None = None

    @property
    def is_rewritten(self) -> bool:
        """Whether its rows are rewritten, because the new table can't keep its files."""
        return self.record.rewritten is not None

    @property
    def shares_files(self) -> bool:
        """Whether the new table writes into the directories that the Hive table reads, as Delta does."""
        return self.target_format is TargetFormat.DELTA and not self.is_rewritten

    @property
    def name(self) -> TableName:
        """The name of the table."""
        return TableName((self.catalog_name, self.db_name, self.tbl_name))

    @property
    def pair(self) -> tuple[State, State]:
        """The current and the next state: the key of its transition."""
        return self.state, self.desired_state

    @property
    def probation_ends(self) -> datetime | None:
        """The end of probation; None before the second notification."""
        if self.comm_level2_date is None:
            return None
        return self.comm_level2_date + timedelta(days=self.probation_gap_days)

    @property
    def migration_begins(self) -> datetime | None:
        """The earliest start of the migration; None before the first notification."""
        if self.comm_level1_date is None:
            return None
        return self.comm_level1_date + timedelta(days=self.initial_gap_days)

    def paused(self, reason: PauseReason, details: str = "") -> Self:
        """Return the job paused. Details that are longer than the column lose their middle.

        They begin with the problem, and end with the command that resolves it.
        """
        text = f"{reason.value}: {details}" if details else reason.value
        # PostgreSQL refuses a text with a zero byte, and an error may quote a value of a table.
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
        if len(text) > LONGEST_REASON:
            end = LONGEST_REASON - _START_OF_REASON - len(_OMISSION)
            text = f"{text[:_START_OF_REASON]}{_OMISSION}{text[-end:]}"
        return replace(self, migration_paused=True, pause_reason=text)

    def without_failures(self) -> Self:
        """Return the job with its count of failed runs reset."""
        return self.with_record(failures=0, last_error="")

    def with_left_directories(self, left: Iterable[str]) -> Self:
        """Return the job with more directories in its record that it doesn't remove."""
        every = dict.fromkeys((*self.record.left_directories, *left))
        return self.with_record(left_directories=tuple(every)[-MOST_LEFT_DIRECTORIES:])

    def with_record(self, **changes: Any) -> Self:
        """Return the job with these fields of its record changed."""
        return replace(self, record=replace(self.record, **changes))
