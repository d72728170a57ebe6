"""Eight workers in two processes on one metastore migrate and revert tables, and die at random changes.

In each round they run concurrently in random modes, and most die at a random change; sometimes a whole
process is killed. Between the rounds leases expire, rows are written, and paused jobs are resumed. Only this
module knows the written rows. TABLEFERRY_KILLS is the number of deaths after which the test ends.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests import fleet_sessions, metastore, servers, soak
from tests.fleet_sessions import Outcome, Process, Task

from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.pauses import reason, resumed
from tableferry.fleet.jobs.transitions import BACK
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.store import Store
from tableferry.fleet.settings import FleetSettings
from tableferry.spark.tables import TableName

SCHEMA = "crowd"
TABLES = int(os.environ.get("TABLEFERRY_TABLES", "24"))
WORKERS = 4  # In each of two processes.
# A small batch, so that all workers of a round end at about the same time.
MOST = 2
KILLS = int(os.environ.get("TABLEFERRY_KILLS", "60"))
ROUNDS = 80
OLD = [(1, "mon"), (2, "tue"), (3, None)]
LAPSE = FleetSettings().lease_minutes + 1
DAY = 24 * 60
RESTS = {
    "archive": (State.HIVE_DROPPED, State.HIVE_DROPPED),
    "revert": (State.ICEBERG_DROPPED, State.ICEBERG_DROPPED),
    "stay": (State.WRITES_UNBLOCKED, State.WRITES_UNBLOCKED),
}
# The weights follow a scheduler's frequencies and the number of possible failures.
MODES = {"migrate": 6, "shadow": 2, "revert": 2, "preprocess": 1}
# These mean lost or unexpected rows, which only a worker can have caused here.
NEVER = {PauseReason.ROWS_DIFFER, PauseReason.WRITTEN_LATE, PauseReason.PARTITIONS_REMOVED}


@dataclass
class Crowd:
    """Workers, their tables, and the expected rows.

    Attributes:
        goals: The final state of each table.
        rows: The rows that were written into each table.
        deaths: The number of workers that died, by mode.
        processes_killed: The number of processes that were killed with all their workers.
        pauses: The number of pauses by reason.
        results: The number of results by text, for runs that ended.
    """

    address: str
    folder: Path
    store: Store
    chance: random.Random
    processes: list[Process]
    goals: dict[str, str] = field(default_factory=dict)
    rows: dict[str, list[tuple[int, str | None]]] = field(default_factory=dict)
    deaths: Counter[str] = field(default_factory=Counter)
    processes_killed: int = 0
    pauses: Counter[str] = field(default_factory=Counter)
    results: Counter[str] = field(default_factory=Counter)
    minutes: int = 0
    written: int = 100

    def begin(self, generation: int) -> None:
        """Create tables with random target formats, a third of them text files, and add them to the queue."""
        formats = {
            f"g{generation}_{number}": self.chance.choice(list(TargetFormat)) for number in range(TABLES)
        }
        self.goals = {table: self.chance.choice(list(RESTS)) for table in formats}
        self.rows = {table: list(OLD) for table in formats}
        texts = [table for table in formats if self.chance.random() < 1 / 3]
        self.processes[1].call(fleet_sessions.make, self.folder, self.rows, texts).result()
        jobs = [
            NewJob(
                TableName(("spark_catalog", SCHEMA, table)),
                form,
                initial_gap_days=0,
                # Tables that stay or are reverted aren't archived during the test.
                probation_gap_days=1 if self.goals[table] == "archive" else 10_000,
                rewrite=True,
            )
            for table, form in formats.items()
        ]
        assert self.store.add(jobs, datetime(2026, 3, 1, tzinfo=UTC)) == TABLES

    def jobs(self) -> dict[str, Job]:
        """Return this generation's jobs."""
        return {job.tbl_name: job for job in self.store.jobs(everything()) if job.tbl_name in self.goals}

    @property
    def kills(self) -> int:
        """The number of workers that died."""
        return self.deaths.total()

    def left(self) -> list[str]:
        """Return the tables that haven't reached their final state."""
        return [table for table, job in self.jobs().items() if job.pair != RESTS[self.goals[table]]]

    def round(self, *, deadly: bool) -> None:
        """Run all workers concurrently; then let leases expire, resume jobs and write rows."""
        tasks = [[self._task(f"w{p}{w}", deadly) for w in range(WORKERS)] for p in (0, 1)]
        running = [
            process.call(fleet_sessions.crowd, some)
            for process, some in zip(self.processes, tasks, strict=True)
        ]
        for number, one in enumerate(running):
            try:
                self._count(tasks[number], one.result())
            except BrokenProcessPool:
                self.deaths.update(task.mode for task in tasks[number])
                self.processes_killed += 1
                self._restart(number)
        self._turn(LAPSE + self.chance.choice((0, 2 * DAY)))
        self.processes[1].call(fleet_sessions.notify).result()
        self._resume()
        if deadly:
            self._write()

    def _task(self, worker: str, deadly: bool) -> Task:
        jobs = self.jobs()
        resting = {table: job for table, job in jobs.items() if job.pair == RESTS["stay"]}
        on_probation = [
            table
            for table, job in resting.items()
            if self.goals[table] == "revert" and job.claimed_by is None
        ]
        # A worker without work has no change to die at.
        modes = dict(MODES)
        if not resting:
            del modes["shadow"]
        if not on_probation and not any(job.pair in BACK for job in jobs.values()):
            del modes["revert"]
        mode = self.chance.choices(list(modes), list(modes.values()))[0]
        tables = tuple(self.chance.sample(on_probation, 1)) if mode == "revert" and on_probation else ()
        dies = deadly and self.chance.random() < 0.95
        # Most runs have few changes to die at.
        at = int(12 * self.chance.random() ** 2) if dies else None
        before, takes_all = self.chance.random() < 0.3, self.chance.random() < 0.01
        return Task(worker, mode, self.chance.randint(1, MOST), tables, at, before, takes_all)

    def _count(self, tasks: list[Task], outcomes: list[Outcome]) -> None:
        for task, outcome in zip(tasks, outcomes, strict=True):
            self.deaths[task.mode] += outcome.died
            self.results.update(what[:100] for _, what in outcome.jobs)
            if outcome.refused:
                self.results[outcome.refused[:100]] += 1

    def _restart(self, number: int) -> None:
        self.processes[number].close()
        self.processes[number] = Process(f"p{number}", self.address, SCHEMA, self.folder)
        self.processes[number].call(fleet_sessions.turn, self.minutes)

    def _turn(self, minutes: int) -> None:
        self.minutes += minutes
        for process in self.processes:
            process.call(fleet_sessions.turn, minutes).result()

    def _resume(self) -> None:
        for table, job in self.jobs().items():
            why = reason(job)
            if why is None or why is PauseReason.REVERTED:
                continue
            self.pauses[why.value] += 1
            assert why not in NEVER, f"{table}: {job.pause_reason}"
            self.store.edit(resumed(job), self.store.now())

    def _write(self) -> None:
        """Write into some tables, except those in a revert, whose writers were told to wait."""
        jobs = self.jobs()
        for table in self.chance.sample(sorted(jobs), min(5, TABLES)):
            self.written += 1
            back = jobs[table].pair in BACK or jobs[table].pair == RESTS["revert"]
            if not back and self.processes[1].call(fleet_sessions.write, table, self.written).result():
                self.rows[table].append((self.written, "new"))


@pytest.fixture
def all_of_them(tmp_path: Path) -> Iterator[Crowd]:
    (home := tmp_path / "metastore").mkdir()
    with (
        servers.or_skip(metastore.serving(home)) as address,
        closing(open_store(f"sqlite:///{tmp_path / 'fleet.db'}")) as store,
    ):
        store.create()
        processes = [Process(f"p{number}", address, SCHEMA, tmp_path) for number in (0, 1)]
        made = Crowd(address, tmp_path, store, random.Random(soak.SEED), processes)
        try:
            yield made
        finally:
            for process in made.processes:
                process.close()


@soak.only
def test_no_row_is_lost_or_duplicated_when_workers_die(all_of_them: Crowd) -> None:
    ours, generation = all_of_them, 0
    while ours.kills < KILLS:
        generation += 1
        ours.begin(generation)
        for number in range(ROUNDS):
            # In the second half no worker dies, so that all tables reach their final state.
            ours.round(deadly=number < ROUNDS // 2 and ours.kills < KILLS)
            if not ours.left():
                break
        assert ours.left() == []
        last = ours.processes[1].call(fleet_sessions.crowd, [Task("last", "shadow", 10_000)]).result()
        assert {what for outcome in last for _, what in outcome.jobs} <= {"done"}
        for table, goal in ours.goals.items():
            expected = sorted(ours.rows[table], key=repr)
            rows = ours.processes[1].call(fleet_sessions.rows, table).result()
            assert rows == expected, f"{table}, {goal}"
            if goal == "stay":
                rows = ours.processes[1].call(fleet_sessions.rows, f"{table}_hive").result()
                assert rows == expected, f"the Hive copy of {table}"
        print(
            f"generation {generation}, {number + 1} rounds: {sum(map(len, ours.rows.values()))} rows in "
            f"{TABLES} tables; so far {ours.kills} workers died ({dict(ours.deaths)}), "
            f"{ours.processes_killed} times a whole process, pauses {dict(ours.pauses)}, results "
            f"{dict(ours.results)}",
            flush=True,
        )
