"""A pipeline of Spark's own (``spark-pipelines run``) fills a target with its history and its live rows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.connect.conftest import SERVER_PYTHON
from tests.spark.projects import Project

from tableferry import pipelines
from tableferry.pipelines import SparkPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = Path(__file__).parents[2] / "src"
FILE = SOURCE / "pipelines" / "migrate.py"
PROBE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_streaming_table("probe")

@dp.append_flow(target="probe")
def from_the_newest_version():
    return spark.readStream.option("startingVersion", "2").table("{table}")
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

    def refused(self) -> str:
        """Run an update that fails; return what it printed."""
        done = self._run("run")
        assert done.returncode != 0
        return done.stdout + done.stderr

    def _run(self, verb: str, *more: str) -> subprocess.CompletedProcess[str]:
        python = Path(os.environ[SERVER_PYTHON])
        spec = str(self.folder / "spark-pipeline.yml")
        # The environment of databricks-connect is the tests' own; the pipeline runs in the one of pyspark.
        environ = {
            name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "PYTHONPATH")
        }
        return subprocess.run(
            [python.with_name("spark-pipelines"), "--remote", self.server, verb, "--spec", spec, *more],
            env={**environ, "PYSPARK_PYTHON": str(python), "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
        )


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path, schema, spark)


def test_an_update_at_a_time_nothing_is_lost_and_nothing_comes_twice(project: Project, server: str) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"), (2, "b"))
    project.create("legacy", "id INT, v STRING", (1, "a"), (2, "b"))
    project.standard("new", "orders", migration={"table": "legacy"})
    pipeline = Pipeline(project, server)

    # Loading the pipeline's files begins nothing, for a dry run loads them too.
    before = project.contents()
    assert "new: something must be recorded before an update: pause the writers" in pipeline.refused()
    assert project.contents() == before

    pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    # A writer that wasn't paused: its row isn't in the pinned version, and what it's made from flows.
    project.insert("legacy", (3, "c"))
    project.insert("orders", (3, "c"))
    pipeline.update()
    assert project.rows("new") == [(1, "a"), (2, "b")]

    pipeline.add("probe.py", PROBE.format(table=f"{project.schema}.orders"))
    done = pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    assert done.ok
    assert [one.plan.phase for one in done.targets] == ["ready"]
    pipeline.update()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c")]
    # Spark 4.1 ignores options in front of `.table(…)`, which is why the engine reads from folders.
    assert project.rows("probe") == [(1, "a"), (2, "b"), (3, "c")]
    project.insert("orders", (4, "d"))
    pipeline.update("--full-refresh", f"{project.schema}.new")
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]

    assert pipelines.status(project.root, project.spark, pipeline=pipeline.kind).complete
    pipelines.finish(project.root, project.spark, pipeline=pipeline.kind)
    project.insert("orders", (5, "e"))
    pipeline.update()
    assert project.rows("new") == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    assert not project.spark.catalog.tableExists(f"{project.schema}.new__tableferry_pinned")


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
    pipelines.prepare(project.root, project.spark, pipeline=pipeline.kind)
    assert (
        "new is an SCD type 1 target, which a pipeline of Spark's own can't fill together with its history: "
        "run the project with the streaming engine (tableferry pipelines run), or run it on Databricks"
    ) in pipeline.refused()
    pipeline.configure()
    assert "take their format from spark.sql.sources.default: set it to delta" in pipeline.refused()
