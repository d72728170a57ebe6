"""Shows plans, runs and statuses of pipeline migrations, as text or as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tableferry import report
from tableferry.pipelines.plans import PHASES, Plan, TargetPlan, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tableferry.pipelines.flows import Project
    from tableferry.pipelines.perform import NotRepresentable
    from tableferry.pipelines.reports import FinishReport, RunReport, StatusReport

_VERIFIED = {"match": "matches", "differ": "DIFFERS", "": None}


def plan_data(plan: Plan, found: Sequence[NotRepresentable] | None = None) -> dict[str, Any]:
    """Return a plan as plain data; ``found`` is what `check` said, if it was asked."""
    data: dict[str, Any] = {
        "pipelineId": plan.pipeline_id,
        "refused": bool(plan.refusals),
        "skipped": _skipped_data(plan.project),
        "targets": [
            {
                **_target_data(one),
                "steps": [str(step) for step in one.steps],
                "notes": list(one.notes),
                "refusals": list(one.refusals),
            }
            for one in plan.targets
        ],
    }
    if found is not None:
        data["inexpressible"] = [
            {"target": str(one.target), "count": one.count, "rows": list(one.rows), "leftOut": one.left_out}
            for one in found
        ]
    return data


def run_data(run: RunReport) -> dict[str, Any]:
    """Return what a run did as plain data."""
    return {
        "pipelineId": run.pipeline_id,
        "ok": run.ok,
        "targets": [
            {
                **_target_data(one.plan),
                "flows": [
                    {"flow": result.flow.name, "rows": result.rows, "once": result.once}
                    for result in one.results
                ],
                "verdict": one.verdict.to_dict() if one.verdict else None,
            }
            for one in run.targets
        ],
    }


def status_data(status: StatusReport) -> dict[str, Any]:
    """Return a status as plain data."""
    return {
        "pipelineId": status.plan.pipeline_id,
        "complete": status.complete,
        "skipped": _skipped_data(status.plan.project),
        "targets": [{**_target_data(one), "refusals": list(one.refusals)} for one in status.plan.targets],
    }


def finish_data(finish: FinishReport) -> dict[str, Any]:
    """Return what `finish` did as plain data."""
    return {
        "finished": [str(name) for name in finish.finished],
        "already": [str(name) for name in finish.already],
    }


def print_plan(console: Console, plan: Plan, found: Sequence[NotRepresentable] | None = None) -> None:
    """Print what a run would do, target by target."""
    for one in plan.targets:
        console.print(f"{one.target}: {PHASES[one.phase]}")
        for number, step in enumerate(one.steps, 1):
            console.print(f"  {number}. {step}")
        for flow in one.flows:
            if flow.action == "idle":
                console.print(f"  - {flow.flow.name}: nothing new")
            for wait in flow.waits:
                console.print(f"  - {flow.flow.name} stays out: {_waits(wait)}")
        for note in one.notes:
            console.print(f"  - {note}")
        for refusal in one.refusals:
            console.print(f"  ! {refusal}")
        console.print()
    _print_skipped(console, plan.project)
    for bad in found or ():
        _print_not_representable(console, bad)
    if found is not None and not found:
        console.print("Check: AUTO CDC can express every row that would be copied.")
    if plan.refusals:
        console.print("Nothing can run until the lines marked ! are mended.")
    elif plan.engine != "streaming":
        console.print(f"Nothing was written. It's done by {_UPDATE}.")
    elif plan.steps:
        console.print("Nothing was written. `tableferry pipelines run` performs these steps.")
    else:
        console.print("Nothing to do.")


def print_run(console: Console, run: RunReport) -> None:
    """Print what a run did and where each target stands now."""
    for one in run.targets:
        for result in one.results:
            if result.once and one.verdict and result is one.results[0]:
                rows = f"{one.verdict.source.rows:,} rows of history copied"
                console.print(f"{one.plan.target}: {rows}; the copy {_verdict_words(one.verdict.matches)}")
            elif result.once:
                console.print(f"{one.plan.target}: {result.flow.name} ran, once and for all")
            else:
                what = "new events" if result.rows is None else f"{result.rows:,} new rows"
                console.print(f"{one.plan.target}: {result.flow.name} took {what}")
        if not one.results:
            console.print(f"{one.plan.target}: nothing new")
    _print_targets(console, [one.plan for one in run.targets])
    _print_next(console, [one.plan for one in run.targets])


def print_prepared(console: Console, run: RunReport) -> None:
    """Print what `prepare` found of the copies, and where each target stands now."""
    for one in run.targets:
        if one.verdict:
            rows = f"{one.verdict.source.rows:,} rows of history"
            console.print(f"{one.plan.target}: {rows}; the copy {_verdict_words(one.verdict.matches)}")
    _print_targets(console, [one.plan for one in run.targets])
    _print_next(console, [one.plan for one in run.targets], _UPDATE)


def print_status(console: Console, status: StatusReport) -> None:
    """Print where each target stands."""
    _print_targets(console, status.plan.targets)
    _print_skipped(console, status.plan.project)
    for one in status.plan.targets:
        for refusal in one.refusals:
            console.print(f"! {refusal}")
    _print_next(console, status.plan.targets, _RUN if status.plan.engine == "streaming" else _UPDATE)


def print_finish(console: Console, finish: FinishReport) -> None:
    """Print what `finish` took out."""
    for name in finish.finished:
        console.print(f"{name}: finished; its data and its live flows stay, its state files are gone")
    for name in finish.already:
        console.print(f"{name}: was finished already")
    console.print(
        "Now remove tableMigrationDetails from the spec."
        if finish.finished or finish.already
        else "Nothing to do."
    )


def _skipped_data(project: Project) -> list[dict[str, Any]]:
    return [
        {"file": one.file, "target": str(one.target) if one.target else None, "problems": list(one.problems)}
        for one in project.skipped
    ]


def _print_skipped(console: Console, project: Project) -> None:
    for one in project.skipped:
        console.print(str(one))


def _target_data(one: TargetPlan) -> dict[str, Any]:
    tracking, migration_start = one.stored.tracking, one.migration_start
    return {
        "target": str(one.target),
        "phase": one.phase,
        "copy": {
            "table": str(migration_start.copy.table),
            "version": migration_start.copy.version,
            "copied": bool(tracking and tracking.copied == one.stored.generation),
            "rows": tracking.copied_rows if tracking else None,
            "verified": (tracking.verified or None) if tracking else None,
        }
        if migration_start
        else None,
        "baselines": {str(base.table): base.version for base in migration_start.baselines.values()}
        if migration_start
        else {},
        "flows": [{"flow": flow.flow.name, "action": flow.action} for flow in one.flows],
        "waitingFor": [
            {"table": str(wait.table), "baseline": wait.baseline, "current": wait.current, "why": wait.why}
            for wait in one.waits
        ],
    }


def _print_targets(console: Console, targets: Sequence[TargetPlan]) -> None:
    rows = []
    for one in targets:
        tracking = one.stored.tracking
        copied = tracking.copied_rows if tracking and tracking.copied == one.stored.generation else None
        rows.append(
            (
                one.target,
                PHASES[one.phase],
                copied,
                _VERIFIED[tracking.verified] if tracking and one.dataflow.migration else None,
            )
        )
    report.table(console, ("target", "state", "rows copied", "copy verified"), rows)
    for one in targets:
        for wait in one.waits:
            console.print(f"{one.target} waits: {_waits(wait)}")


_RUN = "`tableferry pipelines run`"
_UPDATE = "an update of the pipeline, with `tableferry pipelines prepare` before it and behind it"


def _print_next(console: Console, targets: Sequence[TargetPlan], what: str = _RUN) -> None:
    phases = {one.phase for one in targets}
    if "complete" in phases:
        done = ", ".join(str(one.target) for one in targets if one.phase == "complete")
        console.print(f"Next: `tableferry pipelines finish` takes the migration of {done} out.")
    if phases & {"new", "copying", "ready", "later"}:
        console.print(f"Next: {what}.")
    elif "waiting" in phases:
        console.print("Next: run again when the sources have new commits.")


def _print_not_representable(console: Console, bad: NotRepresentable) -> None:
    consequence = "left out, as the spec says" if bad.left_out else "they stop the run"
    rows = "1 row" if bad.count == 1 else f"{bad.count:,} rows"
    console.print(f"Check: {rows} for {bad.target} that AUTO CDC can't express, {consequence}:")
    for row in bad.rows:
        values = ", ".join(f"{name}={value}" for name, value in row.items() if name != "__reason")
        console.print(f"  {row['__reason']}: {values}")
    if bad.count > len(bad.rows):
        console.print(f"  … and {bad.count - len(bad.rows):,} more")


def _waits(wait: Wait) -> str:
    if wait.baseline is None:
        return f"{wait.table} {wait.why}"
    return f"{wait.table} is at version {wait.current}, its baseline"


def _verdict_words(matches: bool) -> str:
    return (
        "matches the legacy table row for row"
        if matches
        else "DIFFERS from the legacy table: see `tableferry verify`"
    )
