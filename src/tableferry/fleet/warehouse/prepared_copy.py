"""The knowledge of a run about the copy that it creates, from the preparation to the switch.

It's only in memory: a run that resumes after a crash compares everything while writes are blocked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from tableferry.convert.overlay import Draft, KnownFooters
from tableferry.fleet.hive_tables.table_files import ListedFile, TableFiles, paths_below

# Object stores record whole seconds, so a file that is rewritten in the same second looks the same.
_SECOND = 1_000_000
_LONG_AGO = 60 * _SECOND

Member = tuple[ListedFile, str]
"""A file of a table, and its partition in the form ``year=2024/city=S%3Ao``."""


@dataclass(frozen=True)
class IcebergCopy:
    """An Iceberg copy as this run has written it.

    Attributes:
        reading: The Hive table's `HiveTable.reading` at that time.
        snapshot: The copy's snapshot id.
        files: The copy's files.
        added: The files that the newest snapshot added.
        since: The snapshot before the newest one; None if the copy was empty, or if it's unknown.
        mapping: The copy's name mapping, if it's known.
    """

    reading: str
    snapshot: str
    files: frozenset[Member]
    added: frozenset[Member]
    since: str | None = None
    mapping: str | None = None


@dataclass(frozen=True)
class DeltaDraft:
    """The only commit of a Delta copy, before or after this run writes it.

    Attributes:
        reading: Everything that decides how the files are read, such as both tables' columns.
        location: The table's directory.
        files: The files of the commit whose size and time match the listing.
    """

    draft: Draft
    reading: str
    location: str
    files: frozenset[Member]

    @classmethod
    def of(cls, draft: Draft, listed: TableFiles) -> DeltaDraft:
        """Match a draft with the listing that was made right before it."""
        # The draft has its own listing, with times in milliseconds.
        named, location, every = set(draft.files), listed.table.location, list(members(listed))
        paths = paths_below((file for file, _ in every), location)
        files = frozenset(
            (file, spec)
            for (file, spec), path in zip(every, paths, strict=True)
            if (path, file.size, file.modified // 1000) in named
        )
        return cls(draft, json.dumps([listed.table.reading, draft.reading]), location, files)

    @property
    def hive_reading(self) -> str:
        """The Hive table's `HiveTable.reading` at the time of the draft."""
        return str(json.loads(self.reading)[0])

    def paths(self, files: Iterable[Member]) -> set[str]:
        """Return some files' paths in the form of the commit."""
        return {path or "" for path in paths_below((file for file, _ in files), self.location)}

    def footers(self, files: Iterable[Member]) -> KnownFooters:
        """Return the footers of some files."""
        return self.draft.footers(self.paths(files))


@dataclass(frozen=True)
class ComparedFiles:
    """Files whose rows are the same in both tables.

    Attributes:
        reading: Everything that decided how the files were read: both tables' columns, and the name mapping.
        delta_draft: The Delta copy's commit with the files.
    """

    reading: str
    files: frozenset[Member]
    delta_draft: DeltaDraft | None = None

    @property
    def footers(self) -> KnownFooters:
        """The known footers of a Delta copy's files."""
        return self.delta_draft.footers(self.files) if self.delta_draft else {}


@dataclass(frozen=True)
class EarlyRecord:
    """The part of the record of the Hive copy's files that was written before writes were blocked.

    Attributes:
        folder: The record's folder.
        files: The recorded files.
        stray: The recorded files that the table doesn't read.
    """

    folder: str
    files: frozenset[ListedFile]
    stray: frozenset[ListedFile] = frozenset()


@dataclass
class PreparedCopy:
    """The knowledge of a run about its copy.

    Attributes:
        listed: The last listing of the Hive table's files.
        iceberg_copy: The Iceberg copy.
        delta_draft: The Delta copy's commit.
        compared: The compared files.
        by_file: Whether single files can be compared; otherwise whole partitions are compared.
        busy: Partitions that were written to while they were compared; the next comparison skips them.
        recorded: The files that are recorded already.
        partitions: The compared partitions of a rewritten copy, with the copy's version that wrote each.
    """

    listed: TableFiles | None = None
    iceberg_copy: IcebergCopy | None = None
    delta_draft: DeltaDraft | None = None
    compared: ComparedFiles | None = None
    by_file: bool = False
    busy: frozenset[str] = frozenset()
    recorded: EarlyRecord | None = None
    partitions: dict[str, str] = field(default_factory=dict)

    def compared_files(self, reading: str) -> frozenset[Member] | None:
        """Return the compared files; None if they were read in another way, or none were compared."""
        return self.compared.files if self.compared and self.compared.reading == reading else None


def members(listed: TableFiles) -> frozenset[Member]:
    """Return the files with a table's rows, each with its partition."""
    specs = listed.specs()
    return frozenset((file, spec) for file in listed.listing.read for spec in specs.get(file.directory, ()))


def specs_of(files: Iterable[Member]) -> frozenset[str]:
    """Return the partitions of files."""
    return frozenset(spec for _, spec in files)


def settled(files: frozenset[Member], at: int) -> frozenset[Member]:
    """Return the files that can't be rewritten without a change of their size or time.

    Args:
        files: The listed files.
        at: The time of the listing, in microseconds since 1970.
    """
    return frozenset(
        member for member in files if member[0].modified % _SECOND or member[0].modified < at - _LONG_AGO
    )
