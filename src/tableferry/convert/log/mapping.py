"""Names that Delta takes as they are, and those that it takes with column mapping alone.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count

from tableferry.convert.facts import ColumnPath
from tableferry.types import Array, DataType, Field, Map, Struct, changed

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


def unfit(schema: Struct, path: ColumnPath = ()) -> Iterator[str]:
    """Yield the columns that Delta takes with column mapping alone, as dotted paths."""
    for column in schema.fields:
        inner_path = (*path, column.name)
        if not fits(column.name):
            yield ".".join(inner_path)
        yield from _unfit_below(column.type, inner_path)


def _unfit_below(data_type: DataType, path: ColumnPath) -> Iterator[str]:
    match data_type:
        case Struct():
            yield from unfit(data_type, path)
        case Array():
            yield from _unfit_below(data_type.element, path)
        case Map():
            yield from _unfit_below(data_type.key, path)
            yield from _unfit_below(data_type.value, path)
        case _:
            pass
