"""Serialize schemas as text, to send them from one process to another."""

from __future__ import annotations

import json
from typing import cast

from tableferry.formats.parquet.files import FileSchema, Leaf
from tableferry.spark import types
from tableferry.spark.types import Primitive, Struct


def to_text(schema: FileSchema) -> str:
    """Return a schema as text. Equal schemas have equal text."""
    columns = types.plain(schema.columns)
    leaves = [(leaf.path, types.plain(leaf.type)) for leaf in schema.leaves]
    return json.dumps([columns, leaves, sorted(schema.undecimal), sorted(schema.untyped)])


def from_text(text: str) -> FileSchema:
    """Return the schema that `to_text` serialized."""
    columns, leaves, undecimal, untyped = json.loads(text)
    return FileSchema(
        cast(Struct, types.typed(columns)),
        tuple(Leaf(tuple(path), cast(Primitive, types.typed(leaf))) for path, leaf in leaves),
        frozenset(map(tuple, undecimal)),
        frozenset(map(tuple, untyped)),
    )
