"""A status from what is recorded of the catalog is the one that Spark gives, or there is none."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from tests.spark.projects import Project

from tableferry import pipelines, recorded_tables
from tableferry.pipelines import show
from tableferry.recorded_tables import NeedsSpark, RecordedTables, Recorder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines import StatusReport

FEED = "id int, v string, at int"
SCD1 = {"keys": ["id"], "sequence_by": "at", "scd_type": "1"}


@pytest.fixture
def recorder(spark: SparkSession) -> Recorder:
    """What notes the answers of this session's catalog."""
    recorder = recorded_tables._recorder
    if recorder is None:
        pytest.skip("the metastore is a server")
    assert recorder.spark is spark
    return recorder


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession, recorder: Recorder) -> Project:
    """A project of an appended table and one of SCD type 1, each with its migration."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", FEED, (1, "a", 1), (2, "b", 2))
    for name in ("rows", "latest"):
        project.create(f"{name}_legacy", FEED, (1, "a", 1), (2, "b", 2))
    project.standard("rows", "src", migration={})
    project.standard("latest", "src", cdc=SCD1, migration={})
    return project


def read(recorder: Recorder) -> RecordedTables | None:
    return recorded_tables.read(recorder.warehouse, recorder.configuration)


def printed(report: StatusReport) -> str:
    text = io.StringIO()
    show.print_status(Console(file=text, width=200), report)
    return text.getvalue()


def by_record(project: Project, recorder: Recorder) -> StatusReport:
    """Return the status without Spark, once it's the same as that with Spark."""
    with_spark = project.status()
    tables = read(recorder)
    assert tables is not None
    report = pipelines.status(project.root, tables)
    assert show.status_data(report) == show.status_data(with_spark)
    assert printed(report) == printed(with_spark)
    return report


def phases(report: StatusReport) -> set[str]:
    return {target.phase for target in report.plan.targets}


def actions(report: StatusReport) -> set[str]:
    return {flow.action for target in report.plan.targets for flow in target.flows}


def test_status_by_record_is_that_of_spark_in_each_state(project: Project, recorder: Recorder) -> None:
    project.status()
    tables = read(recorder)
    assert tables is not None
    with pytest.raises(NeedsSpark):
        # Whether the targets hold rows takes a query.
        pipelines.status(project.root, tables)
    project.run()
    assert phases(by_record(project, recorder)) == {"waiting"}
    project.insert("src", (3, "c", 3))
    assert phases(by_record(project, recorder)) == {"ready"}
    project.run()
    project.insert("rows_legacy", (9, "z", 9))
    complete = by_record(project, recorder)
    assert phases(complete) == {"complete"}
    assert any(target.legacy_writes and target.legacy_writes.others for target in complete.plan.targets)

    # Finish itself records where the tables are, and so does a run.
    for command in (project.finish, project.run):
        (recorder.warehouse / recorded_tables.FILE).unlink()
        recorder.noted.clear()
        command()
        tables = read(recorder)
        assert tables is not None
        assert phases(pipelines.status(project.root, tables)) == {"finished"}
    finished = by_record(project, recorder)
    assert (phases(finished), actions(finished)) == ({"finished"}, {"idle"})
    project.insert("src", (4, "d", 4))
    assert actions(by_record(project, recorder)) == {"continue"}
    project.run()
    project.spark.sql(f"DELETE FROM {project.schema}.rows WHERE id = 1")
    assert phases(by_record(project, recorder)) == {"finished"}
    project.spark.sql(f"RESTORE TABLE {project.schema}.rows TO VERSION AS OF 0")
    assert phases(by_record(project, recorder)) == {"finished", "refused"}
    project.standard("rows", "src")
    assert phases(by_record(project, recorder)) == {"finished", "plain"}


def test_record_counts_no_more_after_any_change_of_the_catalog(
    project: Project, recorder: Recorder, tmp_path: Path
) -> None:
    schema, spark = project.schema, project.spark
    project.create("elsewhere", FEED)
    other = project.folder("elsewhere")
    for change in (
        f"CREATE TABLE {schema}.extra (id int) USING delta",
        f"ALTER TABLE {schema}.extra RENAME TO {schema}.renamed",
        f"DROP TABLE {schema}.renamed",
        f"CREATE VIEW {schema}.looked AS SELECT * FROM {schema}.src",
        f"ALTER TABLE {schema}.src SET LOCATION '{other}'",
        f"CREATE SCHEMA {schema}_other LOCATION '{tmp_path / 'other'}'",
        f"DROP SCHEMA {schema}_other",
    ):
        project.status()
        assert read(recorder) is not None, change
        spark.sql(change)
        assert read(recorder) is None, change


def test_record_holds_while_rows_are_written(project: Project, recorder: Recorder) -> None:
    project.run()
    schema, spark = project.schema, project.spark
    for statement in (
        f"INSERT INTO {schema}.src VALUES (5, 'e', 5)",
        f"UPDATE {schema}.src SET v = 'x' WHERE id = 5",
        f"SELECT * FROM {schema}.src",
        f"DESCRIBE TABLE EXTENDED {schema}.rows",
    ):
        spark.sql(statement).collect()
        assert read(recorder) is not None, statement
