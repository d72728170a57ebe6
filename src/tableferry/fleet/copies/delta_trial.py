"""Show files of a Hive table as a Delta table before a log is written to the table's directory.

    <directory>/k=1/part-0.parquet                         the Hive table, unchanged
    <directory's parent>/_tableferry_trial_<name>/<id>/    a log with the absolute paths of its files

Listings skip names that begin with an underscore. Each trial has its own folder, because Spark caches logs
by their paths, and a worker that has lost its claim may still use its own trial.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from tableferry.convert import overlay
from tableferry.errors import StateError
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_storage import storage_of
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.locations import for_spark
from tableferry.storage.port import TableStorage

_log = logging.getLogger(__name__)

_PREFIX = "_tableferry_trial_"


@contextmanager
def write_trial(
    warehouse: Warehouse, table: HiveTable, draft: overlay.Draft, paths: Collection[str]
) -> Iterator[str]:
    """Write a log with some files of a draft, provide its folder inside a ``with``, and remove it.

    Args:
        warehouse: The warehouse.
        table: The Hive table.
        draft: The draft.
        paths: The files' paths in the draft.

    Raises:
        StateError: The log can't be written.
    """
    top = _top(table)
    storage = _storage(warehouse, top)
    if storage is None:
        raise StateError("TRIAL_FOLDER_NOT_WRITABLE", folder=table.location)
    _remove_trials(warehouse, storage, top)
    folder = f"{top}/{uuid.uuid4().hex}"
    text = overlay.first_commit_elsewhere(draft, table.location, paths)
    try:
        warehouse.effect(lambda: storage.write_text(f"{folder}/{overlay.LOG}/{overlay.FIRST}", text), of=())
        yield for_spark(folder)
    finally:
        # No other process uses the folder, so a worker removes it even after it has lost its claim.
        _remove(storage, folder)
        with suppress(StateError):
            storage.remove_empty(top)


def remove_trials(warehouse: Warehouse, table: HiveTable) -> None:
    """Remove the trials of killed runs beside a Hive table's directory."""
    top = _top(table)
    if (storage := _storage(warehouse, top)) is not None:
        _remove_trials(warehouse, storage, top)


def _remove_trials(warehouse: Warehouse, storage: TableStorage[str], top: str) -> None:
    with suppress(StateError):
        if names := storage.all_names(top):
            for name in names:
                warehouse.effect(partial(_remove, storage, f"{top}/{name}"), of=())
            warehouse.effect(partial(storage.remove_empty, top), of=())


def _storage(warehouse: Warehouse, top: str) -> TableStorage[str] | None:
    """Return the storage of trials; None if only Spark reaches it, or the table is a whole bucket."""
    above = top.rpartition("/")[0]
    return None if above.endswith(":/") else storage_of(warehouse.spark, above)


def _top(table: HiveTable) -> str:
    above, _, name = table.location.rstrip("/").rpartition("/")
    return f"{above}/{_PREFIX}{name}"


def _remove(storage: TableStorage[str], folder: str) -> None:
    try:
        storage.remove(folder)
    except StateError as error:
        # The folder disturbs no other process.
        _log.warning("%s is left: %s", folder, error.one_line)
