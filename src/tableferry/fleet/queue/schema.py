"""The queue's tables, and the one expression that databases don't agree on.

Every store builds its statements from these: the SQL stores through their SQLAlchemy dialects, the Delta
store by compiling them to text with named parameters, which Spark SQL takes as they are.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Dialect,
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
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.expression import ColumnClause
from sqlalchemy.types import DateTime, TypeDecorator

from tableferry.fleet.job import PauseReason, State, TargetFormat

metadata = MetaData()


class Utc(TypeDecorator[datetime]):
    """A time in UTC: aware in Python, without a zone in the database, to the microsecond."""

    impl = DateTime
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        """Ask MySQL for microseconds, which it leaves out by itself."""
        return mysql.DATETIME(fsp=6) if dialect.name in ("mysql", "mariadb") else DateTime()

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Take the zone off."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Put the zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class days_after(ColumnElement[datetime]):
    """A time and so many days, both columns."""

    inherit_cache = True
    type = Utc()

    def __init__(self, time: ColumnClause[Any], days: ColumnClause[Any]) -> None:
        self.time = time
        self.days = days


@compiles(days_after)
def _spark(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = compiler.process(element.time, **how), compiler.process(element.days, **how)
    return f"timestampadd(DAY, {days}, {time})"


@compiles(days_after, "sqlite")
def _sqlite(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = compiler.process(element.time, **how), compiler.process(element.days, **how)
    # SQLite's times are text; its own functions keep milliseconds, SQLAlchemy writes microseconds.
    return f"(strftime('%Y-%m-%d %H:%M:%S', {time}, '+' || {days} || ' days') || substr({time}, 20))"


@compiles(days_after, "mysql")
@compiles(days_after, "mariadb")
def _mysql(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = compiler.process(element.time, **how), compiler.process(element.days, **how)
    return f"({time} + INTERVAL {days} DAY)"


@compiles(days_after, "postgresql")
def _postgresql(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = compiler.process(element.time, **how), compiler.process(element.days, **how)
    return f"({time} + {days} * INTERVAL '1 day')"


def _columns() -> list[Column[Any]]:
    """Give the published columns in their order, and then ours."""
    flag = text("false")
    return [
        Column("catalog_name", String(30), nullable=False),
        Column("db_name", String(255), nullable=False),
        Column("tbl_name", String(255), nullable=False),
        Column("stg_format", String(30)),
        Column("data_category", String(255), nullable=False, server_default="UNKNOWN"),
        Column("tbl_owners", JSON),
        Column("downstream_users", JSON),
        Column("to_be_processed", Boolean, nullable=False, server_default=flag),
        Column("in_process", Boolean, nullable=False, server_default=flag),
        Column("state", String(30), nullable=False, server_default=State.UNDEFINED.value),
        Column("desired_state", String(30), nullable=False, server_default=State.UNDEFINED.value),
        Column("initial_gap_days", Integer, nullable=False, server_default="14"),
        Column("probation_gap_days", Integer, nullable=False, server_default="0"),
        Column("comm_level1_date", Utc),
        Column("comm_level2_date", Utc),
        Column("comm_level3_date", Utc),
        Column("shadow_watermark", Text),
        Column("migration_paused", Boolean, nullable=False, server_default=flag),
        Column("pause_reason", String(512), nullable=False, server_default=PauseReason.NONE.value),
        Column("shadow_status", String(30)),
        Column("created_at", Utc, nullable=False),
        Column("last_updated_time", Utc, nullable=False),
        Column("target_format", String(30), nullable=False, server_default=TargetFormat.ICEBERG.value),
        Column("revision", Integer, nullable=False, server_default="0"),
        Column("claimed_by", String(255)),
        Column("lease_until", Utc),
        Column("record", JSON),
    ]


jobs = Table(
    "jobs",
    metadata,
    Column("task_id", Integer, primary_key=True, autoincrement=True),
    *_columns(),
    UniqueConstraint("catalog_name", "db_name", "tbl_name", name="uniq_name"),
    Index("jobs_by_state", "state", "desired_state"),
)

jobs_archive = Table(
    "jobs_archive",
    metadata,
    Column("task_id", Integer, primary_key=True, autoincrement=False),
    *_columns(),
    Column("archived_at", Utc, nullable=False),
)

letters = Table(
    "letters",
    metadata,
    Column("message_id", String(255), primary_key=True),
    Column("level", Integer, nullable=False),
    Column("task_ids", JSON, nullable=False),
    Column("recipients", JSON, nullable=False),
    Column("recorded_at", Utc, nullable=False),
    Column("sent_at", Utc),
)

events = Table(
    "events",
    metadata,
    Column("event_id", Integer, primary_key=True, autoincrement=True),
    Column("task_id", Integer, nullable=False),
    Column("at", Utc, nullable=False),
    Column("was", String(30), nullable=False),
    Column("state", String(30), nullable=False),
    Column("desired_state", String(30), nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("pause_reason", String(512), nullable=False),
    Column("worker", String(255), nullable=False),
    Index("events_by_time", "at"),
    Index("events_by_job", "task_id", "at"),
)
