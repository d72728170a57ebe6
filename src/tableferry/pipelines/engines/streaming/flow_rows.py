"""The rows and events that flows write, and the columns that their tables need for them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.types import NullType, StructField, StructType

from tableferry.errors import Finding, TableError, TableferryError, first_line
from tableferry.pipelines.cdc import change_feed
from tableferry.pipelines.cdc.fold import END, SEQUENCE, START
from tableferry.pipelines.cdc.scd2_history_events import build_history_events
from tableferry.pipelines.engines.streaming.table_identities import require_facts
from tableferry.pipelines.handover import copied_sequences
from tableferry.pipelines.model.flows import HistorySource, Source, Target
from tableferry.pipelines.model.steps import DefineAutoCdc, DefineTable, DefineView, FlowDefinition
from tableferry.pipelines.sources import column_mismatches, views
from tableferry.pipelines.sources.metadata_columns import add_target_columns, create_run_details
from tableferry.pipelines.sources.rows import history_rows, read_flow_rows

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

    def source(self, definition: FlowDefinition) -> Source:
        """Return the source of a flow's view."""
        return self.views[definition.owner.key][definition.flow.view].view.source

    def is_initial_copy(self, definition: FlowDefinition) -> bool:
        """Return whether a flow copies the legacy table."""
        return isinstance(self.source(definition), HistorySource)

    def read(
        self,
        definition: FlowDefinition,
        observation: str | Observation | None = None,
        *,
        without_expectations: bool = False,
    ) -> DataFrame:
        """Return a flow's rows: a batch if it runs once, otherwise a stream.

        The other arguments are those of `read_flow_rows`.
        """
        source = self.source(definition)
        if isinstance(source, HistorySource):
            return history_rows(self._spark, source)
        owned = self.views[definition.owner.key].items()
        starts: views.Starts = {name: {} if definition.once else view.starts for name, view in owned}
        return read_flow_rows(
            self._spark,
            {name: view.view for name, view in owned},
            definition.flow,
            self.tables[definition.flow.target.key].target,
            starts,
            as_batch=definition.once,
            details=self._run_details,
            observation=observation,
            without_expectations=without_expectations,
        )

    def read_output(self, definition: FlowDefinition, observation: Observation | None = None) -> DataFrame:
        """Return the rows of an append flow, or the events of a CDC flow."""
        rows = self.read(definition, observation)
        if not isinstance(definition, DefineAutoCdc):
            return rows
        if not self.is_initial_copy(definition):
            return change_feed.build_feed_events(rows, definition.settings)
        events = build_history_events(rows, definition.settings)
        newest = None if copied_sequences.has_sequences(events) else self._read_newest_events(definition)
        if newest is None:
            return events
        return copied_sequences.add_sequences(events, newest, definition.settings)

    def _read_newest_events(self, definition: DefineAutoCdc) -> DataFrame | None:
        """Read the newest events up to the baseline once; None if the sources can't provide them."""
        target, baseline_events = definition.flow.target, definition.baseline_events
        if baseline_events is None:
            return None
        if target.key not in self._newest_events:
            try:
                self._newest_events[target.key] = copied_sequences.read_newest_events(
                    self._spark, baseline_events, definition.settings, persist=True
                )
            except TableferryError as error:
                _log.warning(
                    "%s: copied rows get no sequence, because the events before them can't be read (%s)",
                    target,
                    first_line(error),
                )
                self._newest_events[target.key] = None
        return self._newest_events[target.key]

    def release_newest_events(self, definition: DefineAutoCdc) -> None:
        """Free the cached events after a copy."""
        if (newest := self._newest_events.pop(definition.flow.target.key, None)) is not None:
            copied_sequences.unpersist(newest)

    def list_table_columns(self, target: Target, flows: Iterable[FlowDefinition]) -> StructType:
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

    def _list_output_columns(self, flows: Iterable[FlowDefinition]) -> list[StructField]:
        fields: dict[str, StructField] = {}
        for definition in flows:
            for field in self.read_output(definition).schema.fields:
                known = fields.get(field.name.lower())
                if known is None or isinstance(known.dataType, NullType):
                    fields[field.name.lower()] = field
        return list(fields.values())

    def find_narrow_columns(self, definition: FlowDefinition) -> Sequence[Finding]:
        """Return a finding for each column of the table that can't store all values that a flow appends."""
        target = definition.flow.target
        columns, rows = self._spark.table(target.sql).schema, self.read(definition).schema
        narrow = column_mismatches.find_narrow_table_columns(rows, columns, definition.flow)
        can_widen = (
            narrow and require_facts(self._spark, target).properties.get("delta.enableTypeWidening") == "true"
        )
        return () if can_widen else narrow

    def check_columns(self, definition: FlowDefinition) -> None:
        """Check column types if Spark doesn't check each value, which it does in ANSI mode.

        Raises:
            TableError: A column of the table is narrower than the flow's column.
        """
        if self._spark.conf.get("spark.sql.ansi.enabled") != "false":
            return
        if narrow := self.find_narrow_columns(definition):
            raise TableError(
                "COLUMNS_TOO_NARROW_WITHOUT_ANSI",
                location=definition.flow.location or definition.flow.name,
                columns=" ".join(column.message for column in narrow),
                advice=" ".join(column.remedy for column in narrow),
            )


def _replace_validity_columns(schema: StructType) -> StructType:
    """Replace ``__START_AT`` and ``__END_AT`` by a sequence of the same type."""
    fields = {field.name: field for field in schema.fields}
    start = fields.pop(START, None)
    fields.pop(END, None)
    return StructType([*fields.values(), *([StructField(SEQUENCE, start.dataType)] if start else [])])
