"""Log records of a run's progress, and its counts from the commits that it made."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.spark.projects import Project

from tableferry.formats.delta.commits import commits_after, counted, newest_version
from tableferry.progress import Task, task
from tableferry.spark import session
from tableferry.spark.catalog import facts
from tableferry.spark.driver import Size, track_jobs
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("tableferry.test")
FEED = "id int, v string, at int"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def finished_steps(caplog: pytest.LogCaptureFixture, table: str) -> list[dict[str, Any]]:
    """Return the finished steps of a table with their counts."""
    names = ("step", "rows", "files", "batches")
    return [
        {name: value for name in names if (value := getattr(record, name, None)) is not None}
        for record in caplog.records
        if getattr(record, "event", "") == "done" and getattr(record, "table", "") == table
    ]


@soak.slow
def test_run_counts_committed_rows_and_logs_each_batch(
    project: Project, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    project.create("src", FEED, (1, "a", 1), (2, "b", 2))
    project.create("rows_legacy", FEED, (1, "a", 1), (2, "b", 2))
    project.create("latest_legacy", FEED, (1, "a", 1))
    one_file, two_files = ({"readerOptions": {"maxFilesPerTrigger": number}} for number in ("1", "2"))
    project.standard("rows", project.delta("src", whereClause=["v <> 'no'"], **one_file), migration={})
    merge = {"keys": ["id"], "sequence_by": "at", "scd_type": "1"}
    project.standard("latest", project.delta("src", **two_files), cdc=merge, migration={})
    caplog.set_level(logging.INFO, "tableferry")
    project.run()
    table = f"{project.schema}.rows"
    assert [step for step in finished_steps(caplog, table) if "rows" in step] == [
        {"step": "copy the history", "rows": 2, "files": 1},
        {"step": "compare the copy with the legacy table", "rows": 2},
    ]
    caplog.clear()

    for number in range(3, 7):
        project.insert("src", (number, "no" if number == 6 else "c", number))
    # Spark keeps the progress of only the last batches.
    with session.settings(spark, {"spark.sql.streaming.numRecentProgressUpdates": "2"}, "the test"):
        done = project.run()
    counts = {target.plan.target.table: [result.rows for result in target.results] for target in done.targets}
    assert counts == {"rows": [3], "latest": [4]}
    [stream] = finished_steps(caplog, table)
    assert (stream["step"], stream["rows"]) == ("stream f_v_rows", 3)
    batches = [
        (record.table, record.rows)  # type: ignore[attr-defined]
        for record in caplog.records
        if getattr(record, "event", "") == "batch"
    ]
    latest = f"{project.schema}.latest"
    assert Counter(batches).keys() == {(table, 1), (latest, 2)}
    assert Counter(batches)[latest, 2] == 2


def test_task_counts_tasks_rows_and_bytes_of_long_write(spark: SparkSession, schema: str) -> None:
    asked: list[int] = []

    def expected() -> Size:
        asked.append(1)
        return Size(rows=2000, bytes=10**6)

    spark.range(7).write.format("noop").mode("overwrite").save()
    with task(LOG, "copy") as running, track_jobs(spark, running, expected):
        running.refresh()
        assert running.counts == {}
        spark.range(0, 1000, 1, 2).write.format("delta").saveAsTable(f"{schema}.t")
        running.refresh()
        assert (running.counts["rows"].done, running.counts["rows"].total) == (1000, 2000)
        assert running.counts["bytes"].done > 1000
        assert running.counts["tasks"].done == running.counts["tasks"].total
    assert asked == [1]
    assert running.refresher is None


def test_task_counts_nothing_without_access_to_driver() -> None:
    class Closed:
        """A session on a shared cluster, which has no access to the driver."""

        @property
        def sparkContext(self) -> Any:
            raise RuntimeError("not here")

    running = Task("copy")
    with track_jobs(Closed(), running):  # type: ignore[arg-type]
        running.refresh()
    assert running.counts == {}


@soak.slow
def test_commits_after_returns_commits_after_given_version(spark: SparkSession, schema: str) -> None:
    name = TableName((schema, "t"))
    assert newest_version(spark, name) == -1
    assert commits_after(spark, name, -1) == ()
    often = "TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    spark.sql(f"CREATE TABLE {name.sql} (id INT) USING delta {often}")
    # U+2028 ends a line in Python, but not in JSON.
    with session.settings(spark, {"spark.databricks.delta.commitInfo.userMetadata": "a\u2028b"}, "the test"):
        for number in range(3):
            spark.sql(f"INSERT INTO {name.sql} VALUES ({number})")
    assert newest_version(spark, name) == 3
    newer = commits_after(spark, name, 1)
    assert [(commit.version, commit.operation) for commit in newer] == [(3, "WRITE"), (2, "WRITE")]
    assert counted(newer, "numOutputRows") == 2
    assert counted(commits_after(spark, name, -1), "numOutputRows") is None
    assert counted((), "numOutputRows") == 0
    # A cleaned log doesn't contain the operations of removed commits.
    known = facts(spark, name)
    assert known is not None
    Path(str(known.folder), "_delta_log", f"{2:020}.json").unlink()
    newest, cleaned_up = commits_after(spark, name, 1)
    assert (newest.operation, cleaned_up.version, cleaned_up.operation) == ("WRITE", 2, "")
    assert counted((newest, cleaned_up), "numOutputRows") is None
