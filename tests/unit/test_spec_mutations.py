"""Mutated specs either load or are refused with problems; no other exception is raised."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tableferry.errors import Problem, SpecError
from tableferry.pipelines import specs

if TYPE_CHECKING:
    from tests.unit.conftest import ProjectFiles

WORDS = ["", "live", "a.b.c.d.e", "{x}", "${secret.x}", "v_rows", "append_sql", "delta", "\0", "\ud800", "`"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


def containers(value: Any) -> Iterator[Any]:
    """Return every non-empty list and mapping in a value."""
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


@st.composite
def mutation(draw: st.DrawFn) -> Any:
    """Return a function that changes one value of a spec."""
    where, which, how = (
        draw(st.floats(0, 1)),
        draw(st.floats(0, 1)),
        draw(st.sampled_from(["drop", "rename", "set"])),
    )
    value, name = draw(VALUES), draw(st.text(max_size=5) | st.sampled_from(WORDS))

    def mutate(written: Any) -> None:
        nodes = list(containers(written))
        if not nodes:
            return
        container = nodes[min(int(where * len(nodes)), len(nodes) - 1)]
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        key = keys[min(int(which * len(keys)), len(keys) - 1)]
        if how == "set" or (how == "rename" and isinstance(container, list)):
            container[key] = value
        elif how == "drop":
            del container[key]
        else:
            container[name] = container.pop(key)

    return mutate


@given(
    mutations=st.lists(mutation(), min_size=1, max_size=3),
    kind=st.sampled_from(["standard", "flow"]),
    as_yaml=st.booleans(),
)
def test_mutated_spec_loads_or_is_refused(mutations: list[Any], kind: str, as_yaml: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        written = json.loads(
            (Path(__file__).parent / "spec_examples" / f"{kind}_main.json").read_text("utf-8")
        )
        for mutate in mutations:
            mutate(written)
        file = root / ("x_main.yaml" if as_yaml else "x_main.json")
        file.write_text(yaml.safe_dump(written) if as_yaml else json.dumps(written), "utf-8")
        for problem in problems(file):
            assert problem.file
            # The YAML parser refuses control characters.
            assert problem.path or problem.condition == "SPEC_YAML_INVALID"
            assert "pydantic" not in problem.message


@given(
    content=st.binary(max_size=40) | st.text(max_size=40).map(str.encode),
    suffix=st.sampled_from([".json", ".yaml"]),
)
def test_file_of_random_bytes_is_refused(content: bytes, suffix: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"x_main{suffix}"
        file.write_bytes(content)
        assert problems(file)


def problems(file: Path) -> tuple[Problem, ...]:
    try:
        specs.load(file)
    except SpecError as error:
        return error.problems
    return ()


@pytest.mark.parametrize("value", [1, ["x"]], ids=str)
@pytest.mark.parametrize("key", ["mode", "sourceDetails", "targetDetails", "dataFlowId"])
def test_wrong_value_is_reported_with_its_path(project: ProjectFiles, key: str, value: object) -> None:
    project.write("dataflows/x/x_main.json", project.append(**{key: value}))
    with pytest.raises(SpecError) as caught:
        project.load()
    assert [problem.path for problem in caught.value.problems] == [key]


def test_unknown_key_named_like_a_source_type_is_reported_with_its_path(project: ProjectFiles) -> None:
    written = project.append(delta=1)
    written["sourceDetails"]["delta"] = 2
    project.write("dataflows/x/x_main.json", written)
    with pytest.raises(SpecError) as caught:
        project.load()
    assert [problem.path for problem in caught.value.problems] == ["delta", "sourceDetails.delta"]
