"""Old streams and runs are killed by SIGKILL at random points, while records arrive."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests import soak
from tests.broker import Broker
from tests.spark.projects import Project
from tests.spark.tables import rows_of
from tests.spark.test_kafka import COLUMNS, migrate
from tests.spark.test_kills import Processes, StatementCollector

KILLED = 12
ROUNDS = range(3, 9)
OLD = """
import sys
from pathlib import Path
from tableferry.spark import session
from tests.spark.test_kafka import stream
warehouse, address, topic, checkpoint, table = sys.argv[1:]
class Broker:
    address = address
spark = session.resolve(Path(warehouse), kafka=True)
print(table, flush=True)
stream(spark, Broker(), topic, Path(checkpoint), table)
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path / "broker")
    yield broker
    broker.kill()


@soak.only  # test_kafka.py has crashes directly before each effect.
@pytest.mark.parametrize("mode", ["copy", "takeOver"])
def test_killed_streams_and_runs_lose_no_record(
    mode: str, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, numbers, folder, old = Random(f"{mode} {soak.SEED}"), count(), tmp_path / "t", tmp_path / "old"
    processes = Processes(tmp_path / "warehouse", random)
    legacy = "out" if mode == "takeOver" else "out_legacy"
    processes.run_statements(
        [
            f"CREATE SCHEMA killed LOCATION '{folder}'",
            f"CREATE TABLE killed.{legacy} ({COLUMNS}) USING delta",
        ]
    )
    spark: Any = StatementCollector([])
    shop = Project(tmp_path / "shop", "killed", spark)
    broker.create("orders", 2)
    migrate(shop, broker, "orders", old, mode=mode, legacy={"table": legacy})

    def old_stream(*, kill: bool) -> None:
        broker.send("orders", (str(next(numbers)) for _ in range(random.randrange(1, 30))), 2)
        where = (str(processes.warehouse), broker.address, "orders", str(old), f"killed.{legacy}")
        processes.execute(OLD, *where, kill=kill)

    def run(command: str = "run", *, kill: bool) -> None:
        if command == "run":
            broker.send("orders", (str(next(numbers)) for _ in range(random.randrange(1, 30))), 2)
        processes.run("pipelines", command, str(shop.root), kill=kill)

    killed = processes.killed
    for number in range(ROUNDS.stop):
        if number >= ROUNDS.start and killed.total() >= KILLED:
            break
        for kill in (True, True, False):
            old_stream(kill=kill)
        for kill in (True, True, True, False):
            run(kill=kill)
        if mode == "takeOver":
            run("undo", kill=True)
            # Without state, the killed undo had finished, and another one would be refused.
            if any(shop.state.rglob("part-00000.csv")) or any(shop.state.rglob("state.json")):
                run("undo", kill=False)
    old_stream(kill=False)
    if mode == "copy":
        run(kill=False)
        old_stream(kill=False)
        run(kill=False)
    expected = list(range(next(numbers)))
    assert sorted(int(row[0]) for row in rows_of(folder / "out")) == expected
    with capsys.disabled():
        print(f"\n{mode}: {killed.total()} killed, while: {dict(killed.most_common())}")
    assert killed.total() >= KILLED
