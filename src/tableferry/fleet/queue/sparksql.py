"""SQLAlchemy's statements as Spark SQL reads them, and the rows that come back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import ClauseElement, Table
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.sql.compiler import GenericTypeCompiler, IdentifierPreparer, SQLCompiler

from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Compiler(SQLCompiler):
    def visit_table(  # type: ignore[override]
        self, table: Table, asfrom: bool = False, **how: Any
    ) -> str:
        """Write a table with its schema where it is read, and by its name alone in conditions."""
        if not asfrom:
            return str(super().visit_table(table, asfrom=False, **how))  # type: ignore[no-untyped-call]
        schema: TableName = self.dialect.schema  # type: ignore[attr-defined]
        return f"{TableName((*schema.parts, table.name)).sql} AS {table.name}"


class _Types(GenericTypeCompiler):
    def visit_TEXT(self, type_: Any, **how: Any) -> str:
        """Give Spark's word for any text."""
        return "STRING"


class _Names(IdentifierPreparer):
    def __init__(self, dialect: Any) -> None:
        super().__init__(dialect, initial_quote="`")


class SparkDialect(DefaultDialect):
    """Spark SQL, with tables in a schema."""

    name = "spark"
    statement_compiler = _Compiler
    type_compiler_cls = _Types
    preparer = _Names  # type: ignore[assignment]
    supports_native_boolean = True
    default_paramstyle = "named"

    def __init__(self, schema: TableName) -> None:
        super().__init__(paramstyle="named")
        self.schema = schema

    def written(self, clause: ClauseElement) -> tuple[str, dict[str, Any]]:
        """Return a statement's or a condition's text, and its parameters by their names."""
        compiled = clause.compile(dialect=self, compile_kwargs={"render_postcompile": True})
        return str(compiled), arguments(compiled.params)


def arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as Spark's parameters: lists and mappings as JSON, times with their zone."""
    return {name: _argument(value) for name, value in values.items()}


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows, with times in UTC: by themselves they come in the machine's time zone."""
    times = {each.name for each in frame.schema if each.dataType.typeName() == "timestamp"}
    columns = [
        f"unix_micros(`{name}`) AS `{name}`" if name in times else f"`{name}`" for name in frame.columns
    ]
    found = [row.asDict() for row in frame.selectExpr(*columns).collect()]
    for row in found:
        for name in times:
            if row[name] is not None:
                row[name] = _EPOCH + timedelta(microseconds=row[name])
    return found


def _argument(value: Any) -> Any:
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value
