"""What users write about AUTO CDC from snapshots."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.compile_sources import Sources
from tableferry.pipelines.specs.models import CdcSnapshotSettings
from tableferry.pipelines.specs.names import table_name
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.validate import validated
from tableferry.pipelines.specs.written import (
    CamelModel,
    Name,
    Text,
    is_elsewhere,
    not_a_folder,
    path_of,
    refuse_when,
)

Deduplicate = Literal["off", "full_row", "keys_only"]


class SnapshotFiles(CamelModel):
    """Snapshots in files, each with its version in its path."""

    format: Name = Field(description="Spark's name of the reader, such as csv or parquet.")
    path: Name = Field(
        description="Where the files are, with {version} (and {fragment}) in it, or a regular expression "
        "with groups (?P<version_…>…)."
    )
    reader_options: dict[str, Text] = Field({}, description="Options of the reader.")
    filter: str | None = Field(None, description="SQL condition on the rows; {version} is the version.")
    version_type: Literal["integer", "timestamp"] = Field(description="What a version is read as.")
    starting_version: int | str | None = Field(None, description="The first version that counts.")
    datetime_format: Name | None = Field(
        None, description="Python's format of a timestamp, such as %Y_%m_%d."
    )
    micro_second_mask_length: Annotated[int, Field(ge=0, le=6)] | None = Field(
        None, description="Accepted: a version is read with the digits that it has."
    )
    schema_path: Name | None = Field(None, description="A .json or .ddl file, relative to schemas/.")
    select_exp: list[Name] = Field([], description="SQL expressions; none means every column.")
    recursive_file_lookup: bool = Field(False, description="Files below subfolders count too.")
    deduplicate_mode: Deduplicate = Field("off", description="Which repeated rows are left out.")

    @model_validator(mode="after")
    def _fits(self) -> SnapshotFiles:
        timestamps = self.version_type == "timestamp"
        has_version = "{version}" in self.path or "(?P<version_" in self.path
        start = self.starting_version
        refuse_when(
            (
                not has_version,
                "path",
                Finding("SPEC_SNAPSHOT_PATH_WITHOUT_VERSION", mark="{version}"),
            ),
            (
                is_elsewhere(path_of(self.path)),
                "path",
                not_a_folder(path_of(self.path)),
            ),
            (
                timestamps and self.datetime_format is None,
                "datetimeFormat",
                Finding("SPEC_DATETIME_FORMAT_MISSING"),
            ),
            (
                not timestamps and self.datetime_format is not None,
                "datetimeFormat",
                Finding("SPEC_DATETIME_FORMAT_UNUSED"),
            ),
            (
                start is not None and timestamps != isinstance(start, str),
                "startingVersion",
                Finding(
                    "SPEC_STARTING_VERSION_TYPE",
                    expected="text" if timestamps else "a whole number",
                    type=self.version_type,
                ),
            ),
        )
        return self


class SnapshotTable(CamelModel):
    """Snapshots in a table, with their version in a column."""

    table: Name = Field(description="The table, as schema.table or catalog.schema.table.")
    version_column: Name = Field(description="The column that says of which snapshot a row is.")
    version_type: Literal["date", "timestamp", "integer", "long"] = Field(description="Its type.")
    starting_version: int | str | None = Field(None, description="The first version that counts.")
    select_exp: list[Name] = Field([], description="SQL expressions; none means every column.")
    deduplicate_mode: Deduplicate = Field("off", description="Which repeated rows are left out.")


def compiled(
    written: CdcSnapshotSettings, sources: Sources, location: SourceLocation, problems: list[Problem]
) -> flows.SnapshotCdc | None:
    """Make the settings of a target; those of ``periodic`` snapshots have yet to get their view."""
    source: str | flows.SnapshotFiles | flows.SnapshotTable | None = ""
    if written.snapshot_type == "historical":
        source = _source(written.source_type, written.source or {}, sources, location.at("source"), problems)
    if source is None:
        return None
    return flows.SnapshotCdc(
        tuple(written.keys),
        1 if written.scd_type == "1" else 2,
        source,
        tuple(written.track_history_column_list),
        tuple(written.track_history_except_column_list),
        str(location),
    )


def _source(
    kind: str | None,
    data: dict[str, Any],
    sources: Sources,
    location: SourceLocation,
    problems: list[Problem],
) -> flows.SnapshotFiles | flows.SnapshotTable | None:
    if kind == "table":
        table = validated(SnapshotTable, data, location, problems)
        name = table_name(None, table.table, location.at("table"), problems) if table else None
        if table is None or name is None:
            return None
        return flows.SnapshotTable(
            name,
            table.version_column,
            table.version_type,
            table.starting_version,
            tuple(table.select_exp),
            table.deduplicate_mode,
        )
    files = validated(SnapshotFiles, data, location, problems)
    if files is None:
        return None
    return flows.SnapshotFiles(
        files.format,
        path_of(files.path),
        files.version_type,
        files.reader_options,
        files.starting_version,
        files.datetime_format,
        files.filter if files.filter and files.filter.strip() else None,
        tuple(files.select_exp),
        sources.schema(files.schema_path, location.at("schemaPath")),
        files.recursive_file_lookup,
        files.deduplicate_mode,
    )
