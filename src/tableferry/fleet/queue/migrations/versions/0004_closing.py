"""When what is left of a Hive table may be removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from tableferry.fleet.queue.migrations.existing_objects import existing_objects

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column if it is missing; MySQL keeps the changes of an interrupted run."""
    existing = existing_objects()
    time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    for table in ("jobs", "jobs_archive"):
        if (table, "close_at") not in existing:
            op.add_column(table, sa.Column("close_at", time))
