"""The JSON Schema of a spec file, for editors."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from tableferry.pipelines.spec.models import FlowSpec, StandardSpec
from tableferry.pipelines.spec.sources import LoneView


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a main spec file."""
    _, schema = models_json_schema(
        [(StandardSpec, "validation"), (FlowSpec, "validation"), (LoneView, "validation")], by_alias=True
    )
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
    standard["required"] += ["mode", "sourceType", "sourceDetails"]
    standard["allOf"] = [
        {
            "if": {"properties": {"sourceType": {"const": kind}}, "required": ["sourceType"]},
            "then": {"properties": {"sourceDetails": definitions[name]["properties"]["sourceDetails"]}},
        }
        for kind, name in ((kind, reference.rpartition("/")[2]) for kind, reference in kinds.items())
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Data flow spec",
        "description": "A *_main file: what a streaming table is filled from.",
        "type": "object",
        "required": ["dataFlowType"],
        "properties": {
            "dataFlowType": {
                "enum": ["standard", "flow"],
                "description": "One source and one flow, or groups of flows.",
            }
        },
        "if": {"properties": {"dataFlowType": {"const": "flow"}}},
        "then": {"$ref": "#/$defs/FlowSpec"},
        "else": {"$ref": "#/$defs/StandardSpec"},
        "$defs": definitions,
    }
