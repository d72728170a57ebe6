"""Select the specs of a project that an engine can run; the other specs are skipped by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tableferry.errors import Finding, Problem, SpecError
from tableferry.pipelines.model.flows import DataFlow, MaterializedView, Project, SkippedSpec
from tableferry.pipelines.model.plan import EngineKind


def select_runnable_specs(project: Project, engine: EngineKind) -> Project:
    """Return a project with the specs that an engine can run; the other specs become skipped ones.

    Raises:
        SpecError: A spec that the engine can't run has a migration, or the project has no other spec.
    """
    written: tuple[DataFlow | MaterializedView, ...] = (*project.dataflows, *project.materialized)
    specs = [(spec, tuple(_list_problems(spec, engine))) for spec in written]
    skipped = [SkippedSpec(spec.file, spec.target.name, problems) for spec, problems in specs if problems]
    migrating = [
        problem
        for spec, problems in specs
        if isinstance(spec, DataFlow) and spec.migration
        for problem in problems
    ]
    if migrating:
        raise SpecError("INVALID_SPEC", problems=migrating)
    if skipped and len(skipped) == len(specs):
        raise SpecError("INVALID_SPEC", problems=[problem for spec in skipped for problem in spec.problems])
    runnable = [spec for spec, problems in specs if not problems]
    return replace(
        project,
        dataflows=tuple(spec for spec in runnable if isinstance(spec, DataFlow)),
        materialized=tuple(spec for spec in runnable if isinstance(spec, MaterializedView)),
        skipped=(*project.skipped, *skipped),
    )


def _list_problems(spec: DataFlow | MaterializedView, engine: EngineKind) -> Iterator[Problem]:
    if isinstance(spec, MaterializedView):
        if engine == "streaming":
            finding = Finding("SPEC_MATERIALIZED_VIEW_OUTSIDE_PIPELINE", view=spec.target.name)
            yield _problem_at(spec.views[spec.view].location, finding)
        return
    for table in spec.tables:
        if table.snapshots is not None and engine != "databricks":
            finding = Finding("SPEC_SNAPSHOTS_OUTSIDE_DATABRICKS", table=table.name)
            yield _problem_at(table.snapshots.location, finding)


def _problem_at(location: str, finding: Finding) -> Problem:
    file, _, path = location.partition(": ")
    return Problem.of(finding, file, path)
