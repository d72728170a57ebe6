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
from functools import partial

from tableferry.convert import overlay
from tableferry.errors import StateError
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.hive_table import HiveTable
from tableferry.fleet.warehouse.table_storage import storage_of
from tableferry.formats.hive.locations import for_spark
from tableferry.storage.port import TableStorage

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
    top = _top(table)
    storage = _storage(warehouse, top)
    if storage is None:
        raise StateError("TRIAL_FOLDER_NOT_WRITABLE", folder=table.location)
    _sweep(warehouse, storage, top)
    folder = f"{top}/{uuid.uuid4().hex}"
    text = overlay.first_commit_elsewhere(draft, table.location, paths)
    try:
        warehouse.effect(lambda: storage.write_text(f"{folder}/{overlay.LOG}/{overlay.FIRST}", text), of=())
        yield for_spark(folder)
    finally:
        # Nobody else knows the folder, so this needs no claim; who has lost it must leave nothing either.
        _remove(storage, folder)
        with suppress(StateError):
            storage.remove_empty(top)


def sweep(warehouse: Warehouse, table: HiveTable) -> None:
    """Remove what runs that died have left beside a Hive table's directory."""
    top = _top(table)
    if (storage := _storage(warehouse, top)) is not None:
        _sweep(warehouse, storage, top)


def _sweep(warehouse: Warehouse, storage: TableStorage[str], top: str) -> None:
    with suppress(StateError):
        if names := storage.all_names(top):
            for name in names:
                warehouse.effect(partial(_remove, storage, f"{top}/{name}"), of=())
            warehouse.effect(partial(storage.remove_empty, top), of=())


def _storage(warehouse: Warehouse, top: str) -> TableStorage[str] | None:
    """Return where trials are; None if only Spark reaches it, or there is nothing beside a whole bucket."""
    above = top.rpartition("/")[0]
    return None if above.endswith(":/") else storage_of(warehouse.spark, above)


def _top(table: HiveTable) -> str:
    above, _, name = table.location.rstrip("/").rpartition("/")
    return f"{above}/{_PREFIX}{name}"


def _remove(storage: TableStorage[str], folder: str) -> None:
    try:
        storage.remove(folder)
    except StateError as error:
        # It's in nobody's way.
        _log.warning("%s is left: %s", folder, error.one_line)
