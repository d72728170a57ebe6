"""The columns and indexes of a database: MySQL keeps the changes of an interrupted revision."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op


def existing_objects() -> set[tuple[str, str | None]]:
    """Return the columns and indexes of each table; none if the statements are only printed."""
    if context.is_offline_mode():
        return set()
    found = sa.inspect(op.get_bind())
    return {
        (table, each["name"])
        for table in found.get_table_names()
        for each in (*found.get_columns(table), *found.get_indexes(table))
    }
