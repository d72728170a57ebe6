"""Load a project: its global settings, and its specs compiled into `flows.Project`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tableferry.errors import Finding, SpecError
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.flow_compiler import FlowCompiler, compile_materialized_view
from tableferry.pipelines.specs.operational_metadata import read_metadata_columns
from tableferry.pipelines.specs.parsed_specs import AnySpec, ParsedSpec, SpecReader
from tableferry.pipelines.specs.project_files import (
    SUFFIXES,
    ProjectFolder,
    find_project_files,
    list_folder,
    read_mapping,
)
from tableferry.pipelines.specs.spec_models import GlobalFile, GlobalSettings
from tableferry.pipelines.specs.substitutions import Substitutions, read_substitutions
from tableferry.pipelines.specs.table_compiler import TableCompiler, Unread, resolve_tables
from tableferry.pipelines.specs.validation import validate


def load(
    project: str | Path, *, environment: str | None = None, reserved: Mapping[str, str] | None = None
) -> flows.Project:
    """Read, validate and compile a project.

    Args:
        project: A folder with ``dataflows/`` and ``pipeline_configs/``, or one spec file.
        environment: The environment whose substitutions apply; required if the project has several.
        reserved: Values of reserved tokens, such as ``pipeline_id``; they override the project's tokens.

    Raises:
        SpecError: The project is invalid; the error lists every problem.
    """
    folder = find_project_files(Path(project))
    is_complete = not folder.problems
    substitutions = read_substitutions(folder, environment, reserved or {})
    settings = read_global_settings(folder, substitutions)
    reader = SpecReader(folder, settings, substitutions)
    specs = reader.read()
    unread: Unread = "none" if is_complete and reader.is_complete else "reported"
    other_specs: list[AnySpec] = []
    if folder.other_main_files:
        # The problems of the other specs are reported when these specs are loaded.
        others = replace(folder, main_files=folder.other_main_files, problems=[])
        other_reader = SpecReader(others, settings, substitutions)
        other_specs = other_reader.read()
        if unread == "none" and not other_reader.is_complete:
            unread = "unreported"
    skipped_tables = [spec.target for spec in reader.skipped if spec.target is not None]
    columns = read_metadata_columns(folder, substitutions.tokens)
    dataflows: list[flows.DataFlow] = []
    views: list[flows.MaterializedView] = []
    for spec, tables in resolve_tables(specs, other_specs, skipped_tables, unread):
        metadata = columns if spec.has_metadata else ()
        table_compiler = TableCompiler(tables, folder, settings, substitutions, metadata)
        if isinstance(spec, ParsedSpec):
            dataflows.append(FlowCompiler(spec, table_compiler).compile())
        elif (view := compile_materialized_view(spec, table_compiler)) is not None:
            views.append(view)
    if folder.problems:
        raise SpecError("INVALID_SPEC", problems=list(dict.fromkeys(folder.problems)))
    return flows.Project(
        str(folder.root),
        folder.root.name,
        tuple(sorted(dataflows, key=lambda dataflow: dataflow.target.name)),
        settings.table_migration_state_volume_path,
        settings.spark_config,
        reader.skipped,
        settings.table_migration_state_shared,
        tuple(sorted(views, key=lambda view: view.target.name)),
    )


def read_global_settings(folder: ProjectFolder, substitutions: Substitutions) -> GlobalSettings:
    """Read the global files of the framework and of the bundle; keys of the bundle override the others."""
    merged: dict[str, Any] = {}
    before = len(folder.problems)
    for home in folder.config_folders:
        # A broken link of the bundle is reported; the framework's folders are optional.
        exists = os.path.lexists if home == folder.config_folder else os.path.isdir
        listed = (list_folder(folder.location(home)) if exists(home) else None) or []
        files = [file for file in listed if file.stem == "global" and file.suffix in SUFFIXES]
        if len(files) > 1:
            others = " and ".join(file.name for file in files[1:])
            folder.location(files[0]).report(Finding("SPEC_FILES_CONFLICT", others=others))
        for file in files[:1]:
            location = folder.location(file)
            data = read_mapping(location)
            if data is not None:
                written = validate(GlobalFile, substitutions.apply(data, location), location)
                merged = _merge(merged, written.model_dump(exclude_unset=True) if written else {})
    is_complete = len(folder.problems) == before
    # Both files are valid, so the merged settings are valid too.
    return GlobalSettings.model_validate({**merged, "is_complete": is_complete})


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = {**lower, **upper}
    for key, value in upper.items():
        old = lower.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merge(old, value)
    return merged
