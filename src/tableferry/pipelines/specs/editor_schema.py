"""The JSON Schema of a main spec file, for editors."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from tableferry.pipelines.specs.spec_models import VIEW_KEYS, FlowSpec, MaterializedViewsSpec, StandardSpec
from tableferry.pipelines.specs.table_models import SnapshotFilesEntry, SnapshotTableEntry
from tableferry.pipelines.specs.templates import TemplateSpec
from tableferry.pipelines.specs.view_models import ViewRoot


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a main spec file."""
    specs = (StandardSpec, FlowSpec, MaterializedViewsSpec, TemplateSpec)
    models = (*specs, SnapshotFilesEntry, SnapshotTableEntry, ViewRoot)
    _, schema = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    sources = {
        kind: definitions[reference.rpartition("/")[2]]["properties"]["sourceDetails"]
        for kind, reference in definitions.pop("ViewRoot")["discriminator"]["mapping"].items()
    }
    standard = definitions["StandardSpec"]
    # A standard spec contains the keys of its view, and a closed mapping must list all its keys.
    standard["properties"] |= {
        "mode": definitions["DeltaView"]["properties"]["mode"],
        "sourceType": {"enum": [*sources], "description": "Kind of the source."},
        "sourceDetails": {"description": "Settings of that kind of source."},
    }
    historical = {
        "properties": {"cdcSnapshotSettings": {"properties": {"snapshotType": {"const": "historical"}}}},
        "required": ["cdcSnapshotSettings"],
    }
    name = {"type": "string", "minLength": 1}
    has_view = {
        "required": ["sourceSystem", "sourceViewName", *VIEW_KEYS],
        "properties": {"sourceSystem": name, "sourceViewName": name},
    }
    standard["allOf"] = [
        {"if": historical, "else": has_view},
        *(_apply_if("sourceType", kind, {"sourceDetails": details}) for kind, details in sources.items()),
    ]
    definitions["CdcSnapshotSettings"]["allOf"] = [
        _apply_if("sourceType", "file", {"source": {"$ref": "#/$defs/SnapshotFilesEntry"}}),
        _apply_if("sourceType", "table", {"source": {"$ref": "#/$defs/SnapshotTableEntry"}}),
    ]
    spec_types = {"flow": "FlowSpec", "materialized_view": "MaterializedViewsSpec"}
    spec: dict[str, Any] = {"$ref": "#/$defs/StandardSpec"}
    for spec_type, model in spec_types.items():
        spec = {
            "if": {"properties": {"dataFlowType": {"const": spec_type}}},
            "then": {"$ref": f"#/$defs/{model}"},
            "else": spec,
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Data flow spec",
        "description": "A *_main file, which defines how flows fill a streaming table.",
        "type": "object",
        "if": {"required": ["template"]},
        "then": {"$ref": "#/$defs/TemplateSpec"},
        "else": {
            "required": ["dataFlowType"],
            "properties": {
                "dataFlowType": {
                    "enum": ["standard", *spec_types],
                    "description": "One source and one flow, groups of flows, or materialized views.",
                }
            },
            **spec,
        },
        "$defs": definitions,
    }


def _apply_if(key: str, value: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Return a schema of properties that applies if a key has this value."""
    return {
        "if": {"properties": {key: {"const": value}}, "required": [key]},
        "then": {"properties": properties},
    }
