"""Find the old streams' positions in their sources at a version of the table that they fill.

Structured Streaming writes the end offset of each source to the checkpoint's ``offsets/<batch>`` before it
runs a batch, and ``commits/<batch>`` after it. Delta's sink records the query's id and the batch in the
commit: the transaction (``txn``) with ``appId`` and ``version``, and ``queryId`` and ``epochId`` in DESCRIBE
HISTORY. So each version of the table has a position in each source, even while the streams run.

See https://docs.databricks.com/structured-streaming/checkpoints.html.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from tableferry.amounts import counted
from tableferry.errors import StateError
from tableferry.formats.delta.commits import (
    SETTING_BACK,
    Commit,
    commits_after,
    commits_since,
    lasting,
)
from tableferry.pipelines.model import source_offsets
from tableferry.pipelines.model.facts import HandOver, LegacyWrites
from tableferry.pipelines.model.flows import BY_VERSION
from tableferry.pipelines.model.source_offsets import DeltaOffset, SourceOffset
from tableferry.pipelines.model.target_state import MigrationStart
from tableferry.pipelines.model.topics import KafkaOffset
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.run_once_flows import is_run_once_commit
from tableferry.spark.catalog import facts
from tableferry.spark.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Limits = Mapping[str, int | KafkaOffset]
"""The last readable version of a Delta table, or offset of Kafka's topics, by the source's id."""

BatchOffsets = Mapping[str, SourceOffset] | StateError
"""The end offsets of a batch by the source's id, or the reason why they can't be handed over."""

NO_LIMIT: Limits = MappingProxyType({})

NO_ADVANCED_BATCHES: Mapping[tuple[str, int], int] = MappingProxyType({})

COMMIT_LIMIT = 1_000
"""The number of the legacy table's newest commits that are read."""


class QueryWithoutCommitsError(StateError):
    """The query of a checkpoint made no commit of the table with the Delta sink."""


@dataclass(frozen=True)
class OldStream:
    """A stream that fills the legacy table.

    Attributes:
        folder: The stream's checkpoint.
        query: The id of the stream's query.
    """

    folder: Path
    query: str


def find_hand_over(
    spark: SparkSession,
    legacy: TableFacts,
    folders: Sequence[Path],
    limits: Limits = NO_LIMIT,
    mid_commit_sources: Collection[str] = (),
) -> HandOver:
    """Find the newest version of the legacy table at which all old streams' positions are known and usable.

    The positions don't exceed `limits`. They are between two commits, except in `mid_commit_sources`: the
    table ids of the sources that a flow can start to read in the middle of a commit.

    Raises:
        StateError: A checkpoint doesn't belong to a stream that fills the table, or can't be handed over.
        TableError: The legacy table can't be read.
    """
    streams = [_open_stream(folder) for folder in folders]
    advanced = {stream.query: checkpoints.read_advanced_batches(stream.folder) for stream in streams}
    oldest = max(legacy.version - COMMIT_LIMIT, -1)
    commits = commits_after(spark, legacy.name, oldest)
    newest_batches = _find_newest_batches(streams, tuple(lasting(commits)))
    # Only batches of `advance_offsets` have no rows. Another finished batch that the table lacks was lost, as
    # when an older copy of the table was restored.
    advanced_batches = {
        (query, batch): advanced[query][batch]
        for query, batch in newest_batches.items()
        if batch in advanced[query]
    }
    offsets = {stream.query: _OffsetCache(stream) for stream in streams}
    commits = tuple(commit for commit in commits if commit.version <= legacy.version)
    return choose_version(streams, commits, offsets, limits, mid_commit_sources, advanced_batches)


def list_legacy_writes(
    spark: SparkSession,
    start: MigrationStart,
    own: Collection[str] = (),
    details: Mapping[str, str] | None = None,
) -> LegacyWrites | None:
    """Return the legacy table's commits after the pinned version; None if it was dropped or replaced.

    `own` are the query ids of the flows that fill a table that was taken over. `details` is the legacy
    table's catalog entry, if it is known (`catalog.session_details`).

    Raises:
        TableError: The table isn't a Delta table, or can't be read.
    """
    pinned = start.copy
    legacy = facts(spark, pinned.table, details=details)
    if legacy is None or (legacy.table_id and legacy.table_id != pinned.table_id):
        return None
    oldest = max(pinned.version, legacy.version - COMMIT_LIMIT)
    more = oldest > pinned.version
    commits: Iterable[Commit] = commits_since(spark, legacy, oldest)
    if start.is_take_over:
        commits = lasting(commits, with_unknown=True)
        return classify_target_commits(commits, start.batches, own, start.target, more=more)
    return classify_commits(commits, start.batches, more=more)


def classify_commits(commits: Iterable[Commit], old: Collection[str], *, more: bool) -> LegacyWrites:
    """Separate the batches of old streams from other commits, and leave out commits without rows."""
    batches: dict[str, int] = {}
    first = None
    others: dict[str, list[int]] = {}
    for commit in commits:
        if (query := commit.parameters.get("queryId", "")) in old:
            batches.setdefault(query, int(commit.parameters["epochId"]))
            first = commit.version
        elif commit.may_change_rows:
            others.setdefault(commit.operation, []).append(commit.version)
    return LegacyWrites(batches, first, others, more)


def classify_target_commits(
    commits: Iterable[Commit], old: Collection[str], own: Collection[str], target: TableName, *, more: bool
) -> LegacyWrites:
    """Separate the commits of a migration's flows from those of old streams and other writers.

    The commits are those since the table was taken over, the newest first; `more` tells whether older ones
    weren't read. `old` and `own` are the query ids of the old streams and of the migration's flows.
    """
    others, newest_own = [], -1
    for commit in commits:
        if commit.parameters.get("queryId", "") in own or is_run_once_commit(commit.user_metadata, target):
            newest_own = max(newest_own, commit.version)
        elif commit.operation and commit.operation not in SETTING_BACK:
            others.append(commit)
    writes = classify_commits(others, old, more=more)
    added: dict[str, list[int]] = {}
    for commit in others:
        if commit.parameters.get("queryId", "") not in old and commit.adds_rows:
            added.setdefault(commit.operation, []).append(commit.version)
    firsts = [versions[-1] for versions in added.values()]
    if writes.first is not None:
        firsts.append(writes.first)
    first = min(firsts, default=None)
    return replace(
        writes, foreign_appends=added, first=first, is_interleaved=first is not None and newest_own > first
    )


class _OffsetCache(dict[int, BatchOffsets]):
    """The offsets of a stream's batches; each file is read once."""

    def __init__(self, stream: OldStream) -> None:
        super().__init__()
        self._stream = stream

    def __missing__(self, batch: int) -> BatchOffsets:
        self[batch] = read_batch_offsets(self._stream, batch)
        return self[batch]


def choose_version(
    streams: Sequence[OldStream],
    commits: Sequence[Commit],
    offsets: Mapping[str, Mapping[int, BatchOffsets]],
    limits: Limits = NO_LIMIT,
    mid_commit_sources: Collection[str] = (),
    advanced_batches: Mapping[tuple[str, int], int] = NO_ADVANCED_BATCHES,
) -> HandOver:
    """Choose the newest version of the legacy table at which the positions of all old streams are known.

    At that version, each stream has a batch with readable offsets, streams of one source are at the same
    position, and the positions are as in `find_hand_over`.

    The newest commit is first. `offsets` are by the query's id and the batch. `advanced_batches` has the
    batch to which `checkpoints.advance_offsets` advanced a query, by the query and its newest batch in the
    table.

    Raises:
        QueryWithoutCommitsError: A stream wrote none of these commits.
        StateError: No version fits; the error states why the newest one doesn't.
    """
    commits = tuple(lasting(commits))
    problem: StateError | None = None
    for start, commit in enumerate(commits):
        in_table = _find_newest_batches(streams, commits[start:])
        batches = {query: advanced_batches.get((query, batch), batch) for query, batch in in_table.items()}
        if missing := next((stream for stream in streams if stream.query not in batches), None):
            if problem:
                raise problem
            raise QueryWithoutCommitsError(
                "OLD_STREAM_NOT_OF_TABLE",
                folder=missing.folder,
                query=missing.query,
                commits=counted(len(commits), "commit"),
                advice="If the stream is dead, remove its checkpoint from the spec. " if batches else "",
            )
        read = [offsets[query][batch] for query, batch in batches.items()]
        found = _merge_offsets(batches, read, limits, mid_commit_sources)
        if not isinstance(found, StateError):
            tables = {key: offset for key, offset in found.items() if isinstance(offset, DeltaOffset)}
            return HandOver(
                commit.version,
                {table_id: offset.version - 1 for table_id, offset in tables.items()},
                batches,
                within={table_id: offset.within for table_id, offset in tables.items() if not offset.whole},
                kafka={key: offset for key, offset in found.items() if isinstance(offset, KafkaOffset)},
            )
        problem = problem or found
    raise problem or StateError("LEGACY_LOG_WITHOUT_COMMITS")


def _find_newest_batches(streams: Sequence[OldStream], commits: Sequence[Commit]) -> Mapping[str, int]:
    """Return the newest batch of each stream among these commits, the newest of which is first."""
    batches: dict[str, int] = {}
    wanted = {stream.query for stream in streams}
    for commit in commits:
        query = commit.parameters.get("queryId", "")
        if query in wanted - batches.keys():
            batches[query] = int(commit.parameters["epochId"])
            if len(batches) == len(wanted):
                break
    return batches


def _merge_offsets(
    batches: Mapping[str, int],
    read: Sequence[BatchOffsets],
    limits: Limits,
    mid_commit_sources: Collection[str],
) -> BatchOffsets:
    """Return the position in each source after these batches, by the source's id, or why it can't be used."""
    positions: dict[str, SourceOffset] = {}
    for (query, batch), offsets in zip(batches.items(), read, strict=True):
        if isinstance(offsets, StateError):
            return offsets
        for source_id, offset in offsets.items():
            known = positions.setdefault(source_id, offset)
            limit = limits.get(source_id)
            match offset, limit:
                case DeltaOffset(), int():
                    exceeds_limit = offset.version - 1 > limit
                case KafkaOffset(), KafkaOffset():
                    exceeds_limit = not limit.has_reached(offset)
                case _:
                    exceeds_limit = False
            if isinstance(offset, DeltaOffset) and not offset.whole and source_id not in mid_commit_sources:
                return StateError(
                    "OLD_STREAM_WITHIN_VERSION", batch=batch, query=query, version=offset.version
                )
            reached = _format_offset(offset)
            if known != offset or _position_in_commit(known) != _position_in_commit(offset):
                return StateError("OLD_STREAMS_APART", reached=_format_offset(known), other=reached)
            if exceeds_limit:
                last = _format_offset(limit) if isinstance(limit, KafkaOffset) else f"version {limit}"
                return StateError("OLD_STREAMS_AHEAD_OF_FLOWS", reached=reached, limit=last)
    return positions


def _position_in_commit(offset: SourceOffset) -> str:
    return offset.within if isinstance(offset, DeltaOffset) else ""


def _format_offset(offset: SourceOffset) -> str:
    match offset:
        case DeltaOffset(version):
            return f"version {version - 1}"
        case KafkaOffset():
            return f"offsets {offset}"
        case _:
            assert_never(offset)


def _open_stream(folder: Path) -> OldStream:
    try:
        query = checkpoints.read_query_id(folder)
    except StateError as error:
        raise StateError("OLD_CHECKPOINT_DAMAGED", reason=error.sentence) from error
    if not query:
        raise StateError("NOT_A_CHECKPOINT", folder=folder)
    if checkpoints.is_stateful(folder):
        raise StateError("OLD_STREAM_KEEPS_STATE", folder=folder)
    return OldStream(folder, query)


def read_batch_offsets(stream: OldStream, batch: int) -> BatchOffsets:
    """Return a batch's end offsets by source id, or the error that prevents a hand-over at this batch.

    The error is returned, not raised: the batch's file is missing or damaged, or a source is of files or of
    an unknown kind.
    """
    folder = stream.folder
    try:
        offsets, others = checkpoints.read_batch(folder, batch)
    except StateError as error:
        if error.condition == "OFFSET_FILE_MISSING":
            return StateError("OLD_OFFSETS_MISSING", folder=folder, batch=batch)
        return StateError("OLD_CHECKPOINT_DAMAGED", reason=error.sentence)
    if others and any(map(source_offsets.is_file_offset, checkpoints.read_source_offsets(folder, batch))):
        return StateError("OLD_STREAM_READS_FILES", folder=folder, batch=batch)
    if others:
        return StateError("OLD_STREAM_SOURCE_UNKNOWN", folder=folder, batch=batch, advice=BY_VERSION)
    return offsets
