"""Finds what a view's text names: tables, and columns that are written with the name of their table.

The parser is sqlglot's, which isn't Spark's: whoever uses what is found here compares it with what Spark's
own parser finds (`tableferry.fleet.view_moves.spark_parser`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tableferry.errors import Refused
from tableferry.spark.quoting import unquote
from tableferry.spark.tables import TableName

_DIALECT = "spark"
# Functions whose arguments name tables, in ways that only Spark reads.
_NAMING = frozenset({"IDENTIFIER", "STREAM"})
# Spark reads files by a name of this kind: parquet.`/folder`.
_FORMATS = frozenset({"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text"})
_DOT = re.compile(r"\s*\.\s*")
_WORD = re.compile(r"`(?:[^`]|``)+`|\w+")
# One behind the other, for a SELECT may have several.
_HINTS = re.compile(r"/\*\+.*?\*/(?:\s*/\*\+.*?\*/)*", re.DOTALL)
_DOTTED = re.compile(rf"(?:{_WORD.pattern})(?:\.(?:{_WORD.pattern}))+")


class NotRewritable(Refused):
    """A view's text can't be rewritten; the message says why, and what to do."""


@dataclass(frozen=True)
class Span:
    """A part of a text, from a position up to another."""

    start: int
    end: int


@dataclass(frozen=True)
class Reference:
    """A table or view that a text reads.

    Attributes:
        name: Its name in full.
        span: Where it is written.
        node: The same in the text's tree.
        by_version: Whether an older version of it is read.
    """

    name: TableName
    span: Span
    node: exp.Table
    by_version: bool


@dataclass(frozen=True)
class Qualifier:
    """The name of a table before that of its column: ``sales.orders.`` or ``lake.sales.orders.``.

    Attributes:
        reference: The table.
        span: Where the table is written, without the last dot.
        length: Of how many parts.
        node: The column in the text's tree.
    """

    reference: Reference
    span: Span
    length: int
    node: exp.Column


@dataclass(frozen=True)
class Hinted:
    """A name with a schema in a hint, and the tables of its SELECT that it means: all that end so."""

    references: tuple[Reference, ...]
    span: Span


@dataclass(frozen=True)
class ViewText:
    """A view's text, and what it names.

    Attributes:
        text: From its first word to its last: Spark keeps no comment before or behind.
        tree: As it was parsed.
        sources: Every table that it names, those that a WITH defines too.
        references: The tables and views that it reads, in no order.
        qualifiers: What names one of these before a column.
        hinted: What names some of these in a hint.
    """

    text: str
    tree: exp.Expr
    sources: tuple[exp.Table, ...]
    references: tuple[Reference, ...]
    qualifiers: tuple[Qualifier, ...]
    hinted: tuple[Hinted, ...]


def parse(text: str, namespace: Sequence[str]) -> ViewText:
    """Find what a view's text names.

    Args:
        text: The query.
        namespace: The catalog and the schema that names without these mean; a catalog may have deeper ones.

    Raises:
        NotRewritable: It can't be parsed, or names tables in a way that can't be followed.
    """
    text, tree = parsed(text)
    for function in tree.find_all(exp.Anonymous):
        if (word := function.name.upper()) in _NAMING:
            raise NotRewritable("VIEW_NAMES_TABLE_BY_FUNCTION", function=word)
    tables = [table for table in tree.find_all(exp.Table) if not table.find_ancestor(exp.Hint)]
    references = tuple(
        reference for table in tables if (reference := _reference(text, table, namespace)) is not None
    )
    scopes = _scopes(tree, tables, references)
    return ViewText(
        text,
        tree,
        tuple(table for table in tables if not isinstance(table.this, exp.Func)),
        references,
        tuple(_qualifiers(text, tree, scopes)),
        tuple(_hinted(text, tree, scopes)),
    )


def parsed(text: str) -> tuple[str, exp.Expr]:
    """Return a text from its first word to its last, and its tree.

    Raises:
        NotRewritable: It isn't one query, as far as the parser knows.
    """
    try:
        tokens = sqlglot.tokenize(text, dialect=_DIALECT)
        # TABLE t, or f(TABLE(t)): the parser takes some of them for something else.
        if any(token.token_type.name == "TABLE" for token in tokens):
            raise NotRewritable("VIEW_NAMES_TABLE_BY_KEYWORD")
        text = text[tokens[0].start : tokens[-1].end + 1] if tokens else ""
        trees = sqlglot.parse(text, dialect=_DIALECT)
    except (SqlglotError, RecursionError) as error:
        why = str(error).partition("\n")[0].rstrip(". ") if str(error) else type(error).__name__
        raise NotRewritable("VIEW_NOT_PARSED", reason=why) from error
    [tree] = trees if len(trees) == 1 else [None]
    if not isinstance(tree, (exp.Query, exp.Values)):
        raise NotRewritable("VIEW_NOT_ONE_QUERY")
    return text, tree


def reads_files(name: TableName) -> bool:
    """Say whether a name is a format and a path, as in ``parquet.`/folder```."""
    return len(name.parts) == 2 and name.parts[0].lower() in _FORMATS and "/" in name.parts[1]


def _reference(text: str, table: exp.Table, namespace: Sequence[str]) -> Reference | None:
    """Return what a table's node names; None for a function's result, or what a WITH defines."""
    parts = table.parts
    if isinstance(parts[-1], exp.Func) or (len(parts) == 1 and _is_defined(table)):
        return None
    if not all(isinstance(part, exp.Identifier) for part in parts):
        raise NotRewritable("VIEW_TABLE_NAME_UNREADABLE", name=table.sql())
    span = _span(text, parts)
    name = TableName(tuple(part.name for part in parts))
    if len(name.parts) < 3 and not reads_files(name):
        if len(name.parts) == 1 and len(namespace) != 2:
            raise NotRewritable("VIEW_NAMESPACE_AMBIGUOUS", table=name, namespace=".".join(namespace))
        name = TableName((*namespace[: 3 - len(name.parts)], *name.parts))
    return Reference(name, span, table, by_version=bool(table.args.get("version") or table.args.get("when")))


def _is_defined(table: exp.Table) -> bool:
    """Say whether a WITH that holds where a table is named defines its name."""
    name = table.name.lower()
    node: exp.Expr = table
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.With):
            # A definition knows the earlier ones, and itself only where it's recursive.
            known = parent.expressions.index(node) + bool(parent.args.get("recursive"))
            if any(definition.alias.lower() == name for definition in parent.expressions[:known]):
                return True
            # So that those of the query around it aren't taken for known here.
            parent, node = parent.parent or parent, parent
            if parent is node:
                return False
        elif any(definition.alias.lower() == name for definition in _definitions(parent)):
            return True
        node = parent
    return False


def _definitions(query: exp.Expr) -> Sequence[exp.Expr]:
    definitions = query.args.get("with_")
    return definitions.expressions if isinstance(definitions, exp.With) else ()


@dataclass(frozen=True)
class _Scope:
    """What the FROM of a SELECT gives: tables without an alias, and all words that stand for a source."""

    tables: list[Reference]
    words: set[str]


def _qualifiers(text: str, tree: exp.Expr, scopes: dict[int, _Scope]) -> Iterator[Qualifier]:
    for column in tree.find_all(exp.Column):
        parts = column.parts
        if len(parts) < 3 or column.find_ancestor(exp.Hint):
            continue
        words = [part.name.lower() for part in parts]
        for scope in _around(column, scopes):
            if (found := _qualifying(words, scope)) is not None:
                reference, length = found
                yield Qualifier(reference, _span(text, parts[:length]), length, column)
                break
            if words[0] in scope.words:
                # An alias, and what follows are a column and its fields.
                break


def _qualifying(words: Sequence[str], scope: _Scope) -> tuple[Reference, int] | None:
    """Find the table that the first words of a column name, as Spark does: the longest name first."""
    for length in (3, 2):
        for reference in scope.tables if len(words) > length else ():
            name = [part.lower() for part in reference.name.parts]
            if len(name) == 3 and name[-length:] == list(words[:length]):
                return reference, length
    return None


def _scopes(
    tree: exp.Expr, tables: Sequence[exp.Table], references: Sequence[Reference]
) -> dict[int, _Scope]:
    """Return what each SELECT reads, by its node's id."""
    scopes: dict[int, _Scope] = {id(select): _Scope([], set()) for select in tree.find_all(exp.Select)}
    by_node = {id(reference.node): reference for reference in references}
    for source in (*tables, *tree.find_all(exp.Subquery, exp.Lateral, exp.Values)):
        select = source.find_ancestor(exp.Select)
        if select is None:
            continue
        scope = scopes[id(select)]
        if word := source.alias_or_name:
            scope.words.add(word.lower())
        if (reference := by_node.get(id(source))) is not None and not source.alias:
            scope.tables.append(reference)
    return scopes


def _around(column: exp.Column, scopes: dict[int, _Scope]) -> Iterator[_Scope]:
    """Give what the SELECTs around a column read, from within."""
    node: exp.Expr = column
    apart = in_query = False
    while (parent := node.parent) is not None:
        if isinstance(parent, exp.CTE):
            return
        if isinstance(parent, exp.Subquery):
            # Else it's a join in parentheses, and the column is in its condition.
            query = isinstance(node, (exp.Select, exp.SetOperation))
            in_query = node is parent.this and (query or (in_query and isinstance(node, exp.Subquery)))
        elif isinstance(parent, (exp.From, exp.Join)) and node is parent.this:
            # A query in a FROM doesn't see its neighbours, unless it's lateral.
            apart = isinstance(node, exp.Subquery) and in_query
        elif isinstance(parent, exp.Select):
            if not apart:
                yield scopes[id(parent)]
            apart = False
        node = parent


def _hinted(text: str, tree: exp.Expr, scopes: dict[int, _Scope]) -> Iterator[Hinted]:
    """Find names with a schema in hints, which mean what the FROM of the hint's own SELECT reads.

    A hint is one token for the parser, whose tree doesn't say where it's written: so the same text is parsed
    with a number in each hint.
    """
    tokens = sqlglot.tokenize(text, dialect=_DIALECT)
    starts = [token.start for token in tokens if token.token_type.name == "HINT"]
    spans = [Span(*match.span()) for start in starts if (match := _HINTS.match(text, start))]
    if not spans:
        return
    numbered = text
    for number, span in reversed([*enumerate(spans)]):
        numbered = f"{numbered[: span.start]}/*+ h{number} */{numbered[span.end :]}"
    selects = zip(tree.find_all(exp.Select), parsed(numbered)[1].find_all(exp.Select), strict=True)
    for select, with_number in selects:
        if (hint := with_number.args.get("hint")) is None:
            continue
        span = spans[int(hint.expressions[0].name[1:])]
        for match in _DOTTED.finditer(text, span.start, span.end):
            words = [unquote(word).lower() for word in _WORD.findall(match[0])]
            references = tuple(
                reference
                for reference in scopes[id(select)].tables
                if [part.lower() for part in reference.name.parts][-len(words) :] == words
            )
            if references:
                yield Hinted(references, Span(*match.span()))


def _span(text: str, parts: Sequence[exp.Expr]) -> Span:
    """Return where a name is written.

    Raises:
        NotRewritable: The parser doesn't say it rightly, or something is between its parts.
    """
    spans = [Span(part.meta.get("start", -1), part.meta.get("end", -2) + 1) for part in parts]
    written = [unquote(text[span.start : span.end]) for span in spans]
    gaps = (text[first.end : then.start] for first, then in pairwise(spans))
    if written != [part.name for part in parts] or not all(_DOT.fullmatch(gap) for gap in gaps):
        name = ".".join(part.name for part in parts)
        raise NotRewritable("VIEW_TABLE_NAME_NOT_REPLACEABLE", table=name)
    return Span(spans[0].start, spans[-1].end)
