"""What a project's specs share: global settings, and one environment's substitutions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from tableferry.errors import Finding, Problem
from tableferry.pipelines.specs.folder import Folder
from tableferry.pipelines.specs.read import SUFFIXES, entries, mapping
from tableferry.pipelines.specs.substitute import Affix, Substitutions
from tableferry.pipelines.specs.validate import validated
from tableferry.pipelines.specs.written import (
    Name,
    SnakeModel,
    Text,
    is_elsewhere,
    not_a_folder,
    path_of,
    refuse_when,
)


class SpecFormat(SnakeModel):
    """Which format the spec files have."""

    format: Literal["json", "yaml"] = "json"
    allow_override: bool = False


class GlobalFile(SnakeModel):
    """A global.json or global.yaml."""

    table_migration_state_volume_path: Annotated[Name, AfterValidator(path_of)] | None = None
    table_migration_state_shared: bool | None = None
    pipeline_bundle_spec_format: SpecFormat | None = None
    mandatory_table_properties: dict[str, Text] = Field(default_factory=dict)
    spark_config: dict[str, Text] = Field(default_factory=dict)
    dataflow_spec_version: Text | None = None

    @model_validator(mode="after")
    def _state_is_in_a_folder(self) -> Self:
        path = self.table_migration_state_volume_path or ""
        refuse_when((is_elsewhere(path), "table_migration_state_volume_path", not_a_folder(path)))
        return self


class GlobalSettings(GlobalFile):
    """What the global files say together; not complete where one of them couldn't be read."""

    complete: bool = True


class SubstitutionsFile(SnakeModel):
    """An environment's substitutions."""

    tokens: dict[Name, Text] = Field(default_factory=dict)
    prefix_suffix: dict[Name, Affix] = Field(default_factory=dict)


def substitutions(
    folder: Folder, environment: str | None, reserved: Mapping[str, str], problems: list[Problem]
) -> Substitutions:
    """Read the substitutions of one environment."""
    files = _environments(folder, problems)
    if files is None:
        return Substitutions(complete=False)
    if environment is None and len(files) == 1:
        environment = next(iter(files))
    if files and environment not in files:
        known = ", ".join(files)
        finding = (
            Finding("SPEC_ENVIRONMENT_UNKNOWN", environment=environment, environments=known)
            if environment
            else Finding("SPEC_ENVIRONMENT_NOT_CHOSEN", environments=known)
        )
        problems.append(folder.location(next(iter(files.values())).parent).problem(finding))
        return Substitutions(complete=False)
    # Users' files write {logical_env} wherever a developer's own copy would differ; elsewhere it's nothing.
    given = {"logical_env": ""} | ({"workspace_env": environment} if environment else {})
    file = files.get(environment or "")
    if file is None:
        return Substitutions({**given, **reserved})
    location = folder.location(file)
    data = mapping(file, location, problems)
    before = len(problems)
    written = validated(SubstitutionsFile, data, location, problems) if data is not None else None
    if written is None:
        return Substitutions(complete=False)
    complete = len(problems) == before
    tokens = {**given, **written.tokens, **reserved}
    return Substitutions(tokens, written.prefix_suffix, location.file, complete).resolved(location, problems)


def global_settings(folder: Folder, values: Substitutions, problems: list[Problem]) -> GlobalSettings:
    """Read the framework's global file and lay the bundle's over it, key by key."""
    merged: dict[str, Any] = {}
    homes = [folder.root / "config", folder.root / "src" / "config"]
    if folder.base is not None:
        homes.append(folder.base / "pipeline_configs")
    complete = True
    for home in homes:
        exists = os.path.lexists if home.name == "pipeline_configs" else os.path.isdir
        if not exists(home):
            continue
        listed = entries(home, folder.location(home), problems)
        files = [file for file in listed or [] if file.stem == "global" and file.suffix in SUFFIXES]
        complete = complete and listed is not None
        if len(files) > 1:
            others = " and ".join(file.name for file in files[1:])
            problems.append(folder.location(files[0]).problem(Finding("SPEC_FILES_CONFLICT", others=others)))
        for file in files[:1]:
            location = folder.location(file)
            data = mapping(file, location, problems)
            written, before = None, len(problems)
            if data is not None:
                written = validated(GlobalFile, values.apply(data, location, problems), location, problems)
            complete = complete and written is not None and len(problems) == before
            if written is not None:
                merged = _laid_over(merged, written.model_dump(exclude_unset=True))
    # Both layers fit, so their union fits.
    return GlobalSettings.model_validate({**merged, "complete": complete})


def _environments(folder: Folder, problems: list[Problem]) -> dict[str, Path] | None:
    files_by_environment: dict[str, Path] = {}
    home = folder.base / "pipeline_configs" if folder.base else None
    if home is None or not os.path.lexists(home):
        return files_by_environment
    files = entries(home, folder.location(home), problems)
    if files is None:
        return None
    for file in files:
        if file.suffix in SUFFIXES and file.stem.endswith("_substitutions"):
            environment = file.stem.removesuffix("_substitutions")
            if environment in files_by_environment:
                conflict = Finding("SPEC_FILES_CONFLICT", others=files_by_environment[environment].name)
                problems.append(folder.location(file).problem(conflict))
            else:
                files_by_environment[environment] = file
    return files_by_environment


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _laid_over(old, value)
        else:
            merged[key] = value
    return merged
