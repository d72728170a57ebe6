"""Reads how far checkpoints are, so that a stream with nothing to do needn't be started."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tableferry import storage
from tableferry.errors import StateError
from tableferry.pipelines.model import source_offsets
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.source_offsets import KafkaOffset, Offset, SourceOffset

DONE = "done"
_SEEDED = "seeded"
_MOVED = "moved"
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def read(folder: Path) -> Checkpoint:
    """Return what a flow's checkpoint says; a folder that isn't there says that it never ran.

    The offset log holds a version line, a line of settings, and a line for each source (`source_offsets`).

    Raises:
        StateError: It can't be read.
    """
    names = storage.names(folder)
    if DONE in names:
        return Checkpoint(done=True)
    newest, committed, seeded = _newest(folder / "offsets"), _newest(folder / "commits"), _SEEDED in names
    try:
        query = query_id(folder)
        if newest is None or (seeded and committed in (None, 0)):
            return Checkpoint(id=query, seeded=seeded)
        read_to, others = read_batch(folder, newest)
    except StateError as error:
        raise StateError("FLOW_CHECKPOINT_DAMAGED", folder=folder, reason=error.sentence) from error
    offsets = {source_id: offset for source_id, offset in read_to.items() if isinstance(offset, Offset)}
    kafka = {source_id: offset for source_id, offset in read_to.items() if isinstance(offset, KafkaOffset)}
    return Checkpoint(
        offsets,
        kafka=kafka,
        others=others or bool(kafka),
        offered=newest,
        committed=committed,
        id=query,
        seeded=seeded,
    )


def read_batch(folder: Path, batch: int) -> tuple[Mapping[str, SourceOffset], bool]:
    """Return how far a batch reaches into its sources, by their ids, and whether it has others besides.

    The others aren't known to `source_offsets`, or had nothing to read yet.

    Raises:
        StateError: It isn't there, or can't be read.
    """
    path = folder / "offsets" / str(batch)
    try:
        # Not splitlines(): in JSON's texts other characters may stand that end a line for Python.
        log_version, settings, *lines = (storage.read_text(path) or "").split("\n")
        json.loads(settings)
        if not log_version or not lines:
            raise ValueError("no source is named")
        known = [source_offsets.read(line) for line in lines]
    except (ValueError, KeyError) as error:
        raise StateError("OFFSET_FILE_INCOMPLETE", file=path) from error
    return dict(offset for offset in known if offset), None in known


def sources(folder: Path, batch: int) -> Sequence[str]:
    """Return the offset of each source of a batch, in order, as Spark wrote it.

    Raises:
        StateError: The batch doesn't exist.
    """
    return _lines(folder, batch)[2:]


def moved_to(folder: Path) -> Mapping[int, int]:
    """Return to which finished batch `move_on` has moved a query, by the batch before; it brought no rows."""
    moved = {int(name) for name in storage.names(folder / _MOVED) if name.isdigit()}
    finished = set(storage.names(folder / "commits"))
    reached: dict[int, int] = {}
    for batch in sorted(moved, reverse=True):
        last = reached.get(batch, batch)
        if str(last) in finished:
            reached[batch - 1] = last
    return reached


def has_state(folder: Path) -> bool:
    """Say whether a query keeps state, such as that of an aggregation, beside its offsets."""
    return "state" in storage.names(folder)


def begin(folder: Path) -> str:
    """Give a checkpoint the id that its query will have, unless it has one, and return it."""
    storage.create_text(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    return query_id(folder)


def seed(folder: Path, offset: str) -> None:
    """Let a checkpoint begin at an offset of its only source; can be repeated after a crash.

    Two batches say so. With one alone Spark would ask the source for all that lies before.
    """
    storage.create_text(folder / _SEEDED, offset)
    for batch in ("0", "1"):
        settings = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
        storage.create_text(folder / "offsets" / batch, f"v1\n{json.dumps(settings)}\n{offset}")
    for batch in ("0", "1"):
        storage.create_text(folder / "commits" / batch, _COMMIT)


def move_on(folder: Path, batch: int | None, others: Iterable[Path]) -> None:
    """Let a query go on where others have stopped that read the same sources; can be repeated.

    Of each source the position counts that is furthest on. As in `seed`, two batches say it.

    Args:
        folder: The query's checkpoint.
        batch: Its newest batch that counts; None for its newest of all.
        others: The other checkpoints; one that has no batch says nothing.

    Raises:
        StateError: Its offsets are gone.
    """
    newest = _newest(folder / "offsets")
    if newest is None:
        raise StateError("CHECKPOINT_WITHOUT_OFFSETS", folder=folder)
    version, settings, *sources = _lines(folder, newest)
    reached = [
        line
        for other in others
        if (own := _newest(other / "offsets")) is not None
        for line in _lines(other, own)[2:]
    ]
    # What the query has taken behind the batch that counts doesn't count either.
    counts = sources if batch is None else _lines(folder, batch)[2:]
    wanted = [source_offsets.furthest(line, reached) for line in counts]
    if wanted == sources and _newest(folder / "commits") == newest:
        return
    # The marks come first. A batch that was begun and never finished is passed over, too.
    for number in range((_newest(folder / "commits") or 0) + 1, newest + 3):
        storage.create_text(folder / _MOVED / str(number), "")
    for number in (newest + 1, newest + 2):
        storage.create_text(folder / "offsets" / str(number), "\n".join([version, settings, *wanted]))
        storage.create_text(folder / "commits" / str(number), _COMMIT)


def _lines(folder: Path, batch: int) -> list[str]:
    # Not splitlines(): in JSON's texts other characters may stand that end a line for Python.
    path = folder / "offsets" / str(batch)
    if (text := storage.read_text(path)) is None:
        raise StateError("OFFSET_FILE_MISSING", file=path)
    return text.split("\n")


def query_id(folder: Path) -> str:
    """Return the id of a checkpoint's query, empty where there is none yet.

    Raises:
        StateError: It can't be read; Spark fails on a broken file without naming it.
    """
    path = folder / "metadata"
    if (text := storage.read_text(path)) is None:
        return ""
    try:
        query = str(json.loads(text)["id"])
        if not query:
            raise ValueError("the id is empty")
    except (ValueError, KeyError, TypeError) as error:
        raise StateError("CHECKPOINT_METADATA_INCOMPLETE", file=path) from error
    return query


def _newest(folder: Path) -> int | None:
    return max((int(name) for name in storage.names(folder) if name.isdigit()), default=None)


def mark_done(folder: Path) -> None:
    """Remember that a run-once flow has run."""
    storage.write_text(folder / DONE, "")
