"""Where the copies of tables lie whose rows are rewritten: pure.

    the Hive table: <directory>
    Iceberg:        <directory>_iceberg/metadata, …/data
    Delta:          <directory>_delta/rewritten-<id>

Each copy of Delta's has a directory of its own, as a table can't be made among another one's files.
"""

from __future__ import annotations

import re
import uuid

from tableferry.fleet.jobs.job import TargetFormat

_SUFFIXES = {TargetFormat.ICEBERG: "_iceberg", TargetFormat.DELTA: "_delta"}
# What the directories of new tables end in that aren't the Hive table's own.
_NOT_HIVES = {
    TargetFormat.ICEBERG: re.compile(r"_iceberg$"),
    TargetFormat.DELTA: re.compile(r"_delta/(?:rewritten-)?[0-9a-f]{8}$"),
}
_WRITTEN = {
    TargetFormat.ICEBERG: re.compile(r"data|metadata"),
    TargetFormat.DELTA: re.compile(r"rewritten-[0-9a-f]{8}"),
}


def folder_of(hive_location: str, form: TargetFormat) -> str:
    """Return the directory in which the copies of a Hive table lie."""
    return hive_location.rstrip("/") + _SUFFIXES[form]


def new_location(hive_location: str) -> str:
    """Return the directory of a new copy of Delta's."""
    return f"{folder_of(hive_location, TargetFormat.DELTA)}/rewritten-{uuid.uuid4().hex[:8]}"


def is_written(name: str, form: TargetFormat) -> bool:
    """Say whether a name in the directory of copies is of what these write there."""
    return bool(_WRITTEN[form].fullmatch(name))


def hive_location_of(location: str, form: TargetFormat) -> str:
    """Return the directory of the Hive table, by that of a table that was made of it.

    That is the same for a Delta table that was made in place.
    """
    return _NOT_HIVES[form].sub("", location.rstrip("/"))
