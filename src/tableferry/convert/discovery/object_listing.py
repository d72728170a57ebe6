"""List a table's data files in an object store, with one listing of the objects below its root."""

from __future__ import annotations

from tableferry import storage
from tableferry.convert.discovery import table_formats
from tableferry.errors import TableError
from tableferry.formats.parquet.files import DataFile


def data_files(root: storage.ObjectPath) -> tuple[list[DataFile], bool]:
    """Return the data files below a root, sorted by path, and whether a streaming sink wrote there.

    The same names are left out and refused as in `discover.visible_files`.

    Raises:
        TableError: The root has no objects.
        Refused: An object can't be part of a table of Parquet files.
        StateError: The store can't be listed.
    """
    found: list[DataFile] = []
    sink = anything = False
    for item in storage.ObjectStore(root.store).below(root):
        anything = True
        sink = sink or item.path.startswith(f"{table_formats.SINK_LOG}/")
        if _is_data(root, item.path):
            found.append(DataFile(*item))
    if not anything:
        raise TableError("FOLDER_MISSING", folder=root)
    return sorted(found), sink


def _is_data(root: storage.ObjectPath, path: str) -> bool:
    *folders, name = path.split("/")
    for depth, folder in enumerate(folders):
        if table_formats.is_hidden(folder) and "=" not in folder:
            if depth:
                _demand_no_table(f"{root}/{'/'.join(folders[:depth])}", folder, folders[depth + 1 :], name)
            return False
        if table_formats.is_acid(folder):
            raise table_formats.transactional(f"{root}/{'/'.join(folders[: depth + 1])}")
    if name == table_formats.HUDI_PARTITION:
        raise table_formats.hudi_partition("/".join([str(root), *folders]))
    return not table_formats.is_hidden(name)


def _demand_no_table(folder: str, hidden: str, below: list[str], name: str) -> None:
    if hidden in (table_formats.SINK_LOG, table_formats.HUDI) or (
        hidden == table_formats.DELTA_LOG and not below and table_formats.is_commit(name)
    ):
        raise table_formats.table_of_its_own(folder, hidden)
