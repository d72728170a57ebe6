"""Finds which metadata file of an Iceberg table is the current one, and reads it."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tableferry import files
from tableferry.convert.facts import IcebergTable
from tableferry.errors import MissingPackage, Refused, SessionError, TableError, TableferryError, first_line
from tableferry.extras import install
from tableferry.files import AnyPath, ObjectPath, ObjectStore, path_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

FOLDER = "metadata"
_HINT = "version-hint.text"
_NUMBERED = re.compile(r"v?(\d+)(?:-[^.]*)?(?:\.gz)?\.metadata\.json(?:\.gz)?")


def current(table: IcebergTable) -> str:
    """Return where the current metadata file of a table is.

    A catalog knows it. In a folder, ``version-hint.text`` names it, as Hadoop's catalog writes that, or it
    is the one with the highest number.

    Raises:
        Refused: Two have that number, so only a catalog knows which one counts.
        TableError: There is none, or the catalog doesn't answer.
        SessionError: pyiceberg isn't installed.
    """
    if table.catalog:
        return str(_load(table.catalog).metadata_location)
    root = path_of(table.root) / FOLDER
    names = files.all_names(root) if isinstance(root, ObjectPath) else tuple(os.listdir(root))
    numbered = {name: int(match[1]) for name in names if (match := _NUMBERED.fullmatch(name))}
    if not numbered:
        raise TableError("ICEBERG_METADATA_MISSING", folder=root)
    highest = max(numbered.values())
    if hint := (files.read_text(root / _HINT) or "").strip():
        # Hadoop's catalog writes the hint after the metadata, so there may be one that is newer.
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
        TableError: It can't be read or understood.
        SessionError: pyiceberg isn't installed.
    """
    try:
        from pyiceberg.serializers import FromInputFile
    except ModuleNotFoundError as error:
        raise _missing(error) from error
    with understood(location):
        return FromInputFile.table_metadata(storage().new_input(location))


@contextmanager
def understood(location: str) -> Iterator[None]:
    """Say which file it is that pyiceberg can't read; it fails in as many ways as there are damages.

    Raises:
        TableError: It failed.
    """
    try:
        yield
    except TableferryError:
        raise
    except Exception as error:
        raise TableError("ICEBERG_FILE_NOT_UNDERSTOOD", file=location, reason=first_line(error)) from error


def named(catalog: str) -> IcebergTable:
    """Find a table by its name in one of pyiceberg's catalogs.

    Raises:
        TableError: There is none, or the catalog doesn't answer.
        SessionError: pyiceberg isn't installed.
    """
    return IcebergTable(plain(_load(catalog).location()), catalog)


def storage(root: AnyPath | None = None, written_at: str = "") -> FileIO:
    """Return what pyiceberg is to read files by: this package's own storage.

    Args:
        root: Where the table's folder is.
        written_at: Where its metadata say that it is.
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
            return files.exists(path_at(self.location))

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
    except Exception as error:  # Each catalog has errors of its own.
        raise TableError(
            "ICEBERG_CATALOG_FAILED", catalog=catalog, table=identifier, reason=first_line(error)
        ) from error


def _missing(error: ModuleNotFoundError) -> SessionError:
    return MissingPackage("MISSING_PACKAGE_FOR_ICEBERG", package=error.name, command=install("iceberg"))


def plain(location: str) -> str:
    """Return the local path or the URI that Iceberg's metadata mean; they escape nothing in either."""
    local = re.match("file:(?://(?=/))?", location, re.IGNORECASE)
    return (location[local.end() :] if local else location).rstrip("/")


def below(location: str, root: AnyPath, written_at: str) -> str | None:
    """Return the path of a file below its table's folder; None if it's elsewhere.

    Args:
        location: Where the table's metadata says that the file is.
        root: Where the table's folder is.
        written_at: Where the metadata says that it is, which is elsewhere if the table was copied or mounted.
    """
    path = plain(location)
    for base in (str(root), plain(written_at)):
        for prefix in dict.fromkeys((base, os.path.realpath(base) if "://" not in base else base)):
            if path.startswith(f"{prefix.rstrip('/')}/"):
                return path[len(prefix.rstrip("/")) + 1 :]
    return None
