"""An open-source pipeline (``spark-pipelines run``) gives the same results as the streaming engine.

One test runs the same migration with both engines.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from tests import soak
from tests.conditions import raises
from tests.connect.conftest import SERVER_PYTHON
from tests.spark.projects import Project

from tableferry import pipelines
from tableferry.pipelines import SparkPipeline
from tableferry.pipelines.engines.port import apply_definitions
from tableferry.pipelines.model.steps import PlannedFlow
from tableferry.testing import RecordingEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
MIGRATE = SOURCE / "pipelines" / "migrate.py"
PROBE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_streaming_table("probe")

@dp.temporary_view(name="`newest-version`")
def newest_version():
    return spark.readStream.option("startingVersion", "{start}").table("{table}")

@dp.append_flow(target="`probe`", name="`from-newest-version`")
def from_newest_version():
    return spark.readStream.table("`newest-version`")
"""
PROTECTED = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_streaming_table("staged")
dp.append_flow(target="staged", name="f_staged")(lambda: spark.readStream.table("{schema}.raw"))
dp.create_streaming_table("kept", table_properties={{"pipelines.reset.allowed": "false"}})
dp.append_flow(target="kept", name="f_kept")(lambda: spark.readStream.table("staged"))
"""


class OpenSourcePipeline:
    """A pipeline on the server with the source file of a bundle, and its project."""

    def __init__(self, project: Project, server: str) -> None:
        self.project, self.server = project, server
        self.folder = project.root / "pipeline"
        self.storage = project.root / "storage"
        self.kind = SparkPipeline(self.storage)
        (self.folder / "src").mkdir(parents=True)
        self.add_source_file("migrate.py", MIGRATE.read_text("utf-8"))
        self.write_configuration(**{"spark.sql.sources.default": "delta"})

    def add_source_file(self, name: str, code: str) -> None:
        """Add a source file."""
        self.folder.joinpath("src", name).write_text(code, "utf-8")

    def write_configuration(self, **settings: str) -> None:
        """Write spark-pipeline.yml."""
        lines = [
            "name: orders",
            f"storage: file://{self.storage}",
            "catalog: spark_catalog",
            f"database: {self.project.schema}",
            "libraries:",
            "  - glob:",
            "      include: src/**",
            "configuration:",
            f"  tableferry.project: {self.project.root}",
            *(f"  {key}: {value}" for key, value in settings.items()),
        ]
        self.folder.joinpath("spark-pipeline.yml").write_text("\n".join(lines) + "\n", "utf-8")

    def update(self, *more: str) -> str:
        """Run an update that succeeds; return its output."""
        process = self._run("run", *more)
        assert process.returncode == 0, process.stderr
        return process.stdout + process.stderr

    def fail_update(self, *more: str) -> str:
        """Run an update that fails; return its output."""
        process = self._run("run", *more)
        assert process.returncode != 0
        return process.stdout + process.stderr

    def _run(self, command: str, *more: str) -> subprocess.CompletedProcess[str]:
        python = Path(os.environ[SERVER_PYTHON])
        spec = str(self.folder / "spark-pipeline.yml")
        # The environment of databricks-connect is the tests' own; the pipeline runs in the one of pyspark.
        environ = {
            name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "PYTHONPATH")
        }
        return subprocess.run(
            [python.with_name("spark-pipelines"), "--remote", self.server, command, "--spec", spec, *more],
            env={**environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path, schema, spark)


class MigrationEngine(Protocol):
    """An engine that migrates a project with one target, `new`."""

    def process_commits(self) -> None:
        """Process every commit of the sources."""

    def refresh(self) -> None:
        """Rebuild the target."""

    def complete(self) -> bool:
        """Return whether the migration is complete."""

    def finish(self) -> None:
        """Finish the migration."""


class StreamingMigration:
    """The streaming engine."""

    def __init__(self, project: Project, _: str) -> None:
        self.project = project

    def process_commits(self) -> None:
        assert self.project.run().ok

    def refresh(self) -> None:
        assert self.project.run(full_refresh=[f"{self.project.schema}.new"]).ok

    def complete(self) -> bool:
        return self.project.status().complete

    def finish(self) -> None:
        self.project.finish(accept_assumed=True)


class DeclarativeMigration:
    """An open-source pipeline, with `prepare` before and after its updates."""

    def __init__(self, project: Project, server: str) -> None:
        self.project, self.pipeline = project, OpenSourcePipeline(project, server)

    def process_commits(self) -> None:
        self._prepare()
        self._update()
        if self._prepare() == "ready":
            self._update()

    def refresh(self) -> None:
        table = f"{self.project.schema}.new"
        before = self.project.rows("new")
        if soak.SOAKING:
            assert "TABLE_NOT_RESETTABLE" in self.pipeline.fail_update("--full-refresh", table)
            assert self.project.rows("new") == before
        (file,) = self.project.root.rglob("new_main.json")
        spec = json.loads(file.read_text("utf-8"))
        spec["targetDetails"]["tableProperties"] = {"pipelines.reset.allowed": "true"}
        self.project.spec("new", spec)
        self._update("--full-refresh", table)

    def complete(self) -> bool:
        return self.project.status(pipeline=self.pipeline.kind).complete

    def finish(self) -> None:
        self.project.finish(pipeline=self.pipeline.kind, accept_assumed=True)

    def _prepare(self) -> str:
        (target,) = pipelines.prepare(
            self.project.root, self.project.spark, pipeline=self.pipeline.kind
        ).targets
        return target.plan.phase

    def _update(self, *more: str) -> None:
        """Run an update, and check that it ran exactly the flows of the plan."""
        recorder = RecordingEngine()
        apply_definitions(self.project.plan(pipeline=self.pipeline.kind).targets[0].definitions, recorder)
        defined = {definition.name for definition in recorder.defined if isinstance(definition, PlannedFlow)}
        output = self.pipeline.update(*more)
        assert set(re.findall(r"Flow \S+\.(f_\w+?)__\w+ has COMPLETED", output)) == defined


# test_migration.py also runs the streaming engine through Spark Connect.
@pytest.mark.parametrize(
    "engine", soak.amount([DeclarativeMigration], [StreamingMigration, DeclarativeMigration])
)
@soak.slow
def test_migration_writes_each_row_once(
    engine: Callable[[Project, str], MigrationEngine], project: Project, server: str
) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"), (2, "b"))
    project.create("legacy", "id INT, v STRING", (1, "a"), (2, "b"))
    project.standard("new", "orders", migration={"table": "legacy"})
    migration = engine(project, server)
    migration.process_commits()
    assert project.rows("new") == [(1, "a"), (2, "b")]
    # A writer that wasn't paused: the pinned version lacks its row, and the flow processes its source row.
    project.insert("legacy", (3, "c"))
    project.insert("orders", (3, "c"))
    migration.process_commits()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c")]
    # An update takes half a minute. The last one shows too that no row is written twice.
    for _ in range(soak.amount(0, 1)):
        migration.process_commits()
        assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c")]
    project.insert("orders", (4, "d"))
    migration.refresh()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert migration.complete()
    migration.finish()
    project.insert("orders", (5, "e"))
    migration.process_commits()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    assert not project.spark.catalog.tableExists(f"{project.schema}.new__tableferry_pinned")


@soak.slow
def test_quarantine_metadata_and_materialized_views_are_created(project: Project, server: str) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"), (-2, "b"))
    rules = {
        "expect_or_drop": [{"name": "positive", "constraint": "id > 0"}],
        "expect": [{"name": "a", "constraint": "v = 'a'"}],
    }
    project.write("dataflows/d/expectations/rules.json", rules)
    project.write("pipeline_configs/dev_substitutions.json", {"tokens": {"pipeline_layer": "gold"}})
    judged = {"dataQualityExpectationsEnabled": True, "dataQualityExpectationsPath": "rules.json"}
    project.standard("new", "orders", quarantineMode="table", **judged)  # type: ignore[arg-type]
    flat = {"features": {"operationalMetadataEnabled": False}}
    views = {
        "positive": {
            "sqlStatement": f"SELECT * FROM {project.schema}.orders",
            "tableDetails": {"database": project.schema, "sparkConf": {"spark.sql.shuffle.partitions": 1}},
            **judged,
            "quarantineMode": "table",
        },
        "counted": {
            "sqlStatement": "SELECT count(*) AS n FROM live.positive",
            "tableDetails": {"database": project.schema},
        },
    }
    gold = {"dataFlowId": "gold", "dataFlowGroup": "g", "dataFlowType": "materialized_view"}
    project.spec("gold", {**gold, **flat, "materializedViews": views})
    OpenSourcePipeline(project, server).update()
    assert project.rows("new", "id", "v") == [(1, "a")]
    assert project.rows("new_quarantine", "id", "v") == [(-2, "b")]
    (details,) = project.rows("new", "meta_load_details.*")
    # Open-source pipelines don't expose the id of an update.
    assert [detail is not None for detail in details] == [True, True, True, False]
    assert project.rows("positive") == [(1, "a")]
    assert project.rows("positive_quarantine") == [(-2, "b")]
    assert project.rows("counted") == [(1,)]


def test_update_without_preparation_writes_nothing(project: Project, server: str) -> None:
    project.create("orders", "id INT", (1,))
    project.create("legacy", "id INT", (1,))
    project.standard("new", "orders", migration={"table": "legacy"})
    pipeline = OpenSourcePipeline(project, server)
    before = project.contents()
    assert "new: The update needs state that isn't recorded yet" in pipeline.fail_update()
    assert project.contents() == before


@soak.only  # A test of Spark, not of Tableferry.
@soak.slow
def test_spark_ignores_reader_options_before_table(project: Project, server: str) -> None:
    """The reason why the engine reads by path. If this test fails, it can read by name."""
    project.create("orders", "id INT", (1,), (2,))
    pipeline = OpenSourcePipeline(project, server)
    pipeline.add_source_file("migrate.py", PROBE.format(table=f"{project.schema}.orders", start=2))
    pipeline.update()
    assert project.rows("probe") == [(1,), (2,)]


@soak.only  # A test of Spark, not of Tableferry.
@soak.slow
def test_spark_refuses_protected_table_that_reads_unprotected_table(project: Project, server: str) -> None:
    """The reason why the tables that a protected table reads are protected too."""
    project.create("raw", "id INT", (1,))
    pipeline = OpenSourcePipeline(project, server)
    pipeline.add_source_file("migrate.py", PROTECTED.format(schema=project.schema))
    assert "INVALID_RESETTABLE_DEPENDENCY" in pipeline.fail_update()


@soak.slow
def test_unsupported_features_are_refused(project: Project, server: str) -> None:
    project.create("feed", "id INT, at INT", (1, 1))
    project.create("legacy", "id INT, at INT", (1, 1))
    project.standard(
        "new",
        "feed",
        cdc={"keys": ["id"], "scd_type": "1", "sequence_by": "at"},
        migration={"table": "legacy"},
    )
    pipeline = OpenSourcePipeline(project, server)
    before = project.contents()
    with raises("AUTO_CDC_NOT_IN_SPARKS_OWN", table=f"{project.schema}.new"):
        pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    assert project.contents() == before
    assert "AUTO_CDC_NOT_IN_SPARKS_OWN" in pipeline.fail_update()

    project.standard("new", "feed", migration={"table": "legacy"})
    pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    pipeline.write_configuration()
    assert "PIPELINE_FORMAT_NOT_DELTA" in pipeline.fail_update()
