"""A flow over two streams starts when one source has commits, and appends each row of the other one once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string, at int"
OLD = [(1, "a", 1), (2, "b", 1)]


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """Create two sources and three targets that stream both: a union, a union by AUTO CDC, and a join."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("left_", FEED, OLD[0])
    project.create("right_", FEED, OLD[1])
    project.create("legacy", FEED, *OLD)
    both = f"SELECT * FROM STREAM({schema}.left_) UNION ALL SELECT * FROM STREAM({schema}.right_)"
    join = (
        f"SELECT l.id, r.v, l.at FROM STREAM({schema}.left_) l JOIN STREAM({schema}.right_) r ON l.id = r.id"
    )
    copied = {"table": "legacy"}
    latest = {"keys": ["id"], "sequence_by": "at", "scd_type": "1"}
    project.standard("everything", {"sqlStatement": both}, migration=copied, sourceType="sql")
    if soak.SOAKING:
        project.standard("latest", {"sqlStatement": both}, cdc=latest, migration=copied, sourceType="sql")
    project.standard("meets", {"sqlStatement": join}, migration=copied, sourceType="sql")
    assert project.run().ok
    assert set(project.phases().values()) == {"waiting"}
    return project


@soak.only  # tests/unit/test_decide.py tests the plan, and test_old_streams_property.py two streams.
def test_source_without_commits_is_read_after_its_first_commit(project: Project, spark: SparkSession) -> None:
    def check_tables(rows: list[tuple[object, ...]], latest: list[tuple[object, ...]], meets: int) -> None:
        assert project.rows("everything") == sorted([*OLD, *rows], key=repr)
        if soak.SOAKING:
            assert project.rows("latest") == sorted(latest, key=repr)
        assert len(project.rows("meets")) == len(OLD) + meets
        with project.nothing_written():
            result = project.run()
        assert not any(target.results for target in result.targets)

    project.insert("right_", (3, "r", 2))
    notes = [note for target in project.plan().targets for note in target.notes]
    assert len(notes) == soak.amount(2, 3)
    late = f"{project.schema}.left_, which has no commit after its baseline yet"
    assert all(note.endswith(f"begins without {late}") for note in notes)
    assert project.run().ok
    assert project.status().complete
    check_tables([(3, "r", 2)], [*OLD, (3, "r", 2)], 0)

    # A commit of the source that has been read, then of the other one, then of both.
    project.insert("right_", (4, "r", 3))
    assert project.run().ok
    project.insert("left_", (3, "l", 4))
    assert project.run().ok
    rows: list[tuple[object, ...]] = [(3, "r", 2), (4, "r", 3), (3, "l", 4)]
    check_tables(rows, [*OLD, (3, "l", 4), (4, "r", 3)], 1)
    for table in ("left_", "right_"):
        project.insert(table, (4, table, 5))
    assert project.run().ok
    rows += [(4, "left_", 5), (4, "right_", 5)]
    assert project.rows("everything") == sorted([*OLD, *rows], key=repr)
    # The left row with id 4 joins two right rows: an earlier one and one of the same run.
    assert len(project.rows("meets")) == len(OLD) + 3


@soak.only  # tests/unit/test_decide.py tests the plan.
def test_run_refuses_source_with_unread_commits_removed_from_log(project: Project) -> None:
    project.insert("right_", (3, "r", 2))
    assert project.run().ok
    for value in ("one", "two"):
        project.insert("left_", (5, value, 3))
    project.clean_log("left_")
    unreadable = re.compile(r"\[BASELINE_NOT_READABLE\] .*left_ can't be read from version 2 .* oldest is 3")
    with raises("SEVERAL_FINDINGS", count=3, findings=unreadable):
        project.run()
