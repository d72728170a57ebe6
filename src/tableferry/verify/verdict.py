"""What a comparison of two tables found: pure, from measures that were taken elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import groupby
from typing import Any, Literal

ROWS_SHOWN = 20
PARTITIONS_SHOWN = 20
PARTITIONS_LISTED = 10_000

Partition = tuple[str | None, ...]
Status = Literal["source-only", "target-only", "different"]


@dataclass(frozen=True)
class Aggregate:
    """Rows of one side, or of one of its partitions, whatever their order.

    Attributes:
        rows: How many.
        sums: The sums of two independent 64-bit hashes of each row. A sum counts every copy of a row,
            where an exclusive or would lose each pair of equal rows.
    """

    rows: int = 0
    sums: tuple[int, int] = (0, 0)

    def __add__(self, other: Aggregate) -> Aggregate:
        """Put two groups of rows together."""
        return Aggregate(self.rows + other.rows, (self.sums[0] + other.sums[0], self.sums[1] + other.sums[1]))

    @property
    def hash(self) -> str:
        """32 hexadecimal digits to look at; comparable within one verdict only."""
        return "".join(f"{part % 2**64:016x}" for part in self.sums)

    def to_dict(self) -> dict[str, Any]:
        """Give the aggregate as JSON holds it."""
        return {"rows": self.rows, "hash": self.hash}


@dataclass(frozen=True)
class ColumnDifference:
    """A column of both sides whose types differ, or whose type can't be compared.

    Attributes:
        column: Its name, as the target spells it.
        source: Its type in the source.
        target: Its type in the target.
        compared_as: The type that both were cast to; None if no type holds the values of both exactly.
    """

    column: str
    source: str
    target: str
    compared_as: str | None


@dataclass(frozen=True)
class SchemaDifferences:
    """How the columns differ, without their order, the case of their names, and nullability."""

    source_only: tuple[str, ...] = ()
    target_only: tuple[str, ...] = ()
    types: tuple[ColumnDifference, ...] = ()

    @property
    def incomparable(self) -> tuple[str, ...]:
        """Columns of both sides that couldn't be compared."""
        return tuple(difference.column for difference in self.types if difference.compared_as is None)

    @property
    def uncompared(self) -> tuple[str, ...]:
        """Every column that wasn't compared although nobody excluded it."""
        return self.source_only + self.target_only + self.incomparable


@dataclass(frozen=True)
class PartitionDifference:
    """A partition that differs: its values in the order of the partition columns, and both aggregates."""

    values: Partition
    source: Aggregate
    target: Aggregate


@dataclass(frozen=True)
class ValueDifference:
    """The two values of one column in a pair of rows, as text; None is null."""

    column: str
    source: str | None
    target: str | None


@dataclass(frozen=True)
class RowDifference:
    """A row that one side lacks, or a pair of rows of one key that differ.

    Attributes:
        key: The values of the key columns, as text; None is null.
        status: Which of the three it is.
        values: The columns that differ; empty for a row that one side lacks.
    """

    key: tuple[str | None, ...]
    status: Status
    values: tuple[ValueDifference, ...] = ()


@dataclass(frozen=True)
class KeyFindings:
    """What matching the rows by their keys found.

    Attributes:
        columns: The key columns.
        source_only: How many keys only the source has.
        target_only: How many keys only the target has.
        different: How many keys both have, with rows that differ.
        duplicated_source: How many keys the source has more than once.
        duplicated_target: How many keys the target has more than once.
        rows: Up to 20 rows that differ, in the order of their keys.
    """

    columns: tuple[str, ...]
    source_only: int
    target_only: int
    different: int
    duplicated_source: int
    duplicated_target: int
    rows: tuple[RowDifference, ...]


@dataclass(frozen=True)
class Verdict:
    """Whether two tables hold the same rows, and where they don't.

    Attributes:
        source_label: What the source is called.
        target_label: What the target is called.
        source: Row count and hash of the source.
        target: Row count and hash of the target.
        schema: How the columns differ.
        excluded: Columns left out because the user said so.
        partition_columns: The columns that both are compared by, if any.
        partitions: How many partitions the two have together.
        differing_partitions: How many of them differ.
        partition_differences: Those that differ; of more than 10,000 partitions only the 20 whose row counts
            lie furthest apart.
        keys: What matching by keys found; None without keys, or if all rows are the same.
        differ_everywhere: Compared columns of which the sides have no value in common; looked for where
            ``keys`` is.
    """

    source_label: str
    target_label: str
    source: Aggregate
    target: Aggregate
    schema: SchemaDifferences = SchemaDifferences()
    excluded: tuple[str, ...] = ()
    partition_columns: tuple[str, ...] = ()
    partitions: int = 0
    differing_partitions: int = 0
    partition_differences: tuple[PartitionDifference, ...] = ()
    keys: KeyFindings | None = None
    differ_everywhere: tuple[str, ...] = ()

    @property
    def rows_match(self) -> bool:
        """Whether the compared columns hold the same rows, each as often."""
        return self.source == self.target

    @property
    def matches(self) -> bool:
        """Whether the rows match and every column was compared or excluded.

        A column whose type differs but whose values could be compared is reported in ``schema`` and doesn't
        break the match by itself.
        """
        return self.rows_match and not self.schema.uncompared

    @property
    def excludable(self) -> tuple[str, ...]:
        """Columns that are known to stand in the way of a match: what ``--exclude`` could name."""
        seen = self.keys.rows if self.keys else ()
        return tuple(
            dict.fromkeys(
                (
                    *self.schema.uncompared,
                    *self.differ_everywhere,
                    *(value.column for row in seen for value in row.values),
                )
            )
        )

    def to_dict(self) -> dict[str, Any]:
        """Give the verdict as JSON holds it."""
        return {
            "matches": self.matches,
            "rows_match": self.rows_match,
            "source": {"label": self.source_label, **self.source.to_dict()},
            "target": {"label": self.target_label, **self.target.to_dict()},
            "schema": {
                "source_only": list(self.schema.source_only),
                "target_only": list(self.schema.target_only),
                "types": [vars(difference).copy() for difference in self.schema.types],
            },
            "excluded": list(self.excluded),
            "excludable": list(self.excludable),
            "partitions": {
                "columns": list(self.partition_columns),
                "total": self.partitions,
                "differing": self.differing_partitions,
                "differences": [
                    {
                        "values": dict(zip(self.partition_columns, difference.values, strict=True)),
                        "source": difference.source.to_dict(),
                        "target": difference.target.to_dict(),
                    }
                    for difference in self.partition_differences
                ],
            },
            "differ_in_all_rows": list(self.differ_everywhere),
            "keys": _keys_to_dict(self.keys) if self.keys else None,
        }


def _keys_to_dict(keys: KeyFindings) -> dict[str, Any]:
    return {
        **vars(keys),
        "columns": list(keys.columns),
        "rows": [
            {
                "key": dict(zip(keys.columns, row.key, strict=True)),
                "status": row.status,
                "values": [vars(value).copy() for value in row.values],
            }
            for row in keys.rows
        ],
    }


def compare(
    aggregates: Mapping[Partition, tuple[Aggregate, Aggregate]],
    *,
    source_label: str,
    target_label: str,
    schema: SchemaDifferences,
    excluded: tuple[str, ...],
    partition_columns: tuple[str, ...],
) -> Verdict:
    """Give the verdict on what was measured of both sides in each partition; ``()`` is a whole table."""
    differing = [
        PartitionDifference(values, *pair) for values, pair in aggregates.items() if pair[0] != pair[1]
    ]
    shown = differing if partition_columns else []
    if len(aggregates) > PARTITIONS_LISTED:
        shown = nlargest(PARTITIONS_SHOWN, shown, key=lambda pair: abs(pair.source.rows - pair.target.rows))
    return Verdict(
        source_label,
        target_label,
        source=sum((source for source, _ in aggregates.values()), Aggregate()),
        target=sum((target for _, target in aggregates.values()), Aggregate()),
        schema=schema,
        excluded=excluded,
        partition_columns=partition_columns,
        partitions=len(aggregates) if partition_columns else 0,
        differing_partitions=len(differing) if partition_columns else 0,
        partition_differences=tuple(sorted(shown, key=lambda difference: _nulls_first(difference.values))),
    )


def _nulls_first(values: Partition) -> list[tuple[bool, str]]:
    return [(value is not None, value or "") for value in values]


@dataclass(frozen=True)
class Surplus:
    """Equal rows of which one side has more copies than the other.

    Attributes:
        group: The same for all rows of one key.
        key: The values of the key columns, as text.
        copies: How many more the source has; below zero, how many more the target has.
        hashes: A hash of each compared column's value: what decides whether two values differ.
        values: The compared columns' values, as text.
    """

    group: int
    key: tuple[str | None, ...]
    copies: int
    hashes: tuple[int, ...]
    values: tuple[str | None, ...]


def pair_rows(columns: Sequence[str], surplus: Sequence[Surplus]) -> tuple[RowDifference, ...]:
    """Set the rows that one side has too many of beside those that the other has, key by key.

    Those of one key stand next to each other. Where a key isn't unique, the rows that are most alike make a
    pair. The columns are the compared ones, in the order of each row's values.
    """
    differences = [
        difference
        for _, rows in groupby(surplus, key=lambda row: row.group)
        for difference in _pair_key(columns, list(rows))
    ]
    return tuple(differences[:ROWS_SHOWN])


def _pair_key(columns: Sequence[str], rows: list[Surplus]) -> Iterator[RowDifference]:
    # No more than the rows that are shown are ever laid out, however often a row is repeated.
    sources = [replace(row, copies=1) for row in rows for _ in range(min(row.copies, ROWS_SHOWN))]
    targets = [replace(row, copies=1) for row in rows for _ in range(min(-row.copies, ROWS_SHOWN))]
    for source in sources:
        if not targets:
            yield RowDifference(source.key, "source-only")
            continue
        target = min(targets, key=lambda row: len(_differing(source, row)))
        targets.remove(target)
        yield RowDifference(
            source.key,
            "different",
            tuple(
                ValueDifference(columns[at], source.values[at], target.values[at])
                for at in _differing(source, target)
            ),
        )
    for target in targets:
        yield RowDifference(target.key, "target-only")


def _differing(source: Surplus, target: Surplus) -> list[int]:
    return [
        at for at, (left, right) in enumerate(zip(source.hashes, target.hashes, strict=True)) if left != right
    ]
