"""What a target's flows make of the commits of their sources, read as a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from pyspark.sql import DataFrame

from tableferry.errors import TableError
from tableferry.formats.delta.commits import WITHOUT_ROWS, commits_after
from tableferry.pipelines.handover import kafka
from tableferry.pipelines.model import reads, sql
from tableferry.pipelines.model.flows import (
    DataFlow,
    DeltaSource,
    Flow,
    HistorySource,
    JoinSource,
    OtherSource,
    PythonSource,
    SqlSource,
)
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import flow_rows
from tableferry.pipelines.sources.views import Offsets, Span, Spans
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_OFFSETS: Offsets = MappingProxyType({})


class NotKnownError(TableError):
    """Nobody can know from the sources what a target must hold."""


@dataclass(frozen=True)
class Brought:
    """What one flow brings, as far as it can be read as a batch.

    Attributes:
        tables: The tables that it follows, by `TableName.key`.
        topics: The options with which it reads Kafka, by the key of `topics.name`.
        new_rows: All of that gives its new rows alone: change feeds and Kafka; else none does.
        skips: It skips commits that delete or change rows.
    """

    spark: SparkSession
    dataflow: DataFlow
    flow: Flow
    tables: Mapping[str, TableName]
    topics: Mapping[str, Mapping[str, str]]
    new_rows: bool
    skips: bool

    @classmethod
    def by(cls, spark: SparkSession, dataflow: DataFlow, flow: Flow) -> Brought:
        """Look at what a flow reads.

        Raises:
            NotKnownError: Nobody can know what it makes of some commits.
        """
        if flow.once or flow.target.key != dataflow.key:
            raise NotKnownError("FLOW_RUNS_ONCE" if flow.once else "FLOW_FILLS_STAGING_TABLE", flow=flow.name)
        followed = reads.followed(dataflow.views, flow.view, {})
        return cls(
            spark,
            dataflow,
            flow,
            {read.table.key: read.table for read in followed if not read.without_versions},
            {read.table.key: read.kafka for read in followed if read.kafka is not None},
            _reads_new_rows(dataflow, flow),
            _skips(dataflow, flow),
        )

    def rows(self, spans: Spans, offsets: Offsets = NO_OFFSETS) -> DataFrame:
        """Return the rows that it brings of these commits and records.

        Raises:
            NotKnownError: The broker doesn't have all of these records any more.
            TableferryError: They can't be read.
        """
        for key, options in self.topics.items():
            start, end = offsets[key]
            left, were = kafka.count(self.spark, options, start, end), start.behind(end)
            if left < were:
                raise NotKnownError(
                    "TOPIC_COMPACTED", topic=key, start=start, end=end, records=left, offsets=were
                )
        # When rows were loaded, and by which run, nobody can say again.
        target = replace(self.dataflow.target, metadata=())
        return flow_rows(
            self.spark, self.dataflow.views, self.flow, target, {}, once=True, spans=spans, offsets=offsets
        )

    def check_skipped(self, commits: Mapping[str, range]) -> None:
        """Require that a flow skips none of some commits, where it skips any.

        Args:
            commits: By `TableName.key`, from the last commit before them to the last of them.

        Raises:
            NotKnownError: It skips one, or the log no longer has it.
        """
        for key, table in self.tables.items() if self.skips else ():
            for commit in commits_after(self.spark, table, commits[key].start):
                if commit.version > commits[key].stop or commit.operation in WITHOUT_ROWS:
                    continue
                if not commit.only_appends:
                    raise NotKnownError(
                        "COMMIT_MAYBE_SKIPPED",
                        flow=self.flow.name,
                        table=table,
                        version=commit.version,
                        operation=commit.operation or "its log no longer has it",
                    )

    def feeds_are_whole(self) -> bool:
        """Say whether the change feeds reach back to the first versions of their tables."""
        options = {"readChangeFeed": "true", "startingVersion": "0", "endingVersion": "0"}
        try:
            for table in self.tables.values():
                views.reader_of(self.spark, options).table(table.sql).take(1)
        except SPARK_ERRORS:
            return False
        return True


def brought(spark: SparkSession, dataflow: DataFlow) -> tuple[Brought, ...]:
    """Look at what every flow of a target reads, but for those into its quarantine.

    Raises:
        NotKnownError: Nobody can know what one of them makes of some commits.
    """
    aside = dataflow.quarantine.name.key if dataflow.quarantine else ""
    flows = (flow for flow in dataflow.flows if flow.target.key != aside)
    return tuple(Brought.by(spark, dataflow, flow) for flow in flows)


@dataclass(frozen=True)
class Whole:
    """All that the flows of a target bring from the first commits of their sources on.

    Attributes:
        flows: The flows, each with whether its change feeds are read; else its tables are, as of a version.
    """

    flows: tuple[tuple[Brought, bool], ...]

    @classmethod
    def of(cls, spark: SparkSession, dataflow: DataFlow) -> Whole:
        """Look at what a target's flows read; raises as `brought`."""
        flows = brought(spark, dataflow)
        if kafka := next((flow for flow in flows if flow.topics), None):
            raise NotKnownError("FLOW_READS_KAFKA", flow=kafka.flow.name)
        return cls(tuple((flow, flow.new_rows and flow.feeds_are_whole()) for flow in flows))

    def rows(self, until: Mapping[str, int]) -> DataFrame:
        """Return what the flows bring of all commits up to a version of each table, by `TableName.key`.

        A version of -1 stands for none of a table's commits.

        Raises:
            NotKnownError: No flow brings any, or one that reads several tables isn't to have all of them.
            TableferryError: They can't be read.
        """
        frames = []
        for flow, feeds in self.flows:
            if all(until[key] < 0 for key in flow.tables):
                continue
            if any(until[key] < 0 for key in flow.tables):
                raise NotKnownError("FLOW_MIXES_STARTS", flow=flow.flow.name)
            frames.append(flow.rows({key: Span(until[key], -1 if feeds else None) for key in flow.tables}))
        if not frames:
            raise NotKnownError("NO_COMMITS_READ")
        return together(frames)


def together(frames: list[DataFrame]) -> DataFrame:
    """Put rows of several frames under each other, by the names of their columns."""
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames)


def _reads_new_rows(dataflow: DataFlow, flow: Flow) -> bool:
    """Say whether all that a flow follows gives new rows alone; else all of it is tables as they are."""
    kinds = set()
    for name in reads.views_behind(dataflow.views, flow.view):
        view = dataflow.views[name]
        sources: list[DeltaSource] = []
        match view.source:
            case _ if view.mode == "batch":
                continue
            case DeltaSource() as source:
                sources = [source]
            case JoinSource(sides):
                sources = [side.source for side in sides if side.mode == "stream"]
            case SqlSource(statement):
                streamed = (reference.parts for reference in sql.references(statement) if reference.streamed)
                kinds |= {False for parts in streamed if parts[-1] not in dataflow.views}
            case OtherSource("kafka"):
                kinds.add(True)
            case PythonSource() | OtherSource() | HistorySource():
                raise NotKnownError("VIEW_NOT_READABLE_UP_TO_COMMIT", view=name)
            case _:
                assert_never(view.source)
        for source in sources:
            if source.from_setup or (source.change_feed and reads.skipping_options(source)):
                raise NotKnownError("VIEW_SKIPS_COMMITS", view=name)
            kinds.add(source.change_feed)
    if len(kinds) > 1:
        raise NotKnownError("FLOW_MIXES_CHANGES_AND_ROWS", flow=flow.name)
    return kinds == {True}


def _skips(dataflow: DataFlow, flow: Flow) -> bool:
    """Return whether a flow skips commits of a table that delete or change rows."""
    sources: list[DeltaSource] = []
    for name in reads.views_behind(dataflow.views, flow.view):
        match dataflow.views[name].source:
            case DeltaSource() as source:
                sources.append(source)
            case JoinSource(sides):
                sources += [side.source for side in sides]
            case _:
                continue
    return any(map(reads.skipping_options, sources))
