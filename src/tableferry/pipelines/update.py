"""The run path of the commands that write: decide and validate a plan, lock its targets, perform it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tableferry import storage
from tableferry.errors import Refused
from tableferry.pipelines.engines.performer import Runner, find_unrecorded_progress
from tableferry.pipelines.engines.plan_validation import validate_plan
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.engines.streaming.engine import StreamingEngine
from tableferry.pipelines.handover import proofs
from tableferry.pipelines.model.facts import Facts
from tableferry.pipelines.model.plan import Plan
from tableferry.pipelines.preparation import has_preparation_steps, prepare_targets
from tableferry.pipelines.reports import RunReport, TargetReport, UndoReport, VerifyReport
from tableferry.pipelines.take_over_undo import check_undo, undo_take_over
from tableferry.spark import session

if TYPE_CHECKING:
    from tableferry.pipelines.planning.project import OpenedProject


class Update:
    """A run, preparation, undo or comparison of an opened project's targets.

    The plan is decided before the lock, so a refusal or a run without work writes nothing. Under the lock, it
    is decided again only if another process changed the state in between.
    """

    def __init__(self, opened: OpenedProject, on_effect: EffectHook = lambda _: None) -> None:
        self.opened = opened
        self.runner = Runner(opened.store, opened.spark, on_effect)

    def run(self) -> RunReport:
        """Copy what isn't copied yet, process every commit that exists, and stop."""
        project, store, runner = self.opened.project, self.opened.store, self.runner
        if not storage.is_mounted(store.volume):
            raise Refused("STATE_VOLUME_NOT_MOUNTED", volume=store.volume)

        def run_flows(plan: Plan) -> None:
            runner.run(plan, StreamingEngine(self.opened.spark, store, before_effect=runner.before_effect))

        origin = f"{project.root}: pipeline_configs/global.json: spark_config"
        with session.settings(self.opened.spark, project.spark_config, origin):
            return self._update(lambda plan: bool(plan.steps), run_flows)

    def prepare(self) -> RunReport:
        """Perform the steps that an update of the project's declarative pipeline can't perform itself."""
        return self._update(
            lambda plan: any(has_preparation_steps(target, self.opened) for target in plan.targets),
            lambda plan: prepare_targets(plan, self.opened, self.runner),
        )

    def _update(self, has_work: Callable[[Plan], bool], perform: Callable[[Plan], None]) -> RunReport:
        """Perform a plan if it has work, record the progress, and report what remains to do."""
        plan, facts = self.decide(self._validate)
        if has_work(plan) or find_unrecorded_progress(plan, facts):
            with self.locked(plan, facts, self._validate) as (plan, facts):
                if has_work(plan):
                    perform(plan)
                    plan, facts = self.opened.after_run.decide_plan()
                self.runner.record_progress(find_unrecorded_progress(plan, facts))
        results, verdicts = self.runner.results, self.runner.verdicts
        targets = (
            TargetReport(
                target, tuple(results.get(target.dataflow.key, ())), verdicts.get(target.dataflow.key)
            )
            for target in plan.targets
        )
        return RunReport(plan.pipeline_id, tuple(targets), plan.project.skipped)

    def undo(self) -> UndoReport:
        """Return tables that were taken over to their old streams."""
        with self.opened.lock_targets() as self.runner.check_lease:
            plan, facts = self.opened.decide_plan()
            check_undo(plan, facts)
            for target in plan.targets:
                undo_take_over(self.opened.spark, self.opened.store, plan, target, self.runner.before_effect)
        return UndoReport(tuple(target.target for target in plan.targets))

    def verify(self) -> VerifyReport:
        """Compare targets with their legacy tables; writes nothing."""
        while True:
            plan, facts = self.opened.decide_plan()
            found = (
                proofs.prove_target(self.opened.spark, plan, target, facts)
                for target in plan.targets
                if target.phase != "finished"
            )
            report = VerifyReport(plan.pipeline_id, tuple(filter(None, found)))
            # Rows that another run has written since may be in one of the two tables only.
            if report.ok or self.opened.has_current_facts(facts):
                return report

    @contextmanager
    def locked(self, plan: Plan, facts: Facts, check: Callable[[Plan], None]) -> Iterator[tuple[Plan, Facts]]:
        """Lock the targets. Yield the plan, or another one if a process has changed their state since."""
        with self.opened.lock_targets() as self.runner.check_lease:
            if not self.opened.has_current_facts(facts):
                plan, facts = self.decide(check)
            yield plan, facts

    def decide(self, check: Callable[[Plan], None]) -> tuple[Plan, Facts]:
        """Gather facts, and return the plan that passes a check, with its facts."""
        plan, facts = self.opened.decide_plan()
        check(plan)
        return plan, facts

    def _validate(self, plan: Plan) -> None:
        validate_plan(plan, self.opened.spark)
