"""What databases don't agree on: times, and the few expressions over them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import Date, Dialect, String, Text
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import DateTime, TypeDecorator


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


class days_after(FunctionElement[datetime]):
    """A time and so many days of 24 hours, both columns."""

    inherit_cache = True
    type = Utc()


class code_of(FunctionElement[str]):
    """What stands before a text's first colon."""

    inherit_cache = True
    type = String()


class day_of(FunctionElement[date]):
    """The day of a time, in UTC."""

    inherit_cache = True
    type = Date()


LONGEST_KEY = 120
"""How many bytes a text has at most that MariaDB groups in memory."""


class _Key(TypeDecorator[str]):
    """A text that MySQL gives as bytes, filled up with zeros."""

    impl = Text
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:
        """Take the zeros off."""
        return value.rstrip(b"\0").decode() if isinstance(value, bytes) else value


class key_of(FunctionElement[str]):
    """A text to group by; MySQL gives an empty one for more than `LONGEST_KEY`."""

    inherit_cache = True
    type = _Key()


class utc_now(FunctionElement[datetime]):
    """The database's own time, for rows that are written by hand."""

    inherit_cache = True
    type = Utc()


def _parts(element: FunctionElement[Any], compiler: SQLCompiler, how: dict[str, Any]) -> list[str]:
    return [compiler.process(clause, **how) for clause in element.clauses]


@compiles(days_after)
def _days_after_spark(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = _parts(element, compiler, how)
    # Spark's own addition of days counts them in the session's time zone.
    return f"timestamp_micros(unix_micros({time}) + {days} * 86400000000L)"


@compiles(days_after, "sqlite")
def _days_after_sqlite(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = _parts(element, compiler, how)
    # SQLite's times are text; its own functions keep milliseconds, SQLAlchemy writes microseconds.
    return f"(strftime('%Y-%m-%d %H:%M:%S', {time}, {days} || ' days') || substr({time}, 20))"


@compiles(days_after, "mysql")
@compiles(days_after, "mariadb")
def _days_after_mysql(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = _parts(element, compiler, how)
    return f"({time} + INTERVAL {days} DAY)"


@compiles(days_after, "postgresql")
def _days_after_postgresql(element: days_after, compiler: SQLCompiler, **how: Any) -> str:
    time, days = _parts(element, compiler, how)
    return f"({time} + {days} * INTERVAL '1 day')"


@compiles(code_of)
def _code_of(element: code_of, compiler: SQLCompiler, **how: Any) -> str:
    (text,) = _parts(element, compiler, how)
    return f"substring_index({text}, ':', 1)"


@compiles(code_of, "sqlite")
def _code_of_sqlite(element: code_of, compiler: SQLCompiler, **how: Any) -> str:
    (text,) = _parts(element, compiler, how)
    return f"substr({text}, 1, instr({text} || ':', ':') - 1)"


@compiles(code_of, "postgresql")
def _code_of_postgresql(element: code_of, compiler: SQLCompiler, **how: Any) -> str:
    (text,) = _parts(element, compiler, how)
    return f"split_part({text}, ':', 1)"


@compiles(day_of)
def _day_of(element: day_of, compiler: SQLCompiler, **how: Any) -> str:
    (time,) = _parts(element, compiler, how)
    return f"date({time})"


@compiles(day_of, "spark")
def _day_of_spark(element: day_of, compiler: SQLCompiler, **how: Any) -> str:
    (time,) = _parts(element, compiler, how)
    # Spark's own day is that of the session's time zone.
    return f"date_from_unix_date(CAST(floor(unix_micros({time}) / 86400000000) AS INT))"


@compiles(day_of, "sqlite")
def _day_of_sqlite(element: day_of, compiler: SQLCompiler, **how: Any) -> str:
    (time,) = _parts(element, compiler, how)
    # Its own date() reads the time and writes it again, which takes longer than all the rest of a count.
    return f"substr({time}, 1, 10)"


@compiles(key_of)
def _key_of(element: key_of, compiler: SQLCompiler, **how: Any) -> str:
    (text,) = _parts(element, compiler, how)
    return text


@compiles(key_of, "mysql")
@compiles(key_of, "mariadb")
def _key_of_mysql(element: key_of, compiler: SQLCompiler, **how: Any) -> str:
    (text,) = _parts(element, compiler, how)
    # MariaDB groups by a text without a length on disk.
    return f"CASE WHEN length({text}) > {LONGEST_KEY} THEN '' ELSE CAST({text} AS BINARY({LONGEST_KEY})) END"


@compiles(utc_now, "sqlite")
def _utc_now_sqlite(element: utc_now, compiler: SQLCompiler, **how: Any) -> str:
    return "(strftime('%Y-%m-%d %H:%M:%f000', 'now'))"


@compiles(utc_now, "mysql")
@compiles(utc_now, "mariadb")
def _utc_now_mysql(element: utc_now, compiler: SQLCompiler, **how: Any) -> str:
    return "(utc_timestamp(6))"


@compiles(utc_now, "postgresql")
def _utc_now_postgresql(element: utc_now, compiler: SQLCompiler, **how: Any) -> str:
    return "(now() AT TIME ZONE 'utc')"
