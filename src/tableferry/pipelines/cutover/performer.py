"""Perform the steps of a cutover or its undo: each checks the ids of what it changes, then changes it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, Protocol, assert_never

from tableferry.errors import Refused, TableError
from tableferry.pipelines.cutover.facts import Entry
from tableferry.pipelines.cutover.plan import CutoverPlan
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
from tableferry.pipelines.engines.port import EffectHook
from tableferry.pipelines.state.store import StateStore
from tableferry.progress import task
from tableferry.spark.catalog import explaining
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from tableferry.access.unity_catalog import UnityAccess

_log = logging.getLogger(__name__)


class CutoverCatalog(Protocol):
    """The catalog of the legacy table and of the view."""

    def read(self, name: TableName) -> Entry:
        """Return the catalog entry of a name."""

    def list_columns(self, name: TableName) -> tuple[str, ...]:
        """Return the names of the columns that readers of a view get."""

    def rename_statement(self, name: TableName, to: TableName, kind: Literal["TABLE", "VIEW"]) -> str:
        """Return the statement that renames a table or a view."""

    def execute(self, statement: str) -> None:
        """Run a statement."""


class CutoverPerformer:
    """Performs the steps of one plan."""

    def __init__(
        self, catalog: CutoverCatalog, store: StateStore, access: UnityAccess | None, before: EffectHook
    ) -> None:
        """Store the catalog, the state and the access; ``before`` is called before each effect."""
        self._catalog, self._store, self._access, self._before = catalog, store, access, before

    def perform(self, plan: CutoverPlan) -> None:
        """Perform all steps.

        Raises:
            TableError: A table or view isn't the expected one any more, or a statement failed.
            Refused: The created view hasn't the columns that readers expect; no reader was cut over.
            Busy: Another run has taken over the target.
        """
        for step in plan.steps:
            self._before(str(step))
            with task(_log, str(step), table=plan.facts.target):
                self._perform(step, plan)

    def _perform(self, step: CutoverStep, plan: CutoverPlan) -> None:
        match step:
            case RecordCutover(target, cutover):
                self._store.record_cutover(target, cutover)
            case RemoveCutover(target):
                self._store.record_cutover(target, None)
            case CreateView():
                self._create_view(step, plan)
            case CarryAccess(source, view):
                assert self._access is not None
                self._access.carry_to_view(source, view)
            case RenameLegacyTable(name, to, table_id):
                if self._catalog.read(to).is_legacy(table_id):
                    return
                self._require(self._catalog.read(name).is_legacy(table_id), name, "the legacy table")
                self._run(name, self._catalog.rename_statement(name, to, "TABLE"))
            case RenameView(name, to, table_id):
                if self._catalog.read(to).is_cutover_view(table_id):
                    return
                self._require(self._catalog.read(name).is_cutover_view(table_id), name, "the view")
                self._run(name, self._catalog.rename_statement(name, to, "VIEW"))
            case DropView(view, table_id):
                entry = self._catalog.read(view)
                if entry.kind != "missing":
                    self._require(entry.is_cutover_view(table_id), view, "the view")
                    self._run(view, f"DROP VIEW {view.sql}")
            case _:
                assert_never(step)

    def _create_view(self, step: CreateView, plan: CutoverPlan) -> None:
        definition, view = step.definition, step.view
        existing, target = self._catalog.read(view), self._catalog.read(definition.target)
        free = existing.kind == "missing" or existing.is_cutover_view(definition.table_id)
        self._require(free, view, "free")
        self._require(target.table_id == step.target_id, definition.target, "the migration's target")
        with explaining("VIEW_NOT_CUT_OVER", view=view, target=definition.target):
            if existing.definition != definition.fingerprint:
                # A view that is up to date keeps the grants that it has already.
                self._catalog.execute(definition.statement(view))
            found = self._catalog.list_columns(view)
        if not definition.shows(found):
            self._run(view, f"DROP VIEW {view.sql}")
            raise Refused(
                "VIEW_WITHOUT_COLUMNS",
                view=view,
                found=list(found),
                name=plan.facts.names.name,
                expected=list(definition.names),
                target=definition.target,
            )

    def _require(self, expected: bool, name: TableName, what: str) -> None:
        if not expected:
            raise TableError("CUTOVER_OBJECT_CHANGED", name=name, expected=what)

    def _run(self, name: TableName, statement: str) -> None:
        with explaining("CUTOVER_STATEMENT_FAILED", name=name, statement=statement):
            self._catalog.execute(statement)
