"""What the commands of pipeline migration report."""

from __future__ import annotations

from dataclasses import dataclass

from tableferry import verify
from tableferry.pipelines.flows import Skipped
from tableferry.pipelines.plans import OVER, Plan, TargetPlan
from tableferry.pipelines.proofs import Proof
from tableferry.pipelines.state import Certainty
from tableferry.pipelines.streaming import FlowResult
from tableferry.spark.tables import TableName


@dataclass(frozen=True)
class TargetReport:
    """What a run did to one target, and where it stands now.

    Attributes:
        plan: What was planned, decided anew after the run.
        results: What each flow did.
        verdict: How the copy compares with the legacy table, if it was made in this run.
    """

    plan: TargetPlan
    results: tuple[FlowResult, ...] = ()
    verdict: verify.Verdict | None = None


@dataclass(frozen=True)
class RunReport:
    """What one update did.

    Attributes:
        pipeline_id: The pipeline whose state was used.
        targets: In the order in which they were filled.
        skipped: The specs that the engine can't run, or that use what Tableferry doesn't handle.
    """

    pipeline_id: str
    targets: tuple[TargetReport, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every copy that was made equals its legacy table."""
        return all(target.verdict is None or target.verdict.matches for target in self.targets)


@dataclass(frozen=True)
class StatusReport:
    """Where each target stands: a plan that nobody performs."""

    plan: Plan

    @property
    def complete(self) -> bool:
        """Whether every migration of the project is complete."""
        return all(target.phase in OVER for target in self.plan.targets)


@dataclass(frozen=True)
class VerifyReport:
    """How targets compare with their legacy tables, each as far as both are known to be."""

    pipeline_id: str
    proofs: tuple[Proof, ...]

    @property
    def ok(self) -> bool:
        """Whether every target is proved to hold the same."""
        return all(proof.proved for proof in self.proofs)


@dataclass(frozen=True)
class UndoReport:
    """The targets that were given back to their old streams."""

    undone: tuple[TableName, ...]


@dataclass(frozen=True)
class FinishReport:
    """The targets whose migration was taken out, and whose was out already.

    Attributes:
        proofs: How those whose hand-over isn't proved yet compare with their legacy tables.
        certainties: What shows where each of ``finished`` was handed over.
    """

    finished: tuple[TableName, ...]
    already: tuple[TableName, ...] = ()
    proofs: tuple[Proof, ...] = ()
    certainties: tuple[tuple[TableName, Certainty], ...] = ()
