"""Report what prevents Parquet files from being added to an Iceberg table, by their footers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tableferry.formats.parquet.files import Unreadable
from tableferry.formats.parquet.footers import Opened, SchemaCache, answered, opened
from tableferry.formats.parquet.iceberg_metrics import End
from tableferry.formats.parquet.schema import Interpreted
from tableferry.formats.parquet.trusted_writers import hybrid
from tableferry.spark.types import ColumnPath, lowered


@dataclass(frozen=True)
class Expected:
    """The Iceberg table that the files are checked against.

    Attributes:
        columns: The names of its columns, without partition columns.
        kinds: The type names of its leaves, by their lower-case paths.
        scales: The scales of its decimals, by their lower-case paths.
        defaults: The values (as SQL) of columns in rows of files that lack them, if these aren't null.
        ids: The field ids of all columns and fields, by their lower-case paths.
    """

    columns: Collection[str]
    kinds: Mapping[ColumnPath, str] = field(default_factory=dict)
    scales: Mapping[ColumnPath, int] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[ColumnPath, int] = field(default_factory=dict)


# The physical types from which Iceberg reads these types. For other types, it reads the same as Spark.
_READ_FROM = {
    **dict.fromkeys(("tinyint", "smallint", "int"), ("INT32",)),
    "bigint": ("INT32", "INT64"),
    "float": ("FLOAT",),
    "double": ("FLOAT", "DOUBLE"),
    "timestamp_ltz": ("INT64", "INT96"),
    "timestamp_ntz": ("INT64", "INT96"),
}


def blockers(ends: Iterable[End], expected: Expected) -> Iterator[str | None]:
    """Yield for each file the reason why it can't be added to the Iceberg table, as the end of a sentence.

    The reason is None if the file can be added, or if it can't be read at the moment.
    """
    known, cache = {name.lower() for name in expected.columns}, SchemaCache()
    return (_blocker(end, known, expected, cache) for end in ends)


def _blocker(end: End, known: Collection[str], expected: Expected, cache: SchemaCache) -> str | None:
    if isinstance(end, Unreadable):
        return None if end.passing else end.reason
    # Reasons to refuse a file that are specific to Delta don't apply to Iceberg.
    found = answered(lambda: opened(end, cache))
    if isinstance(found, Unreadable):
        return None
    schema = found.shape.interpreted
    if other := _misread(schema, expected.ids):
        return (
            f"has field ids, by which Iceberg finds columns, and {'.'.join(other)} would be another one, or "
            "none: rewrite it without them, or choose Delta"
        )
    if lists := [path for path in schema.two_level if path[0].lower() in known]:
        return (
            f"has lists of the older form in {'.'.join(lists[0])}, which Iceberg can't read where one is "
            "empty or in another: rewrite it, or choose Delta"
        )
    for leaf in (*schema.stored, *schema.repeated):
        meaning = leaf.element.annotation if leaf.path[0].lower() in known else None
        if meaning is not None and (meaning.kind, meaning.unit) == ("TIMESTAMP", "MILLIS"):
            return (
                f"has instants in milliseconds in {'.'.join(leaf.path)}, which Iceberg reads as "
                "microseconds: rewrite it, or choose Delta"
            )
    for leaf in (*schema.stored, *schema.repeated):
        path, meaning = lowered(leaf.path), leaf.element.annotation
        kind, scale = expected.kinds.get(path, ""), expected.scales.get(path)
        is_decimal = meaning is not None and meaning.kind == "DECIMAL"
        if meaning is not None and is_decimal and scale not in (None, meaning.scale):
            return rescaled(leaf.path, meaning.scale, scale)
        stored = leaf.element.physical
        if stored not in _READ_FROM.get(kind, (stored,)) or (kind == "decimal" and not is_decimal):
            return (
                f"stores {'.'.join(leaf.path)} as {leaf.element}, which Iceberg can't read as {kind}: "
                "rewrite it, or leave the table in Hive"
            )
    found_columns = {leaf.path[0].lower() for leaf in (*schema.stored, *schema.repeated)}
    for name, default in expected.defaults.items():
        if name.lower() not in found_columns:
            return (
                f"lacks {name}, which is {default} there, and would be null in Iceberg: rewrite it, or "
                "leave the table in Hive"
            )
    if hybrid(found.keys) and (ancient := _ancient(found, known)):
        return (
            f"has values in {'.'.join(ancient)} before October 1582 in the calendar of Spark 2, which "
            "Iceberg reads as other ones: rewrite it, or choose Delta"
        )
    return None


def _misread(schema: Interpreted, expected: Mapping[ColumnPath, int]) -> ColumnPath:
    """Return a column or field that Iceberg doesn't find by the file's field ids; empty if it finds all."""
    if not schema.ids:
        return ()
    taken = set(expected.values())
    for path, number in schema.ids.items():
        # Iceberg reads a field that the table lacks as the column with the same id.
        known = expected.get(lowered(path))
        if number in taken if known is None else number != known:
            return path
    leaves = (leaf.path for leaf in (*schema.stored, *schema.repeated))
    return next((path for path in leaves if lowered(path) in expected and path not in schema.ids), ())


def rescaled(path: ColumnPath, stored: int, expected: int) -> str:
    """Return the end of a sentence that states that a file's decimals have another scale than the table's."""
    return (
        f"stores {'.'.join(path)} with {stored} decimal places, where the table has {expected}, and Iceberg "
        "would read other numbers: rewrite it, or leave the table in Hive"
    )


def _ancient(found: Opened, known: Collection[str]) -> ColumnPath:
    """Return a column whose statistics show a value before the Gregorian calendar; empty if none does."""
    for leaf, raw in zip(found.shape.interpreted.stored, found.groups.statistics, strict=False):
        first = _GREGORIAN_SINCE.get(str(leaf.element.annotation))
        if first is None or leaf.path[0].lower() not in known:
            continue
        lowest = (int.from_bytes(low, "little", signed=True) for low in (*raw.lowest, *raw.old_lowest) if low)
        if any(value < first for value in lowest):
            return leaf.path
    return ()


# 15 October 1582, in days and in microseconds since 1970.
_GREGORIAN_SINCE = {"DATE": -141_427, "TIMESTAMP(MICROS,true)": -12_219_292_800_000_000}
