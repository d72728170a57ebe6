"""Upgrades of a database's tables by alembic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, func, select

from tableferry.errors import Busy, ServiceError

_SCRIPTS = Path(__file__).with_name("migrations")
# Any number: PostgreSQL names locks by numbers.
_LOCK = 7_411_893_205
_WAIT_SECONDS = 300


def config() -> Config:
    """Return alembic's settings; the connection is in their attributes."""
    settings = Config()
    # A percent sign begins an interpolation.
    settings.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return settings


def upgrade(connection: Connection, to: str = "head") -> None:
    """Upgrade the tables to a revision, one process at a time, in the connection's transaction."""
    settings = config()
    settings.attributes["connection"] = connection
    with _exclusive(connection):
        try:
            command.upgrade(settings, to)
        except CommandError as error:
            url = connection.engine.url.render_as_string()
            raise ServiceError("QUEUE_REVISION_UNKNOWN", queue=url, reason=error) from error


@contextmanager
def _exclusive(connection: Connection) -> Iterator[None]:
    """Exclude other processes; SQLite's transaction does that already."""
    match connection.dialect.name:
        case "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            yield
        case "mysql":
            # DDL ends MySQL's transaction, and the lock belongs to the connection.
            name = func.concat("tableferry ", func.md5(func.database()))
            if connection.execute(select(func.get_lock(name, _WAIT_SECONDS))).scalar_one() != 1:
                url = connection.engine.url.render_as_string()
                raise Busy("QUEUE_UPGRADE_RUNNING", queue=url, seconds=_WAIT_SECONDS)
            try:
                yield
                # Commit the revision before the lock is released, so that a waiting process reads it.
                connection.exec_driver_sql("COMMIT")
            finally:
                connection.execute(select(func.release_lock(name)))
        case _:
            yield
