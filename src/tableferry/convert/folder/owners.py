"""Finds the table to which a folder belongs: one whose root is a folder above it.

Only that table's metadata name the files below its root that count: the rows of others were deleted, or
were never committed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from tableferry import files
from tableferry.convert.folder import formats
from tableferry.errors import Refused, StateError, TableError
from tableferry.hive import locations

_log = logging.getLogger(__name__)

_F = TypeVar("_F")


class Owner(NamedTuple):
    """A table, and the folder that is its root."""

    format: str
    root: str


def owner(folder: files.AnyPath) -> Owner | None:
    """Return the nearest table above a folder, or None if there isn't one.

    In an object store this takes up to three requests for each folder above, however full they are.
    """
    return nearest(folder, _above(folder), formats.table_format)


def owner_by(names: Callable[[str], Sequence[str]], location: str) -> Owner | None:
    """Return the nearest table above a location.

    Args:
        names: Lists the names in a folder, given its location; an absent one has none.
        location: The location, as Hadoop writes it.
    """

    def table_format(above: str) -> str | None:
        return formats.format_by(lambda folder: names(f"{above}/{folder}"))

    return nearest(location, locations.above(location), table_format)


def nearest(folder: object, above: Iterable[_F], table_format: Callable[[_F], str | None]) -> Owner | None:
    """Return the first of some folders that is the root of a table.

    A folder that may not be listed, as a login may be limited to a prefix, is logged and skipped.

    Args:
        folder: The folder that the others are above.
        above: The others, the nearest first.
        table_format: Returns the format of the table whose root a folder is, or None.
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


def demand_none(folder: files.AnyPath) -> None:
    """Refuse a folder that belongs to a table above it.

    Raises:
        Refused: It does.
    """
    if found := owner(folder):
        raise refused(str(folder), found)


def refused(folder: str, found: Owner) -> Refused:
    """Return the refusal of a folder that belongs to a table above it."""
    return Refused("FOLDER_BELONGS_TO_TABLE", folder=folder, format=found.format, table=found.root)


def reason(found: Owner) -> str:
    """Return why a folder isn't converted, as the end of a sentence about it."""
    return f"is inside the {found.format} table {found.root}, whose metadata decide which files count"


def _above(folder: files.AnyPath) -> Iterator[files.AnyPath]:
    """Return the folders above, the nearest first: by the path, then by what its links lead to."""
    if isinstance(folder, files.ObjectPath):
        while folder.key:
            folder = folder.parent
            yield folder
        return
    named, real = Path(os.path.abspath(folder)), Path(os.path.realpath(folder))
    yield from named.parents
    if real != named:
        yield from (above for above in real.parents if above not in named.parents)
