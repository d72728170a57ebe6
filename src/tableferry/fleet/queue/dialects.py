"""What databases don't agree on: times, and the few expressions over them."""

from __future__ import annotations

from collections.abc import Mapping
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


_MYSQL = ("mysql", "mariadb")
_SQL: Mapping[type[FunctionElement[Any]], Mapping[tuple[str, ...], str]] = {
    days_after: {
        # Spark's own addition of days counts them in the session's time zone.
        (): "timestamp_micros(unix_micros({0}) + {1} * 86400000000L)",
        # SQLite's times are text; its own functions keep milliseconds, SQLAlchemy writes microseconds.
        ("sqlite",): "(strftime('%Y-%m-%d %H:%M:%S', {0}, {1} || ' days') || substr({0}, 20))",
        _MYSQL: "({0} + INTERVAL {1} DAY)",
        ("postgresql",): "({0} + {1} * INTERVAL '1 day')",
    },
    code_of: {
        (): "substring_index({0}, ':', 1)",
        ("sqlite",): "substr({0}, 1, instr({0} || ':', ':') - 1)",
        ("postgresql",): "split_part({0}, ':', 1)",
    },
    day_of: {
        (): "date({0})",
        # Spark's own day is that of the session's time zone.
        ("spark",): "date_from_unix_date(CAST(floor(unix_micros({0}) / 86400000000) AS INT))",
        # SQLite's own date() reads a time and writes it again, which takes longer than the rest of a count.
        ("sqlite",): "substr({0}, 1, 10)",
    },
    key_of: {
        (): "{0}",
        # MariaDB groups by a text without a length on disk.
        _MYSQL: (
            f"CASE WHEN length({{0}}) > {LONGEST_KEY} THEN '' ELSE CAST({{0}} AS BINARY({LONGEST_KEY})) END"
        ),
    },
    utc_now: {
        ("sqlite",): "(strftime('%Y-%m-%d %H:%M:%f000', 'now'))",
        _MYSQL: "(utc_timestamp(6))",
        ("postgresql",): "(now() AT TIME ZONE 'utc')",
    },
}
"""How dialects write these functions, with their arguments by number; no dialects stand for all others."""


def _compile(function: type[FunctionElement[Any]], dialects: tuple[str, ...], template: str) -> None:
    @compiles(function, *dialects)
    def write(element: FunctionElement[Any], compiler: SQLCompiler, **how: Any) -> str:
        return template.format(*(compiler.process(clause, **how) for clause in element.clauses))


for _function, _templates in _SQL.items():
    for _dialects, _template in _templates.items():
        _compile(_function, _dialects, _template)
