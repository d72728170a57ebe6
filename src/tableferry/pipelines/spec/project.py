"""A whole project, from its files to `flows.Project`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tableferry.errors import Problem, SpecError
from tableferry.pipelines import flows
from tableferry.pipelines.spec import names
from tableferry.pipelines.spec.compile import Compiler
from tableferry.pipelines.spec.documents import Reader
from tableferry.pipelines.spec.folder import locate
from tableferry.pipelines.spec.settings import global_settings, substitutions


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
    folder = locate(Path(project))
    problems: list[Problem] = []
    values = substitutions(folder, environment, reserved or {}, problems)
    settings = global_settings(folder, values, problems)
    documents = Reader(folder, settings, values, problems).documents()
    dataflows = [
        Compiler(document, named, folder.root, settings, values, problems).dataflow()
        for document, named in names.collect(documents, problems)
    ]
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return flows.Project(
        str(folder.root),
        folder.root.name,
        tuple(sorted(dataflows, key=lambda each: each.target.name)),
        settings.table_migration_state_volume_path,
        settings.spark_config,
    )
