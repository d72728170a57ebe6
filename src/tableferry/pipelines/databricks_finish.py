"""Finish of migrations whose flows run in a pipeline on Databricks.

It needs the workspace's API and no Spark, because it reads only state files and the pipeline's event log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from tableferry import storage
from tableferry.errors import Finding, Refused
from tableferry.pipelines.model.flows import DataFlow, Project
from tableferry.pipelines.model.phases import OVER, phase_label
from tableferry.pipelines.model.plan import pinned_clone_name
from tableferry.pipelines.model.target_state import TargetState
from tableferry.pipelines.planning.baseline import is_assumed
from tableferry.pipelines.planning.decide import phase_of
from tableferry.pipelines.planning.identity import find_engine_change
from tableferry.pipelines.planning.pipeline_port import Pipeline
from tableferry.pipelines.reports import FinishReport
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.catalog import parallel_map
from tableferry.spark.tables import TableName


def finish_without_spark(
    project: Project,
    store: StateStore,
    pipeline: Pipeline,
    drop: Callable[[TableName], None],
    only: Collection[str] = (),
    *,
    accept_assumed: bool = False,
) -> FinishReport:
    """Remove the state of complete migrations, and the pinned clones of their legacy tables.

    Args:
        project: The project.
        store: The state of its targets.
        pipeline: The pipeline that runs its flows.
        drop: Drops a table if it exists.
        only: The keys of the targets to finish; empty for all.
        accept_assumed: Finish migrations whose hand-over was assumed too. This function compares no rows.

    Raises:
        Refused: A migration isn't complete, or its hand-over was assumed; nothing was removed.
        TableferryError: A clone can't be dropped; its migration isn't finished.
    """
    chosen = project.select_dataflows(only)
    migrating = _read_migrating(chosen, store)
    _check(migrating, pipeline, accept_assumed=accept_assumed)
    if migrating:
        with storage.locked([store.lock_file(name) for name in migrating], f"the project {project.name}"):
            current = _read_migrating(chosen, store)
            if current != migrating:
                migrating = current
                _check(migrating, pipeline, accept_assumed=accept_assumed)
            for name, (dataflow, _) in migrating.items():
                # The clone goes first: without state, no run finds it.
                if dataflow.target.cdc:
                    drop(pinned_clone_name(name))
                store.finish(name)
    finished = {name: stored for name, (_, stored) in migrating.items() if not stored.finished}
    return FinishReport(
        tuple(finished),
        tuple(name for name in migrating if name not in finished),
        certainties=tuple(
            (name, stored.migration_start.certainty)
            for name, stored in finished.items()
            if stored.migration_start
        ),
    )


def _read_migrating(
    dataflows: Collection[DataFlow], store: StateStore
) -> dict[TableName, tuple[DataFlow, TargetState]]:
    """Return the data flows that have, or had, a migration, with their state."""
    states = parallel_map(store.read, [dataflow.target.name for dataflow in dataflows])
    return {
        dataflow.target.name: (dataflow, stored)
        for dataflow, stored in zip(dataflows, states, strict=True)
        if dataflow.migration or stored.migration_start
    }


def _check(
    migrating: Mapping[TableName, tuple[DataFlow, TargetState]], pipeline: Pipeline, *, accept_assumed: bool
) -> None:
    refusals = _find_incomplete(migrating.values(), pipeline)
    if not refusals and not accept_assumed:
        refusals = _find_assumed(migrating.values())
    if refusals:
        raise Refused.of(refusals)


def _find_assumed(migrating: Collection[tuple[DataFlow, TargetState]]) -> list[Finding]:
    """Return a refusal for each migration whose hand-over is neither proved nor recorded."""
    return [
        Finding("ASSUMED_HAND_OVER_NOT_COMPARED", target=dataflow.target.name)
        for dataflow, stored in migrating
        if not stored.finished and is_assumed(dataflow, stored.migration_start)
    ]


def _find_incomplete(
    migrating: Collection[tuple[DataFlow, TargetState]], pipeline: Pipeline
) -> list[Finding]:
    """Return a refusal for each migration that isn't complete, or that another engine runs."""
    unrecorded = {
        dataflow.target.name: _list_unrecorded_flows(dataflow, stored) for dataflow, stored in migrating
    }
    starts = {
        dataflow.key: stored.migration_start.recorded_at
        for dataflow, stored in migrating
        if stored.migration_start
    }
    flows = [(name, flow) for name, names in unrecorded.items() for flow in names]
    progress = pipeline.read_progress(flows, starts) if flows else {}
    refusals = []
    for dataflow, stored in migrating:
        name = dataflow.target.name
        waiting = [flow for flow in unrecorded[name] if not progress[name.key, flow].has_started]
        phase = phase_of(stored, ["start" for _ in waiting], copies=not stored.copied or stored.resetting)
        if change := find_engine_change(stored, pipeline.kind):
            refusals.append(
                Finding(
                    "ENGINE_CHANGED_BEFORE_FINISH",
                    target=name,
                    recorded=change.recorded,
                    engine=change.engine,
                    option=change.option,
                )
            )
            continue
        if phase in OVER:
            continue
        why = [phase_label(phase), *(f"{flow} hasn't run yet" for flow in waiting)]
        if stored.elsewhere and not stored.migration_start:
            why.append(f"it began under pipelineId={', '.join(stored.elsewhere)}")
        refusals.append(Finding("PIPELINE_MIGRATION_NOT_COMPLETE", target=name, reason="; ".join(why)))
    return refusals


def _list_unrecorded_flows(dataflow: DataFlow, stored: TargetState) -> list[str]:
    """Return the streaming flows of a running migration that its state doesn't report as started."""
    if stored.migration_start is None or stored.finished:
        return []
    ran = stored.tracking.started if stored.tracking else ()
    return [flow.name for flow in dataflow.streaming_flows if flow.name not in ran]
