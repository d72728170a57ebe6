"""Decide which specs of a project an engine can run; the project names the skipped ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tableferry.errors import Problem, SpecError
from tableferry.pipelines.model.flows import (
    DataFlow,
    MaterializedView,
    Project,
    Skipped,
    Target,
)
from tableferry.pipelines.model.plan import EngineKind

_ON_DATABRICKS = "run the project in a pipeline on Databricks"


def select_runnable_specs(project: Project, engine: EngineKind) -> Project:
    """Return a project whose specs an engine can run; the other specs become skipped ones.

    Raises:
        SpecError: A spec that the engine can't run has a migration, or the project has no other spec.
    """
    refusals = [(dataflow, tuple(_refusals(dataflow, engine))) for dataflow in project.dataflows]
    views = [(view, tuple(_view_refusals(view, engine))) for view in project.materialized]
    kept = tuple(dataflow for dataflow, problems in refusals if not problems)
    kept_views = tuple(view for view, problems in views if not problems)
    migrating = [
        problem for dataflow, problems in refusals if dataflow.migration is not None for problem in problems
    ]
    if migrating:
        raise SpecError("INVALID_SPEC", problems=migrating)
    left_out = [
        *(_skipped(dataflow.file, dataflow.target, problems) for dataflow, problems in refusals if problems),
        *(_skipped(view.file, view.target, problems) for view, problems in views if problems),
    ]
    if left_out and not kept and not kept_views:
        raise SpecError("INVALID_SPEC", problems=[problem for spec in left_out for problem in spec.problems])
    return replace(project, dataflows=kept, materialized=kept_views, skipped=(*project.skipped, *left_out))


def _refusals(dataflow: DataFlow, engine: EngineKind) -> Iterator[Problem]:
    for table in dataflow.tables:
        if table.snapshots is not None and engine != "databricks":
            yield _problem(
                table.snapshots.location,
                f"snapshot CDC of {table.name} runs only on Databricks: {_ON_DATABRICKS}",
            )


def _view_refusals(view: MaterializedView, engine: EngineKind) -> Iterator[Problem]:
    if engine == "streaming":
        yield _problem(
            view.views[view.view].location,
            f"{view.target.name} is a materialized view, which only a declarative pipeline refreshes: "
            f"{_ON_DATABRICKS}, or make it a streaming table with a flow",
        )


def _skipped(file: str, target: Target, problems: tuple[Problem, ...]) -> Skipped:
    return Skipped(file, target.name, problems)


def _problem(location: str, message: str) -> Problem:
    file, _, path = location.partition(": ")
    return Problem(file, path, message)
