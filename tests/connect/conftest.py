"""A Spark Connect server for the whole run, and databricks-connect's session on it.

These tests run in the environment of databricks-connect. The server runs in the environment of pyspark;
TABLEFERRY_SERVER_PYTHON names its Python. `make connect` creates both environments, and runs the tests in two
processes that share the server.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import quick

from tableferry import workspace
from tableferry.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVER_PYTHON = "TABLEFERRY_SERVER_PYTHON"

# The first start fetches Delta's jars.
_PATIENCE_SECONDS = 300

_ADDRESS = pytest.StashKey[str]()
_numbers = count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Start the server in the process that starts the others, and end it with that process."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    python = os.environ.get(SERVER_PYTHON)
    if not python or not session.has_databricks_connect():
        pytest.exit("tests/connect needs databricks-connect here, and pyspark elsewhere: run make connect", 1)
    port = _free_port()
    folder = Path(tempfile.mkdtemp(prefix="tableferry-server-"))
    process = subprocess.Popen(
        [
            *(python, Path(__file__).with_name("server.py"), folder, str(port)),
            *(f"{key}={value}" for key, value in quick.SETTINGS.items()),
        ],
        env=_server_environment(),
        stdin=subprocess.PIPE,
    )

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(end)
    _wait_for(port, process, folder / "spark.log")
    config.stash[_ADDRESS] = f"sc://localhost:{port}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Pass the address of the server to another process."""
    node.workerinput["server"] = node.config.stash[_ADDRESS]


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> str:
    """The address of a Spark Connect server that lives as long as the run."""
    worker_input: dict[str, str] = getattr(pytestconfig, "workerinput", {})
    return worker_input.get("server") or pytestconfig.stash[_ADDRESS]


@pytest.fixture(scope="session")
def spark(server: str) -> Iterator[SparkSession]:
    """The session of `resolve` if SPARK_REMOTE names the server and no workspace is configured."""
    with pytest.MonkeyPatch.context() as patch:
        for name in (*workspace.DATABRICKS_VARIABLES, "DATABRICKS_RUNTIME_VERSION"):
            patch.delenv(name, raising=False)
        # The profile of a developer would connect these tests to a workspace.
        patch.setenv("DATABRICKS_CONFIG_FILE", os.devnull)
        patch.setenv("SPARK_REMOTE", server)
        spark = session.resolve()
        yield spark
        session.stop(spark)


@pytest.fixture
def schema(spark: SparkSession) -> Iterator[str]:
    """The name of an empty schema that is dropped with all its tables when the test ends."""
    name = f"connect_{os.environ.get('PYTEST_XDIST_WORKER', '')}_{next(_numbers)}"
    spark.sql(f"CREATE SCHEMA {name}")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


def _server_environment() -> dict[str, str]:
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_REMOTE"}
    # Python functions of Spark's tasks run in the server's Python, which must be of the client's version.
    environ["PYSPARK_PYTHON"] = sys.executable
    environ.setdefault("JDK_JAVA_OPTIONS", quick.JAVA_OPTIONS)
    environ.setdefault("SPARK_DRIVER_MEMORY", "2g")
    return environ


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.2)
    log_text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    pytest.exit("the Spark Connect server didn't start; the end of its log:\n" + log_text[-3000:], 1)
