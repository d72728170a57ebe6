"""A status by the metastore alone is the one that Spark gives, or there is none."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project

from tableferry import pipelines
from tableferry.pipelines import reports
from tableferry.spark import catalog, java_process, local_metastore, local_spark
from tableferry.spark.local_metastore import LocalMetastore, NeedsSpark
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines import StatusReport

FEED = "id int, v string, at int"


class Copies:
    """Opens copies of the metastore of the tests' session, which holds the metastore itself."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.jvm: Any = spark._jvm
        self.url = spark.sparkContext._jsc.hadoopConfiguration().get("javax.jdo.option.ConnectionURL")
        self.folder = folder

    def warehouse(self) -> Path:
        """Return a folder with a copy of the metastore as it is now."""
        connection = self.jvm.java.sql.DriverManager.getConnection(self.url)
        backup = connection.prepareCall("CALL SYSCS_UTIL.SYSCS_BACKUP_DATABASE(?)")
        shutil.rmtree(self.folder, ignore_errors=True)
        backup.setString(1, str(self.folder))
        backup.execute()
        connection.close()
        return self.folder

    @contextmanager
    def opened(self) -> Iterator[LocalMetastore]:
        with local_metastore.opened(self.warehouse(), java_process.check_java()) as metastore:
            yield metastore


@pytest.fixture
def copies(spark: SparkSession, tmp_path: Path) -> Copies:
    if os.environ.get("TABLEFERRY_METASTORE") == "server":
        pytest.skip("the metastore is a server")
    return Copies(spark, tmp_path / "copy of the metastore")


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """A project of an appended table, with its migration."""
    project = Project(tmp_path / "shop", schema, spark)
    for name in ("src", "rows_legacy"):
        project.create(name, FEED, (1, "a", 1), (2, "b", 2))
    project.standard("rows", "src", migration={})
    return project


def printed(report: StatusReport) -> str:
    text = io.StringIO()
    reports.print_status(Console(file=text, width=200), report)
    return text.getvalue()


def by_metastore(project: Project, copies: Copies) -> StatusReport:
    """Return the status without Spark, once it's the same as that with Spark."""
    with_spark = project.status()
    with copies.opened() as metastore:
        report = pipelines.status(project.root, metastore)
    assert reports.status_data(report) == reports.status_data(with_spark)
    assert printed(report) == printed(with_spark)
    return report


def phases(report: StatusReport) -> set[str]:
    return {target.phase for target in report.plan.targets}


def actions(report: StatusReport) -> set[str]:
    return {flow.action for target in report.plan.targets for flow in target.flows}


def test_status_from_metastore_equals_status_from_spark_in_each_state(
    project: Project, copies: Copies
) -> None:
    assert phases(by_metastore(project, copies)) == {"new"}
    project.run()
    assert phases(by_metastore(project, copies)) == {"waiting"}
    project.insert("src", (3, "c", 3))
    assert phases(by_metastore(project, copies)) == {"ready"}
    project.run()
    project.insert("rows_legacy", (9, "z", 9))
    complete = by_metastore(project, copies)
    assert phases(complete) == {"complete"}
    assert any(
        target.legacy_writes and target.legacy_writes.foreign_commits for target in complete.plan.targets
    )
    project.finish(accept_assumed=True)
    finished = by_metastore(project, copies)
    assert (phases(finished), actions(finished)) == ({"finished"}, {"idle"})
    project.insert("src", (4, "d", 4))
    assert actions(by_metastore(project, copies)) == {"continue"}
    project.run()
    project.spark.sql(f"DELETE FROM {project.schema}.rows WHERE id = 1")
    assert phases(by_metastore(project, copies)) == {"finished"}
    project.spark.sql(f"RESTORE TABLE {project.schema}.rows TO VERSION AS OF 0")
    assert phases(by_metastore(project, copies)) == {"refused"}


@soak.slow
def test_metastore_returns_the_same_folder_as_spark(
    spark: SparkSession, schema: str, copies: Copies, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "else where"
    for statement in (
        f"CREATE TABLE {schema}.Managed (id int) USING delta",
        f"CREATE TABLE {schema}.external (id int) USING delta LOCATION '{tmp_path / 'external'}'",
        f"CREATE TABLE {schema}.moved (id int) USING delta LOCATION '{tmp_path / 'old'}'",
        f"CREATE TABLE delta.`{elsewhere}` (id int) USING delta",
        f"ALTER TABLE {schema}.moved SET LOCATION '{elsewhere}'",
        f"CREATE TABLE {schema}.before (id int) USING delta",
        f"ALTER TABLE {schema}.before RENAME TO {schema}.renamed",
        f"CREATE TABLE {schema}.dropped (id int) USING delta",
        f"DROP TABLE {schema}.dropped",
        f"CREATE VIEW {schema}.a_view AS SELECT * FROM {schema}.managed",
        f"CREATE TABLE {schema}.hive (id int) STORED AS PARQUET",
        f"CREATE TABLE {schema}.files (id int) USING parquet",
    ):
        spark.sql(statement)
    with copies.opened() as metastore:
        for table in ("managed", "MANAGED", "external", "moved", "before", "renamed", "dropped"):
            name = TableName.parse(f"{schema}.{table}")
            assert catalog.facts(metastore, name) == catalog.facts(spark, name), table
        for table in ("a_view", "hive", "files"):
            with pytest.raises(NeedsSpark):
                catalog.facts(metastore, TableName.parse(f"{schema}.{table}"))


def test_warehouse_in_use_is_refused_as_for_spark(copies: Copies, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse = copies.warehouse()
    with pytest.raises(NeedsSpark), local_spark.metastore(warehouse):
        pass  # This process has a session.
    monkeypatch.setattr(local_spark, "_running", None)
    # A session's start sets variables.
    for variable in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "JDK_JAVA"))]:
        monkeypatch.delenv(variable)
    with local_spark.metastore(warehouse) as metastore:
        assert metastore.folder_uri(TableName.parse("default.none")) is None
        with raises("WAREHOUSE_IN_USE", warehouse=warehouse), local_spark.metastore(warehouse):
            pass
        # Another program that opens the database doesn't take the lock.
        with pytest.raises(NeedsSpark), local_metastore.opened(warehouse, java_process.check_java()):
            pass
    with local_spark.metastore(warehouse) as metastore:
        assert metastore.folder_uri(TableName.parse("default.none")) is None


def test_damaged_metastore_needs_spark(copies: Copies) -> None:
    warehouse = copies.warehouse()
    (warehouse / local_metastore.FOLDER / "service.properties").unlink()
    with pytest.raises(NeedsSpark), local_metastore.opened(warehouse, java_process.check_java()):
        pass
