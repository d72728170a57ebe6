"""Models of tables in spec files: layout, change data capture, snapshots, data quality and quarantine."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from tableferry.errors import Finding
from tableferry.pipelines.specs.validation import (
    MISSING,
    CamelModel,
    Condition,
    Conflicts,
    Folder,
    Name,
    Names,
    SnakeModel,
    Text,
    converted_from,
)

ScdTypeEntry = Annotated[
    Literal[1, 2],
    converted_from(Literal["1", "2"], int),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"enum": ["1", "2", 1, 2]}),
]

# YAML reads off without quotes as false.
QuarantineMode = Annotated[
    Literal["off", "flag", "table"],
    BeforeValidator(lambda value: "off" if value is False else value),
    WithJsonSchema({"enum": ["off", "flag", "table", False]}),
]


class ScdSettings(SnakeModel):
    """Settings that AUTO CDC and AUTO CDC FROM SNAPSHOT share."""

    keys: Names = Field(min_length=1, description="Columns that identify a row.")
    scd_type: ScdTypeEntry = Field(description="1 keeps the newest row of a key, 2 keeps its history.")
    track_history_column_list: Names = Field(
        (), description="Only changes of these columns start a new interval."
    )
    track_history_except_column_list: Names = Field(
        (), description="Changes of these columns don't start a new interval."
    )

    def _find_conflicts(self) -> Conflicts:
        history = ("track_history_column_list", "track_history_except_column_list")
        yield from self._find_exclusion(*history)
        for key in history:
            if self.scd_type == 1 and getattr(self, key):
                yield key, Finding("SPEC_KEY_NEEDS_SCD_TYPE", scd_type=2)


class CdcSettingsEntry(ScdSettings):
    """How change events become rows: the settings of AUTO CDC."""

    sequence_by: Name = Field(description="SQL expression that orders the events of a key.")
    where: Condition = Field(None, description="SQL condition on the events.")
    apply_as_deletes: Condition = Field(None, description="SQL condition that makes an event a delete.")
    apply_as_truncates: Condition = Field(None, description="SQL condition that makes it a truncate.")
    ignore_null_updates: bool = Field(False, description="A NULL in an update keeps the older value.")
    column_list: Names = Field((), description="The columns that the target keeps.")
    except_column_list: Names = Field((), description="The columns that the target leaves out.")

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        yield from self._find_exclusion("column_list", "except_column_list")
        if self.scd_type == 2 and self.apply_as_truncates:
            yield "apply_as_truncates", Finding("SPEC_KEY_NEEDS_SCD_TYPE", scd_type=1)


class CdcSnapshotSettings(ScdSettings):
    """How snapshots of a whole table become rows: the settings of AUTO CDC FROM SNAPSHOT."""

    snapshot_type: Literal["periodic", "historical"] = Field(
        alias="snapshotType",
        description="periodic: the source is the newest snapshot; historical: the source has all snapshots.",
    )
    source_type: Literal["file", "table"] | None = Field(
        None, alias="sourceType", description="The kind of the source of historical snapshots."
    )
    source: dict[str, Any] | None = Field(None, description="The source of historical snapshots.")

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        historical = self.snapshot_type == "historical"
        for key, value in (("sourceType", self.source_type), ("source", self.source)):
            if historical != (value is not None):
                yield key, MISSING if historical else Finding("SPEC_KEY_NEEDS_HISTORICAL_SNAPSHOTS")


class SnapshotSource(CamelModel):
    """A source of historical snapshots."""

    starting_version: int | str | None = Field(None, description="The first version that is read.")
    select: Names = Field((), alias="selectExp", description="SQL expressions; without any, every column.")
    deduplicate: Literal["off", "full_row", "keys_only"] = Field(
        "off", alias="deduplicateMode", description="Which repeated rows are left out."
    )


class SnapshotFilesEntry(SnapshotSource):
    """Snapshots in files whose paths contain the version."""

    format: Name = Field(description="Spark's name of the reader, such as csv or parquet.")
    path: Folder = Field(
        description="Path of the files with {version} (and {fragment}) in it, or a regular expression "
        "with groups (?P<version_…>…)."
    )
    options: dict[str, Text] = Field({}, alias="readerOptions", description="Options of the reader.")
    where: Condition = Field(
        None, alias="filter", description="SQL condition on the rows; {version} is the version."
    )
    version_type: Literal["integer", "timestamp"] = Field(description="Type of the version.")
    datetime_format: Name | None = Field(
        None, description="Python's format of a timestamp, such as %Y_%m_%d."
    )
    micro_second_mask_length: Annotated[int, Field(ge=0, le=6)] | None = Field(
        None, description="Has no effect: all digits of a version are read."
    )
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")
    recursive: bool = Field(False, alias="recursiveFileLookup", description="Also read files in subfolders.")

    def _find_conflicts(self) -> Conflicts:
        timestamps = self.version_type == "timestamp"
        if "{version}" not in self.path and "(?P<version_" not in self.path:
            yield "path", Finding("SPEC_SNAPSHOT_PATH_WITHOUT_VERSION", mark="{version}")
        if timestamps != (self.datetime_format is not None):
            yield (
                "datetimeFormat",
                Finding("SPEC_DATETIME_FORMAT_MISSING" if timestamps else "SPEC_DATETIME_FORMAT_UNUSED"),
            )
        if self.starting_version is not None and timestamps != isinstance(self.starting_version, str):
            expected = "text" if timestamps else "a whole number"
            finding = Finding("SPEC_STARTING_VERSION_TYPE", expected=expected, type=self.version_type)
            yield "startingVersion", finding


class SnapshotTableEntry(SnapshotSource):
    """Snapshots in a table with a version column."""

    table: Name = Field(description="The table, as schema.table or catalog.schema.table.")
    version_column: Name = Field(description="Column with the version of the snapshot that contains the row.")
    version_type: Literal["date", "timestamp", "integer", "long"] = Field(description="Its type.")


class StorageLayout(CamelModel):
    """Name, properties and layout that all kinds of tables have."""

    database: Name | None = Field(None, description="Schema of the table, or catalog.schema.")
    properties: dict[str, Text] = Field({}, alias="tableProperties", description="Delta table properties.")
    path: Name | None = Field(None, description="Folder of an external table's data.")
    partition_columns: Names = Field((), description="Columns of the partitioning.")
    cluster_columns: Names = Field(
        (), alias="clusterByColumns", description="Columns of the liquid clustering."
    )
    cluster_auto: bool = Field(
        False, alias="clusterByAuto", description="Let Databricks choose the clustering."
    )

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        yield from self._find_exclusion("partition_columns", "cluster_columns")

    @property
    def folder(self) -> str | None:
        """The folder of an external table's data, or None."""
        return self.path


class QuarantineTarget(StorageLayout):
    """The table of the rows that violate an expectation."""

    target_format: Literal["delta"] = Field("delta", description="A streaming table.")
    table: Name | None = Field(None, description="Its name; by default the target's name with _quarantine.")


class TableLayout(StorageLayout):
    """Layout of a table with rows of the flows."""

    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")
    config_flags: list[Literal["disableOperationalMetadata"]] = Field(
        [], description="disableOperationalMetadata: its rows get no operational metadata columns."
    )


class OutputTable(TableLayout):
    """A table that readers see."""

    comment: str | None = Field(None, description="Comment of the table.")
    spark_conf: dict[str, Text] = Field({}, description="Spark settings of the flows into the table.")
    row_filter: Name | None = Field(None, description="A Unity Catalog row filter.")


class TargetDetails(OutputTable):
    """The streaming table that the flows of the spec fill."""

    table: Name = Field(description="Name of the table.")
    type: Literal["ST"] = Field("ST", description="A streaming table.")
    table_path: Name | None = Field(None, description="Another spelling of path.")

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        yield from self._find_exclusion("path", "table_path")

    @property
    def folder(self) -> str | None:
        """The folder of an external table's data, in either spelling."""
        return self.path or self.table_path


class MaterializedViewTable(OutputTable):
    """How a materialized view is stored."""

    private: bool = Field(False, description="The view is visible only in the pipeline.")


class CdcTable(CamelModel):
    """A table into which change events or snapshots can be merged."""

    cdc_settings: CdcSettingsEntry | None = Field(None, description="How change events become rows.")
    cdc_snapshot_settings: CdcSnapshotSettings | None = Field(None, description="How snapshots become rows.")

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        yield from self._find_exclusion("cdc_settings", "cdc_snapshot_settings")


class StagingTable(TableLayout, CdcTable):
    """A streaming table between the flows of a group."""

    type: Literal["ST"] = Field(description="A streaming table.")


class DataQualitySettings(CamelModel):
    """Expectations of a table, and the quarantine of rows that violate one."""

    data_quality_expectations_enabled: bool = Field(False, description="Apply the expectations.")
    data_quality_expectations_path: Name | None = Field(
        None, description="A file or folder, relative to expectations/."
    )
    quarantine_mode: QuarantineMode = Field(
        "off",
        description="The destination of rows that violate an expectation. `flag`: the target keeps them, and "
        "sets its column is_quarantined; `table`: they are appended to a separate table, in addition to the "
        "expectation's action.",
    )
    quarantine_target_details: QuarantineTarget | None = Field(None, description="That table.")

    def _find_conflicts(self) -> Conflicts:
        yield from super()._find_conflicts()
        enabled = self.data_quality_expectations_enabled
        if enabled and self.data_quality_expectations_path is None:
            yield "dataQualityExpectationsEnabled", Finding("SPEC_EXPECTATIONS_WITHOUT_PATH")
        if self.quarantine_mode != "off" and not enabled:
            yield "quarantineMode", Finding("SPEC_QUARANTINE_WITHOUT_EXPECTATIONS")
