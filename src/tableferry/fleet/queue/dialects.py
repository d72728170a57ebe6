"""What databases don't agree on: times, and the few expressions over them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from sqlalchemy import ColumnElement, Date, Dialect, String, Text, literal_column
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


class text_before(FunctionElement[str]):
    """The part of a text before the first separator, or all of it."""

    inherit_cache = True
    type = String()

    def __init__(self, text: ColumnElement[str], separator: str) -> None:
        # PostgreSQL takes no two parameters for one expression of a GROUP BY.
        super().__init__(text, literal_column(f"'{separator}'"))


def code_of(reason: ColumnElement[str]) -> text_before:
    """Return the code of a pause reason, without the details after its colon."""
    return text_before(reason, ":")


class day_of(FunctionElement[date]):
    """The day of a time, in UTC."""

    inherit_cache = True
    type = Date()


class json_text(FunctionElement[str]):
    """A JSON column as a text to group by.

    A cast would give it the collation of MySQL's connection, which takes é for e and A for a.
    """

    inherit_cache = True
    type = Text()


class elements_of(FunctionElement[Any]):
    """A table of the elements of a JSON array, as texts in its only column."""

    inherit_cache = True
    name = "elements_of"


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
    text_before: {
        (): "substring_index({0}, {1}, 1)",
        ("sqlite",): "substr({0}, 1, instr({0} || {1}, {1}) - 1)",
        ("postgresql",): "split_part({0}, {1}, 1)",
    },
    day_of: {
        (): "date({0})",
        # Spark's own day is that of the session's time zone.
        ("spark",): "date_from_unix_date(CAST(floor(unix_micros({0}) / 86400000000) AS INT))",
        # SQLite's own date() reads a time and writes it again, which takes longer than the rest of a count.
        ("sqlite",): "substr({0}, 1, 10)",
    },
    json_text: {
        (): "{0}",
        ("postgresql",): "CAST({0} AS TEXT)",
    },
    elements_of: {
        (): "LATERAL explode(from_json({0}, 'array<string>'))",
        ("sqlite",): "json_each({0})",
        _MYSQL: (
            "JSON_TABLE({0}, '$[*]' COLUMNS (value TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$'))"
        ),
        ("postgresql",): "LATERAL (SELECT json_array_elements_text(CAST({0} AS JSON)) AS value)",
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
