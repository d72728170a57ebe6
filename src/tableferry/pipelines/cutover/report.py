"""Reports of a cutover and its undo, as text and as plain data for JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tableferry.pipelines.cutover.commands import CutoverReport
from tableferry.pipelines.cutover.findings import ACCEPTABLE
from tableferry.pipelines.cutover.plan import CutoverPlan
from tableferry.pipelines.reports import print_finding

if TYPE_CHECKING:
    from rich.console import Console


def cutover_plan_data(plan: CutoverPlan) -> dict[str, Any]:
    """Return a plan as plain data."""
    names = plan.facts.names
    return {
        "target": str(plan.facts.target),
        "name": str(names.name),
        "legacy": str(names.renamed),
        "refused": bool(plan.refusals),
        "steps": [str(step) for step in plan.steps],
        "notes": list(plan.notes),
        "warnings": [finding.to_dict() for finding in plan.warnings],
        "refusals": [finding.to_dict() for finding in plan.refusals],
    }


def cutover_data(report: CutoverReport) -> dict[str, Any]:
    """Return the results of a cutover or its undo as plain data."""
    lag = report.lag
    return {
        **cutover_plan_data(report.plan),
        "lag": None
        if lag is None
        else {
            "current": lag.is_current,
            "sources": [
                {"source": str(one.source), "commits": one.versions, "rows": one.rows, "since": one.since}
                for one in lag.sources
            ],
            "oldStreams": list(lag.streams),
            "advice": lag.advice,
        },
    }


def print_cutover_plan(console: Console, plan: CutoverPlan, *, undo: bool = False) -> None:
    """Print the steps and findings of a plan that isn't performed."""
    _print_heading(console, plan, undo=undo)
    for number, step in enumerate(plan.steps, 1):
        console.print(f"  {number}. {step}")
    _print_findings(console, plan)
    for refusal in plan.refusals:
        print_finding(console, refusal, "  ! ")
    if plan.refusals:
        names = dict.fromkeys(found.condition for found in plan.refusals if found.condition in ACCEPTABLE)
        accept = f", or accepted with {' '.join(f'--accept {name}' for name in names)}" if names else ""
        console.print(f"No reader can be cut over until the lines marked ! are fixed{accept}.")
    elif plan.steps:
        console.print("Nothing was changed. Without --dry-run, the command performs these steps.")
    else:
        console.print("Nothing to do.")


def print_cutover(console: Console, report: CutoverReport) -> None:
    """Print the results of a cutover."""
    plan = report.plan
    names, target = plan.facts.names, plan.facts.target
    _print_findings(console, plan)
    if not plan.steps:
        console.print(f"{names.name}: is a view of {target} already; nothing to do")
        return
    console.print(f"{names.name}: is a view of {target} now; the legacy table is {names.renamed}")
    console.print("Next: query the view as its readers do. To go back, use the same command with --undo.")


def print_cutover_undo(console: Console, report: CutoverReport) -> None:
    """Print the results of an undo, and which source commits the legacy table lacks."""
    names, lag = report.plan.facts.names, report.lag
    console.print(f"{names.name}: is the legacy table again; the view is dropped")
    if lag is not None:
        for source in lag.sources:
            console.print(f"  - {source}")
        console.print(lag.advice)


def _print_heading(console: Console, plan: CutoverPlan, *, undo: bool) -> None:
    names = plan.facts.names
    what = "becomes the legacy table again" if undo else f"becomes a view of {plan.facts.target}"
    console.print(f"{names.name}: {what}")


def _print_findings(console: Console, plan: CutoverPlan) -> None:
    for note in plan.notes:
        console.print(f"  - {note}")
    for warning in plan.warnings:
        if warning.condition in ACCEPTABLE:
            console.print(f"  - [{warning.condition}] {warning.message} Accepted.")
        else:
            print_finding(console, warning, "  - ")
