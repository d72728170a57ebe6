"""Finds where the old streams stood at a version of the table that they fill: there their successors go on.

Each commit that a stream makes to a Delta table names the query and the batch (``queryId`` and ``epochId`` in
DESCRIBE HISTORY), and the query's checkpoint says for each batch how far into its sources it reaches
(``offsets/<batch>``). So a version of the table that streams fill has a position in each of their sources,
however far the sources and the streams are by now, and nothing needs to be paused to know it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from tableferry import storage
from tableferry.amounts import counted
from tableferry.errors import StateError
from tableferry.formats.delta.commits import SETTING_BACK, WITHOUT_ROWS, Commit, commits_after, lasting
from tableferry.pipelines.model import source_offsets
from tableferry.pipelines.model.facts import HandOver, LegacyWrites
from tableferry.pipelines.model.flows import BY_VERSION
from tableferry.pipelines.model.source_offsets import KafkaOffset, Offset, SourceOffset
from tableferry.pipelines.model.target_state import MigrationStart
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.run_once_flows import is_run_once
from tableferry.spark.catalog import facts
from tableferry.spark.tables import TableFacts, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Limits = Mapping[str, int | KafkaOffset]
"""How far sources may be read, by their ids: up to a version of a Delta table, or an offset."""

NO_LIMIT: Limits = MappingProxyType({})

NO_LATER_BATCH: Mapping[tuple[str, int], int] = MappingProxyType({})

LOOK_BACK = 1_000
"""How many of the newest versions of the legacy table are looked at."""


class NotItsSinkError(StateError):
    """The query of a checkpoint made no commit of the table, at least by its stream's own sink."""


@dataclass(frozen=True)
class OldStream:
    """A stream that fills the legacy table.

    Attributes:
        folder: Its checkpoint.
        query: The id of its query.
    """

    folder: Path
    query: str


def hand_over(
    spark: SparkSession,
    legacy: TableFacts,
    folders: Sequence[Path],
    at_most: Limits = NO_LIMIT,
    within: Collection[str] = (),
) -> HandOver:
    """Find the newest version of the legacy table of which it's known how far into each source it reaches.

    ``at_most`` is how far into each source it may reach. It holds whole commits, but of the sources
    ``within`` whose commits a flow can begin.

    Raises:
        StateError: A checkpoint isn't that of a stream that fills the table, or can't be handed over.
        TableError: The legacy table may not be read.
    """
    streams = [_old_stream(folder) for folder in folders]
    moved = {stream.query: checkpoints.moved_to(stream.folder) for stream in streams}
    oldest = max(legacy.version - LOOK_BACK, -1)
    commits = commits_after(spark, legacy.name, oldest)
    brought = _batches(streams, tuple(lasting(commits)))
    # A finished batch that the table lacks otherwise was lost with a newer table: it isn't empty.
    empty = {(query, batch): moved[query][batch] for query, batch in brought.items() if batch in moved[query]}
    offsets = {stream.query: _Offsets(stream) for stream in streams}
    commits = tuple(commit for commit in commits if commit.version <= legacy.version)
    return newest(streams, commits, offsets, at_most, within, empty)


def legacy_writes(
    spark: SparkSession, start: MigrationStart, own: Collection[str] = ()
) -> LegacyWrites | None:
    """List what was committed to the legacy table after the version that is copied.

    ``own`` are the ids of the queries with which a table that was taken over is filled now. None if the table
    is gone, or another one has its name.

    Raises:
        TableError: It isn't a Delta table any more, or may not be read.
    """
    pinned = start.copy
    legacy = facts(spark, pinned.table)
    if legacy is None or (legacy.table_id and legacy.table_id != pinned.table_id):
        return None
    oldest = max(pinned.version, legacy.version - LOOK_BACK)
    commits: Iterable[Commit] = commits_after(spark, pinned.table, oldest)
    if start.take_over:
        commits = lasting(commits, with_unknown=True)
        return foreign(commits, start.batches, own, start.target, more=oldest > pinned.version)
    return sorted_out(commits, start.batches, more=oldest > pinned.version)


def sorted_out(commits: Iterable[Commit], old: Collection[str], *, more: bool) -> LegacyWrites:
    """Tell the batches of old streams from what others wrote, and leave out what brings no rows."""
    batches: dict[str, int] = {}
    first = None
    others: dict[str, list[int]] = {}
    for commit in commits:
        if (query := commit.parameters.get("queryId", "")) in old:
            batches.setdefault(query, int(commit.parameters["epochId"]))
            first = commit.version
        elif commit.operation not in WITHOUT_ROWS:
            others.setdefault(commit.operation, []).append(commit.version)
    return LegacyWrites(batches, first, others, more)


def foreign(
    commits: Iterable[Commit], old: Collection[str], own: Collection[str], target: TableName, *, more: bool
) -> LegacyWrites:
    """Tell the commits of a migration's flows, by their queries' ids, from those of other writers.

    Args:
        commits: Those of the table since it was taken over, the newest first.
        old: The ids of the old streams' queries.
        own: The ids of the queries of the migration's flows.
        target: The table.
        more: There are older commits since then.
    """
    others, newest_own = [], -1
    for commit in commits:
        if commit.parameters.get("queryId", "") in own or is_run_once(commit.user_metadata, target):
            newest_own = max(newest_own, commit.version)
        elif commit.operation and commit.operation not in SETTING_BACK:
            others.append(commit)
    writes = sorted_out(others, old, more=more)
    added: dict[str, list[int]] = {}
    for commit in others:
        if commit.parameters.get("queryId", "") not in old and commit.adds_rows:
            added.setdefault(commit.operation, []).append(commit.version)
    firsts = [versions[-1] for versions in added.values()]
    first = min((*firsts, *(() if writes.first is None else (writes.first,))), default=None)
    return replace(writes, added=added, first=first, mixed=first is not None and newest_own > first)


class _Offsets(dict[int, "Mapping[str, SourceOffset] | StateError"]):
    """What the batches of a stream have read, or why that can't be used; each file is read once."""

    def __init__(self, stream: OldStream) -> None:
        super().__init__()
        self._stream = stream

    def __missing__(self, batch: int) -> Mapping[str, SourceOffset] | StateError:
        self[batch] = batch_offsets(self._stream, batch)
        return self[batch]


def newest(
    streams: Sequence[OldStream],
    commits: Sequence[Commit],
    offsets: Mapping[str, Mapping[int, Mapping[str, SourceOffset] | StateError]],
    at_most: Limits = NO_LIMIT,
    within: Collection[str] = (),
    empty: Mapping[tuple[str, int], int] = NO_LATER_BATCH,
) -> HandOver:
    """Choose among the newest versions of the legacy table, whose commits come with the newest first.

    ``offsets`` is what each batch of each query has read, by the source's id, or why it can't be used;
    ``at_most`` and ``within`` are as for `hand_over`. ``empty`` is, behind the newest batch of a query that
    the table has, the batch to which `checkpoints.move_on` has moved it without bringing anything.

    Raises:
        StateError: There is none, with what is wrong at the newest one.
    """
    commits = tuple(lasting(commits))
    problem: StateError | None = None
    for start, commit in enumerate(commits):
        made = _batches(streams, commits[start:])
        batches = {query: empty.get((query, batch), batch) for query, batch in made.items()}
        if silent := next((stream for stream in streams if stream.query not in batches), None):
            others = len(streams) > 1 and any(stream.query in batches for stream in streams)
            if problem:
                raise problem
            raise NotItsSinkError(
                "OLD_STREAM_NOT_OF_TABLE",
                folder=silent.folder,
                query=silent.query,
                commits=counted(len(commits), "commit"),
                advice="If the stream is dead, remove its checkpoint from the spec. " if others else "",
            )
        read = [offsets[query][batch] for query, batch in batches.items()]
        found = _positions(batches, read, at_most, within)
        if not isinstance(found, StateError):
            tables = {key: offset for key, offset in found.items() if isinstance(offset, Offset)}
            return HandOver(
                commit.version,
                {table_id: offset.version - 1 for table_id, offset in tables.items()},
                batches,
                within={table_id: offset.within for table_id, offset in tables.items() if not offset.whole},
                kafka={key: offset for key, offset in found.items() if isinstance(offset, KafkaOffset)},
            )
        problem = problem or found
    raise problem or StateError("LEGACY_LOG_WITHOUT_COMMITS")


def _batches(streams: Sequence[OldStream], commits: Sequence[Commit]) -> Mapping[str, int]:
    """Return the newest batch of each stream, as far as these commits, the newest first, tell."""
    batches: dict[str, int] = {}
    wanted = {stream.query for stream in streams}
    for commit in commits:
        query = commit.parameters.get("queryId", "")
        if query in wanted - batches.keys():
            batches[query] = int(commit.parameters["epochId"])
            if len(batches) == len(wanted):
                break
    return batches


def _positions(
    batches: Mapping[str, int],
    read: Sequence[Mapping[str, SourceOffset] | StateError],
    at_most: Limits,
    within: Collection[str],
) -> Mapping[str, SourceOffset] | StateError:
    """Return how far these batches reach into each source, by its id, or why nobody can go on there."""
    positions: dict[str, SourceOffset] = {}
    for (query, batch), offsets in zip(batches.items(), read, strict=True):
        if isinstance(offsets, StateError):
            return offsets
        for source_id, offset in offsets.items():
            known = positions.setdefault(source_id, offset)
            match offset, at_most.get(source_id):
                case Offset(), int() as limit:
                    beyond = offset.version - 1 > limit
                case KafkaOffset(), KafkaOffset() as limit:
                    beyond = not limit.reaches(offset)
                case _:
                    beyond = False
            if isinstance(offset, Offset) and not offset.whole and source_id not in within:
                return StateError(
                    "OLD_STREAM_WITHIN_VERSION", batch=batch, query=query, version=offset.version
                )
            if known != offset or _within(known) != _within(offset):
                return StateError("OLD_STREAMS_APART", reached=_reached(known), other=_reached(offset))
            if beyond:
                limit = at_most[source_id]
                reached = f"version {limit}" if isinstance(limit, int) else _reached(limit)
                return StateError("OLD_STREAMS_AHEAD_OF_FLOWS", reached=_reached(offset), limit=reached)
    return positions


def _within(offset: SourceOffset) -> str:
    return offset.within if isinstance(offset, Offset) else ""


def _reached(offset: SourceOffset) -> str:
    match offset:
        case Offset(version):
            return f"version {version - 1}"
        case KafkaOffset():
            return f"offsets {offset}"
        case _:
            assert_never(offset)


def _old_stream(folder: Path) -> OldStream:
    try:
        query = checkpoints.query_id(folder)
    except StateError as error:
        raise StateError("OLD_CHECKPOINT_DAMAGED", reason=error.sentence) from error
    if not query:
        raise StateError("NOT_A_CHECKPOINT", folder=folder)
    if checkpoints.has_state(folder):
        raise StateError("OLD_STREAM_KEEPS_STATE", folder=folder)
    return OldStream(folder, query)


def batch_offsets(stream: OldStream, batch: int) -> Mapping[str, SourceOffset] | StateError:
    """Return how far a batch of a stream reaches into each source, or why it can't be handed over."""
    if str(batch) not in storage.names(stream.folder / "offsets"):
        return StateError("OLD_OFFSETS_MISSING", folder=stream.folder, batch=batch)
    try:
        offsets, others = checkpoints.read_batch(stream.folder, batch)
    except StateError as error:
        return StateError("OLD_CHECKPOINT_DAMAGED", reason=error.sentence)
    if any(map(source_offsets.is_of_files, checkpoints.sources(stream.folder, batch))):
        return StateError("OLD_STREAM_READS_FILES", folder=stream.folder, batch=batch)
    if others:
        return StateError("OLD_STREAM_SOURCE_UNKNOWN", folder=stream.folder, batch=batch, advice=BY_VERSION)
    return offsets
