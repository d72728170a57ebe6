"""What each engine can run: specs that it can't run are skipped by name, and flows and views are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tableferry.errors import Finding, Problem, SpecError
from tableferry.pipelines.model.flows import (
    AUTO_LOADER,
    DataFlow,
    MaterializedView,
    Project,
    ReaderSource,
    SkippedSpec,
)
from tableferry.pipelines.model.plan import EngineKind
from tableferry.pipelines.planning.context import Findings, PlanningContext, refuse_all


def select_runnable_specs(project: Project, engine: EngineKind) -> Project:
    """Return a project with the specs that an engine can run; the other specs become skipped ones.

    Raises:
        SpecError: A spec that the engine can't run has a migration, or the project has no other spec.
    """
    specs: tuple[DataFlow | MaterializedView, ...] = (*project.dataflows, *project.materialized)
    problems = {id(spec): tuple(_list_problems(spec, engine)) for spec in specs}
    skipped = [spec for spec in specs if problems[id(spec)]]
    refused = [spec for spec in skipped if isinstance(spec, DataFlow) and spec.migration]
    if refused or (skipped and len(skipped) == len(specs)):
        found = [problem for spec in refused or skipped for problem in problems[id(spec)]]
        raise SpecError("INVALID_SPEC", problems=found)
    return replace(
        project,
        dataflows=tuple(spec for spec in project.dataflows if not problems[id(spec)]),
        materialized=tuple(spec for spec in project.materialized if not problems[id(spec)]),
        skipped=(
            *project.skipped,
            *(SkippedSpec(spec.file, spec.target.name, problems[id(spec)]) for spec in skipped),
        ),
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


def check_engine(context: PlanningContext) -> Findings:
    """Refuse AUTO CDC and run-once flows in an open-source pipeline, and Auto Loader outside Databricks.

    Spark 4.1 has no AUTO CDC; 4.2 has only SCD type 1, and not for the two flows that a migration needs.
    """
    refusals: list[Finding] = []
    if context.request.engine == "declarative":
        refusals += [
            context.finding("AUTO_CDC_NOT_IN_SPARKS_OWN", table=table)
            for table in context.dataflow.tables
            if table.cdc
        ]
        refusals += [
            context.finding("ONCE_NOT_IN_SPARKS_OWN", location=f"{flow.location}: {flow.name}")
            for flow in context.dataflow.flows
            if flow.once
        ]
    if not context.facts.auto_loader:
        refusals += [
            context.finding("AUTO_LOADER_ONLY_ON_DATABRICKS", view=view)
            for view in context.dataflow.views.values()
            if isinstance(view.source, ReaderSource) and view.source.format == AUTO_LOADER
        ]
    return refuse_all(refusals)


def check_connect_client(context: PlanningContext) -> Findings:
    """Refuse streaming CDC flows of a Spark Connect client, which can't fold their batches (decision 51)."""
    if context.request.in_pipeline or not context.request.through_connect:
        return Findings()
    return refuse_all(
        context.finding("STREAMING_CDC_THROUGH_CONNECT", flow=flow, target=flow.target)
        for flow in context.dataflow.streaming_flows
        if flow.kind == "cdc"
    )
