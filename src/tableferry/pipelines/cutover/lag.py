"""The source commits that a legacy table lacks after an undo, and the way to process them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tableferry.amounts import counted
from tableferry.errors import StateError, TableError
from tableferry.formats.delta.commits import Commit, commits_since
from tableferry.pipelines.cutover.facts import CutoverNames
from tableferry.pipelines.handover.stream_checkpoints import OldStream, classify_commits, read_batch_offsets
from tableferry.pipelines.model.flows import Migration, Project
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.pipelines.model.target_state import Baseline, MigrationStart
from tableferry.pipelines.state import checkpoints
from tableferry.spark.catalog import facts
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The metrics of changed rows by operation; delta-rs uses different names.
_ROWS = {
    "DELETE": ("numDeletedRows",),
    "MERGE": ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"),
    "UPDATE": ("numUpdatedRows",),
}


@dataclass(frozen=True)
class SourceLag:
    """The commits of a source that a legacy table lacks.

    Attributes:
        versions: Their number; None if it can't be determined.
        rows: The number of rows that they wrote, changed or deleted; None if the metrics lack it.
        since: The time of the first one.
        why_unknown: Why the number can't be determined.
    """

    source: TableName
    versions: int | None
    rows: int | None = None
    since: datetime | None = None
    why_unknown: str = ""

    def __str__(self) -> str:
        if self.versions is None:
            return f"{self.source}: {self.why_unknown}"
        if not self.versions:
            return f"{self.source}: nothing is missing"
        rows = "" if self.rows is None else f" with {counted(self.rows, 'row')}"
        since = f", the first from {self.since:%Y-%m-%d %H:%M:%S} UTC" if self.since else ""
        return f"{self.source}: {counted(self.versions, 'commit')}{rows} missing{since}"


@dataclass(frozen=True)
class LegacyLag:
    """The source commits that a legacy table lacks.

    Attributes:
        table: The legacy table.
        sources: The lag of each source of the migration; empty if `finish` has removed the baselines.
        streams: The checkpoints of the old streams that filled it.
    """

    table: TableName
    sources: tuple[SourceLag, ...] = ()
    streams: tuple[str, ...] = ()

    @property
    def is_current(self) -> bool:
        """Whether it lacks no commit of a known source."""
        return bool(self.sources) and all(lag.versions == 0 for lag in self.sources)

    @property
    def advice(self) -> str:
        """The way to update the table."""
        if self.is_current:
            return f"{self.table} is up to date."
        if self.streams:
            return (
                "Start the old streams again: they continue at their checkpoints "
                f"({', '.join(self.streams)}) and update {self.table}."
            )
        if not self.sources:
            return (
                f"No command updates {self.table}, and `finish` has removed the baselines. Let the "
                "old job process the sources' commits since its last write."
            )
        return (
            f"No command updates {self.table}. Let the old job process these commits, which "
            "table_changes and VERSION AS OF of each source show."
        )


def read_lag(
    spark: SparkSession, project: Project, migration: Migration | None, start: MigrationStart | None,
    names: CutoverNames, current: TableName,
) -> LegacyLag:  # fmt: skip
    """Compare the sources' newest versions with the positions that the legacy table has reached.

    It has reached the baselines, or the newest batch of the old streams that continued after the copy.
    ``current`` is the name that the legacy table has now: one of ``names``.
    """
    legacy = names.name
    folders = [str(folder) for folder in project.list_checkpoint_folders(migration)] if migration else []
    if start is None:
        return LegacyLag(legacy, streams=tuple(folders))
    reached = _read_stream_positions(spark, project, migration, start, current)
    lags = [_read_source_lag(spark, baseline, reached) for baseline in start.baselines.values()]
    return LegacyLag(legacy, tuple(lags), tuple(folders))


def _read_source_lag(spark: SparkSession, baseline: Baseline, reached: Mapping[str, int]) -> SourceLag:
    if baseline.is_kafka:
        return SourceLag(baseline.table, None, why_unknown="Kafka's records aren't counted")
    position = max(baseline.version, reached.get(baseline.table_id, baseline.version))
    try:
        source = facts(spark, baseline.table)
        if source is None or source.table_id != baseline.table_id:
            return SourceLag(baseline.table, None, why_unknown="the source was dropped or replaced")
        commits = commits_since(spark, source, position)
    except TableError as error:
        return SourceLag(baseline.table, None, why_unknown=error.sentence)
    return count_lag(baseline.table, commits)


def count_lag(source: TableName, commits: Sequence[Commit]) -> SourceLag:
    """Return the lag that commits are, the newest first. Commits that changed no rows don't count."""
    missing = [commit for commit in commits if commit.may_change_rows]
    counts = [_count_rows(commit) for commit in missing]
    rows = None if None in counts else sum(count or 0 for count in counts)
    first = missing[-1].timestamp if missing else 0
    since = datetime.fromtimestamp(first / 1000, UTC) if first else None
    return SourceLag(source, len(missing), rows, since)


def _count_rows(commit: Commit) -> int | None:
    """Return the number of rows that a commit wrote, changed or deleted; None without metrics."""
    names = _ROWS.get(commit.operation, ("numOutputRows", "numAddedRows"))
    found = [int(text) for name in names if (text := commit.metrics.get(name, "")).isdigit()]
    return sum(found) if found else None


def _read_stream_positions(
    spark: SparkSession,
    project: Project,
    migration: Migration | None,
    start: MigrationStart,
    legacy: TableName,
) -> Mapping[str, int]:
    """Return the last version of each source that old streams wrote after the copy, by the source's id."""
    reached: dict[str, int] = {}
    if migration is None or not start.batches:
        return reached
    try:
        table = facts(spark, legacy)
        commits = commits_since(spark, table, start.copy.version) if table else ()
        newest = classify_commits(commits, start.batches, more=False).batches
        for folder in project.list_checkpoint_folders(migration):
            query = checkpoints.read_query_id(folder)
            offsets = read_batch_offsets(OldStream(folder, query), newest[query]) if query in newest else {}
            if isinstance(offsets, StateError):
                continue
            for table_id, offset in offsets.items():
                if isinstance(offset, DeltaOffset):
                    reached[table_id] = max(reached.get(table_id, -1), offset.version - 1)
    except (StateError, TableError):
        # Without the old streams' positions, only the baselines are known.
        return reached
    return reached
