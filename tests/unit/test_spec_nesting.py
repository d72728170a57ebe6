"""Limit of the nesting of spec files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tableferry.yamlfiles import DEEPEST

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

MAIN = "dataflows/sales/dataflowspec/orders_main"
TOO_DEEP = f"SPEC_NESTED_TOO_DEEPLY levels={DEEPEST}"


def nested(levels: int) -> Any:
    inner: Any = 1
    for level in range(levels):
        inner = {"a": inner} if level % 2 else [inner]
    return inner


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("levels", [DEEPEST - 1, 600])
def test_value_nested_too_deeply_is_reported(project: ProjectFiles, suffix: str, levels: int) -> None:
    # Every JSON document is also YAML.
    project.write(MAIN + suffix, json.dumps(project.append(tags={"t": nested(levels)})))
    assert project.problems() == [f"{MAIN}{suffix}: tags: {TOO_DEEP}"]


@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_value_at_the_deepest_level_is_read(project: ProjectFiles, suffix: str) -> None:
    project.write(MAIN + suffix, json.dumps(project.append(tags={"t": nested(DEEPEST - 2)})))
    assert len(project.load().dataflows) == 1


@pytest.mark.parametrize("opened", ["[", "{a: ", "- ", "? "])
def test_yaml_nested_too_deeply_for_its_parser_is_reported(project: ProjectFiles, opened: str) -> None:
    project.write(MAIN + ".yaml", opened * 100_000)
    assert project.problems() == [f"{MAIN}.yaml: {TOO_DEEP}"]
