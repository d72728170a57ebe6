"""Data quality expectations of tables, read from the files in ``expectations/``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from tableferry.errors import Finding
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.project_files import SUFFIXES, SourceLocation, list_folder, read_mapping
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
    path: Path, location: SourceLocation, substitutions: Substitutions
) -> tuple[flows.Expectation, ...]:
    """Read the expectations of a file, or of all files in a folder."""
    files = [(path, location)]
    if path.is_dir():
        files = [
            (file, SourceLocation(f"{location.file}/{file.name}", location.problems))
            for file in list_folder(path, location) or []
            if file.suffix in SUFFIXES
        ]
    expectations: dict[str, flows.Expectation] = {}
    for file, there in files:
        data = read_mapping(file, there)
        written = validate(ExpectationsFile, substitutions.apply(data, there), there) if data else None
        for key, action in _ACTIONS if written else ():
            for position, entry in enumerate(getattr(written, key)):
                if not entry.enabled:
                    continue
                if entry.name in expectations:
                    taken = Finding("SPEC_EXPECTATION_NAME_TAKEN", name=entry.name)
                    there.at(key, position, "name").report(taken)
                expectations[entry.name] = flows.Expectation(entry.name, entry.constraint, action)
    return tuple(expectations.values())
