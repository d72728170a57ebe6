"""Models of whole spec files and of global.json, and valid specs with their places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from tableferry.errors import Finding
from tableferry.pipelines.specs.table_models import (
    CdcTable,
    DataQualitySettings,
    MaterializedViewTable,
    StagingTable,
    TargetDetails,
)
from tableferry.pipelines.specs.validation import (
    MISSING,
    CamelModel,
    Conflicts,
    Folder,
    Folders,
    Name,
    Names,
    SnakeModel,
    SourceLocation,
    Tag,
    Text,
    converted_from,
    reject_value,
)
from tableferry.pipelines.specs.view_models import RowSelection, SqlDetails, ViewEntry

VIEW_KEYS = ("mode", "sourceType", "sourceDetails")


def _complete_prefix(prefix: str | None) -> str | None:
    if prefix and prefix.endswith("_"):
        reject_value(("", Finding("SPEC_PREFIX_WITH_UNDERSCORE", prefix=prefix.rstrip("_"))))
    return f"{prefix.lower()}_" if prefix else None


class AppendViewDetails(CamelModel):
    """Appends the rows of a view."""

    target_table: Name = Field(description="The spec's target or a staging table.")
    source_view: Name = Field(description="A view or a staging table of this spec.")
    column_prefix: Annotated[str | None, AfterValidator(_complete_prefix)] = Field(
        None,
        alias="column_prefix",
        description="Prefix of column names, in lower case and followed by an underscore.",
    )
    column_prefix_exceptions: Names = Field(
        (), alias="column_prefix_exceptions", description="Columns that get no prefix."
    )
    once: bool = Field(False, description="Run a single time.")


class AppendSqlDetails(SqlDetails):
    """Appends the rows of a SELECT statement."""

    target_table: Name = Field(description="The spec's target or a staging table.")
    once: bool = Field(False, description="Run a single time.")


class MergeDetails(CamelModel):
    """Merges the change events of a view according to the target's cdcSettings."""

    target_table: Name = Field(description="The spec's target or a staging table, with cdcSettings.")
    source_view: Name = Field(description="A view or a staging table of this spec.")


class _FlowBase(CamelModel):
    enabled: bool = Field(True, description="false leaves the flow out.")
    views: dict[str, ViewEntry] = Field({}, description="Views by name (v_…); the spec's flows share them.")


class AppendViewFlow(_FlowBase):
    """A flow that appends a view."""

    flow_type: Literal["append_view"]
    flow_details: AppendViewDetails


class AppendSqlFlow(_FlowBase):
    """A flow that appends a SELECT statement."""

    flow_type: Literal["append_sql"]
    flow_details: AppendSqlDetails


class MergeFlow(_FlowBase):
    """A flow that merges a view."""

    flow_type: Literal["merge"]
    flow_details: MergeDetails


FlowEntry = Annotated[AppendViewFlow | AppendSqlFlow | MergeFlow, Field(discriminator="flow_type")]


class FlowGroup(CamelModel):
    """Flows that belong together, and their staging tables."""

    flow_group_id: Name = Field(description="Unique in the spec.")
    staging_tables: dict[Name, StagingTable] = Field({}, description="Staging tables by name.")
    flows: dict[Name, FlowEntry] = Field(description="Flows by name (f_…).")


class FlowGroupFile(FlowGroup):
    """A separate file with one flow group."""

    data_flow_id: Name = Field(description="The dataFlowId of the main file that the group belongs to.")


class FlowGroupsFile(CamelModel):
    """A separate file with several flow groups."""

    data_flow_id: Name = Field(description="The dataFlowId of the main file that the groups belong to.")
    flow_groups: list[FlowGroup] = Field(description="Groups of flows.")


class MigrationSource(RowSelection):
    """The legacy table whose history is copied."""

    database: Name = Field(description="Schema of the table, or catalog.schema.")
    table: Name = Field(description="Name of the table.")
    except_columns: Names = Field((), description="Columns that are left out.")
    checkpoints: Folders = Field(
        (),
        alias="checkpointLocation",
        description="The checkpoint of the old stream, or a list with the checkpoint of each old stream. "
        "The flows start at its offsets, and no job has to be paused.",
    )


class TableMigrationDetails(CamelModel):
    """The one-time copy of an existing table into the target."""

    enabled: bool = Field(description="false leaves the migration out.")
    catalog_type: Literal["hms", "uc"] = Field(description="Where the legacy table is registered.")
    auto_starting_versions: bool = Field(
        True,
        alias="autoStartingVersionsEnabled",
        description="Record the sources' versions; the streaming flows start after these versions.",
    )
    mode: Literal["copy", "takeOver"] = Field(
        "copy",
        description="`takeOver`: the flows continue in the legacy table itself, from the offsets where its "
        "old streams stopped. The target is the legacy table, and no row is copied. Only the streaming "
        "engine supports it.",
    )
    hand_over: Literal["auto", "checkpoint", "content", "version", "explicit"] = Field(
        "auto",
        description="Where the streaming flows start. `checkpoint`: at the offsets of the old streams, whose "
        "checkpointLocation is given. `content`: after the source versions from which the flows compute "
        "exactly the rows of the legacy table. `version`: after the newest source versions at the first run; "
        "the old jobs must have processed them and be stopped before that run. `explicit`: at the "
        "startingVersion in the readerOptions of each source. `auto`: `checkpoint` if checkpointLocation is "
        "given, but `content` if that stream writes with foreachBatch. Without a checkpoint, `auto` means "
        "`content` for tables of at most 10 GB, and `version` if no rows match.",
    )
    source_details: MigrationSource
    leave_out_unrepresentable: bool = Field(
        False,
        alias="leaveOutNotRepresentable",
        description="Leave out validity rows that AUTO CDC can't represent, and report their number.",
    )
    pinned_clone: bool = Field(
        True,
        description="The copy into an SCD target in a pipeline on Databricks streams a clone of the legacy "
        "table's pinned version. With false, it reads that version as a batch.",
    )
    uncompared_columns: Annotated[tuple[str, ...], converted_from(list[str], tuple)] = Field(
        (),
        alias="compareExcept",
        description="Columns that no comparison with the legacy table includes, such as a load time that "
        "each job sets. Results of functions like current_timestamp() or uuid() are always left out.",
    )

    def _find_conflicts(self) -> Conflicts:
        if not self.enabled:
            return
        checkpoints = self.source_details.checkpoints
        if self.hand_over == "checkpoint" and not checkpoints:
            yield "sourceDetails.checkpointLocation", Finding("SPEC_CHECKPOINT_NOT_NAMED")
        if not self.auto_starting_versions and checkpoints:
            yield "sourceDetails.checkpointLocation", Finding("SPEC_HAND_OVER_WITHOUT_STARTS")
        if not self.auto_starting_versions and self.hand_over == "content":
            yield "handOver", Finding("SPEC_HAND_OVER_WITHOUT_STARTS")


class Features(CamelModel):
    """Optional features of a spec."""

    operational_metadata_enabled: bool = Field(
        True, description="Add the operational metadata columns of the project's layer to the rows."
    )


class SpecHeader(CamelModel):
    """Keys that all specs have."""

    data_flow_id: Name = Field(description="Unique among the project's main files.")
    data_flow_group: Name = Field(description="The group that a pipeline selects by.")
    data_flow_version: Text | None = Field(None, description="Version of the spec format.")
    tags: dict[str, Tag] = Field({}, description="Free tags.")
    features: Features = Features.model_validate({})


class StreamingTableSpec(DataQualitySettings, CdcTable, SpecHeader):
    """Keys that both kinds of spec of a streaming table have."""

    target_format: Literal["delta"] = Field(description="A streaming table.")
    target_details: TargetDetails
    table_migration_details: TableMigrationDetails | None = None


class StandardSpec(StreamingTableSpec):
    """One source, one view, one flow, one target."""

    data_flow_type: Literal["standard"]
    # A spec of historical snapshots has no view.
    source_system: Name | None = Field(None, description="Name of the system where the data is from.")
    source_view_name: Name | None = Field(None, description="Name of the view (v_…).")
    # These keys are validated as a separate view, so that their errors don't hide those of the spec.
    source_type: Any = None
    source_details: Any = None
    mode: Any = None

    @property
    def has_view(self) -> bool:
        """Whether a view fills the target."""
        snapshots = self.cdc_snapshot_settings
        return snapshots is None or snapshots.snapshot_type == "periodic"

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        for key, value in (("sourceSystem", self.source_system), ("sourceViewName", self.source_view_name)):
            if self.has_view and value is None:
                yield key, MISSING


class FlowSpec(StreamingTableSpec):
    """Groups of flows into one target."""

    data_flow_type: Literal["flow"]
    # The key is missing if all groups are in separate files.
    flow_groups: list[FlowGroup] = Field([], description="Groups of flows.")


class MaterializedViewSource(CamelModel):
    """A source whose rows a materialized view contains."""

    source_view_name: Name = Field(description="Name of the view (v_…).")
    source_system: Name | None = Field(None, description="Name of the system where the data is from.")
    source_type: Literal["batchFiles", "delta", "python", "sql"] = Field(description="Kind of the source.")
    source_details: dict[str, Any] = Field(description="Settings of that kind of source.")


class MaterializedViewEntry(DataQualitySettings):
    """One materialized view."""

    source_view: MaterializedViewSource | None = Field(None, description="A source with its rows.")
    sql_path: Name | None = Field(None, description="A .sql file, relative to dml/.")
    sql_statement: Name | None = Field(None, description="The SELECT statement.")
    table_details: MaterializedViewTable = MaterializedViewTable.model_validate({})
    refresh_policy: Literal["auto", "incremental", "incremental_strict", "full"] | None = Field(
        None, description="How Databricks refreshes it."
    )

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        yield from self._find_choice("source_view", "sql_path", "sql_statement")


class MaterializedViewsSpec(SpecHeader):
    """Materialized views of one pipeline."""

    data_flow_type: Literal["materialized_view"]
    materialized_views: dict[Name, MaterializedViewEntry] = Field(
        min_length=1, description="Materialized views by the names of their tables."
    )


class SpecFormat(SnakeModel):
    """The file format that spec files must have."""

    format: Literal["json", "yaml"] = "json"
    allow_override: bool = False


class GlobalFile(SnakeModel):
    """The content of global.json or global.yaml."""

    table_migration_state_volume_path: Folder | None = None
    table_migration_state_shared: bool | None = None
    pipeline_bundle_spec_format: SpecFormat | None = None
    mandatory_table_properties: dict[str, Text] = Field(default_factory=dict)
    spark_config: dict[str, Text] = Field(default_factory=dict)
    dataflow_spec_version: Text | None = None


@dataclass(frozen=True)
class ParsedFlowGroup:
    """A valid flow group."""

    location: SourceLocation
    model: FlowGroup


@dataclass(frozen=True)
class ParsedSpec:
    """A valid spec of a streaming table, or one valid materialized view of a spec.

    Attributes:
        location: The main file, or one spec of its template, or the place of the materialized view.
        header: The keys of the whole spec.
        table: The name of the table that it fills.
        table_location: The place of that name.
        details: The layout of that table.
        details_location: The place of the layout.
        view: The view of a standard spec, or the source of a materialized view.
        groups: The groups of a flow spec, including those in separate files.
    """

    location: SourceLocation
    header: SpecHeader
    model: StandardSpec | FlowSpec | MaterializedViewEntry
    table: str
    table_location: SourceLocation
    details: TargetDetails | MaterializedViewTable
    details_location: SourceLocation
    view: ViewEntry | None = None
    groups: tuple[ParsedFlowGroup, ...] = ()

    @property
    def has_metadata(self) -> bool:
        """Whether the rows get operational metadata; it would mark every row of a snapshot as changed."""
        has_snapshots = isinstance(self.model, CdcTable) and self.model.cdc_snapshot_settings is not None
        return self.header.features.operational_metadata_enabled and not has_snapshots
