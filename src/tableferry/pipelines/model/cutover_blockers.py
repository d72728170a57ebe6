"""Decide whether the state of a migration allows the cutover of its readers."""

from __future__ import annotations

from tableferry.errors import Finding
from tableferry.pipelines.model.phases import phase_label
from tableferry.pipelines.model.plan import TargetPlan


def find_cutover_blockers(target: TargetPlan) -> tuple[Finding, ...]:
    """Return the refusals of a cutover that the state of the migration causes; none if it may be resumed."""
    migration, state, name = target.dataflow.migration, target.state, target.target
    if state.taken_over or (migration and migration.take_over):
        return (Finding("CUTOVER_OF_TAKE_OVER", target=name),)
    if state.cutover:
        return ()
    if state.finished:
        return (Finding("CUTOVER_AFTER_FINISH", target=name),)
    if migration is None:
        return (Finding("CUTOVER_WITHOUT_MIGRATION", target=name),)
    if migration.table.path is not None:
        return (Finding("CUTOVER_OF_PATH", target=name, table=migration.table),)
    if target.refusals:
        return target.refusals
    if target.phase != "complete":
        phase = "; ".join([phase_label(target.phase), *(wait.why.sentence for wait in target.waits)])
        return (Finding("CUTOVER_NOT_COMPLETE", target=name, phase=phase),)
    if not state.is_copy_verified:
        return (Finding("CUTOVER_COPY_NOT_COMPARED", target=name, table=migration.table),)
    return ()
