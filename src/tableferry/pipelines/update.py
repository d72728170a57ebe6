"""The run path of the commands that write: decide and validate a plan, lock its targets, perform it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tableferry import storage
from tableferry.errors import Finding, Refused
from tableferry.pipelines import preparation
from tableferry.pipelines.engines.performer import Runner, find_unrecorded_progress
from tableferry.pipelines.engines.plan_validation import validate_plan
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.engines.streaming.engine import StreamingEngine
from tableferry.pipelines.handover import proofs
from tableferry.pipelines.handover.proofs import Proof
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.phases import OVER, phase_label
from tableferry.pipelines.model.plan import LookBack, Plan, TargetPlan
from tableferry.pipelines.model.steps import AdoptRenamedState
from tableferry.pipelines.planning.baseline import is_assumed
from tableferry.pipelines.reports import FinishReport, RunReport, TargetReport, UndoReport, VerifyReport
from tableferry.pipelines.take_over_undo import check_undo, undo_take_over
from tableferry.spark import session

if TYPE_CHECKING:
    from tableferry.pipelines.planning.project import OpenedProject


class Update:
    """A run, preparation, finish or undo of an opened project's targets.

    The plan is decided before the lock, so a refusal or a run without work writes nothing. Under the lock, it
    is decided again only if another process changed the state in between.
    """

    def __init__(
        self,
        opened: OpenedProject,
        on_effect: EffectHook = lambda _: None,
        *,
        refreshed: frozenset[str] = frozenset(),
        adopt: bool = False,
        drop_history: bool = False,
        look_back: LookBack = 0,
        through_connect: bool = False,
    ) -> None:
        self._opened, self._look_back, self._through_connect = opened, look_back, through_connect
        self._refreshed, self._adopt, self._drop_history = refreshed, adopt, drop_history
        self._runner = Runner(opened.store, opened.spark, on_effect)

    def run(self) -> RunReport:
        """Copy what isn't copied yet, process every commit that exists, and stop."""
        project, store = self._opened.project, self._opened.store
        if not storage.is_mounted(store.volume):
            raise Refused("STATE_VOLUME_NOT_MOUNTED", volume=store.volume)
        origin = f"{project.root}: pipeline_configs/global.json: spark_config"
        with session.settings(self._opened.spark, project.spark_config, origin):
            plan, facts = self._decide(self._validate)
            if plan.steps or find_unrecorded_progress(plan, facts):
                with self._locked(plan, facts, self._validate) as (plan, facts):
                    if plan.steps:
                        plan, facts = self._perform(plan)
                    self._runner.record_progress(find_unrecorded_progress(plan, facts))
            return self._report(plan)

    def _perform(self, plan: Plan) -> tuple[Plan, Facts]:
        """Perform a plan, and return what remains to do."""
        self._run_flows(plan)
        if any(isinstance(step, AdoptRenamedState) for step in plan.steps):
            # The renamed state decides the next steps.
            plan, _ = self._decide(self._validate)
            self._run_flows(plan)
        return self._opened.decide_plan()

    def _run_flows(self, plan: Plan) -> None:
        runner, opened = self._runner, self._opened
        runner.run(plan, StreamingEngine(opened.spark, opened.store, before_effect=runner.before_effect))

    def prepare(self) -> RunReport:
        """Perform the steps that an update of the project's declarative pipeline can't perform itself."""
        plan, facts = self._decide(self._validate)
        if self._needs_preparation(plan) or find_unrecorded_progress(plan, facts):
            with self._locked(plan, facts, self._validate) as (plan, facts):
                if self._needs_preparation(plan):
                    preparation.prepare_targets(plan, self._opened, self._runner)
                    if any(isinstance(step, AdoptRenamedState) for step in plan.steps):
                        plan, _ = self._decide(self._validate)
                        preparation.prepare_targets(plan, self._opened, self._runner)
                    plan, facts = self._opened.decide_plan()
                self._runner.record_progress(find_unrecorded_progress(plan, facts))
        return self._report(plan)

    def _needs_preparation(self, plan: Plan) -> bool:
        return any(preparation.has_preparation_steps(target, self._opened) for target in plan.targets)

    def finish(self, *, verify: bool = True, accept_assumed: bool = False) -> FinishReport:
        """Remove the state of complete migrations, after rows or the user confirmed the hand-over."""
        compared: list[Proof] = []
        plan, facts = self._decide(_check_complete)
        if _migrating(plan):
            with self._locked(plan, facts, _check_complete) as (plan, facts):
                if verify:
                    compared += self._prove_targets(plan, facts, accept_assumed=accept_assumed)
                _check_proofs(compared)
                if not accept_assumed:
                    _check_assumed(plan, compared)
                for target in _migrating(plan):
                    self._runner.check_lease(self._opened.spark)
                    # The clone goes first: without state, no run finds it.
                    preparation.drop_pinned_clone(target, self._opened)
                    self._opened.store.finish(target.target)
        targets = _migrating(plan)
        finished = [target for target in targets if target.phase != "finished"]
        proved = {proof.target for proof in compared if proof.proved}
        return FinishReport(
            tuple(target.target for target in finished),
            tuple(target.target for target in targets if target.phase == "finished"),
            tuple(compared),
            tuple(
                (target.target, "proved" if target.target in proved else target.migration_start.certainty)
                for target in finished
                if target.migration_start
            ),
        )

    def _prove_targets(self, plan: Plan, facts: Facts, *, accept_assumed: bool) -> Iterator[Proof]:
        """Compare the targets whose hand-over wasn't proved at the start."""
        for target in _migrating(plan):
            start = target.migration_start
            if start is None or target.phase == "finished" or start.certainty == "proved":
                continue
            if start.certainty == "recorded":
                if proof := proofs.prove_target(self._opened.spark, plan, target, facts):
                    yield proof
            elif is_assumed(target.dataflow, target.migration_start) and not accept_assumed:
                proof = proofs.prove_start(self._opened.spark, target)
                if not proof.proved:
                    # The old job may have caught up with the flows.
                    now = proofs.prove_target(self._opened.spark, plan, target, facts)
                    proof = now if now and now.proved else proof
                yield proof

    def undo(self) -> UndoReport:
        """Return tables that were taken over to their old streams."""
        with self._opened.lock_targets() as self._runner.check_lease:
            plan, facts = self._opened.decide_plan()
            check_undo(plan, facts)
            for target in plan.targets:
                undo_take_over(
                    self._opened.spark, self._opened.store, plan, target, self._runner.before_effect
                )
        return UndoReport(tuple(target.target for target in plan.targets))

    def verify(self) -> VerifyReport:
        """Compare targets with their legacy tables; writes nothing."""
        while True:
            plan, facts = self._opened.decide_plan()
            found = (
                proofs.prove_target(self._opened.spark, plan, target, facts)
                for target in plan.targets
                if target.phase != "finished"
            )
            report = VerifyReport(plan.pipeline_id, tuple(filter(None, found)))
            # Rows that another run has written since may be in one of the two tables only.
            if report.ok or self._opened.has_current_facts(facts):
                return report

    @contextmanager
    def _locked(
        self, plan: Plan, facts: Facts, check: Callable[[Plan], None]
    ) -> Iterator[tuple[Plan, Facts]]:
        """Lock the targets. Yield the plan, or another one if a process has changed their state since."""
        with self._opened.lock_targets() as self._runner.check_lease:
            if not self._opened.has_current_facts(facts, self._refreshed):
                plan, facts = self._decide(check)
            yield plan, facts

    def _decide(self, check: Callable[[Plan], None]) -> tuple[Plan, Facts]:
        """Gather facts, and return the plan that passes a check, with its facts."""
        plan, facts = self._opened.decide_plan(
            self._refreshed,
            adopt=self._adopt,
            drop_history=self._drop_history,
            look_back=self._look_back,
            through_connect=self._through_connect,
        )
        check(plan)
        return plan, facts

    def _validate(self, plan: Plan) -> None:
        validate_plan(plan, self._opened.spark)

    def _report(self, plan: Plan) -> RunReport:
        targets = tuple(map(self._target_report, plan.targets))
        return RunReport(plan.pipeline_id, targets, plan.project.skipped)

    def _target_report(self, target: TargetPlan) -> TargetReport:
        key = target.target.key
        return TargetReport(target, tuple(self._runner.results.get(key, ())), self._runner.verdicts.get(key))


def _migrating(plan: Plan) -> tuple[TargetPlan, ...]:
    """Return the targets that have, or had, a migration."""
    return tuple(
        target for target in plan.targets if target.dataflow.migration or target.state.migration_start
    )


def _check_proofs(found: Iterable[Proof]) -> None:
    """Refuse to finish a migration whose rows differ from what its old streams wrote."""
    refusals = [
        Finding("TARGET_NOT_PROVED", target=proof.target, reason=proof.why_not)
        if proof.why_not
        else Finding("TARGET_DIFFERS", target=proof.target)
        for proof in found
        if not proof.proved and not proof.of_start
    ]
    if refusals:
        raise Refused.of(refusals)


def _check_assumed(plan: Plan, found: Collection[Proof]) -> None:
    """Refuse to finish a migration whose hand-over is assumed and not proved."""
    proofs_by_target = {proof.target: proof for proof in found}
    refusals = []
    for target in _migrating(plan):
        proof = proofs_by_target.get(target.target)
        if (
            target.phase == "finished"
            or not is_assumed(target.dataflow, target.migration_start)
            or (proof and proof.proved)
        ):
            continue
        refusals.append(
            Finding("ASSUMED_HAND_OVER_NOT_PROVED", target=target.target, reason=_why_not_proved(proof))
        )
    if refusals:
        raise Refused.of(refusals)


def _why_not_proved(proof: Proof | None) -> str:
    if proof is None or proof.verdict is None:
        return f"no rows prove it ({proof.why_not if proof else '--no-verify'})"
    legacy, sources = proof.verdict.source_label, proof.verdict.target_label
    if proof.only_legacy_has_more:
        return f"{legacy} has all rows made of {sources}, and others that the flows may have written again"
    return f"{legacy} lacks rows made of {sources}, so the target may lack them"


def _check_complete(plan: Plan) -> None:
    unfinished = [target for target in _migrating(plan) if target.phase not in OVER]
    if unfinished:
        raise Refused.of([_not_complete(target) for target in unfinished])


def _not_complete(target: TargetPlan) -> Finding:
    reasons = [phase_label(target.phase), *(wait.why.sentence for wait in target.waits)]
    return Finding("MIGRATION_NOT_COMPLETE", target=target.target, reason="; ".join(reasons))
