"""One change of a project's targets: decided and validated first, then performed under their lock."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from tableferry import files, session
from tableferry.errors import Refused
from tableferry.pipelines import preparing, proofs, undoing
from tableferry.pipelines.opening import OpenedProject
from tableferry.pipelines.perform import Before, Runner, progress
from tableferry.pipelines.plans import OVER, PHASES, Facts, LookBack, Plan, TargetPlan
from tableferry.pipelines.proofs import Proof
from tableferry.pipelines.reports import FinishReport, RunReport, TargetReport, UndoReport, VerifyReport

_log = logging.getLogger(__name__)


class Update:
    """One change of an opened project's targets.

    What is refused or has nothing to do leaves no trace, so all is decided before anything is locked. What
    another process does in between shows in the state, and all is decided again under the lock.
    """

    def __init__(
        self,
        opened: OpenedProject,
        before: Before = lambda _: None,
        *,
        refreshed: frozenset[str] = frozenset(),
        adopt: bool = False,
        drop_history: bool = False,
        look_back: LookBack = 0,
    ) -> None:
        self._opened, self._look_back = opened, look_back
        self._refreshed, self._adopt, self._drop_history = refreshed, adopt, drop_history
        self._runner = Runner(opened.store, opened.spark, before)

    def run(self) -> RunReport:
        """Copy what isn't copied, take every commit that is there, and stop."""
        project, store = self._opened.project, self._opened.store
        for skipped in project.skipped:
            _log.warning("%s", skipped)
        if not files.is_mounted(store.volume):
            raise Refused(
                f"{store.volume} isn't mounted here, and from outside no run can lock it: start "
                "the pipeline or the job that the bundle deploys; plan, status and finish work from here"
            )
        origin = f"{project.root}: pipeline_configs/global.json: spark_config"
        with session.settings(self._opened.spark, project.spark_config, origin):
            return self._advance(lambda plan: bool(plan.steps), self._runner.run)

    def prepare(self) -> RunReport:
        """Do what an update of the project's declarative pipeline can't do itself."""
        return self._advance(
            lambda plan: any(preparing.is_needed(target, self._opened) for target in plan.targets),
            lambda plan: preparing.prepare(plan, self._opened, self._runner),
        )

    def finish(self, *, verify: bool = True) -> FinishReport:
        """Remove the state of complete migrations, once the old streams' rows are compared with theirs."""
        compared: list[Proof] = []

        def remove(plan: Plan, facts: Facts) -> tuple[Plan, Facts]:
            if verify:
                compared.extend(self._proofs(plan, facts, only_recorded=True))
                _check_proofs(compared)
            for target in _migrating(plan):
                self._runner.guard(self._opened.spark)
                # First, for nobody looks for the clone any more once the state is gone.
                preparing.clear(target, self._opened)
                self._opened.store.finish(target.target)
            return plan, facts

        plan = self._perform(_check_complete, lambda plan, _: bool(_migrating(plan)), remove)
        targets = _migrating(plan)
        return FinishReport(
            tuple(target.target for target in targets if target.phase != "finished"),
            tuple(target.target for target in targets if target.phase == "finished"),
            tuple(compared),
        )

    def undo(self) -> UndoReport:
        """Give tables that were taken over back to their old streams."""
        with self._opened.locked() as self._runner.guard:
            plan, facts = self._opened.decided()
            undoing.check(plan, facts)
            for target in plan.targets:
                undoing.undo(self._opened.spark, self._opened.store, plan, target, self._runner.before)
        return UndoReport(tuple(target.target for target in plan.targets))

    def verify(self) -> VerifyReport:
        """Compare targets with their legacy tables; writes nothing."""
        while True:
            plan, facts = self._opened.decided()
            report = VerifyReport(plan.pipeline_id, tuple(self._proofs(plan, facts)))
            # What another run brings meanwhile may be on one side only.
            if report.ok or self._opened.hold(facts):
                return report

    def _proofs(self, plan: Plan, facts: Facts, *, only_recorded: bool = False) -> Iterator[Proof]:
        for target in plan.targets:
            proof = proofs.prove(self._opened.spark, plan, target, facts, only_recorded=only_recorded)
            if proof and target.phase != "finished":
                yield proof

    def _advance(self, has_work: Callable[[Plan], bool], work: Callable[[Plan], None]) -> RunReport:
        """Perform the work of a plan, if there is any, and record how far each target is then."""

        def advance(plan: Plan, facts: Facts) -> tuple[Plan, Facts]:
            if has_work(plan):
                work(plan)
                plan, facts = self._opened.decided()
            self._runner.track(progress(plan, facts))
            return plan, facts

        plan = self._perform(
            self._runner.validate,
            lambda plan, facts: has_work(plan) or bool(progress(plan, facts)),
            advance,
        )
        return RunReport(plan.pipeline_id, tuple(map(self._target_report, plan.targets)))

    def _perform(
        self,
        validate: Callable[[Plan], None],
        is_needed: Callable[[Plan, Facts], bool],
        perform: Callable[[Plan, Facts], tuple[Plan, Facts]],
    ) -> Plan:
        plan, facts = self._decide(validate)
        if is_needed(plan, facts):
            with self._opened.locked() as self._runner.guard:
                if not self._opened.hold(facts, self._refreshed):
                    plan, facts = self._decide(validate)
                plan, facts = perform(plan, facts)
        return plan

    def _decide(self, validate: Callable[[Plan], None]) -> tuple[Plan, Facts]:
        plan, facts = self._opened.decided(
            self._refreshed,
            adopt=self._adopt,
            drop_history=self._drop_history,
            look_back=self._look_back,
        )
        validate(plan)
        return plan, facts

    def _target_report(self, target: TargetPlan) -> TargetReport:
        key = target.target.key
        return TargetReport(target, tuple(self._runner.results.get(key, ())), self._runner.verdicts.get(key))


def _migrating(plan: Plan) -> tuple[TargetPlan, ...]:
    """Return the targets that have, or had, a migration."""
    return tuple(
        target for target in plan.targets if target.dataflow.migration or target.stored.migration_start
    )


def _check_proofs(found: Iterable[Proof]) -> None:
    """Refuse to take a migration out whose rows aren't proved to be the old streams'."""
    refusals = [
        f"{proof.target}: "
        + (proof.why_not or "it doesn't hold what the old streams wrote: see `tableferry pipelines verify`")
        + "; or finish it with --no-verify"
        for proof in found
        if not proof.proved
    ]
    if refusals:
        raise Refused("\n".join(refusals))


def _check_complete(plan: Plan) -> None:
    unfinished = [target for target in _migrating(plan) if target.phase not in OVER]
    if unfinished:
        raise Refused(
            "\n".join(
                f"{target.target}: its migration isn't complete ({PHASES[target.phase]}"
                + "".join(f"; {wait.table} {wait.why}" for wait in target.waits)
                + "): run the project until `tableferry pipelines status` says complete"
                for target in unfinished
            )
        )
