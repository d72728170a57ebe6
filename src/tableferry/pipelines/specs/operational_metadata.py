"""Operational metadata: columns for all rows of a layer, read from ``operational_metadata_<layer>`` files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from tableferry.errors import Finding
from tableferry.pipelines.model.flows import MetadataColumn
from tableferry.pipelines.specs.project_files import ProjectFolder, read_mapping
from tableferry.pipelines.specs.substitutions import RESERVED
from tableferry.pipelines.specs.validation import MISSING, CamelModel, Name, SourceLocation, validate

_DETAILS = (*RESERVED, "start_utc_timestamp", "update_id")
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
    files = {
        file.stem.removeprefix(_PREFIX): folder.location(file)
        for home in folder.config_folders
        for file in folder.list_files(home, f"{_PREFIX}*")
    }
    layer = tokens.get("pipeline_layer")
    if layer and layer in files:
        data = read_mapping(files[layer])
        return _compile_columns(data, files[layer], tokens) if data is not None else ()
    if layer in _LAYERS:
        return (_BUILT_IN,)
    for location in [*files.values()][:1]:
        location.report(
            Finding("SPEC_LAYER_WITHOUT_FILE", layer=layer, known=", ".join(files))
            if layer
            else Finding("SPEC_LAYER_NOT_CHOSEN")
        )
    return ()


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
    location = location.at("metadata", "mapping")
    if not isinstance(mapping, dict):
        location.report(Finding("SPEC_COLUMN_WITHOUT_MAPPING"))
        return None
    source = validate(ValueMapping, mapping, location)
    if source is None:
        return None
    is_sql = source.type == "sql"
    value, location = (source.sql, location.at("sql")) if is_sql else (source.key, location.at("key"))
    value = value or source.payload
    if value is None:
        location.report(MISSING)
        return None
    if is_sql:
        return MetadataColumn(written.name, json.dumps(kind), sql=value)
    detail = _ALIASES.get(value, value)
    if detail not in _DETAILS:
        location.report(Finding("SPEC_DETAIL_UNKNOWN", detail=value, known=", ".join(_DETAILS)))
        return None
    return MetadataColumn(written.name, json.dumps(kind), detail=detail, value=tokens.get(detail))
