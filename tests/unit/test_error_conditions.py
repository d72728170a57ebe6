"""The catalogue of error conditions and the code that raises them agree."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import pytest

from tableferry import errors
from tableferry.errors import Busy, Refused, TableferryError
from tableferry.errors.catalogue import Condition, conditions

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tableferry"

FINISHED = ("convert", "storage", "tables.py", "verify")
"""Packages whose errors all are in the catalogue."""

CONDITIONS = sorted(conditions().values(), key=lambda condition: condition.name)


class Raised(NamedTuple):
    """A place in the code that makes an error."""

    place: str
    exception: str
    conditions: tuple[str, ...]
    parameters: frozenset[str]


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(SOURCE.rglob("*.py"))}


def exception_names() -> set[str]:
    """Return the names of all error classes, also of those that single modules define."""
    names = {name for name, value in vars(errors).items() if _is_error(value)}
    classes = [node for tree in trees().values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    before = 0
    while len(names) != before:
        before = len(names)
        for node in classes:
            if names & {base.id for base in node.bases if isinstance(base, ast.Name)}:
                names.add(node.name)
    return names


def _is_error(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, TableferryError)


@cache
def raised() -> tuple[Raised, ...]:
    return tuple(_raised())


def _raised() -> Iterator[Raised]:
    names = exception_names() | {"failed"}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in names
                and node.args
            ):
                yield Raised(
                    f"{file.relative_to(SOURCE)}:{node.lineno}",
                    node.func.id,
                    tuple(_conditions(node.args[0])),
                    frozenset(keyword.arg or "**" for keyword in node.keywords),
                )


def _conditions(argument: ast.expr) -> Iterator[str]:
    match argument:
        case ast.Constant(value=str() as text) if re.fullmatch("[A-Z0-9_]+", text):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from _conditions(body)
            yield from _conditions(other)


def test_each_error_passes_the_parameters_of_its_condition() -> None:
    wrong = []
    for error in raised():
        for name in error.conditions:
            condition = conditions().get(name)
            if condition is None:
                wrong.append(f"{error.place}: {name} isn't in conditions.yml")
            elif condition.parameters != error.parameters:
                wrong.append(f"{error.place}: {name} has {sorted(condition.parameters)}")
    assert wrong == []


def test_each_error_has_the_class_of_its_condition() -> None:
    wrong = []
    for error in raised():
        kind = getattr(getattr(errors, error.exception, None), "error_class", None)
        wrong += [
            f"{error.place}: {name} is {conditions()[name].error_class}"
            for name in error.conditions
            if kind is not None and conditions()[name].error_class != kind
        ]
    assert wrong == []


def test_finished_packages_take_all_errors_from_the_catalogue() -> None:
    assert [
        error.place for error in raised() if error.place.split("/")[0] in FINISHED and not error.conditions
    ] == []


def test_each_condition_is_raised() -> None:
    assert {name for error in raised() for name in error.conditions} == set(conditions())


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_condition_renders_in_short_sentences(condition: Condition) -> None:
    exception = next(
        value
        for value in vars(errors).values()
        if _is_error(value) and value.error_class == condition.error_class
    )
    error = exception(condition.name, **dict.fromkeys(condition.parameters, "x"))
    assert str(error) == f"[{condition.name}] {error.message}\n{error.remedy}"
    assert "{" not in str(error).replace(",;{}()=", "")
    for text in (condition.message, condition.remedy):
        sentences = re.split(r"(?<=[.?]) (?=[A-Z])", text)
        assert all(sentence.endswith((".", "}")) for sentence in sentences), sentences
        assert [sentence for sentence in sentences if len(sentence.split()) > 30] == []


def test_the_conditions_of_a_subject_are_in_order() -> None:
    for _, found in groupby(conditions().values(), key=lambda condition: condition.subject):
        names = [condition.name for condition in found]
        assert names == sorted(names)


def test_an_error_lists_the_first_items_of_a_list_and_keeps_all_in_its_data() -> None:
    files = [f"{number}.parquet" for number in range(9)]
    error = Refused("APPEND_ONLY_TABLE_LOST_FILES", table="db.t", files=files)
    assert "0.parquet, 1.parquet, 2.parquet, 3.parquet, 4.parquet and 4 more" in error.message
    assert json.loads(json.dumps(error.to_dict())) == {
        "condition": "APPEND_ONLY_TABLE_LOST_FILES",
        "parameters": {"table": "db.t", "files": files},
        "message": error.message,
        "remedy": error.remedy,
    }


def test_an_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(Busy("UNDO_RUNNING", table=Path("/data/t"))))
    assert str(error) == (
        "[UNDO_RUNNING] /data/t is being undone by another process.\nWait until that process ends."
    )


def test_a_parameter_may_contain_braces() -> None:
    assert Refused("NO_PARQUET_FILES", folder="/data/{x}").message.startswith("/data/{x} contains")
