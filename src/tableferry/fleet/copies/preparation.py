"""Create a table's copy and compare its rows before writes are blocked, so that writers wait only briefly.

    list ─> create or update the copy ─> compare its rows ─┐
      └────────── until little had to be compared ─────────┘

The same functions process later changes while writes are blocked. A Delta copy's log would be in the Hive
table's own directory, so only its commit is drafted, and a trial compares the rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.copies import comparison, delta, delta_trial, iceberg
from tableferry.fleet.hive_tables.table_files import TableFiles
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, TargetFormat
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import Member, members, specs_of
from tableferry.fleet.warehouse.step_run import StepRun
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# A comparison of up to these amounts takes seconds, so little is written before it ends.
_FEW_BYTES = 256 * 2**20
_FEW_FILES = 1000
_MOST_PASSES = 5


def make_target(step: steps.MakeTarget, run: StepRun) -> Job:
    """Create the copy in its format.

    Raises:
        TableError: A statement failed; run again when its cause is fixed.
        Refused: The table can't have this format, or another table has the target's name.
    """
    create_copy = iceberg.create_copy if step.format is TargetFormat.ICEBERG else delta.create_copy
    run.progress.update("files", create_copy(run.warehouse, step.source, step.target))
    return run.job


def prepare(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Create an Iceberg copy of a Hive table that is still written to; return the number of compared rows.

    If concurrent writes cause a failure, the rest is done when writes are blocked.

    Raises:
        RowsDiffer: The rows differ without concurrent writes.
        Refused: The table can't become an Iceberg table, or another table has the target's name.
        TableError: A statement failed without concurrent writes.
    """

    def create_and_compare(listed: TableFiles) -> int:
        iceberg.create_copy(warehouse, source, target)
        return comparison.require_copy_has_same_rows(warehouse, source, target, made_now=True)

    return _repeat_until_little(warehouse, source, TargetFormat.ICEBERG, create_and_compare)


def compare_ahead(warehouse: Warehouse, source: TableName) -> int:
    """Compare a Hive table that is still written to with its future Delta copy; return the number of rows.

    Everything is compared when writes are blocked if only Spark can write the log, if an earlier run has left
    a log, or if this process can't write beside the table's directory.

    Raises:
        RowsDiffer: The rows differ without concurrent writes.
        Refused: The table can't become a Delta table.
        TableError: The table can't be read, without concurrent writes.
    """
    prepared, table = warehouse.prepared, hive.require_eligible_table(warehouse, source, TargetFormat.DELTA)
    assert prepared is not None
    delta_trial.remove_trials(warehouse, table)

    def compare(listed: TableFiles) -> int:
        drafted = delta.draft_commit(warehouse, listed) if prepared.by_file else None
        return comparison.require_draft_has_same_rows(warehouse, listed, drafted) if drafted else 0

    try:
        if not delta.can_be_drafted(warehouse, table):
            return 0
        return _repeat_until_little(warehouse, source, TargetFormat.DELTA, compare)
    except StateError as error:
        _log.warning("%s is compared when writes are blocked: %s", source, error.one_line)
        return 0


def _repeat_until_little(
    warehouse: Warehouse, source: TableName, form: TargetFormat, compare: Callable[[TableFiles], int]
) -> int:
    """Compare the listed files, and later ones, until few are left; return the number of compared rows."""
    prepared, rows = warehouse.prepared, 0
    assert prepared is not None
    listed = _list_files(warehouse, source, form)
    for _ in range(_MOST_PASSES):
        left = members(listed) - (prepared.compared.files if prepared.compared else frozenset())
        failure = None
        try:
            prepared.by_file = comparison.is_comparable_by_file(warehouse, listed)
            rows += compare(listed)
        except (Refused, TableError) as error:
            failure = error
        if failure is None and prepared.by_file and _is_little(left):
            # Few files were written during this comparison.
            return rows
        # Hours may have passed.
        warehouse.invalidate((source,))
        before, listed = listed, _list_files(warehouse, source, form)
        left_out, prepared.busy = prepared.busy, frozenset()
        if listed.digest == before.digest:
            if failure is not None:
                raise failure
            if not left_out:
                return rows
        changed = specs_of(members(before) ^ members(listed))
        if failure is not None:
            _log.debug("%s was written to while it was copied (%s)", source, first_line(failure))
            prepared.busy = changed
        elif not prepared.by_file and prepared.compared is not None:
            # In changed partitions, it's unknown which files' rows were read.
            quiet = frozenset(file for file in prepared.compared.files if file[1] not in changed)
            prepared.compared = replace(prepared.compared, files=quiet)
    prepared.busy = frozenset()
    return rows


def _list_files(warehouse: Warehouse, source: TableName, form: TargetFormat) -> TableFiles:
    return hive.list_table_files(warehouse, hive.require_eligible_table(warehouse, source, form))


def _is_little(files: frozenset[Member]) -> bool:
    return len(files) <= _FEW_FILES and sum(file.size for file, _ in files) <= _FEW_BYTES
