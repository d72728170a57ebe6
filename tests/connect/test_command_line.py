"""The command line of both clients, each in a separate environment and process, with one server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.connect.conftest import SERVER_PYTHON
from tests.spark.projects import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
FEED = "id int, v string, at int"


@dataclass(frozen=True)
class Client:
    """An environment with the command, and the address of its Spark."""

    python: Path
    remote: str

    def __call__(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python.with_name("tableferry"), *arguments],
            env={**os.environ, "SPARK_REMOTE": self.remote, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def databricks_connect(spark: SparkSession, server: str) -> Client:
    """The client that these tests run in."""
    return Client(Path(sys.executable), server)


@pytest.fixture
def pyspark(spark: SparkSession, server: str) -> Client:
    """The plain client, in the environment of the server."""
    return Client(Path(os.environ[SERVER_PYTHON]), server)


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    return project


def test_run_and_status_print_same_messages_as_local_spark(
    databricks_connect: Client, project: Project
) -> None:
    project.standard("orders", "src", migration={})
    done = databricks_connect("pipelines", "run", project.root)
    assert done.returncode == 0, done.stderr
    first, *steps = done.stderr.splitlines()
    assert first == f"Spark: Spark Connect at {databricks_connect.remote}"
    assert any(f"{project.schema}.orders: copy the history: done in " in step for step in steps)
    status = databricks_connect("pipelines", "status", project.root, "--output", "json")
    assert status.returncode == 0, status.stderr
    (target,) = json.loads(status.stdout)["targets"]
    assert (target["target"], target["phase"]) == (f"{project.schema}.orders", "waiting")
    verdict = databricks_connect("verify", f"{project.schema}.orders", f"{project.schema}.gone")
    assert verdict.returncode == 1
    assert verdict.stderr.splitlines()[1:] == [
        f"Error: [TABLE_NOT_FOUND] {project.schema}.gone doesn't exist.",
        "Check its name, its schema and your permissions.",
    ]


def test_missing_server_is_reported_with_its_condition(databricks_connect: Client, project: Project) -> None:
    project.standard("orders", "src", migration={})
    client = Client(databricks_connect.python, "sc://localhost:1")
    status = client("pipelines", "status", project.root)
    assert status.returncode == 1
    assert status.stdout == ""
    assert status.stderr == (
        "Spark: Spark Connect at sc://localhost:1\n"
        "Error: [SPARK_REMOTE_UNREACHABLE] No Spark Connect server answers at sc://localhost:1, the address "
        "in SPARK_REMOTE (failed to connect to all addresses).\n"
        "Start the server. To work locally, unset SPARK_REMOTE.\n"
    )


@soak.slow
def test_plain_client_appends_and_refuses_streaming_cdc(pyspark: Client, project: Project) -> None:
    project.standard("orders", "src", migration={})
    done = pyspark("pipelines", "run", project.root)
    assert done.returncode == 0, done.stderr
    assert project.rows("orders") == [(1, "a", 1)]

    project.create("latest_legacy", FEED, (1, "a", 1))
    project.standard(
        "latest", "src", cdc={"keys": ["id"], "sequence_by": "at", "scd_type": "1"}, migration={}
    )
    with project.nothing_written():
        refused = pyspark("pipelines", "run", project.root)
    assert refused.returncode == 1
    message, remedy = refused.stderr.splitlines()[-2:]
    assert message.startswith(
        "Error: [STREAMING_CDC_THROUGH_CONNECT] dataflows/d/dataflowspec/latest_main.json: f_v_latest into "
        f"{project.schema}.latest is a streaming CDC flow"
    )
    assert remedy.startswith("Run the project on the cluster")
