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


def test_it_has_the_formats_shape(dashboard: Any) -> None:
    assert [error.message for error in Draft202012Validator(FORMAT).iter_errors(dashboard)] == []


def test_every_kind_of_widget_has_its_version(layout: Any) -> None:
    specs = [item["widget"]["spec"] for item in layout if "spec" in item["widget"]]
    assert {spec["widgetType"] for spec in specs} == set(VERSIONS)
    assert all(spec["version"] == VERSIONS[spec["widgetType"]] for spec in specs)


def test_widgets_ask_for_columns_that_their_datasets_give(layout: Any) -> None:
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


def test_names_are_there_once(dashboard: Any, layout: Any) -> None:
    for names in (
        [item["name"] for item in dashboard["datasets"]],
        [item["widget"]["name"] for item in layout],
    ):
        assert len(names) == len(set(names))


def test_widgets_fill_the_grid_and_cover_none_another(layout: Any) -> None:
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
def test_queries_name_their_tables_alone(dataset: Any) -> None:
    parsed = sqlglot.parse_one(dataset.query, dialect="databricks")
    names = {cte.alias for cte in parsed.find_all(sqlglot.exp.CTE)}
    tables = {table.sql() for table in parsed.find_all(sqlglot.exp.Table) if table.name not in names}
    named = {table.split(" AS ")[0] for table in tables}
    assert named <= {"jobs", "events", "letters", "waves"}


def test_the_template_holds_it() -> None:
    assert (TEMPLATE / "src/fleet/fleet_status.lvdash.json").read_text(encoding="utf-8") == render()


def test_the_resource_is_one_of_a_bundles() -> None:
    text = (ROOT / "resources/optional/fleet_status.dashboard.yml").read_text(encoding="utf-8")
    (resource,) = yaml.safe_load(text)["resources"]["dashboards"].values()
    assert Dashboard.from_dict(resource).as_dict() == resource
    assert (ROOT / "resources/optional" / resource["file_path"]).resolve().is_file()
