"""Names that Delta takes as they are, and those that it takes with column mapping alone.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from tableferry.types import Field, Struct, changed, walk

FEATURE = "columnMapping"

MODE, _HIGHEST = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_ID, _NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"

_UNFIT = frozenset(" ,;{}()\n\t=")


def mapped(schema: Struct) -> tuple[Struct, Mapping[str, str]]:
    """Give columns ids, and the names that they have in the files as physical names.

    With column mapping, names may hold what Delta doesn't take otherwise: spaces, commas, brackets.

    Returns:
        The schema, and the table's properties that go with it.
    """
    schema, highest = _with_ids(schema, 0)
    return schema, {MODE: "name", _HIGHEST: str(highest)}


def extended(schema: Struct, configuration: Mapping[str, str]) -> tuple[Struct, Mapping[str, str]]:
    """Give new columns of a table ids too, if its columns have them; arguments and result as of `mapped`."""
    if configuration.get(MODE, "none") == "none":
        return schema, configuration
    schema, highest = _with_ids(schema, int(configuration[_HIGHEST]))
    return schema, {**configuration, _HIGHEST: str(highest)}


def names(number: int, physical: str) -> dict[str, Any]:
    """Return the metadata by which a column is found, by its id or by its name in the files."""
    return {_ID: number, _NAME: physical}


def physical(schema: Struct) -> Struct:
    """Return a schema with the names that its columns have in the log, and in files where names find them."""
    return changed(schema, lambda column: replace(column, name=physical_name(column)))


def physical_name(column: Field) -> str:
    """Return the name that a column has in the log."""
    return str(column.metadata.get(_NAME, column.name))


def by_id(highest: int) -> dict[str, str]:
    """Return the properties of a table whose columns are found by ids, of which this is the highest."""
    return {MODE: "id", _HIGHEST: str(highest)}


def _with_ids(schema: Struct, highest: int) -> tuple[Struct, int]:
    ids = count(highest + 1)

    def with_id(column: Field) -> Field:
        if _ID in column.metadata:
            return column
        return replace(column, metadata={**column.metadata, **names(next(ids), column.name)})

    return changed(schema, with_id), next(ids) - 1


def fits(name: str) -> bool:
    """Say whether Delta takes a column's name as it is."""
    return not _UNFIT & set(name)


def unfit(schema: Struct) -> Iterator[str]:
    """Yield the columns that Delta takes with column mapping alone, as dotted paths."""
    for path, data_type in walk(schema):
        if isinstance(data_type, Struct):
            names = (column.name for column in data_type.fields)
            yield from (".".join((*path, name)) for name in names if not fits(name))
