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
        raise StateError(
            f"the stream of {old.folder} keeps state (it aggregates, joins streams or drops duplicates), and "
            "nothing shows that a flow keeps the same: set mode to copy, and handOver to content"
        )
    if not old.finished:
        raise StateError(
            f"the stream of {old.folder} stopped within batch {old.batch}, or runs: let it finish that, stop "
            "it, and run again"
        )
    if brought is None:
        raise StateError(
            f"none of the newest {counted(commits, 'commit')} since any RESTORE was made by the query of "
            f"{old.folder} ({old.query}): name the checkpoint of a stream whose sink is this very table, not "
            "one of foreachBatch, or set mode to copy"
        )
    # Batches of `undo` bring nothing, so that the table's newest one is an earlier one.
    brought = checkpoints.moved_to(Path(old.folder)).get(brought, brought)
    if brought != old.batch:
        raise StateError(
            f"the newest batch of {old.folder} is {old.batch}, and the table's newest one of that query is "
            f"{brought}: stop the old stream and run again; where it's stopped, restore the one of both that "
            "is older"
        )


def _newest_batch(query: str, commits: Sequence[Commit]) -> int | None:
    made = (int(commit.parameters["epochId"]) for commit in commits if _query(commit) == query)
    return next(made, None)


def _query(commit: Commit) -> str:
    return commit.parameters.get("queryId", "")


def _read(folder: Path) -> OldCheckpoint:
    query = checkpoints.query_id(folder)
    if not query:
        raise StateError(f"{folder} is no checkpoint of a stream (it has no metadata file): correct the path")
    started, finished = checkpoints.newest(folder)
    if started is None:
        raise StateError(f"the stream of {folder} has run no batch: correct the path")
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
