"""Runs are killed by SIGKILL at random moments, and the next run resumes.

Each round several times commits to a scenario's source and kills a run of the command line. The last run of a
round isn't killed; after it the target must equal the oracle. The test kills Python, Java or both.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import IO, Any, cast, get_args

import pytest
from tests import quick, soak
from tests.spark.scenarios import Change, Kind, Scenario, ScenarioEvent

# Attempted kills per round, and the least number of killed runs per kind of target: fifty for all three.
KILLS, KILLED = 3, 17
# A run may end before it can be killed. The number of such runs depends on the machine.
ROUNDS = range(7, 25)
COMMAND = "from tableferry.cli import main; main()"
RUN_STATEMENTS = """
import sys
from pathlib import Path
from tableferry.spark import session
spark = session.resolve(Path(sys.argv[1]))
for statement in sys.argv[2:]:
    spark.sql(statement)
"""


@dataclass
class StatementCollector:
    """A session that only collects statements; a separate process runs them."""

    waiting: list[str] = field(default_factory=list)

    def sql(self, statement: str) -> None:
        self.waiting.append(statement)


@dataclass
class Processes:
    """Starts processes on one warehouse, and kills them.

    Attributes:
        warehouse: The warehouse of their Spark.
        random: Chooses the time of a kill and the processes.
        seconds: The longest duration of a run after its first message about the target.
        killed: The number of killed processes by their last message.
    """

    warehouse: Path
    random: Random
    seconds: float = 3.0
    killed: Counter[str] = field(default_factory=Counter)

    def draw_changes(self) -> tuple[Change, ...]:
        """Draw the rows of the next commit."""
        choose = self.random
        return tuple(
            Change(
                choose.randrange(4),
                choose.choice([None, 0, 1, 2]),
                choose.randrange(7),
                choose.random() < 0.3,
            )
            for _ in range(choose.randrange(1, 30))
        )

    def run_statements(self, statements: list[str]) -> None:
        self._finish(self._start("-c", RUN_STATEMENTS, str(self.warehouse), *statements))

    def run(self, *arguments: str, kill: bool) -> None:
        """Run the command line; it may end before it is killed."""
        warehouse = ("--warehouse", str(self.warehouse))
        self.execute(COMMAND, *arguments, *warehouse, "--verbose", "--debug", kill=kill)

    def execute(self, program: str, *arguments: str, kill: bool) -> None:
        """Run a Python program that prints ``killed.…`` when it starts work on its target."""
        process = self._start("-c", program, *arguments)
        messages: list[str] = []
        has_started = threading.Event()
        reader = threading.Thread(target=_read_output, args=(process.stdout, messages, has_started))
        reader.start()
        has_started.wait()
        started_at = time.monotonic()
        try:
            # The longest runs are those that resume after a kill; most runs end earlier.
            code = process.wait(self.random.uniform(0, 0.7 * self.seconds) if kill else None)
        except subprocess.TimeoutExpired:
            self._kill(process, messages)
        else:
            reader.join()
            assert code == 0, "\n".join(messages)
            self.seconds = max(self.seconds, time.monotonic() - started_at)
        reader.join()

    def _kill(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        java = _java_descendants(process.pid)
        victims = self.random.choice([[process.pid], java, [process.pid, *java]])
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self.killed[lines[-1].split(": ", 1)[-1].split(",")[0][:60]] += 1
        process.wait()
        # Java ends some time after its Python process, and uses the warehouse until then.
        while any(_is_alive(pid) for pid in java):
            time.sleep(0.1)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        java = {"JDK_JAVA_OPTIONS": quick.JAVA_OPTIONS, "TABLEFERRY_MASTER": "local[2]"}
        return subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **java},
        )

    def _finish(self, process: subprocess.Popen[str]) -> None:
        output, _ = process.communicate()
        assert process.returncode == 0, output


class KilledScenario(Scenario):
    """A scenario whose runs are processes."""

    processes: Processes

    def run(self, during: ScenarioEvent | None = None, *, refresh: bool = False) -> None:
        statements = cast("StatementCollector", self.spark).waiting
        if statements:
            self.processes.run_statements(statements)
            statements.clear()
        second = ("--full-refresh", f"{self.schema}.{self.target}") if refresh else ()
        for _ in range(KILLS):
            self.commit(self.processes.draw_changes())
            self.processes.run("pipelines", "run", str(self.root), *second, kill=True)
        self.processes.run("pipelines", "run", str(self.root), kill=False)
        self.check()


@soak.only  # test_property.py tests crashes before each effect.
@pytest.mark.parametrize("kind", get_args(Kind))
def test_killed_runs_lose_and_repeat_no_row(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(f"{kind} {soak.SEED}")
    folder = tmp_path / "tables"
    spark: Any = StatementCollector([f"CREATE SCHEMA killed LOCATION '{folder}'"])

    processes = Processes(tmp_path / "warehouse", random)
    scenario = KilledScenario(spark, "killed", folder, tmp_path / "scenario", kind, processes.draw_changes())
    scenario.processes = processes
    killed = processes.killed
    for number in range(ROUNDS.stop):
        if number >= ROUNDS.start and killed.total() >= KILLED:
            break
        scenario.run(refresh=number % 3 == 2)
    with capsys.disabled():
        print(f"\n{kind}: {killed.total()} killed, while: {dict(killed.most_common())}")
    assert killed.total() >= KILLED


def _read_output(stream: IO[str] | None, lines: list[str], has_started: threading.Event) -> None:
    assert stream is not None
    for line in stream:
        lines.append(line.rstrip())
        # Before its first message about the target, a run only plans.
        if "killed." in line:
            has_started.set()
    has_started.set()


def _java_descendants(pid: int) -> list[int]:
    """Return the ids of the Java processes that descend from a process."""
    actual = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        child, parent = int(stat.parent.name), int(text.rpartition(")")[2].split()[1])
        if parent == pid:
            actual += [child] if "(java)" in text else _java_descendants(child)
    return actual


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
