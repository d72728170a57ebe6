"""Shows some files of a Hive table as a Delta table will, while nothing is in the table's directory.

    <directory>/k=1/part-0.parquet                         the Hive table, as it is
    <directory's parent>/_tableferry_trial_<name>/<id>/    a log that names its files by their whole paths

Nobody's listing shows a name that begins so. Each trial has a folder of its own, for Spark keeps what it has
read of a log, and another worker, whose claim is lost, may be at its own.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tableferry import files
from tableferry.convert import overlay
from tableferry.driver import in_process
from tableferry.errors import StateError
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable
from tableferry.hive.locations import for_spark, reachable

_log = logging.getLogger(__name__)

_PREFIX = "_tableferry_trial_"


@contextmanager
def written(
    warehouse: Warehouse, table: HiveTable, draft: overlay.Draft, paths: Collection[str]
) -> Iterator[str]:
    """Write a log of some files that a draft names, and give its folder to a ``with``, which removes it.

    Args:
        warehouse: The warehouse.
        table: The Hive table.
        draft: The draft.
        paths: The files, as it names them.

    Raises:
        StateError: It can't be written.
    """
    sweep(warehouse, table)
    folder = _folder(draft.root) / uuid.uuid4().hex
    try:
        warehouse.effect(lambda: overlay.write_elsewhere(draft, table.location, folder, paths), of=())
        yield for_spark(str(folder))
    finally:
        # Nobody else knows the folder, so this needs no claim; who has lost it must leave nothing either.
        _remove(folder)
        with suppress(OSError):
            folder.parent.rmdir()


def sweep(warehouse: Warehouse, table: HiveTable) -> None:
    """Remove what runs that died have left beside a Hive table's directory."""
    root = reachable(table.location, same_machine=in_process(warehouse.spark))
    if root is not None and (folder := _folder(root)).is_dir():
        warehouse.effect(lambda: _remove(folder), of=())


def _folder(root: Path) -> Path:
    return root.with_name(_PREFIX + root.name)


def _remove(folder: Path) -> None:
    try:
        files.remove(folder)
    except StateError as error:
        # It's in nobody's way.
        _log.warning("%s is left: %s", folder, error)
