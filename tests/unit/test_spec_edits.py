"""Random edits of a spec between runs, without Spark: each run is refused, or writes each row exactly once.

The specs, the state, the plans and the Delta logs are real. This module replaces only Spark: a flow reads the
commits of a source's log, a copy is appended, and a legacy table is compared with its sources.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests import soak
from tests.spec_edits import FIRST, KNOWN, SCHEMA, SELECTS, STARTS, TURNS, WHERES, Drawn, Scenario

from tableferry.errors import Finding, Refused, TableferryError
from tableferry.pipelines import specs
from tableferry.pipelines.engines.performer import Runner, find_unrecorded_progress
from tableferry.pipelines.engines.port import apply_definitions
from tableferry.pipelines.handover import content_search
from tableferry.pipelines.model.facts import HandOver, UnknownHandOver
from tableferry.pipelines.model.flows import DataFlow, DeltaSource, HistorySource, Migration
from tableferry.pipelines.model.identities import (
    PROPERTY,
    FlowIdentity,
    TableIdentity,
    parse_identity_property,
)
from tableferry.pipelines.model.phases import Phase
from tableferry.pipelines.model.plan import Plan
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.pipelines.model.steps import DefineTable, DefineView, PlannedFlow
from tableferry.pipelines.model.target_state import Tracking
from tableferry.pipelines.planning.project import OpenedProject, open_project
from tableferry.pipelines.reports import StatusReport
from tableferry.pipelines.state import checkpoints
from tableferry.pipelines.state.store import StateStore
from tableferry.spark import catalog
from tableferry.spark.local_metastore import Entry, LocalMetastore
from tableferry.spark.tables import TableFacts, TableName


class Metastore(LocalMetastore):
    """The lake's tables by name, with the two methods of a session that a plan calls."""

    def table(self, sql: str) -> Any:
        """Return an object whose `take` returns rows of a table."""
        rows = rows_of(self._folder(sql))
        return SimpleNamespace(take=lambda most: rows[:most])

    def sql(self, statement: str) -> Any:
        """Return a table's size."""
        assert statement.startswith("DESCRIBE DETAIL ")
        return SimpleNamespace(collect=lambda: [{"sizeInBytes": 1}])

    def _folder(self, sql: str) -> Path:
        schema, table = (part.strip("`") for part in sql.split("."))
        entry = self.find(schema, table)
        assert entry is not None
        return Path((entry.path or "").removeprefix("file:"))


@dataclass
class Engine:
    """An engine that runs append flows without Spark.

    Attributes:
        lake: The folder of the tables.
        store: The state.
        plan: The plan that is performed.
    """

    lake: Path
    metastore: Metastore
    store: StateStore
    plan: Plan
    tables: dict[str, DefineTable] = field(default_factory=dict)
    views: dict[str, DefineView] = field(default_factory=dict)
    flows: list[PlannedFlow] = field(default_factory=list)

    def define_table(self, definition: DefineTable) -> None:
        """Define a streaming table."""
        self.tables[definition.target.name.key] = definition

    def define_view(self, definition: DefineView) -> None:
        """Define the view that a flow reads."""
        self.views[definition.view.name] = definition

    def define_flow(self, flow: PlannedFlow) -> None:
        """Define an append flow; no scenario has AUTO CDC."""
        assert flow.cdc is None
        self.flows.append(flow)

    def define_snapshots(self, definition: object) -> None:
        """Fail, because no scenario has snapshots."""
        raise AssertionError(definition)

    def update(self) -> None:
        """Run every flow, as `StreamingEngine.run` does."""
        for definition in self.tables.values():
            name, folder = definition.target.name, self.lake / definition.target.name.table
            created = not (folder / "_delta_log").is_dir()
            if created:
                if not definition.create:
                    raise TableferryError(f"{name} is gone")
                deltalake.write_deltalake(folder, SCHEMA.empty_table())
            owner, generation = self.flows[0].owner, self.flows[0].generation
            if created or name.key not in self.store.read_identities(owner, generation):
                identity = TableIdentity(self._facts(name).table_id, generation, {}, definition.history, {})
                self.store.record_table_identity(owner, generation, name, identity)
        for flow in self.flows:
            source = self.views[flow.flow.view].view.source
            if isinstance(source, HistorySource):
                self._copy(flow, source)
            else:
                assert isinstance(source, DeltaSource)
                self._stream(flow, source)
        for flow in self.flows:
            version = self._facts(flow.target).version
            self.store.record_versions(flow.owner, flow.generation, {flow.target.key: version})

    def _copy(self, definition: PlannedFlow, source: HistorySource) -> None:
        rows = rows_of(self.lake / source.migration.table.table, source.version)
        self._append(definition.target, [(number, value, None) for number, value in rows])
        [target] = self.plan.targets
        assert target.migration_start is not None
        self.store.record_progress(
            target.migration_start, Tracking({}, definition.generation, len(rows), "match")
        )

    def _stream(self, definition: PlannedFlow, source: DeltaSource) -> None:
        folder = self.store.checkpoint_folder(definition.owner, definition.generation, definition.name)
        if definition.unrecorded_settings is not None:
            self._identify(definition, folder)
        table = self._facts(source.table)
        checkpoint = checkpoints.read(folder)
        first = self.views[definition.flow.view].starts.get(source.table.key)
        batch = 0
        if checkpoint.committed is not None:
            offsets, _ = checkpoints.read_batch(folder, checkpoint.committed)
            offset = offsets[table.table_id]
            assert isinstance(offset, DeltaOffset)
            first, batch = offset.version, checkpoint.committed + 1
        assert first is None or isinstance(first, int)
        if first is not None and first > table.version:
            return
        if first is None and not rows_of(self.lake / source.table.table):
            # Spark writes no batch for a table without rows.
            return
        # A batch whose offsets were recorded consists of the same commits after a restart.
        _write_offset(folder / "offsets" / str(batch), table)
        rows = read_commits(self.lake / source.table.table, first, source)
        writer = deltalake.Transaction(checkpoints.read_query_id(folder), batch)
        self._append(definition.target, rows, writer)
        commit = folder / "commits" / str(batch)
        commit.parent.mkdir(exist_ok=True)
        commit.write_text("v1\n{}")

    def _identify(self, definition: PlannedFlow, folder: Path) -> None:
        settings, name, table = definition.unrecorded_settings, definition.name, definition.target
        assert settings is not None
        checkpoint = checkpoints.create_query_id(folder)
        facts = self._facts(table)
        flows: dict[str, FlowIdentity] = {}
        for recorded in (
            parse_identity_property(facts),
            self.store.read_identities(definition.owner, 0).get(table.key),
        ):
            flows |= recorded.flows if recorded else {}
        flows[name] = FlowIdentity(settings.settings, settings.sources, checkpoint)
        identity = TableIdentity(facts.table_id, 0, flows, self.tables[table.key].history, {})
        text = identity.to_json()
        if facts.properties.get(PROPERTY) != text:
            log = deltalake.DeltaTable(self.lake / table.table)
            log.alter.set_table_properties({PROPERTY: text}, raise_if_not_exists=False)
        self.store.record_table_identity(definition.owner, 0, table, identity)

    def _append(self, table: TableName, rows: list[Any], writer: deltalake.Transaction | None = None) -> None:
        schema = pa.schema([*SCHEMA, ("extra", pa.int32())]) if any(row[2] for row in rows) else SCHEMA
        named = [dict(zip(("id", "v", "extra"), row, strict=True)) for row in rows]
        deltalake.write_deltalake(
            self.lake / table.table,
            pa.Table.from_pylist(named, schema=schema),
            mode="append",
            schema_mode="merge",
            commit_properties=deltalake.CommitProperties(app_transactions=[writer] if writer else None),
        )

    def _facts(self, name: TableName) -> TableFacts:
        facts = catalog.facts(self.metastore, name)
        assert facts is not None
        return facts


def _write_offset(file: Path, table: TableFacts) -> None:
    offset = {
        "sourceVersion": 1, "reservoirId": table.table_id, "reservoirVersion": table.version + 1, "index": -1,
        "isStartingVersion": False,
    }  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"v1\n{{}}\n{json.dumps(offset)}")


def rows_of(folder: Path, version: int | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a version; None for the newest."""
    rows = deltalake.DeltaTable(folder, version=version).to_pyarrow_table().to_pylist()
    return [tuple(row.values()) for row in rows]


def apply_view(rows: list[tuple[Any, ...]], source: DeltaSource) -> list[tuple[Any, ...]]:
    """Apply a view's conditions and expressions."""
    conditions, select = source.where or (None,), SELECTS[source.select]
    return [select(*row) for row in rows if all(WHERES[condition](row[1]) for condition in conditions)]


def read_commits(folder: Path, first: int | None, source: DeltaSource) -> list[tuple[Any, ...]]:
    """Read a source's commits as Delta's stream does; all rows without a starting version."""
    if first is None:
        return apply_view(rows_of(folder), source)
    options = {name for name, value in source.options.items() if value == "true"}
    found: list[tuple[Any, ...]] = []
    for log in sorted((folder / "_delta_log").glob("*.json"))[first:]:
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        added = [action["add"]["path"] for action in actions if "add" in action]
        if any("remove" in action for action in actions):
            if not options & {"skipChangeCommits", *(() if added else ("ignoreDeletes",))}:
                raise TableferryError(f"{log} deletes or changes rows")
            continue
        for path in added:
            found += [(row["id"], row["v"]) for row in pq.read_table(folder / path).to_pylist()]
    return apply_view(found, source)


def find_hand_over(
    metastore: Metastore,
    dataflow: DataFlow,
    migration: Migration,
    legacy: TableFacts,
    sources: list[TableFacts],
    *_: Any,
) -> HandOver | UnknownHandOver:
    """Compare the legacy table with moments of its sources, as `content_search.find` does."""
    legacy_rows = Counter((*row, None) for row in rows_of(Path(legacy.folder or ""), legacy.version))
    views = [dataflow.views[flow.view].source for flow in dataflow.streaming_flows]
    by_key = {source.name.key: source for source in sources}
    moment = {key: source.version for key, source in by_key.items()}
    commits = [
        (json.loads(log.read_text().splitlines()[0])["commitInfo"]["timestamp"], int(log.stem), key)
        for key, source in by_key.items()
        for log in Path(source.folder or "", "_delta_log").glob("*.json")
        if int(log.stem) > 0
    ]
    for _, version, key in [*sorted(commits, reverse=True), (0, 0, "")]:
        source_rows: Counter[tuple[Any, ...]] = Counter()
        for view in views:
            assert isinstance(view, DeltaSource)
            folder = Path(by_key[view.table.key].folder or "")
            source_rows.update(apply_view(rows_of(folder, moment[view.table.key]), view))
        if source_rows == legacy_rows:
            positions = {by_key[name].table_id: at for name, at in moment.items()}
            return HandOver(legacy.version, positions, {}, "proved", "the rows are the same")
        if key:
            moment[key] = version - 1
    return UnknownHandOver(Finding("HAND_OVER_NOT_FOUND_BY_CONTENT", reason="no moment fits", advice=""))


@dataclass
class Lake:
    """A folder of Delta tables and a project that uses them: the scenario's backend without Spark."""

    root: Path
    lake: Path
    schema: str = "silver"
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)

    @property
    def metastore(self) -> Metastore:
        """The tables in the folder."""

        def entry(schema: str, table: str) -> Entry | None:
            folder = self.lake / table
            assert schema == self.schema
            return (
                Entry("MANAGED_TABLE", "delta", f"file:{folder}")
                if (folder / "_delta_log").is_dir()
                else None
            )

        return Metastore(entry)

    def register(self, table: str) -> None:
        """Do nothing, because the metastore finds each table in the folder."""

    def run(self) -> None:
        """Run the project as `pipelines.run` does, without the checks of columns."""
        opened = self._opened()
        plan = self._decided(opened)
        if plan.refusals:
            raise Refused.of(plan.refusals)
        nothing: Any = None
        runner = Runner(opened.store, nothing, lambda _: None)
        if plan.steps:
            for target in plan.targets:
                runner.perform_state_steps(target)
            engine = Engine(self.lake, self.metastore, opened.store, plan)
            for target in plan.targets:
                apply_definitions(target.definitions, engine)
            engine.update()
        runner.record_progress(find_unrecorded_progress(*opened.after_run.decide_plan()))

    def status(self) -> tuple[Phase, str]:
        """Return the phase and the certainty of the hand-over from `pipelines.status`."""
        [target] = StatusReport(self._opened().after_run.decide_plan()[0]).plan.targets
        return target.phase, target.migration_start.certainty if target.migration_start else ""

    def baselines(self, target: str) -> Mapping[str, int] | None:
        """Return the recorded baselines."""
        start = self._opened().store.read(TableName((self.schema, target))).migration_start
        if start is None:
            return None
        return {baseline.table.table: baseline.version for baseline in start.baselines.values()}

    def _opened(self) -> OpenedProject:
        session: Any = self.metastore
        return open_project(specs.load(self.root), session, look_back=100)

    def _decided(self, opened: OpenedProject) -> Plan:
        return opened.decide_plan()[0]


@contextmanager
def lake() -> Iterator[Lake]:
    """Yield an empty lake; legacy tables are compared without Spark."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(content_search, "find_hand_over", find_hand_over)
        yield Lake(Path(folder) / "project", Path(folder) / "lake")


@settings(max_examples=soak.amount(12, 400), deadline=None)
@example(KNOWN[0])
@example(KNOWN[1])
@example(KNOWN[2])
@given(st.tuples(STARTS, FIRST, TURNS))
def test_spec_edits_between_runs_lose_and_repeat_no_row(drawn: Drawn) -> None:
    start, first, turns = drawn
    with lake() as backend:
        Scenario(backend, start, first).play(turns)
