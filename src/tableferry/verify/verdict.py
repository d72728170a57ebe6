"""The result of a comparison of two tables, as frozen data classes and pure functions without Spark."""

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
    """Row count and hash sums of one side or of one of its partitions, independent of the row order.

    Attributes:
        rows: The number of rows.
        sums: The sums of two independent 64-bit hashes of each row. A sum counts every copy of a row; an
            exclusive or would cancel each pair of equal rows.
    """

    rows: int = 0
    sums: tuple[int, int] = (0, 0)

    def __add__(self, other: Aggregate) -> Aggregate:
        """Return the aggregate of both groups of rows."""
        return Aggregate(self.rows + other.rows, (self.sums[0] + other.sums[0], self.sums[1] + other.sums[1]))

    @property
    def hash(self) -> str:
        """The hash sums as 32 hexadecimal digits; comparable only within one verdict."""
        return "".join(f"{part % 2**64:016x}" for part in self.sums)

    def to_dict(self) -> dict[str, Any]:
        """Return the aggregate in the format of the JSON output."""
        return {"rows": self.rows, "hash": self.hash}


@dataclass(frozen=True)
class ColumnDifference:
    """A column of both sides whose types differ, or whose type can't be compared.

    Attributes:
        column: The name in the target's spelling.
        source: The type in the source.
        target: The type in the target.
        compared_as: The type to which both were cast; None if no type represents both exactly.
    """

    column: str
    source: str
    target: str
    compared_as: str | None


@dataclass(frozen=True)
class SchemaDifferences:
    """The differences between the columns, ignoring their order, the case of names and nullability."""

    source_only: tuple[str, ...] = ()
    target_only: tuple[str, ...] = ()
    types: tuple[ColumnDifference, ...] = ()

    @property
    def incomparable(self) -> tuple[str, ...]:
        """Columns that both sides have but that couldn't be compared."""
        return tuple(difference.column for difference in self.types if difference.compared_as is None)

    @property
    def uncompared(self) -> tuple[str, ...]:
        """All columns that weren't compared although the user didn't exclude them."""
        return self.source_only + self.target_only + self.incomparable


@dataclass(frozen=True)
class PartitionDifference:
    """A partition that differs, with the aggregates of both sides.

    Attributes:
        values: The partition's values in the order of the partition columns.
        source: The aggregate of the source's rows.
        target: The aggregate of the target's rows.
    """

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
    """A row that one side lacks, or a pair of rows with the same key that differ.

    Attributes:
        key: The values of the key columns, as text; None is null.
        status: Whether the row is only in the source, only in the target, or differs.
        values: The columns that differ; empty for a row that one side lacks.
    """

    key: tuple[str | None, ...]
    status: Status
    values: tuple[ValueDifference, ...] = ()


@dataclass(frozen=True)
class KeyFindings:
    """The differences found by matching rows by their keys.

    Attributes:
        columns: The key columns.
        source_only: The number of keys that only the source has.
        target_only: The number of keys that only the target has.
        different: The number of keys in both whose rows differ.
        duplicated_source: The number of keys that the source has more than once.
        duplicated_target: The number of keys that the target has more than once.
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
    """The result of a comparison: whether two tables contain the same rows, and their differences.

    Attributes:
        source_label: The name of the source.
        target_label: The name of the target.
        source: Row count and hash of the source.
        target: Row count and hash of the target.
        schema: The differences between the columns.
        excluded: The columns that the user excluded.
        partition_columns: The columns that group the counts and hashes, if any.
        partitions: The number of partitions in either table.
        differing_partitions: The number of partitions that differ.
        partition_differences: The partitions that differ; with more than 10,000 partitions, only the 20 with
            the largest differences in row counts.
        keys: The differences by key; None without keys, or if all rows match.
        differ_everywhere: Compared columns without a common value on the two sides; computed together with
            ``keys``.
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
        """Whether the compared columns contain the same rows, with the same number of copies of each."""
        return self.source == self.target

    @property
    def matches(self) -> bool:
        """Whether the rows match and every column was compared or excluded.

        A column with different types whose values could be compared is reported in ``schema``; the tables can
        still match.
        """
        return self.rows_match and not self.schema.uncompared

    @property
    def excludable(self) -> tuple[str, ...]:
        """Columns that prevent a match, as candidates for ``--exclude``."""
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
        """Return the verdict in the format of the JSON output."""
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
    """Return the verdict for the aggregates of both sides by partition; ``()`` is an unpartitioned table."""
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
    """A group of equal rows, with more copies on one side than on the other.

    Attributes:
        group: The hash of the key, which is the same for all rows with one key.
        key: The values of the key columns, as text.
        copies: The number of copies in the source minus that in the target.
        hashes: A hash of each compared column's value; two values differ if their hashes differ.
        values: The compared columns' values, as text.
    """

    group: int
    key: tuple[str | None, ...]
    copies: int
    hashes: tuple[int, ...]
    values: tuple[str | None, ...]


def pair_rows(columns: Sequence[str], surplus: Sequence[Surplus]) -> tuple[RowDifference, ...]:
    """Pair the source's surplus rows with the target's by key, and return the first 20 differences.

    If a key isn't unique, each source row is paired with the most similar target row.

    Args:
        columns: The names of the compared columns, in the order of each row's values.
        surplus: The rows, in which rows with the same key are adjacent.
    """
    differences = [
        difference
        for _, rows in groupby(surplus, key=lambda row: row.group)
        for difference in _pair_key(columns, list(rows))
    ]
    return tuple(differences[:ROWS_SHOWN])


def _pair_key(columns: Sequence[str], rows: list[Surplus]) -> Iterator[RowDifference]:
    # The copies of a row are limited to the number of rows shown, because a row can have millions of copies.
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
