"""Data quality rules from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tableferry.errors import Finding, Problem
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.read import SUFFIXES, entries, mapping
from tableferry.pipelines.specs.source_location import SourceLocation
from tableferry.pipelines.specs.substitute import Substitutions
from tableferry.pipelines.specs.validate import validated
from tableferry.pipelines.specs.written import Name, SnakeModel, Tag


class Rule(SnakeModel):
    """One rule."""

    name: Name
    constraint: Name
    enabled: bool = True
    tag: Tag | None = None


class ExpectationsFile(SnakeModel):
    """Rules, by what happens to a row that breaks them."""

    expect: list[Rule] = Field(default_factory=list)
    expect_or_drop: list[Rule] = Field(default_factory=list)
    expect_or_fail: list[Rule] = Field(default_factory=list)


_ACTIONS: tuple[tuple[str, Literal["warn", "drop", "fail"]], ...] = (
    ("expect", "warn"),
    ("expect_or_drop", "drop"),
    ("expect_or_fail", "fail"),
)


def read(
    path: Path, location: SourceLocation, values: Substitutions, problems: list[Problem]
) -> tuple[flows.Expectation, ...]:
    """Read the rules of a file, or of all files of a folder."""
    if path.is_dir():
        listed = entries(path, location, problems) or []
        files = [
            (file, SourceLocation(f"{location.file}/{file.name}"))
            for file in listed
            if file.suffix in SUFFIXES
        ]
    else:
        files = [(path, location)]
    rules: dict[str, flows.Expectation] = {}
    for file, file_location in files:
        data = mapping(file, file_location, problems)
        if data is None:
            continue
        written = validated(
            ExpectationsFile, values.apply(data, file_location, problems), file_location, problems
        )
        if written is None:
            continue
        for key, action in _ACTIONS:
            for position, rule in enumerate(getattr(written, key)):
                if not rule.enabled:
                    continue
                if rule.name in rules:
                    taken = Finding("SPEC_EXPECTATION_NAME_TAKEN", name=rule.name)
                    problems.append(file_location.at(key, position, "name").problem(taken))
                rules[rule.name] = flows.Expectation(rule.name, rule.constraint, action)
    return tuple(rules.values())
