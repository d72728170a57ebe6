"""The JSON Schema of a spec file, for editors."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from tableferry.pipelines.specs.materialized import MaterializedViewsSpec
from tableferry.pipelines.specs.models import FlowSpec, StandardSpec
from tableferry.pipelines.specs.snapshots import SnapshotFiles, SnapshotTable
from tableferry.pipelines.specs.sources import LoneView
from tableferry.pipelines.specs.templates import TemplateSpec

# Historical snapshots have a source of their own.
_SOURCE = ("sourceSystem", "sourceViewName", "mode", "sourceType", "sourceDetails")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a main spec file."""
    models = (
        StandardSpec,
        FlowSpec,
        MaterializedViewsSpec,
        TemplateSpec,
        SnapshotFiles,
        SnapshotTable,
        LoneView,
    )
    _, schema = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions: dict[str, Any] = schema["$defs"]
    views = definitions.pop("LoneView")
    kinds = views["discriminator"]["mapping"]
    standard = definitions["StandardSpec"]
    # A standard spec is a spec and a view in one mapping, and a closed mapping must list all its keys.
    standard["properties"] |= {
        "mode": definitions["DeltaView"]["properties"]["mode"],
        "sourceType": {"enum": list(kinds), "description": "The kind of the source."},
        "sourceDetails": {"description": "What that kind of source needs."},
    }
    historical = {
        "properties": {"cdcSnapshotSettings": {"properties": {"snapshotType": {"const": "historical"}}}},
        "required": ["cdcSnapshotSettings"],
    }
    words = {"type": "string", "minLength": 1}
    viewed = {
        "required": [*_SOURCE],
        "properties": {"sourceSystem": words, "sourceViewName": words},
    }
    standard["allOf"] = [
        {"if": historical, "else": viewed},
        *(
            {
                "if": {"properties": {"sourceType": {"const": kind}}, "required": ["sourceType"]},
                "then": {"properties": {"sourceDetails": definitions[name]["properties"]["sourceDetails"]}},
            }
            for kind, name in ((kind, reference.rpartition("/")[2]) for kind, reference in kinds.items())
        ),
    ]
    definitions["CdcSnapshotSettings"]["allOf"] = [
        {
            "if": {"properties": {"sourceType": {"const": kind}}, "required": ["sourceType"]},
            "then": {"properties": {"source": {"$ref": f"#/$defs/{name}"}}},
        }
        for kind, name in (("file", "SnapshotFiles"), ("table", "SnapshotTable"))
    ]
    kinds_of_spec = {"flow": "FlowSpec", "materialized_view": "MaterializedViewsSpec"}
    spec: dict[str, Any] = {"$ref": "#/$defs/StandardSpec"}
    for kind, name in kinds_of_spec.items():
        spec = {
            "if": {"properties": {"dataFlowType": {"const": kind}}},
            "then": {"$ref": f"#/$defs/{name}"},
            "else": spec,
        }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Data flow spec",
        "description": "A *_main file: what a streaming table is filled from.",
        "type": "object",
        "if": {"required": ["template"]},
        "then": {"$ref": "#/$defs/TemplateSpec"},
        "else": {
            "required": ["dataFlowType"],
            "properties": {
                "dataFlowType": {
                    "enum": ["standard", *kinds_of_spec],
                    "description": "One source and one flow, groups of flows, or materialized views.",
                }
            },
            **spec,
        },
        "$defs": definitions,
    }
