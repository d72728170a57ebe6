"""Decide the steps of a cutover and of its undo: the same facts give the same plan, without Spark.

legacy at the old name:   create the view, staged · rename the table · rename the view to the old name
crashed between renames:  rename the view to the old name
outdated view:            create the view, staged · drop the old view · rename the view to the old name
undo:                     rename the view away · rename the table back · drop the view

CREATE OR REPLACE VIEW loses the grants on a view, so no view that readers use is replaced in its place.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tableferry.errors import Finding
from tableferry.pipelines.cutover.facts import CutoverFacts, Entry
from tableferry.pipelines.cutover.findings import ACCEPTABLE, find_reader_findings, sort_findings
from tableferry.pipelines.cutover.steps import (
    CarryAccess,
    CreateView,
    CutoverStep,
    DropView,
    RecordCutover,
    RemoveCutover,
    RenameLegacyTable,
    RenameView,
)
from tableferry.pipelines.cutover.views import ViewDefinition, define_view
from tableferry.pipelines.model.target_state import Cutover
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class CutoverPlan:
    """The plan of a cutover, or of its undo.

    Attributes:
        facts: The facts from which it was decided.
        steps: The remaining steps, in order; empty if nothing is left to do.
        warnings: Findings that don't prevent it.
        refusals: Findings that prevent it; then there are no steps.
        notes: What readers get; of an undo, which source commits the legacy table lacks.
    """

    facts: CutoverFacts
    steps: tuple[CutoverStep, ...] = ()
    warnings: tuple[Finding, ...] = ()
    refusals: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def decide_cutover(facts: CutoverFacts, accepted: Collection[str] = ()) -> CutoverPlan:
    """Decide the remaining steps until the old name is a view of the target."""
    legacy, target = facts.legacy, facts.entry(facts.target)
    if legacy is None:
        return CutoverPlan(facts, refusals=(_missing_legacy_table(facts),))
    if target.kind != "table":
        return CutoverPlan(facts, refusals=(Finding("CUTOVER_TARGET_MISSING", target=facts.target),))
    if refusals := _find_replaced_target(facts, target) + _find_taken_names(facts, legacy):
        return CutoverPlan(facts, refusals=refusals)
    # After the rename of the legacy table, a refusal would leave readers without a name.
    is_renamed = legacy.name.key == facts.names.renamed.key
    found = sort_findings(
        tuple(find_reader_findings(facts, legacy, target)), ACCEPTABLE if is_renamed else accepted
    )
    definition = define_view(legacy, target)
    notes = _describe_view(facts, definition)
    if found.refusals:
        return CutoverPlan(facts, warnings=found.warnings, refusals=found.refusals, notes=notes)
    return CutoverPlan(facts, _plan_steps(facts, legacy, target, definition), found.warnings, notes=notes)


def decide_undo(facts: CutoverFacts) -> CutoverPlan:
    """Decide the remaining steps until the legacy table has its old name again."""
    if facts.recorded is None:
        return CutoverPlan(facts, refusals=(Finding("NOT_CUT_OVER", target=facts.target),))
    names, legacy = facts.names, facts.legacy
    if legacy is None:
        return CutoverPlan(facts, refusals=(_missing_legacy_table(facts),))
    at_name, staged = facts.entry(names.name), facts.entry(names.staged)
    for entry, purpose in ((at_name, "the legacy table"), (staged, "a temporary view")):
        if entry.kind != "missing" and not _is_own(facts, entry):
            return CutoverPlan(facts, refusals=(_taken(entry, purpose),))
    steps: list[CutoverStep] = [RecordCutover(facts.target, replace(facts.recorded, phase="reverting"))]
    is_staged = staged.is_cutover_view(facts.table_id)
    if legacy.name.key == names.renamed.key:
        if at_name.kind == "view":
            if is_staged:
                steps.append(DropView(names.staged, facts.table_id))
            steps.append(RenameView(names.name, names.staged, facts.table_id))
            is_staged = True
        steps.append(RenameLegacyTable(names.renamed, names.name, facts.table_id))
    if is_staged:
        steps.append(DropView(names.staged, facts.table_id))
    return CutoverPlan(facts, (*steps, RemoveCutover(facts.target)))


def _plan_steps(
    facts: CutoverFacts, legacy: Entry, target: Entry, definition: ViewDefinition
) -> tuple[CutoverStep, ...]:
    names, at_name, staged = facts.names, facts.entry(facts.names.name), facts.entry(facts.names.staged)
    steps: list[CutoverStep] = []
    is_current = at_name.is_cutover_view(facts.table_id) and at_name.definition == definition.fingerprint
    if is_current and staged.kind == "view":
        steps.append(DropView(names.staged, facts.table_id))
    elif not is_current:
        steps.append(CreateView(names.staged, definition, target.table_id))
        # A view that readers use may have got more grants than the legacy table.
        source = names.name if at_name.kind == "view" else legacy.name
        steps += _carry_access(facts, source, names.staged)
        if at_name.kind == "view":
            steps.append(DropView(names.name, facts.table_id))
        elif legacy.name.key == names.name.key:
            steps.append(RenameLegacyTable(names.name, names.renamed, facts.table_id))
        steps.append(RenameView(names.staged, names.name, facts.table_id))
        # It isn't documented that the grants of a view survive its rename.
        steps += _carry_access(facts, names.renamed, names.name)
    begun = _begin(facts)
    if not steps and facts.recorded and facts.recorded.is_done:
        return ()
    if facts.recorded is None or facts.recorded.phase == "reverting":
        steps.insert(0, RecordCutover(facts.target, begun))
    return (*steps, RecordCutover(facts.target, replace(begun, phase="done")))


def _carry_access(facts: CutoverFacts, source: TableName, view: TableName) -> tuple[CutoverStep, ...]:
    return (CarryAccess(source, view),) if facts.access.is_unity else ()


def _begin(facts: CutoverFacts) -> Cutover:
    names, recorded = facts.names, facts.recorded
    started_at = recorded.started_at if recorded else facts.now
    return Cutover(names.name, names.renamed, facts.table_id, "switching", started_at)


def _find_replaced_target(facts: CutoverFacts, target: Entry) -> tuple[Finding, ...]:
    recorded = facts.recorded_target_id
    if not recorded or not target.table_id or recorded == target.table_id:
        return ()
    return (
        Finding("CUTOVER_TARGET_REPLACED", target=facts.target, found=target.table_id, recorded=recorded),
    )


def _find_taken_names(facts: CutoverFacts, legacy: Entry) -> tuple[Finding, ...]:
    """Return a refusal for each name that `cutover` needs and that another table or view has."""
    names = facts.names
    purposes = {names.name: "the view", names.renamed: "the legacy table", names.staged: "a temporary view"}
    return tuple(
        _taken(entry, purpose)
        for name, purpose in purposes.items()
        if (entry := facts.entry(name)).kind != "missing"
        and entry.name.key != legacy.name.key
        and not (name is not names.renamed and entry.is_cutover_view(facts.table_id))
    )


def _is_own(facts: CutoverFacts, entry: Entry) -> bool:
    return entry.is_legacy(facts.table_id) or entry.is_cutover_view(facts.table_id)


def _taken(entry: Entry, purpose: str) -> Finding:
    return Finding("CUTOVER_NAME_TAKEN", name=entry.name, kind=entry.kind, purpose=purpose)


def _missing_legacy_table(facts: CutoverFacts) -> Finding:
    names = facts.names
    return Finding(
        "CUTOVER_LEGACY_TABLE_MISSING",
        name=names.name,
        renamed=names.renamed,
        target=facts.target,
        table_id=facts.table_id,
    )


def _describe_view(facts: CutoverFacts, definition: ViewDefinition) -> tuple[str, ...]:
    name, target = facts.names.name, facts.target
    if definition.columns:
        columns = (
            f"readers of {name} get the columns in their order of today: {', '.join(definition.names)}; "
            f"after {target} gets a column, run this command again to show it"
        )
    else:
        columns = f"readers of {name} get every column of {target}, also columns that it gets later"
    if facts.access.is_unity:
        return (columns,)
    return (
        columns,
        f"a metastore doesn't record who reads {name}: streams outside this project that read it stop at the "
        f"view; let them read {facts.names.renamed}",
    )
