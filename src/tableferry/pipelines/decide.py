"""Decides, from facts alone, what each target of a project needs next: same facts, same plan, and no Spark.

The rules: a baseline is recorded once; a live flow whose source hasn't moved past its baseline is left out of
the plan, never gated inside it; the copy is pinned; what can't be known is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from tableferry.pipelines.flows import DataFlow, Flow, HistorySource, Migration, Project, View
from tableferry.pipelines.plans import (
    HISTORY_FLOW,
    HISTORY_VIEW,
    Checkpoint,
    Facts,
    FlowPlan,
    Phase,
    Plan,
    Request,
    TargetPlan,
    Wait,
)
from tableferry.pipelines.reads import Read, views_behind
from tableferry.pipelines.state import Baseline, Beginning, PinnedCopy, Stored
from tableferry.pipelines.steps import (
    Adopt,
    Begin,
    DrawAppend,
    DrawCdc,
    DrawTable,
    DrawView,
    Forget,
    RenameFlow,
    Reset,
    Start,
    Step,
)
from tableferry.tables import TableFacts, TableName


def decide(project: Project, facts: Facts, request: Request) -> Plan:
    """Decide what a run of the project does."""
    ordered = in_order(project, facts.reads)
    producers = {target.name.key: one for one in ordered for target in (one.target, *one.staging)}
    filling: set[str] = set()
    plans = []
    for one in ordered:
        if not request.only or one.target.name.key in request.only:
            plan = _Target(one, ordered, producers, facts, request, filling).plan()
            filling |= {step.flow.target.key for step in plan.steps if isinstance(step, DrawAppend | DrawCdc)}
            plans.append(plan)
    return Plan(project, request.pipeline_id, tuple(plans))


def in_order(project: Project, reads: Mapping[tuple[str, str], Sequence[Read]]) -> tuple[DataFlow, ...]:
    """Order data flows so that each comes after those whose targets it reads; circles stay as they are."""
    by_target = {one.target.name.key: one for one in project.dataflows}
    needs = {
        key: {read.table.key for flow in one.flows for read in reads.get((key, flow.name), ())}
        & by_target.keys() - {key}
        for key, one in by_target.items()
    }
    try:
        return tuple(by_target[key] for key in TopologicalSorter(needs).static_order())
    except CycleError:
        return project.dataflows


class _Target:
    """The decision for one target; collects notes and refusals while it looks."""

    def __init__(
        self,
        dataflow: DataFlow,
        ordered: Sequence[DataFlow],
        producers: Mapping[str, DataFlow],
        facts: Facts,
        request: Request,
        filling: Iterable[str],
    ) -> None:
        self.dataflow, self.ordered, self.producers = dataflow, ordered, producers
        self.facts, self.request = facts, request
        self.filling = set(filling)
        self.name = dataflow.target.name
        self.notes: list[str] = []
        self.refusals: list[str] = []
        self.steps: list[Step] = []
        self.stored = facts.stored.get(self.name.key, Stored())

    def plan(self) -> TargetPlan:
        self._adopt()
        migration = self.dataflow.migration
        finished = migration is not None and self._finished()
        if finished:
            migration = None
            self.notes.append("its migration is finished: remove tableMigrationDetails from the spec")
        later = self._uncopied_producers() if migration and not self.stored.beginning else ()
        if later:
            self.notes.append(f"begins once {_listed(later)} holds its copied history")
            return self._result("later", (), None)
        beginning = self._beginning(migration) if migration else None
        if migration is None and not finished:
            self._end()
        if migration and beginning is None:
            # Refused: where its flows start can't be judged without a beginning.
            return self._result("refused", (), None)
        generation = self._reset(beginning)
        copied = self._copied and generation == self.stored.generation and not self.stored.resetting
        copy = migration is not None and not copied
        flows = tuple(self._flow(flow, migration, beginning, generation) for flow in self._in_order())
        if migration is None:
            phase: Phase = "finished" if finished else "plain"
        elif self.stored.beginning is None:
            phase = "new"
        elif copy:
            phase = "copying"
        else:
            actions = {flow.action for flow in flows}
            phase = "waiting" if "wait" in actions else "ready" if "start" in actions else "complete"
            if self.stored.tracking and self.stored.tracking.verified == "differ":
                phase = "differs"
                self.notes.append(
                    "its copy differs from the legacy table: see what with `tableferry verify`, then rebuild "
                    f"it with --full-refresh {self.name}"
                )
        if copy and migration and beginning:
            self._check_legacy(migration, beginning)
        self._draw(migration if copy else None, beginning, flows, generation)
        return self._result(phase, flows, beginning, copy=copy, generation=generation)

    def _result(
        self,
        phase: Phase,
        flows: tuple[FlowPlan, ...],
        beginning: Beginning | None,
        *,
        copy: bool = False,
        generation: int = 0,
    ) -> TargetPlan:
        refused = bool(self.refusals)
        return TargetPlan(
            self.dataflow,
            "refused" if refused else phase,
            () if refused else tuple(self.steps),
            flows,
            tuple(dict.fromkeys(self.notes)),
            tuple(dict.fromkeys(self.refusals)),
            beginning,
            self.stored,
            copy,
            generation,
        )

    @property
    def _copied(self) -> bool:
        tracking = self.stored.tracking
        return tracking is not None and tracking.copied == self.stored.generation

    def _adopt(self) -> None:
        if self.stored.beginning or not self.stored.elsewhere or not self.dataflow.migration:
            return
        others = ", ".join(self.stored.elsewhere)
        if not self.request.adopt:
            self.refusals.append(
                f"{self.name}: its migration began under pipelineId={others}, not "
                f"{self.request.pipeline_id}: run with --adopt to go on from there"
            )
        elif len(self.stored.elsewhere) > 1:
            self.refusals.append(
                f"{self.name}: its state is recorded under several pipelines ({others}): keep the right "
                "one's folders under initial_versions and tracking, and remove the others"
            )
        else:
            other = self.stored.elsewhere[0]
            self.steps.append(Adopt(self.name, other))
            found = self.facts.adoptable[self.name.key]
            self.stored = replace(found, generation=self.stored.generation, resetting=self.stored.resetting)

    def _finished(self) -> bool:
        """Say whether the migration was taken out by `finish` and only the spec still has it."""
        if self.stored.beginning or self.stored.elsewhere or self.name.key not in self.facts.filled:
            return False
        live = [flow for flow in self.dataflow.flows if not flow.once]
        return bool(live) and all(self._checkpoint(flow).offsets for flow in live)

    def _uncopied_producers(self) -> tuple[TableName, ...]:
        """Targets of this project that the migration reads and whose own history isn't copied yet."""
        if not (self.dataflow.migration and self.dataflow.migration.auto_starting_versions):
            return ()
        found = {}
        for read in self._reads():
            maker = self.producers.get(read.table.key)
            if maker and maker is not self.dataflow and maker.migration and read.explicit is None:
                stored = self.facts.stored.get(maker.target.name.key, Stored())
                if not (stored.tracking and stored.tracking.copied == stored.generation):
                    found[maker.target.name.key] = maker.target.name
        return tuple(found.values())

    def _beginning(self, migration: Migration) -> Beginning | None:
        if self.stored.beginning:
            if self.stored.beginning.copy.table.key != migration.table.key:
                self.refusals.append(
                    f"{migration.place}: the migration of {self.name} began with "
                    f"{self.stored.beginning.copy.table}, and the spec now names {migration.table}: name the "
                    "first one again"
                )
            return self.stored.beginning
        legacy = self.facts.tables.get(migration.table.key)
        if migration.table.key == self.name.key:
            self.refusals.append(
                f"{migration.place}: {self.name} can't be copied into itself: name the legacy table"
            )
        elif legacy is None:
            self.refusals.append(
                f"{migration.place}: table {migration.table} doesn't exist: correct database and table"
            )
        if self.name.key in self.facts.filled and not self.refusals:
            self.refusals.append(
                f"{self.dataflow.target.place}: {self.name} already has data that this migration didn't "
                "bring: empty or drop it; if its migration is finished, take tableMigrationDetails out of "
                "the spec"
            )
        baselines: dict[str, Baseline] = {}
        if migration.auto_starting_versions:
            for read in self._reads():
                self._add_baseline(baselines, read)
        if legacy is None or self.refusals:
            return None
        copy = PinnedCopy(migration.table, legacy.table_id, legacy.version)
        beginning = Beginning(self.request.pipeline_id, self.name, copy, baselines, self.request.now)
        self.steps.append(Begin(beginning))
        return beginning

    def _add_baseline(self, baselines: dict[str, Baseline], read: Read) -> None:
        if read.unseen:
            if read.explicit is None:
                self.refusals.append(f"{read.place}: {read.unseen}")
            return
        source = self.facts.tables.get(read.table.key)
        if source is None:
            maker = self.producers.get(read.table.key)
            if maker is None:
                self.refusals.append(
                    f"{read.place}: table {read.table} doesn't exist: restore it, or correct the spec"
                )
            elif maker is not self.dataflow and read.explicit is None and not self._starts_known(maker):
                self.refusals.append(
                    f"{read.place}: {read.table} is made by this project and doesn't exist yet, so it can't "
                    f"be known which of its rows {self.name} already holds: run the project once without "
                    "this migration, or give readerOptions.startingVersion (0 = all its rows)"
                )
            return
        if self._staged(read):
            return
        known = baselines.get(read.table.key) or Baseline(read.table, source.table_id, source.version)
        views = known.views if read.view in known.views else (*known.views, read.view)
        baselines[read.table.key] = replace(known, views=views)

    def _starts_known(self, maker: DataFlow) -> bool:
        """Say whether all that will flow into another target comes after starts that the user gave."""
        reads = [
            read
            for flow in maker.flows
            for read in self.facts.reads.get((maker.target.name.key, flow.name), ())
        ]
        return bool(reads) and all(read.explicit is not None for read in reads)

    def _staged(self, read: Read) -> bool:
        """Say whether this spec makes the table: all its rows are new, for its own sources are tracked."""
        return self.producers.get(read.table.key) is self.dataflow

    def _end(self) -> None:
        """Look at state that outlived its migration: it may go once nothing depends on it."""
        if not self.stored.beginning:
            return
        started = all(self._checkpoint(flow).offsets for flow in self.dataflow.flows if not flow.once)
        if self._copied and started:
            self.steps.append(Forget(self.name))
            self.notes.append("its migration is complete and switched off: its state files are removed")
        else:
            self.refusals.append(
                f"{self.dataflow.file}: tableMigrationDetails of {self.name} is switched off before the "
                "migration is complete: switch it on again until `tableferry pipelines status` says complete"
            )

    def _reset(self, beginning: Beginning | None) -> int:
        stored = self.stored
        wanted = self.name.key in self.request.full_refresh
        begun = stored.beginning is not None or self._any_checkpoint()
        if not stored.resetting and not (wanted and begun):
            return stored.generation
        generation = stored.generation + (0 if stored.resetting else 1)
        tables = []
        for target in (self.dataflow.target, *self.dataflow.staging):
            tables.append(target.name)
            if target.cdc:
                tables.append(self.request.log_table(target.name))
        self.steps.append(Reset(self.name, tuple(tables), generation))
        self.notes.append("full refresh: readers that stream from it must be refreshed too")
        if stored.beginning is None:
            self.notes.append("full refresh without a migration: only what its sources still hold comes back")
        return generation

    def _any_checkpoint(self) -> bool:
        return any(self._checkpoint(flow) != Checkpoint() for flow in self.dataflow.flows)

    def _checkpoint(self, flow: Flow) -> Checkpoint:
        found = self.facts.checkpoints.get((self.name.key, flow.name), Checkpoint())
        return found if found != Checkpoint() else self._renamed(flow)[1]

    def _renamed(self, flow: Flow) -> tuple[str, Checkpoint]:
        """Find the checkpoint that a flow had under a name that the spec no longer has.

        It has read the same tables. A start of the user's own means a new flow.
        """
        reads = self._followed(flow)
        ids = {source.table_id for read in reads if (source := self.facts.tables.get(read.table.key))}
        if len(ids) != len({read.table.key for read in reads}) or any(
            read.explicit is not None for read in reads
        ):
            return "", Checkpoint()
        orphans = self.facts.orphans.get(self.name.key, {})
        found = [(name, one) for name, one in orphans.items() if one.offsets and one.offsets.keys() == ids]
        if len(found) > 1:
            self.refusals.append(
                f"{flow.place}: {flow.name} is new, and {' and '.join(name for name, _ in found)}, which the "
                "spec no longer has, read the same tables: give the flow the name of the one that it "
                "continues"
            )
        return found[0] if len(found) == 1 else ("", Checkpoint())

    def _checkpointed(self) -> set[tuple[str, str]]:
        return {key for key, found in self.facts.checkpoints.items() if found != Checkpoint()}

    def _reads(self) -> Iterable[Read]:
        for flow in self.dataflow.flows:
            if not flow.once:
                yield from self._followed(flow)

    def _flow(
        self, flow: Flow, migration: Migration | None, beginning: Beginning | None, generation: int
    ) -> FlowPlan:
        fresh = generation != self.stored.generation or self.stored.resetting
        checkpoint = Checkpoint() if fresh else self._checkpoint(flow)
        if (
            not fresh
            and (self.name.key, flow.name) not in self._checkpointed()
            and (old := self._renamed(flow)[0])
        ):
            self.steps.append(RenameFlow(self.name, generation, old, flow.name))
        if flow.once:
            return FlowPlan(flow, "done" if checkpoint.done else "start")
        if self.dataflow.views[flow.view].mode == "batch":
            self.refusals.append(
                f"{flow.place}: {flow.view} is a batch view: make it mode stream, or the flow once"
            )
            return FlowPlan(flow, "wait")
        started = bool(checkpoint.offsets)
        starts: dict[str, dict[str, Start]] = {}
        waits: list[Wait] = []
        idle = started and not checkpoint.pending
        for read in self._followed(flow):
            if read.unseen:
                idle = False
                continue
            source = self.facts.tables.get(read.table.key)
            made_here = read.table.key in self.producers
            if source is None and not made_here:
                self.refusals.append(
                    f"{read.place}: table {read.table} doesn't exist: restore it, or correct the spec"
                )
                continue
            if source is None and not started and read.table.key not in self.filling:
                waits.append(Wait(read.table, None, None, "isn't made yet"))
                continue
            offset = checkpoint.offsets.get(source.table_id) if source else None
            baseline = beginning.baselines.get(read.table.key) if beginning else None
            if source and self._recreated(read, source, baseline, checkpoint):
                continue
            idle = idle and bool(
                source
                and offset
                and offset.whole
                and source.version < offset.version
                and read.table.key not in self.filling
            )
            start = self._start(read, migration, baseline, source, started)
            if start is None:
                continue
            starts.setdefault(read.view, {})[read.table.key] = start
            if not started and isinstance(start, int) and source is not None:
                if source.version < start:
                    waits.append(
                        Wait(read.table, start - 1, source.version, "has no commit after its baseline")
                    )
                elif self.facts.earliest.get(read.table.key, 0) > start:
                    self.refusals.append(
                        f"{read.place}: {read.table} can't be read from version {start} any more (the oldest "
                        f"is {self.facts.earliest[read.table.key]}): give readerOptions.startingVersion and "
                        "bring what lies between by hand, or restore the log"
                    )
        if not started and migration and not waits:
            waits += self._held()
        action: Literal["start", "continue", "idle", "wait"] = (
            "wait" if waits else "idle" if idle else "continue" if started else "start"
        )
        if action in ("start", "continue"):
            self.filling.add(flow.target.key)
        return FlowPlan(flow, action, starts, tuple(waits))

    def _in_order(self) -> Iterable[Flow]:
        """Order flows so that staging tables are filled before they are read."""
        into: dict[str, list[Flow]] = {}
        for flow in self.dataflow.flows:
            into.setdefault(flow.target.key, []).append(flow)
        needs = {
            key: {read.table.key for flow in flows for read in self._followed(flow)} & into.keys() - {key}
            for key, flows in into.items()
        }
        try:
            return [flow for key in TopologicalSorter(needs).static_order() for flow in into[key]]
        except CycleError:
            return self.dataflow.flows

    def _followed(self, flow: Flow) -> tuple[Read, ...]:
        return self.facts.reads.get((self.name.key, flow.name), ())

    def _recreated(
        self, read: Read, source: TableFacts, baseline: Baseline | None, checkpoint: Checkpoint
    ) -> bool:
        anew = baseline is not None and baseline.table_id != source.table_id
        unknown = bool(checkpoint.offsets) and source.table_id not in checkpoint.offsets
        if anew or (unknown and baseline is None):
            self.refusals.append(
                f"{read.place}: {read.table} was dropped and made anew since {self.name} last knew it, so no "
                "version of it means what it meant: restore the old table, or finish this source and add the "
                "new one as a source of its own with readerOptions.startingVersion (0 = all of it)"
            )
            return True
        return False

    def _start(
        self,
        read: Read,
        migration: Migration | None,
        baseline: Baseline | None,
        source: TableFacts | None,
        started: bool,
    ) -> Start | None:
        """Return where a stream starts; None where it starts at the table's own start."""
        if read.explicit is not None:
            self.notes.append(f"{read.view} starts at {read.explicit} of {read.table}, as the spec says")
            return read.explicit
        if migration is None or self._staged(read):
            return None
        if not migration.auto_starting_versions:
            if not started and source is not None:
                rows = self.facts.rows.get(read.table.key)
                self.notes.append(
                    f"warning: {read.view} reads {read.table} from its start ({source.version + 1} commits"
                    + (f", {rows:,} rows" if rows is not None else "")
                    + "), for no readerOptions.startingVersion is given: rows that the copy already has "
                    "come twice"
                )
            return None
        if baseline is not None:
            return baseline.version + 1
        if source is not None and not started:
            self.refusals.append(
                f"{read.place}: {read.table} joined after the migration of {self.name} began, so nobody "
                "knows where it must start: give readerOptions.startingVersion (0 = all of it)"
            )
        return None

    def _held(self) -> list[Wait]:
        """Wait until migrations that read this target have recorded where they begin."""
        if self._copied and not self.stored.resetting:
            return []
        held = []
        for other in self.ordered:
            key = other.target.name.key
            stored = self.facts.stored.get(key, Stored())
            reads = (read for flow in other.flows for read in self.facts.reads.get((key, flow.name), ()))
            if (
                other is not self.dataflow
                and other.migration
                and other.migration.auto_starting_versions
                and stored.beginning is None
                and any(read.table.key == self.name.key and read.explicit is None for read in reads)
            ):
                held.append(Wait(other.target.name, None, None, "must record where it begins first"))
        return held

    def _check_legacy(self, migration: Migration, beginning: Beginning) -> None:
        legacy = self.facts.tables.get(migration.table.key)
        if legacy is None:
            self.refusals.append(
                f"{migration.place}: table {migration.table} is gone and its history isn't in {self.name}: "
                "restore it"
            )
        elif legacy.table_id != beginning.copy.table_id or legacy.version < beginning.copy.version:
            self.refusals.append(
                f"{migration.place}: {migration.table} was dropped and made anew since its copy was pinned "
                f"to version {beginning.copy.version}: restore the old table"
            )

    def _draw(
        self,
        copied: Migration | None,
        beginning: Beginning | None,
        flows: Sequence[FlowPlan],
        generation: int,
    ) -> None:
        running = [one for one in flows if one.action in ("start", "continue")]
        if not running and not copied:
            return
        views = self.dataflow.views
        for table in (*self.dataflow.staging, self.dataflow.target):
            into = [one for one in flows if one.flow.target.key == table.name.key]
            filled = any(one.action in ("continue", "idle", "done") for one in into)
            filled |= table is self.dataflow.target and beginning is not None and copied is None
            self.steps.append(DrawTable(table, create=not filled))
        if copied and beginning:
            source = HistorySource(copied, beginning.copy.version, self.dataflow.target.cdc)
            self.steps.append(DrawView(View(HISTORY_VIEW, "batch", source, copied.place), once=True))
            self._fill(
                Flow(HISTORY_FLOW, "append", self.name, HISTORY_VIEW, place=copied.place),
                generation,
                once=True,
            )
        drawn: set[str] = set()
        for one in running:
            for name in views_behind(views, one.flow.view):
                if name not in drawn:
                    drawn.add(name)
                    self.steps.append(DrawView(views[name], one.starts.get(name, {}), once=one.flow.once))
            self._fill(one.flow, generation, once=one.flow.once)

    def _fill(self, flow: Flow, generation: int, *, once: bool) -> None:
        target = next(
            one for one in (self.dataflow.target, *self.dataflow.staging) if one.name.key == flow.target.key
        )
        if target.cdc and (flow.kind == "cdc" or flow.name == HISTORY_FLOW):
            self.steps.append(DrawCdc(replace(flow, kind="cdc"), self.name, generation, target.cdc, once))
        else:
            self.steps.append(DrawAppend(flow, self.name, generation, once))


def _listed(names: Iterable[TableName]) -> str:
    return " and ".join(str(name) for name in names)
