"""The partitions of a table whose rows are rewritten, and the partitions in its copy by its commits.

A table without partition columns counts as one partition. Each commit of a copy replaces the rows of some
partitions, and records them with fingerprints of their files. The commits alone therefore show the copy's
content, also after a run was killed or suspended, and a partition that is written twice isn't duplicated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from tableferry.fleet.hive_tables.table_files import ListedFile, TableFiles, digest
from tableferry.fleet.warehouse.prepared_copy import members, settled
from tableferry.formats.hive.locations import split

WHOLE_TABLE = ""
"""The name of a table without partition columns; other partitions are named by `CatalogPartition.spec`."""

UNSETTLED = ""
"""The digest of files that can be rewritten without a change of size or time; it equals no other digest."""

# With more partitions in one condition, planning takes longer than reading.
_MAX_PARTITIONS = 200


class SourcePartition(NamedTuple):
    """A partition of the Hive table.

    Attributes:
        digest: A fingerprint of its files and of how they are read; `UNSETTLED` if that's not reliable.
        bytes: The size of its files.
    """

    digest: str
    bytes: int


class CopiedPartition(NamedTuple):
    """A partition in a copy: the fingerprint of its files, and the version that wrote it."""

    digest: str
    version: str


@dataclass(frozen=True)
class CommitNote:
    """The note in a copy's commit.

    Attributes:
        number: A number that increases with each commit.
        partitions: The digests of the replaced partitions; None for a partition without rows.
    """

    number: int
    partitions: Mapping[str, str | None]

    def text(self) -> str:
        """Return the note as JSON."""
        return json.dumps({"number": self.number, "pieces": self.partitions}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse a note.

        Raises:
            ValueError: The text isn't a note.
        """
        note = json.loads(text)
        try:
            return cls(int(note["number"]), dict(note["pieces"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a note of a chunk: {text[:100]}") from error


def list_source_partitions(listed: TableFiles) -> dict[str, SourcePartition]:
    """Return the partitions with files of a Hive table, by name."""
    table, every = listed.table, members(listed)
    unsettled = {spec for _, spec in every - settled(every, listed.at)}
    files: dict[str, list[ListedFile]] = {}
    for file, spec in every:
        files.setdefault(spec, []).append(file)
    return {
        spec: SourcePartition(
            UNSETTLED if spec in unsettled else digest(own, table.reading, str(split(table.location)))[:16],
            sum(file.size for file in own),
        )
        for spec, own in sorted(files.items())
    }


def list_copied_partitions(notes: Iterable[tuple[str, CommitNote]]) -> dict[str, CopiedPartition]:
    """Return the partitions in a copy, from the versions and notes of its commits in their order."""
    held: dict[str, CopiedPartition] = {}
    for version, note in notes:
        for partition, known in note.partitions.items():
            if known is None:
                held.pop(partition, None)
            else:
                held[partition] = CopiedPartition(known, version)
    return held


def list_foreign_partitions(
    wanted: Mapping[str, SourcePartition], held: Mapping[str, CopiedPartition]
) -> list[str]:
    """Return the partitions that a copy doesn't have or has from other files than these.

    For a partition that was written from `UNSETTLED` files, only a comparison of rows can tell.
    """
    return sorted(
        partition
        for partition in wanted.keys() | held.keys()
        if partition not in wanted
        or partition not in held
        or held[partition].digest not in (UNSETTLED, wanted[partition].digest)
    )


def list_outdated_partitions(
    wanted: Mapping[str, SourcePartition], held: Mapping[str, CopiedPartition]
) -> list[str]:
    """Return the partitions that must be written or removed in a copy."""
    return sorted(
        partition
        for partition in wanted.keys() | held.keys()
        if partition not in held
        or partition not in wanted
        or wanted[partition].digest == UNSETTLED
        or wanted[partition].digest != held[partition].digest
    )


def split_into_chunks(
    names: Iterable[str], sizes: Mapping[str, SourcePartition], most_bytes: int
) -> Iterator[list[str]]:
    """Divide partitions into chunks with a maximum of bytes; a larger partition is a separate chunk."""
    chunk: list[str] = []
    size = 0
    for name in names:
        more = sizes[name].bytes if name in sizes else 0
        if chunk and (size + more > most_bytes or len(chunk) == _MAX_PARTITIONS):
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += more
    if chunk:
        yield chunk
