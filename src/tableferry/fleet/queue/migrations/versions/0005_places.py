"""In which catalog and schema a new table is made, and what its old name means then."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tableferry.fleet.queue.migrations.existing_objects import existing_objects

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the missing columns, tables and indexes; MySQL keeps those of an interrupted run."""
    existing = existing_objects()
    for table in ("jobs", "jobs_archive"):
        for column in (
            sa.Column("target_catalog", sa.String(255)),
            sa.Column("target_schema", sa.String(255)),
            sa.Column("old_name", sa.String(30)),
        ):
            if (table, column.name) not in existing:
                op.add_column(table, column)
