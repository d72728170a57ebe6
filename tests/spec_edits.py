"""Random edits of a data flow spec between runs, and a plain-Python model of the rows of its target.

`tests/unit/test_spec_edits.py` runs these scenarios without Spark, `tests/spark/test_spec_edits.py` with it.
The model is computed only from the commits of the sources and the specs, without calls of the package.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import deltalake
import pyarrow as pa
from hypothesis import strategies as st

from tableferry.errors import Refused, TableferryError
from tableferry.pipelines.model.phases import PHASES, Phase

Row = tuple[int, int, int | None]
"""Number, value, and a column that only one of the select lists adds."""

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.int32())])
SOURCES = ("a", "b", "c")
"""The old job always reads the first source; edits add the other ones."""

WHERES: Mapping[str | None, Callable[[int], bool]] = {
    None: lambda v: True,
    "v > 0": lambda v: v > 0,
    "v < 2": lambda v: v < 2,
}
SELECTS: Mapping[tuple[str, ...], Any] = {
    (): lambda number, v: (number, v, None),
    ("id", "v"): lambda number, v: (number, v, None),
    ("id", "CAST(v + 10 AS INT) AS v"): lambda number, v: (number, v + 10, None),
    ("id", "v", "id AS extra"): lambda number, v: (number, v, number),
}
OPTIONS = ((), ("ignoreDeletes",), ("skipChangeCommits",), ("ignoreDeletes", "skipChangeCommits"))
HAND_OVERS = ("version", "content", "auto", "explicit")

CommitKind = Literal["append", "delete", "update"]
EditKind = Literal[
    "where",
    "select",
    "options",
    "start",
    "add a flow",
    "remove a flow",
    "rename a flow",
    "another source",
    "disable a flow",
    "rename the target",
    "another legacy table",
    "hand-over",
    "compareExcept",
    "migration",
    "empty the target",
    "revert",
    "last good spec",
]
BENIGN = frozenset(("where", "select", "compareExcept", "last good spec"))
"""The edits after which a migration must continue to run."""


@dataclass(frozen=True)
class FlowText:
    """One flow of the spec."""

    source: str
    where: str | None = None
    select: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    start: int | None = None
    enabled: bool = True


@dataclass(frozen=True)
class SpecText:
    """The spec as the user wrote it; each source occurs once."""

    flows: Mapping[str, FlowText]
    target: str = "out"
    legacy: str = "legacy"
    hand_over: str = "version"
    compare_except: tuple[str, ...] = ()
    migrates: bool = True

    @property
    def running(self) -> Mapping[str, FlowText]:
        """The enabled flows."""
        return {name: flow for name, flow in self.flows.items() if flow.enabled}

    def to_json(self, schema: str) -> dict[str, Any]:
        """Return the JSON of the spec."""

        def view(flow: FlowText) -> dict[str, Any]:
            options = dict.fromkeys(flow.options, "true")
            options |= {} if flow.start is None else {"startingVersion": str(flow.start)}
            details = {
                "database": schema,
                "table": flow.source,
                "cdfEnabled": False,
                **({"whereClause": [flow.where]} if flow.where else {}),
                **({"selectExp": list(flow.select)} if flow.select else {}),
                **({"readerOptions": options} if options else {}),
            }
            return {"mode": "stream", "sourceType": "delta", "sourceDetails": details}

        flows = {
            name: {
                "enabled": flow.enabled,
                "flowType": "append_view",
                "flowDetails": {"targetTable": f"{schema}.{self.target}", "sourceView": f"v_{name}"},
                "views": {f"v_{name}": view(flow)},
            }
            for name, flow in self.flows.items()
        }
        return {
            "dataFlowId": "edited",
            "dataFlowGroup": "g",
            "dataFlowType": "flow",
            "targetFormat": "delta",
            "targetDetails": {"database": schema, "table": self.target},
            "tableMigrationDetails": {
                "enabled": self.migrates,
                "catalogType": "hms",
                "handOver": self.hand_over,
                "compareExcept": list(self.compare_except),
                "sourceDetails": {"database": schema, "table": self.legacy},
            },
            "flowGroups": [{"flowGroupId": "main", "flows": flows}],
        }


@dataclass(frozen=True)
class Edit:
    """One change of the spec; the numbers choose the flow and the new value."""

    kind: EditKind
    which: int = 0
    value: int = 0


@dataclass(frozen=True)
class SourceWrite:
    """One commit to a source; the old job doesn't process an unread one."""

    source: str
    kind: CommitKind
    values: tuple[int, ...]
    unread: bool = False


@dataclass(frozen=True)
class Turn:
    """Edits and commits, followed by a run."""

    edits: tuple[Edit, ...]
    writes: tuple[SourceWrite, ...]


def _choices(kinds: Sequence[EditKind]) -> st.SearchStrategy[Edit]:
    return st.builds(Edit, st.sampled_from(kinds), st.integers(0, 2), st.integers(0, 3))


WRITES = st.builds(
    SourceWrite,
    st.sampled_from((*SOURCES, "a", "a")),
    st.sampled_from(("append", "append", "append", "append", "delete", "update")),
    st.lists(st.integers(0, 2), min_size=1, max_size=3).map(tuple),
    st.sampled_from((False, False, True)),
)


def _turns(kinds: Sequence[EditKind]) -> st.SearchStrategy[list[Turn]]:
    edits = st.lists(_choices(kinds), max_size=2).map(tuple)
    turns = st.builds(Turn, edits, st.lists(WRITES, max_size=3).map(tuple))
    return st.lists(turns, min_size=3, max_size=7)


# Each scenario has a few kinds of edits, so that they interact.
TURNS = st.lists(st.sampled_from(get_args(EditKind)), min_size=2, max_size=5, unique=True).flatmap(_turns)
STARTS = st.builds(
    SpecText,
    st.lists(st.sampled_from(OPTIONS), min_size=1, max_size=2).map(
        lambda options: {
            f"f_{source}": FlowText(source, options=option)
            for source, option in zip(SOURCES, options, strict=False)
        }
    ),
    hand_over=st.sampled_from(("version", "content", "auto")),
    migrates=st.sampled_from((True, True, True, False)),
)


FIRST = st.sampled_from(((0, 1, 2), ()))

Drawn = tuple[SpecText, tuple[int, ...], list[Turn]]
"""A scenario: the first spec, the values of the first rows, and the turns."""

KNOWN: Sequence[Drawn] = (
    # A flow with a start is renamed, a filter is changed, and the target is renamed.
    (
        SpecText({"f_a": FlowText("a")}, hand_over="auto"),
        (0, 1, 2),
        [
            Turn((), ()),
            Turn(
                (Edit("add a flow", 0, 1), Edit("where", 0, 1)),
                (SourceWrite("a", "append", (0, 1)), SourceWrite("b", "append", (1,))),
            ),
            Turn((Edit("rename a flow", 1), Edit("select", 0, 3)), (SourceWrite("b", "append", (2,)),)),
            Turn((Edit("last good spec"), Edit("rename the target")), (SourceWrite("a", "append", (2,)),)),
            Turn((Edit("last good spec"), Edit("options", 0, 1)), (SourceWrite("a", "delete", ()),)),
        ],
    ),
    # The migration is added after a run, and the target is emptied before it starts.
    (
        SpecText({"f_a": FlowText("a")}, migrates=False),
        (0, 1, 2),
        [
            Turn((), ()),
            Turn((Edit("migration"),), (SourceWrite("a", "append", (1,)),)),
            Turn((Edit("empty the target"),), (SourceWrite("a", "append", (2,)),)),
        ],
    ),
    # The source of a flow is replaced before the flow has read a row.
    (
        SpecText({"f_b": FlowText("b")}, migrates=False),
        (0, 1, 2),
        [Turn((), ()), Turn((Edit("another source"),), ()), Turn((), ())],
    ),
)


@dataclass
class Source:
    """The commits of a source table; version 0 created it.

    Attributes:
        files: The rows of each current file, by the version that added it.
        commits: The kind of each version and the rows that it added.
    """

    files: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    commits: list[tuple[str, tuple[tuple[int, int], ...]]] = field(default_factory=lambda: [("create", ())])

    @property
    def version(self) -> int:
        """The newest version."""
        return len(self.commits) - 1

    @property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """All rows of the newest version."""
        return tuple(row for file in self.files.values() for row in file)

    def rows_at(self, version: int) -> set[int]:
        """Return the numbers of the rows of a version."""
        found: set[int] = set()
        for kind, rows in self.commits[: version + 1]:
            numbers = {number for number, _ in rows}
            found = found - numbers if kind == "delete" else found | numbers
        return found


class Backend(Protocol):
    """Runs the project on the tables of a folder."""

    root: Path
    lake: Path
    schema: str

    def register(self, table: str) -> None:
        """Register a table in the catalog."""

    def run(self) -> None:
        """Run the project once."""

    def status(self) -> tuple[Phase, str]:
        """Return the target's phase, and the certainty of its hand-over (empty without a hand-over)."""

    def baselines(self, target: str) -> Mapping[str, int] | None:
        """Return the recorded baselines by the source's short name; None before they are recorded."""


@dataclass
class TargetModel:
    """The expected contents of one target.

    Attributes:
        rows: All rows.
        position: The next version to read of each source that a flow has read.
        started: Whether the migration has started.
        copied: Whether the target contains the initial copy.
        baselines: The recorded baselines, which never change.
        gaps: Rows that the hand-over lost or duplicated.
        phase: The phase after the last run.
    """

    rows: Counter[Row] = field(default_factory=Counter)
    position: dict[str, int] = field(default_factory=dict)
    started: bool = False
    finished: bool = False
    legacy: str = ""
    copied: bool = False
    baselines: dict[str, int] = field(default_factory=dict)
    gaps: set[int] = field(default_factory=set)
    phase: Phase | None = None


@dataclass
class Scenario:
    """One migration whose spec is edited between runs.

    Attributes:
        backend: Runs the project.
        spec: The current spec.
        first: The values of the first rows of the first source and the legacy table.
        sources: The sources by name.
        legacy: The rows of the legacy table.
        targets: The models of all targets that the spec has named.
        history: The earlier specs, the newest last.
        good: The spec of the last run that was neither refused nor failed.
        edited: The kinds of the edits since then.
        readers: The names of the flows that have read a source.
    """

    backend: Backend
    spec: SpecText
    first: tuple[int, ...] = (0, 1, 2)
    sources: dict[str, Source] = field(default_factory=dict)
    legacy: list[tuple[int, int]] = field(default_factory=list)
    targets: dict[str, TargetModel] = field(default_factory=dict)
    history: list[SpecText] = field(default_factory=list)
    good: SpecText | None = None
    edited: set[str] = field(default_factory=set)
    numbers: Any = field(default_factory=lambda: count(1))
    log: list[str] = field(default_factory=list)
    readers: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for table in (*SOURCES, "legacy", "other"):
            deltalake.write_deltalake(self._folder(table), SCHEMA.empty_table())
            self.backend.register(table)
        self.sources = {name: Source() for name in SOURCES}
        configuration = self.backend.root / "pipeline_configs" / "global.json"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(json.dumps({"table_migration_state_volume_path": "state"}))
        if self.first:
            self.write(SourceWrite("a", "append", self.first))
        self._write_spec()

    @property
    def model(self) -> TargetModel:
        """The model of the target that the spec names."""
        return self.targets.setdefault(self.spec.target, TargetModel())

    @property
    def is_started(self) -> bool:
        """Whether the migration has started; then the old job doesn't run."""
        return any(model.started for model in self.targets.values())

    def play(self, turns: Sequence[Turn]) -> None:
        """Play all turns."""
        try:
            for turn in turns:
                for edit in turn.edits:
                    self.edit(edit)
                for write in turn.writes:
                    self.write(write)
                self.run()
        except Exception as error:
            error.add_note("\n".join(self.log))
            raise

    # Commits and edits of users.

    def write(self, write: SourceWrite) -> None:
        """Commit to a source; the old job copies the rows to the legacy table before the migration."""
        source, folder = self.sources[write.source], self._folder(write.source)
        rows: tuple[tuple[int, int], ...]
        if write.kind == "append":
            rows = tuple((next(self.numbers), value) for value in write.values)
            _append(folder, rows)
            source.files[source.version + 1] = rows
            if write.source in self._old_job_sources and not self.is_started and not write.unread:
                _append(self._folder("legacy"), rows)
                self.legacy += rows
        elif not source.files:
            return
        else:
            oldest = min(source.files)
            rows = source.files.pop(oldest)
            where = f"id IN ({', '.join(str(number) for number, _ in rows)})"
            if write.kind == "delete":
                deltalake.DeltaTable(folder).delete(where)
            else:
                deltalake.DeltaTable(folder).update({"v": "CAST((v + 1) % 3 AS INT)"}, predicate=where)
                rows = tuple((number, (value + 1) % 3) for number, value in rows)
                source.files[source.version + 1] = rows
        source.commits.append((write.kind, rows))
        self.log.append(f"{write.source}@{source.version}: {write.kind} {rows}, legacy {self.legacy}")

    @property
    def _old_job_sources(self) -> frozenset[str]:
        """The sources that the old job reads."""
        return frozenset(flow.source for flow in (self.history or [self.spec])[0].flows.values())

    def edit(self, edit: Edit) -> None:
        """Change the spec or empty the target, if that is possible."""
        if edit.kind == "empty the target":
            self._empty_target()
            return
        edited = self._apply_edit(edit)
        if edited is None or edited == self.spec:
            return
        self.history.append(self.spec)
        self.spec = edited
        self.edited.add(edit.kind)
        self.log.append(f"edit: {edit.kind}: {edited}")
        self._write_spec()

    def _empty_target(self) -> None:
        """Delete all rows of the target before the migration starts, as a refusal requests."""
        if self.model.rows and not self.model.started:
            deltalake.DeltaTable(self._folder(self.spec.target)).delete()
            self.model.rows.clear()
            self.edited.add("empty the target")
            self.log.append("by hand: the target was emptied")

    def _apply_edit(self, edit: Edit) -> SpecText | None:
        spec = self.spec
        names = sorted(spec.flows)
        name = names[edit.which % len(names)]
        flow = spec.flows[name]
        free = [source for source in SOURCES if source not in {each.source for each in spec.flows.values()}]

        def with_flow(**changes: Any) -> SpecText:
            return replace(spec, flows={**spec.flows, name: replace(flow, **changes)})

        match edit.kind:
            case "where":
                return with_flow(where=list(WHERES)[edit.value % len(WHERES)])
            case "select":
                return with_flow(select=list(SELECTS)[edit.value % len(SELECTS)])
            case "options":
                return with_flow(options=OPTIONS[edit.value])
            case "start":
                return with_flow(start=self._choose_start(flow.source, edit.value))
            case "add a flow" if free:
                source = free[edit.which % len(free)]
                added = FlowText(
                    source, start=self._choose_start(source, edit.value), options=OPTIONS[edit.which]
                )
                return replace(spec, flows={**spec.flows, f"f_{source}{next(self.numbers)}": added})
            case "remove a flow" if len(names) > 1:
                return replace(spec, flows={each: spec.flows[each] for each in names if each != name})
            case "rename a flow":
                renamed = {f"{name}x" if each == name else each: spec.flows[each] for each in spec.flows}
                return replace(spec, flows=renamed)
            case "another source" if free:
                return with_flow(source=free[edit.value % len(free)])
            case "disable a flow" if not flow.enabled or len(spec.running) > 1:
                return with_flow(enabled=not flow.enabled)
            case "rename the target":
                return replace(spec, target="renamed" if spec.target == "out" else "out")
            case "another legacy table":
                return replace(spec, legacy="other" if spec.legacy == "legacy" else "legacy")
            case "hand-over":
                return replace(spec, hand_over=HAND_OVERS[edit.value])
            case "compareExcept":
                return replace(spec, compare_except=() if spec.compare_except else ("v",))
            case "migration":
                return replace(spec, migrates=not spec.migrates)
            case "revert" if self.history:
                return self.history[-1]
            case "last good spec" if self.good:
                self.edited.clear()
                return self.good
        return None

    def _choose_start(self, source: str, value: int) -> int | None:
        return (None, 0, 1, self.sources[source].version + 1)[value]

    # Actions of the project, compared with the model.

    def run(self) -> None:
        """Run the project, and compare its effects with the model."""
        state, tables = self._state(), self._tables()
        model, before, is_edited = self.model, Counter(self.model.rows), bool(self.edited)
        self.log.append(f"run: {self.spec}")
        try:
            self.backend.run()
        except TableferryError as error:
            failure: TableferryError | None = error
        else:
            failure = None
        self.log.append(f"  {type(failure).__name__}: {failure}" if failure else "  done")
        if isinstance(failure, Refused):
            assert self._state() == state, "a refused run changed the state"
            assert self._tables() == tables, "a refused run changed a target"
            # A commit that can't be skipped is found when planning, or stops the flow at its first run.
            assert self._may_refuse() or self._must_fail(model), "refused without need"
        elif failure:
            self._record_start(model)
            assert self._must_fail(model), "failed without need"
            self._apply_partial_run(model, before)
        else:
            assert not self._must_refuse(), f"ran, although {self._must_refuse()}"
            self._record_start(model)
            assert not self._must_fail(model), "a commit was skipped that the options don't allow to skip"
            self._copy_history(model)
            for flow in self.spec.running.values():
                self._read(model, flow)
            model.finished |= model.started and not self.spec.migrates
            self._compare(model)
            self.good = self.spec
            self.edited.clear()
        self._check_baselines()
        self._check_status(model, is_edited=is_edited)

    def _check_status(self, model: TargetModel, *, is_edited: bool) -> None:
        phase, certainty = self.backend.status()
        if model.phase and not is_edited and phase not in (model.phase, "refused"):
            assert phase in PHASES[model.phase].next, f"{phase} doesn't follow {model.phase}"
        model.phase = phase
        self.log.append(f"  status: {phase} {certainty}")
        if certainty == "proved":
            assert not model.gaps, f"proved, although the hand-over lost or duplicated {sorted(model.gaps)}"
        if phase == "complete":
            assert model.copied, "complete without its history"
            unread = [flow.source for flow in self.spec.running.values() if flow.source not in model.position]
            assert not unread, f"complete, although no flow has read {unread}"

    def _compare(self, model: TargetModel) -> None:
        actual = self._rows(self.spec.target)
        assert actual == model.rows, f"missing {model.rows - actual}, duplicated {actual - model.rows}"

    def _must_refuse(self) -> str:
        """Return why a run must be refused; empty if it may succeed."""
        model = self.model
        others = [each for name, each in self.targets.items() if name != self.spec.target]
        begun = {each.legacy for each in others if each.started and not each.finished}
        if self.spec.migrates and not model.started and self.spec.legacy in begun:
            return "the legacy table's migration began for another target"
        if model.started and not model.finished:
            if self.spec.migrates and self.spec.legacy != model.legacy:
                return "another legacy table is named"
            if not self.spec.migrates and not (
                model.copied and all(flow.source in model.position for flow in self.spec.running.values())
            ):
                return "its migration is switched off before it is complete"
            for flow in self.spec.running.values():
                known = flow.source in model.position or flow.source in model.baselines
                if not known and flow.start is None:
                    return f"it is unknown where {flow.source} starts"
        if self.spec.migrates and not model.started and model.rows:
            return "the target has other rows"
        return ""

    def _may_refuse(self) -> bool:
        """Return whether a run may be refused: not without an edit or after only benign ones."""
        if self._must_refuse() or self.good is None:
            return True
        return not self.edited <= BENIGN

    def _record_start(self, model: TargetModel) -> None:
        """Read the baselines of the first run, and derive the gaps from the commits of the sources."""
        baselines = self.backend.baselines(self.spec.target)
        if model.started or baselines is None:
            return
        model.started, model.baselines, model.legacy = True, dict(baselines), self.spec.legacy
        model.position.clear()
        legacy = {number for number, _ in self.legacy} if self.spec.legacy == "legacy" else set()
        for flow in self.spec.running.values():
            if flow.start is None:
                source, baseline = self.sources[flow.source], baselines[flow.source]
                passing = {
                    number
                    for kind, rows in source.commits
                    if kind != "delete"
                    for number, value in rows
                    if WHERES[flow.where](value)
                }
                model.gaps |= (source.rows_at(baseline) & passing) - legacy
                later = {
                    number
                    for kind, rows in source.commits[baseline + 1 :]
                    if kind == "append"
                    for number, _ in rows
                }
                model.gaps |= later & legacy

    def _copy_history(self, model: TargetModel) -> None:
        if model.started and not model.copied:
            model.copied = True
            copied = self.legacy if model.legacy == "legacy" else []
            model.rows.update((number, value, None) for number, value in copied)

    def _first_version(self, model: TargetModel, flow: FlowText) -> int | None:
        """Return the version at which a flow starts or resumes; None for a snapshot of all rows."""
        start = model.position.get(flow.source)
        if start is None:
            start = flow.start
        elif flow.start is not None and flow.start > start and self._is_new_reader(flow):
            # The start in the spec skips the versions between the two.
            start = flow.start
        if start is None and model.started and flow.source in model.baselines and not model.finished:
            start = model.baselines[flow.source] + 1
        return start

    def _is_new_reader(self, flow: FlowText) -> bool:
        """Return whether the last good spec has no flow of that name that reads the source."""
        name = next(name for name, each in self.spec.flows.items() if each is flow)
        return name not in self.readers.get(flow.source, set())

    def _rows_to_append(self, model: TargetModel, flow: FlowText) -> tuple[list[Row], bool]:
        """Return the rows that a flow appends, and whether a commit stops it."""
        source, first = self.sources[flow.source], self._first_version(model, flow)
        # Without a version a stream starts with all current rows.
        commits = [("append", source.rows)] if first is None else source.commits[first:]
        found: list[Row] = []
        for kind, rows in commits:
            if kind == "append":
                found += [
                    SELECTS[flow.select](number, value) for number, value in rows if WHERES[flow.where](value)
                ]
            allowed = {"delete": OPTIONS[3], "update": OPTIONS[2]}.get(kind)
            if allowed is not None and not set(allowed) & set(flow.options):
                return [], True
        return found, False

    def _read(self, model: TargetModel, flow: FlowText) -> None:
        first, source = self._first_version(model, flow), self.sources[flow.source]
        if (first is not None and first > source.version) or (first is None and not source.rows):
            return
        model.rows.update(self._rows_to_append(model, flow)[0])
        model.position[flow.source] = source.version + 1
        name = next(name for name, each in self.spec.flows.items() if each is flow)
        self.readers.setdefault(flow.source, set()).add(name)

    def _must_fail(self, model: TargetModel) -> bool:
        return any(self._rows_to_append(model, flow)[1] for flow in self.spec.running.values())

    def _apply_partial_run(self, model: TargetModel, before: Counter[Row]) -> None:
        """Find the flows that ran before another one failed; each has written all its rows or none."""
        actual = self._rows(self.spec.target)
        if model.started and not model.copied and (actual or not self.legacy):
            self._copy_history(model)
        for flow in self.spec.running.values():
            rows, stopped = self._rows_to_append(model, flow)
            if not stopped and set(rows) & set(actual - before):
                self._read(model, flow)
        self._compare(model)

    def _check_baselines(self) -> None:
        for name, model in self.targets.items():
            baselines = self.backend.baselines(name)
            if model.started and not model.finished:
                assert baselines is not None
                assert {**baselines} == model.baselines, "a baseline changed"

    # Tables and state on disk.

    def _rows(self, table: str) -> Counter[Row]:
        folder = self._folder(table)
        if not (folder / "_delta_log").is_dir():
            return Counter()
        rows = deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist()
        return Counter((row["id"], row["v"], row.get("extra")) for row in rows)

    def _tables(self) -> Mapping[str, int]:
        return {
            log.parent.name: len(list(log.glob("*.json"))) for log in self.backend.lake.glob("*/_delta_log")
        }

    def _state(self) -> Mapping[str, bytes]:
        """Return the contents of the state's files, without locks."""
        return {
            str(path): path.read_bytes()
            for path in (self.backend.root / "state").rglob("*")
            if path.is_file() and not path.name.endswith(".lock")
        }

    def _folder(self, table: str) -> Path:
        return self.backend.lake / table

    def _write_spec(self) -> None:
        file = self.backend.root / "dataflows" / "d" / "dataflowspec" / "edited_main.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(self.spec.to_json(self.backend.schema)))


def _append(folder: Path, rows: Sequence[tuple[int, int]]) -> None:
    named = [{"id": number, "v": value} for number, value in rows]
    deltalake.write_deltalake(folder, pa.Table.from_pylist(named, schema=SCHEMA), mode="append")
