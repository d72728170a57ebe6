"""Open the queue at a URL."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError

from tableferry import storage, workspace
from tableferry.errors import InputError, MissingPackage
from tableferry.extras import install
from tableferry.fleet import secrets
from tableferry.fleet.queue.delta import DeltaStore
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.queue.store import Store
from tableferry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD_VARIABLE = "TABLEFERRY_FLEET_STORE_PASSWORD"

_DELTA = "delta:"
_DRIVERS = {
    "sqlite": "sqlite",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
}
# Options of the drivers that contain a password.
_PASSWORD_OPTIONS = ("password", "passwd")
_CONNECT_SECONDS = 10
# How long SQLite waits for another transaction. Most take milliseconds; `add` and `archive` take longer.
_SQLITE_SECONDS = 60


def open_store(
    url: str,
    spark: SparkSession | None = None,
    *,
    resolve: Callable[[], SparkSession] = session.resolve,
    password_secret: str = "",
) -> Store:
    """Open the queue at a URL; only `Store.create` creates tables.

    Args:
        url: ``delta:catalog.schema``, ``sqlite:///file``, ``mysql://user@host/database`` or
            ``postgresql://user@host/database``, with SQLAlchemy's options; Databricks Lakebase is a
            PostgreSQL that needs ``?sslmode=require``. Without a password, the URL gets the one of
            ``TABLEFERRY_FLEET_STORE_PASSWORD``, or a secret.
        spark: The session for a queue in Delta tables.
        resolve: Returns a session if `spark` is None.
        password_secret: A secret of the workspace, ``scope/key``.

    Raises:
        TableferryError: The URL is invalid, its driver isn't installed, or the secret can't be read.
    """
    if url.startswith(_DELTA):
        return DeltaStore(spark if spark is not None else resolve(), url.removeprefix(_DELTA))
    return SqlStore(_engine(_parsed(url, password_secret)))


def _parsed(text: str, password_secret: str) -> URL:
    try:
        url = make_url(text)
        driver = _DRIVERS[url.drivername.split("+")[0]]
    except (ArgumentError, ValueError, KeyError) as error:
        raise InputError("QUEUE_ADDRESS_INVALID", text=_without_password(text)) from error
    for option in _PASSWORD_OPTIONS if driver != "sqlite" else ():
        # SQLAlchemy leaves out the password of a URL in messages, but not the one of an option.
        if isinstance(password := url.query.get(option), str):
            url = url.difference_update_query([option]).set(password=password)
    if driver != "sqlite" and url.password is None:
        password = os.environ.get(PASSWORD_VARIABLE)
        if not password and password_secret:
            password = secrets.read(
                password_secret, setting="store_password_secret", purpose="the queue's password"
            )
        if password:
            url = url.set(password=password)
    return url.set(drivername=driver)


def _without_password(text: str) -> str:
    return text.rsplit("@", 1)[-1].partition("?")[0]


def _engine(url: URL) -> Engine:
    settings: dict[str, Any] = {"pool_pre_ping": True}
    match url.get_backend_name():
        case "sqlite":
            _require_file(url)
            _require_random_writes(url)
            settings = {"connect_args": {"timeout": _SQLITE_SECONDS, "check_same_thread": False}}
        case "mysql":
            # At the default level, claims would also lock rows that they only read.
            settings |= {"isolation_level": "READ COMMITTED"}
            settings |= {"connect_args": {"connect_timeout": _CONNECT_SECONDS}}
        case _:
            settings |= {
                "connect_args": {"connect_timeout": _CONNECT_SECONDS, "application_name": "tableferry"}
            }
    try:
        engine = create_engine(url, **settings)
    except ModuleNotFoundError as error:
        raise MissingPackage(
            "MISSING_DRIVER_FOR_QUEUE",
            queue=url.render_as_string(),
            package=error.name,
            command=install("fleet"),
        ) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _require_file(url: URL) -> None:
    """Refuse a SQLite database in memory, which ends with the command that creates it."""
    if url.database in (None, "", ":memory:"):
        raise InputError("QUEUE_IN_MEMORY", queue=url.render_as_string())


def _require_random_writes(url: URL) -> None:
    """Refuse a SQLite file in a volume of a cluster, because only whole files can be written there."""
    mounted = os.environ.get(workspace.RUNTIME_VARIABLE) is not None
    if mounted and url.database and storage.is_shared(Path(url.database).absolute()):
        raise InputError("QUEUE_IN_VOLUME", file=url.database)


def _set_up_sqlite(connection: Any, record: object) -> None:
    """Allow reads during a write, and commits that don't wait for the disk.

    A killed process loses no commit. A crash of the machine can lose the last commits, but the file stays
    valid. The queue is then in an earlier state, as after a kill of each worker before it saved, and the next
    run continues from it.
    """
    # Python's transactions begin late, so two could begin to write concurrently.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")


def _begin_sqlite(connection: Connection) -> None:
    reads_only = connection.get_execution_options().get("reads_only", False)
    connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")
