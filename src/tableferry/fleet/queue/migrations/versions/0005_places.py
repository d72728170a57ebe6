"""In which catalog and schema a new table is made, and what its old name means then."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tableferry.fleet.queue.migrations.there import there

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make what isn't there; MySQL keeps the first half of a run that was broken off."""
    existing = there()
    for table in ("jobs", "jobs_archive"):
        for column in (
            sa.Column("target_catalog", sa.String(255)),
            sa.Column("target_schema", sa.String(255)),
            sa.Column("old_name", sa.String(30)),
        ):
            if (table, column.name) not in existing:
                op.add_column(table, column)
