"""The hand-over point of a table that a batch job fills is found and proved by comparing rows."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests import soak
from tests.conditions import check, raises
from tests.spark.projects import Project

from tableferry import pipelines
from tableferry.pipelines.handover import content_search
from tableferry.pipelines.reports import print_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id int, v string"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def printed(project: Project) -> str:
    """Return the output of `plan --check`, in one line and without the schema's name."""
    plan = project.plan()
    out = StringIO()
    print_plan(Console(file=out, width=300), plan, None, pipelines.check_start(plan, project.spark))
    return " ".join(out.getvalue().replace(f"{project.schema}.", "").split())


def job(project: Project, *, until: int) -> None:
    """Run the old job on the source's commits up to a version; it adds an audit column."""
    project.spark.sql(
        f"INSERT INTO {project.schema}.out_legacy SELECT id * 10, v, 'job' FROM "
        f"{project.schema}.src VERSION AS OF {until} WHERE v <> 'no' AND id * 10 NOT IN "
        f"(SELECT id FROM {project.schema}.out_legacy)"
    )


@soak.only  # In make test, the demo finds the hand-over point of a table that a batch job fills.
def test_rows_that_a_lagging_job_hasnt_read_are_appended_by_the_flow(
    project: Project, spark: SparkSession
) -> None:
    project.create("src", COLUMNS, (1, "a"), (2, "b"))
    project.create("out_legacy", "id int, v string, loaded_by string")
    for id_ in range(3, 9):
        project.insert("src", (id_, "no" if id_ == 5 else "x"))
    job(project, until=4)
    source = project.delta("src", selectExp=["id * 10 AS id", "v"], whereClause=["v <> 'no'"])
    details = {"selectExp": ["id", "v"]}
    project.standard("out", source, tableMigrationDetails=project.migration("out", details))
    text = printed(project)
    assert "[HAND_OVER_ASSUMED]" in text
    assert (
        "Check: the hand-over point of out is WRONG: out_legacy@1 lacks rows of src@7, which no flow will"
        in text
    )
    assert "60 x (only in src@7)" in text

    migration = project.migration("out", details, handOver="content")
    project.standard("out", source, tableMigrationDetails=migration)
    assert "plan and run search for the hand-over point" in project.status().plan.targets[0].notes
    text = printed(project)
    assert "the hand-over point is proved: out_legacy@1 holds exactly the 4 rows made of src@4" in text
    assert project.run().ok
    assert [row[0] for row in project.rows("out", "id")] == [10, 20, 30, 40, 60, 70, 80]
    # The job continues, and the flow is ahead of it.
    job(project, until=6)
    (proof,) = project.verify().proofs
    assert (proof.proved, proof.source_commits, proof.rows) == (True, 1, 7)


@soak.slow
def test_plan_shows_the_nearest_version_if_none_matches(project: Project) -> None:
    project.create("src", COLUMNS, (1, "a"), (2, "b"))
    project.create("out_legacy", COLUMNS, (1, "a"), (2, "changed by hand"))
    project.insert("src", (3, "c"))
    project.standard("out", "src", tableMigrationDetails=project.migration("out", handOver="content"))
    text = printed(project)
    assert (
        "None of the 3 moments that were compared gives what out_legacy@1 contains (2 rows). The nearest is "
        "src@1" in text
    )
    assert "2 changed by hand (only in out_legacy@1)" in text
    assert "2 b (only in src@1)" in text
    with project.nothing_written(), raises("NO_MOMENT_MATCHES"):
        project.run()
    with raises("NO_MOMENT_MATCHES", moments=re.compile(r"^1 ")):
        project.run(look_back=1)
    if not soak.SOAKING:
        return  # tests/unit tests a time as look_back.
    # Two versions with rows are that new; the version before them is tried too.
    with raises("NO_MOMENT_MATCHES", moments=re.compile(r"^3 ")):
        project.run(look_back=datetime.now(UTC) - timedelta(hours=1))
    with raises("NO_MOMENT_MATCHES", moments=re.compile(r"^2 ")):
        project.run(look_back=datetime.now(UTC) + timedelta(hours=1))


@soak.only  # tests/unit tests the moments that are tried.
def test_rows_that_the_source_deleted_stay_in_the_target(project: Project, spark: SparkSession) -> None:
    project.create("src", COLUMNS, (1, "old"), (2, "old"), (3, "kept"))
    spark.sql(f"CREATE TABLE {project.schema}.out_legacy USING delta AS SELECT * FROM {project.schema}.src")
    spark.sql(f"DELETE FROM {project.schema}.src WHERE v = 'old'")
    project.insert("src", (4, "taken"))
    project.insert("out_legacy", (4, "taken"))
    for id_ in (5, 6):
        project.insert("src", (id_, "new"))
    project.standard("out", "src", tableMigrationDetails=project.migration("out", handOver="version"))
    assert "WRONG" in printed(project)
    project.standard("out", "src", tableMigrationDetails=project.migration("out", handOver="content"))
    text = printed(project)
    assert "holds all 2 rows made of src@3, no later rows, and 2 older rows" in text
    assert project.run().ok
    assert [row[0] for row in project.rows("out")] == [1, 2, 3, 4, 5, 6]


@soak.slow  # tests/unit has random histories of commits.
def test_source_with_deleted_rows_proves_the_newest_matching_moment(
    project: Project, spark: SparkSession
) -> None:
    project.create("src", COLUMNS)
    for commit in range(1, 7):
        project.insert("src", *((5 * commit + number, "x") for number in range(-5, 0)))
    project.create("out_legacy", COLUMNS, (-2, "old"), (-1, "old"), *((id_, "x") for id_ in range(15)))
    spark.sql(f"DELETE FROM {project.schema}.src WHERE id < 5")
    migration = project.migration("out", handOver="content")
    for options in ({}, {"skipChangeCommits": "true"}, {"ignoreDeletes": "true"}):
        source = project.delta("src", readerOptions=options)
        project.standard("out", source, tableMigrationDetails=migration)
        assert "holds all 15 rows made of src@3, no later rows, and 2 older rows" in printed(project)
    # A job that skipped a commit matches no moment.
    project.insert("out_legacy", *((id_, "x") for id_ in range(20, 25)))
    assert (
        "out_legacy@2 contains all rows made of src@3, and also some later rows, up to src@7, but not all of "
        "these. Rows can't show where it stands, because src@7 (DELETE) deleted or changed rows since."
    ) in printed(project)
    spark.sql(f"RESTORE TABLE {project.schema}.out_legacy TO VERSION AS OF 1")
    assert project.run().ok
    assert [row[0] for row in project.rows("out", "id")] == sorted([-2, -1, *range(30)], key=repr)
    (proof,) = project.verify().proofs
    assert "may have skipped rows of" in proof.why_not
    assert "src@7 (DELETE)" in proof.why_not


@soak.only  # tests/unit tests moments of several sources.
def test_two_sources_that_a_job_read_at_one_moment_are_found(project: Project, spark: SparkSession) -> None:
    for table, first in (("src", 1), ("more", 100)):
        project.create(table, COLUMNS, (first, "a"))
    project.insert("src", (2, "b"))
    project.insert("more", (101, "b"))
    both = f"SELECT * FROM {project.schema}.src UNION ALL SELECT * FROM {project.schema}.more"
    spark.sql(f"CREATE TABLE {project.schema}.out_legacy USING delta AS {both}")
    project.insert("more", (102, "c"), (103, "c"))
    project.insert("src", (3, "c"))
    streams = both.replace(f"{project.schema}.src", f"STREAM({project.schema}.src)")
    streams = streams.replace(f"{project.schema}.more", f"STREAM({project.schema}.more)")
    migration = project.migration("out", handOver="content")
    project.standard("out", {"sqlStatement": streams}, tableMigrationDetails=migration, sourceType="sql")
    assert project.run().ok
    assert [row[0] for row in project.rows("out")] == [1, 100, 101, 102, 103, 2, 3]


EVENTS = "id int, v string, seq int, gone boolean"
FOLDED: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "1": ("id int, v string, seq int", [(1, "1.2", 2), (3, "3.1", 1), (4, "4.2", 2)]),
    "2": (
        "id int, v string, __START_AT int, __END_AT int",
        [(1, "1.1", 1, 2), (1, "1.2", 2, None), (2, "2.1", 1, 3), (3, "3.1", 1, None), (4, "4.2", 2, None)],
    ),
}
LATER: dict[str, list[tuple[object, ...]]] = {
    "1": [(1, "1.4", 4), (3, "3.4", 4), (4, "4.2", 2), (5, "5.5", 5)],
    "2": [
        (1, "1.1", 1, 2), (1, "1.2", 2, 4), (1, "1.4", 4, None), (2, "2.1", 1, 3), (3, "3.1", 1, 4),
        (3, "3.4", 4, None), (4, "4.2", 2, None), (5, "5.5", 5, None),
    ],
}  # fmt: skip


def test_late_event_loses_to_copied_row_whose_sequence_only_the_source_has(project: Project) -> None:
    project.create("src", EVENTS)
    project.insert("src", (1, "a", 1, False), (2, "b", 1, False), (3, "c", 2, False))
    project.insert("src", (2, "b3", 3, False), (3, None, 4, True))
    project.create("out_legacy", "id int, v string", (1, "a"), (2, "b3"))
    project.standard(
        "out",
        "src",
        cdc={
            "keys": ["id"],
            "sequence_by": "seq",
            "scd_type": "1",
            "apply_as_deletes": "gone",
            "except_column_list": ["gone", "seq"],
        },
        tableMigrationDetails=project.migration("out", handOver="content"),
    )
    [target] = project.plan().targets
    (warning,) = (found for found in target.warnings if found.condition == "COPY_TAKES_SEQUENCE_OF_EVENTS")
    check(warning, "COPY_TAKES_SEQUENCE_OF_EVENTS", table=f"{project.schema}.out_legacy", column="seq")
    assert project.run().ok
    assert project.rows("out") == [(1, "a"), (2, "b3")]
    # The second and the third event are older than the copied row and the delete.
    project.insert("src", (1, "new", 5, False), (2, "late", 2, False), (3, "late", 3, False))
    project.run()
    assert project.rows("out") == [(1, "new"), (2, "b3")]


@soak.only  # The demo has a dimension that a batch job merges from a feed.
@pytest.mark.parametrize("scd", ["1", "2"])
def test_result_of_a_merge_is_found_by_a_sample_of_keys(
    project: Project, scd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job has folded three of the feed's commits, the third of which deletes a key."""
    monkeypatch.setattr(content_search, "_SAMPLED_KEYS", 2)
    project.create("src", EVENTS)
    for seq, ids in enumerate(([1, 2, 3], [1, 4], [2], [3, 1], [5]), 1):
        project.insert("src", *((id_, f"{id_}.{seq}", seq, ids == [2]) for id_ in ids))
    columns, rows = FOLDED[scd]
    project.create("out_legacy", columns, *rows)
    project.standard(
        "out",
        "src",
        cdc={
            "keys": ["id"],
            "sequence_by": "seq",
            "scd_type": scd,
            "apply_as_deletes": "gone",
            "except_column_list": ["gone", *(["seq"] if scd == "2" else [])],
        },
        tableMigrationDetails=project.migration("out", handOver="content"),
    )
    with project.nothing_written():
        plan = project.plan()
    assert "out_legacy@1 holds exactly" in plan.targets[0].notes[0]
    assert str(plan.steps[0]).endswith("src@3")
    assert project.run().ok
    names = [column.split()[0] for column in columns.split(", ")]
    assert project.rows("out", *names) == sorted(LATER[scd], key=repr)
    # The job lags. The expected rows can't be derived from its table, but from the feed.
    (proof,) = project.verify().proofs
    assert (proof.proved, proof.rows) == (True, len(LATER[scd]))
    project.spark.sql(f"UPDATE {project.schema}.out SET v = 'lost' WHERE id = 5")
    (proof,) = project.verify().proofs
    assert not proof.proved
