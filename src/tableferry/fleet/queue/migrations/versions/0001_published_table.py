"""The table of jobs as Netflix published it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tableferry.fleet.queue.dialects import utc_now

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_Time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
_False = sa.text("false")


def upgrade() -> None:
    """Make it, unless a run that was broken off has."""
    op.create_table(
        "jobs",
        sa.Column("task_id", sa.Integer, primary_key=True, autoincrement=True),
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
        sa.UniqueConstraint("catalog_name", "db_name", "tbl_name", name="uniq_name"),
        sqlite_autoincrement=True,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mysql_collate="utf8mb4_bin",
        if_not_exists=True,
    )
