"""What alembic runs: in the connection it is given, or to print the statements for a database's URL."""

from __future__ import annotations

from alembic import context

from tableferry.fleet.queue.schema import VERSION_TABLE, metadata

_connection = context.config.attributes.get("connection")

context.configure(
    connection=_connection,
    url=context.config.get_main_option("sqlalchemy.url") if _connection is None else None,
    target_metadata=metadata,
    # Another program in the same database may have alembic's own.
    version_table=VERSION_TABLE,
)

with context.begin_transaction():
    context.run_migrations()
