"""Makes a table's copy and compares its rows while people go on writing, so that they are kept out shortly.

    list ─> make the copy of what is listed ─> compare its rows ─> list again ─┐
      └───────────────── while much came or went meanwhile ────────────────────┘

What came since is added and compared when writes are blocked, by `iceberg.make` and
`comparing.demand_same_as_copy` as here.
"""

from __future__ import annotations

import logging

from tableferry.errors import Refused, TableError, first_line
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.warehouse import comparing, hive, iceberg
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared import members
from tableferry.tables import TableName

_log = logging.getLogger(__name__)

# What is left to be done while writes are blocked.
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
    prepared, rows = warehouse.prepared, 0
    assert prepared is not None
    table = hive.demand_eligible(warehouse, source, TargetFormat.ICEBERG)
    now = hive.listed(warehouse, table)
    for _ in range(_MOST_PASSES):
        before, failure = now, None
        try:
            iceberg.make(warehouse, source, target)
            rows += comparing.demand_same_as_copy(warehouse, source, target, made_now=True)
        except (Refused, TableError) as error:
            failure = error
        table = hive.demand_eligible(warehouse, source, TargetFormat.ICEBERG)
        now = hive.listed(warehouse, table)
        if now.digest == before.digest:
            if failure is not None:
                raise failure
            return rows
        if failure is not None:
            _log.info("%s was written to while it was copied (%s)", source, first_line(failure))
            continue
        if not comparing.by_file(warehouse, table):
            # Whose rows were read nobody knows.
            prepared.compared = None
            continue
        left = members(now) - (prepared.compared.files if prepared.compared else frozenset())
        if len(left) <= _FEW_FILES and sum(file.size for file, _ in left) <= _FEW_BYTES:
            break
    return rows
