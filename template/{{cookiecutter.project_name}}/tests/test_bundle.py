"""What can be seen without a workspace: the bundle{% if cookiecutter.route in ["all", "pipelines"] %}, its specs{% endif %} and its versions are right."""

import re
import tomllib
from pathlib import Path

{% if cookiecutter.route in ["all", "pipelines"] %}
import pytest
{% endif %}
from tableferry import bundle
{% if cookiecutter.route in ["all", "pipelines"] %}
from tableferry.pipelines import spec
{% endif %}

ROOT = Path(__file__).parents[1]


def test_the_bundle_is_right() -> None:
    assert bundle.check(ROOT) == ()


def test_one_version_of_tableferry_is_meant() -> None:
    settings = (ROOT / "databricks.yml").read_text(encoding="utf-8")
    (version,) = re.findall(r"^  tableferry_version:\n.*\n    default: (\S+)$", settings, re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [line for line in project["dependencies"] if line.endswith(version)]
{% if cookiecutter.route in ["all", "pipelines"] %}


@pytest.mark.parametrize("environment", ["dev", "prod"])
def test_the_specs_are_right(environment: str) -> None:
    project = spec.load(ROOT / "src" / "orders", environment=environment)
    assert [dataflow.target.name.table for dataflow in project.dataflows] == ["customers", "orders"]
{% endif %}
