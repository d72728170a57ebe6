"""Claims with their lease, the target's format, the archive, notifications and events."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tableferry.fleet.queue.dialects import utc_now
from tableferry.fleet.queue.migrations.existing_objects import existing_objects

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_Time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_False = sa.text("false")
_TABLE: dict[str, Any] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
    "if_not_exists": True,
}


def upgrade() -> None:
    """Create the missing columns, tables and indexes; MySQL keeps those of an interrupted run."""
    existing = existing_objects()
    for column in _ours():
        if ("jobs", column.name) not in existing:
            op.add_column("jobs", column)
    op.create_table(
        "jobs_archive",
        sa.Column("task_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("catalog_name", sa.String(255), nullable=False),
        sa.Column("db_name", sa.String(255), nullable=False),
        sa.Column("tbl_name", sa.String(255), nullable=False),
        sa.Column("stg_format", sa.String(30)),
        sa.Column("data_category", sa.String(255), nullable=False, server_default="UNKNOWN"),
        sa.Column("tbl_owners", sa.JSON),
        sa.Column("downstream_users", sa.JSON),
        sa.Column("to_be_processed", sa.Boolean, nullable=False, server_default=_False),
        sa.Column("in_process", sa.Boolean, nullable=False, server_default=_False),
        sa.Column("state", sa.String(30), nullable=False, server_default="Undefined"),
        sa.Column("desired_state", sa.String(30), nullable=False, server_default="Undefined"),
        sa.Column("initial_gap_days", sa.Integer, nullable=False, server_default="14"),
        sa.Column("probation_gap_days", sa.Integer, nullable=False, server_default="0"),
        sa.Column("comm_level1_date", _Time),
        sa.Column("comm_level2_date", _Time),
        sa.Column("comm_level3_date", _Time),
        sa.Column("shadow_watermark", sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")),
        sa.Column("migration_paused", sa.Boolean, nullable=False, server_default=_False),
        sa.Column("pause_reason", sa.String(512), nullable=False, server_default="None"),
        sa.Column("shadow_status", sa.String(30)),
        sa.Column("created_at", _Time, nullable=False, server_default=utc_now()),
        sa.Column("last_updated_time", _Time, nullable=False, server_default=utc_now()),
        *_ours(),
        sa.Column("archived_at", _Time, nullable=False),
        **_TABLE,
    )
    op.create_table(
        "letters",
        sa.Column("message_id", sa.String(255), primary_key=True),
        sa.Column("level", sa.Integer, nullable=False),
        sa.Column("task_ids", sa.JSON, nullable=False),
        sa.Column("recipients", sa.JSON, nullable=False),
        sa.Column("recorded_at", _Time, nullable=False),
        sa.Column("sent_at", _Time),
        **_TABLE,
    )
    op.create_table(
        "events",
        sa.Column("event_id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("task_id", sa.Integer, nullable=False),
        sa.Column("at", _Time, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("was", sa.String(30), nullable=False),
        sa.Column("state", sa.String(30), nullable=False),
        sa.Column("desired_state", sa.String(30), nullable=False),
        sa.Column("paused", sa.Boolean, nullable=False),
        sa.Column("pause_reason", sa.String(512), nullable=False),
        sa.Column("worker", sa.String(255), nullable=False),
        **_TABLE,
    )
    for index, table, columns in (
        ("jobs_by_state", "jobs", ["state", "desired_state", "migration_paused", "target_format"]),
        ("jobs_by_time", "jobs", ["created_at"]),
        ("jobs_archive_by_name", "jobs_archive", ["catalog_name", "db_name", "tbl_name"]),
        ("events_by_time", "events", ["at"]),
        ("events_by_day", "events", ["day", "was", "state"]),
        ("events_by_job", "events", ["task_id", "at"]),
    ):
        if (table, index) not in existing:
            op.create_index(index, table, columns)


def _ours() -> list[sa.Column[Any]]:
    return [
        sa.Column("target_format", sa.String(30), nullable=False, server_default="iceberg"),
        sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
        sa.Column("claimed_by", sa.String(255)),
        sa.Column("lease_until", _Time),
        sa.Column("record", sa.JSON),
    ]
