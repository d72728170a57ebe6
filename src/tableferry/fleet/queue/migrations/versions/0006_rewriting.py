"""Whether a table's rows may be rewritten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from tableferry.fleet.queue.migrations.there import there

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make what isn't there; MySQL keeps the first half of a run that was broken off."""
    existing = there()
    for table in ("jobs", "jobs_archive"):
        if (table, "rewrite") not in existing:
            op.add_column(table, sa.Column("rewrite", sa.Boolean))
