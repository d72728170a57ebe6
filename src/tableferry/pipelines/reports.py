"""Reports of the commands, as text and as plain data for JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tableferry import report
from tableferry.amounts import counted, joined
from tableferry.errors import Finding
from tableferry.pipelines.model.cutover_blockers import find_cutover_blockers
from tableferry.pipelines.model.phases import OVER, phase_label
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.verify import render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from tableferry.pipelines.engines.port import FlowResult
    from tableferry.pipelines.handover.proofs import Proof
    from tableferry.pipelines.model.flows import SkippedSpec
    from tableferry.pipelines.model.target_state import Certainty, Cutover, MigrationStart
    from tableferry.pipelines.sources.copy_findings import UnrepresentableRows
    from tableferry.spark.tables import TableName
    from tableferry.verify import Verdict

_VERIFIED = {"match": "matches", "differ": "DIFFERS", "": None}


@dataclass(frozen=True)
class TargetReport:
    """The results of a run for one target.

    Attributes:
        plan: The target's plan as decided after the run.
        results: The result of each flow that ran.
        verdict: The comparison of the copy with the legacy table, if this run compared them.
    """

    plan: TargetPlan
    results: tuple[FlowResult, ...] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True)
class RunReport:
    """The results of a run.

    Attributes:
        pipeline_id: The id under which the state is stored.
        targets: The targets, in the order in which their flows ran.
        skipped: The specs that the engine can't run, or that use features that Tableferry lacks.
    """

    pipeline_id: str
    targets: tuple[TargetReport, ...]
    skipped: tuple[SkippedSpec, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every copy that was compared equals its legacy table."""
        return all(target.verdict is None or target.verdict.matches for target in self.targets)


@dataclass(frozen=True)
class StatusReport:
    """The state of each target, as a plan that isn't run."""

    plan: Plan

    @property
    def complete(self) -> bool:
        """Whether every migration of the project is complete."""
        return all(target.phase in OVER for target in self.plan.targets)


@dataclass(frozen=True)
class VerifyReport:
    """The comparisons of targets with their legacy tables."""

    pipeline_id: str
    proofs: tuple[Proof, ...]

    @property
    def ok(self) -> bool:
        """Whether every target is proved to have the same rows."""
        return all(proof.proved for proof in self.proofs)


@dataclass(frozen=True)
class UndoReport:
    """The targets whose take-over was undone."""

    undone: tuple[TableName, ...]


@dataclass(frozen=True)
class FinishReport:
    """The targets whose migration was finished.

    Attributes:
        finished: The targets that this command finished.
        already: The targets that an earlier command finished.
        proofs: The comparisons of targets whose hand-over wasn't proved.
        certainties: For each target in ``finished``, how certain its hand-over point is.
    """

    finished: tuple[TableName, ...]
    already: tuple[TableName, ...] = ()
    proofs: tuple[Proof, ...] = ()
    certainties: tuple[tuple[TableName, Certainty], ...] = ()


def plan_data(
    plan: Plan,
    not_representable: Sequence[UnrepresentableRows] | None = None,
    starts: Sequence[Proof] | None = None,
) -> dict[str, Any]:
    """Return a plan as data for `cli.command.as_json`; unrepresentable rows contain values such as dates.

    ``not_representable`` and ``starts`` are the results of `check` and `check_start`, if they were called.
    """
    data: dict[str, Any] = {
        "pipelineId": plan.pipeline_id,
        "refused": bool(plan.refusals),
        "skipped": _skipped_data(plan.project.skipped),
        "targets": [
            {
                **_target_data(target),
                "steps": [str(step) for step in target.steps],
                "notes": list(target.notes),
                "warnings": [finding.to_dict() for finding in target.warnings],
                "refusals": [finding.to_dict() for finding in target.refusals],
                "nearest": target.nearest.to_dict() if target.nearest else None,
            }
            for target in plan.targets
        ],
    }
    if not_representable is not None:
        data["notRepresentable"] = [
            {
                "target": str(legacy.target),
                "count": legacy.count,
                "rows": list(legacy.rows),
                "leftOut": legacy.left_out,
            }
            for legacy in not_representable
        ]
    if starts is not None:
        data["starts"] = [_proof_data(proof) for proof in starts]
    return data


def run_data(run: RunReport) -> dict[str, Any]:
    """Return the results of a run as plain data."""
    return {
        "pipelineId": run.pipeline_id,
        "ok": run.ok,
        "skipped": _skipped_data(run.skipped),
        "targets": [
            {
                **_target_data(target.plan),
                "flows": [
                    {
                        "flow": result.flow.name,
                        "rows": result.rows,
                        "once": result.flow.once,
                        "broken": dict(result.violations),
                    }
                    for result in target.results
                ],
                "verdict": target.verdict.to_dict() if target.verdict else None,
            }
            for target in run.targets
        ],
    }


def status_data(status: StatusReport) -> dict[str, Any]:
    """Return a status as plain data."""
    return {
        "pipelineId": status.plan.pipeline_id,
        "complete": status.complete,
        "skipped": _skipped_data(status.plan.project.skipped),
        "targets": [
            {**_target_data(target), "refusals": [finding.to_dict() for finding in target.refusals]}
            for target in status.plan.targets
        ],
    }


def finish_data(finish: FinishReport) -> dict[str, Any]:
    """Return the results of `finish` as plain data."""
    return {
        "finished": [str(name) for name in finish.finished],
        "already": [str(name) for name in finish.already],
        "handOver": {str(name): certainty for name, certainty in finish.certainties},
        "proofs": [_proof_data(proof) for proof in finish.proofs],
    }


def verify_data(found: VerifyReport) -> dict[str, Any]:
    """Return the results of `verify` as plain data."""
    return {
        "pipelineId": found.pipeline_id,
        "ok": found.ok,
        "targets": [_proof_data(proof) for proof in found.proofs],
    }


def undo_data(undo: UndoReport) -> dict[str, Any]:
    """Return the results of `undo` as plain data."""
    return {"undone": [str(name) for name in undo.undone]}


def print_undo(console: Console, undo: UndoReport) -> None:
    """Print the results of `undo`."""
    for name in undo.undone:
        console.print(f"{name}: the take-over is undone; the old stream resumes where the flows stopped")
    console.print("Now start the old streams. The next run of the project takes the tables over again.")


def _proof_data(proof: Proof) -> dict[str, Any]:
    return {
        "target": str(proof.target),
        "proved": proof.proved,
        "ofStart": proof.of_start,
        "whyNot": proof.why_not or None,
        "rows": proof.rows,
        "commitsFromSources": proof.source_commits,
        "recordsFromKafka": proof.kafka_records,
        "verdict": proof.verdict.to_dict() if proof.verdict else None,
    }


def print_plan(
    console: Console,
    plan: Plan,
    not_representable: Sequence[UnrepresentableRows] | None = None,
    starts: Sequence[Proof] = (),
) -> None:
    """Print the steps, waits and findings of a plan, target by target."""
    for target in plan.targets:
        console.print(f"{target.target}: {_describe_phase(target)}")
        for number, step in enumerate(target.steps, 1):
            console.print(f"  {number}. {step}")
        for flow in target.flows:
            if flow.action == "idle":
                console.print(f"  - {flow.name}: nothing new")
            for wait in flow.waits:
                console.print(f"  - {flow.name} waits: {wait.why.message}")
        for note in target.notes:
            console.print(f"  - {note}")
        for warning in (*target.warnings, *_find_legacy_writes(target)):
            print_finding(console, warning, "  - ")
        for refusal in target.refusals:
            print_finding(console, refusal, "  ! ")
        if target.nearest:
            console.print(render(target.nearest))
        console.print()
    _print_skipped(console, plan.project.skipped)
    for legacy in not_representable or ():
        _print_not_representable(console, legacy)
    if not_representable is not None and not not_representable:
        console.print("Check: AUTO CDC can express every row that would be copied.")
    for proof in starts:
        _print_start(console, proof)
    if plan.refusals:
        console.print("Nothing can run until the lines marked ! are fixed.")
    elif plan.in_pipeline:
        console.print(f"Nothing was written. To perform these steps, run {_UPDATE}.")
    elif plan.steps:
        console.print("Nothing was written. `tableferry pipelines run` performs these steps.")
    else:
        console.print("Nothing to do.")


def print_run(console: Console, run: RunReport) -> None:
    """Print the results of a run and the state of each target."""
    for target in run.targets:
        for result in target.results:
            if result.flow.once and target.verdict and result is target.results[0]:
                console.print(f"{target.plan.target}: {_describe_copy(target.verdict, ' copied')}")
            elif result.flow.once:
                console.print(f"{target.plan.target}: {result.flow.name}, a run-once flow, ran")
            else:
                rows = "new events" if result.rows is None else counted(result.rows, "new row")
                console.print(f"{target.plan.target}: {result.flow.name} processed {rows}")
            for rule, count in result.violations.items():
                verb = "breaks" if count == 1 else "break"
                console.print(f"  {counted(count, 'row')} {verb} the rule '{rule}'")
        if not target.results:
            console.print(f"{target.plan.target}: nothing new")
    _print_state(console, [target.plan for target in run.targets], run.skipped, _RUN)


def print_prepared(console: Console, run: RunReport) -> None:
    """Print the comparisons of the copies and the state of each target."""
    for target in run.targets:
        if target.verdict:
            console.print(f"{target.plan.target}: {_describe_copy(target.verdict)}")
    _print_state(console, [target.plan for target in run.targets], run.skipped, _UPDATE)


def print_status(console: Console, status: StatusReport) -> None:
    """Print the state of each target."""
    plan = status.plan
    refusals = [refusal for target in plan.targets for refusal in target.refusals]
    command = _UPDATE if plan.in_pipeline else _RUN
    _print_state(console, plan.targets, plan.project.skipped, command, refusals)


def _print_state(
    console: Console,
    targets: Sequence[TargetPlan],
    skipped: Sequence[SkippedSpec],
    command: str,
    refusals: Sequence[Finding] = (),
) -> None:
    _print_targets(console, targets)
    _print_skipped(console, skipped)
    for refusal in refusals:
        print_finding(console, refusal, "! ")
    _print_next(console, targets, command)


def print_verify(console: Console, found: VerifyReport) -> None:
    """Print the results of `verify`."""
    for proof in found.proofs:
        _print_proof(console, proof)
    if not found.proofs:
        console.print("Nothing to compare: no target has a migration.")


def _print_proof(console: Console, proof: Proof) -> None:
    if proof.of_start:
        _print_start(console, proof)
        return
    if proof.verdict is None:
        console.print(f"{proof.target}: can't be proved: {proof.why_not}")
        return
    # One label is the target's. The other one names the legacy table or the sources.
    labels = (proof.verdict.source_label, proof.verdict.target_label)
    other = next(label for label in labels if label != str(proof.target))
    made = "made " if other is proof.verdict.target_label else ""
    if proof.source_commits:
        other += f" and {counted(proof.source_commits, 'later commit')} of the sources"
    if proof.kafka_records:
        other += f" and {counted(proof.kafka_records, 'later record')} of Kafka"
    if proof.proved:
        console.print(
            f"{proof.target}: proved: it contains exactly the {counted(proof.rows, 'row')} {made}of {other}"
            + _describe_excluded(proof.verdict)
        )
        return
    console.print(f"{proof.target}: DIFFERS from {other}:")
    console.print(render(proof.verdict))


def _print_start(console: Console, proof: Proof) -> None:
    verdict = proof.verdict
    if verdict is None:
        console.print(f"Check: the hand-over point of {proof.target} can't be proved: {proof.why_not}")
        return
    legacy, sources, rows = verdict.source_label, verdict.target_label, counted(proof.rows, "row")
    if verdict.matches:
        result = f"is proved: {legacy} contains exactly the {rows} made of {sources}"
    elif proof.only_legacy_has_more:
        result = (
            f"loses nothing: {legacy} contains all {rows} made of {sources}. It also has rows that the "
            "sources have lost, or that the flows will write again:"
        )
    else:
        result = f"is WRONG: {legacy} lacks rows of {sources}, which no flow will write:"
    console.print(f"Check: the hand-over point of {proof.target} {result}")
    if not verdict.matches:
        console.print(render(verdict))


def print_finish(console: Console, finish: FinishReport) -> None:
    """Print the results of `finish`."""
    for proof in finish.proofs:
        _print_proof(console, proof)
    certainties = dict(finish.certainties)
    for name in finish.finished:
        certainty = f" ({certainties[name]})" if name in certainties else ""
        console.print(
            f"{name}: finished{certainty}; its migration state is removed, its data and streaming flows stay"
        )
    for name in finish.already:
        console.print(f"{name}: already finished")
    console.print(
        "Now remove tableMigrationDetails from the spec."
        if finish.finished or finish.already
        else "Nothing to do."
    )


def _skipped_data(skipped: Sequence[SkippedSpec]) -> list[dict[str, Any]]:
    return [
        {
            "file": spec.file,
            "target": str(spec.target) if spec.target else None,
            "problems": [problem.to_dict() for problem in spec.problems],
        }
        for spec in skipped
    ]


def _print_skipped(console: Console, skipped: Sequence[SkippedSpec]) -> None:
    for spec in skipped:
        console.print(str(spec))


def _target_data(target: TargetPlan) -> dict[str, Any]:
    start = target.migration_start
    return {
        "target": str(target.target),
        "phase": target.phase,
        "copy": _copy_data(target, start) if start else None,
        "cutover": _cutover_data(target.state.cutover),
        "baselines": {str(base.table): base.version for base in start.baselines.values()} if start else {},
        "flows": [{"flow": flow.name, "action": flow.action} for flow in target.flows],
        "waitingFor": [
            {
                "table": str(wait.table),
                "baseline": wait.baseline,
                "current": wait.current,
                "why": wait.why.to_dict(),
            }
            for wait in target.waits
        ],
    }


def _cutover_data(cutover: Cutover | None) -> dict[str, Any] | None:
    if cutover is None:
        return None
    return {"name": str(cutover.name), "legacy": str(cutover.renamed), "phase": cutover.phase}


def _copy_data(target: TargetPlan, start: MigrationStart) -> dict[str, Any]:
    tracking, writes = target.state.tracking, target.legacy_writes
    commits, newest = (writes.foreign_commits, writes.batches) if writes else (None, {})
    return {
        "table": str(start.copy.table),
        "version": start.copy.version,
        "copied": target.state.copied,
        "rows": tracking.copied_rows if tracking else None,
        "verified": (tracking.verified or None) if tracking else None,
        "writtenSince": None if commits is None else {key: list(found) for key, found in commits.items()},
        "handOver": start.certainty,
        "oldStreams": {
            query: {"copied": batch, "newest": newest.get(query, batch)}
            for query, batch in start.batches.items()
        },
    }


def _print_targets(console: Console, targets: Sequence[TargetPlan]) -> None:
    rows = []
    for target in targets:
        tracking = target.state.tracking
        copied = tracking.copied_rows if tracking and target.state.copied else None
        rows.append(
            (
                target.target,
                _describe_phase(target),
                copied,
                _VERIFIED[tracking.verified] if tracking and target.dataflow.migration else None,
            )
        )
    report.table(console, ("target", "state", "rows copied", "copy verified"), rows)
    for target in targets:
        for wait in target.waits:
            console.print(f"{target.target} waits: {wait.why.message}")
        if (cutover := target.state.cutover) and cutover.is_done:
            console.print(
                f"{cutover.name} is a view of {target.target}; the legacy table is {cutover.renamed}"
            )
        for warning in _find_legacy_writes(target):
            print_finding(console, warning, "")


def _describe_phase(target: TargetPlan) -> str:
    """Return the sentence for a target's phase."""
    migration, phase = target.dataflow.migration, phase_label(target.phase)
    if target.phase == "complete" and target.migration_start:
        phase = phase.replace("complete", f"complete ({target.migration_start.certainty})")
    return phase.replace("copied", "taken over") if migration and migration.take_over else phase


def print_finding(console: Console, finding: Finding, mark: str) -> None:
    """Print a finding after a mark, and its remedy on the next line."""
    problem, remedy = f"{mark}[{finding.condition}] {finding.message}", f"{' ' * len(mark)}{finding.remedy}"
    console.print(problem)
    console.print(remedy)


def _find_legacy_writes(target: TargetPlan) -> Iterator[Finding]:
    """Yield a finding for each kind of write to the legacy table after the pinned version.

    For a table that was taken over, the plan's own refusals and warnings name such writes.
    """
    writes, start = target.legacy_writes, target.migration_start
    if writes is None or start is None or start.is_take_over:
        return
    if writes.batches:
        batches = ", ".join(f"batch {batch}" for batch in writes.batches.values())
        yield Finding("OLD_STREAM_STILL_RUNS", target=target.target, table=start.copy.table, batches=batches)
    if writes.foreign_commits:
        yield Finding(
            "LEGACY_TABLE_WRITTEN",
            target=target.target,
            table=start.copy.table,
            version=start.copy.version,
            writes=writes,
        )


_RUN = "`tableferry pipelines run`"
_UPDATE = "an update of the pipeline, with `tableferry pipelines prepare` before and after it"


def _print_next(console: Console, targets: Sequence[TargetPlan], command: str) -> None:
    phases = {target.phase for target in targets}
    if "complete" in phases:
        for target in targets:
            migration = target.dataflow.migration
            if migration and not target.state.cutover and not find_cutover_blockers(target):
                console.print(
                    f"Next: `tableferry pipelines cutover {target.target}` lets the readers of "
                    f"{migration.table} read {target.target}."
                )
        complete = ", ".join(str(target.target) for target in targets if target.phase == "complete")
        console.print(f"Next: `tableferry pipelines finish` ends the migration of {complete}.")
    if phases & {"new", "copying", "ready", "later"}:
        console.print(f"Next: {command}.")
    elif "waiting" in phases:
        console.print("Next: run again when the sources have new commits.")


def _print_not_representable(console: Console, legacy: UnrepresentableRows) -> None:
    consequence = "the spec excludes them" if legacy.left_out else "they stop the run"
    rows = counted(legacy.count, "row")
    console.print(f"Check: AUTO CDC can't represent {rows} of the copy for {legacy.target}; {consequence}:")
    for row in legacy.rows:
        values = ", ".join(f"{name}={value}" for name, value in row.items() if name != "__reason")
        console.print(f"  {row['__reason']}: {values}")
    if legacy.count > len(legacy.rows):
        console.print(f"  … and {legacy.count - len(legacy.rows):,} more")


def _describe_copy(verdict: Verdict, done: str = "") -> str:
    outcome = (
        f"matches the legacy table row for row{_describe_excluded(verdict)}"
        if verdict.matches
        else "DIFFERS from the legacy table: see `tableferry verify`"
    )
    return f"{verdict.source.rows:,} rows of history{done}; the copy {outcome}"


def _describe_excluded(verdict: Verdict) -> str:
    return f" ({joined(verdict.excluded)}: not compared)" if verdict.excluded else ""
