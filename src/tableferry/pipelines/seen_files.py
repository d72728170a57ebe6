"""Understands the log in which Spark's file stream keeps which files it has read.

It's in ``sources/<index of the source>/`` of a checkpoint: for each of its batches a file of that number, and
now and then, instead, one with the ending ``.compact`` that holds all the batches before as well. Each has a
version line, and then a line of JSON for each file. An offset, ``{"logOffset":7}``, is a batch of this log.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

COMPACT = ".compact"

SEEDED_BATCH = 9
"""The batch in which a flow's log begins: it's compact, whatever number of batches Spark compacts then."""

_VERSION = "v1"
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class SeenFile:
    """A file that a stream has read.

    Attributes:
        path: As Spark writes it: a URI, percent-encoded.
        timestamp: When it was last modified, in milliseconds.
        batch: The batch of the stream's log that read it.
    """

    path: str
    timestamp: int
    batch: int

    @property
    def readable(self) -> str:
        """The path as a reader is given it."""
        return unquote(self.path)


def parse(text: str) -> tuple[SeenFile, ...]:
    """Read a file of the log.

    Raises:
        ValueError: It isn't whole.
    """
    # Not splitlines(): in JSON's texts other characters may stand that end a line for Python.
    version, *lines = text.split("\n")
    if version != _VERSION:
        raise ValueError(f"its version line is {version!r}")
    try:
        entries = [json.loads(line) for line in lines if line]
        return tuple(SeenFile(entry["path"], entry["timestamp"], entry["batchId"]) for entry in entries)
    except (KeyError, TypeError) as error:
        raise ValueError("a line isn't that of a file") from error


def written(files: Iterable[SeenFile], batch: int | None = None) -> Iterator[str]:
    """Write files as Spark does, in pieces; with ``batch``, as if that one had read all of them."""
    yield _VERSION
    for file in files:
        number = file.batch if batch is None else batch
        entry = {"path": file.path, "timestamp": file.timestamp, "batchId": number}
        yield "\n" + json.dumps(entry, separators=(",", ":"))


def needed(names: Iterable[str], until: int) -> tuple[str, ...]:
    """Name the files of a log that say what was read up to a batch, of those that are there.

    The newest compact file may hold later batches, too, and older files than it may be cleaned up.

    Raises:
        ValueError: One of them is missing.
    """
    there = set(names)
    compact = max((number for name in there if (number := _compacted(name)) is not None), default=-1)
    found = [f"{compact}{COMPACT}"] if compact >= 0 else []
    for batch in range(compact + 1, until + 1):
        if str(batch) not in there:
            raise ValueError(f"it has no batch {batch}")
        found.append(str(batch))
    return tuple(found)


def newest(names: Iterable[str]) -> int | None:
    """Return the number of the newest batch of a log."""
    numbers = [name.removesuffix(COMPACT) for name in names]
    return max((int(number) for number in numbers if number.isdigit()), default=None)


def up_to(files: Sequence[SeenFile], until: int) -> tuple[SeenFile, ...]:
    """Leave out what later batches have read.

    Raises:
        ValueError: There is nothing of that very batch, and each batch has read a file.
    """
    if not any(file.batch == until for file in files):
        raise ValueError(f"it names no file that batch {until} has read")
    return tuple(file for file in files if file.batch <= until)


def beyond(files: Iterable[SeenFile], known: Iterable[SeenFile]) -> tuple[SeenFile, ...]:
    """Return the files that aren't among known ones, each once, as it was read last."""
    paths = {file.path for file in known}
    return tuple({file.path: file for file in files if file.path not in paths}.values())


def outside(files: Iterable[SeenFile], path: str) -> str:
    """Name a file that doesn't lie under a path, as it is or up to its first wildcard; empty if all do."""
    root = path[: match.start()] if (match := _PATTERN.search(path)) else path.rstrip("/") + "/"
    if match:
        root = posixpath.dirname(root) + "/"
    scheme, folder = _split(root)
    for file in files:
        file_scheme, file_path = _split(file.readable)
        same = scheme in ("", file_scheme)
        # What is read may be a single file.
        if not same or not (file_path.startswith(folder) or file_path == folder.rstrip("/")):
            return file.readable
    return ""


def has_pattern(path: str) -> bool:
    """Say whether a path has a wildcard, or what a reader takes for one."""
    return _PATTERN.search(path) is not None


def _split(path: str) -> tuple[str, str]:
    """Split a path into its scheme, with the host, and the rest."""
    # A file's name may have what separates a query in an address.
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path):
        return "", path
    scheme, _, rest = path.partition(":")
    host = urlsplit(f"{scheme}:{rest.partition('?')[0].partition('#')[0]}").netloc if rest[:2] == "//" else ""
    return f"{scheme.lower()}://{host}", rest.removeprefix(f"//{host}")


def _compacted(name: str) -> int | None:
    number = name.removesuffix(COMPACT)
    return int(number) if number != name and number.isdigit() else None
