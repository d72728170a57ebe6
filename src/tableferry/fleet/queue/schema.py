"""The queue's tables.

Every store builds its statements from these: the SQL stores through their SQLAlchemy dialects, the Delta
store by compiling them to text with named parameters, which Spark SQL takes as they are. The migrations make
them in a database; a change here needs a new one there.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Date,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql

from tableferry.fleet.job import PauseReason, State, TargetFormat
from tableferry.fleet.queue.dialects import Utc, utc_now

metadata = MetaData()

# MySQL's default collation takes é for e and A for a.
EXACT: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

# An empty value is NULL, and never the JSON text 'null'.
_JSON = JSON(none_as_null=True)
_LONG = Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


def _columns() -> list[Column[Any]]:
    """Give the published columns in their order, and then ours."""
    flag = text("false")
    return [
        # Published with 30, and Unity Catalog's names have up to 255.
        Column("catalog_name", String(255), nullable=False),
        Column("db_name", String(255), nullable=False),
        Column("tbl_name", String(255), nullable=False),
        Column("stg_format", String(30)),
        Column("data_category", String(255), nullable=False, server_default="UNKNOWN"),
        Column("tbl_owners", _JSON),
        Column("downstream_users", _JSON),
        Column("to_be_processed", Boolean, nullable=False, server_default=flag),
        Column("in_process", Boolean, nullable=False, server_default=flag),
        Column("state", String(30), nullable=False, server_default=State.UNDEFINED.value),
        Column("desired_state", String(30), nullable=False, server_default=State.UNDEFINED.value),
        Column("initial_gap_days", Integer, nullable=False, server_default="14"),
        Column("probation_gap_days", Integer, nullable=False, server_default="0"),
        Column("comm_level1_date", Utc),
        Column("comm_level2_date", Utc),
        Column("comm_level3_date", Utc),
        Column("shadow_watermark", _LONG),
        Column("migration_paused", Boolean, nullable=False, server_default=flag),
        Column("pause_reason", String(512), nullable=False, server_default=PauseReason.NONE.value),
        Column("shadow_status", String(30)),
        Column("created_at", Utc, nullable=False, server_default=utc_now()),
        Column("last_updated_time", Utc, nullable=False, server_default=utc_now()),
        Column("target_format", String(30), nullable=False, server_default=TargetFormat.ICEBERG.value),
        Column("revision", Integer, nullable=False, server_default="0"),
        Column("claimed_by", String(255)),
        Column("lease_until", Utc),
        Column("record", _JSON),
    ]


jobs = Table(
    "jobs",
    metadata,
    Column("task_id", Integer, primary_key=True, autoincrement=True),
    *_columns(),
    UniqueConstraint("catalog_name", "db_name", "tbl_name", name="uniq_name"),
    # The figures are counted in it alone.
    Index("jobs_by_state", "state", "desired_state", "migration_paused", "target_format"),
    Index("jobs_by_time", "created_at"),
    # A number that an archived job has is never given again.
    sqlite_autoincrement=True,
    **EXACT,
)

jobs_archive = Table(
    "jobs_archive",
    metadata,
    Column("task_id", Integer, primary_key=True, autoincrement=False),
    *_columns(),
    Column("archived_at", Utc, nullable=False),
    Index("jobs_archive_by_name", "catalog_name", "db_name", "tbl_name"),
    **EXACT,
)

letters = Table(
    "letters",
    metadata,
    Column("message_id", String(255), primary_key=True),
    Column("level", Integer, nullable=False),
    Column("task_ids", JSON, nullable=False),
    Column("recipients", JSON, nullable=False),
    Column("recorded_at", Utc, nullable=False),
    Column("sent_at", Utc),
    **EXACT,
)

events = Table(
    "events",
    metadata,
    Column("event_id", Integer, primary_key=True, autoincrement=True),
    Column("task_id", Integer, nullable=False),
    Column("at", Utc, nullable=False),
    # Of `at`: databases count day by day in an index alone, and not all of them index an expression.
    Column("day", Date, nullable=False),
    Column("was", String(30), nullable=False),
    Column("state", String(30), nullable=False),
    Column("desired_state", String(30), nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("pause_reason", String(512), nullable=False),
    Column("worker", String(255), nullable=False),
    Index("events_by_time", "at"),
    Index("events_by_day", "day", "was", "state"),
    Index("events_by_job", "task_id", "at"),
    **EXACT,
)
