"""Reads the old streams' checkpoints that a pipeline on Databricks imports, so that its flows go on there.

A whole checkpoint is imported: its newest batch is where a flow goes on, whatever the table holds. So it's
handed over only where the table's newest batch of that query is this one, and it's finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from tableferry.amounts import counted
from tableferry.errors import StateError
from tableferry.formats.delta.commits import SETTING_BACK, Commit, commits_after
from tableferry.pipelines import checkpoints
from tableferry.pipelines.old_streams import LOOK_BACK
from tableferry.pipelines.plans import HandOver, OldCheckpoint
from tableferry.pipelines.source_offsets import KafkaOffset, Offset
from tableferry.spark.tables import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read(folders: Sequence[Path]) -> tuple[OldCheckpoint, ...]:
    """Return what checkpoints say of where their queries are.

    Raises:
        StateError: One isn't a checkpoint, or can't be read.
    """
    return tuple(map(_read, folders))


def hand_over(spark: SparkSession, legacy: TableFacts, old: Sequence[OldCheckpoint]) -> HandOver:
    """Make sure that a table holds what its old streams have read, and no more, and say how far that is.

    Raises:
        StateError: A stream keeps state, is within a batch, or isn't where the table is.
        TableError: The table may not be read.
    """
    commits = commits_after(spark, legacy.name, max(legacy.version - LOOK_BACK, -1))
    return handed_over(legacy.version, old, commits)


def handed_over(version: int, old: Sequence[OldCheckpoint], commits: Sequence[Commit]) -> HandOver:
    """Do the same, from the table's newest commits, the newest first."""
    # What was set back lacks the rows of batches before, and nobody knows of how many.
    commits = tuple(takewhile(lambda commit: commit.operation not in SETTING_BACK, commits))
    for checkpoint in old:
        _check(checkpoint, _newest_batch(checkpoint.query, commits), len(commits))
    reached = {table_id: offset for checkpoint in old for table_id, offset in checkpoint.tables.items()}
    return HandOver(
        version,
        {table_id: offset.version - 1 for table_id, offset in reached.items()},
        {checkpoint.query: checkpoint.batch for checkpoint in old},
        within={table_id: offset.within for table_id, offset in reached.items() if not offset.whole},
    )


def _check(old: OldCheckpoint, brought: int | None, commits: int) -> None:
    if old.keeps_state:
        raise StateError("IMPORTED_STREAM_KEEPS_STATE", folder=old.folder)
    if not old.finished:
        raise StateError("OLD_STREAM_WITHIN_BATCH", folder=old.folder, batch=old.batch)
    if brought is None:
        raise StateError(
            "IMPORTED_STREAM_NOT_OF_TABLE",
            folder=old.folder,
            query=old.query,
            commits=counted(commits, "commit"),
        )
    # Batches of `undo` bring nothing, so that the table's newest one is an earlier one.
    brought = checkpoints.moved_to(Path(old.folder)).get(brought, brought)
    if brought != old.batch:
        raise StateError(
            "OLD_STREAM_AND_TABLE_DIFFER", folder=old.folder, batch=old.batch, table_batch=brought
        )


def _newest_batch(query: str, commits: Sequence[Commit]) -> int | None:
    made = (int(commit.parameters["epochId"]) for commit in commits if _query(commit) == query)
    return next(made, None)


def _query(commit: Commit) -> str:
    return commit.parameters.get("queryId", "")


def _read(folder: Path) -> OldCheckpoint:
    query = checkpoints.query_id(folder)
    if not query:
        raise StateError("NOT_A_CHECKPOINT", folder=folder)
    started, finished = checkpoints.newest(folder)
    if started is None:
        raise StateError("OLD_STREAM_WITHOUT_BATCH", folder=folder)
    reached, _ = checkpoints.read_batch(folder, started)
    return OldCheckpoint(
        str(folder),
        query,
        started,
        {table_id: offset for table_id, offset in reached.items() if isinstance(offset, Offset)},
        {source_id: offset for source_id, offset in reached.items() if isinstance(offset, KafkaOffset)},
        len(checkpoints.sources(folder, started)),
        started == finished,
        checkpoints.has_state(folder),
    )
