"""Operational metadata: columns for all rows of a layer, read from ``operational_metadata_<layer>`` files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from tableferry.errors import Finding
from tableferry.pipelines.model.flows import MetadataColumn
from tableferry.pipelines.specs.project_files import ProjectFolder, read_model
from tableferry.pipelines.specs.substitutions import RESERVED
from tableferry.pipelines.specs.validation import (
    MISSING,
    CamelModel,
    Conflicts,
    Name,
    SourceLocation,
    validate,
)

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


class ValueMapping(CamelModel):
    """The source of a column's value."""

    type: Literal["sql", "pipeline_detail"]
    sql: Name | None = None
    key: Name | None = None
    payload: Name | None = None

    @property
    def value(self) -> str | None:
        """The SQL expression, or the name of the detail of the pipeline."""
        value = (self.sql if self.type == "sql" else self.key) or self.payload
        return value if self.type == "sql" or value is None else _ALIASES.get(value, value)

    def _find_conflicts(self) -> Conflicts:
        key = "sql" if self.type == "sql" else "key"
        if self.value is None:
            yield key, MISSING
        elif self.type != "sql" and self.value not in _DETAILS:
            yield key, Finding("SPEC_DETAIL_UNKNOWN", detail=self.value, known=", ".join(_DETAILS))


class ColumnMetadata(CamelModel):
    """Spark's metadata of a column, which may have other keys too."""

    model_config = ConfigDict(extra="ignore")

    mapping: ValueMapping | None = None


class MetadataField(CamelModel):
    """A column; its type is a type in Spark's JSON format, or a schema."""

    name: Name
    type: Any
    nullable: bool = True
    metadata: ColumnMetadata = ColumnMetadata.model_validate({})


class MetadataSchema(CamelModel):
    """A schema in Spark's JSON format, with the sources of the values in the metadata of its fields."""

    type: Literal["struct"] = "struct"
    fields: list[MetadataField] = Field(min_length=1)


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
        schema = read_model(MetadataSchema, files[layer])
        return tuple(_compile_columns(schema, files[layer], tokens))
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
    schema: MetadataSchema | None, location: SourceLocation, tokens: Mapping[str, str]
) -> Iterator[MetadataColumn]:
    for position, column in enumerate(schema.fields if schema else ()):
        name, kind, mapping = column.name, column.type, column.metadata.mapping
        there = location.at("fields", position)
        if mapping is not None and mapping.type == "sql":
            yield MetadataColumn(name, json.dumps(kind), sql=mapping.value)
        elif mapping is not None:
            detail = mapping.value or ""
            yield MetadataColumn(name, json.dumps(kind), detail=detail, value=tokens.get(detail))
        elif isinstance(kind, dict) and kind.get("type") == "struct":
            inner = validate(MetadataSchema, kind, there.at("type"))
            yield MetadataColumn(name, "", fields=tuple(_compile_columns(inner, there.at("type"), tokens)))
        else:
            there.at("metadata", "mapping").report(Finding("SPEC_COLUMN_WITHOUT_MAPPING"))
