"""Where the copies of tables lie whose rows are rewritten: pure.

    the Hive table: <directory>
    Iceberg:        <directory>_iceberg/metadata, …/data
    Delta:          <directory>_delta/rewritten-<id>

Each copy of Delta's has a directory of its own, as a table can't be made among another one's files.
"""

from __future__ import annotations

import re
import uuid

from tableferry.fleet.job import TargetFormat

_SUFFIXES = {TargetFormat.ICEBERG: "_iceberg", TargetFormat.DELTA: "_delta"}
_COPY = re.compile(r"rewritten-[0-9a-f]{8}")
_ICEBERGS = ("data", "metadata")


def folder_of(hive_location: str, form: TargetFormat) -> str:
    """Return the directory in which the copies of a Hive table lie."""
    return hive_location.rstrip("/") + _SUFFIXES[form]


def new_location(hive_location: str) -> str:
    """Return the directory of a new copy of Delta's."""
    return f"{folder_of(hive_location, TargetFormat.DELTA)}/rewritten-{uuid.uuid4().hex[:8]}"


def is_copys(location: str) -> bool:
    """Say whether a directory has the name of a copy of Delta's."""
    return bool(_COPY.fullmatch(location.rstrip("/").rpartition("/")[2]))


def is_of_copies(name: str, form: TargetFormat) -> bool:
    """Say whether a name in the directory of copies is one of theirs."""
    return name in _ICEBERGS if form is TargetFormat.ICEBERG else is_copys(name)


def hive_location_of(location: str, form: TargetFormat) -> str:
    """Return the directory of the Hive table, by that of a table that was made of it.

    That is the same for a Delta table that was made in place.
    """
    location = location.rstrip("/")
    above = location.rpartition("/")[0] if form is TargetFormat.DELTA and is_copys(location) else location
    if form is TargetFormat.DELTA and above == location:
        return location
    return above.removesuffix(_SUFFIXES[form])
