"""The queue's tables, with a column for each field of `Job`, `Wave`, `NotificationRecord` and `Event`.

All stores build their statements from these tables. The SQL stores use SQLAlchemy's dialects; the Delta store
compiles statements and DDL to Spark SQL. Migrations create the tables in a database, so a new field needs a
migration. A test compares the result of the migrations with these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from datetime import datetime
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Date,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from tableferry.fleet.jobs.job import LONGEST_NAME, LONGEST_REASON, Job
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import LONGEST_WAVE, Wave
from tableferry.fleet.queue.dialects import Utc, utc_now
from tableferry.fleet.queue.records import Event, NotificationRecord

metadata = MetaData()

REVISION = "0007"
"""The newest revision in migrations/versions, which a queue must have."""

VERSION_TABLE = "tableferry_queue_version"
"""The table in which alembic stores the revision of a queue."""

# MySQL's default collation treats é and e, and A and a, as equal.
EXACT: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}

# An empty value is NULL, and never the JSON text 'null'.
_JSON = JSON(none_as_null=True)
_TYPES: Mapping[Any, TypeEngine[Any]] = {
    int: Integer(),
    bool: Boolean(),
    datetime: Utc(),
    tuple: _JSON,
    JobRecord: _JSON,
}
_BY_NAME: Mapping[str, TypeEngine[Any]] = {
    **dict.fromkeys(("catalog_name", "db_name", "tbl_name"), String(LONGEST_NAME)),
    **dict.fromkeys(("target_catalog", "target_schema"), String(LONGEST_NAME)),
    **dict.fromkeys(("data_category", "claimed_by", "worker", "message_id"), String(255)),
    **dict.fromkeys(("pause_reason", "reason"), String(LONGEST_REASON)),
    **dict.fromkeys(("wave", "name"), String(LONGEST_WAVE)),
    "table_bytes": BigInteger(),
    "shadow_watermark": Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb"),
}
_WORD = String(30)
# For rows that a user inserts by SQL.
_WRITTEN_NOW = ("created_at", "last_updated_time")


def _columns(record: type) -> list[Column[Any]]:
    """Return a column for each field; an empty value is NULL if the field's default is empty."""
    hints = get_type_hints(record)
    return [_column(field, hints[field.name]) for field in fields(record)]


def _column(field: Field[Any], hint: Any) -> Column[Any]:
    value_type = get_args(hint)[0] if NoneType in get_args(hint) else hint
    column_type = _BY_NAME.get(field.name) or _TYPES.get(get_origin(value_type) or value_type, _WORD)
    default = field.default if field.default_factory is MISSING else field.default_factory()
    if default in (None, (), JobRecord()):
        return Column(field.name, column_type)
    return Column(field.name, column_type, nullable=False, server_default=_in_sql(field.name, default))


def _in_sql(name: str, default: Any) -> Any:
    if name in _WRITTEN_NOW:
        return utc_now()
    if default is MISSING:
        return None
    return text(str(default).lower()) if isinstance(default, bool) else str(default)


# The number of columns of the first version's table; later versions add columns at the end.
FIRST_COLUMNS = tuple(Job.__dataclass_fields__).index("record") + 1


jobs = Table(
    "jobs",
    metadata,
    Column("task_id", Integer, primary_key=True, autoincrement=True),
    *_columns(Job)[1:],
    UniqueConstraint("catalog_name", "db_name", "tbl_name", name="uniq_name"),
    # Counts of the figures read only this index. If it began with archived_at, MySQL would read and sort all
    # jobs for each claim.
    Index("queued_jobs", "state", "desired_state", "migration_paused", "target_format", "archived_at"),
    Index("jobs_by_time", "created_at"),
    # As in other databases, the number of a deleted row isn't reused.
    sqlite_autoincrement=True,
    **EXACT,
)

waves = Table(
    "waves",
    metadata,
    Column("name", _BY_NAME["name"], primary_key=True),
    *_columns(Wave)[1:4],
    # A limit of earlier versions, whose queues have the column; it isn't read.
    Column("bytes_an_hour", BigInteger()),
    *_columns(Wave)[4:],
    **EXACT,
)

notifications = Table(
    "letters",
    metadata,
    Column("message_id", _BY_NAME["message_id"], primary_key=True),
    *_columns(NotificationRecord)[1:],
    **EXACT,
)

events = Table(
    "events",
    metadata,
    Column("event_id", Integer, primary_key=True, autoincrement=True),
    *_columns(Event)[:2],
    # The day of `at`: counts by day read only an index, and not all databases can index an expression.
    Column("day", Date, nullable=False),
    *_columns(Event)[2:],
    Index("events_by_time", "at"),
    Index("events_by_day", "day", "was", "state"),
    Index("events_by_job", "task_id", "at"),
    **EXACT,
)
