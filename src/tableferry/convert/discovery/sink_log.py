"""Read the log of a streaming file sink: it lists the files that the stream committed in a directory.

Failed attempts leave uncommitted files, and their rows are duplicates.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tableferry import storage
from tableferry.convert.discovery.table_formats import names
from tableferry.errors import Refused, StateError

# The format is that of Spark's FileStreamSinkLog. Each batch has a file, whose name is the batch's number.
# The first line is ``v1``, and each further line is a data file as JSON. ``N.compact`` contains all batches
# up to N and replaces their files.
_COMPACT = ".compact"
_VERSION = "v1"


def committed(log: storage.AnyPath, on_disk: Container[str]) -> list[str]:
    """Return the paths, relative to the table's root, of the files on disk that the sink's log lists.

    The log contains the URI at which each file was written. If the directory was moved afterwards, the
    longest end of that path that exists on disk is the file.

    Raises:
        Refused: A batch is missing or can't be read, or a committed file is missing.
    """
    paths: dict[str, None] = {}
    for file in _batches(log):
        for uri, added in _entries(file):
            path = unquote(urlsplit(uri).path)
            if added:
                paths[path] = None
            else:
                paths.pop(path, None)
    return _below(log, paths, on_disk)


def _batches(log: storage.AnyPath) -> list[storage.AnyPath]:
    plain: set[int] = set()
    compacted: set[int] = set()
    for name in names(log):
        number = name.removesuffix(_COMPACT)
        if number.isdecimal():
            (plain if number == name else compacted).add(int(number))
    newest = max(compacted, default=-1)
    batches = [log / f"{newest}{_COMPACT}"] if compacted else []
    for batch in range(newest + 1, max(plain, default=-1) + 1):
        if batch not in plain:
            raise Refused("SINK_LOG_BATCH_MISSING", log=log, batch=batch, name=log.name)
        batches.append(log / str(batch))
    return batches


def _entries(file: storage.AnyPath) -> list[tuple[str, bool]]:
    try:
        version, *lines = (storage.read_text(file) or "").split("\n")
        if version != _VERSION:
            raise Refused(
                "SINK_LOG_VERSION_UNKNOWN",
                file=file,
                found=version[:20],
                expected=_VERSION,
                name=file.parent.name,
            )
        entries = [json.loads(line) for line in lines if line]
        return [(str(entry["path"]), entry.get("action", "add") != "delete") for entry in entries]
    except (StateError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Refused("SINK_LOG_BATCH_INVALID", file=file, reason=error, name=file.parent.name) from error


def _below(log: storage.AnyPath, paths: Iterable[str], on_disk: Container[str]) -> list[str]:
    bases = [_path(log.parent)]
    relative, missing = [], []
    for path in paths:
        below = next(
            (path[len(base) :] for base in bases if path.startswith(base) and path[len(base) :] in on_disk),
            None,
        )
        if below is None:
            parts = path.split("/")
            ends = ("/".join(parts[start:]) for start in range(1, len(parts)))
            below = next((end for end in ends if end in on_disk), None)
            if below is not None:
                bases.append(path[: -len(below)])
        if below is None:
            missing.append(path)
        else:
            relative.append(below)
    if missing:
        raise Refused("SINK_LOG_FILES_MISSING", files=missing, log=log, name=log.name)
    return relative


def _path(folder: storage.AnyPath) -> str:
    """Return the prefix of the paths in a folder's URIs."""
    return f"{folder.absolute()}/" if isinstance(folder, Path) else f"/{folder.key}/"
