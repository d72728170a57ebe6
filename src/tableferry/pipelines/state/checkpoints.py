"""Read and write checkpoints of Structured Streaming: query ids and the offsets of batches.

``metadata`` has the query's id. ``offsets/<batch>`` has a version line, a line of settings, and one line with
the end offset of each source (`source_offsets`). ``commits/<batch>`` marks a finished batch.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tableferry import storage
from tableferry.errors import StateError
from tableferry.pipelines.model import source_offsets
from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.source_offsets import DeltaOffset, SourceOffset
from tableferry.pipelines.model.topics import KafkaOffset

DONE = "done"
"""The file that marks a run-once flow as done, in the folder in which other flows have their checkpoint."""

# Additional names in a checkpoint's folder, which Spark ignores.
_START_OFFSET = "seeded"
_ADVANCED = "moved"
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def read(folder: Path) -> Checkpoint:
    """Return the state of a flow's checkpoint; if the folder is missing, the flow has never run.

    Raises:
        StateError: The checkpoint can't be read.
    """
    names = storage.names(folder)
    if DONE in names:
        return Checkpoint(done=True)
    newest, committed = _find_newest_batch(folder / "offsets"), _find_newest_batch(folder / "commits")
    has_start_offset = _START_OFFSET in names
    try:
        query = read_query_id(folder)
        if newest is None or (has_start_offset and committed in (None, 0)):
            return Checkpoint(id=query, has_start_offset=has_start_offset)
        read_to, others = read_batch(folder, newest)
    except StateError as error:
        raise StateError("FLOW_CHECKPOINT_DAMAGED", folder=folder, reason=error.sentence) from error
    offsets = {source_id: offset for source_id, offset in read_to.items() if isinstance(offset, DeltaOffset)}
    kafka = {source_id: offset for source_id, offset in read_to.items() if isinstance(offset, KafkaOffset)}
    return Checkpoint(
        offsets,
        kafka=kafka,
        has_untracked_sources=others or bool(kafka),
        offered=newest,
        committed=committed,
        id=query,
        has_start_offset=has_start_offset,
    )


def read_batch(folder: Path, batch: int) -> tuple[Mapping[str, SourceOffset], bool]:
    """Return a batch's end offsets by source id, and whether other sources exist.

    The other sources had no data yet, or `source_offsets` can't parse them.

    Raises:
        StateError: The offset file is missing or can't be read.
    """
    lines = _read_lines(folder, batch)
    try:
        log_version, settings, *sources = lines
        json.loads(settings)
        if not log_version or not sources:
            raise ValueError("the file has no source")
        known = [source_offsets.parse_offset(line) for line in sources]
    except (ValueError, KeyError) as error:
        raise StateError("OFFSET_FILE_INCOMPLETE", file=folder / "offsets" / str(batch)) from error
    return dict(offset for offset in known if offset), None in known


def read_source_offsets(folder: Path, batch: int) -> Sequence[str]:
    """Return the offset of each source of a batch, in order, as Spark wrote it.

    Raises:
        StateError: The batch doesn't exist.
    """
    return _read_lines(folder, batch)[2:]


def read_advanced_batches(folder: Path) -> Mapping[int, int]:
    """Return, by a batch, the last of the batches without rows that `advance_offsets` wrote after it."""
    advanced = {int(name) for name in storage.names(folder / _ADVANCED) if name.isdigit()}
    finished = set(storage.names(folder / "commits"))
    last_batches: dict[int, int] = {}
    for batch in sorted(advanced, reverse=True):
        last = last_batches.get(batch, batch)
        if str(last) in finished:
            last_batches[batch - 1] = last
    return last_batches


def is_stateful(folder: Path) -> bool:
    """Return whether a query keeps state, such as that of an aggregation."""
    return "state" in storage.names(folder)


def create_query_id(folder: Path) -> str:
    """Return the id of a checkpoint's query; create one if the checkpoint has none."""
    storage.create_text(folder / "metadata", json.dumps({"id": str(uuid.uuid4())}))
    return read_query_id(folder)


def write_start_offset(folder: Path, offset: str) -> None:
    """Write a checkpoint that starts at an offset of its only source; can be repeated after a crash.

    The checkpoint gets two batches. With only one, Spark would read the source's data before the offset.
    """
    storage.create_text(folder / _START_OFFSET, offset)
    for batch in ("0", "1"):
        settings = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}
        storage.create_text(folder / "offsets" / batch, f"v1\n{json.dumps(settings)}\n{offset}")
    for batch in ("0", "1"):
        storage.create_text(folder / "commits" / batch, _COMMIT)


def advance_offsets(folder: Path, batch: int | None, others: Iterable[Path]) -> None:
    """Advance a query to the offsets at which other queries with the same sources stopped; can be repeated.

    The furthest offset of each source counts, of this query up to `batch`, or up to its newest batch. The
    others are the checkpoints of the other queries. As in `write_start_offset`, two batches are written.

    Raises:
        StateError: The query's offsets are missing.
    """
    newest = _find_newest_batch(folder / "offsets")
    if newest is None:
        raise StateError("CHECKPOINT_WITHOUT_OFFSETS", folder=folder)
    version, settings, *sources = _read_lines(folder, newest)
    stopped_at = [
        line
        for other in others
        if (last := _find_newest_batch(other / "offsets")) is not None
        for line in read_source_offsets(other, last)
    ]
    counting = sources if batch is None else read_source_offsets(folder, batch)
    wanted = [source_offsets.select_latest_offset(line, stopped_at) for line in counting]
    if wanted == sources and _find_newest_batch(folder / "commits") == newest:
        return
    # The marks are written first. A started batch that never finished gets a mark too, because it is skipped.
    for number in range((_find_newest_batch(folder / "commits") or 0) + 1, newest + 3):
        storage.create_text(folder / _ADVANCED / str(number), "")
    for number in (newest + 1, newest + 2):
        storage.create_text(folder / "offsets" / str(number), "\n".join([version, settings, *wanted]))
        storage.create_text(folder / "commits" / str(number), _COMMIT)


def _read_lines(folder: Path, batch: int) -> list[str]:
    # Not splitlines(): JSON strings may contain other characters that end a line in Python.
    path = folder / "offsets" / str(batch)
    if (text := storage.read_text(path)) is None:
        raise StateError("OFFSET_FILE_MISSING", file=path)
    return text.split("\n")


def read_query_id(folder: Path) -> str:
    """Return the id of a checkpoint's query; empty if the checkpoint has none.

    Raises:
        StateError: The id can't be read. Spark fails on a damaged file without naming it.
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


def _find_newest_batch(folder: Path) -> int | None:
    return max((int(name) for name in storage.names(folder) if name.isdigit()), default=None)


def mark_done(folder: Path) -> None:
    """Record that a run-once flow is done."""
    storage.write_text(folder / DONE, "")
