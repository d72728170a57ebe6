"""What users write in a data flow spec: targets, CDC, flows, and the two kinds of spec."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from tableferry.errors import Finding
from tableferry.pipelines.specs.sources import View
from tableferry.pipelines.specs.written import (
    MISSING,
    CamelModel,
    Name,
    Names,
    SnakeModel,
    Tag,
    Text,
    excluded_by,
    is_elsewhere,
    not_a_folder,
    one_of,
    path_of,
    refuse_unless_one,
    refuse_when,
)

ScdType = Annotated[
    Literal["1", "2"],
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"enum": ["1", "2", 1, 2]}),
]

# YAML reads a bare off as false.
QuarantineMode = Annotated[
    Literal["off", "flag", "table"],
    BeforeValidator(lambda value: "off" if value is False else value),
    WithJsonSchema({"enum": ["off", "flag", "table", False]}),
]


class CdcSettings(SnakeModel):
    """How change events become rows: AUTO CDC's settings."""

    keys: list[Name] = Field(min_length=1, description="Columns that identify a row.")
    sequence_by: Name = Field(description="SQL expression that orders the events of a key.")
    scd_type: ScdType = Field(description="1 keeps the newest row of a key, 2 keeps its history.")
    where: str | None = Field(None, description="SQL condition on the events.")
    apply_as_deletes: str | None = Field(None, description="SQL condition that makes an event a delete.")
    apply_as_truncates: str | None = Field(None, description="SQL condition that makes it a truncate.")
    ignore_null_updates: bool = Field(False, description="A NULL in an update keeps the older value.")
    column_list: list[Name] = Field([], description="The columns that the target keeps.")
    except_column_list: list[Name] = Field([], description="The columns that the target leaves out.")
    track_history_column_list: list[Name] = Field([], description="Only their changes open a new interval.")
    track_history_except_column_list: list[Name] = Field(
        [], description="All but their changes open a new interval."
    )

    @model_validator(mode="after")
    def _fits(self) -> CdcSettings:
        history = [
            key
            for key in ("track_history_column_list", "track_history_except_column_list")
            if getattr(self, key)
        ]
        refuse_when(
            (
                bool(self.column_list and self.except_column_list),
                "except_column_list",
                excluded_by("column_list"),
            ),
            (
                len(history) == 2,
                "track_history_except_column_list",
                excluded_by("track_history_column_list"),
            ),
            (
                self.scd_type == "2" and bool((self.apply_as_truncates or "").strip()),
                "apply_as_truncates",
                Finding("SPEC_KEY_NEEDS_SCD_TYPE", scd_type=1),
            ),
            *((self.scd_type == "1", key, Finding("SPEC_KEY_NEEDS_SCD_TYPE", scd_type=2)) for key in history),
        )
        return self


class CdcSnapshotSettings(CamelModel):
    """How snapshots of a whole table become rows: AUTO CDC FROM SNAPSHOT's settings."""

    keys: list[Name] = Field(min_length=1, description="Columns that identify a row.")
    scd_type: ScdType = Field(alias="scd_type", description="1 keeps the newest row of a key, 2 its history.")
    snapshot_type: Literal["periodic", "historical"] = Field(
        description="periodic: the source is the newest snapshot; historical: the snapshots of all times."
    )
    source_type: Literal["file", "table"] | None = Field(None, description="Of historical snapshots.")
    source: dict[str, Any] | None = Field(None, description="Where historical snapshots are.")
    track_history_column_list: list[Name] = Field(
        [], alias="track_history_column_list", description="Only their changes open a new interval."
    )
    track_history_except_column_list: list[Name] = Field(
        [], alias="track_history_except_column_list", description="All but their changes open one."
    )

    @model_validator(mode="after")
    def _fits(self) -> CdcSnapshotSettings:
        historical = self.snapshot_type == "historical"
        given = {"sourceType": self.source_type, "source": self.source}
        history = [
            key
            for key in ("track_history_column_list", "track_history_except_column_list")
            if getattr(self, key)
        ]
        refuse_when(
            *((historical and value is None, key, MISSING) for key, value in given.items()),
            *(
                (not historical and value is not None, key, Finding("SPEC_KEY_NEEDS_HISTORICAL_SNAPSHOTS"))
                for key, value in given.items()
            ),
            (
                len(history) == 2,
                "track_history_except_column_list",
                excluded_by("track_history_column_list"),
            ),
            *((self.scd_type == "1", key, Finding("SPEC_KEY_NEEDS_SCD_TYPE", scd_type=2)) for key in history),
        )
        return self


class Layout(CamelModel):
    """How a table is laid out; shared by targets and staging tables."""

    database: Name | None = Field(None, description="Schema of the table, or catalog.schema.")
    table_properties: dict[str, Text] = Field({}, description="Delta table properties.")
    path: Name | None = Field(None, description="Folder of an external table's data.")
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")
    partition_columns: list[Name] = Field([], description="Columns of the partitioning.")
    cluster_by_columns: list[Name] = Field([], description="Columns of the liquid clustering.")
    cluster_by_auto: bool = Field(False, description="Let Databricks choose the clustering.")
    config_flags: list[Literal["disableOperationalMetadata"]] = Field(
        [], description="disableOperationalMetadata: its rows get no operational metadata columns."
    )

    @model_validator(mode="after")
    def _clusters_or_partitions(self) -> Layout:
        both = bool(self.partition_columns and self.cluster_by_columns)
        refuse_when((both, "clusterByColumns", excluded_by("partitionColumns")))
        return self


class TargetDetails(Layout):
    """The streaming table that the spec fills."""

    table: Name = Field(description="Name of the table.")
    type: Literal["ST"] = Field("ST", description="A streaming table.")
    table_path: Name | None = Field(None, description="Another spelling of path.")
    comment: str | None = Field(None, description="Comment of the table.")
    spark_conf: dict[str, Text] = Field({}, description="Spark settings of the flows into the table.")
    row_filter: Name | None = Field(None, description="A Unity Catalog row filter.")

    @model_validator(mode="after")
    def _one_path(self) -> TargetDetails:
        both = self.path is not None and self.table_path is not None
        refuse_when((both, "tablePath", excluded_by("path")))
        return self


class StagingTable(Layout):
    """A streaming table between the flows of a group."""

    type: Literal["ST"] = Field(description="A streaming table.")
    cdc_settings: CdcSettings | None = Field(None, description="How change events become rows.")
    cdc_snapshot_settings: CdcSnapshotSettings | None = Field(None, description="How snapshots become rows.")

    @model_validator(mode="after")
    def _one_kind(self) -> StagingTable:
        refuse_both(self.cdc_settings, self.cdc_snapshot_settings)
        return self


def refuse_both(cdc: CdcSettings | None, snapshots: CdcSnapshotSettings | None) -> None:
    """Raise an error where a table has both kinds of settings."""
    both = cdc is not None and snapshots is not None
    refuse_when((both, "cdcSnapshotSettings", excluded_by("cdcSettings")))


class QuarantineTarget(CamelModel):
    """The table of the rows that break a rule."""

    target_format: Literal["delta"] = Field("delta", description="A streaming table.")
    database: Name | None = Field(None, description="Schema of the table, or catalog.schema.")
    table: Name | None = Field(None, description="Its name; without one, the target's and _quarantine.")
    table_properties: dict[str, Text] = Field({}, description="Delta table properties.")
    path: Name | None = Field(None, description="Folder of an external table's data.")
    partition_columns: list[Name] = Field([], description="Columns of the partitioning.")
    cluster_by_columns: list[Name] = Field([], description="Columns of the liquid clustering.")
    cluster_by_auto: bool = Field(False, description="Let Databricks choose the clustering.")

    @model_validator(mode="after")
    def _clusters_or_partitions(self) -> QuarantineTarget:
        both = bool(self.partition_columns and self.cluster_by_columns)
        refuse_when((both, "clusterByColumns", excluded_by("partitionColumns")))
        return self


class Judged(CamelModel):
    """Data quality rules, and where rows go that break one."""

    data_quality_expectations_enabled: bool = Field(False, description="Apply the expectations.")
    data_quality_expectations_path: Name | None = Field(
        None, description="A file or folder, relative to expectations/."
    )
    quarantine_mode: QuarantineMode = Field(
        "off",
        description="What becomes of rows that break a rule. `flag`: they stay in the target, and its column "
        "is_quarantined says so; `table`: they are appended to a table of their own, whatever the rule does.",
    )
    quarantine_target_details: QuarantineTarget | None = Field(None, description="That table.")

    @model_validator(mode="after")
    def _rules_are_there(self) -> Judged:
        enabled = self.data_quality_expectations_enabled
        refuse_when(
            (
                enabled and self.data_quality_expectations_path is None,
                "dataQualityExpectationsEnabled",
                Finding("SPEC_EXPECTATIONS_WITHOUT_PATH"),
            ),
            (
                self.quarantine_mode != "off" and not enabled,
                "quarantineMode",
                Finding("SPEC_QUARANTINE_WITHOUT_EXPECTATIONS"),
            ),
        )
        return self


class AppendViewDetails(CamelModel):
    """Rows of a view, appended."""

    target_table: Name = Field(description="The spec's target or a staging table.")
    source_view: Name = Field(description="A view or a staging table of this spec.")
    column_prefix: str | None = Field(
        None,
        alias="column_prefix",
        description="Put before column names, in lower case and with an underscore behind it.",
    )
    column_prefix_exceptions: list[Name] = Field(
        [], alias="column_prefix_exceptions", description="Columns whose names stay."
    )
    once: bool = Field(False, description="Run a single time.")

    @model_validator(mode="after")
    def _prefix_has_no_underscore(self) -> AppendViewDetails:
        prefix = self.column_prefix or ""
        doubled = Finding("SPEC_PREFIX_WITH_UNDERSCORE", prefix=prefix.rstrip("_"))
        refuse_when((prefix.endswith("_"), "column_prefix", doubled))
        return self


class AppendSqlDetails(CamelModel):
    """Rows of a SELECT, appended."""

    model_config = ConfigDict(json_schema_extra=one_of("sqlPath", "sqlStatement"))

    target_table: Name = Field(description="The spec's target or a staging table.")
    sql_path: Name | None = Field(None, description="A .sql file, relative to dml/.")
    sql_statement: Name | None = Field(None, description="The SELECT itself.")
    once: bool = Field(False, description="Run a single time.")

    @model_validator(mode="after")
    def _one_statement(self) -> AppendSqlDetails:
        refuse_unless_one(sqlPath=self.sql_path, sqlStatement=self.sql_statement)
        return self


class MergeDetails(CamelModel):
    """Change events of a view, merged by the target's cdcSettings."""

    target_table: Name = Field(description="The spec's target or a staging table, with cdcSettings.")
    source_view: Name = Field(description="A view or a staging table of this spec.")


class _FlowParts(CamelModel):
    enabled: bool = Field(True, description="false leaves the flow out.")
    views: dict[str, View] = Field({}, description="Views by name (v_…); the spec's flows share them.")


class AppendViewFlow(_FlowParts):
    """A flow that appends a view."""

    flow_type: Literal["append_view"]
    flow_details: AppendViewDetails


class AppendSqlFlow(_FlowParts):
    """A flow that appends a SELECT."""

    flow_type: Literal["append_sql"]
    flow_details: AppendSqlDetails


class MergeFlow(_FlowParts):
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
    """A flow group in a file of its own."""

    data_flow_id: Name = Field(description="The dataFlowId of the main file that it belongs to.")


class FlowGroupsFile(CamelModel):
    """Several flow groups in a file of their own."""

    data_flow_id: Name = Field(description="The dataFlowId of the main file that they belong to.")
    flow_groups: list[FlowGroup] = Field(description="Groups of flows.")


class MigrationSource(CamelModel):
    """The legacy table whose history is copied."""

    database: Name = Field(description="Schema of the table, or catalog.schema.")
    table: Name = Field(description="Name of the table.")
    select_exp: list[Name] = Field([], description="SQL expressions; none means every column.")
    where_clause: list[Name] = Field([], description="SQL conditions that must all hold.")
    except_columns: list[Name] = Field([], description="Columns that are left out.")
    checkpoint_location: Names = Field(
        [],
        description="The checkpoint of the stream that fills the table, or a list of those of all that do: "
        "the new flows go on where they are, and nothing is paused.",
    )

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """The folders of the checkpoints."""
        return tuple(map(path_of, self.checkpoint_location))

    @model_validator(mode="after")
    def _checkpoints_are_in_folders(self) -> MigrationSource:
        elsewhere = (path for path in self.checkpoints if is_elsewhere(path))
        refuse_when(*((True, "checkpointLocation", not_a_folder(path)) for path in elsewhere))
        return self


class TableMigrationDetails(CamelModel):
    """The one-time copy of an existing table into the target."""

    enabled: bool = Field(description="false takes the migration out.")
    catalog_type: Literal["hms", "uc"] = Field(description="Where the legacy table is registered.")
    auto_starting_versions_enabled: bool = Field(
        True, description="Record the sources' versions and let the streaming flows start right behind them."
    )
    mode: Literal["copy", "takeOver"] = Field(
        "copy",
        description="`takeOver` lets the flows go on in the legacy table itself, where its old streams were "
        "stopped; the target and the legacy table are then the same, and nothing is copied. Only the "
        "streaming engine supports it.",
    )
    hand_over: Literal["auto", "checkpoint", "content", "version", "explicit"] = Field(
        "auto",
        description="Where the streaming flows go on. `checkpoint`: where the old streams are whose "
        "checkpointLocation is given. `content`: behind the versions of the sources of which the flows make "
        "exactly what the legacy table holds. `version`: behind the newest versions of the sources at the "
        "first run, before which the old jobs must have taken all of them and have stopped. `explicit`: at "
        "the startingVersion that readerOptions give for each source. `auto`: `checkpoint` where "
        "checkpointLocation is given, or `content` if that stream writes in foreachBatch. Without a "
        "checkpoint `content`, where the tables have at most 10 GB, and `version` where no rows fit.",
    )
    source_details: MigrationSource
    leave_out_not_representable: bool = Field(
        False, description="Leave out validity rows that AUTO CDC can't represent, and say how many."
    )
    pinned_clone: bool = Field(
        True,
        description="Where a pipeline on Databricks fills an SCD target, let its copy stream a clone of the "
        "legacy table's pinned version; false reads that version itself as a batch.",
    )
    compare_except: list[str] = Field(
        default_factory=list,
        description="Columns that no comparison with the legacy table compares, such as a time of loading "
        "that each job sets itself. Columns made by functions like current_timestamp() or uuid() are left "
        "out without it.",
    )


class Features(CamelModel):
    """Switches of a spec."""

    operational_metadata_enabled: bool = Field(
        True, description="Let rows have the operational metadata columns of the project's layer."
    )


class SpecCommon(Judged):
    """What both kinds of spec of a streaming table share."""

    data_flow_id: Name = Field(description="Unique among the project's main files.")
    data_flow_group: Name = Field(description="The group that a pipeline selects by.")
    data_flow_version: Text | None = Field(None, description="Version of the spec format.")
    tags: dict[str, Tag] = Field({}, description="Free tags.")
    features: Features = Features.model_validate({})
    target_format: Literal["delta"] = Field(description="A streaming table.")
    target_details: TargetDetails
    cdc_settings: CdcSettings | None = Field(None, description="How change events become rows.")
    cdc_snapshot_settings: CdcSnapshotSettings | None = Field(None, description="How snapshots become rows.")
    table_migration_details: TableMigrationDetails | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> SpecCommon:
        refuse_both(self.cdc_settings, self.cdc_snapshot_settings)
        return self


class StandardSpec(SpecCommon):
    """One source, one view, one flow, one target."""

    data_flow_type: Literal["standard"]
    # Historical snapshots have a source of their own, and no view.
    source_system: Name | None = Field(None, description="Where the data comes from, in words.")
    source_view_name: Name | None = Field(None, description="Name of the view (v_…).")
    # These three are a View; it's validated on its own, so that its problems show beside the spec's.
    source_type: Any = None
    source_details: Any = None
    mode: Any = None

    @property
    def has_view(self) -> bool:
        """Whether it's filled from a view."""
        snapshots = self.cdc_snapshot_settings
        return snapshots is None or snapshots.snapshot_type == "periodic"

    @model_validator(mode="after")
    def _has_a_source(self) -> StandardSpec:
        given = {"sourceSystem": self.source_system, "sourceViewName": self.source_view_name}
        refuse_when(*((self.has_view and value is None, key, MISSING) for key, value in given.items()))
        return self


class FlowSpec(SpecCommon):
    """Groups of flows into one target."""

    data_flow_type: Literal["flow"]
    # Absent where all groups have files of their own.
    flow_groups: list[FlowGroup] = Field([], description="Groups of flows.")
