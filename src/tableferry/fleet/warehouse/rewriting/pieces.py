"""What a table is divided into when its rows are rewritten, and what of it a copy holds: pure.

A piece is a partition, or the whole table if it has none. Each commit of a copy replaces the rows of some
pieces and says so, and of which files they were, in itself: so the commits alone say what a copy holds, also
after a run that died or was suspended, and a piece that is written twice is there once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Self

from tableferry.fleet.warehouse.files import ListedFile, TableFiles, digest
from tableferry.fleet.warehouse.prepared import members, settled
from tableferry.formats.hive.locations import split

WHOLE = ""
"""The only piece of a table without partitions; the others are called as `CatalogPartition.spec` is."""

UNSETTLED = ""
"""The digest of files that could be written again without another size or time: none is the same as it."""

# With more partitions in one condition, planning takes longer than reading.
_MOST_PIECES = 200


class Piece(NamedTuple):
    """A piece as it is in the Hive table.

    Attributes:
        digest: What is another if its files are, or the way they are read; `UNSETTLED` if nobody knows.
        bytes: How large its files are.
    """

    digest: str
    bytes: int


class Held(NamedTuple):
    """A piece as a copy holds it: of which files, and since which version."""

    digest: str
    version: str


@dataclass(frozen=True)
class Note:
    """What a commit says of itself.

    Attributes:
        number: Higher than that of any commit before it.
        pieces: The digests of the pieces whose rows it replaced; None where they have no rows any more.
    """

    number: int
    pieces: Mapping[str, str | None]

    def text(self) -> str:
        """Write it as the commit has it."""
        return json.dumps({"number": self.number, "pieces": self.pieces}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> Self:
        """Read it.

        Raises:
            ValueError: It isn't one.
        """
        note = json.loads(text)
        try:
            return cls(int(note["number"]), dict(note["pieces"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no note of a chunk: {text[:100]}") from error


def pieces_of(listed: TableFiles) -> dict[str, Piece]:
    """Return the pieces of a Hive table that have files, by their names."""
    table, every = listed.table, members(listed)
    unsettled = {spec for _, spec in every - settled(every, listed.at)}
    files: dict[str, list[ListedFile]] = {}
    for file, spec in every:
        files.setdefault(spec, []).append(file)
    return {
        spec: Piece(
            UNSETTLED if spec in unsettled else digest(own, table.reading, str(split(table.location)))[:16],
            sum(file.size for file in own),
        )
        for spec, own in sorted(files.items())
    }


def holds(notes: Iterable[tuple[str, Note]]) -> dict[str, Held]:
    """Return what a copy holds after some commits, given each one's version and note in their order."""
    held: dict[str, Held] = {}
    for version, note in notes:
        for piece, known in note.pieces.items():
            if known is None:
                held.pop(piece, None)
            else:
                held[piece] = Held(known, version)
    return held


def others(wanted: Mapping[str, Piece], held: Mapping[str, Held]) -> list[str]:
    """Return the pieces that a copy holds of other files than these.

    Of one that was written when its files were too young to be known by their times, only its rows tell.
    """
    return sorted(
        piece
        for piece in wanted.keys() | held.keys()
        if piece not in wanted
        or piece not in held
        or held[piece].digest not in (UNSETTLED, wanted[piece].digest)
    )


def stale(wanted: Mapping[str, Piece], held: Mapping[str, Held]) -> list[str]:
    """Return the pieces that a copy doesn't hold as they are, those too that have no rows any more."""
    return sorted(
        piece
        for piece in wanted.keys() | held.keys()
        if piece not in held
        or piece not in wanted
        or wanted[piece].digest == UNSETTLED
        or wanted[piece].digest != held[piece].digest
    )


def chunks(names: Iterable[str], sizes: Mapping[str, Piece], most_bytes: int) -> Iterator[list[str]]:
    """Divide pieces into chunks of so many bytes at most, or of one piece that has more."""
    chunk: list[str] = []
    size = 0
    for name in names:
        more = sizes[name].bytes if name in sizes else 0
        if chunk and (size + more > most_bytes or len(chunk) == _MOST_PIECES):
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += more
    if chunk:
        yield chunk
