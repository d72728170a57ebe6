"""Flows start at the offsets of the old streams' checkpoints, while the old streams keep running."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from rich.console import Console
from tests import soak
from tests.conditions import names, raises
from tests.spark.projects import Project

from tableferry.errors import Refused
from tableferry.pipelines.reports import print_status, print_verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

COLUMNS = "id int, v string"
TAKEN, LAGGING, LATER = [(1, "a"), (2, "b")], [(3, "c"), (3, "c")], [(4, "d")]

Old = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """Create a source with two rows, and the empty legacy table that an old stream fills."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", COLUMNS, *TAKEN)
    project.create("out_legacy", COLUMNS)
    return project


@pytest.fixture
def old(project: Project, spark: SparkSession, tmp_path: Path) -> Old:
    """Return a function that streams all available rows into ``out_legacy`` and returns the checkpoint."""

    def run(
        name: str = "old", source: str = "src", change: Callable[[DataFrame], DataFrame] = lambda rows: rows
    ) -> Path:
        checkpoint = tmp_path / "checkpoints" / name
        reader: DataStreamReader = spark.readStream.option("maxFilesPerTrigger", 1)
        stream(change(reader.table(f"{project.schema}.{source}")), checkpoint, f"{project.schema}.out_legacy")
        return checkpoint

    return run


def stream(rows: DataFrame, checkpoint: Path, table: str) -> None:
    writer = rows.writeStream.format("delta").trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).toTable(table).awaitTermination()


def printed(project: Project) -> str:
    """Return the output of `status`, in one line."""
    out = StringIO()
    print_status(Console(file=out), project.status())
    return " ".join(out.getvalue().split())


def proved(project: Project) -> str:
    """Return the output of `verify` without the words of a successful proof."""
    out = StringIO()
    print_verify(Console(file=out, width=200), project.verify())
    printed = " ".join(out.getvalue().replace(f"{project.schema}.", "").split())
    return printed.removeprefix("out: proved: it contains exactly the ")


def migrate(project: Project, *checkpoints: Path, source: str = "src", **details: object) -> None:
    named = {"checkpointLocation": [str(checkpoint) for checkpoint in checkpoints]} if checkpoints else {}
    migration = project.migration("out", named, **details)
    project.standard("out", source, tableMigrationDetails=migration)


@soak.only  # In make test, test_old_streams_property.py has lagging streams.
def test_rows_that_a_lagging_stream_hasnt_read_are_appended_by_the_flow(
    project: Project, spark: SparkSession, old: Old
) -> None:
    checkpoint = old()
    project.insert("src", *LAGGING)
    migrate(project, checkpoint)
    with project.nothing_written():
        plan = project.plan()
    assert str(plan.steps[0]).endswith(f"baselines {project.schema}.src@1")
    assert "recorded by the old streams" in plan.targets[0].notes[0]
    assert project.run().ok
    # The old stream keeps running: first the flow is ahead, then the old stream.
    assert proved(project) == "4 rows of out_legacy@1 and 1 later commit of the sources"
    old()
    project.insert("src", *LATER)
    old()
    assert proved(project) == "4 rows of out_legacy@2"
    assert project.run().ok
    assert project.rows("out") == sorted([*TAKEN, *LAGGING, *LATER])
    assert project.rows("out_legacy") == project.rows("out")
    assert project.status().complete
    assert "[OLD_STREAM_STILL_RUNS]" in (text := printed(project))
    assert "[LEGACY_TABLE_WRITTEN]" not in text
    project.insert("out_legacy", (5, "e"))
    spark.sql(f"OPTIMIZE {project.schema}.out_legacy")
    written = f"{project.schema}.out_legacy was written after version 1, which is copied: WRITE (1 version"
    assert written in printed(project)
    assert not project.verify().ok
    out = StringIO()
    print_verify(Console(file=out, width=200), project.verify())
    assert f"5   e  (only in {project.schema}.out_legacy@" in out.getvalue()
    with raises("TARGET_DIFFERS"):
        project.finish()
    # A full refresh copies the same version and starts at the same offset.
    assert project.run(full_refresh=[f"{project.schema}.out"]).ok
    assert project.rows("out") == sorted([*TAKEN, *LAGGING, *LATER])

    # Without the checkpoint, the hand-over point is only assumed.
    shutil.rmtree(project.state)
    spark.sql(f"DROP TABLE {project.schema}.out")
    spark.sql(f"RESTORE TABLE {project.schema}.out_legacy TO VERSION AS OF 1")
    migrate(project, checkpoint, handOver="version")
    assert "HAND_OVER_ASSUMED" in names(project.plan().targets[0].warnings)
    project.run()
    assert project.rows("out") == sorted(TAKEN)
    project.insert("src", (6, "f"))
    old()
    assert "STREAMING UPDATE (1 version, the newest is " in printed(project)


@soak.slow
def test_flow_starts_in_the_middle_of_a_commit(project: Project, spark: SparkSession, old: Old) -> None:
    """The old stream stops between two files of a commit, as after a commit or snapshot with many files."""
    checkpoint = old()
    rows = spark.createDataFrame([*LAGGING, *LATER], COLUMNS).repartitionByRange(2, "id")
    rows.write.format("delta").mode("append").saveAsTable(f"{project.schema}.src")

    def fails_at(rows: DataFrame, id_: int) -> DataFrame:
        return rows.where(f"assert_true(id <> {id_}) IS NULL")

    # The order of the two files isn't fixed; the stream fails at the second one.
    for id_ in (3, 4):
        with pytest.raises(StreamingQueryException, match="is not true"):
            old(change=partial(fails_at, id_=id_))
        if len(project.rows("out_legacy")) > len(TAKEN):
            break
    assert len(TAKEN) < len(project.rows("out_legacy")) < len([*TAKEN, *LAGGING, *LATER])
    migrate(project, checkpoint)
    assert str(project.plan().steps[0]).endswith("src@1 and a part of 2")
    assert project.run().ok
    assert project.rows("out") == sorted([*TAKEN, *LAGGING, *LATER])
    assert project.run(full_refresh=[f"{project.schema}.out"]).ok
    project.insert("src", (5, "e"))
    assert project.run().ok
    assert project.rows("out") == sorted([*TAKEN, *LAGGING, *LATER, (5, "e")])


@soak.only  # tests/unit tests the plan, and test_old_streams_property.py two streams.
def test_two_streams_with_a_source_each_are_handed_over(project: Project, old: Old) -> None:
    project.create("more", COLUMNS, (10, "x"))
    first = old()
    second = old("second", "more")
    project.insert("src", *LAGGING)
    project.insert("more", (11, "y"))
    both = f"SELECT * FROM STREAM({project.schema}.src) UNION ALL SELECT * FROM STREAM({project.schema}.more)"

    def spec(*checkpoints: Path) -> None:
        details = {"checkpointLocation": [str(checkpoint) for checkpoint in checkpoints]}
        project.standard("out", {"sqlStatement": both}, migration=details, sourceType="sql")

    spec(first)
    with raises("SOURCE_NOT_READ_BY_OLD_STREAMS", source=re.compile(r"\.more$")):
        project.run()
    migrate(project, first, second)
    with raises("OLD_SOURCE_NOT_FOLLOWED", source=re.compile("^the Delta table with the id ")):
        project.run()
    spec(first, second)
    assert project.run().ok
    assert project.rows("out") == sorted([*TAKEN, (10, "x"), *LAGGING, (11, "y")], key=repr)


@soak.slow
def test_unusable_checkpoints_are_refused(
    project: Project, spark: SparkSession, old: Old, tmp_path: Path
) -> None:
    def refused(checkpoint: Path, why: str, hand_over: str = "auto") -> None:
        migrate(project, checkpoint, handOver=hand_over)
        with project.nothing_written(), pytest.raises(Refused, match=why):
            project.run()

    sound = old()
    project.create("elsewhere", COLUMNS)
    other = tmp_path / "checkpoints" / "other"
    stream(spark.readStream.table(f"{project.schema}.src"), other, f"{project.schema}.elsewhere")
    refused(other, r"OLD_STREAM_NOT_OF_TABLE\] .*other .* made none of the newest .* commits", "checkpoint")
    # The rows show the hand-over point instead, as for a stream that merges in foreachBatch.
    migrate(project, other)
    (proved, *_) = project.plan().targets[0].notes
    assert proved.endswith("src@1 (its checkpoint's query made none of its commits)")
    refused(tmp_path, "NOT_A_CHECKPOINT")

    counting = old("counting", change=lambda rows: rows.dropDuplicates())
    refused(counting, "keeps state")

    damaged = tmp_path / "checkpoints" / "damaged"
    shutil.copytree(sound, damaged)
    (newest,) = (damaged / "offsets").glob("[0-9]*")
    newest.write_text("v1")
    refused(damaged, f"{newest} isn't a complete offset file\\.\nRestore it, or set handOver to content")
    newest.write_text('v1\n{}\n{"logOffset":0}')
    refused(damaged, "OLD_STREAM_READS_FILES")
    (damaged / "metadata").write_text("{}")
    refused(damaged, f"{damaged}/metadata isn't a complete metadata file\\.\nRestore it")

    older = tmp_path / "checkpoints" / "older"
    shutil.copytree(sound, older)
    project.insert("src", *LAGGING)
    old()
    for kind in ("offsets", "commits"):
        for batch in (sound / kind).glob("[0-9]*"):
            batch.unlink()
    refused(sound, r"has no offsets/\d+, although the table has that batch")
    shutil.rmtree(sound)
    shutil.copytree(older, sound)
    # The checkpoint is older than the table: its version is copied, and the flow appends the later rows.
    migrate(project, sound)
    assert project.run().ok
    assert [row for row in project.rows("out") if row[0] == 3] == LAGGING


@soak.slow
def test_rows_that_a_restored_table_lost_are_appended_by_the_flow(project: Project, old: Old) -> None:
    checkpoint = old()
    folder = project.folder("out_legacy")
    shutil.copytree(folder, backup := folder.parent / "backup")
    project.insert("src", *LAGGING)
    old()
    assert len(project.rows("out_legacy")) == len([*TAKEN, *LAGGING])
    shutil.rmtree(folder)
    shutil.move(backup, folder)
    project.spark.catalog.clearCache()
    project.spark.sql(f"REFRESH TABLE {project.schema}.out_legacy")
    migrate(project, checkpoint)
    assert project.run().ok
    assert project.rows("out") == sorted([*TAKEN, *LAGGING])
