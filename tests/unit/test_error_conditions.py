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
from tableferry.errors import Busy, Finding, Problem, Refused, SpecError, TableferryError
from tableferry.errors.catalogue import Condition, conditions
from tableferry.fleet.jobs.job import PauseReason

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tableferry"

PASSED_ON = (
    "errors/__init__.py",
    "fleet/jobs/findings.py",
    "fleet/modes/hand_change_pauses.py",
    "fleet/warehouse/step_run.py",
    "pipelines/planning/context.py",
)
"""Modules that make an error of another error or finding, whose condition it keeps."""

PLANNING = ("finding", "refuse", "warn")
"""The methods of `PlanningContext` that create findings."""

CONDITIONS = sorted(conditions().values(), key=lambda condition: condition.name)


class Raised(NamedTuple):
    """A call in the code that creates an error."""

    place: str
    exception: str
    conditions: tuple[str, ...]
    parameters: frozenset[str]

    @property
    def known_parameters(self) -> frozenset[str]:
        """The parameters that `PlanningContext.finding` adds: from the target, and from parts of its spec."""
        if self.exception not in PLANNING:
            return frozenset()
        of_parts = {"location"} if self.parameters & {"flow", "source", "table", "target", "view"} else set()
        of_sources = {"how"} if "source" in self.parameters else set()
        return frozenset({"advice", "file", "state", "target", *of_parts, *of_sources})


@cache
def trees() -> dict[Path, ast.Module]:
    return {file: ast.parse(file.read_text(encoding="utf-8")) for file in sorted(SOURCE.rglob("*.py"))}


def exception_names() -> set[str]:
    """Return the names of all error classes."""
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
    names = exception_names() | {"Finding", "explaining", "failed"}
    for file, tree in trees().items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            match node.func:
                case ast.Name(id=name) if name in names:
                    pass
                case ast.Attribute(attr=name, value=ast.Name(id="context" | "self")) if name in PLANNING:
                    pass
                case _:
                    continue
            # `explaining` passes the reason.
            passed = {"reason"} if name == "explaining" else set[str]()
            yield Raised(
                f"{file.relative_to(SOURCE)}:{node.lineno}",
                _exception(node, name),
                tuple(_conditions(node.args[0])),
                frozenset(passed.union(keyword.arg or "**" for keyword in node.keywords)),
            )


def _exception(call: ast.Call, name: str) -> str:
    """Return the class of an error; `explaining` takes it as its second argument."""
    if name != "explaining":
        return name
    return ast.unparse(call.args[1]) if len(call.args) > 1 else "TableError"


def _conditions(argument: ast.expr) -> Iterator[str]:
    match argument:
        case ast.Constant(value=str() as text) if re.fullmatch("[A-Z0-9_]+", text):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from _conditions(body)
            yield from _conditions(other)


def test_raise_passes_parameters_of_its_condition() -> None:
    wrong = []
    for error in raised():
        for name in error.conditions:
            condition = conditions().get(name)
            if condition is None:
                wrong.append(f"{error.place}: {name} isn't in conditions.yml")
            elif condition.parameters - error.known_parameters != error.parameters - error.known_parameters:
                wrong.append(f"{error.place}: {name} has {sorted(condition.parameters)}")
    assert wrong == []


def test_raise_uses_class_of_its_condition() -> None:
    wrong = []
    for error in raised():
        kind = getattr(getattr(errors, error.exception, None), "error_class", None)
        wrong += [
            f"{error.place}: {name} is {conditions()[name].error_class}"
            for name in error.conditions
            if kind is not None and conditions()[name].error_class != kind
        ]
    assert wrong == []


def test_each_error_has_a_condition() -> None:
    assert [
        error.place for error in raised() if not error.place.startswith(PASSED_ON) and not error.conditions
    ] == []


def test_each_condition_is_raised() -> None:
    reasons = {reason.value for reason in PauseReason} - {PauseReason.NONE.value}
    assert {name for error in raised() for name in error.conditions} | reasons == set(conditions())


@pytest.mark.parametrize("reason", [reason for reason in PauseReason if reason is not PauseReason.NONE])
def test_reason_of_a_pause_is_a_condition_whose_remedy_needs_no_parameter(reason: PauseReason) -> None:
    """The queue stores the reason and the details, without parameters; a list of causes has no table."""
    condition = conditions()[reason.value]
    assert condition.message.startswith("{table}")
    assert condition.parameters == {"table"}
    assert "{" not in condition.remedy


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_condition_renders_in_short_sentences(condition: Condition) -> None:
    exceptions = {value.error_class: value for value in vars(errors).values() if _is_error(value)}
    exception = exceptions.get(condition.error_class, Finding)
    error = exception(condition.name, **dict.fromkeys(condition.parameters, "x"))
    assert str(error) == f"[{condition.name}] {error.message}\n{error.remedy}"
    assert "{" not in str(error).replace(",;{}()=", "")
    for text in (condition.message, condition.remedy):
        sentences = re.split(r"(?<=[.?]) (?=[A-Z])", text)
        assert all(sentence.endswith((".", "}")) for sentence in sentences), sentences
        assert [sentence for sentence in sentences if len(sentence.split()) > 30] == []


def test_conditions_of_a_subject_are_sorted() -> None:
    for _, found in groupby(conditions().values(), key=lambda condition: condition.subject):
        names = [condition.name for condition in found]
        assert names == sorted(names)


def test_error_message_truncates_list_and_parameters_keep_it() -> None:
    files = [f"{number}.parquet" for number in range(9)]
    error = Refused("APPEND_ONLY_TABLE_LOST_FILES", table="db.t", files=files)
    assert "0.parquet, 1.parquet, 2.parquet, 3.parquet, 4.parquet and 4 more" in error.message
    assert json.loads(json.dumps(error.to_dict())) == {
        "condition": "APPEND_ONLY_TABLE_LOST_FILES",
        "parameters": {"table": "db.t", "files": files},
        "message": error.message,
        "remedy": error.remedy,
    }


def test_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(Busy("UNDO_RUNNING", table=Path("/data/t"))))
    assert str(error) == (
        "[UNDO_RUNNING] /data/t is being undone by another process.\nWait until that process ends."
    )


def test_error_parameter_may_contain_braces() -> None:
    assert Refused("NO_PARQUET_FILES", folder="/data/{x}").message.startswith("/data/{x} contains")


def test_several_findings_are_one_error_that_lists_them_and_one_finding_is_the_error_itself() -> None:
    missing, empty = (Finding(name, folder="/data/t") for name in ("FOLDER_MISSING", "NO_PARQUET_FILES"))
    assert Refused.of([missing]).finding == missing
    both = Refused.of([missing, empty])
    assert both.message == f"2 problems were found:\n{missing}\n{empty}"
    assert both.to_dict()["parameters"] == {"count": 2, "findings": [missing.to_dict(), empty.to_dict()]}


def test_a_location_is_put_in_front_of_a_message_that_lacks_it() -> None:
    error = Refused("NO_PARQUET_FILES", folder="/data/t").at("spec.json: sourceDetails")
    assert error.message.startswith("spec.json: sourceDetails: /data/t contains no Parquet file")
    assert error.finding.at("other.json").message.startswith("other.json: /data/t contains")
    assert str(Refused("t is wrong: correct it").at("spec.json")) == "spec.json: t is wrong: correct it"
    assert Refused("t is wrong: correct it").finding.message == "t is wrong: correct it"


def test_problems_of_a_spec_are_listed_in_order_and_kept_as_data() -> None:
    problems = [Problem("b.json", "", "is empty"), Problem("a.json", "flows[0]", "is unknown")]
    error = SpecError("INVALID_SPEC", problems=problems)
    assert error.message.splitlines()[1:] == ["a.json: flows[0]: is unknown", "b.json: is empty"]
    (first, _) = error.to_dict()["parameters"]["problems"]  # type: ignore[index]
    assert (first["file"], first["path"], first["message"]) == ("a.json", "flows[0]", "is unknown")
    assert pickle.loads(pickle.dumps(error)).problems == tuple(sorted(problems))
