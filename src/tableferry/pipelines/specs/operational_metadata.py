"""Operational metadata: columns for all rows of a layer, read from ``operational_metadata_<layer>`` files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tableferry.errors import Finding
from tableferry.pipelines.model.flows import MetadataColumn
from tableferry.pipelines.specs.project_files import (
    SUFFIXES,
    ProjectFolder,
    SourceLocation,
    list_folder,
    read_mapping,
)
from tableferry.pipelines.specs.validation import MISSING, CamelModel, Name, validate

_DETAILS = (
    "pipeline_id",
    "pipeline_catalog",
    "pipeline_schema",
    "pipeline_layer",
    "workspace_env",
    "logical_env",
    "start_utc_timestamp",
    "update_id",
)
# The name in the framework's documentation.
_ALIASES = {"pipeline_update_id": "update_id"}
_PREFIX = "operational_metadata_"

# The framework's columns for its three layers; a project's file replaces them.
_LAYERS = ("bronze", "silver", "gold")
_BUILT_IN = MetadataColumn(
    "meta_load_details",
    "",
    fields=(
        MetadataColumn("record_insert_timestamp", '"timestamp"', sql="current_timestamp()"),
        MetadataColumn("record_update_timestamp", '"timestamp"', sql="current_timestamp()"),
        MetadataColumn("pipeline_start_timestamp", '"timestamp"', detail="start_utc_timestamp"),
        MetadataColumn("pipeline_update_id", '"string"', detail="update_id"),
    ),
)


class MetadataSchema(CamelModel):
    """A schema in Spark's JSON format, with the sources of the values in the metadata of its fields."""

    type: Literal["struct"] = "struct"
    fields: list[dict[str, Any]] = Field(min_length=1)


class MetadataField(CamelModel):
    """A field of such a schema."""

    name: Name
    type: Any
    nullable: bool = True
    metadata: dict[str, Any] = Field(default_factory=dict)


class ValueMapping(CamelModel):
    """The source of a column's value."""

    type: Literal["sql", "pipeline_detail"]
    sql: Name | None = None
    key: Name | None = None
    payload: Name | None = None


def read_metadata_columns(folder: ProjectFolder, tokens: Mapping[str, str]) -> tuple[MetadataColumn, ...]:
    """Return the columns of the layer that the token ``pipeline_layer`` names; without the token, no columns.

    The bundle's file of a layer overrides the framework's file, which overrides the built-in columns.
    """
    files = _find_files(folder)
    layer = tokens.get("pipeline_layer")
    if layer and layer in files:
        location = folder.location(files[layer])
        data = read_mapping(location)
        return _compile_columns(data, location, tokens) if data is not None else ()
    if layer in _LAYERS:
        return (_BUILT_IN,)
    for file in [*files.values()][:1]:
        folder.location(file).report(
            Finding("SPEC_LAYER_WITHOUT_FILE", layer=layer, known=", ".join(files))
            if layer
            else Finding("SPEC_LAYER_NOT_CHOSEN")
        )
    return ()


def _find_files(folder: ProjectFolder) -> dict[str, Path]:
    return {
        file.stem.removeprefix(_PREFIX): file
        for home in folder.config_folders
        if os.path.isdir(home)
        for file in list_folder(folder.location(home)) or ()
        if file.suffix in SUFFIXES and file.stem.startswith(_PREFIX)
    }


def _compile_columns(
    data: dict[str, Any], location: SourceLocation, tokens: Mapping[str, str]
) -> tuple[MetadataColumn, ...]:
    schema = validate(MetadataSchema, data, location)
    columns = [
        _compile_column(field, location.at("fields", position), tokens)
        for position, field in enumerate(schema.fields if schema else ())
    ]
    return tuple(column for column in columns if column is not None)


def _compile_column(
    data: dict[str, Any], location: SourceLocation, tokens: Mapping[str, str]
) -> MetadataColumn | None:
    written = validate(MetadataField, data, location)
    if written is None:
        return None
    kind, mapping = written.type, written.metadata.get("mapping")
    if mapping is None and isinstance(kind, dict) and kind.get("type") == "struct":
        fields = _compile_columns(kind, location.at("type"), tokens)
        return MetadataColumn(written.name, "", fields=fields)
    mapping_location = location.at("metadata", "mapping")
    if not isinstance(mapping, dict):
        mapping_location.report(Finding("SPEC_COLUMN_WITHOUT_MAPPING"))
        return None
    source = validate(ValueMapping, mapping, mapping_location)
    if source is None:
        return None
    key = "sql" if source.type == "sql" else "key"
    value = getattr(source, key) or source.payload
    if value is None:
        mapping_location.at(key).report(MISSING)
        return None
    if source.type == "sql":
        return MetadataColumn(written.name, json.dumps(kind), sql=value)
    detail = _ALIASES.get(value, value)
    if detail not in _DETAILS:
        known = ", ".join(_DETAILS)
        mapping_location.at(key).report(Finding("SPEC_DETAIL_UNKNOWN", detail=value, known=known))
        return None
    return MetadataColumn(written.name, json.dumps(kind), detail=detail, value=tokens.get(detail))
