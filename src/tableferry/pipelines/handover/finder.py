"""Find the hand-over points of migrations that haven't started, by old streams' checkpoints or by content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry.errors import Finding, StateError
from tableferry.pipelines.handover import content_search, stream_checkpoints
from tableferry.pipelines.handover.stream_checkpoints import QueryWithoutCommitsError
from tableferry.pipelines.model.facts import HandOver, UnknownHandOver
from tableferry.pipelines.model.flows import DataFlow, DeltaSource, Project
from tableferry.pipelines.model.plan import LookBack
from tableferry.pipelines.model.reads import Read
from tableferry.spark.catalog import parallel_map
from tableferry.spark.tables import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO_COMPARE_LIMIT = 10_000_000_000
"""The largest size in bytes of a legacy table and its sources that ``handOver: auto`` compares."""


def _note_failed_checkpoint(hand_over: HandOver | UnknownHandOver) -> HandOver | UnknownHandOver:
    """Add to a result by content that the checkpoint's query made none of the table's commits."""
    if isinstance(hand_over, UnknownHandOver):
        why = hand_over.why
        not_found = Finding("HAND_OVER_NOT_FOUND", reason=why.sentence, advice=why.remedy)
        return replace(hand_over, why=not_found)
    return replace(hand_over, why=f"{hand_over.why} (its checkpoint's query made none of its commits)")


@dataclass(frozen=True)
class HandOverFinder:
    """Find hand-over points by the method that each spec names.

    Attributes:
        tables: The tables' facts by `TableName.key`.
        followed: The tables that each flow streams, by the target's key and the flow's name.
        in_pipeline: A declarative pipeline runs the flows.
        look_back: The number of moments of its sources with which a legacy table is compared, or the time of
            the oldest one. With 0, no rows are compared.
    """

    spark: SparkSession
    project: Project
    tables: Mapping[str, TableFacts | None]
    followed: Mapping[tuple[str, str], tuple[Read, ...]]
    in_pipeline: bool
    look_back: LookBack

    def find(self, dataflows: Iterable[DataFlow]) -> Mapping[str, HandOver | UnknownHandOver]:
        """Return the hand-over points, or the reasons why they can't be found, by the target's key.

        A target is left out if its spec names neither method, or if its rows aren't compared.
        """
        by_checkpoint = []
        by_content = []
        for dataflow in dataflows:
            match dataflow.migration.hand_over if dataflow.migration else None:
                case "checkpoint":
                    by_checkpoint.append(dataflow)
                case "content":
                    by_content.append(dataflow)
                case "version" if self.look_back and dataflow.migration and dataflow.migration.content_first:
                    by_content.append(dataflow)
        found: dict[str, HandOver | UnknownHandOver] = {}
        found_by_checkpoint = parallel_map(self._find_by_checkpoint, by_checkpoint)
        for dataflow, hand_over in zip(by_checkpoint, found_by_checkpoint, strict=True):
            if hand_over is None:
                by_content.append(dataflow)
            else:
                found[dataflow.key] = hand_over
        # One after the other, because each comparison uses all of Spark's cores.
        for dataflow in by_content:
            hand_over = self._find_by_content(dataflow)
            if hand_over and dataflow in by_checkpoint:
                hand_over = _note_failed_checkpoint(hand_over)
            if hand_over:
                found[dataflow.key] = hand_over
        return found

    def _find_by_checkpoint(self, dataflow: DataFlow) -> HandOver | UnknownHandOver | None:
        """Find by checkpoints; None if a query made no commits and the spec allows a search by content."""
        migration = dataflow.migration
        assert migration is not None
        if (legacy := self.tables.get(migration.table.key)) is None:
            return UnknownHandOver(
                Finding("LEGACY_TABLE_MISSING", location=migration.location, table=migration.table)
            )
        folders = self.project.list_checkpoint_folders(migration)
        sources = [
            source.table_id
            for key in self._find_mid_commit_sources(dataflow)
            if (source := self.tables.get(key))
        ]
        try:
            return stream_checkpoints.find_hand_over(self.spark, legacy, folders, mid_commit_sources=sources)
        except QueryWithoutCommitsError as error:
            return None if migration.content_fallback else UnknownHandOver(error.finding)
        except StateError as error:
            return UnknownHandOver(error.finding)

    def _find_by_content(self, dataflow: DataFlow) -> HandOver | UnknownHandOver | None:
        migration = dataflow.migration
        assert migration is not None
        legacy = self.tables.get(migration.table.key)
        streamed = [
            read
            for flow in dataflow.streaming_flows
            for read in self.followed.get((dataflow.key, flow.name), ())
        ]
        keys = {read.table.key for read in streamed}
        if unversioned := next((read.table for read in streamed if read.is_versionless), None):
            return UnknownHandOver(Finding("SOURCE_WITHOUT_VERSIONS", source=unversioned))
        sources = [source for key in keys if (source := self.tables.get(key))]
        if not self.look_back or legacy is None or len(sources) < len(keys):
            return None
        if migration.content_first and (size := self._sum_bytes([legacy, *sources])) > AUTO_COMPARE_LIMIT:
            limit = f"{AUTO_COMPARE_LIMIT:,}"
            return UnknownHandOver(
                Finding("TOO_LARGE_TO_COMPARE", table=migration.table, bytes=f"{size:,}", limit=limit)
            )
        return content_search.find_hand_over(self.spark, dataflow, migration, legacy, sources, self.look_back)

    def _sum_bytes(self, tables: Iterable[TableFacts]) -> int:
        """Return the sum of the sizes of the tables' newest versions."""
        sizes = (self.spark.sql(f"DESCRIBE DETAIL {table.name.sql}").collect()[0] for table in tables)
        return sum(detail["sizeInBytes"] or 0 for detail in sizes)

    def _find_mid_commit_sources(self, dataflow: DataFlow) -> frozenset[str]:
        """Return the keys of the sources that the flows can start to read in the middle of a commit.

        That needs a checkpoint with a start offset. A pipeline creates its flows' checkpoints itself. A
        checkpoint has an offset for each source of its flow in an unknown order, so a flow must have one
        source. In a change feed, Delta numbers the files of a commit differently.
        """
        supported: set[str] = set()
        unsupported: set[str] = set()
        for flow in dataflow.streaming_flows:
            keys = {read.table.key for read in self.followed.get((dataflow.key, flow.name), ())}
            source = dataflow.views[flow.view].source
            rows = isinstance(source, DeltaSource) and not source.change_feed
            (unsupported if self.in_pipeline or not rows else supported).update(keys)
        return frozenset(supported - unsupported)
