"""Find and read the current metadata file of an Iceberg table, and map its locations to paths."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry import storage
from tableferry.errors import MissingPackage, Refused, SessionError, TableError, TableferryError, first_line
from tableferry.extras import install
from tableferry.formats.iceberg.tables import IcebergTable
from tableferry.storage import AnyPath, ObjectPath, ObjectStore, path_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

FOLDER = "metadata"
_HINT = "version-hint.text"
_NUMBERED = re.compile(r"v?(\d+)(?:-[^.]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")


def current(table: IcebergTable) -> str:
    """Return the path of a table's current metadata file.

    A catalog stores this path. In a folder, the current file is the one with the highest number. Hadoop's
    catalog also writes a number to ``version-hint.text``. If that is higher, the current file is missing.

    Raises:
        Refused: The current file is missing, or two files have the highest number, so only a catalog can
            decide.
        TableError: The folder has no metadata file, or the catalog fails.
        SessionError: pyiceberg isn't installed.
    """
    if table.catalog:
        return str(_load(table.catalog).metadata_location)
    root = path_of(table.root) / FOLDER
    names = storage.all_names(root) if isinstance(root, ObjectPath) else tuple(os.listdir(root))
    numbered = {name: int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
    if not numbered:
        raise TableError("ICEBERG_METADATA_MISSING", folder=root)
    highest = max(numbered.values())
    if hint := (storage.read_text(root / _HINT) or "").strip():
        # Hadoop's catalog writes the hint after the metadata, so a newer metadata file may exist.
        highest = max(highest, int(hint)) if hint.isdecimal() else highest
    newest = sorted(name for name, number in numbered.items() if number == highest)
    if len(newest) != 1:
        raise Refused(
            "ICEBERG_METADATA_AMBIGUOUS",
            folder=root,
            files=" and ".join(newest) or f"no metadata file of version {highest}",
        )
    return str(root / newest[0])


def read(location: str) -> TableMetadata:
    """Read a metadata file.

    Raises:
        TableError: The file can't be read or parsed.
        SessionError: pyiceberg isn't installed.
    """
    try:
        from pyiceberg.serializers import FromInputFile
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    with decoding_errors(location):
        return FromInputFile.table_metadata(file_io().new_input(location))


@contextmanager
def decoding_errors(location: str) -> Iterator[None]:
    """Turn any error of pyiceberg into one that names the file.

    pyiceberg raises many exception types, depending on the damage.

    Raises:
        TableError: pyiceberg raised an error.
    """
    try:
        yield
    except TableferryError:
        raise
    except Exception as error:
        raise TableError("ICEBERG_FILE_NOT_UNDERSTOOD", file=location, reason=first_line(error)) from error


def named(catalog: str) -> IcebergTable:
    """Return a table by its name in one of pyiceberg's catalogs, such as ``catalog.schema.table``.

    Raises:
        TableError: The table is missing, or the catalog fails.
        SessionError: pyiceberg isn't installed.
    """
    return IcebergTable(plain(_load(catalog).location()), catalog)


def file_io(root: AnyPath | None = None, written_at: str = "") -> FileIO:
    """Return a read-only ``FileIO`` by which pyiceberg reads files through `tableferry.storage`.

    Args:
        root: The table's folder.
        written_at: The table's folder according to its metadata.
    """
    from pyiceberg.io import FileIO, InputFile, OutputFile

    def path_at(location: str) -> AnyPath:
        inside = below(location, root, written_at) if root is not None else None
        return path_of(plain(location)) if root is None or inside is None else root / inside

    class Input(InputFile):
        def _bytes(self) -> bytes:
            path = path_at(self.location)
            if isinstance(path, ObjectPath):
                if (content := ObjectStore(path.store).read(path)) is None:
                    raise TableError("ICEBERG_FILE_MISSING", file=path)
                return content
            return _local(path)

        def __len__(self) -> int:
            return len(self._bytes())

        def exists(self) -> bool:
            return storage.exists(path_at(self.location))

        def open(self, seekable: bool = True) -> Any:
            return io.BytesIO(self._bytes())

    class Storage(FileIO):
        def new_input(self, location: str) -> InputFile:
            return Input(location)

        def new_output(self, location: str) -> OutputFile:
            raise AssertionError(f"{location}: nothing of an Iceberg table is written")

        def delete(self, location: str | InputFile | OutputFile) -> None:
            raise AssertionError(f"{location}: nothing of an Iceberg table is removed")

    return Storage()


def _local(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise TableError("ICEBERG_FILE_MISSING", file=path) from error
    except OSError as error:
        raise TableError("PATH_NOT_READABLE", path=path, reason=error.strerror) from error


def _load(name: str) -> Any:
    try:
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    catalog, _, identifier = name.partition(".")
    try:
        return load_catalog(catalog).load_table(identifier)
    except NoSuchTableError as error:
        raise TableError("ICEBERG_TABLE_MISSING", catalog=catalog, table=identifier) from error
    except Exception as error:  # Each catalog raises different exception types.
        raise TableError(
            "ICEBERG_CATALOG_FAILED", catalog=catalog, table=identifier, reason=first_line(error)
        ) from error


def _missing(error: ModuleNotFoundError) -> SessionError:
    return MissingPackage("MISSING_PACKAGE_FOR_ICEBERG", package=error.name, command=install("iceberg"))


def plain(location: str) -> str:
    """Return a location in Iceberg's metadata as a local path or a URI. The metadata escapes neither."""
    local = re.match("file:(?://(?=/))?", location, re.IGNORECASE)
    return (location[local.end() :] if local else location).rstrip("/")


def below(location: str, root: AnyPath, written_at: str) -> str | None:
    """Return a file's path relative to its table's folder, or None if the file is outside it.

    Args:
        location: The file's location in the table's metadata.
        root: The table's folder.
        written_at: The table's folder according to its metadata. It differs from the root if the table was
            copied or mounted.
    """
    path = plain(location)
    for base in (str(root), plain(written_at)):
        for prefix in dict.fromkeys((base, os.path.realpath(base) if "://" not in base else base)):
            if path.startswith(f"{prefix.rstrip('/')}/"):
                return path[len(prefix.rstrip("/")) + 1 :]
    return None
