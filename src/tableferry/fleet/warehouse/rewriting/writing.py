"""Writes a table's rows anew while people go on writing, and what came since when they are kept out.

    list ─> write the pieces that changed, in chunks ─> compare their rows ─┐
      └───────────────────── until what changed was little ─────────────────┘

What the copy holds by then, its own commits say: `pieces`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableferry.amounts import first_of, size
from tableferry.errors import TableError
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse import comparing, hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.files import TableFiles, too_deep
from tableferry.fleet.warehouse.partition_conditions import sql_types, where
from tableferry.fleet.warehouse.partitions import Partition, parsed
from tableferry.fleet.warehouse.rewriting import copies
from tableferry.fleet.warehouse.rewriting.copies import Copy
from tableferry.fleet.warehouse.rewriting.pieces import WHOLE, Piece, chunks, others, pieces_of, stale
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# So much is written in seconds, and little comes meanwhile.
_FEW_BYTES = 256 * 2**20
_MOST_PASSES = 5


def write_ahead(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> int:
    """Write the rows of a Hive table that may be written to into its copy, and compare them.

    What a run before this one has written isn't written again. What goes wrong because somebody wrote
    meanwhile is left to be done when writes are blocked.

    Returns:
        How many rows were compared.

    Raises:
        RowsDiffer: The rows that were written aren't those that were read, and nobody wrote.
        Refused: The table can't be rewritten, or another table has the copy's name.
        TableError: Something can't be read or written, and nobody wrote.
    """
    rows, left = 0, 0
    differing: Mapping[str, comparing.RowsDiffer] = {}
    listed = hive.listed(warehouse, hive.demand(warehouse, source))
    for _ in range(_MOST_PASSES):
        failure: TableError | comparing.RowsDiffer | None = None
        try:
            work = _Work.on(warehouse, listed, target, form)
            names = sorted({*stale(work.wanted, work.copy.held), *differing})
            left = sum(work.wanted[name].bytes for name in names if name in work.wanted)
            _log.debug("%s: %s of %s are to be written", source, size(left), size(work.bytes))
            work.write(names)
            compared, differing = work.compare()
            rows += compared
            failure = next((differing[name] for name in names if name in differing), None)
        except TableError as error:
            failure = error
        # Hours may have passed.
        warehouse.forget((source,))
        before, listed = listed, hive.listed(warehouse, hive.demand(warehouse, source))
        unchanged = listed.digest == before.digest
        if failure is not None:
            if unchanged:
                raise failure
            _log.debug("%s was written to while it was rewritten (%s)", source, failure)
        elif not differing and (unchanged or left <= _FEW_BYTES):
            break
    return rows


def write_rest(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> int:
    """Write what changed in a Hive table to which nobody can write now; return how many pieces that were.

    Raises:
        Refused: As `write_ahead`.
        TableError: As `write_ahead`.
    """
    work = _Work.on(warehouse, hive.last_listed(warehouse, hive.demand(warehouse, source)), target, form)
    names = stale(work.wanted, work.copy.held)
    work.write(names)
    if form is TargetFormat.DELTA:
        work.seal()
    return len(names)


def demand_same(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> int:
    """Make sure that a copy holds the rows of a Hive table to which nobody can write.

    What this run has compared, and nobody has written since, isn't read again.

    Returns:
        How many rows were compared.

    Raises:
        RowsDiffer: It doesn't.
        Refused: Somebody else wrote to it.
        TableError: It isn't made of the files that the table has now, or something can't be read.
    """
    work = _Work.on(warehouse, hive.last_listed(warehouse, hive.demand(warehouse, source)), target, form)
    if other := others(work.wanted, work.copy.held):
        raise TableError(
            "REWRITTEN_COPY_OUTDATED",
            table=target,
            source=source,
            partitions=["the table itself"] if other == [WHOLE] else list(other),
        )
    rows, differing = work.compare()
    for error in differing.values():
        raise error
    return rows


@dataclass
class _Work:
    """A Hive table's pieces and its copy."""

    warehouse: Warehouse
    listed: TableFiles
    copy: Copy
    wanted: Mapping[str, Piece]
    kinds: tuple[Mapping[str, str], Mapping[str, str]]

    @classmethod
    def on(cls, warehouse: Warehouse, listed: TableFiles, target: TableName, form: TargetFormat) -> _Work:
        table = listed.table
        if refusal := too_deep(table.name, listed.listing):
            raise refusal
        with explaining("NEW_TABLE_NOT_CREATED_FROM_ROWS", source=table.name, target=target):
            copy = copies.opened(warehouse, table, target, form)
            of_source, of_copy = (
                sql_types(warehouse.spark.table(name.sql).schema)
                for name in (table.name, warehouse.named(target, form))
            )
        return cls(warehouse, listed, copy, pieces_of(listed), (of_source, of_copy))

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.wanted.values())

    def write(self, names: Sequence[str]) -> None:
        """Write pieces, each chunk of them in a commit of its own."""
        table = self.listed.table
        for chunk in self._chunks(names):
            pieces = {name: self.wanted[name].digest if name in self.wanted else None for name in chunk}
            # A piece that is gone may be there again by now, and gone once more at the next listing. Nobody
            # would look for its rows then, so none are written.
            there = [name for name in chunk if name in self.wanted]
            conditions = self._conditions(there)[0] if there else "false", self._conditions(chunk)[1]
            with explaining("ROWS_NOT_REWRITTEN", source=table.name, target=self.copy.name):
                self.copy = copies.write(self.warehouse, table, self.copy, pieces, conditions)

    def seal(self) -> None:
        """Make a commit of no rows, so that no chunk that a suspended worker has begun comes after it."""
        self.copy = copies.write(
            self.warehouse, self.listed.table, self.copy, {}, ("false", "false"), sealing=True
        )

    def compare(self) -> tuple[int, Mapping[str, comparing.RowsDiffer]]:
        """Compare the pieces that this run hasn't compared as they are.

        Returns:
            How many rows these have, and the pieces that differ.
        """
        prepared, held = self.warehouse.prepared, self.copy.held
        known = prepared.pieces if prepared else {}
        names = sorted(name for name, piece in held.items() if known.get(name) != piece.version)
        rows, differing = 0, dict[str, comparing.RowsDiffer]()
        for chunk in self._chunks(names):
            try:
                rows += self._compare(chunk)
            except comparing.RowsDiffer as error:
                _log.debug("%s: %s differs (%s)", self.copy.name, first_of(chunk), error)
                differing |= dict.fromkeys(chunk, error)
            else:
                known |= {name: held[name].version for name in chunk}
        return rows, differing

    def _compare(self, names: Sequence[str]) -> int:
        warehouse, (of_source, of_copy) = self.warehouse, self._conditions(names)
        source, copy = self.listed.table.name, self.copy
        return comparing.demand_same_frames(
            (str(source), lambda: comparing.rows(warehouse, source, where=of_source)),
            (str(copy.name), lambda: comparing.rows(warehouse, copy.name, copy.version, of_copy)),
        )

    def _chunks(self, names: Iterable[str]) -> Iterator[list[str]]:
        return chunks(names, self.wanted, self.warehouse.rewrite_chunk)

    def _conditions(self, names: Iterable[str]) -> tuple[str, str]:
        """Write the conditions that a row of the Hive table, and of the copy, is in one of some pieces."""
        keys, (source, copy) = self.listed.table.partition_columns, self.kinds
        partitions = [self._partition(name) for name in names]
        of_source = where(partitions, keys, source)
        if comparing.metastore_refuses(partitions):
            # What Spark doesn't hand on to the metastore it looks for itself.
            of_source = f"coalesce({of_source}, false)"
        return of_source, where(partitions, keys, copy)

    def _partition(self, name: str) -> Partition:
        keys, kinds = self.listed.table.partition_columns, self.kinds[0]
        types = {column.lower(): kind for column, kind in kinds.items()}
        return parsed(self.listed.table.name, name, [types[key.lower()] for key in keys]) if keys else ()
