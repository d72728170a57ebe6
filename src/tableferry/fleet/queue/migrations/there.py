"""What a database has already: MySQL keeps the first half of a revision that was broken off."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op


def there() -> set[tuple[str, str | None]]:
    """Return the columns and indexes of each table; none where statements are only printed."""
    if context.is_offline_mode():
        return set()
    found = sa.inspect(op.get_bind())
    return {
        (table, each["name"])
        for table in found.get_table_names()
        for each in (*found.get_columns(table), *found.get_indexes(table))
    }
