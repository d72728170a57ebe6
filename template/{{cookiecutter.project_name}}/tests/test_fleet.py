"""The fleet's settings are right for every target of the bundle."""

from pathlib import Path

import pytest
from tableferry.fleet.settings_file import load

SETTINGS = Path(__file__).parents[1] / "src" / "fleet" / "fleet.yml"


@pytest.mark.parametrize("target", ["dev", "prod"])
def test_the_settings_are_right(target: str) -> None:
    settings = load(file=SETTINGS, env=target, environ={})
    assert settings.target_format == "delta"
    assert settings.mail.sender == "{{ cookiecutter.project_name }}@example.com"


def test_owners_have_time_in_production() -> None:
    settings = load(file=SETTINGS, env="prod", environ={})
    assert settings.initial_gap_days > 0
    assert settings.probation_gap_days > 0
