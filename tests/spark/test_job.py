"""The tasks of the root bundle's job run locally with the parameters of its resource file."""

from __future__ import annotations

import re
import runpy
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from tests.databricks_pipelines import Platform
from tests.workspace import FakeWorkspace

from tableferry import verify
from tableferry.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "src" / "sample"
PIPELINE = "p1"


class Job:
    """The job `migrate` of the root bundle, on a workspace with one pipeline."""

    def __init__(self, workspace: FakeWorkspace, spark: SparkSession, schema: str, project: Path) -> None:
        self.workspace, self.spark, self.project = workspace, spark, project
        resources = yaml.safe_load((ROOT / "resources" / "migrate.job.yml").read_text("utf-8"))["resources"]
        self.tasks: list[dict[str, Any]] = resources["jobs"]["migrate"]["tasks"]
        written = (ROOT / "resources" / "migration.pipeline.yml").read_text("utf-8")
        for reference, value in {
            "workspace.file_path}/src/orders": f"{project}",
            "bundle.target}": "dev",
            "resources.schemas.target.catalog_name}": "spark_catalog",
            "resources.schemas.target.name}": schema,
            "resources.volumes.state.name}": "state",
        }.items():
            written = written.replace("${" + reference, value)
        definition = yaml.safe_load(written)["resources"]["pipelines"]["migration"]
        # The platform adds the pipeline's id to the configuration of its definition.
        self.configuration: dict[str, str] = {**definition["configuration"], "pipelines.id": PIPELINE}
        workspace.pipelines[PIPELINE] = {"pipeline_id": PIPELINE, "name": "migration", "spec": definition}

    def run(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Run the tasks in order until one fails."""
        for task in self.tasks:
            if "pipeline_task" in task:
                self._update()
                continue
            wheel = task["python_wheel_task"]
            assert wheel["entry_point"] == "tableferry"
            parameters = [
                parameter.replace("${resources.pipelines.migration.id}", PIPELINE)
                for parameter in wheel["parameters"]
            ]
            monkeypatch.setattr("sys.argv", ["tableferry", *parameters])
            main()

    def _update(self) -> None:
        runtime = Platform()
        for key, value in self.configuration.items():
            self.spark.conf.set(key, value)
        try:
            runtime.load()
        finally:
            for key in self.configuration:
                self.spark.conf.unset(key)
        for flow in runtime.update(self.spark, self.project / "checkpoints"):
            self.workspace.flow_progress(PIPELINE, f"spark_catalog.any.{flow}", "COMPLETED")


def test_example_is_migrated_by_two_runs_of_job(
    logged_in: FakeWorkspace,
    spark: SparkSession,
    schema: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # The job runs in the workspace of the tables, and the pipeline's event log starts with it.
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    logged_in.first_event = datetime.now(UTC)
    project = tmp_path / "orders"
    shutil.copytree(ROOT / "src" / "orders", project)
    # The fake platform runs only append flows.
    shutil.rmtree(project / "dataflows" / "customers")
    configs = project / "pipeline_configs"
    state = yaml.safe_dump({"table_migration_state_volume_path": str(tmp_path / "state")})
    (configs / "global.yaml").write_text(state, "utf-8")
    load = runpy.run_path(str(SAMPLE / "load.py"))["load"]
    load(spark, SAMPLE, f"spark_catalog.{schema}", "history")
    job = Job(logged_in, spark, schema, project)

    job.run(monkeypatch)
    output = capsys.readouterr().out
    assert re.search(r"orders: 20 rows of history; the copy matches the legacy table row for row", output)
    assert re.search(rf"{schema}.orders +waiting for sources +20 +matches", output)
    load(spark, SAMPLE, f"spark_catalog.{schema}", "new")
    job.run(monkeypatch)
    complete = rf"{schema}.orders +complete \(proved\): safe to remove +20 +matches"
    assert re.search(complete, capsys.readouterr().out)
    assert verify.verify_tables(spark, f"{schema}.orders_feed", f"{schema}.orders").matches
    # A failed task fails the job.
    logged_in.pipelines.clear()
    with pytest.raises(SystemExit) as left:
        job.run(monkeypatch)
    assert left.value.code == 1
    failure = "Error: [WORKSPACE_REQUEST_FAILED] pipeline p1 can't be read (The specified pipeline p1 was not"
    assert failure in capsys.readouterr().err
