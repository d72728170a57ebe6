"""Preparation of a declarative pipeline's update: record starts, create pinned clones, compare copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tableferry.pipelines.model.flows import HISTORY_FLOW
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.model.steps import RecordTableIdentity, RemoveMigration
from tableferry.pipelines.pinned_clones import create_pinned_clone, drop_pinned_clone, needs_clone
from tableferry.pipelines.planning.pipeline_port import Pipeline

if TYPE_CHECKING:
    from tableferry.pipelines.engines.performer import Runner
    from tableferry.pipelines.planning.project import OpenedProject


def has_preparation_steps(target: TargetPlan, opened: OpenedProject) -> bool:
    """Return whether a target needs a state change, a pinned clone or the comparison of its copy."""
    return bool(target.state_steps) or target.copy or needs_clone(target, opened)


def prepare_targets(plan: Plan, opened: OpenedProject, runner: Runner) -> None:
    """Perform each target's state steps, create or drop its pinned clone, and compare its completed copy.

    The verdicts are in `Runner.verdicts`. After a comparison, the identities of the tables are recorded.

    Raises:
        TableError: A clone can't be created or dropped.
        Failed: A copy can't be compared.
        Busy: Another run has taken over the targets.
    """
    for target in plan.targets:
        runner.perform_state_steps(target)
        if any(isinstance(step, RemoveMigration) for step in target.state_steps):
            drop_pinned_clone(target, opened)
        if target.clone and (target.copy or needs_clone(target, opened)):
            create_pinned_clone(target, target.clone, opened, runner)
        if target.copy and opened.pipeline and _is_copied(target, opened.pipeline):
            runner.compare_copy(target)
    if runner.verdicts:
        # The next update may start flows, so the identities of the compared tables are recorded before it.
        decided, _ = opened.after_run.decide_plan()
        for target in decided.targets:
            steps = tuple(step for step in target.steps if isinstance(step, RecordTableIdentity))
            runner.perform_state_steps(replace(target, steps=steps))


def _is_copied(target: TargetPlan, pipeline: Pipeline) -> bool:
    """Return whether the pipeline has completed the initial copy."""
    assert target.migration_start is not None
    starts = {target.target.key: target.migration_start.recorded_at}
    progress = pipeline.read_progress([(target.target, HISTORY_FLOW)], starts)
    return progress[target.target.key, HISTORY_FLOW].is_caught_up
