"""The figures as an AI/BI dashboard: the text of its ``*.lvdash.json``. Not run on Databricks.

The format is Databricks's own: datasets with their queries, and pages of widgets on a grid of six columns.
Each kind of widget has a version of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tableferry.fleet.status.datasets import Dataset, datasets

_Json = dict[str, Any]


def render() -> str:
    """Return the dashboard's text, the same each time."""
    layout = [
        _at(0, 0, 6, 1, _text("title", "## Fleet migration: how far it is")),
        *(_at(x, 1, 1, 2, _counter("summary", field, title)) for x, (field, title) in enumerate(_COUNTERS)),
        _at(0, 3, 6, 5, _table("stuck", "Stuck tables", _STUCK)),
        _at(0, 8, 3, 6, _chart("line", "burn_down", "Burn-down", "day", "tables", "series")),
        _at(3, 8, 3, 6, _chart("area", "over_time", "States over time", "day", "tables", "phase")),
        _at(0, 14, 3, 6, _chart("bar", "states", "Tables by state", "state", "tables")),
        _at(3, 14, 3, 6, _chart("bar", "pauses", "Paused, by reason", "reason", "tables")),
        _at(0, 20, 3, 6, _chart("bar", "pace", "Migrated and archived a day", "day", "tables", "what")),
        _at(3, 20, 3, 6, _table("owners", "Owners", _OWNERS)),
        _at(0, 26, 3, 6, _table("waves", "Waves", _WAVES)),
        _at(3, 26, 3, 6, _table("schemas", "Schemas", _SCHEMAS)),
    ]
    page = {
        "name": "fleet",
        "displayName": "Fleet",
        "layout": layout,
        "pageType": "PAGE_TYPE_CANVAS",
    }
    dashboard = {"datasets": [_dataset(dataset) for dataset in datasets()], "pages": [page]}
    return json.dumps(dashboard, indent=2, ensure_ascii=False) + "\n"


_COUNTERS = (
    ("tables", "Tables"),
    ("completed", "Completed"),
    ("on_probation", "On probation"),
    ("to_do", "To do"),
    ("paused", "Paused"),
    ("stuck", "Stuck"),
)
_STUCK = {
    "table": "Table",
    "trouble": "What is wrong",
    "state": "State",
    "days": "Days since it moved",
    "owners": "Owners",
}
_COUNTS = {
    "to_do": "To do",
    "on_probation": "On probation",
    "completed": "Completed",
    "paused": "Paused",
}
_OWNERS = {"owner": "Owner", **_COUNTS}
_WAVES = {"wave": "Wave", "status": "Status", **_COUNTS, "gigabytes": "GB"}
_SCHEMAS = {"schema": "Schema", **_COUNTS, "gigabytes": "GB"}


def _dataset(dataset: Dataset) -> _Json:
    return {
        "name": dataset.name,
        "displayName": dataset.title,
        "queryLines": dataset.query.splitlines(keepends=True),
    }


def _at(x: int, y: int, width: int, height: int, widget: _Json) -> _Json:
    return {"widget": widget, "position": {"x": x, "y": y, "width": width, "height": height}}


def _text(name: str, markdown: str) -> _Json:
    return {"name": name, "multilineTextboxSpec": {"lines": [markdown]}}


def _counter(dataset: str, field: str, title: str) -> _Json:
    encodings = {"value": {"fieldName": field, "displayName": title}}
    return _widget(f"{dataset}_{field}", dataset, [field], _spec("counter", 2, title, encodings))


def _table(dataset: str, title: str, titles: Mapping[str, str]) -> _Json:
    encodings = {"columns": [{"fieldName": field, "displayName": name} for field, name in titles.items()]}
    return _widget(f"{dataset}_table", dataset, list(titles), _spec("table", 2, title, encodings))


def _chart(
    kind: str,
    dataset: str,
    title: str,
    x: str,
    y: str,
    color: str | None = None,
) -> _Json:
    # The order of words is the query's.
    across = {"type": "temporal"} if x == "day" else {"type": "categorical", "sort": {"by": "natural-order"}}
    encodings: _Json = {
        "x": {"fieldName": x, "scale": across, "displayName": x.capitalize()},
        "y": {"fieldName": y, "scale": {"type": "quantitative"}, "displayName": y.capitalize()},
    }
    fields = [x, y]
    if color is not None:
        fields.append(color)
        encodings["color"] = {
            "fieldName": color,
            "scale": {"type": "categorical"},
            "displayName": color.capitalize(),
        }
    return _widget(f"{dataset}_{kind}", dataset, fields, _spec(kind, 3, title, encodings))


def _spec(kind: str, version: int, title: str, encodings: _Json) -> _Json:
    return {
        "version": version,
        "widgetType": kind,
        "encodings": encodings,
        "frame": {"showTitle": True, "title": title},
    }


def _widget(name: str, dataset: str, fields: Sequence[str], spec: _Json) -> _Json:
    query = {
        "datasetName": dataset,
        "fields": [{"name": field, "expression": f"`{field}`"} for field in fields],
        "disaggregated": True,
    }
    return {"name": name, "queries": [{"name": "main_query", "query": query}], "spec": spec}
