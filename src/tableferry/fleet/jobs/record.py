"""Records that the steps of a job write for later steps: typed fields, stored as JSON in the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self, TypedDict


class Size(TypedDict):
    """The size of a table.

    Attributes:
        files: The number of files.
        bytes: Their size in bytes.
    """

    files: int
    bytes: int


class BlockStart(Size):
    """The start of a block of writes, with the size of the table at that time.

    Attributes:
        since: Seconds since 1970.
    """

    since: float


class BlockedTime(Size):
    """The time for which writes were blocked.

    Attributes:
        seconds: The time in seconds.
    """

    seconds: float


class Rewrite(TypedDict, total=False):
    """The rewrite of a table's rows.

    Attributes:
        files: The number of files before.
        bytes: Their size in bytes.
        folder: The directory of the new files, once it is chosen.
        seconds: How long the rewrite took.
    """

    files: int
    bytes: int
    folder: str
    seconds: float


class Closed(TypedDict):
    """The end of a job's close.

    Attributes:
        at: The time in ISO format.
        kept: Directories that weren't removed.
    """

    at: str
    kept: list[str]


class RefusedRecipients(TypedDict):
    """Recipients of the last refused notification.

    Attributes:
        level: The level of the notification.
        recipients: The server's reply by recipient.
    """

    level: int
    recipients: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """The records of a job's steps.

    The queue stores the fields that differ from their defaults as JSON, under the fields' names.

    Attributes:
        moved: How long writers waited.
        blocked: When the current block of writes began.
        fence: The listing of the table at the block.
        rights: Write privileges that were revoked; the end of the block grants them again.
        withheld_rights: Write privileges on the Hive table that only a revert grants again.
        found: The finding for which the job was paused, if a person can accept it.
        accept: The finding that a person has accepted.
        checked: The table that the preprocessor checked: its directory and its creation time.
        rewritten: The rewrite of the rows; None if the new table keeps the files.
        was_managed: The Hive table was managed before the migration made it external.
        broken_views: Views that can't be read after the switch.
        removed_partitions: A sentence about partitions that an overwrite removed.
        left_directories: Directories that the job didn't create, or that it can't remove.
        late_files_not_looked_for: Why late files can't be listed.
        compare_all: The next shadow run compares every partition.
        without_hive_copy: A person confirmed that the job is finished without its Hive copy.
        rows_lost: A sentence about rows that a revert couldn't copy from a dropped new table.
        began_again: How often the migration has restarted at its block.
        failures: How many runs in a row have failed.
        last_error: The error of the last of these runs.
        closing: The remains that the close removes. From then on, a revert is impossible.
        closed: The end of the close.
        letters: Notes of notifications that aren't all sent; queues of version 0.2 have this name.
        refused_recipients: Recipients that the mail server refused.
        others: Fields of another version.
    """

    moved: BlockedTime | None = None
    blocked: BlockStart | None = None
    fence: Mapping[str, Any] = field(default_factory=dict)
    rights: tuple[Mapping[str, Any], ...] = ()
    withheld_rights: tuple[Mapping[str, Any], ...] = ()
    found: str = ""
    accept: str = ""
    checked: Mapping[str, Any] = field(default_factory=dict)
    rewritten: Rewrite | None = None
    was_managed: bool = False
    broken_views: tuple[str, ...] = ()
    removed_partitions: str = ""
    left_directories: tuple[str, ...] = ()
    late_files_not_looked_for: str = ""
    compare_all: bool = False
    without_hive_copy: bool = False
    rows_lost: str = ""
    began_again: int = 0
    failures: int = 0
    last_error: str = ""
    closing: Mapping[str, Any] = field(default_factory=dict)
    closed: Closed | None = None
    letters: Mapping[str, Any] = field(default_factory=dict)
    refused_recipients: RefusedRecipients | None = None
    others: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the record with the fields of a JSON object."""
        values: dict[str, Any] = {
            name: tuple(data[name]) if isinstance(data[name], list) else data[name]
            for name in _DEFAULTS.keys() & data.keys()
        }
        return cls(**values, others={name: data[name] for name in data.keys() - _DEFAULTS.keys()})

    def to_json(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults as a JSON object."""
        values = {name: getattr(self, name) for name in _DEFAULTS}
        known = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value != _DEFAULTS[name]
        }
        return {**known, **self.others}


_DEFAULTS: Mapping[str, Any] = {
    each.name: getattr(JobRecord(), each.name) for each in fields(JobRecord) if each.name != "others"
}
