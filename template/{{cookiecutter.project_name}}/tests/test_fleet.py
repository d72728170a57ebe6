"""The fleet's settings are valid for every target of the bundle."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tableferry.fleet.settings_file import load

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "src" / "fleet" / "fleet.yml"


def variable(name: str) -> Any:
    written = yaml.safe_load((ROOT / "databricks.yml").read_text(encoding="utf-8"))
    return written["variables"][name]["default"]


@pytest.mark.parametrize("target", ["dev", "prod"])
def test_settings_load(target: str) -> None:
    settings = load(file=SETTINGS, env=target, environ={})
    assert settings.mail.sender == "{{ cookiecutter.project_name }}@example.com"


@pytest.mark.parametrize("target", ["dev", "prod"])
def test_iceberg_has_its_catalog_and_library(target: str) -> None:
    if load(file=SETTINGS, env=target, environ={}).target_format == "iceberg":
        catalogs = [value for name, value in variable("fleet_spark_conf").items() if ".catalog." in name]
        assert "org.apache.iceberg.spark.SparkCatalog" in catalogs
        jars = [library.get("maven", {}).get("coordinates", "") for library in variable("fleet_libraries")]
        assert [name for name in jars if name.startswith("org.apache.iceberg:iceberg-spark-runtime-")]


def test_owners_have_time_in_production() -> None:
    settings = load(file=SETTINGS, env="prod", environ={})
    assert settings.initial_gap_days > 0
    assert settings.probation_gap_days > 0
