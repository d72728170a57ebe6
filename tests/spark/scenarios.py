"""Random scenarios of a migration, and a model of the rows that its target must contain.

A scenario is one migration. It has a source table or the union of two, a target, and a legacy table. An old
job updates the legacy table until the migration starts. Hypothesis draws the events:

- commits to the source, also with late rows, and commits during a run;
- commits to the legacy table after it was pinned;
- plans, runs, full refreshes, and runs that crash right before any of their effects;
- renamed views and added sources;
- damage between two runs, before or after the live flow has started (see `Damage`).

After every run that ends without an error the target must equal a plain-Python oracle. A run may be refused
only after damage.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import deltalake
import pytest
from arro3.core import Array, DataType, Table
from hypothesis import strategies as st
from tests import soak
from tests.conditions import names, raises
from tests.oracle import Event, scd1, scd2

from tableferry import pipelines
from tableferry.errors import Finding, Refused, TableferryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Kind = Literal["append", "scd1", "scd2"]
Damage = Literal[
    "a checkpoint is lost",
    "all checkpoints are lost",
    "the newest batch is lost",
    "the target is replaced",
    "the target is set back",
    "all state is lost",
    "the source's log is cleaned",
    "a batch fails",
    "the spec has other settings",
]

Json = dict[str, Any]
COLUMNS = ("val", "seq")
_numbers = count()


class Crash(BaseException):
    """The process crashes here; nothing in the library may catch this."""


@dataclass(frozen=True)
class Change:
    """One row of a feed; the scenario gives it a unique sequence."""

    key: int
    value: int | None
    late: int
    delete: bool


@dataclass(frozen=True)
class ScenarioEvent:
    """One event of a scenario.

    Attributes:
        changes: The rows that it commits.
        at: The number of the effect before which it happens.
        early: Whether damage is done before a run processes the rows; the live flow may not have started.
    """

    kind: Literal[
        "commit",
        "write legacy",
        "plan",
        "run",
        "crash",
        "during",
        "rename",
        "add source",
        "refresh",
        "refresh crash",
        "damage",
    ]
    changes: tuple[Change, ...] = ()
    at: int = 0
    damage: Damage | None = None
    early: bool = False


changes = st.lists(
    st.builds(Change, st.integers(0, 3), st.none() | st.integers(0, 2), st.integers(0, 6), st.booleans()),
    min_size=1,
    max_size=3,
).map(tuple)
damage_events = st.builds(
    ScenarioEvent,
    st.just("damage"),
    changes,
    damage=st.sampled_from(get_args(Damage)),
    early=st.booleans(),
)
scenario_events = st.one_of(
    st.builds(ScenarioEvent, st.just("commit"), changes),
    st.builds(ScenarioEvent, st.just("commit"), changes),
    st.builds(ScenarioEvent, st.sampled_from(["run", "run", "plan", "rename", "add source", "refresh"])),
    st.builds(ScenarioEvent, st.sampled_from(["write legacy", "during"]), changes, st.integers(0, 9)),
    st.builds(ScenarioEvent, st.sampled_from(["crash", "crash", "refresh crash"]), at=st.integers(0, 16)),
    *soak.amount((), [damage_events]),
)
scenarios = st.tuples(changes, st.lists(scenario_events, min_size=1, max_size=3), st.booleans())


@dataclass
class Scenario:
    """One migration, with a model of the rows that its target must contain."""

    spark: SparkSession
    schema: str
    folder: Path
    root: Path
    kind: Kind
    history: tuple[Change, ...]
    union: bool = False
    clock: int = 10
    view: str = "v_feed"
    old_job_stopped: bool = False
    last_sequence: int = 0
    old_events: list[Event] = field(default_factory=list)
    live_events: list[Event] = field(default_factory=list)
    added_events: list[Event] | None = None
    columns: dict[str, dict[str, DataType]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        number = next(_numbers)
        self.source, self.other = f"source_{number}", f"other_{number}"
        self.legacy, self.target = f"legacy_{number}", f"target_{number}"
        self._write_spec()
        self._create_table(self.source, "id", "val", "seq", "op")
        if self.union:
            self._create_table(self.other, "id", "val", "seq", "op")
        marks = {"append": ("op",), "scd1": (), "scd2": ("start_at", "end_at")}[self.kind]
        self._create_table(self.legacy, "id", "val", "seq", *marks)
        self.commit(self.history)

    @property
    def started(self) -> bool:
        # The old job stays stopped after all state is lost.
        return self.old_job_stopped or any((self.root / "state" / "initial_versions").glob("*/*/part-*.csv"))

    def apply(self, event: ScenarioEvent) -> None:
        match event.kind:
            case "commit":
                self.commit(event.changes)
            case "write legacy":
                if self.started:
                    row = (9, 9, 999)
                    marks = {"append": ("U",), "scd1": (), "scd2": (999, None)}[self.kind]
                    self._write(self.legacy, [(*row, *marks)])
            case "plan":
                before = self._state_files()
                pipelines.plan(self.root, self.spark)
                assert self._state_files() == before
            case "run":
                self.run()
            case "crash":
                self._run_with_crash(event.at)
            case "during":
                self.run(event)
            case "rename":
                self.view += "x"
                self._write_spec()
            case "add source":
                if self.started and self.added_events is None and not self.union:
                    self.added_events = []
                    self._create_table(self.other, "id", "val", "seq", "op")
                    self._write_spec()
            case "refresh":
                self.run(refresh=True)
            case "refresh crash":
                self._run_with_crash(event.at, refresh=True)
            case "damage":
                assert event.damage
                self._apply_damage(event.damage, event)

    def commit(self, rows: tuple[Change, ...], *, running: bool = False) -> None:
        """Commit to the source, or to both sources in turn.

        The old job processes the rows until the migration starts. During a run it is paused.
        """
        events = [self._event(row) for row in rows]
        if self.added_events is not None and self.clock % 2:
            self.added_events += events
            self._write(self.other, [_to_row(event) for event in events])
            return
        table = self.other if self.union and self.clock % 2 else self.source
        self._write(table, [_to_row(event) for event in events])
        if self.started or running:
            self.live_events += events
            return
        self.old_events += events
        self._rebuild_legacy()

    def run(self, during: ScenarioEvent | None = None, *, refresh: bool = False) -> None:
        steps = count()

        def before(_: str) -> None:
            if during and next(steps) == during.at:
                self.commit(during.changes, running=True)

        full_refresh = [f"{self.schema}.{self.target}"] if refresh else []
        pipelines.run(self.root, self.spark, full_refresh=full_refresh, before=before)
        if during:
            pipelines.run(self.root, self.spark)
        self.check()

    def _run_with_crash(self, at: int, *, refresh: bool = False) -> None:
        steps = count()

        def before(_: str) -> None:
            if next(steps) == at:
                raise Crash

        full_refresh = [f"{self.schema}.{self.target}"] if refresh else []
        try:
            pipelines.run(self.root, self.spark, full_refresh=full_refresh, before=before)
        except Crash:
            return
        self.check()

    def _apply_damage(self, damage: Damage, event: ScenarioEvent) -> None:
        """Do damage between two runs, and follow the remedy if the next run is refused."""
        self.run()
        self.commit(event.changes)
        if not event.early:
            self.run()
        if damage == "the spec has other settings":
            self._check_other_settings_are_refused()
            self.run()
            return
        if damage == "a batch fails":
            self._fail_batch(event.changes)
            return
        undo = self._cause_damage(damage)
        self.commit(event.changes)
        try:
            self.run()
        except TableferryError as error:
            # Spark rereads the commits of the last batch, so a cleaned log fails only during the run.
            if not isinstance(error, Refused) and damage != "the source's log is cleaned":
                raise
            if undo:
                undo()
            self.run(refresh=undo is None)
        else:
            if undo and damage == "the source's log is cleaned":
                # A later full refresh needs the log.
                undo()

    def _cause_damage(self, damage: Damage) -> Callable[[], None] | None:
        """Do the damage, and return a function that undoes it; None if a full refresh is the remedy."""
        root, table = self.root / "state" / "checkpoints", f"{self.schema}.{self.target}"
        flows = sorted(root.glob("*/generation=*/f_*"))
        newest = deltalake.DeltaTable(self.folder / self.target).version()
        match damage:
            case "a checkpoint is lost" if flows:
                shutil.rmtree(flows[0])
            case "all checkpoints are lost":
                shutil.rmtree(root, ignore_errors=True)
            case "the newest batch is lost":
                for batch in [path for flow in flows for path in _newest_batch(flow)]:
                    batch.unlink()
            case "the target is replaced":
                self.spark.sql(f"CREATE OR REPLACE TABLE {table} USING delta AS SELECT * FROM {table}")
            # The target of an incomplete migration may have only version 0.
            case "the target is set back" if newest > 0:
                self.spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF {newest - 1}")
            # An empty target doesn't show that it was a target, so a run would start again.
            case "all state is lost" if self.spark.table(table).take(1):
                self.old_job_stopped = True
                return _move_aside([self.root / "state"])
            case "the source's log is cleaned":
                folder = self.root / self.source
                deltalake.DeltaTable(folder).create_checkpoint()
                *old, _ = sorted(folder.joinpath("_delta_log").glob("*.json"))
                return _move_aside(old)
        return None

    def _fail_batch(self, changes: tuple[Change, ...]) -> None:
        """Let the target refuse a batch; its migration isn't complete before its first committed batch."""
        table = f"{self.schema}.{self.target}"
        began = any((self.root / "state" / "checkpoints").glob("*/generation=*/f_*/commits/[0-9]*"))
        self.commit(changes)
        self.spark.sql(f"ALTER TABLE {table} ADD CONSTRAINT refused CHECK (seq <> {self.last_sequence})")
        try:
            self.run()
        except TableferryError as error:
            if "CHECK constraint" not in str(error):
                raise
            if not began:
                assert not pipelines.status(self.root, self.spark).complete
                with raises("MIGRATION_NOT_COMPLETE"):
                    pipelines.finish(self.root, self.spark)
        self.spark.sql(f"ALTER TABLE {table} DROP CONSTRAINT refused")
        self.run()

    def _check_other_settings_are_refused(self) -> None:
        others: list[Json] = [{"keys": ["id", "val"]}, {"scd_type": "2" if self.kind != "scd2" else "1"}]
        for other in others if self.kind != "append" else [{}]:
            self._write_spec(other)
            before = self._state_files()
            with pytest.raises(Refused) as caught:
                pipelines.run(self.root, self.spark)
            findings = caught.value.parameters.get("findings", [caught.value.finding])
            assert {*names(cast("Sequence[Finding]", findings))} <= {
                "FLOW_SETTINGS_CHANGED",
                "TABLE_SETTINGS_CHANGED",
            }
            assert self._state_files() == before
        self._write_spec()

    def check(self) -> None:
        rows = deltalake.DeltaTable(self.folder / self.target).to_pyarrow_table().to_pylist()
        live = [*self.live_events, *(self.added_events or ())]
        if self.kind == "append":
            actual = Counter((row["id"], row["val"], row["seq"], row["op"]) for row in rows)
            assert actual == Counter(_to_row(event) for event in (*self.old_events, *live))
        elif self.kind == "scd1":
            kept = [
                Event(key, row["seq"], values=row, exact=True)
                for key, row in scd1(self.old_events, COLUMNS).items()
            ]
            expected = scd1([*kept, *live], COLUMNS)
            assert {(row["id"],): {"val": row["val"], "seq": row["seq"]} for row in rows} == expected
            assert len(rows) == len(expected)
        else:
            history = scd2(self.old_events, COLUMNS)
            exact = [Event(row.key, row.start, values=row.values, exact=True) for row in history]
            exact += [Event(row.key, row.end, "delete", exact=True) for row in history if row.end is not None]
            expected_history = [
                (*row.key, row.values["val"], row.values["seq"], row.start, row.end)
                for row in scd2([*exact, *live], COLUMNS)
            ]
            # Rows are tuples, so that None sorts and duplicates count.
            actual_history = [
                (row["id"], row["val"], row["seq"], row["__START_AT"], row["__END_AT"]) for row in rows
            ]
            assert Counter(actual_history) == Counter(expected_history)

    def _event(self, row: Change) -> Event:
        self.clock += 1
        # A late row's sequence is lower than earlier sequences, but still unique.
        sequence = self.last_sequence = self.clock * 100 - row.late * 137
        if self.kind != "append" and row.delete:
            return Event((row.key,), sequence, "delete")
        return Event((row.key,), sequence, values={"val": row.value, "seq": sequence})

    def _create_table(self, table: str, *columns: str) -> None:
        """Create an empty table with delta-rs, which commits in a hundredth of Spark's time."""
        self.columns[table] = {
            name: DataType.string() if name == "op" else DataType.int32() for name in columns
        }
        self._write(table, [])
        self.spark.sql(f"CREATE TABLE {self.schema}.{table} USING delta LOCATION '{self.root / table}'")

    def _write(
        self, table: str, rows: list[tuple[Any, ...]], mode: Literal["append", "overwrite"] = "append"
    ) -> None:
        columns = self.columns[table]
        arrays = [Array([row[n] for row in rows], type=kind) for n, kind in enumerate(columns.values())]
        deltalake.write_deltalake(
            self.root / table, Table.from_arrays(arrays, names=list(columns)), mode=mode
        )

    def _rebuild_legacy(self) -> None:
        """Rewrite the legacy table from the events of the source, as the old job does."""
        rows: list[tuple[Any, ...]]
        if self.kind == "append":
            rows = [_to_row(event) for event in self.old_events]
        elif self.kind == "scd1":
            rows = [(*key, row["val"], row["seq"]) for key, row in scd1(self.old_events, COLUMNS).items()]
        else:
            rows = [
                (*row.key, row.values["val"], row.values["seq"], row.start, row.end)
                for row in scd2(self.old_events, COLUMNS)
            ]
        self._write(self.legacy, rows, "overwrite")

    def _state_files(self) -> list[tuple[str, int]]:
        state = self.root / "state"
        return sorted((str(path), path.stat().st_mtime_ns) for path in state.rglob("*"))

    def _write_spec(self, cdc: Json | None = None) -> None:
        """Write a standard spec, or, with an added source, a flow spec whose first flow keeps its name.

        Args:
            cdc: Settings that replace those of the scenario.
        """
        spec: dict[str, Any] = {
            "dataFlowId": self.target,
            "dataFlowGroup": "scenarios",
            "targetFormat": "delta",
            "targetDetails": {"database": self.schema, "table": self.target},
            "tableMigrationDetails": {
                "enabled": True,
                "catalogType": "hms",
                # make soak also compares rows at the start, which takes time.
                "handOver": soak.amount("version", "auto"),
                "sourceDetails": {"database": self.schema, "table": self.legacy},
            },
        }
        if self.kind != "append" or cdc is not None:
            spec["cdcSettings"] = {
                "keys": ["id"],
                "sequence_by": "seq",
                "scd_type": "1" if self.kind == "append" else self.kind[-1],
                "apply_as_deletes": "op = 'D'",
                "except_column_list": ["op"],
                **(cdc or {}),
            }
        if self.kind == "scd2":
            mapped = ["id", "val", "seq", "start_at AS __START_AT", "end_at AS __END_AT"]
            spec["tableMigrationDetails"]["sourceDetails"]["selectExp"] = mapped
        feed = {"database": self.schema, "table": self.source}
        if self.added_events is None:
            spec |= {"dataFlowType": "standard", "sourceSystem": "x", "sourceViewName": self.view}
            both = (f"SELECT * FROM STREAM({self.schema}.{table})" for table in (self.source, self.other))
            if self.union:
                spec |= {"sourceType": "sql", "sourceDetails": {"sqlStatement": " UNION ALL ".join(both)}}
            else:
                spec |= {"sourceType": "delta", "sourceDetails": feed}
            spec |= {"mode": "stream"}
        else:
            other = {
                "database": self.schema,
                "table": self.other,
                "readerOptions": {"startingVersion": "0"},
            }
            spec["dataFlowType"] = "flow"
            spec["flowGroups"] = [
                {
                    "flowGroupId": "main",
                    "flows": {
                        f"f_{self.view}": self._flow(self.view, feed),
                        "f_other": self._flow("v_other", other),
                    },
                }
            ]
        folder = self.root / "dataflows" / "scenario" / "dataflowspec"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "scenario_main.json").write_text(json.dumps(spec))
        configs = self.root / "pipeline_configs"
        configs.mkdir(exist_ok=True)
        (configs / "global.json").write_text(json.dumps({"table_migration_state_volume_path": "state"}))

    def _flow(self, view: str, details: dict[str, Any]) -> dict[str, Any]:
        return {
            "flowType": "append_view" if self.kind == "append" else "merge",
            "flowDetails": {"targetTable": f"{self.schema}.{self.target}", "sourceView": view},
            "views": {view: {"mode": "stream", "sourceType": "delta", "sourceDetails": details}},
        }


def _move_aside(paths: list[Path]) -> Callable[[], None]:
    """Rename files or folders, and return a function that puts them back."""
    kept = {path: path.with_name(f"{path.name}.kept") for path in paths}

    def undo() -> None:
        for path, aside in kept.items():
            shutil.rmtree(path, ignore_errors=True)
            aside.rename(path)

    for path, aside in kept.items():
        path.rename(aside)
    return undo


def _newest_batch(checkpoint: Path) -> list[Path]:
    """Return the files of a checkpoint's newest batch."""
    numbers = [int(path.name) for path in checkpoint.glob("offsets/*") if path.name.isdigit()]
    return (
        [*checkpoint.glob(f"*/{max(numbers)}"), *checkpoint.glob(f"*/.{max(numbers)}.crc")] if numbers else []
    )


def _to_row(event: Event) -> tuple[Any, ...]:
    op = "D" if event.operation == "delete" else "U"
    return (event.key[0], event.values.get("val"), event.sequence, op)
