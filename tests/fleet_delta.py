"""A queue in Delta tables for a test, in any session."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.fleet_queue import Queue
from tests.spark.tables import schema_folder

from tableferry.fleet.jobs.job import Job
from tableferry.fleet.queue import delta_tables
from tableferry.fleet.queue.delta import DeltaStore
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.records import Event, to_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("jobs", "letters", "waves")


def url(schema: str) -> str:
    """Return the address of a schema's queue."""
    return f"delta:spark_catalog.{schema}"


def store(spark: SparkSession, schema: str) -> DeltaStore:
    """Open the queue of a schema."""
    opened = open_store(url(schema), spark)
    assert isinstance(opened, DeltaStore)
    return opened


def made(spark: SparkSession, schema: str) -> DeltaStore:
    """Create a queue's tables in a schema."""
    with pytest.MonkeyPatch.context() as patch:
        if not soak.SOAKING:
            # They don't change results, and take a third of the time of each statement.
            patch.setattr(delta_tables, "PROPERTIES", "")
        queue = store(spark, schema)
        queue.create()
    return queue


def put(
    spark: SparkSession,
    schema: str,
    jobs: Sequence[Job],
    events: Sequence[Event] = (),
    table: str = "jobs",
) -> None:
    """Insert jobs without the store."""
    columns = spark.table(f"{schema}.{table}").schema
    happened: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for event in events:
        states = event.state.value, event.desired_state.value
        happened[event.task_id].append((event.at, *states, event.paused, event.pause_reason, event.worker))
    rows = [
        {
            name: json.dumps(value) if isinstance(value, (list, dict)) else value
            for name, value in to_row(job).items()
        }
        | {"events": happened.get(job.task_id)}
        for job in jobs
    ]
    spark.createDataFrame([tuple(row[name] for name in columns.names) for row in rows], columns).writeTo(
        f"{schema}.{table}"
    ).append()


def empty_queue(spark: SparkSession, schema: str) -> Queue:
    """Yield the queue of a schema without the rows of other tests."""
    for table in TABLES:
        if soak.SOAKING:
            # Deletion vectors delete its rows, so a commit would have to name them.
            spark.sql(f"DELETE FROM {schema}.{table}").collect()
        else:
            _take_all_files(schema_folder(spark, schema) / table)
    return Queue(store(spark, schema), lambda: store(spark, schema), lambda jobs: put(spark, schema, jobs))


def _take_all_files(folder: Path) -> None:
    """Commit the removal of all files of a Delta table, in a hundredth of Spark's time."""
    commits = sorted((folder / "_delta_log").glob("*.json"))
    files: set[str] = set()
    for line in "".join(commit.read_text(encoding="utf-8") for commit in commits).split("\n"):
        match json.loads(line or "{}"):
            case {"add": {"path": path}}:
                files.add(path)
            case {"remove": {"path": path}}:
                files.discard(path)
    if files:
        gone = [json.dumps({"remove": {"path": path, "dataChange": True}}) + "\n" for path in sorted(files)]
        new = commits[-1].with_name(f"{int(commits[-1].stem) + 1:020}.json")
        new.write_text("".join(gone), encoding="utf-8")
