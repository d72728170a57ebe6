"""The dashboard's text against the format: what Databricks documents of it, and what its exports hold."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import yaml
from databricks.bundles.dashboards import Dashboard
from jsonschema import Draft202012Validator

from tableferry.fleet.reports.dashboard import datasets, render

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "template" / "{{cookiecutter.project_name}}"

# The version of each kind of widget.
VERSIONS = {"counter": 2, "table": 2, "bar": 3, "line": 3, "area": 3}

TEXT = {"type": "string", "minLength": 1}
SCALE = {
    "type": "object",
    "required": ["type"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["temporal", "categorical", "quantitative"]},
        "sort": {"const": {"by": "natural-order"}},
    },
}
FIELD = {
    "type": "object",
    "required": ["fieldName"],
    "additionalProperties": False,
    "properties": {"fieldName": TEXT, "displayName": TEXT, "scale": SCALE},
}


def closed(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


def many(items: Any) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": items}


QUERY = closed(
    name=TEXT,
    query=closed(
        datasetName=TEXT,
        fields=many(closed(name=TEXT, expression=TEXT)),
        disaggregated={"type": "boolean"},
    ),
)
SPEC = closed(
    version={"enum": [2, 3]},
    widgetType={"enum": list(VERSIONS)},
    encodings={
        "type": "object",
        "additionalProperties": False,
        "properties": {"value": FIELD, "x": FIELD, "y": FIELD, "color": FIELD, "columns": many(FIELD)},
    },
    frame=closed(showTitle={"const": True}, title=TEXT),
)
WIDGET = {
    "oneOf": [
        closed(name=TEXT, queries=many(QUERY), spec=SPEC),
        closed(name=TEXT, multilineTextboxSpec=closed(lines=many(TEXT))),
    ]
}
POSITION = closed(
    x={"type": "integer", "minimum": 0, "maximum": 5},
    y={"type": "integer", "minimum": 0},
    width={"type": "integer", "minimum": 1, "maximum": 6},
    height={"type": "integer", "minimum": 1},
)
FORMAT = closed(
    datasets=many(closed(name=TEXT, displayName=TEXT, queryLines=many(TEXT))),
    pages=many(
        closed(
            name=TEXT,
            displayName=TEXT,
            layout=many(closed(widget=WIDGET, position=POSITION)),
            pageType={"const": "PAGE_TYPE_CANVAS"},
        )
    ),
)


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads(render())


@pytest.fixture(scope="module")
def layout(dashboard: Any) -> Any:
    (page,) = dashboard["pages"]
    return page["layout"]


def test_dashboard_matches_schema_of_format(dashboard: Any) -> None:
    assert [error.message for error in Draft202012Validator(FORMAT).iter_errors(dashboard)] == []


def test_widget_has_version_of_its_kind(layout: Any) -> None:
    specs = [item["widget"]["spec"] for item in layout if "spec" in item["widget"]]
    assert {spec["widgetType"] for spec in specs} == set(VERSIONS)
    assert all(spec["version"] == VERSIONS[spec["widgetType"]] for spec in specs)


def test_widget_shows_columns_of_its_dataset(layout: Any) -> None:
    given = {item.name: set(item.columns) for item in datasets()}
    used = set()
    for item in (item["widget"] for item in layout if "spec" in item["widget"]):
        (query,) = item["queries"]
        fields = {field["name"] for field in query["query"]["fields"]}
        assert fields <= given[query["query"]["datasetName"]]
        assert {field["expression"] for field in query["query"]["fields"]} == {f"`{name}`" for name in fields}
        encodings = item["spec"]["encodings"]
        shown = encodings.get("columns") or list(encodings.values())
        assert {field["fieldName"] for field in shown} == fields
        used.add(query["query"]["datasetName"])
    assert used == set(given)


def test_dashboard_names_are_unique(dashboard: Any, layout: Any) -> None:
    for names in (
        [item["name"] for item in dashboard["datasets"]],
        [item["widget"]["name"] for item in layout],
    ):
        assert len(names) == len(set(names))


def test_widgets_fill_grid_without_overlap(layout: Any) -> None:
    def cells(position: dict[str, int]) -> set[tuple[int, int]]:
        x, y = position["x"], position["y"]
        return {
            (column, row)
            for column in range(x, x + position["width"])
            for row in range(y, y + position["height"])
        }

    taken = [cells(item["position"]) for item in layout]
    assert all(not widget_cells & other for widget_cells, other in combinations(taken, 2))
    everything = set().union(*taken)
    height = max(row for _, row in everything) + 1
    assert everything == {(column, row) for column in range(6) for row in range(height)}


@pytest.mark.parametrize("dataset", datasets(), ids=lambda dataset: dataset.name)
def test_query_names_tables_without_schema(dataset: Any) -> None:
    parsed = sqlglot.parse_one(dataset.query, dialect="databricks")
    names = {cte.alias for cte in parsed.find_all(sqlglot.exp.CTE)}
    tables = {table.sql() for table in parsed.find_all(sqlglot.exp.Table) if table.name not in names}
    named = {table.split(" AS ")[0] for table in tables}
    assert named <= {"jobs", "events", "letters", "waves"}


def test_template_contains_rendered_dashboard() -> None:
    assert (TEMPLATE / "src/fleet/fleet_status.lvdash.json").read_text(encoding="utf-8") == render()


def test_dashboard_resource_is_valid_in_bundle() -> None:
    text = (ROOT / "resources/optional/fleet_status.dashboard.yml").read_text(encoding="utf-8")
    (resource,) = yaml.safe_load(text)["resources"]["dashboards"].values()
    assert Dashboard.from_dict(resource).as_dict() == resource
    assert (ROOT / "resources/optional" / resource["file_path"]).resolve().is_file()
