"""The locations of copies whose rows are rewritten.

    the Hive table: <directory>
    Iceberg:        <directory>_iceberg/metadata, …/data
    Delta:          <directory>_delta/rewritten-<id>

Each Delta copy has its own directory, because a Delta table can't be created among another table's files.
"""

from __future__ import annotations

import re
import uuid

from tableferry.fleet.jobs.job import TargetFormat

_SUFFIXES = {TargetFormat.ICEBERG: "_iceberg", TargetFormat.DELTA: "_delta"}
# The ends of new tables' directories, except those of Delta tables in the Hive table's own directory.
_NEW_TABLES = {
    TargetFormat.ICEBERG: re.compile(r"_iceberg$"),
    TargetFormat.DELTA: re.compile(r"_delta/(?:rewritten-)?[0-9a-f]{8}$"),
}
_WRITTEN = {
    TargetFormat.ICEBERG: re.compile(r"data|metadata"),
    TargetFormat.DELTA: re.compile(r"rewritten-[0-9a-f]{8}"),
}


def copies_folder(hive_location: str, form: TargetFormat) -> str:
    """Return the directory of a Hive table's copies."""
    return hive_location.rstrip("/") + _SUFFIXES[form]


def new_location(hive_location: str) -> str:
    """Return the directory for a new Delta copy."""
    return f"{copies_folder(hive_location, TargetFormat.DELTA)}/rewritten-{uuid.uuid4().hex[:8]}"


def is_written(name: str, form: TargetFormat) -> bool:
    """Return whether copies write this name into their directory."""
    return bool(_WRITTEN[form].fullmatch(name))


def hive_location_of(location: str, form: TargetFormat) -> str:
    """Return the directory of the Hive table from which a table was created.

    For a Delta table that was created in place, that's the same directory.
    """
    return _NEW_TABLES[form].sub("", location.rstrip("/"))
