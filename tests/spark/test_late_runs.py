"""A run that is suspended during another run's full refresh changes nothing when it resumes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project

from tableferry.pipelines.model.flows import HISTORY_FLOW
from tableferry.pipelines.state import run_once_flows
from tableferry.spark import session
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string"


class Crash(BaseException):
    pass


def crash_before_copy(effect: str) -> None:
    if effect.startswith(f"rows of {HISTORY_FLOW}"):
        raise Crash


@soak.only  # test_leases.py has suspended runs, tests/unit runs of an earlier generation.
def test_run_that_resumes_after_full_refresh_changes_no_row(
    spark: SparkSession, schema: str, tmp_path: Path
) -> None:
    project, out = Project(tmp_path / "shop", schema, spark), TableName((schema, "out"))
    project.create("src", FEED, (1, "a"), (2, "b"))
    project.create("out_legacy", FEED, (1, "a"), (2, "b"))
    project.standard(
        "out",
        "src",
        migration={},
        targetDetails={"database": schema, "table": "out", "partitionColumns": ["v"]},
    )
    with pytest.raises(Crash):
        project.run(before=crash_before_copy)
    rows = [(1, "a"), (2, "b")]
    assert project.run(full_refresh=[str(out)]).ok
    # The run was about to copy. Delta accepts the rows of a generation once, and none after its end.
    copy = spark.table(f"{schema}.out_legacy").write.format("delta").mode("append")
    writer = run_once_flows.build_writer_id(out, HISTORY_FLOW, 0)
    copy.options(**run_once_flows.build_write_options(writer, 1)).saveAsTable(out.sql)
    assert project.rows("out") == rows

    project.insert("src", (3, "c"))
    project.run()
    (checkpoint,) = project.state.glob("checkpoints/*/generation=1/f_v_out")
    slept = tmp_path / "slept"
    shutil.copytree(checkpoint, slept)
    project.insert("src", (4, "d"))
    assert project.run(full_refresh=[str(out)]).ok
    rows += [(3, "c"), (4, "d")]
    # A stream resumes in the middle of a batch.
    stream = spark.readStream.table(f"{schema}.src").writeStream.format("delta")
    stream = stream.option("checkpointLocation", str(slept)).trigger(availableNow=True)
    stream.toTable(out.sql).awaitTermination()
    assert project.rows("out") == rows
    # A full refresh resumes before it deletes the rows; another one has finished since.
    with (
        session.settings(spark, {"spark.sql.sources.partitionOverwriteMode": "dynamic"}, "the test"),
        raises("REFRESHED_BY_ANOTHER_RUN"),
    ):
        run_once_flows.delete_rows_once(spark, out, out, 2)
    assert project.rows("out") == rows
    project.insert("src", (5, "e"))
    assert project.run(full_refresh=[str(out)]).ok
    assert project.rows("out") == [*rows, (5, "e")]
