"""Write the ``stats`` of a file in Delta's log from its footer, for the same columns as Delta itself."""

from __future__ import annotations

from collections.abc import Callable, Collection
from json import JSONEncoder
from typing import NamedTuple

from tableferry.formats.parquet.files import FileSchema, Footer
from tableferry.formats.parquet.schema_merge import widens
from tableferry.spark import types
from tableferry.spark.types import ColumnPath, DataType, Primitive, Struct

# The default of delta.dataSkippingNumIndexedCols.
INDEXED = 32

# The slot of columns that a file lacks: the last item of its values.
_LACKING = -1
_UNBOUNDED = (types.BOOLEAN, types.BINARY, types.VARIANT)
_quote = JSONEncoder(ensure_ascii=False).encode


class _Node(NamedTuple):
    """A key of the JSON, with the slot of its value or with inner keys."""

    key: str
    slot: int
    inner: tuple[_Node, ...] = ()


class _Template(NamedTuple):
    """The parts of the JSON that files with the same schema share."""

    bounded: tuple[_Node, ...]
    counted: tuple[_Node, ...]
    days: tuple[int, ...]


def with_statistics(table: Struct, partitions: Collection[str] = (), indexed: int = INDEXED) -> Struct:
    """Return the columns that get statistics: the first ``indexed`` leaves, or all if it's negative.

    Partition columns are left out. An array or a map is one leaf, as in Delta's
    ``StatisticsCollection.truncateSchema``; a struct has the leaves of its fields.
    """
    apart = {name.lower() for name in partitions}
    columns = Struct(tuple(column for column in table.fields if column.name.lower() not in apart))
    return _first(columns, indexed if indexed >= 0 else -1)[0]


def statistics_json(
    table: Struct, partitions: Collection[str] = (), indexed: int = INDEXED
) -> Callable[[Footer], str]:
    """Return a function that writes a file's ``stats``; arguments as in `with_statistics`.

    The function caches the parts that files with the same schema share, so that it only joins strings for
    each file. Arrays and maps get no null count, because a footer doesn't state it.

    A missing bound is unknown to Spark, DataFusion and the protocol. deltalake's `to_pyarrow_dataset` (1.6.6)
    treats it as a bound that no value satisfies, and loses rows if a filter uses such a column. It does the
    same with the booleans of a table that Spark wrote.

    Returns:
        A function from a footer, read with its statistics, to JSON. The log has to contain the characters
        without escapes: cut strings may end in U+100000 or above, and deltalake (1.6.6) reads the escapes of
        these characters as lower characters.
    """
    chosen = with_statistics(table, partitions, indexed)
    # A reference to the schema keeps Python from reusing its id for another object.
    templates: dict[int, tuple[FileSchema, _Template]] = {}

    def written(footer: Footer) -> str:
        schema = footer.schema
        if id(schema) not in templates:
            templates[id(schema)] = (schema, _template(chosen, schema))
        bounded, counted, days = templates[id(schema)][1]
        lows, highs, nulls = footer.unpacked
        for index in days:
            lows[index], highs[index] = _midnight(lows[index]), _midnight(highs[index])
        # The last item counts the nulls of a column that the file lacks: it's null in every row.
        nulls.append(str(footer.rows))
        text = f'{{"numRecords":{footer.rows}'
        for key, nodes, values in (
            ("minValues", bounded, lows),
            ("maxValues", bounded, highs),
            ("nullCount", counted, nulls),
        ):
            if section := _section(nodes, values):
                text += f',"{key}":{{{section}}}'
        return text + "}"

    return written


def leaves_needed(
    table: Struct, partitions: Collection[str] = (), indexed: int = INDEXED
) -> Callable[[FileSchema], int]:
    """Return a function that returns the number of a file's first leaves that `statistics_json` needs."""
    chosen = with_statistics(table, partitions, indexed)
    known: dict[int, tuple[FileSchema, int]] = {}

    def needed(schema: FileSchema) -> int:
        if id(schema) not in known:
            known[id(schema)] = (schema, 1 + _last(_template(chosen, schema).counted))
        return known[id(schema)][1]

    return needed


def _last(nodes: tuple[_Node, ...]) -> int:
    return max((_last(node.inner) if node.inner else node.slot for node in nodes), default=_LACKING)


def _first(columns: Struct, left: int) -> tuple[Struct, int]:
    """Return the first ``left`` leaves of a schema, and the number of leaves that are still missing."""
    fields = []
    for column in columns.fields:
        if left == 0:
            break
        if isinstance(column.type, Struct):
            inner, left = _first(column.type, left)
            fields.append(types.Field(column.name, inner))
        else:
            fields.append(column)
            left -= 1
    return Struct(tuple(fields)), left


def _section(nodes: tuple[_Node, ...], values: list[str]) -> str:
    parts = []
    for key, index, inner in nodes:
        if inner:
            if section := _section(inner, values):
                parts.append(f"{key}{{{section}}}")
        elif value := values[index]:
            parts.append(key + value)
    return ",".join(parts)


def _template(chosen: Struct, schema: FileSchema) -> _Template:
    indexes = {tuple(map(str.lower, leaf.path)): index for index, leaf in enumerate(schema.leaves)}
    present = _paths(schema.columns, ())
    days: list[int] = []

    def nodes(columns: Struct, above: ColumnPath, bounded: bool) -> tuple[_Node, ...]:
        level = []
        for column in columns.fields:
            key, path = f"{_quote(column.name)}:", (*above, column.name.lower())
            if isinstance(column.type, Struct):
                if inner := nodes(column.type, path, bounded):
                    level.append(_Node(key, 0, inner))
            elif (index := indexes.get(path)) is None:
                if not bounded and path not in present and not _inside_another(path, present):
                    level.append(_Node(key, _LACKING))
            elif not bounded:
                level.append(_Node(key, index))
            elif _comparable(schema.leaves[index].type, column.type):
                level.append(_Node(key, index))
                if schema.leaves[index].type == types.DATE != column.type:
                    days.append(index)
        return tuple(level)

    return _Template(nodes(chosen, (), True), nodes(chosen, (), False), tuple(days))


def _comparable(file_type: Primitive, table_type: DataType) -> bool:
    """Return whether bounds of the file's type are also bounds of the table's type."""
    if isinstance(table_type, Struct | types.Array | types.Map) or table_type in _UNBOUNDED:
        return False
    return widens(file_type, table_type)


def _midnight(day: str) -> str:
    return day and f'{day[:-1]}T00:00:00.000"'


def _paths(columns: DataType, above: ColumnPath) -> dict[ColumnPath, bool]:
    """Map each column and field to whether it's a struct."""
    paths: dict[ColumnPath, bool] = {}
    for column in columns.fields if isinstance(columns, Struct) else ():
        path = (*above, column.name.lower())
        paths[path] = isinstance(column.type, Struct)
        paths |= _paths(column.type, path)
    return paths


def _inside_another(path: ColumnPath, present: dict[ColumnPath, bool]) -> bool:
    """Return whether the file has another type where the table has a struct around this field."""
    return any(present.get(path[:length], True) is False for length in range(1, len(path)))
