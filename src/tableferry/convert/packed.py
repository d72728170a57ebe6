"""Footers as plain text, to be sent from one process to another or held by the hundred thousand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from tableferry.convert import types
from tableferry.convert.facts import Bounds, FileSchema, Leaf
from tableferry.convert.types import Leafy, Struct

# JSON text has none, and nor has a number.
_SEPARATOR = "\n"


def pack(bounds: Sequence[Bounds]) -> str:
    """Write bounds as text."""
    lows = [each[0] or "" for each in bounds]
    highs = [each[1] or "" for each in bounds]
    nulls = ["" if each[2] is None else str(each[2]) for each in bounds]
    return _SEPARATOR.join((*lows, *highs, *nulls))


def unpack(text: str) -> tuple[Bounds, ...]:
    """Read what `pack` wrote."""
    if not text:
        return ()
    parts = [each or None for each in text.split(_SEPARATOR)]
    count = len(parts) // 3
    nulls = [None if each is None else int(each) for each in parts[2 * count :]]
    return tuple(map(Bounds, parts[:count], parts[count : 2 * count], nulls))


def pack_schema(schema: FileSchema) -> str:
    """Write a schema as text, the same for equal ones."""
    columns = types.plain(schema.columns)
    leaves = [(each.path, types.plain(each.type)) for each in schema.leaves]
    return json.dumps([columns, leaves, sorted(schema.undecimal)])


def unpack_schema(text: str) -> FileSchema:
    """Read what `pack_schema` wrote."""
    columns, leaves, undecimal = json.loads(text)
    return FileSchema(
        cast(Struct, types.typed(columns)),
        tuple(Leaf(tuple(path), cast(Leafy, types.typed(leaf))) for path, leaf in leaves),
        frozenset(map(tuple, undecimal)),
    )
