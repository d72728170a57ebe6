"""Reads how far checkpoints are, so that a stream with nothing to do needn't be started."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path

from tableferry import files
from tableferry.errors import StateError
from tableferry.pipelines.plans import Checkpoint, Offset

DONE = "done"
_AT_A_COMMIT_S_START = (-1, -100)


def read(folder: Path) -> Checkpoint:
    """Return what a flow's checkpoint says; a folder that isn't there says that it never ran.

    The offset log holds a version line, a line of settings, and a line for each source; a Delta source's line
    is JSON with the table's id (``reservoirId``), the commit that is read next (``reservoirVersion``) and how
    far into it; a source that had nothing to read yet has a dash.

    Raises:
        StateError: It can't be read.
    """
    if DONE in files.names(folder):
        return Checkpoint(done=True)
    newest = _newest(folder / "offsets")
    try:
        query = query_id(folder)
        if newest is None:
            return Checkpoint(id=query)
        offsets, others = read_batch(folder, newest)
    except StateError as error:
        remedy = "put it back from a backup, or rebuild the target with --full-refresh"
        raise StateError(f"{error}: {remedy}") from error
    return Checkpoint(offsets, others=others, offered=newest, committed=_newest(folder / "commits"), id=query)


def read_batch(folder: Path, batch: int) -> tuple[Mapping[str, Offset], bool]:
    """Return how far a batch reaches into each Delta table, by its id, and whether it has other sources.

    Raises:
        StateError: It isn't there, or can't be read.
    """
    path = folder / "offsets" / str(batch)
    offsets: dict[str, Offset] = {}
    others = False
    try:
        # Not splitlines(): in JSON's texts other characters may stand that end a line for Python.
        version, settings, *sources = (files.read_text(path) or "").split("\n")
        json.loads(settings)
        if not version or not sources:
            raise ValueError("no source is named")
        for line in sources:
            if line.startswith("{") and "reservoirId" in (source := json.loads(line)):
                whole = source["index"] in _AT_A_COMMIT_S_START and not source["isStartingVersion"]
                offsets[source["reservoirId"]] = Offset(int(source["reservoirVersion"]), whole)
            else:
                others = True
    except (ValueError, KeyError) as error:
        raise StateError(f"{path} isn't a whole offset file") from error
    return offsets, others


def has_state(folder: Path) -> bool:
    """Say whether a query keeps state, such as that of an aggregation, beside its offsets."""
    return "state" in files.names(folder)


def begin(folder: Path) -> str:
    """Give a checkpoint the id that its query will have, unless it has one, and return it."""
    files.create_text(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    return query_id(folder)


def query_id(folder: Path) -> str:
    """Return the id of a checkpoint's query, empty where there is none yet.

    Raises:
        StateError: It can't be read; Spark fails on a broken file without naming it.
    """
    path = folder / "metadata"
    if (text := files.read_text(path)) is None:
        return ""
    try:
        query = str(json.loads(text)["id"])
        if not query:
            raise ValueError("the id is empty")
    except (ValueError, KeyError, TypeError) as error:
        raise StateError(f"{path} isn't a whole metadata file") from error
    return query


def _newest(folder: Path) -> int | None:
    return max((int(name) for name in files.names(folder) if name.isdigit()), default=None)


def mark_done(folder: Path) -> None:
    """Remember that a run-once flow has run."""
    files.write_text(folder / DONE, "")
