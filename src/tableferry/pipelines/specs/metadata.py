"""Operational metadata: the columns that a layer's rows get, from ``operational_metadata_<layer>`` files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model.flows import MetadataColumn
from tableferry.pipelines.specs.folder import Folder
from tableferry.pipelines.specs.read import SUFFIXES, entries, mapping
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.substitute import Substitutions
from tableferry.pipelines.specs.validate import validated
from tableferry.pipelines.specs.written import MISSING, CamelModel, Name

DETAILS = (
    "pipeline_id",
    "pipeline_catalog",
    "pipeline_schema",
    "pipeline_layer",
    "workspace_env",
    "logical_env",
    "start_utc_timestamp",
    "update_id",
)
# What the framework's pages call it.
_ALIASES = {"pipeline_update_id": "update_id"}
_PREFIX = "operational_metadata_"

# What the framework gives its three layers where nobody writes another file.
_LAYERS = ("bronze", "silver", "gold")
_COLUMN = "meta_load_details"
_BUILT_IN = MetadataColumn(
    _COLUMN,
    "",
    fields=(
        MetadataColumn("record_insert_timestamp", '"timestamp"', sql="current_timestamp()"),
        MetadataColumn("record_update_timestamp", '"timestamp"', sql="current_timestamp()"),
        MetadataColumn("pipeline_start_timestamp", '"timestamp"', detail="start_utc_timestamp"),
        MetadataColumn("pipeline_update_id", '"string"', detail="update_id"),
    ),
)


class Schema(CamelModel):
    """A schema as Spark writes it, whose fields' metadata say where the values come from."""

    type: Literal["struct"] = "struct"
    fields: list[dict[str, Any]] = Field(min_length=1)


class Column(CamelModel):
    """A field of such a schema."""

    name: Name
    type: Any
    nullable: bool = True
    metadata: dict[str, Any] = Field(default_factory=dict)


class Mapped(CamelModel):
    """Where a column's value comes from."""

    type: Literal["sql", "pipeline_detail"]
    sql: Name | None = None
    key: Name | None = None
    payload: Name | None = None


def columns(folder: Folder, values: Substitutions, problems: list[Problem]) -> tuple[MetadataColumn, ...]:
    """Return the columns of the project's layer, which the token ``pipeline_layer`` names; none without one.

    The project's file of a layer wins over the framework's, and both over the columns that every layer has.
    """
    files = _files(folder, problems)
    layer = values.tokens.get("pipeline_layer")
    if not layer:
        if files:
            file = next(iter(files.values()))
            problems.append(folder.location(file).problem(Finding("SPEC_LAYER_NOT_CHOSEN")))
        return ()
    if layer in files:
        location = folder.location(files[layer])
        data = mapping(files[layer], location, problems)
        return _columns(data, location, values.tokens, problems) if data is not None else ()
    if layer in _LAYERS:
        return (_BUILT_IN,)
    if files:
        known = ", ".join(files)
        missing = Finding("SPEC_LAYER_WITHOUT_FILE", layer=layer, known=known)
        problems.append(folder.location(next(iter(files.values()))).problem(missing))
    return ()


def _files(folder: Folder, problems: list[Problem]) -> dict[str, Path]:
    homes = [folder.root / "config", folder.root / "src" / "config"]
    if folder.base is not None:
        homes.append(folder.base / "pipeline_configs")
    files: dict[str, Path] = {}
    for home in filter(os.path.isdir, homes):
        for file in entries(home, folder.location(home), problems) or ():
            if file.suffix in SUFFIXES and file.stem.startswith(_PREFIX):
                files[file.stem.removeprefix(_PREFIX)] = file
    return files


def _columns(
    data: dict[str, Any], location: SourceLocation, details: Mapping[str, str], problems: list[Problem]
) -> tuple[MetadataColumn, ...]:
    schema = validated(Schema, data, location, problems)
    made = []
    for position, field in enumerate(schema.fields if schema else ()):
        column = _column(field, location.at("fields", position), details, problems)
        if column is not None:
            made.append(column)
    return tuple(made)


def _column(
    data: dict[str, Any], location: SourceLocation, details: Mapping[str, str], problems: list[Problem]
) -> MetadataColumn | None:
    written = validated(Column, data, location, problems)
    if written is None:
        return None
    kind, given = written.type, written.metadata.get("mapping")
    if given is None and isinstance(kind, dict) and kind.get("type") == "struct":
        return MetadataColumn(written.name, "", fields=_columns(kind, location.at("type"), details, problems))
    mapping_location = location.at("metadata", "mapping")
    if not isinstance(given, dict):
        problems.append(mapping_location.problem(Finding("SPEC_COLUMN_WITHOUT_MAPPING")))
        return None
    mapped = validated(Mapped, given, mapping_location, problems)
    if mapped is None:
        return None
    key = "sql" if mapped.type == "sql" else "key"
    value = (mapped.sql if mapped.type == "sql" else mapped.key) or mapped.payload
    if value is None:
        problems.append(mapping_location.at(key).problem(MISSING))
        return None
    if mapped.type == "sql":
        return MetadataColumn(written.name, json.dumps(kind), sql=value)
    detail = _ALIASES.get(value, value)
    if detail not in DETAILS:
        unknown = Finding("SPEC_DETAIL_UNKNOWN", detail=value, known=", ".join(DETAILS))
        problems.append(mapping_location.at(key).problem(unknown))
        return None
    return MetadataColumn(written.name, json.dumps(kind), detail=detail, value=details.get(detail))
