"""Data quality expectations of tables, read from the files in ``expectations/``."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from tableferry.errors import Finding
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.parsed_specs import AnySpec
from tableferry.pipelines.specs.project_files import (
    SUFFIXES,
    ProjectFolder,
    find_referenced_file,
    list_folder,
    read_mapping,
)
from tableferry.pipelines.specs.substitutions import Substitutions
from tableferry.pipelines.specs.validation import Name, SnakeModel, Tag, validate


class ExpectationEntry(SnakeModel):
    """One expectation."""

    name: Name
    constraint: Name
    enabled: bool = True
    tag: Tag | None = None


class ExpectationsFile(SnakeModel):
    """Expectations by the action on a row that violates them."""

    expect: list[ExpectationEntry] = Field(default_factory=list)
    expect_or_drop: list[ExpectationEntry] = Field(default_factory=list)
    expect_or_fail: list[ExpectationEntry] = Field(default_factory=list)


_ACTIONS: tuple[tuple[str, Literal["warn", "drop", "fail"]], ...] = (
    ("expect", "warn"),
    ("expect_or_drop", "drop"),
    ("expect_or_fail", "fail"),
)


def read_expectations(
    spec: AnySpec, folder: ProjectFolder, substitutions: Substitutions
) -> tuple[flows.Expectation, ...]:
    """Read the expectations of a spec from its file, or from all files in its folder."""
    path = spec.model.data_quality_expectations_path
    if not spec.model.data_quality_expectations_enabled or path is None:
        return ()
    place = spec.location.at("dataQualityExpectationsPath")
    found = find_referenced_file(path, "expectations", place, allow_folder=True)
    if found is None:
        return ()
    files = [folder.location(found)]
    if found.is_dir():
        listed = list_folder(files[0]) or []
        files = [folder.location(file) for file in listed if file.suffix in SUFFIXES]
    expectations: dict[str, flows.Expectation] = {}
    for location in files:
        data = read_mapping(location)
        if not data:
            continue
        written = validate(ExpectationsFile, substitutions.apply(data, location), location)
        for key, action in _ACTIONS if written else ():
            for position, entry in enumerate(getattr(written, key)):
                if not entry.enabled:
                    continue
                if entry.name in expectations:
                    taken = Finding("SPEC_EXPECTATION_NAME_TAKEN", name=entry.name)
                    location.at(key, position, "name").report(taken)
                expectations[entry.name] = flows.Expectation(entry.name, entry.constraint, action)
    return tuple(expectations.values())


def flag_violations(expectations: tuple[flows.Expectation, ...]) -> tuple[flows.Expectation, ...]:
    """Return the expectations as warnings, with a column that flags rows that violate one of them."""
    warnings = tuple(replace(expectation, action="warn") for expectation in expectations)
    return (*warnings, flows.Expectation(flows.QUARANTINED_COLUMN, join_constraints(expectations), "flag"))


def join_constraints(expectations: tuple[flows.Expectation, ...]) -> str:
    """Return the SQL condition that rows fulfil if they violate no expectation."""
    return " AND ".join(f"({expectation.constraint})" for expectation in expectations)
