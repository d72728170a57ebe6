"""Parse a view's query with sqlglot, list the tables that it reads, and write it with other names for them.

`catalog` compares what is written here with the old text, as Spark reads both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.optimizer.scope import traverse_scope

from tableferry.errors import Refused
from tableferry.spark.tables import TableName

# Spark reads files by a name of this kind: parquet.`/folder`.
_FORMATS = frozenset({"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text"})
_DATES = [kind for kind in exp.DType if kind.name.startswith(("DATE", "TIMESTAMP"))]


def _date_literal(_: Any, literal: exp.Expr, kind: exp.DataType) -> exp.Expr:
    return exp.Introducer(this=kind, expression=literal)


class Verbatim(Spark):
    """Spark's dialect without sqlglot's replacements of functions, literals and joins by equivalent ones."""

    class Tokenizer(Spark.Tokenizer):
        """Keep ``1L``."""

        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        """Keep functions, ``FROM a, b`` and ``DATE '2026-01-31'``."""

        FUNCTIONS: ClassVar[Mapping[str, Any]] = {}
        JOINS_HAVE_EQUAL_PRECEDENCE = False
        TYPE_LITERAL_PARSERS: ClassVar[Mapping[Any, Any]] = dict.fromkeys(_DATES, _date_literal)

    class Generator(Spark.Generator):  # type: ignore[misc, valid-type]
        """Keep a nested WITH where it is."""

        EXPRESSIONS_WITHOUT_NESTED_CTES: ClassVar[set[type[exp.Expr]]] = set()


class NotMovable(Refused):
    """A view can't be created with the new names of its tables."""


def list_tables(text: str, namespace: Sequence[str]) -> list[TableName]:
    """Return the full names of the tables and views that a query reads.

    Args:
        text: The query.
        namespace: The catalog and the schema of names without these.

    Raises:
        NotMovable: The query can't be parsed, or names a table in a way that only Spark can follow.
    """
    return [_full_name(table, namespace) for table in _tables(_parse(text))]


def with_names(text: str, namespace: Sequence[str], new_name: Callable[[TableName], TableName]) -> str:
    """Return a query with the new name of each table in full; its layout changes.

    Columns and hints that name a table with its schema (``sales.orders.id``) lose the schema.

    Raises:
        NotMovable: The query can't be parsed, or reads an older version of a table that has a new name.
    """
    tree = _parse(text)
    known: set[tuple[str, ...]] = set()
    for table in _tables(tree):
        old = _full_name(table, namespace)
        if reads_files(old):
            continue
        new = new_name(old)
        if new.key != old.key and (table.args.get("version") or table.args.get("when")):
            raise NotMovable("VIEW_READS_OLD_VERSION", table=old, new_table=new)
        if not table.alias:
            parts = tuple(map(str.lower, old.parts))
            known |= {parts, parts[1:]}
        if new.key != old.key or len(table.parts) < 3:
            for place, part in zip(("catalog", "db", "this"), new.parts, strict=True):
                table.set(place, exp.to_identifier(part, quoted=True))
    _shorten(tree, known)
    try:
        return tree.sql(Verbatim, pretty=True, normalize_functions=False, unsupported_level=ErrorLevel.RAISE)
    except (SqlglotError, RecursionError) as error:
        raise _not_parsed(error) from error


def reads_files(name: TableName) -> bool:
    """Return whether a name is a format and a path, as in ``parquet.`/folder```."""
    return len(name.parts) == 2 and name.parts[0].lower() in _FORMATS and "/" in name.parts[1]


def _parse(text: str) -> exp.Expr:
    try:
        words = {token.token_type.name for token in sqlglot.tokenize(text, dialect=Verbatim)}
        trees = sqlglot.parse(text, dialect=Verbatim)
    except (SqlglotError, RecursionError) as error:
        raise _not_parsed(error) from error
    [tree] = trees if len(trees) == 1 else [None]
    called = {function.name.upper() for function in tree.find_all(exp.Anonymous)} if tree else set()
    # sqlglot parses TABLE t, and f(TABLE(t)), as something else.
    if found := (words & {"TABLE"}) | (called & {"IDENTIFIER", "STREAM"}):
        raise NotMovable("VIEW_NAMES_TABLE_INDIRECTLY", word=min(found))
    if not isinstance(tree, exp.Query | exp.Values):
        raise NotMovable("VIEW_NOT_ONE_QUERY")
    return tree


def _not_parsed(error: Exception) -> NotMovable:
    reason = str(error).partition("\n")[0].rstrip(". ") or type(error).__name__
    return NotMovable("VIEW_NOT_PARSED", reason=reason)


def _tables(tree: exp.Expr) -> list[exp.Table]:
    """Return the tables and views that a query reads, without those that a WITH defines."""
    try:
        # Spark compares names without case, and sqlglot's scopes don't.
        lower = normalize_identifiers(tree.copy(), dialect=Verbatim)
        defined = {
            id(table)
            for scope in traverse_scope(lower)
            for table in scope.tables
            if not table.db and table.name in scope.cte_sources
        }
        pairs = zip(tree.find_all(exp.Table), lower.find_all(exp.Table), strict=True)
        return [
            table
            for table, same in pairs
            if id(same) not in defined
            and not isinstance(table.this, exp.Func)
            and not table.find_ancestor(exp.Hint)
        ]
    except (SqlglotError, RecursionError) as error:
        raise _not_parsed(error) from error


def _full_name(table: exp.Table, namespace: Sequence[str]) -> TableName:
    if not all(isinstance(part, exp.Identifier) for part in table.parts):
        raise NotMovable("VIEW_TABLE_NAME_UNREADABLE", name=table.sql())
    name = TableName(tuple(part.name for part in table.parts))
    if reads_files(name) or len(name.parts) > 2:
        return name
    if len(name.parts) == 1 and len(namespace) != 2:
        raise NotMovable("VIEW_NAMESPACE_AMBIGUOUS", table=name, namespace=".".join(namespace))
    return TableName((*namespace[: 3 - len(name.parts)], *name.parts))


def _shorten(tree: exp.Expr, known: set[tuple[str, ...]]) -> None:
    """Remove the schema and the catalog of these tables from columns and hints: the last word still fits."""
    for column in [*tree.find_all(exp.Column)]:
        words = tuple(part.name.lower() for part in column.parts)
        for length in (3, 2):
            if len(words) > length and words[:length] in known:
                rest = reversed(column.parts[length - 1 :])
                column.replace(
                    exp.Column(**dict(zip(("this", "table", "db", "catalog"), rest, strict=False)))
                )
                break
    for table in tree.find_all(exp.Table):
        if table.find_ancestor(exp.Hint) and tuple(part.name.lower() for part in table.parts) in known:
            table.set("db", None)
            table.set("catalog", None)
