"""The specs are right for every target of the bundle."""

from pathlib import Path

import pytest

from tableferry.pipelines import spec

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_the_specs_are_right(environment: str) -> None:
    project = spec.load(ROOT / "src" / "orders", environment=environment)
    assert [dataflow.target.name.table for dataflow in project.dataflows] == ["customers", "orders"]
