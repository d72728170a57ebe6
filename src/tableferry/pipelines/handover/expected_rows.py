"""Read the rows that a target's flows produce from their sources' commits, as a batch.

The commits are all up to a version, or those between two versions. Other modules compare these rows with a
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, assert_never

from pyspark.sql import DataFrame

from tableferry.errors import TableError
from tableferry.formats.delta.commits import commits_after
from tableferry.pipelines.handover import kafka
from tableferry.pipelines.model import reads, sql
from tableferry.pipelines.model.flows import (
    DataFlow,
    DeltaSource,
    Flow,
    HistorySource,
    JoinSource,
    PythonSource,
    ReaderSource,
    SqlSource,
)
from tableferry.pipelines.sources import views
from tableferry.pipelines.sources.rows import read_flow_rows, union_by_name
from tableferry.pipelines.sources.views import CommitRange, CommitRanges, Offsets
from tableferry.spark.catalog import SPARK_ERRORS
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class RowsNotDerivableError(TableError):
    """The rows that a target must contain can't be derived from its sources."""


@dataclass(frozen=True)
class FlowOutput:
    """The rows that one flow appends, read as a batch.

    Attributes:
        tables: The tables that the flow streams, by `TableName.key`.
        topics: The options with which the flow reads Kafka, by the key of `topics.name`.
        reads_new_rows: All sources are change feeds or Kafka, which return only new rows. Otherwise all
            sources are tables, read as of a version.
        skips_commits: The flow's reader options skip commits that delete or change rows.
    """

    spark: SparkSession
    dataflow: DataFlow
    flow: Flow
    tables: Mapping[str, TableName]
    topics: Mapping[str, Mapping[str, str]]
    reads_new_rows: bool
    skips_commits: bool

    @classmethod
    def of_flow(cls, spark: SparkSession, dataflow: DataFlow, flow: Flow) -> FlowOutput:
        """Describe the sources of a flow.

        Raises:
            RowsNotDerivableError: The flow's rows can't be derived from commits.
        """
        if flow.once or flow.target.key != dataflow.key:
            raise RowsNotDerivableError(
                "FLOW_RUNS_ONCE" if flow.once else "FLOW_FILLS_STAGING_TABLE", flow=flow.name
            )
        followed = reads.list_streamed_reads(dataflow.views, flow.view, {})
        return cls(
            spark,
            dataflow,
            flow,
            {read.table.key: read.table for read in followed if not read.is_versionless},
            {read.table.key: read.kafka for read in followed if read.kafka is not None},
            *_inspect_sources(dataflow, flow),
        )

    def read_rows(self, spans: CommitRanges, offsets: Offsets = MappingProxyType({})) -> DataFrame:
        """Return the rows that the flow produces from these commits and records.

        Raises:
            RowsNotDerivableError: The broker has lost some of these records.
            TableferryError: The sources can't be read.
        """
        for key, options in self.topics.items():
            start, end = offsets[key]
            expected = start.count_offsets_until(end)
            records = kafka.count_records(self.spark, options, start, end)
            if records < expected:
                raise RowsNotDerivableError(
                    "TOPIC_COMPACTED", topic=key, start=start, end=end, records=records, offsets=expected
                )
        # The metadata columns (load time, run) would get other values now.
        target = replace(self.dataflow.target, metadata=())
        reader = views.ViewReader(
            self.spark, self.dataflow.views, as_batch=True, commit_ranges=spans, offsets=offsets
        )
        return read_flow_rows(reader, self.flow, target)

    def check_no_skipped_commits(self, commits: Mapping[str, range]) -> None:
        """Check that the flow's reader options skip none of these commits.

        They are a range by `TableName.key`, from the last version before the commits to their last.

        Raises:
            RowsNotDerivableError: The flow may skip one, or the log no longer describes it.
        """
        if not self.skips_commits:
            return
        for key, table in self.tables.items():
            for commit in commits_after(self.spark, table, commits[key].start):
                if commit.version > commits[key].stop or not commit.may_change_rows:
                    continue
                if not commit.only_appends:
                    raise RowsNotDerivableError(
                        "COMMIT_MAYBE_SKIPPED",
                        flow=self.flow.name,
                        table=table,
                        version=commit.version,
                        operation=commit.operation or "its log no longer has it",
                    )

    @cached_property
    def has_complete_feeds(self) -> bool:
        """Whether its sources are change feeds that start at version 0 of their tables."""
        if not self.reads_new_rows:
            return False
        options = {"readChangeFeed": "true", "startingVersion": "0", "endingVersion": "0"}
        try:
            for table in self.tables.values():
                views.delta_reader(self.spark, options).table(table.sql).take(1)
        except SPARK_ERRORS:
            return False
        return True


def list_flow_outputs(spark: SparkSession, dataflow: DataFlow) -> tuple[FlowOutput, ...]:
    """Return the outputs of all flows of a target, except those into its quarantine.

    Raises:
        RowsNotDerivableError: The rows of a flow can't be derived from commits.
    """
    quarantine = dataflow.quarantine.name.key if dataflow.quarantine else ""
    flows = (flow for flow in dataflow.flows if flow.target.key != quarantine)
    return tuple(FlowOutput.of_flow(spark, dataflow, flow) for flow in flows)


@dataclass(frozen=True)
class TargetOutput:
    """The rows that the flows of a target produce from all commits of their sources.

    Attributes:
        outputs: The output of each flow.
    """

    outputs: tuple[FlowOutput, ...]

    @classmethod
    def of_dataflow(cls, spark: SparkSession, dataflow: DataFlow) -> TargetOutput:
        """Describe the sources of a target's flows.

        Raises:
            RowsNotDerivableError: The rows of a flow can't be derived from commits, or a flow reads Kafka.
        """
        outputs = list_flow_outputs(spark, dataflow)
        if of_kafka := next((output for output in outputs if output.topics), None):
            raise RowsNotDerivableError("FLOW_READS_KAFKA", flow=of_kafka.flow.name)
        return cls(outputs)

    @property
    def tables(self) -> Mapping[str, TableName]:
        """The tables that the flows stream, by `TableName.key`."""
        return {key: table for output in self.outputs for key, table in output.tables.items()}

    def read_rows(self, until: Mapping[str, int]) -> DataFrame:
        """Return the rows that the flows produce from all commits up to a version of each table.

        The versions are by `TableName.key`; -1 if the table's commits don't count at all. Incomplete change
        feeds aren't read, but the tables as of these versions.

        Raises:
            RowsNotDerivableError: No commit counts, or those of only some tables of a flow do.
            TableferryError: The sources can't be read.
        """
        frames = []
        for output in self.outputs:
            if all(until[key] < 0 for key in output.tables):
                continue
            if any(until[key] < 0 for key in output.tables):
                raise RowsNotDerivableError("FLOW_MIXES_STARTS", flow=output.flow.name)
            after = -1 if output.has_complete_feeds else None
            frames.append(output.read_rows({key: CommitRange(until[key], after) for key in output.tables}))
        if not frames:
            raise RowsNotDerivableError("NO_COMMITS_READ")
        return union_by_name(frames)


def _inspect_sources(dataflow: DataFlow, flow: Flow) -> tuple[bool, bool]:
    """Return `FlowOutput.reads_new_rows` and `FlowOutput.skips_commits` of a flow."""
    kinds, skips_commits = set(), False
    for name in reads.list_upstream_views(dataflow.views, flow.view):
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
                streamed = (
                    reference.parts for reference in sql.find_references(statement) if reference.streamed
                )
                kinds |= {False for parts in streamed if parts[-1] not in dataflow.views}
            case ReaderSource("kafka"):
                kinds.add(True)
            case PythonSource() | ReaderSource() | HistorySource():
                raise RowsNotDerivableError("VIEW_NOT_READABLE_UP_TO_COMMIT", view=name)
            case _:
                assert_never(view.source)
        for source in sources:
            if source.from_setup or (source.change_feed and reads.find_skipping_options(source)):
                raise RowsNotDerivableError("VIEW_SKIPS_COMMITS", view=name)
            kinds.add(source.change_feed)
            skips_commits = skips_commits or bool(reads.find_skipping_options(source))
    if len(kinds) > 1:
        raise RowsNotDerivableError("FLOW_MIXES_CHANGES_AND_ROWS", flow=flow.name)
    return kinds == {True}, skips_commits
