"""The processes of real runs are killed, by SIGKILL and wherever they are, and the next run goes on.

Each round commits to a scenario's source and kills a run of the command line, several times, and lets one
come to its end: then its target must equal the oracle. Python dies alone, or Java does, or both at once.
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

# So many runs of a round are to be killed, and so many of each kind of target must be: fifty of all three.
KILLS, KILLED = 3, 17
# A run that comes to its end before isn't killed, and how many do depends on the machine.
ROUNDS = range(7, 25)
COMMAND = "from tableferry.cli import main; main()"
MAKE = """
import sys
from pathlib import Path
from tableferry.spark import session
spark = session.resolve(Path(sys.argv[1]))
for statement in sys.argv[2:]:
    spark.sql(statement)
"""


@dataclass
class Statements:
    """Takes the place of a session: collects statements that a process of its own runs."""

    waiting: list[str] = field(default_factory=list)

    def sql(self, statement: str) -> None:
        self.waiting.append(statement)


@dataclass
class Processes:
    """Starts processes on one warehouse, and kills them.

    Attributes:
        warehouse: Where their Spark keeps its tables.
        random: When they die, and which of them.
        seconds: How long a run takes at most, once it speaks of its target.
        killed: How many died, by what they were about.
    """

    warehouse: Path
    random: Random
    seconds: float = 3.0
    killed: Counter[str] = field(default_factory=Counter)

    def changes(self) -> tuple[Change, ...]:
        """Draw what the next commit brings."""
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

    def make(self, statements: list[str]) -> None:
        self._finish(self._start("-c", MAKE, str(self.warehouse), *statements))

    def run(self, *arguments: str, kill: bool) -> None:
        """Run the command line; a run that is to be killed may come to its end before."""
        warehouse = ("--warehouse", str(self.warehouse))
        self.execute(COMMAND, *arguments, *warehouse, "--verbose", "--debug", kill=kill)

    def execute(self, program: str, *arguments: str, kill: bool) -> None:
        """Run a Python program that says ``killed.…`` once it's about its target."""
        process = self._start("-c", program, *arguments)
        messages: list[str] = []
        speaking = threading.Event()
        reader = threading.Thread(target=_read, args=(process.stdout, messages, speaking))
        reader.start()
        speaking.wait()
        since = time.monotonic()
        try:
            # The longest run is one that goes on after others were killed: most of them end earlier.
            code = process.wait(self.random.uniform(0, 0.7 * self.seconds) if kill else None)
        except subprocess.TimeoutExpired:
            self._kill(process, messages)
        else:
            reader.join()
            assert code == 0, "\n".join(messages)
            self.seconds = max(self.seconds, time.monotonic() - since)
        reader.join()

    def _kill(self, process: subprocess.Popen[str], lines: list[str]) -> None:
        java = _children(process.pid)
        victims = self.random.choice([[process.pid], java, [process.pid, *java]])
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        self.killed[lines[-1].split(": ", 1)[-1].split(",")[0][:60]] += 1
        process.wait()
        # Java ends by itself when its Python is gone, and holds its warehouse until then.
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
        statements = cast("Statements", self.spark).waiting
        if statements:
            self.processes.make(statements)
            statements.clear()
        second = ("--full-refresh", f"{self.schema}.{self.target}") if refresh else ()
        for _ in range(KILLS):
            self.commit(self.processes.changes())
            self.processes.run("pipelines", "run", str(self.root), *second, kill=True)
        self.processes.run("pipelines", "run", str(self.root), kill=False)
        self.check()


@soak.only  # What dies before any of its effects, and in what order, is test_property.py's.
@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_killed_process_loses_nothing(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = Random(f"{kind} {soak.SEED}")
    folder = tmp_path / "tables"
    spark: Any = Statements([f"CREATE SCHEMA killed LOCATION '{folder}'"])

    processes = Processes(tmp_path / "warehouse", random)
    scenario = KilledScenario(spark, "killed", folder, tmp_path / "scenario", kind, processes.changes())
    scenario.processes = processes
    killed = processes.killed
    for number in range(ROUNDS.stop):
        if number >= ROUNDS.start and killed.total() >= KILLED:
            break
        scenario.run(refresh=number % 3 == 2)
    with capsys.disabled():
        print(f"\n{kind}: {killed.total()} killed, while: {dict(killed.most_common())}")
    assert killed.total() >= KILLED


def _read(stream: IO[str] | None, lines: list[str], speaking: threading.Event) -> None:
    assert stream is not None
    for line in stream:
        lines.append(line.rstrip())
        # Before it speaks of the target, it only plans.
        if "killed." in line:
            speaking.set()
    speaking.set()


def _children(pid: int) -> list[int]:
    """Name the Java processes below one."""
    actual = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        child, parent = int(stat.parent.name), int(text.rpartition(")")[2].split()[1])
        if parent == pid:
            actual += [child] if "(java)" in text else _children(child)
    return actual


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
