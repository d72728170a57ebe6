"""Waves, what belongs to which, and how large tables are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tableferry.fleet.queue.migrations.existing_objects import existing_objects

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_Time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")


def upgrade() -> None:
    """Create the missing columns, tables and indexes; MySQL keeps those of an interrupted run."""
    existing = existing_objects()
    for table in ("jobs", "jobs_archive"):
        for column in (
            sa.Column("wave", sa.String(100)),
            sa.Column("table_files", sa.Integer),
            sa.Column("table_bytes", sa.BigInteger),
            sa.Column("begun_at", _Time),
        ):
            if (table, column.name) not in existing:
                op.add_column(table, column)
    op.create_table(
        "waves",
        sa.Column("name", sa.String(100), primary_key=True),
        sa.Column("status", sa.String(30), nullable=False, server_default="planned"),
        sa.Column("reason", sa.String(512), nullable=False, server_default=""),
        sa.Column("tables_at_once", sa.Integer),
        sa.Column("bytes_an_hour", sa.BigInteger),
        sa.Column("hours", sa.String(30), nullable=False, server_default=""),
        sa.Column("time_zone", sa.String(30), nullable=False, server_default="UTC"),
        sa.Column("stop_percent", sa.Integer, nullable=False, server_default="10"),
        sa.Column("started_at", _Time),
        sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        if_not_exists=True,
    )
