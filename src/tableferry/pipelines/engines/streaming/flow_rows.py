"""The rows and events that flows write, and the columns that their tables need for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import NullType, StructField, StructType

from tableferry.errors import Finding, TableError, TableferryError, first_line
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.event_columns import END, SEQUENCE, START
from tableferry.pipelines.cdc.scd2_history_events import build_history_events
from tableferry.pipelines.handover import copied_sequences
from tableferry.pipelines.model.flows import CdcSettings, HistorySource, Source, Target
from tableferry.pipelines.model.steps import DefineTable, DefineView, PlannedFlow
from tableferry.pipelines.sources import copy_findings, views
from tableferry.pipelines.sources.metadata_columns import add_target_columns, create_run_details
from tableferry.pipelines.sources.rows import history_rows, read_flow_rows
from tableferry.spark.catalog import facts

_log = logging.getLogger(__name__)


class FlowRows:
    """The rows of flows, read from the views that are defined.

    Attributes:
        tables: The tables that flows fill, by `TableName.key`.
        views: The views of each spec, by the key of the spec's own target and the view's name.
    """

    def __init__(self, spark: SparkSession, pipeline_id: str) -> None:
        self._spark = spark
        self.tables: dict[str, DefineTable] = {}
        self.views: dict[str, dict[str, DefineView]] = {}
        self._newest_events: dict[str, DataFrame | None] = {}
        self._run_details = create_run_details(pipeline_id)

    def source(self, flow: PlannedFlow) -> Source:
        """Return the source of a flow's view."""
        return self.views[flow.owner.key][flow.flow.view].view.source

    def read(
        self,
        flow: PlannedFlow,
        observation: str | Observation | None = None,
        *,
        without_expectations: bool = False,
    ) -> DataFrame:
        """Return a flow's rows: a batch if it runs once, otherwise a stream.

        The other arguments are those of `read_flow_rows`.
        """
        source = self.source(flow)
        if isinstance(source, HistorySource):
            return history_rows(self._spark, source)
        owned = self.views[flow.owner.key].items()
        reader = views.ViewReader(
            self._spark,
            {name: view.view for name, view in owned},
            {name: view.starts for name, view in owned if flow.streamed},
            as_batch=not flow.streamed,
        )
        return read_flow_rows(
            reader,
            flow.flow,
            flow.table,
            details=self._run_details,
            observation=observation,
            without_expectations=without_expectations,
        )

    def read_output(self, flow: PlannedFlow, observation: Observation | None = None) -> DataFrame:
        """Return the rows of an append flow, or the events of a CDC flow."""
        rows = self.read(flow, observation)
        if not flow.cdc:
            return rows
        if not flow.is_initial_copy:
            return change_feed.build_feed_events(rows, flow.cdc)
        events = build_history_events(rows, flow.cdc)
        newest = None if copied_sequences.has_sequences(events) else self._read_newest_events(flow, flow.cdc)
        if newest is None:
            return events
        return copied_sequences.add_sequences(events, newest, flow.cdc)

    def _read_newest_events(self, flow: PlannedFlow, settings: CdcSettings) -> DataFrame | None:
        """Read the newest events up to the baseline once; None if the sources can't provide them."""
        target, baseline_events = flow.target, flow.baseline_events
        if baseline_events is None:
            return None
        if target.key not in self._newest_events:
            try:
                self._newest_events[target.key] = copied_sequences.read_newest_events(
                    self._spark, baseline_events, settings, persist=True
                )
            except TableferryError as error:
                _log.warning(
                    "%s: copied rows get no sequence, because the events before them can't be read (%s)",
                    target,
                    first_line(error),
                )
                self._newest_events[target.key] = None
        return self._newest_events[target.key]

    def release_newest_events(self, flow: PlannedFlow) -> None:
        """Free the cached events after a copy."""
        if (newest := self._newest_events.pop(flow.target.key, None)) is not None:
            copied_sequences.unpersist(newest)

    def list_table_columns(self, target: Target, flows: Iterable[PlannedFlow]) -> StructType:
        """List the columns of a table: those of its schema file, otherwise those of its flows, in order."""
        if target.schema_file is None:
            return StructType(self._list_output_columns(flows))
        declared = _replace_validity_columns(
            add_target_columns(views.read_schema_file(self._spark, target.schema_file), target)
        )
        if target.cdc is None or target.cdc.scd_type == 1 or SEQUENCE in declared.names:
            return declared
        # If the file has no validity columns, the events determine their type.
        sequences = (field for field in self._list_output_columns(flows) if field.name == SEQUENCE)
        return StructType([*declared.fields, *sequences])

    def _list_output_columns(self, flows: Iterable[PlannedFlow]) -> list[StructField]:
        fields: dict[str, StructField] = {}
        for flow in flows:
            for field in self.read_output(flow).schema.fields:
                known = fields.get(field.name.lower())
                if known is None or isinstance(known.dataType, NullType):
                    fields[field.name.lower()] = field
        return list(fields.values())

    def find_narrow_columns(self, flow: PlannedFlow) -> Sequence[Finding]:
        """Return a finding for each column of the table that can't store all values that a flow appends."""
        target = flow.target
        columns, rows = self._spark.table(target.sql).schema, self.read(flow).schema
        narrow = copy_findings.find_narrow_table_columns(rows, columns, flow.flow)
        table = facts(self._spark, target) if narrow else None
        can_widen = table is not None and table.properties.get("delta.enableTypeWidening") == "true"
        return () if can_widen else narrow

    def check_columns(self, flow: PlannedFlow) -> None:
        """Check column types if Spark doesn't check each value, which it does in ANSI mode.

        Raises:
            TableError: A column of the table is narrower than the flow's column.
        """
        if self._spark.conf.get("spark.sql.ansi.enabled") != "false":
            return
        if narrow := self.find_narrow_columns(flow):
            raise TableError(
                "COLUMNS_TOO_NARROW_WITHOUT_ANSI",
                location=flow.location or flow.name,
                columns=" ".join(column.message for column in narrow),
                advice=" ".join(column.remedy for column in narrow),
            )


def _replace_validity_columns(schema: StructType) -> StructType:
    """Replace ``__START_AT`` and ``__END_AT`` by a sequence of the same type."""
    fields = {field.name: field for field in schema.fields}
    start = fields.pop(START, None)
    fields.pop(END, None)
    return StructType([*fields.values(), *([StructField(SEQUENCE, start.dataType)] if start else [])])
