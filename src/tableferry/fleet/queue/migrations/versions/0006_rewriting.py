"""Whether a table's rows may be rewritten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tableferry.fleet.queue.migrations.existing_objects import existing_objects

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the missing columns, tables and indexes; MySQL keeps those of an interrupted run."""
    existing = existing_objects()
    for table in ("jobs", "jobs_archive"):
        if (table, "rewrite") not in existing:
            op.add_column(table, sa.Column("rewrite", sa.Boolean))
