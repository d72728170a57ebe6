"""A whole project, from its files to `flows.Project`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tableferry.errors import Problem, SpecError
from tableferry.pipelines.model import flows
from tableferry.pipelines.specs import metadata, names
from tableferry.pipelines.specs.compile import Compiler
from tableferry.pipelines.specs.compile_materialized import materialized_view
from tableferry.pipelines.specs.compile_targets import Targets
from tableferry.pipelines.specs.documents import Document, Reader
from tableferry.pipelines.specs.folder import locate
from tableferry.pipelines.specs.settings import global_settings, substitutions


def load(
    project: str | Path, *, environment: str | None = None, reserved: Mapping[str, str] | None = None
) -> flows.Project:
    """Read and check a project.

    Args:
        project: A folder with ``dataflows/`` and ``pipeline_configs/``, or one spec file.
        environment: Whose substitutions to take; needed where there are several.
        reserved: Values of reserved tokens, such as ``pipeline_id``; they win over the project's own.

    Raises:
        SpecError: Something is wrong; it carries every problem of the project.
    """
    problems: list[Problem] = []
    folder = locate(Path(project), problems)
    complete = not problems
    values = substitutions(folder, environment, reserved or {}, problems)
    settings = global_settings(folder, values, problems)
    reader = Reader(folder, settings, values, problems)
    documents: list[names.AnyDocument] = [*reader.documents(), *reader.materialized]
    unread: names.Unread = "none" if complete and reader.complete else "reported"
    around: list[names.AnyDocument] = []
    if folder.others:
        # What is wrong in the other specs is reported when they are asked for.
        beside = Reader(replace(folder, mains=folder.others), settings, values, [])
        around = [*beside.documents(), *beside.materialized]
        unread = "unreported" if unread == "none" and not beside.complete else unread
    skipped = [spec.target for spec in reader.skipped if spec.target is not None]
    columns = metadata.columns(folder, values, problems)
    dataflows: list[flows.DataFlow] = []
    views: list[flows.MaterializedView] = []
    for document, named in names.collect(documents, problems, around, unread, skipped):
        targets = Targets(named, folder.root, settings, values, columns, problems)
        if isinstance(document, Document):
            dataflows.append(Compiler(document, targets).dataflow())
        elif (view := materialized_view(targets, document)) is not None:
            views.append(view)
    if problems:
        raise SpecError("INVALID_SPEC", problems=list(dict.fromkeys(problems)))
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
