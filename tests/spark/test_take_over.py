"""A table that an old stream fills is taken over without a copy, and can be given back to the stream."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from tests import soak
from tests.conditions import check, raises
from tests.spark.projects import Project

from tableferry import pipelines
from tableferry.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id int, v string"

RunOldStream = Callable[..., None]


class Crash(BaseException):
    """The process crashes."""


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """Create a source with two rows, the table that an old stream fills, and the spec that takes it over."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", COLUMNS, (1, "a"), (2, "b"))
    project.create("out", COLUMNS)
    details = {"table": "out", "checkpointLocation": str(tmp_path / "old")}
    project.standard("out", "src", tableMigrationDetails=project.migration("out", details, mode="takeOver"))
    return project


@pytest.fixture
def run_old_stream(project: Project, spark: SparkSession, tmp_path: Path) -> RunOldStream:
    """Return a function that runs the old stream, file by file, over all rows or until it fails at one."""

    def run(
        source: str = "src",
        target: str = "out",
        checkpoint: Path = tmp_path / "old",
        fails_at: int | None = None,
    ) -> None:
        rows = spark.readStream.option("maxFilesPerTrigger", 1).table(f"{project.schema}.{source}")
        if fails_at is not None:
            rows = rows.where(f"assert_true(id <> {fails_at}) IS NULL")
        writer = rows.writeStream.format("delta").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(checkpoint))
        try:
            writer.toTable(f"{project.schema}.{target}").awaitTermination()
        except StreamingQueryException as error:
            if "is not true" not in str(error):
                raise

    return run


EVENTS = st.one_of(
    st.tuples(st.just("commit"), st.integers(1, 3)),
    st.tuples(st.just("old"), st.none() | st.integers(0, 2)),
    st.tuples(st.just("run"), st.none() | st.integers(0, 8)),
    st.tuples(st.just("undo"), st.none() | st.integers(0, 4)),
    st.tuples(st.just("foreign"), st.none()),
)


@soak.only
def test_table_contains_each_row_once_after_random_take_overs_and_undos(
    project: Project, spark: SparkSession, run_old_stream: RunOldStream, tmp_path: Path
) -> None:
    """Take over, undo, take over again, with streams that fail within a commit and crashes at every effect.

    Another process adds rows: the next run is refused, and after an undo the table is taken over again.
    """
    numbers = count()

    @soak.slow_examples(soak.amount(2, 16))
    @given(st.lists(EVENTS, min_size=5, max_size=12))
    def scenario(events: list[tuple[str, int | None]]) -> None:
        number = next(numbers)
        shop = Project(tmp_path / f"shop_{number}", project.schema, spark)
        source, target, checkpoint = f"src_{number}", f"out_{number}", tmp_path / f"old_{number}"
        rows = count(1)
        shop.create(source, COLUMNS, (next(rows), "x"))
        shop.create(target, COLUMNS)
        run_old_stream(source, target, checkpoint)
        details = {"table": target, "checkpointLocation": str(checkpoint)}
        shop.standard(target, source, tableMigrationDetails=shop.migration(target, details, mode="takeOver"))
        taken_over = False
        foreign: list[int] = []
        for kind, value in [*events, ("commit", 1), ("run", None), ("commit", 2), ("run", None)]:
            match kind:
                case "commit":
                    ids = [(next(rows), "x") for _ in range(value or 1)]
                    frame = spark.createDataFrame(ids, COLUMNS).repartitionByRange(len(ids), "id")
                    frame.write.format("delta").mode("append").saveAsTable(f"{shop.schema}.{source}")
                case "old" if not taken_over:
                    fails_at = None if value is None else next(rows) - 1 - value
                    run_old_stream(source, target, checkpoint, fails_at)
                case "run":
                    taken_over = True
                    run_with_crash(partial(pipelines.run, shop.root, spark), value)
                case "foreign" if taken_over:
                    run_with_crash(partial(pipelines.run, shop.root, spark), None)
                    foreign.append(-next(rows))
                    shop.insert(target, (foreign[-1], "foreign"))
                    with raises("WRITTEN_SINCE_TAKE_OVER", writers=re.compile("another process")):
                        pipelines.run(shop.root, spark)
                    pipelines.undo(shop.root, spark)
                    taken_over = False
                case "undo" if taken_over:
                    # A run must finish the crashed one first.
                    run_with_crash(partial(pipelines.run, shop.root, spark), None)
                    run_with_crash(partial(pipelines.undo, shop.root, spark), value)
                    run_with_crash(partial(pipelines.undo, shop.root, spark), None, "NOTHING_TAKEN_OVER_YET")
                    taken_over = False
        found = sorted(row[0] for row in shop.rows(target))
        assert found == sorted([*foreign, *(row[0] for row in shop.rows(source))])

    scenario()


def undo(project: Project, crash_at: int | None = None) -> None:
    run_with_crash(partial(pipelines.undo, project.root, project.spark), crash_at)


def run_with_crash(command: Callable[..., object], at: int | None, refused: str = "^$") -> None:
    """Run a command that crashes directly before one of its effects."""
    effects = count()

    def before(_: str) -> None:
        if next(effects) == at:
            raise Crash

    try:
        command(before=before)
    except Crash:
        pass
    except Refused as error:
        if not re.search(refused, str(error)):
            raise


def ids(project: Project) -> list[int]:
    return [row[0] for row in project.rows("out")]


@soak.slow
def test_take_over_and_undo_lose_and_repeat_no_row(project: Project, run_old_stream: RunOldStream) -> None:
    run_old_stream()
    project.insert("src", (3, "c"))
    with project.nothing_written():
        plan = project.plan()
    assert not any("history" in str(step) for step in plan.steps)
    assert project.run().ok
    assert project.phases() == {"out": "complete"}
    assert ids(project) == [1, 2, 3]
    project.insert("src", (4, "d"))
    assert project.run().ok
    # The undo crashes at each effect in turn.
    for effect in range(4):
        undo(project, effect)
        if effect:
            with raises("UNDO_OF_TARGET_UNFINISHED"):
                project.run()
    undo(project)
    assert not list((project.state / "checkpoints").glob("target*"))
    # The old stream runs no batch between undo and run.
    assert project.run().ok
    undo(project)
    project.insert("src", (5, "e"))
    run_old_stream()
    assert ids(project) == [1, 2, 3, 4, 5]
    project.insert("src", (6, "f"))
    assert project.run().ok
    assert ids(project) == [1, 2, 3, 4, 5, 6]
    with raises("REFRESH_OF_TAKEN_OVER_TABLE"):
        project.run(full_refresh=[f"{project.schema}.out"])
    (proof,) = project.finish().proofs
    assert (proof.proved, proof.rows) == (True, 6)
    project.insert("src", (7, "g"))
    assert project.run().ok
    assert ids(project) == [1, 2, 3, 4, 5, 6, 7]


def test_run_is_refused_after_another_process_added_rows(
    project: Project, spark: SparkSession, run_old_stream: RunOldStream, tmp_path: Path
) -> None:
    run_old_stream()
    assert project.run().ok
    project.insert("src", (3, "c"))
    assert project.run().ok
    # The old job was deployed again with another checkpoint, and writes all rows a second time.
    run_old_stream(checkpoint=tmp_path / "redeployed")
    with (
        project.nothing_written(),
        raises("WRITTEN_SINCE_TAKE_OVER", writers=re.compile("STREAMING UPDATE")) as refused,
    ):
        project.run()
    assert not project.status().complete
    with raises("MIGRATION_NOT_COMPLETE"):
        project.finish()
    statement = str(refused.value).partition("RESTORE")[2].partition(". Or")[0]
    spark.sql(f"RESTORE{statement}")
    project.insert("src", (4, "d"))
    assert project.run().ok
    assert ids(project) == [1, 2, 3, 4]
    spark.sql(f"OPTIMIZE {project.schema}.out")
    project.insert("out", (5, "by hand"))
    with raises(
        "WRITTEN_SINCE_TAKE_OVER",
        writers=re.compile("WRITE"),
        advice=re.compile("if these rows belong there, take the table"),
    ):
        project.run()
    undo(project)
    project.insert("src", (6, "f"))
    assert project.run().ok
    assert ids(project) == [1, 2, 3, 4, 5, 6]
    # Deleted rows don't stop a run. The plan and the comparison at the end report them.
    spark.sql(f"DELETE FROM {project.schema}.out WHERE id = 1")
    assert project.run().ok
    (warning,) = project.plan().targets[0].warnings
    check(warning, "ROWS_CHANGED_SINCE_TAKE_OVER", writes=re.compile(r"DELETE \(1 version"))
    with pytest.raises(Refused, match="--no-verify"):
        project.finish()
    assert project.finish(verify=False).finished


@soak.slow
def test_take_over_after_run_is_refused_until_checkpoints_are_removed(
    project: Project, spark: SparkSession, run_old_stream: RunOldStream
) -> None:
    with_take_over = project.root / "dataflows/d/dataflowspec/out_main.json"
    spec = with_take_over.read_text("utf-8")
    run_old_stream()
    project.standard("out", "src")
    project.run()
    assert ids(project) == [1, 1, 2, 2]
    project.insert("src", (3, "c"))
    run_old_stream()
    with_take_over.write_text(spec, "utf-8")
    with project.nothing_written(), raises("FLOWS_RAN_BEFORE_TAKE_OVER", flows=["f_v_out"]) as refused:
        project.run()
    # The remedy is to delete the rows, remove the folder and run the statement.
    spark.sql(f"DELETE FROM {project.schema}.out")
    project.insert("out", (1, "a"), (2, "b"), (3, "c"))
    [folder] = (project.state / "checkpoints").glob("target*")
    shutil.rmtree(folder)
    [statement] = re.findall("ALTER TABLE .*'\\)", str(refused.value))
    spark.sql(statement)
    project.insert("src", (4, "d"))
    assert project.run().ok
    assert ids(project) == [1, 2, 3, 4]
    assert project.status().complete


@soak.slow
def test_run_is_refused_after_old_stream_writes_to_taken_over_table(
    project: Project, spark: SparkSession, run_old_stream: RunOldStream
) -> None:
    run_old_stream()
    assert project.run().ok
    project.insert("src", (3, "c"))
    run_old_stream()
    with (
        project.nothing_written(),
        raises("WRITTEN_SINCE_TAKE_OVER", writers=re.compile(r"its old stream \(up to batch 1\)")) as refused,
    ):
        project.run()
    assert not project.status().complete
    # The first remedy of the message: RESTORE.
    statement = str(refused.value).partition("RESTORE")[2].partition(". Or")[0]
    spark.sql(f"RESTORE{statement}")
    assert project.run().ok
    assert ids(project) == [1, 2, 3]
    # The second remedy: undo. The old stream wrote a row that the flow had written.
    project.insert("src", (4, "d"))
    assert project.run().ok
    project.insert("src", (5, "e"))
    run_old_stream()
    assert ids(project) == [1, 2, 3, 4, 4, 5]
    with raises("WRITTEN_SINCE_TAKE_OVER"):
        project.run()
    spark.sql(f"DELETE FROM {project.schema}.out WHERE id = 4")
    project.insert("out", (4, "d"))
    undo(project)
    project.insert("src", (6, "f"))
    assert project.run().ok
    assert ids(project) == [1, 2, 3, 4, 5, 6]
