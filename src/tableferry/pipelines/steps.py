"""The effects of a pipeline migration as data: what is planned, described and performed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tableferry.pipelines.flows import CdcSettings, Flow, HistorySource, Target, View
from tableferry.pipelines.identities import FlowSettings
from tableferry.pipelines.state import MigrationStart
from tableferry.tables import TableName

Start = int | str
"""A starting version, ``latest``, or ``timestamp:…`` for a starting timestamp."""


@dataclass(frozen=True)
class Adopt:
    """Take over the state that another pipeline recorded of this target."""

    target: TableName
    pipeline_id: str


@dataclass(frozen=True)
class Begin:
    """Record the baselines and the pinned copy, before the first row is copied."""

    migration_start: MigrationStart


@dataclass(frozen=True)
class Reset:
    """Drop the target's data and checkpoints, so that the same history is rebuilt."""

    target: TableName
    tables: tuple[TableName, ...]
    generation: int


@dataclass(frozen=True)
class RenameFlow:
    """Let a flow go on from the checkpoint that it had under another name."""

    target: TableName
    generation: int
    old: str
    new: str


@dataclass(frozen=True)
class Forget:
    """Take out a migration that is complete and switched off."""

    target: TableName


@dataclass(frozen=True)
class DefineTable:
    """Make sure that a streaming table is there.

    Attributes:
        target: The table.
        create: It may be made; else it must be there, for flows have filled it already.
        once: Nothing but run-once flows fills it in this update.
        history: The table and version whose history it holds, or will; empty for none.
    """

    target: Target
    create: bool = True
    once: bool = False
    history: str = ""


@dataclass(frozen=True)
class DefineView:
    """Name an input.

    Attributes:
        view: What it reads.
        owner: The spec's own target; a view's name is known to the flows of its spec alone.
        starts: Where its streams start, by `TableName.key`; a table that isn't named is read from its start,
            and None goes on from a checkpoint, whatever start the user's own options name.
        once: Only a run-once flow reads it.
    """

    view: View
    owner: TableName
    starts: Mapping[str, Start | None] = field(default_factory=dict)
    once: bool = False


@dataclass(frozen=True)
class DefineAppend:
    """Append a view's rows to the target.

    Attributes:
        flow: What goes where.
        owner: The spec's own target, to which the checkpoint belongs.
        generation: The owner's generation.
        once: It runs a single time.
        identify: Record this of the flow before it brings rows; None where that is done.
        ahead: It starts where one of its sources has no commit yet.
    """

    flow: Flow
    owner: TableName
    generation: int
    once: bool = False
    identify: FlowSettings | None = None
    ahead: bool = False


@dataclass(frozen=True)
class DefineAutoCdc:
    """Apply a view's events to the target as AUTO CDC does; the fields are those of `DefineAppend`."""

    flow: Flow
    owner: TableName
    generation: int
    settings: CdcSettings
    once: bool = False
    identify: FlowSettings | None = None
    ahead: bool = False


StateStep = Adopt | Begin | Reset | RenameFlow | Forget
Definition = DefineTable | DefineView | DefineAppend | DefineAutoCdc
Step = StateStep | Definition


def describe(step: Step) -> str:
    """Say in one line what a step does."""
    match step:
        case Adopt(target, pipeline_id):
            return f"adopt the state of {target} from pipeline {pipeline_id}"
        case Begin(migration_start):
            sources = ", ".join(
                f"{one.table}@{one.version}" for one in sorted(migration_start.baselines.values())
            )
            copy = f"copy pinned to {migration_start.copy.table}@{migration_start.copy.version}"
            return f"record where {migration_start.target} begins: {copy}, " + (
                f"baselines {sources}" if sources else "no baselines"
            )
        case Reset(target, tables):
            return f"drop the data and checkpoints of {target}: " + ", ".join(str(table) for table in tables)
        case RenameFlow(target, _, old, new):
            return f"let {new} of {target} go on from the checkpoint of {old}"
        case Forget(target):
            return f"remove the state files of {target}: its migration is over"
        case DefineTable(target, create):
            return f"create {target.name} unless it's there" if create else f"fill {target.name}"
        case DefineView(view, _, starts, once):
            return f"read {view.name}" + _reading(view, starts, once)
        case DefineAppend(flow, _, _, once):
            return f"append {flow.view} to {flow.target}" + (", once" if once else "")
        case DefineAutoCdc(flow, _, _, settings, once):
            kind = f"SCD type {settings.scd_type}"
            return f"apply {flow.view} to {flow.target} as {kind}" + (", once" if once else "")
        case _:
            assert_never(step)


def _reading(view: View, starts: Mapping[str, Start | None], once: bool) -> str:
    if isinstance(view.source, HistorySource):
        return f": {view.source.migration.table} as of version {view.source.version}"
    if once or view.mode == "batch":
        return " whole"
    said = (f" from {key}@{'checkpoint' if one is None else one}" for key, one in sorted(starts.items()))
    return "".join(said) or " from the start"
