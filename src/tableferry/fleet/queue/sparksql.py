"""Compile SQLAlchemy's statements to Spark SQL, and convert rows to and from Spark."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Boolean, ClauseElement, Column, Integer, Table
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import GenericTypeCompiler, IdentifierPreparer, SQLCompiler

from tableferry.fleet.queue.dialects import Utc
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# A colon in a quoted name or a text doesn't begin a parameter.
_PARAMETER = re.compile(r"`[^`]*`|'[^']*'|(?<![:\w]):([A-Za-z_]\w*)")
_PLAIN = re.compile(r"[A-Za-z0-9_ .,:;@/+=<>()-]*")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Compiler(SQLCompiler):
    def visit_table(  # type: ignore[override]
        self, table: Table, asfrom: bool = False, **how: Any
    ) -> str:
        """Return a table with its schema in FROM, and only its name in conditions."""
        if not asfrom:
            return str(super().visit_table(table, asfrom=False, **how))  # type: ignore[no-untyped-call]
        schema: TableName | None = self.dialect.schema  # type: ignore[attr-defined]
        if schema is None:
            return str(table.name)
        return f"{TableName((*schema.parts, table.name)).sql} AS {table.name}"

    def visit_table_valued_alias(self, element: Any, **how: Any) -> str:
        """Return a table-valued function with the name of its column."""
        text = str(super().visit_table_valued_alias(element, **how))  # type: ignore[no-untyped-call]
        [name] = element.c.keys()
        return f"{text}({name})" if how.get("asfrom") else text

    def render_literal_value(self, value: Any, type_: Any, **how: Any) -> str:
        """Return a literal that every version of Spark reads."""
        if isinstance(value, str):
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        return super().render_literal_value(value, type_, **how)


class _Types(GenericTypeCompiler):
    def visit_TEXT(self, type_: Any, **how: Any) -> str:
        """Return Spark's type for text."""
        return "STRING"

    visit_VARCHAR = visit_JSON = visit_TEXT

    def visit_DATETIME(self, type_: Any, **how: Any) -> str:
        """Return Spark's type for a time."""
        return "TIMESTAMP"

    def visit_INTEGER(self, type_: Any, **how: Any) -> str:
        """Return Spark's type for a number of 32 bits."""
        return "INT"


class _Names(IdentifierPreparer):
    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect, initial_quote="`")


class SparkDialect(DefaultDialect):
    """Spark SQL, with tables in a schema, or with unqualified names."""

    name = "spark"
    statement_compiler = _Compiler
    type_compiler_cls = _Types
    preparer = _Names  # type: ignore[assignment]
    supports_native_boolean = True
    default_paramstyle = "named"

    def __init__(self, schema: TableName | None = None) -> None:
        super().__init__(paramstyle="named")
        self.schema = schema

    def written(self, clause: ClauseElement) -> tuple[str, dict[str, Any]]:
        """Return the text of a statement or a condition, and its parameters by their names."""
        compiled = clause.compile(dialect=self, compile_kwargs={"render_postcompile": True})
        return str(compiled), dict(compiled.params)

    def readable(self, clause: ClauseElement) -> str:
        """Return the text of a statement with literal values, for display."""
        text = str(clause.compile(dialect=self, compile_kwargs={"literal_binds": True}))
        return "\n".join(line.rstrip() for line in text.splitlines())


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows with times in UTC; `collect` would return them in the machine's time zone."""
    times = {column.name for column in frame.schema if column.dataType.typeName() == "timestamp"}
    columns = [
        f"unix_micros(`{name}`) AS `{name}`" if name in times else f"`{name}`" for name in frame.columns
    ]
    result = [row.asDict() for row in frame.selectExpr(*columns).collect()]
    for row in result:
        for name in times:
            if row[name] is not None:
                row[name] = _EPOCH + timedelta(microseconds=row[name])
    return result


def bound(text: str, given: Mapping[str, Any]) -> str:
    """Return a statement with literals instead of parameters.

    Delta's parser loses Spark's own parameters on Spark 4.1 (delta-io/delta, issue 7640), and a Spark Connect
    server loses those of queries even with the setting that binds them later.
    """

    def value_of(match: re.Match[str]) -> str:
        return match[0] if match[1] is None else _literal(given[match[1]])

    return _PARAMETER.sub(value_of, text)


def _literal(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool() as flag:
            return "true" if flag else "false"
        case int() as number:
            return str(number)
        case datetime() as time:
            return f"timestamp_micros({(time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)})"
        case date() as day:
            return f"DATE '{day.isoformat()}'"
        case str() as text if _PLAIN.fullmatch(text):
            return f"'{text}'"
        case str() as text:
            # A setting decides about escapes in literals.
            return f"CAST(unbase64('{base64.b64encode(text.encode()).decode()}') AS STRING)"
        case list() | tuple() | dict():
            return _literal(json.dumps(value))
        case other:
            raise TypeError(f"{type(other).__name__} can't be written into a statement")


def in_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as a JSON parameter, which `source` reads: a time is a number, a value of JSON a text.

    This works in any kind of session, also through Spark Connect.
    """
    return json.dumps([{name: _value(value) for name, value in row.items()} for row in rows])


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def source(columns: Iterable[Column[Any]], *more: str) -> str:
    """Return the query that reads rows from the parameter ``:new``, which `in_json` writes.

    A time is a BIGINT of microseconds, which `read` converts; a value of JSON stays a text.

    Args:
        columns: Columns of a table.
        more: Further columns, each with its name and type, such as ``author STRING``.
    """
    shape = ", ".join([*(f"{column.name} {_json_type(column)}" for column in columns), *more])
    return f"SELECT inline(from_json(:new, 'ARRAY<STRUCT<{shape}>>'))"


def _json_type(column: Column[Any]) -> str:
    match column.type:
        case Integer() | Utc():
            return "BIGINT"
        case Boolean():
            return "BOOLEAN"
        case _:
            return "STRING"


def read(columns: Iterable[Column[Any]], alias: str) -> dict[str, str]:
    """Return the expressions that read the columns from the rows of `source`."""
    return {
        column.name: f"timestamp_micros({alias}.{column.name})"
        if isinstance(column.type, Utc)
        else f"{alias}.{column.name}"
        for column in columns
    }
