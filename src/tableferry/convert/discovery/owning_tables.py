"""Find the table that contains a folder: a table whose root is a parent of the folder.

Only that table's metadata records which files are current. The rows of other files were deleted or
never committed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tableferry import storage
from tableferry.convert.discovery import table_formats
from tableferry.errors import Refused, StateError, TableError
from tableferry.formats.hive import locations

_log = logging.getLogger(__name__)

_F = TypeVar("_F")


class Owner(NamedTuple):
    """The format and the root folder of a table."""

    format: str
    root: str


def owner(folder: storage.AnyPath) -> Owner | None:
    """Return the nearest table above a folder, or None.

    In an object store, this sends up to three requests per parent folder, for any number of objects.
    """
    return nearest(folder, _above(folder), table_formats.table_format)


def owner_by(names: Callable[[str], Sequence[str]], location: str) -> Owner | None:
    """Return the nearest table above a location, or None.

    Args:
        names: Lists the names in the folder at a location; a missing folder has none.
        location: The location, as Hadoop writes it.
    """

    def table_format(above: str) -> str | None:
        return table_formats.format_by(lambda folder: names(f"{above}/{folder}"))

    return nearest(location, locations.above(location), table_format)


def nearest(folder: object, above: Iterable[_F], table_format: Callable[[_F], str | None]) -> Owner | None:
    """Return the first of a folder's parents that is the root of a table, or None.

    A parent that can't be listed is logged and skipped, because a login may be limited to a prefix.

    Args:
        folder: The folder, for the log message.
        above: Its parents, the nearest first.
        table_format: Returns the format of the table whose root is a folder, or None.
    """
    for root in above:
        try:
            found = table_format(root)
        except (StateError, TableError) as error:
            _log.warning("whether %s is a table above %s isn't known: %s", root, folder, error.one_line)
            continue
        if found:
            return Owner(found, str(root))
    return None


def require_none(folder: storage.AnyPath) -> None:
    """Refuse a folder that belongs to a table above it.

    Raises:
        Refused: A parent of the folder is a table's root.
    """
    if found := owner(folder):
        raise refused(str(folder), found)


def refused(folder: str, found: Owner) -> Refused:
    """Return the refusal of a folder that belongs to a table above it."""
    return Refused("FOLDER_BELONGS_TO_TABLE", folder=folder, format=found.format, table=found.root)


def reason(found: Owner) -> str:
    """Return why a folder isn't converted, as the end of a sentence whose subject is the folder."""
    return f"is inside the {found.format} table {found.root}, whose metadata decide which files count"


def _above(folder: storage.AnyPath) -> Iterator[storage.AnyPath]:
    """Yield the folder's parents, the nearest first: those of its path, then those of its resolved path."""
    if isinstance(folder, storage.ObjectPath):
        while folder.key:
            folder = folder.parent
            yield folder
        return
    named, real = Path(os.path.abspath(folder)), Path(os.path.realpath(folder))
    yield from named.parents
    if real != named:
        yield from (above for above in real.parents if above not in named.parents)
