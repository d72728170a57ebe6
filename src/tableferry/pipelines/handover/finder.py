"""Finds where the old jobs hand over that fill the legacy tables of migrations which haven't started."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tableferry.errors import Finding, StateError
from tableferry.pipelines.handover import content_search, stream_checkpoints
from tableferry.pipelines.handover.stream_checkpoints import NotItsSinkError
from tableferry.pipelines.model.facts import HandOver, NoHandOver
from tableferry.pipelines.model.flows import DataFlow, DeltaSource, Project
from tableferry.pipelines.model.plan import LookBack
from tableferry.pipelines.model.reads import Read
from tableferry.spark.catalog import parallel_map
from tableferry.spark.tables import TableFacts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONTENT_FIRST_BYTES = 10_000_000_000
"""The largest size of a legacy table and its sources together that ``handOver: auto`` compares."""


def _after_checkpoint(hand_over: HandOver | NoHandOver) -> HandOver | NoHandOver:
    """Add that the checkpoint couldn't show the hand-over point."""
    if isinstance(hand_over, NoHandOver):
        why = hand_over.why
        not_found = Finding("HAND_OVER_NOT_FOUND", reason=why.sentence, advice=why.remedy)
        return replace(hand_over, why=not_found)
    return replace(hand_over, why=f"{hand_over.why} (its checkpoint's query made none of its commits)")


@dataclass(frozen=True)
class HandOverFinder:
    """Asks the old streams' checkpoints, or compares rows, as each spec says.

    Attributes:
        tables: Facts by `TableName.key`.
        followed: What each flow follows, by the target's key and the flow's name.
        in_pipeline: A declarative pipeline runs the flows.
        look_back: With how many moments of its sources a legacy table may be compared; 0 where nothing is to
            start.
    """

    spark: SparkSession
    project: Project
    tables: Mapping[str, TableFacts | None]
    followed: Mapping[tuple[str, str], tuple[Read, ...]]
    in_pipeline: bool
    look_back: LookBack

    def find(self, dataflows: Iterable[DataFlow]) -> Mapping[str, HandOver | NoHandOver]:
        """Return where each hands over, or why nobody knows, by the target's key; some may be absent."""
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
        found: dict[str, HandOver | NoHandOver] = {}
        asked = parallel_map(self._by_checkpoint, by_checkpoint)
        for dataflow, hand_over in zip(by_checkpoint, asked, strict=True):
            if hand_over is None:
                by_content.append(dataflow)
            else:
                found[dataflow.key] = hand_over
        # One after the other, for each of them keeps all of Spark busy.
        for dataflow in by_content:
            hand_over = self._by_content(dataflow)
            if hand_over and dataflow in by_checkpoint:
                hand_over = _after_checkpoint(hand_over)
            if hand_over:
                found[dataflow.key] = hand_over
        return found

    def _by_checkpoint(self, dataflow: DataFlow) -> HandOver | NoHandOver | None:
        """Ask the checkpoints; None where they can't say it, and the spec lets rows say it then."""
        migration = dataflow.migration
        assert migration is not None
        if (legacy := self.tables.get(migration.table.key)) is None:
            return NoHandOver(
                Finding("LEGACY_TABLE_MISSING", location=migration.location, table=migration.table)
            )
        folders = self.project.checkpoints(migration)
        within = [source.table_id for key in self._entered(dataflow) if (source := self.tables.get(key))]
        try:
            return stream_checkpoints.hand_over(self.spark, legacy, folders, within=within)
        except NotItsSinkError as error:
            return None if migration.or_content else NoHandOver(error.finding)
        except StateError as error:
            return NoHandOver(error.finding)

    def _by_content(self, dataflow: DataFlow) -> HandOver | NoHandOver | None:
        migration = dataflow.migration
        assert migration is not None
        legacy = self.tables.get(migration.table.key)
        follows = [
            read
            for flow in dataflow.streaming_flows
            for read in self.followed.get((dataflow.key, flow.name), ())
        ]
        keys = {read.table.key for read in follows}
        if other := next((read.table for read in follows if read.without_versions), None):
            return NoHandOver(Finding("SOURCE_WITHOUT_VERSIONS", source=other))
        sources = [source for key in keys if (source := self.tables.get(key))]
        if not self.look_back or legacy is None or len(sources) < len(keys):
            return None
        if migration.content_first and (size := self._bytes([legacy, *sources])) > CONTENT_FIRST_BYTES:
            limit = f"{CONTENT_FIRST_BYTES:,}"
            return NoHandOver(
                Finding("TOO_LARGE_TO_COMPARE", table=migration.table, bytes=f"{size:,}", limit=limit)
            )
        return content_search.find(self.spark, dataflow, migration, legacy, sources, self.look_back)

    def _bytes(self, tables: Iterable[TableFacts]) -> int:
        """Add up the sizes of tables' newest versions."""
        sizes = (self.spark.sql(f"DESCRIBE DETAIL {table.name.sql}").collect()[0] for table in tables)
        return sum(detail["sizeInBytes"] or 0 for detail in sizes)

    def _entered(self, dataflow: DataFlow) -> frozenset[str]:
        """Return the keys of the sources whose commits the flows of a target can begin in the middle.

        A pipeline gives a flow its checkpoint by itself. A checkpoint has a place for each source of its
        flow, whose order nobody knows, and counts the files of a commit in a change feed otherwise.
        """
        alone: set[str] = set()
        others: set[str] = set()
        for flow in dataflow.streaming_flows:
            keys = {read.table.key for read in self.followed.get((dataflow.key, flow.name), ())}
            source = dataflow.views[flow.view].source
            rows = isinstance(source, DeltaSource) and not source.change_feed
            (others if self.in_pipeline or not rows else alone).update(keys)
        return frozenset(alone - others)
