"""Workers of a fleet in separate processes and Spark sessions on one metastore."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from threading import Timer
from typing import Any, TypeVar

from tests import quick
from tests.spark.fleets import Fleet, errors, fleet, hive_table

from tableferry.errors import TableferryError, first_line
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.modes.migrator import migrate
from tableferry.fleet.modes.preprocessor import preprocess
from tableferry.fleet.modes.results import ModeReport
from tableferry.fleet.modes.reverter import revert
from tableferry.fleet.modes.shadower import shadow
from tableferry.fleet.warehouse import job_tables
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.formats.hive.partitions import NULL
from tableferry.spark import session
from tableferry.spark.catalog import SPARK_ERRORS

T = TypeVar("T")

# Spark uses Hive's writers only with this setting.
_DYNAMIC = {"hive.exec.dynamic.partition.mode": "nonstrict"}

_ours: Fleet


@dataclass
class Process:
    """A worker's process, as a pool of one: a call to a killed worker raises BrokenProcessPool.

    Attributes:
        name: The worker's.
        address: The metastore's.
        schema: Where the tables are.
        folder: Holds the queue, the tables, and a folder for each worker's Spark.
    """

    name: str
    address: str
    schema: str
    folder: Path
    _pool: ProcessPoolExecutor = field(init=False)

    def __post_init__(self) -> None:
        where = (self.name, self.address, self.schema, self.folder)
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_start, initargs=where)

    def call(self, function: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run a function of this module in the process."""
        return self._pool.submit(function, *arguments)

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown(cancel_futures=True)


def make(
    folder: Path, tables: Mapping[str, Iterable[tuple[int, str | None]]], texts: Collection[str] = ()
) -> None:
    """Create external Hive tables with partitions, and their schema if it is missing.

    Args:
        folder: The folder of their files.
        tables: Their rows.
        texts: Those of them that are stored as text; the others are of Parquet.
    """
    _ours.spark.sql(f"CREATE SCHEMA IF NOT EXISTS {_ours.schema}")
    with session.settings(_ours.spark, _DYNAMIC, "the test"):
        for table, rows in tables.items():
            stored = "TEXTFILE" if table in texts else "PARQUET"
            hive_table(_ours.spark, _ours.name(table).sql, folder / table, rows, stored)


def announce() -> list[str]:
    """Preprocess new jobs, and set the dates of their notifications; return the failures."""
    report = _ours.preprocess()
    _ours.notify()
    return errors(report)


def turn(minutes: int) -> None:
    """Advance this worker's clock."""
    _ours.clock.turn(minutes=minutes)


def work(share: int, batch: int, dies_at: int | None = None, dies_in: float | None = None) -> dict[str, str]:
    """Migrate tables, and return the result of each.

    Args:
        share: Of two shares, the one whose tables it takes first.
        batch: How many tables at most.
        dies_at: The number, from 0, of the change right after which this process is killed.
        dies_in: The seconds after the start of that change at which it is killed instead; Spark's Java
            process continues until it notices.
    """
    number, real, killers = count(), Warehouse.effect, list[Timer]()

    def effect(warehouse: Warehouse, change: Callable[[], Any], **how: Any) -> Any:
        dies = next(number) == dies_at
        if dies and dies_in is not None:
            killers.append(Timer(dies_in, _die))
            killers[0].start()
        done = real(warehouse, change, **how)
        if dies and dies_in is None:
            _die()
        return done

    Warehouse.effect = effect  # type: ignore[assignment, method-assign]
    try:
        report = migrate(_ours.worker(f"w{share}", share=(share, 2), batch_size=batch))
    finally:
        Warehouse.effect = real  # type: ignore[method-assign]
    for killer in killers:
        killer.join()
    return {job.job.tbl_name: job.error or job.outcome for job in report.jobs}


def append(table: str, numbers: Iterable[int]) -> None:
    """Append rows to a migrated table, each in a separate commit."""
    for number in numbers:
        _ours.write(table, f"INSERT INTO {{t}} VALUES ({number}, NULL, 'new')")


def rows(table: str) -> list[tuple[int, str | None]]:
    """Read the numbers and days of a table; by Hive's own readers, no day is the name of its directory."""
    read = ((row[0], None if row[-1] == NULL else row[-1]) for row in _ours.rows(table))
    return sorted(read, key=repr)


def _start(name: str, address: str, schema: str, folder: Path) -> None:
    global _ours
    conf = folder / f"conf_{name}"
    conf.mkdir(exist_ok=True)
    settings = quick.INTERPRETED | quick.SETTINGS | {"spark.hadoop.hive.metastore.uris": address}
    lines = [f"{key} {value}\n" for key, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
    os.environ |= {
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DRIVER_MEMORY": "1g",
        "TABLEFERRY_MASTER": "local[1]",
        "JDK_JAVA_OPTIONS": quick.JAVA_OPTIONS,
    }
    spark = session.resolve(folder / name, iceberg=True, say=lambda line: None)
    _ours = fleet(spark, schema, folder)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Death(BaseException):
    """The crash of a worker."""


@dataclass(frozen=True)
class Task:
    """The task of one of several workers.

    Attributes:
        worker: Its name.
        mode: Of the modes, the one that it runs.
        batch: How many tables at most.
        tables: Which to start to revert.
        dies_at: The number, from 0, of the change at which it dies; None if it lives.
        before: Whether it dies right before that change, and not right after it.
        takes_all: Whether its whole process is killed with it.
    """

    worker: str
    mode: str
    batch: int
    tables: tuple[str, ...] = ()
    dies_at: int | None = None
    before: bool = False
    takes_all: bool = False


@dataclass(frozen=True)
class Outcome:
    """The result of a task.

    Attributes:
        died: Whether the worker died.
        jobs: What became of each table.
        refused: Why it couldn't begin.
    """

    died: bool = False
    jobs: tuple[tuple[str, str], ...] = ()
    refused: str = ""


def crowd(tasks: Sequence[Task]) -> list[Outcome]:
    """Run the tasks of workers concurrently, each in a separate thread and Spark session."""
    local, real = threading.local(), Warehouse.effect

    def effect(warehouse: Warehouse, change: Callable[[], Any], **how: Any) -> Any:
        task: Task | None = getattr(local, "task", None)
        dies = task is not None and next(local.number) == task.dies_at
        if task is None or not dies:
            return real(warehouse, change, **how)
        if not task.before:
            real(warehouse, change, **how)
        if task.takes_all:
            _die()
        raise Death

    def work(task: Task) -> Outcome:
        local.task, local.number = task, count()
        try:
            report = _run(task)
            return Outcome(jobs=tuple((job.job.tbl_name, job.error or job.outcome) for job in report.jobs))
        except Death:
            return Outcome(died=True)
        except TableferryError as error:
            return Outcome(refused=str(error))

    Warehouse.effect = effect  # type: ignore[assignment, method-assign]
    try:
        with ThreadPoolExecutor(len(tasks)) as pool:
            return list(pool.map(work, tasks))
    finally:
        Warehouse.effect = real  # type: ignore[method-assign]


def _run(task: Task) -> ModeReport:
    own = session.beside(_ours.spark)
    assert own is not None
    warehouse = replace(_ours.warehouse, spark=own)
    worker = replace(_ours.worker(task.worker, batch_size=task.batch), open_warehouse=lambda: warehouse)
    match task.mode:
        case "preprocess":
            return preprocess(worker)
        case "migrate":
            return migrate(worker)
        case "shadow":
            return shadow(worker)
        case _:
            return revert(worker, map(_ours.name, task.tables))


def notify() -> None:
    """Set the dates of notifications that are due."""
    _ours.notify()


def write(table: str, number: int) -> bool:
    """Append a row to a table by its public name; return whether that succeeded."""
    name = _ours.name(table)
    kind = job_tables.kinds(_ours.warehouse, (name,)).get(name)
    theirs = session.beside(_ours.spark)
    if kind is None or theirs is None:
        return False
    known = _ours.warehouse.iceberg(name) if kind is Kind.ICEBERG else name
    try:
        with session.settings(theirs, _DYNAMIC, "the test"):
            theirs.sql(f"INSERT INTO {known.sql} VALUES ({number}, NULL, 'new')")
    except SPARK_ERRORS as error:
        # Spark writes to no Hive table while a Delta log is created over its files.
        print(f"{table} takes no row now: {first_line(error)[:200]}")
        return False
    return True
