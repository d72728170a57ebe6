"""What a run knows of the copy that it makes, from before writes are blocked until the names are swapped.

It's kept in memory alone: whoever goes on after a crash compares everything, while writes are blocked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tableferry.convert.overlay import Draft, KnownFooters
from tableferry.fleet.warehouse.files import ListedFile, TableFiles, paths_below

# Object stores have whole seconds, so that a file written again in the same second looks the same.
_SECOND = 1_000_000
_LONG_AGO = 60 * _SECOND

Member = tuple[ListedFile, str]
"""A file of a table, and the values of its partition as ``year=2024/city=S%3Ao``."""


@dataclass(frozen=True)
class Made:
    """An Iceberg copy, as this run left it.

    Attributes:
        reading: How the Hive table's files were read then.
        snapshot: Its snapshot id.
        holds: Its files.
        added: Those of them that its newest snapshot added.
        since: The snapshot before that one; None if the copy was empty, or nobody knows.
        mapping: Its name mapping, if that needn't be asked for.
    """

    reading: str
    snapshot: str
    holds: frozenset[Member]
    added: frozenset[Member]
    since: str | None = None
    mapping: str | None = None


@dataclass(frozen=True)
class Drafted:
    """The only commit of a Delta copy, written by this run or to be written.

    Attributes:
        reading: How its files are read: both tables' columns, and whatever else decides on rows.
        location: The table's directory.
        holds: Those files that it names as they were listed.
    """

    draft: Draft
    reading: str
    location: str
    holds: frozenset[Member]

    @classmethod
    def of(cls, draft: Draft, listed: TableFiles) -> Drafted:
        """Take a draft of a table that was listed right before."""
        # It lists the table itself, and knows milliseconds.
        named, location, every = set(draft.files), listed.table.location, list(members(listed))
        paths = paths_below((file for file, _ in every), location)
        holds = frozenset(
            (file, spec)
            for (file, spec), path in zip(every, paths, strict=True)
            if (path, file.size, file.modified // 1000) in named
        )
        return cls(draft, json.dumps([listed.table.reading, draft.reading]), location, holds)

    @property
    def hive_reading(self) -> str:
        """How the Hive table's files were read when it was drafted."""
        return str(json.loads(self.reading)[0])

    def paths(self, files: Iterable[Member]) -> set[str]:
        """Return some files' paths as the commit says them."""
        return {path or "" for path in paths_below((file for file, _ in files), self.location)}

    def footers(self, files: Iterable[Member]) -> KnownFooters:
        """Return the footers of some files."""
        return self.draft.footers(self.paths(files))


@dataclass(frozen=True)
class Compared:
    """Files whose rows are the same in both tables.

    Attributes:
        reading: How they were read: both tables' columns, and the copy's name mapping, if it has one.
        drafted: What the Delta copy's commit said of them.
    """

    reading: str
    files: frozenset[Member]
    drafted: Drafted | None = None

    @property
    def footers(self) -> KnownFooters:
        """The footers of a Delta copy's files, which needn't be read again."""
        return self.drafted.footers(self.files) if self.drafted else {}


@dataclass(frozen=True)
class Recorded:
    """Files that are recorded already as those that belong in the Hive copy's directories.

    Attributes:
        folder: The record's.
        stray: Those of them that the table doesn't read.
    """

    folder: str
    files: frozenset[ListedFile]
    stray: frozenset[ListedFile] = frozenset()


@dataclass
class Prepared:
    """What is known by now.

    Attributes:
        listed: The Hive table's files when they were last listed.
        made: The Iceberg copy.
        drafted: The Delta copy.
        compared: What of it was compared.
        by_file: Whether the table's files can be compared one by one; else whole partitions are.
        busy: Partitions to which somebody wrote while they were compared, so that this was in vain: they
            are left out once.
        recorded: What of its files is recorded.
        pieces: Of a table whose rows are rewritten, the pieces that were compared, each with the version
            of the copy that it was written by.
    """

    listed: TableFiles | None = None
    made: Made | None = None
    drafted: Drafted | None = None
    compared: Compared | None = None
    by_file: bool = False
    busy: frozenset[str] = frozenset()
    recorded: Recorded | None = None
    pieces: dict[str, str] = field(default_factory=dict)

    def compared_files(self, reading: str) -> frozenset[Member] | None:
        """Return the files that were compared; None if nothing was that is read as it would be now."""
        return self.compared.files if self.compared and self.compared.reading == reading else None


def members(listed: TableFiles) -> frozenset[Member]:
    """Return the files that a table's rows are in, each with its partition."""
    specs = listed.specs()
    return frozenset((file, spec) for file in listed.listing.read for spec in specs.get(file.directory, ()))


def specs_of(files: Iterable[Member]) -> frozenset[str]:
    """Return the partitions that files are in."""
    return frozenset(spec for _, spec in files)


def settled(files: frozenset[Member], at: int) -> frozenset[Member]:
    """Return those files that can't be written again without another size or time.

    Args:
        files: Files that were listed.
        at: When, in microseconds since 1970.
    """
    return frozenset(
        member for member in files if member[0].modified % _SECOND or member[0].modified < at - _LONG_AGO
    )
