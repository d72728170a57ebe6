"""Makes a table's copy and compares its rows while people go on writing, so that they are kept out shortly.

    list ─> make the copy of what is listed ─> compare its rows ─┐
      └────────────── until what was compared was little ────────┘

What came since is added and compared when writes are blocked, by `iceberg.make` and
`comparing.demand_same_as_copy` as here. A Delta copy's log would be in the table's own directory, so there is
none yet: what it will say is drafted, and compared by a trial.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from tableferry.errors import Refused, StateError, TableError, first_line
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.warehouse import comparing, delta, hive, iceberg, trial
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.files import TableFiles
from tableferry.fleet.warehouse.prepared import Member, members, specs_of
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# So much is compared in seconds, and little comes meanwhile.
_FEW_BYTES = 256 * 2**20
_FEW_FILES = 1000
_MOST_PASSES = 5


def prepare(warehouse: Warehouse, source: TableName, target: TableName) -> int:
    """Make an Iceberg copy of a Hive table that may be written to, and return how many rows were compared.

    What goes wrong because somebody wrote meanwhile is left to be done when writes are blocked.

    Raises:
        RowsDiffer: The rows aren't the same, and nobody wrote.
        Refused: The table can't be Iceberg, or another table has the target's name.
        TableError: A statement failed, and nobody wrote.
    """

    def make_and_compare(listed: TableFiles) -> int:
        iceberg.make(warehouse, source, target)
        return comparing.demand_same_as_copy(warehouse, source, target, made_now=True)

    return _until_little(warehouse, source, TargetFormat.ICEBERG, make_and_compare)


def compare_ahead(warehouse: Warehouse, source: TableName) -> int:
    """Compare a Hive table that may be written to with what its Delta copy will be; return how many rows.

    All is left to be done when writes are blocked where only Spark can write the log, where a log is there
    from an earlier run, and where nothing can be written beside the table's directory.

    Raises:
        RowsDiffer: The rows aren't the same, and nobody wrote.
        Refused: The table can't be Delta.
        TableError: Something can't be read, and nobody wrote.
    """
    prepared, table = warehouse.prepared, hive.demand_eligible(warehouse, source, TargetFormat.DELTA)
    assert prepared is not None
    trial.sweep(warehouse, table)

    def compare(listed: TableFiles) -> int:
        drafted = delta.drafted(warehouse, listed) if prepared.by_file else None
        return comparing.demand_same_as_drafted(warehouse, listed, drafted) if drafted else 0

    try:
        if not delta.can_be_drafted(warehouse, table):
            return 0
        return _until_little(warehouse, source, TargetFormat.DELTA, compare)
    except StateError as error:
        _log.warning("%s is compared when writes are blocked: %s", source, error.one_line)
        return 0


def _until_little(
    warehouse: Warehouse, source: TableName, form: TargetFormat, compare: Callable[[TableFiles], int]
) -> int:
    """Compare what is listed, and what came meanwhile, until that is little; return how many rows."""
    prepared, rows = warehouse.prepared, 0
    assert prepared is not None
    listed = _listed(warehouse, source, form)
    for _ in range(_MOST_PASSES):
        left = members(listed) - (prepared.compared.files if prepared.compared else frozenset())
        failure = None
        try:
            prepared.by_file = comparing.by_file(warehouse, listed)
            rows += compare(listed)
        except (Refused, TableError) as error:
            failure = error
        if failure is None and prepared.by_file and _is_little(left):
            # So is what came since.
            return rows
        # Hours may have passed.
        warehouse.forget((source,))
        before, listed = listed, _listed(warehouse, source, form)
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
            # Of which files rows were read nobody knows, where these aren't the same as before.
            quiet = frozenset(file for file in prepared.compared.files if file[1] not in changed)
            prepared.compared = replace(prepared.compared, files=quiet)
    prepared.busy = frozenset()
    return rows


def _listed(warehouse: Warehouse, source: TableName, form: TargetFormat) -> TableFiles:
    return hive.listed(warehouse, hive.demand_eligible(warehouse, source, form))


def _is_little(files: frozenset[Member]) -> bool:
    return len(files) <= _FEW_FILES and sum(file.size for file, _ in files) <= _FEW_BYTES
