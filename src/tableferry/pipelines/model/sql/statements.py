"""Find the table names in the tokens of a SELECT, and replace them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot.dialects.databricks import Databricks
from sqlglot.errors import SqlglotError as SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

_BEFORE_A_TABLE = {TokenType.FROM, TokenType.JOIN}
_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}


@dataclass(frozen=True)
class Reference:
    """A table or view that a statement names.

    Attributes:
        parts: Its identifiers, without backticks and without a leading ``live``.
        streamed: The name is in ``STREAM(…)`` or after ``STREAM``.
        start: Index of the first character to replace, including ``STREAM(``.
        end: Index after the last character to replace.
    """

    parts: tuple[str, ...]
    streamed: bool
    start: int
    end: int


def find_references(statement: str) -> tuple[Reference, ...]:
    """Return the tables after FROM or JOIN and all streamed tables, in the order of the text."""
    tokens = Databricks().tokenize(statement)
    listed: list[Reference] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if _is_stream(tokens, position):
            opened = tokens[position + 1].token_type is TokenType.L_PAREN
            parts, after = _chain(tokens, position + (2 if opened else 1))
            closed = opened and after < len(tokens) and tokens[after].token_type is TokenType.R_PAREN
            if parts and opened == closed:
                last = after if closed else after - 1
                listed.append(_reference(parts, True, token.start, tokens[last].end + 1))
                position = last + 1
                continue
        elif position and tokens[position - 1].token_type in _BEFORE_A_TABLE:
            parts, after = _chain(tokens, position)
            called = after < len(tokens) and tokens[after].token_type is TokenType.L_PAREN
            if parts and not called:
                listed.append(_reference(parts, False, token.start, tokens[after - 1].end + 1))
                position = after
                continue
        position += 1
    return tuple(listed)


def replace_references(statement: str, names: Mapping[Reference, str]) -> str:
    """Return the statement with references replaced by names."""
    for reference, name in sorted(names.items(), key=lambda item: item[0].start, reverse=True):
        statement = statement[: reference.start] + name + statement[reference.end :]
    return statement


def _is_stream(tokens: list[Token], position: int) -> bool:
    token = tokens[position]
    return (
        token.text.upper() == "STREAM"
        and token.token_type is not TokenType.IDENTIFIER
        and position > 0
        and tokens[position - 1].token_type in {*_BEFORE_A_TABLE, TokenType.COMMA}
        and position + 1 < len(tokens)
    )


def _chain(tokens: list[Token], position: int) -> tuple[tuple[str, ...], int]:
    """Read ``a.b.c`` at a position; return its parts and the position after it."""
    parts: list[str] = []
    while position < len(tokens) and (_is_name(tokens[position]) or (parts and _is_word(tokens[position]))):
        parts.append(tokens[position].text)
        if position + 1 >= len(tokens) or tokens[position + 1].token_type is not TokenType.DOT:
            return tuple(parts), position + 1
        position += 2
    return (), position


def _is_name(token: Token) -> bool:
    # A keyword may be a table name (`FROM source.orders`), unless it starts a subquery or a clause.
    return token.token_type in _NAMES or (_is_word(token) and token.token_type not in _NOT_TABLES)


def _is_word(token: Token) -> bool:
    return token.text.replace("_", "a").isalnum() and not token.text[:1].isdigit()


_NOT_TABLES = {
    TokenType.SELECT, TokenType.WITH, TokenType.LATERAL, TokenType.VALUES, TokenType.UNNEST, TokenType.FROM,
    TokenType.JOIN, TokenType.STRING, TokenType.NUMBER,
}  # fmt: skip


def _reference(parts: tuple[str, ...], streamed: bool, start: int, end: int) -> Reference:
    if len(parts) > 1 and parts[0].lower() == "live":
        parts = parts[1:]
    return Reference(parts, streamed, start, end)
