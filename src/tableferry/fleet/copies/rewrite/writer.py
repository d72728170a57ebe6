"""Rewrite a table's rows into a copy before writes are blocked, and later changes while they are blocked.

    list ─> write the changed partitions, in chunks ─> compare their rows ─┐
      └─────────────────────── until little changed ───────────────────────┘

The copy's own commits record its partitions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tableferry.amounts import first_of, size
from tableferry.errors import TableError
from tableferry.fleet.copies import comparison
from tableferry.fleet.copies.rewrite import rewritten_copy
from tableferry.fleet.copies.rewrite.partitions import (
    WHOLE_TABLE,
    SourcePartition,
    list_foreign_partitions,
    list_outdated_partitions,
    list_source_partitions,
    split_into_chunks,
)
from tableferry.fleet.copies.rewrite.rewritten_copy import RewrittenCopy
from tableferry.fleet.hive_tables import copy_locations
from tableferry.fleet.hive_tables.partition_conditions import sql_types, where
from tableferry.fleet.hive_tables.partitions import Partition, parsed
from tableferry.fleet.hive_tables.table_files import TableFiles, refuse_nested_files
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.jobs.record import Rewrite
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.step_run import StepRun, pausing
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# Rewriting up to this size takes seconds, so little is written before it ends.
_FEW_BYTES = 256 * 2**20
_MOST_PASSES = 5


def rewrite_ahead(step: steps.RewriteAhead, run: StepRun) -> Job:
    """Rewrite a table's rows before the block, and record the directory and the duration.

    Raises:
        StepPaused: The rows differ without concurrent writes.
        Refused: As in `write_before_block`, or the new directory isn't empty.
        TableError: As in `write_before_block`.
    """
    began, warehouse = time.monotonic(), run.warehouse
    folder = copy_locations.copies_folder(hive.read_layout(warehouse, step.hive).location, step.format)
    rewritten = run.job.record.rewritten or Rewrite()
    if folder != rewritten.get("folder"):
        rewritten_copy.require_empty(warehouse, folder)
    job = run.save(run.job.with_record(rewritten={**rewritten, "folder": folder}))
    with pausing(PauseReason.ROWS_DIFFER, comparison.RowsDiffer):
        run.progress.update("rows", write_before_block(warehouse, step.hive, step.target, step.format))
    seconds = round(time.monotonic() - began, 1)
    return job.with_record(rewritten={**rewritten, "folder": folder, "seconds": seconds})


def rewrite_rest(step: steps.RewriteRest, run: StepRun) -> Job:
    """Rewrite the partitions that changed since.

    Raises:
        Refused: As in `write_during_block`.
        TableError: As in `write_during_block`.
    """
    count = write_during_block(run.warehouse, step.hive, step.target, step.format)
    run.progress.update("partitions", count)
    return run.job


def verify_rewritten(step: steps.VerifyRewritten, run: StepRun) -> Job:
    """Require that a rewritten copy has the rows of the blocked Hive table.

    Raises:
        StepPaused: The rows differ.
        Refused: As in `require_rewritten_rows`.
        TableError: As in `require_rewritten_rows`.
    """
    with pausing(PauseReason.ROWS_DIFFER, comparison.RowsDiffer):
        rows = require_rewritten_rows(run.warehouse, step.hive, step.target, step.format)
    run.progress.update("rows", rows)
    return run.job


def write_before_block(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> int:
    """Write the rows of a Hive table that is still written to into its copy, and compare them.

    Partitions that an earlier run has written aren't written again. If concurrent writes cause a failure, the
    rest is done when writes are blocked.

    Returns:
        The number of compared rows.

    Raises:
        RowsDiffer: The rows differ without concurrent writes.
        Refused: The table can't be rewritten, or another table has the copy's name.
        TableError: The table or its copy can't be read or written, without concurrent writes.
    """
    rows, left = 0, 0
    differing: Mapping[str, comparison.RowsDiffer] = {}
    listed = hive.list_table_files(warehouse, hive.require_hive_table(warehouse, source))
    for _ in range(_MOST_PASSES):
        failure: TableError | comparison.RowsDiffer | None = None
        try:
            work = _Rewrite.on(warehouse, listed, target, form)
            names = sorted({*list_outdated_partitions(work.wanted, work.copy.held), *differing})
            left = sum(work.wanted[name].bytes for name in names if name in work.wanted)
            _log.debug("%s: %s of %s are to be written", source, size(left), size(work.bytes))
            work.write(names)
            compared, differing = work.compare()
            rows += compared
            failure = next((differing[name] for name in names if name in differing), None)
        except TableError as error:
            failure = error
        # Hours may have passed.
        warehouse.invalidate((source,))
        before, listed = listed, hive.list_table_files(warehouse, hive.require_hive_table(warehouse, source))
        unchanged = listed.digest == before.digest
        if failure is not None:
            if unchanged:
                raise failure
            _log.debug("%s was written to while it was rewritten (%s)", source, failure)
        elif not differing and (unchanged or left <= _FEW_BYTES):
            break
    return rows


def write_during_block(warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat) -> int:
    """Write the changed partitions of a blocked Hive table into its copy; return their number.

    Raises:
        Refused: As `write_before_block`.
        TableError: As `write_before_block`.
    """
    work = _Rewrite.on(
        warehouse, hive.last_table_files(warehouse, hive.require_hive_table(warehouse, source)), target, form
    )
    names = list_outdated_partitions(work.wanted, work.copy.held)
    work.write(names)
    if form is TargetFormat.DELTA:
        work.seal()
    return len(names)


def require_rewritten_rows(
    warehouse: Warehouse, source: TableName, target: TableName, form: TargetFormat
) -> int:
    """Require that a copy has the rows of a blocked Hive table.

    Partitions that this run has compared, and that weren't written since, aren't read again.

    Returns:
        The number of compared rows.

    Raises:
        RowsDiffer: The rows differ.
        Refused: Another process wrote to the copy.
        TableError: The copy was written from other files, or a table can't be read.
    """
    work = _Rewrite.on(
        warehouse, hive.last_table_files(warehouse, hive.require_hive_table(warehouse, source)), target, form
    )
    if other := list_foreign_partitions(work.wanted, work.copy.held):
        raise TableError(
            "REWRITTEN_COPY_OUTDATED",
            table=target,
            source=source,
            partitions=["the table itself"] if other == [WHOLE_TABLE] else list(other),
        )
    rows, differing = work.compare()
    for error in differing.values():
        raise error
    return rows


@dataclass
class _Rewrite:
    """A Hive table's partitions and its copy."""

    warehouse: Warehouse
    listed: TableFiles
    copy: RewrittenCopy
    wanted: Mapping[str, SourcePartition]
    kinds: tuple[Mapping[str, str], Mapping[str, str]]

    @classmethod
    def on(cls, warehouse: Warehouse, listed: TableFiles, target: TableName, form: TargetFormat) -> _Rewrite:
        table = listed.table
        if refusal := refuse_nested_files(table.name, listed.listing):
            raise refusal
        with explaining("NEW_TABLE_NOT_CREATED_FROM_ROWS", source=table.name, target=target):
            copy = rewritten_copy.open_copy(warehouse, table, target, form)
            of_source, of_copy = (
                sql_types(warehouse.spark.table(name.sql).schema)
                for name in (table.name, warehouse.named(target, form))
            )
        return cls(warehouse, listed, copy, list_source_partitions(listed), (of_source, of_copy))

    @property
    def bytes(self) -> int:
        return sum(partition.bytes for partition in self.wanted.values())

    def write(self, names: Sequence[str]) -> None:
        """Write partitions in chunks, one commit for each."""
        table = self.listed.table
        for chunk in self._split_into_chunks(names):
            partitions = {name: self.wanted[name].digest if name in self.wanted else None for name in chunk}
            # A removed partition may exist again now, and be removed again before the next listing, which
            # wouldn't find its rows in the copy. So its rows aren't written.
            existing = [name for name in chunk if name in self.wanted]
            conditions = self._conditions(existing)[0] if existing else "false", self._conditions(chunk)[1]
            with explaining("ROWS_NOT_REWRITTEN", source=table.name, target=self.copy.name):
                self.copy = rewritten_copy.write(self.warehouse, table, self.copy, partitions, conditions)

    def seal(self) -> None:
        """Commit without rows, so a chunk that a suspended worker has started can't be committed later."""
        self.copy = rewritten_copy.write(
            self.warehouse, self.listed.table, self.copy, {}, ("false", "false"), sealing=True
        )

    def compare(self) -> tuple[int, Mapping[str, comparison.RowsDiffer]]:
        """Compare the partitions that changed since this run has compared them.

        Returns:
            The number of compared rows, and the partitions that differ.
        """
        prepared, held = self.warehouse.prepared, self.copy.held
        known = prepared.partitions if prepared else {}
        names = sorted(name for name, partition in held.items() if known.get(name) != partition.version)
        rows, differing = 0, dict[str, comparison.RowsDiffer]()
        for chunk in self._split_into_chunks(names):
            try:
                rows += self._compare(chunk)
            except comparison.RowsDiffer as error:
                _log.debug("%s: %s differs (%s)", self.copy.name, first_of(chunk), error)
                differing |= dict.fromkeys(chunk, error)
            else:
                known |= {name: held[name].version for name in chunk}
        return rows, differing

    def _compare(self, names: Sequence[str]) -> int:
        warehouse, (of_source, of_copy) = self.warehouse, self._conditions(names)
        source, copy = self.listed.table.name, self.copy
        return comparison.require_same_frames(
            (str(source), lambda: comparison.read_rows(warehouse, source, where=of_source)),
            (str(copy.name), lambda: comparison.read_rows(warehouse, copy.name, copy.version, of_copy)),
        )

    def _split_into_chunks(self, names: Iterable[str]) -> Iterator[list[str]]:
        return split_into_chunks(names, self.wanted, self.warehouse.rewrite_chunk)

    def _conditions(self, names: Iterable[str]) -> tuple[str, str]:
        """Return the conditions that select the rows of some partitions in the Hive table and in the copy."""
        keys, (source, copy) = self.listed.table.partition_columns, self.kinds
        partitions = [self._partition(name) for name in names]
        of_source = where(partitions, keys, source)
        if comparison.is_refused_by_metastore(partitions):
            # The function keeps Spark from sending the condition to the metastore.
            of_source = f"coalesce({of_source}, false)"
        return of_source, where(partitions, keys, copy)

    def _partition(self, name: str) -> Partition:
        keys, kinds = self.listed.table.partition_columns, self.kinds[0]
        types = {column.lower(): kind for column, kind in kinds.items()}
        return parsed(self.listed.table.name, name, [types[key.lower()] for key in keys]) if keys else ()
