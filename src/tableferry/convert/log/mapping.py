"""Names that Delta takes as they are, and those that it takes with column mapping alone.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from tableferry.types import Field, Struct, changed, walk

FEATURE = "columnMapping"

_UNFIT = frozenset(" ,;{}()\n\t=")


def mapped(schema: Struct) -> tuple[Struct, Mapping[str, str]]:
    """Give columns ids, and the names that they have in the files as physical names.

    With column mapping, names may hold what Delta doesn't take otherwise: spaces, commas, brackets.

    Returns:
        The schema, and the table's properties that go with it.
    """
    ids = count(1)

    def with_id(column: Field) -> Field:
        named = {"delta.columnMapping.id": next(ids), "delta.columnMapping.physicalName": column.name}
        return replace(column, metadata={**column.metadata, **named})

    schema = changed(schema, with_id)
    highest = str(next(ids) - 1)
    return schema, {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": highest}


def fits(name: str) -> bool:
    """Say whether Delta takes a column's name as it is."""
    return not _UNFIT & set(name)


def unfit(schema: Struct) -> Iterator[str]:
    """Yield the columns that Delta takes with column mapping alone, as dotted paths."""
    for path, data_type in walk(schema):
        if isinstance(data_type, Struct):
            names = (column.name for column in data_type.fields)
            yield from (".".join((*path, name)) for name in names if not fits(name))
