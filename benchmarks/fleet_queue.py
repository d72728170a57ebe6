"""Measure the fleet's queue: adding, claiming, updating and counting 100,000 jobs in each store.

python benchmarks/fleet_queue.py --jobs 100000

Starts MariaDB and PostgreSQL in separate folders, with commits that wait for the disk, and measures each
store with 1, 2, 4 and 8 worker processes. --delta measures a queue in Delta tables, with fewer claims. Its
workers are threads of one session with one store, as in a worker that moves several tables concurrently.

- add: all jobs, in one call;
- claims/s: jobs claimed in batches by all workers together;
- saves/s: claimed jobs saved one by one;
- batched/s: claimed jobs saved in batches;
- status: the figures of a fleet in the middle of its migration, as `fleet status` reads them: the median of
  five, the fastest, and the CPU time of the process that asks, which a loaded machine doesn't stretch (all
  of it for SQLite, without the server's for the others).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Replace this folder, because its modules would hide others of the same names.
sys.path[0] = str(ROOT)

from benchmarks import fleet_halfway  # noqa: E402
from tests import servers  # noqa: E402

from tableferry.fleet.queue.opening import PASSWORD_VARIABLE, open_store  # noqa: E402
from tableferry.fleet.queue.records import NewJob  # noqa: E402
from tableferry.fleet.queue.selections import to_preprocess  # noqa: E402
from tableferry.fleet.queue.sql import SqlStore  # noqa: E402
from tableferry.fleet.queue.store import Store  # noqa: E402
from tableferry.fleet.reports.status import read_status  # noqa: E402
from tableferry.spark import session  # noqa: E402
from tableferry.spark.tables import TableName  # noqa: E402

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
LEASE = timedelta(hours=1)
OWNERS = 500
LOOKS = 5


@dataclass(frozen=True)
class Task:
    """The task of a worker.

    Attributes:
        url: The queue.
        worker: The worker's number.
        workers: The number of workers.
        now: The time; every earlier claim has lapsed.
        jobs: The number of jobs to claim.
        batch: Jobs per claim.
        seconds: Limit for saving jobs one by one.
    """

    url: str
    worker: int
    workers: int
    now: datetime
    jobs: int
    batch: int
    seconds: float


@dataclass(frozen=True)
class Span:
    """A number of jobs, with start and end by the machine's clock."""

    jobs: int
    started: float
    ended: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8])
    parser.add_argument("--batch", type=int, default=100, help="jobs per claim")
    parser.add_argument("--claims", type=int, default=8000, help="jobs claimed by all workers together")
    parser.add_argument("--seconds", type=float, default=5, help="of saving one by one")
    parser.add_argument("--only", nargs="*", choices=STORES, default=list(STORES), metavar="STORE")
    parser.add_argument("--delta", action="store_true", help="a queue in Delta tables too")
    arguments = parser.parse_args()
    os.environ[PASSWORD_VARIABLE] = servers.PASSWORD
    print(machine(), flush=True)
    print_row(["store", "jobs", "add", "workers", "claims/s", "saves/s", "batched/s"], head=True)
    for name in arguments.only:
        with STORES[name]() as url:
            measure(name, url, arguments.jobs, arguments.claims, arguments, in_processes)
    if arguments.delta:
        with delta() as (url, run):
            measure("Delta", url, arguments.jobs, arguments.claims // 10, arguments, run)
    print_row(["store", "jobs", "events", "status", "fastest", "CPU", "load"], head=True)
    for name in arguments.only:
        with STORES[name]() as url:
            measure_status(name, url, arguments.jobs)


def measure(
    name: str,
    url: str,
    jobs: int,
    claims: int,
    arguments: argparse.Namespace,
    run: Callable[..., list[list[Span]]],
) -> None:
    """Fill a queue and print a row for each number of workers."""
    store = open_store(url)
    store.create()
    started = time.monotonic()
    assert store.add(new_jobs(jobs), BEGIN) == jobs
    added = time.monotonic() - started
    now = BEGIN
    for workers in arguments.workers:
        now += 2 * LEASE
        tasks = [
            Task(url, worker, workers, now, claims // workers, arguments.batch, arguments.seconds)
            for worker in range(workers)
        ]
        rates = [rate(spans) for spans in zip(*run(tasks), strict=True)]
        print_row(
            [
                name,
                f"{jobs:,}",
                f"{added:.1f} s",
                workers,
                *(f"{value:,.{1 if value < 10 else 0}f}" for value in rates),
            ]
        )
    store.close()


def measure_status(name: str, url: str, jobs: int) -> None:
    """Fill a queue with a fleet that is halfway, and print the time of its figures."""
    store = open_store(url)
    assert isinstance(store, SqlStore)
    store.create()
    happened = fleet_halfway.fill(store._engine, jobs, BEGIN)
    took: list[float] = []
    worked: list[float] = []
    for _ in range(LOOKS):
        started, busy = time.monotonic(), time.process_time()
        assert read_status(store, BEGIN).total == jobs
        took.append(time.monotonic() - started)
        worked.append(time.process_time() - busy)
    seconds = [f"{value:.2f} s" for value in (statistics.median(took), min(took), statistics.median(worked))]
    print_row([name, f"{jobs:,}", f"{happened:,}", *seconds, f"{os.getloadavg()[0]:.1f}"])
    store.close()


def print_row(cells: Sequence[object], *, head: bool = False) -> None:
    """Print a table's row, and Markdown's separator below the first."""
    print("\n" * head + "| " + " | ".join(map(str, cells)) + " |", flush=True)
    if head:
        print("| --- |" + " ---: |" * (len(cells) - 1), flush=True)


def new_jobs(count: int) -> Iterator[NewJob]:
    for number in range(count):
        name = TableName(("spark_catalog", f"db{number % 200}", f"table_{number}"))
        yield NewJob(name, tbl_owners=(f"owner{number % OWNERS}@example.org",))


def rate(spans: Sequence[Span]) -> float:
    """Return jobs per second of all workers, from the first start to the last end."""
    took = max(span.ended for span in spans) - min(span.started for span in spans)
    return sum(span.jobs for span in spans) / took


def work(task: Task, store: Store, together: Any) -> list[Span]:
    """Claim, save one by one, and save in batches, concurrently with the other workers."""
    mine: list[Any] = []
    together.wait()
    started = time.monotonic()
    while len(mine) < task.jobs:
        mine += store.claim(
            to_preprocess(task.now),
            f"w{task.worker}",
            now=task.now,
            lease=LEASE,
            limit=min(task.batch, task.jobs - len(mine)),
            share=(task.worker, task.workers),
        )
    claimed = Span(len(mine), started, time.monotonic())
    together.wait()
    started = time.monotonic()
    saved = 0
    while saved < len(mine) and time.monotonic() < started + task.seconds:
        mine[saved] = store.save(replace(mine[saved], stg_format="parquet"), task.now)
        saved += 1
    one_by_one = Span(saved, started, time.monotonic())
    together.wait()
    started = time.monotonic()
    for start in range(0, len(mine), task.batch):
        some = mine[start : start + task.batch]
        assert len(store.save_all(some, task.now, release=True)) == len(some)
    return [claimed, one_by_one, Span(len(mine), started, time.monotonic())]


def in_processes(tasks: Sequence[Task]) -> list[list[Span]]:
    """Run each task in a separate process."""
    context = multiprocessing.get_context("spawn")
    together, results = context.Barrier(len(tasks)), context.SimpleQueue()
    processes = [context.Process(target=_process, args=(task, together, results)) for task in tasks]
    for process in processes:
        process.start()
    spans = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return spans


def _process(task: Task, together: Any, results: Any) -> None:
    store = open_store(task.url)
    results.put(work(task, store, together))
    store.close()


@contextmanager
def delta() -> Iterator[tuple[str, Callable[[Sequence[Task]], list[list[Span]]]]]:
    """Start Spark, and yield a function that runs each task in a thread."""
    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as folder:
        spark = session.resolve(folder, say=lambda line: None)

        def run(tasks: Sequence[Task]) -> list[list[Span]]:
            store = open_store(tasks[0].url, spark)
            together, results = threading.Barrier(len(tasks)), list[list[Span]]()
            threads = [
                threading.Thread(target=lambda task=task: results.append(work(task, store, together)))
                for task in tasks
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return results

        yield "delta:spark_catalog.fleet", run
        session.stop(spark)


@contextmanager
def sqlite() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="tableferry-bench-") as folder:
        yield f"sqlite:///{folder}/fleet.db"


STORES: dict[str, Callable[[], Any]] = {
    "SQLite": sqlite,
    "MariaDB": lambda: servers.mariadb(durable=True),
    "PostgreSQL": lambda: servers.postgresql(durable=True),
}


def machine() -> str:
    versions = [f"{name} {metadata.version(name)}" for name in ("sqlalchemy", "pymysql", "psycopg")]
    parts = [f"{os.cpu_count()} cores", platform.machine(), f"Python {platform.python_version()}", *versions]
    return ", ".join([*parts, f"load {os.getloadavg()[0]:.1f}"])


if __name__ == "__main__":
    main()
