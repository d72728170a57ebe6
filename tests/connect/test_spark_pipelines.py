"""A pipeline of Spark's own (``spark-pipelines run``) does what the streaming engine does, where it can.

The claims that the engines share are told once, as a story, and each engine goes through it.
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
from tableferry.pipelines.model.steps import DefineAppend
from tableferry.testing import RecordingEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
FILE = SOURCE / "pipelines" / "migrate.py"
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
KEPT = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_streaming_table("staged")
dp.append_flow(target="staged", name="f_staged")(lambda: spark.readStream.table("{schema}.raw"))
dp.create_streaming_table("kept", table_properties={{"pipelines.reset.allowed": "false"}})
dp.append_flow(target="kept", name="f_kept")(lambda: spark.readStream.table("staged"))
"""


class Pipeline:
    """A pipeline on the server, with the source file that bundles have, and the project that it draws."""

    def __init__(self, project: Project, server: str) -> None:
        self.project, self.server = project, server
        self.folder = project.root / "pipeline"
        self.storage = project.root / "storage"
        self.kind = SparkPipeline(self.storage)
        (self.folder / "src").mkdir(parents=True)
        self.add("migrate.py", FILE.read_text("utf-8"))
        self.configure(**{"spark.sql.sources.default": "delta"})

    def add(self, name: str, code: str) -> None:
        """Add a source file."""
        self.folder.joinpath("src", name).write_text(code, "utf-8")

    def configure(self, **settings: str) -> None:
        """Write the pipeline's own file."""
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
        """Run an update to its end; return what it printed."""
        done = self._run("run", *more)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def refused(self, *more: str) -> str:
        """Run an update that fails; return what it printed."""
        done = self._run("run", *more)
        assert done.returncode != 0
        return done.stdout + done.stderr

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


class Engine(Protocol):
    """What runs a project of one target, `new`."""

    def settle(self) -> None:
        """Take all that there is to take."""

    def refresh(self) -> None:
        """Rebuild the target."""

    def complete(self) -> bool:
        """Say whether the migration is complete."""

    def finish(self) -> None:
        """Take the migration out."""


class Streaming:
    """The streaming engine."""

    def __init__(self, project: Project, _: str) -> None:
        self.project = project

    def settle(self) -> None:
        assert self.project.run().ok

    def refresh(self) -> None:
        assert self.project.run(full_refresh=[f"{self.project.schema}.new"]).ok

    def complete(self) -> bool:
        return self.project.status().complete

    def finish(self) -> None:
        self.project.finish(accept_assumed=True)


class Declarative:
    """A pipeline of Spark's own, with `prepare` around its updates."""

    def __init__(self, project: Project, server: str) -> None:
        self.project, self.pipeline = project, Pipeline(project, server)

    def settle(self) -> None:
        self._prepare()
        self._update()
        if self._prepare() == "ready":
            self._update()

    def refresh(self) -> None:
        table = f"{self.project.schema}.new"
        before = self.project.rows("new")
        if soak.SOAKING:
            assert "TABLE_NOT_RESETTABLE" in self.pipeline.refused("--full-refresh", table)
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
        """Run an update, and see that it ran the very flows that the plan draws."""
        recorder = RecordingEngine()
        apply_definitions(self.project.plan(pipeline=self.pipeline.kind).targets[0].definitions, recorder)
        defined = {
            definition.flow.name for definition in recorder.defined if isinstance(definition, DefineAppend)
        }
        output = self.pipeline.update(*more)
        assert set(re.findall(r"Flow \S+\.(f_\w+?)__\w+ has COMPLETED", output)) == defined


# What the streaming engine does through Spark Connect is in test_migration.py, too.
@pytest.mark.parametrize("engine", soak.amount([Declarative], [Streaming, Declarative]))
@soak.slow
def test_nothing_is_lost_and_nothing_comes_twice(
    engine: Callable[[Project, str], Engine], project: Project, server: str
) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"), (2, "b"))
    project.create("legacy", "id INT, v STRING", (1, "a"), (2, "b"))
    project.standard("new", "orders", migration={"table": "legacy"})
    running = engine(project, server)
    running.settle()
    assert project.rows("new") == [(1, "a"), (2, "b")]
    # A writer that wasn't paused: its row isn't in the pinned version, and what it's made from flows.
    project.insert("legacy", (3, "c"))
    project.insert("orders", (3, "c"))
    running.settle()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c")]
    # An update takes half a minute; that another one takes nothing twice is seen of the last one, too.
    for _ in range(soak.amount(0, 1)):
        running.settle()
        assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c")]
    project.insert("orders", (4, "d"))
    running.refresh()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert running.complete()
    running.finish()
    project.insert("orders", (5, "e"))
    running.settle()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    assert not project.spark.catalog.tableExists(f"{project.schema}.new__tableferry_pinned")


@soak.slow
def test_a_quarantine_metadata_and_materialized_views_are_made(project: Project, server: str) -> None:
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
    Pipeline(project, server).update()
    assert project.rows("new", "id", "v") == [(1, "a")]
    assert project.rows("new_quarantine", "id", "v") == [(-2, "b")]
    (details,) = project.rows("new", "meta_load_details.*")
    # Spark's own pipelines tell nobody the id of their update.
    assert [detail is not None for detail in details] == [True, True, True, False]
    assert project.rows("positive") == [(1, "a")]
    assert project.rows("positive_quarantine") == [(-2, "b")]
    assert project.rows("counted") == [(1,)]


def test_loading_a_pipeline_s_files_starts_nothing(project: Project, server: str) -> None:
    project.create("orders", "id INT", (1,))
    project.create("legacy", "id INT", (1,))
    project.standard("new", "orders", migration={"table": "legacy"})
    pipeline = Pipeline(project, server)
    before = project.contents()
    assert "new: The update needs state that isn't recorded yet" in pipeline.refused()
    assert project.contents() == before


@soak.only  # No behaviour of ours.
@soak.slow
def test_spark_ignores_options_in_front_of_a_table_s_name(project: Project, server: str) -> None:
    """Why the engine reads from folders: the day this fails, it can read by name."""
    project.create("orders", "id INT", (1,), (2,))
    pipeline = Pipeline(project, server)
    pipeline.add("migrate.py", PROBE.format(table=f"{project.schema}.orders", start=2))
    pipeline.update()
    assert project.rows("probe") == [(1,), (2,)]


@soak.only  # No behaviour of ours.
@soak.slow
def test_spark_runs_no_pipeline_whose_kept_table_reads_one_that_may_be_refreshed(
    project: Project, server: str
) -> None:
    """Why what a kept table reads is kept with it."""
    project.create("raw", "id INT", (1,))
    pipeline = Pipeline(project, server)
    pipeline.add("migrate.py", KEPT.format(schema=project.schema))
    assert "INVALID_RESETTABLE_DEPENDENCY" in pipeline.refused()


@soak.slow
def test_what_such_a_pipeline_cannot_do_is_refused_by_name(project: Project, server: str) -> None:
    project.create("feed", "id INT, at INT", (1, 1))
    project.create("legacy", "id INT, at INT", (1, 1))
    project.standard(
        "new",
        "feed",
        cdc={"keys": ["id"], "scd_type": "1", "sequence_by": "at"},
        migration={"table": "legacy"},
    )
    pipeline = Pipeline(project, server)
    before = project.contents()
    with raises("AUTO_CDC_NOT_IN_SPARKS_OWN", table=f"{project.schema}.new"):
        pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    assert project.contents() == before
    assert "AUTO_CDC_NOT_IN_SPARKS_OWN" in pipeline.refused()

    project.standard("new", "feed", migration={"table": "legacy"})
    pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    pipeline.configure()
    assert "PIPELINE_FORMAT_NOT_DELTA" in pipeline.refused()
