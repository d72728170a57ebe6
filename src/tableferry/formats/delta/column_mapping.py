"""Add column mapping to schemas, and find the column names that Delta accepts only with it.

See https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from tableferry.spark.types import Field, Struct, changed, walk

FEATURE = "columnMapping"

MODE, _HIGHEST = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_ID, _NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"

_UNFIT = frozenset(" ,;{}()\n\t=")


def mapped(schema: Struct) -> tuple[Struct, Mapping[str, str]]:
    """Add column ids to a schema, and its names as physical names, which are the names in the files.

    With column mapping, names may contain characters that Delta otherwise refuses: spaces, commas, brackets.

    Returns:
        The schema, and the table properties that it needs.
    """
    schema, highest = _with_ids(schema, 0)
    return schema, {MODE: "name", _HIGHEST: str(highest)}


def extended(schema: Struct, configuration: Mapping[str, str]) -> tuple[Struct, Mapping[str, str]]:
    """Add column ids to a table's new columns if the table has column mapping.

    Returns:
        The schema, and the table's properties.
    """
    if configuration.get(MODE, "none") == "none":
        return schema, configuration
    schema, highest = _with_ids(schema, int(configuration[_HIGHEST]))
    return schema, {**configuration, _HIGHEST: str(highest)}


def names(number: int, physical: str) -> dict[str, Any]:
    """Return the metadata that identifies a column: its id, and its name in the files."""
    return {_ID: number, _NAME: physical}


def physical(schema: Struct) -> Struct:
    """Return a schema with physical names, as in the log; in files too, unless columns are mapped by id."""
    return changed(schema, lambda column: replace(column, name=physical_name(column)))


def physical_name(column: Field) -> str:
    """Return the physical name of a column, which the log uses."""
    return str(column.metadata.get(_NAME, column.name))


def by_id(highest: int) -> dict[str, str]:
    """Return the properties of a table with column mapping by id; ``highest`` is its highest column id."""
    return {MODE: "id", _HIGHEST: str(highest)}


def _with_ids(schema: Struct, highest: int) -> tuple[Struct, int]:
    ids = count(highest + 1)

    def with_id(column: Field) -> Field:
        if _ID in column.metadata:
            return column
        return replace(column, metadata={**column.metadata, **names(next(ids), column.name)})

    return changed(schema, with_id), next(ids) - 1


def fits(name: str) -> bool:
    """Return whether Delta accepts a column name without column mapping."""
    return not _UNFIT & set(name)


def unfit(schema: Struct) -> Iterator[str]:
    """Yield the dotted paths of the columns that Delta accepts only with column mapping."""
    for path, data_type in walk(schema):
        if isinstance(data_type, Struct):
            names = (column.name for column in data_type.fields)
            yield from (".".join((*path, name)) for name in names if not fits(name))
