"""The ``stats`` of a file in Delta's log, from its footer.

They cover the columns that Delta itself would: the first 32 leaves of the table's schema without its
partition columns, where an array or a map counts as one and a struct as its fields
(``StatisticsCollection.truncateSchema``). Of arrays and maps a footer doesn't say how many are null; of a
column that the file lacks, all are.

Spark, DataFusion and the protocol take a bound that's left out for unknown. deltalake's
`to_pyarrow_dataset` (1.6.6) takes it for a bound that nothing satisfies, and loses rows by a filter on such
a column; so it does with the booleans of a table that Spark has written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from json import JSONEncoder
from typing import NamedTuple, TypeAlias

from tableferry import types
from tableferry.convert.facts import FileSchema, Footer
from tableferry.convert.merging import widens
from tableferry.types import DataType, Struct

# delta.dataSkippingNumIndexedCols, unless a table says otherwise.
INDEXED = 32

_UNBOUNDED = (types.BOOLEAN, types.BINARY, types.VARIANT)
_quote = JSONEncoder(ensure_ascii=False).encode

_Path: TypeAlias = tuple[str, ...]


class _Node(NamedTuple):
    """A key of the JSON: with a place in the list of values, or with keys of its own."""

    key: str
    place: int
    inner: tuple[_Node, ...] = ()


class _Template(NamedTuple):
    """What the files of one schema have in common."""

    bounded: tuple[_Node, ...]
    counted: tuple[_Node, ...]
    days: tuple[int, ...]


def with_statistics(table: Struct, partitions: Collection[str] = (), indexed: int = INDEXED) -> Struct:
    """Return the part of a table's columns that gets statistics.

    Args:
        table: The table's columns.
        partitions: Names of those among them that directories' names give.
        indexed: How many leaves get statistics; all if it's negative.
    """
    apart = {name.lower() for name in partitions}
    columns = Struct(tuple(each for each in table.fields if each.name.lower() not in apart))
    return _first(columns, indexed if indexed >= 0 else -1)[0]


def statistics_json(
    table: Struct, partitions: Collection[str] = (), indexed: int = INDEXED
) -> Callable[[Footer], str]:
    """Make the function that writes a file's ``stats``.

    It keeps what files of one schema have in common: for each file only strings are joined.

    Args:
        table: The table's columns.
        partitions: Names of those among them that directories' names give.
        indexed: How many leaves get statistics; all if it's negative.

    Returns:
        A function from a footer, read with its statistics, to JSON. The log has to hold its characters as
        they are: deltalake (1.6.6) reads the escapes of U+100000 and above, which end cut strings, as
        something lower.
    """
    chosen = with_statistics(table, partitions, indexed)
    # The schema is kept with its template, so that its id stays its own.
    templates: dict[int, tuple[FileSchema, _Template]] = {}

    def written(footer: Footer) -> str:
        schema = footer.schema
        found = templates.get(id(schema))
        if found is None:
            found = templates[id(schema)] = (schema, _template(chosen, schema))
        bounded, counted, days = found[1]
        lows, highs, nulls = footer.unpacked
        for place in days:
            lows[place], highs[place] = _midnight(lows[place]), _midnight(highs[place])
        # What a file lacks is at the end of the list: null in every row.
        nulls.append(str(footer.rows))
        text = f'{{"numRecords":{footer.rows}'
        if section := _section(bounded, lows):
            text += f',"minValues":{{{section}}}'
        if section := _section(bounded, highs):
            text += f',"maxValues":{{{section}}}'
        if section := _section(counted, nulls):
            text += f',"nullCount":{{{section}}}'
        return text + "}"

    return written


def _first(columns: Struct, left: int) -> tuple[Struct, int]:
    """Take the first leaves of a schema, and say how many are still to come."""
    fields = []
    for each in columns.fields:
        if left == 0:
            break
        if isinstance(each.type, Struct):
            inner, left = _first(each.type, left)
            fields.append(types.Field(each.name, inner))
        else:
            fields.append(each)
            left -= 1
    return Struct(tuple(fields)), left


def _section(nodes: tuple[_Node, ...], values: list[str]) -> str:
    parts = []
    for key, place, inner in nodes:
        if inner:
            if section := _section(inner, values):
                parts.append(f"{key}{{{section}}}")
        elif value := values[place]:
            parts.append(key + value)
    return ",".join(parts)


def _template(chosen: Struct, schema: FileSchema) -> _Template:
    places = {_folded(leaf.path): place for place, leaf in enumerate(schema.leaves)}
    present = _paths(schema.columns, ())
    days: list[int] = []

    def nodes(columns: Struct, path: _Path, bounded: bool) -> tuple[_Node, ...]:
        found = []
        for each in columns.fields:
            key, here = f"{_quote(each.name)}:", (*path, each.name.lower())
            if isinstance(each.type, Struct):
                if inner := nodes(each.type, here, bounded):
                    found.append(_Node(key, 0, inner))
            elif (place := places.get(here)) is None:
                if not bounded and here not in present and not _inside_another(here, present):
                    found.append(_Node(key, len(schema.leaves)))
            elif not bounded:
                found.append(_Node(key, place))
            elif _comparable(schema.leaves[place].type, each.type):
                found.append(_Node(key, place))
                if schema.leaves[place].type == types.DATE != each.type:
                    days.append(place)
        return tuple(found)

    return _Template(nodes(chosen, (), True), nodes(chosen, (), False), tuple(days))


def _comparable(found: DataType, wanted: DataType) -> bool:
    """Say whether bounds of the file's type are bounds of the table's."""
    if isinstance(found, Struct | types.Array | types.Map) or isinstance(wanted, types.Array | types.Map):
        return False
    if isinstance(wanted, Struct) or wanted in _UNBOUNDED:
        return False
    return widens(found, wanted)


def _midnight(day: str) -> str:
    return day and f'{day[:-1]}T00:00:00.000"'


def _folded(path: _Path) -> _Path:
    return tuple(name.lower() for name in path)


def _paths(columns: DataType, path: _Path) -> dict[_Path, bool]:
    """Map each column and field to whether it's a struct."""
    if not isinstance(columns, Struct):
        return {}
    found: dict[_Path, bool] = {}
    for each in columns.fields:
        here = (*path, each.name.lower())
        found[here] = isinstance(each.type, Struct)
        found |= _paths(each.type, here)
    return found


def _inside_another(path: _Path, present: dict[_Path, bool]) -> bool:
    """Say whether the file has something else where the table has a struct around this field."""
    return any(present.get(path[:length], True) is False for length in range(1, len(path)))
