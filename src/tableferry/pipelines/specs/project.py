"""Load a project: its global settings, and its specs compiled into `flows.Project`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tableferry.errors import Finding, SpecError
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs.operational_metadata import read_metadata_columns
from tableferry.pipelines.specs.project_files import ProjectFolder, find_project_files
from tableferry.pipelines.specs.spec_compiler import SpecCompiler
from tableferry.pipelines.specs.spec_models import GlobalFile, MaterializedViewEntry, ParsedSpec
from tableferry.pipelines.specs.spec_reader import SpecReader
from tableferry.pipelines.specs.substitutions import Substitutions, read_substitutions
from tableferry.pipelines.specs.table_compiler import TableCompiler, Unread, resolve_tables


def load(
    project: str | Path, *, environment: str | None = None, reserved: Mapping[str, str] | None = None
) -> flows.Project:
    """Read, validate and compile a project.

    Specs with unsupported features are left out, and listed in `Project.skipped`. If `project` is one spec
    file, other specs only give the names of their tables.

    Args:
        project: A folder with ``dataflows/`` and ``pipeline_configs/``, or one spec file.
        environment: The environment whose substitutions apply; required if the project has several.
        reserved: Values of reserved tokens, such as ``pipeline_id``; they override the project's tokens.

    Raises:
        SpecError: The project is invalid; the error lists every problem.
    """
    folder = find_project_files(Path(project))
    substitutions = read_substitutions(folder, environment, reserved or {})
    before = len(folder.problems)
    settings = read_global_settings(folder, substitutions)
    lacks_state_path = settings.table_migration_state_volume_path is None and len(folder.problems) == before
    reader = SpecReader(folder, settings, substitutions)
    specs = reader.read()
    unread: Unread = "reported" if folder.problems else "none"
    other_specs: list[ParsedSpec] = []
    if folder.other_main_files:
        # The problems of the other specs are reported when these specs are loaded.
        others = replace(folder, main_files=folder.other_main_files, problems=[])
        other_specs = SpecReader(others, settings, substitutions).read()
        if unread == "none" and others.problems:
            unread = "unreported"
    skipped_tables = [spec.target for spec in reader.skipped if spec.target is not None]
    columns = read_metadata_columns(folder, substitutions.tokens)
    dataflows: list[flows.DataFlow] = []
    views: list[flows.MaterializedView] = []
    for spec, tables in resolve_tables(specs, other_specs, skipped_tables, unread):
        metadata, mandatory = columns if spec.has_metadata else (), settings.mandatory_table_properties
        table_compiler = TableCompiler(tables, folder, mandatory, substitutions, metadata)
        compiler = SpecCompiler(spec, table_compiler)
        if not isinstance(spec.model, MaterializedViewEntry):
            dataflow = compiler.compile_dataflow(spec.model)
            dataflows.append(dataflow)
            if dataflow.migration is not None and lacks_state_path:
                spec.location.at("tableMigrationDetails").report(Finding("SPEC_STATE_PATH_MISSING"))
        elif (view := compiler.compile_materialized_view(spec.model)) is not None:
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


def read_global_settings(folder: ProjectFolder, substitutions: Substitutions) -> GlobalFile:
    """Read the global files of the framework and of the bundle; keys of the bundle override the others."""
    merged: dict[str, Any] = {}
    for home in folder.config_folders:
        files = folder.list_files(home, "global")
        if len(files) > 1:
            others = " and ".join(file.name for file in files[1:])
            folder.location(files[0]).report(Finding("SPEC_FILES_CONFLICT", others=others))
        if files and (written := substitutions.read_model(GlobalFile, folder.location(files[0]))):
            merged = _merge(merged, written.model_dump(exclude_unset=True))
    # Both files are valid, so the merged settings are valid too.
    return GlobalFile.model_validate(merged)


def _merge(lower: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    merged = {**lower, **upper}
    for key, value in upper.items():
        old = lower.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = _merge(old, value)
    return merged
