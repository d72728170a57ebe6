"""Count and hash the rows of two tables with Spark, and find the rows that differ.

The counts and hashes take one query that reads each table once. The rows that differ take two more queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, StringType, StructField

from tableferry.errors import TableError
from tableferry.spark.types import DECLARED_AS, declared
from tableferry.verify.values import aligned, common_type, hashable, orderable, spelling, text
from tableferry.verify.verdict import (
    ROWS_SHOWN,
    Aggregate,
    ColumnDifference,
    KeyFindings,
    Partition,
    SchemaDifferences,
    Surplus,
    pair_rows,
)

# Wide enough for the sum of 64-bit hashes of any number of rows.
_SUM = "decimal(38,0)"
_LONGEST_TEXT = 1000
_SAMPLED_ROWS = 10_000_000


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a label and the rows of a table, a version or a query."""

    label: str
    frame: DataFrame


@dataclass(frozen=True)
class Shared:
    """A column that both sides have and that can be compared.

    Attributes:
        name: The name in the target's spelling.
        places: The column's positions in the source and in the target, from 0.
        types: The column's types in the source and in the target.
        common: The type to which both sides are cast for the comparison.
    """

    name: str
    places: tuple[int, int]
    types: tuple[DataType, DataType]
    common: DataType


@dataclass(frozen=True)
class Pair:
    """The two sides of a comparison and their matched columns.

    Attributes:
        sides: The source and the target.
        columns: The compared columns.
        keys: The columns that match the rows of both sides.
        partitions: The columns that group the counts and hashes.
        schema: The differences between the columns of both sides.
        excluded: The columns that the user excluded.
    """

    sides: tuple[Side, Side]
    columns: tuple[Shared, ...]
    keys: tuple[Shared, ...]
    partitions: tuple[Shared, ...]
    schema: SchemaDifferences
    excluded: tuple[str, ...]

    def both(self, select: Callable[[Callable[[Shared], Column]], Sequence[Column]]) -> DataFrame:
        """Return the union of one selection from both sides.

        The column ``side`` is 1 for the source and -1 for the target. The input columns are renamed by
        position, so that names need no quoting and names that differ only by case don't conflict.
        """
        frames = []
        for number, side in enumerate(self.sides):

            def value(column: Shared, number: int = number) -> Column:
                own = F.col(f"c{column.places[number]}")
                return aligned(own, column.types[number], column.common)

            frame = side.frame.toDF(*(f"c{position}" for position in range(len(side.frame.columns))))
            frames.append(frame.select(F.lit(1 - 2 * number).alias("side"), *select(value)))
        return reduce(DataFrame.union, frames)

    def hash(self, value: Callable[[Shared], Column], seed: int, only: Sequence[Shared] = ()) -> Column:
        """Return a hash of a row's compared columns, or only of the columns in ``only``."""
        parts = [hashable(value(column), column.common) for column in only or self.columns]
        return F.xxhash64(F.lit(seed), *(hashed for part in parts for hashed in part))


def pair(
    source: Side,
    target: Side,
    keys: Sequence[str] | None = (),
    exclude: Sequence[str] = (),
    partition_columns: Sequence[str] = (),
) -> Pair:
    """Match the columns of both sides by name, independent of case and order.

    If ``keys`` is None, every compared column that can be grouped and sorted is a key.

    Raises:
        TableError: A key or an excluded column doesn't exist or can't be used, or a side has two columns of
            one name.
    """
    sources, targets = _fields(source), _fields(target)
    excluded = {name.lower() for name in exclude}
    for name in exclude:
        if name.lower() not in sources and name.lower() not in targets:
            raise TableError("EXCLUDED_COLUMN_MISSING", column=name, source=source.label, target=target.label)
    shared: dict[str, Shared] = {}
    types: list[ColumnDifference] = []
    for name, (place, field) in targets.items():
        if name not in sources or name in excluded:
            continue
        source_place, source_field = sources[name]
        common = common_type(source_field.dataType, field.dataType)
        if common is not None:
            kinds = (source_field.dataType, field.dataType)
            shared[name] = Shared(field.name, (source_place, place), kinds, common)
        if common is None or _normal(source_field) != _normal(field):
            compared_as = common.simpleString() if common else None
            types.append(ColumnDifference(field.name, declared(source_field), declared(field), compared_as))
    differences = SchemaDifferences(
        tuple(field.name for name, (_, field) in sources.items() if name not in {*targets, *excluded}),
        tuple(field.name for name, (_, field) in targets.items() if name not in {*sources, *excluded}),
        tuple(types),
    )
    fields = (field for _, field in (*sources.values(), *targets.values()))
    named = sorted(field.name for field in fields if field.name.lower() in excluded)
    # Partitions by an excluded column would differ although the compared columns are equal.
    grouped = all(name.lower() in shared for name in partition_columns)
    return Pair(
        (source, target),
        tuple(shared.values()),
        tuple(column for column in shared.values() if orderable(column.common))
        if keys is None
        else tuple(_key(name, shared, source, target) for name in keys),
        tuple(shared[name.lower()] for name in partition_columns) if grouped else (),
        differences,
        tuple(sorted({name.lower(): name for name in named}.values())),
    )


def _fields(side: Side) -> dict[str, tuple[int, StructField]]:
    fields: dict[str, tuple[int, StructField]] = {}
    for position, field in enumerate(side.frame.schema.fields):
        if field.name.lower() in fields:
            raise TableError("COLUMNS_DIFFER_BY_CASE", table=side.label, column=field.name)
        fields[field.name.lower()] = (position, field)
    return fields


def _normal(field: StructField) -> tuple[str, str]:
    return spelling(field.dataType), str(field.metadata.get(DECLARED_AS, ""))


def _key(name: str, shared: Mapping[str, Shared], source: Side, target: Side) -> Shared:
    column = shared.get(name.lower())
    if column is None:
        raise TableError("KEY_NOT_COMPARED", column=name, source=source.label, target=target.label)
    if not orderable(column.common):
        raise TableError("KEY_NOT_ORDERABLE", column=name, type=column.types[1].typeName())
    return column


def measure(both: Pair) -> Mapping[Partition, tuple[Aggregate, Aggregate]]:
    """Return counts and hashes of both sides in each partition, with one query that reads each side once."""
    groups = [f"p{at}" for at in range(len(both.partitions))]
    rows = both.both(
        lambda value: [
            *(
                text(value(column), column.common).alias(f"p{at}")
                for at, column in enumerate(both.partitions)
            ),
            both.hash(value, 1).cast(_SUM).alias("h1"),
            both.hash(value, 2).cast(_SUM).alias("h2"),
        ]
    )
    aggregates: dict[Partition, tuple[Aggregate, Aggregate]] = {}
    totals = rows.groupBy("side", *groups).agg(F.count(F.lit(1)), F.sum("h1"), F.sum("h2"))
    for side, *values, count, first, second in totals.collect():
        aggregate = Aggregate(int(count), (int(first), int(second)))
        source, target = aggregates.get(tuple(values), (Aggregate(), Aggregate()))
        aggregates[tuple(values)] = (aggregate, target) if side == 1 else (source, aggregate)
    return aggregates


def count_common(both: Pair) -> int:
    """Return the number of rows that both sides have; of copies of a row, the smaller number counts."""
    rows = both.both(lambda value: [both.hash(value, 1).alias("h1"), both.hash(value, 2).alias("h2")])
    here, there = (F.count_if(F.col("side") == side) for side in (1, -1))
    common = rows.groupBy("h1", "h2").agg(F.least(here, there).alias("common"))
    return int(common.agg(F.sum("common")).collect()[0][0] or 0)


def differ_everywhere(both: Pair, rows: int) -> tuple[str, ...]:
    """Return the columns with values on both sides but no common value; empty if that applies to all columns.

    In large tables it compares a sample of each column's values by their hashes. ``rows`` is the number of
    rows on both sides together.
    """
    parts = max(rows // _SAMPLED_ROWS, 1)
    values = both.both(
        lambda value: [
            F.posexplode(F.array(*(both.hash(value, 0, [column]) for column in both.columns))).alias(
                "place", "hash"
            )
        ]
    ).where(F.pmod("hash", F.lit(parts)) == 0)
    here, there = (F.count_if(F.col("side") == side) > 0 for side in (1, -1))
    sides = values.groupBy("place", "hash").agg(here.alias("here"), there.alias("there"))
    found = sides.groupBy("place").agg(
        F.bool_or("here") & F.bool_or("there") & ~F.bool_or(F.col("here") & F.col("there"))
    )
    names = [both.columns[place].name for place, differs in sorted(found.collect()) if differs]
    return tuple(names) if len(names) < len(both.columns) else ()


def find_rows(both: Pair) -> KeyFindings:
    """Match the rows of both sides by their keys and return up to 20 that differ.

    The first query reads only keys and hashes, and finds the first 20 keys that differ. The second query
    fetches the rows of these keys. Both group instead of joining: grouping treats nulls as equal, and
    duplicate keys don't multiply rows.
    """
    findings, groups = _differing_keys(both)
    rows = sorted(_surplus(both, groups), key=lambda row: groups.index(row.group))
    return replace(findings, rows=pair_rows([column.name for column in both.columns], rows))


def _differing_keys(both: Pair) -> tuple[KeyFindings, list[int]]:
    keys = [f"k{at}" for at in range(len(both.keys))]
    rows = both.both(
        lambda value: [
            *(value(key).alias(f"k{at}") for at, key in enumerate(both.keys)),
            both.hash(value, 0, both.keys).alias("key"),
            both.hash(value, 1).alias("h1"),
            both.hash(value, 2).alias("h2"),
        ]
    )
    # For millions of keys, a sum of decimals takes several times as long as three sums of 21-bit or 22-bit
    # pieces of each hash. These can't overflow below 2^41 rows per key.
    balance = [
        F.sum(F.col("side") * piece)
        for hashed in (F.col("h1"), F.col("h2"))
        for piece in (
            F.shiftright(hashed, 42),
            F.shiftright(hashed, 21).bitwiseAND(F.lit(0x1FFFFF)),
            hashed.bitwiseAND(F.lit(0x1FFFFF)),
        )
    ]
    grouped = rows.groupBy(*keys).agg(
        F.first("key").alias("key"),
        F.count_if(F.col("side") == 1).alias("sources"),
        F.count_if(F.col("side") == -1).alias("targets"),
        *(total.alias(f"b{at}") for at, total in enumerate(balance)),
    )
    sources, targets = F.col("sources"), F.col("targets")
    unbalanced = [F.col(f"b{at}") != 0 for at in range(len(balance))]
    differs = reduce(Column.__or__, unbalanced, sources != targets)
    totals = grouped.agg(
        F.count_if(targets == 0).alias("source_only"),
        F.count_if(sources == 0).alias("target_only"),
        F.count_if(differs & (sources > 0) & (targets > 0)).alias("different"),
        F.count_if(sources > 1).alias("duplicated_source"),
        F.count_if(targets > 1).alias("duplicated_target"),
    )
    first = grouped.filter(differs).orderBy(*keys).limit(ROWS_SHOWN).select(*keys, "key")
    differing = [row.asDict() for row in first.crossJoin(totals).orderBy(*keys).collect()]
    findings = KeyFindings(
        columns=tuple(key.name for key in both.keys),
        rows=(),
        **{name: int(differing[0][name]) for name in totals.columns},
    )
    return findings, [int(row["key"]) for row in differing]


def _surplus(both: Pair, groups: Sequence[int]) -> list[Surplus]:
    def shown(value: Callable[[Shared], Column], columns: Sequence[Shared]) -> Column:
        texts = [F.substring(text(value(column), column.common), 1, _LONGEST_TEXT) for column in columns]
        return F.array(*texts).cast(ArrayType(StringType()))

    rows = both.both(
        lambda value: [
            both.hash(value, 0, both.keys).alias("key"),
            both.hash(value, 1).alias("h1"),
            both.hash(value, 2).alias("h2"),
            shown(value, both.keys).alias("keys"),
            F.array(*(both.hash(value, 0, [column]) for column in both.columns)).alias("hashes"),
            shown(value, both.columns).alias("texts"),
        ]
    ).filter(F.col("key").isin(list(groups)))
    versions = (
        rows.groupBy("key", "h1", "h2")
        .agg(
            F.sum("side").alias("copies"),
            F.first("keys").alias("keys"),
            F.first("hashes").alias("hashes"),
            F.first("texts").alias("texts"),
        )
        .filter(F.col("copies") != 0)
    )
    # Limit the rows per key, because one key can have a million rows.
    rank = F.row_number().over(Window.partitionBy("key", F.signum("copies")).orderBy("h1", "h2"))
    kept = versions.withColumn("rank", rank).filter(F.col("rank") <= ROWS_SHOWN)
    return [
        Surplus(row["key"], tuple(row["keys"]), row["copies"], tuple(row["hashes"]), tuple(row["texts"]))
        for row in kept.orderBy("key", "rank").collect()
    ]
