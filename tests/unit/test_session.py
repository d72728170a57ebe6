from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from tests.conditions import check, raises

from tableferry import workspace
from tableferry.spark import java_process, local_settings, local_spark, session, warehouse_lock
from tableferry.spark.session import Choice, choose

NO_PROFILE = {"DATABRICKS_CONFIG_FILE": "/nowhere/databrickscfg"}


@pytest.mark.parametrize(
    ("environ", "databricks_connect", "expected"),
    [
        pytest.param({}, False, Choice("local"), id="nothing is set"),
        pytest.param({}, True, Choice("local"), id="a client alone configures no workspace"),
        pytest.param(
            {"DATABRICKS_HOST": "https://w"}, False, Choice("local"), id="a workspace, and no client for it"
        ),
        pytest.param(
            {"DATABRICKS_RUNTIME_VERSION": "17.3", "DATABRICKS_HOST": "https://w", "SPARK_REMOTE": "sc://s"},
            True,
            Choice("runtime", "17.3"),
            id="a runtime has priority",
        ),
        pytest.param(
            {"DATABRICKS_HOST": "https://w", "SPARK_REMOTE": "sc://s"},
            True,
            Choice("databricks-connect", "serverless compute of https://w", serverless=True),
            id="a workspace has priority over a remote, and is serverless without a cluster",
        ),
        pytest.param(
            {"DATABRICKS_HOST": "https://w", "DATABRICKS_CLUSTER_ID": "0301-abc"},
            True,
            Choice("databricks-connect", "cluster 0301-abc of https://w"),
            id="a cluster",
        ),
        pytest.param(
            {"DATABRICKS_SERVERLESS_COMPUTE_ID": "auto"},
            True,
            Choice("databricks-connect", "serverless compute of the default workspace"),
            id="serverless by name needs no request",
        ),
        pytest.param({"SPARK_REMOTE": "sc://s:15002"}, True, Choice("remote", "sc://s:15002"), id="a remote"),
        pytest.param(
            {"SPARK_REMOTE": "sc://s:15002/;token=secret"},
            False,
            Choice("remote", "sc://s:15002"),
            id="a remote's token is not printed",
        ),
        pytest.param({"SPARK_REMOTE": ""}, False, Choice("local"), id="an empty variable is none"),
    ],
)
def test_choice(environ: Mapping[str, str], databricks_connect: bool, expected: Choice) -> None:
    assert choose({**NO_PROFILE, **environ}, databricks_connect=databricks_connect) == expected


@pytest.mark.parametrize(
    ("text", "environ", "expected"),
    [
        (
            "[DEFAULT]\nhost = https://w\n",
            {},
            Choice("databricks-connect", "serverless compute of https://w", serverless=True),
        ),
        (
            "[DEFAULT]\nhost = https://w\ncluster_id = c1\n",
            {},
            Choice("databricks-connect", "cluster c1 of https://w"),
        ),
        (
            "[DEFAULT]\nhost = https://w\n[dev]\nhost = https://d\nserverless_compute_id = auto\n",
            {"DATABRICKS_CONFIG_PROFILE": "dev"},
            Choice("databricks-connect", "serverless compute of https://d"),
        ),
        (
            "[DEFAULT]\ncluster_id = c1\n[dev]\nhost = https://d\n",
            {"DATABRICKS_CONFIG_PROFILE": "dev"},
            Choice("databricks-connect", "serverless compute of https://d", serverless=True),
        ),
        ("[dev]\nhost = https://d\n", {}, Choice("local")),
    ],
)
def test_choice_by_profile(tmp_path: Path, text: str, environ: Mapping[str, str], expected: Choice) -> None:
    file = tmp_path / "databrickscfg"
    file.write_text(text)
    environ = {"DATABRICKS_CONFIG_FILE": str(file), **environ}
    assert choose(environ, databricks_connect=True) == expected


def test_unreadable_profile_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "databrickscfg"
    file.write_text("host = https://w\n")
    with raises("DATABRICKS_CONFIG_NOT_READABLE", file=file):
        choose({"DATABRICKS_CONFIG_FILE": str(file)}, databricks_connect=True)


class FakeBuilder:
    """Replaces the builder of databricks-connect, which can't be installed beside pyspark."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.error = error

    def profile(self, name: str) -> FakeBuilder:
        self.calls.append(("profile", name))
        return self

    def serverless(self, enabled: bool) -> FakeBuilder:
        self.calls.append(("serverless", enabled))
        return self

    def getOrCreate(self) -> object:
        if self.error:
            raise self.error
        return self


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any setting that locates Spark."""
    for name in (*workspace.DATABRICKS_VARIABLES, "DATABRICKS_RUNTIME_VERSION", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv(session.WAREHOUSE_VARIABLE, raising=False)
    for name, value in NO_PROFILE.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def install(monkeypatch: pytest.MonkeyPatch, builder: FakeBuilder) -> None:
    module = ModuleType("databricks.connect")
    module.DatabricksSession = SimpleNamespace(builder=builder)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "databricks.connect", module)
    monkeypatch.setattr(session, "has_databricks_connect", lambda: True)


def test_databricks_connect_without_a_cluster_is_serverless(bare: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder()
    lines: list[str] = []
    install(bare, builder)
    bare.setenv("DATABRICKS_HOST", "https://w")
    given: object = session.resolve(say=lines.append)
    assert given is builder
    assert builder.calls == [("serverless", True)]
    assert lines == ["Spark: Databricks Connect, serverless compute of https://w"]


def test_databricks_connect_with_a_profile_and_a_cluster(bare: pytest.MonkeyPatch) -> None:
    builder = FakeBuilder()
    lines: list[str] = []
    install(bare, builder)
    bare.setenv("DATABRICKS_CONFIG_PROFILE", "dev")
    bare.setenv("DATABRICKS_CLUSTER_ID", "c1")
    given: object = session.resolve(say=lines.append)
    assert given is builder
    assert builder.calls == [("profile", "dev")]
    assert lines == ["Spark: Databricks Connect, cluster c1 of the default workspace"]


def test_refusal_of_databricks_connect_has_the_first_line_as_its_reason(bare: pytest.MonkeyPatch) -> None:
    install(bare, FakeBuilder(ValueError("default auth: cannot configure.\nmore lines")))
    bare.setenv("DATABRICKS_HOST", "https://w")
    compute, reason = "serverless compute of https://w", "default auth: cannot configure"
    with raises("DATABRICKS_CONNECT_FAILED", compute=compute, reason=reason):
        session.resolve(say=lambda line: None)


def test_line_is_printed_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    session.to_stderr("Spark: here")
    assert capsys.readouterr() == ("", "Spark: here\n")


def test_remote_that_refuses_connections_is_reported_immediately(bare: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    bare.setenv("SPARK_REMOTE", "sc://localhost:1/;token=secret")
    reason = "failed to connect to all addresses"
    with raises("SPARK_REMOTE_UNREACHABLE", address="sc://localhost:1", reason=reason):
        session.resolve(say=lines.append)
    assert lines == ["Spark: Spark Connect at sc://localhost:1"]


def test_remote_without_client_packages_is_reported_with_the_extra(
    bare: pytest.MonkeyPatch,
) -> None:
    bare.setenv("SPARK_REMOTE", "sc://s:15002")
    bare.setitem(sys.modules, "grpc", None)
    command = "pip install 'tableferry[remote]'"
    with raises("MISSING_PACKAGE_FOR_SPARK_CONNECT", address="sc://s:15002", command=command):
        session.resolve(say=lambda line: None)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_201"', "8"),
        ('openjdk version "25.0.1" 2025-10-21', "25"),
        ("gibberish", "of an unknown version"),
    ],
)
def test_java_version_is_checked(
    bare: pytest.MonkeyPatch, tmp_path: Path, printed: str, expected: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\n")
    java.chmod(0o755)
    bare.setenv("JAVA_HOME", str(tmp_path))
    if expected is None:
        java_process.check_java()
        return
    with raises("JAVA_VERSION_UNSUPPORTED", versions="17 or 21", java=java, version=expected):
        java_process.check_java()


def test_missing_java_is_reported(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", "")
    bare.setenv("PATH", str(tmp_path))
    with raises("JAVA_MISSING", versions="17 or 21", commands=re.compile("apt-get install openjdk-17")):
        java_process.check_java()
    bare.setenv("JAVA_HOME", str(tmp_path))
    with raises("JAVA_NOT_RUNNING", java=tmp_path / "bin" / "java"):
        java_process.check_java()


def test_missing_pyspark_is_reported(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    bare.setattr(metadata, "version", absent)
    command = "pip install 'tableferry[local]'"
    with raises("LOCAL_SPARK_PACKAGE_MISSING", package="pyspark", command=command):
        session.resolve(tmp_path)


@pytest.mark.parametrize(
    ("warehouse", "condition", "parameters"),
    [
        ("s3://bucket/folder", "WAREHOUSE_NOT_LOCAL", {}),
        ("{tmp}/a;b", "WAREHOUSE_PATH_UNSUPPORTED", {"character": "';'"}),
        ("{tmp}/a,b", "WAREHOUSE_PATH_UNSUPPORTED", {"character": "','"}),
        ("{tmp}/file/below", "WAREHOUSE_NOT_CREATED", {"reason": "Not a directory"}),
    ],
)
def test_warehouse_outside_local_folders_is_refused(
    bare: pytest.MonkeyPatch, tmp_path: Path, warehouse: str, condition: str, parameters: Mapping[str, str]
) -> None:
    (tmp_path / "file").touch()
    warehouse = warehouse.format(tmp=tmp_path)
    with raises(condition, warehouse=warehouse, **parameters):
        session.resolve(warehouse, say=lambda line: None)


def test_settings_place_all_files_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / 'blank "quote" \\ schön'
    conf = local_settings.settings(folder)
    assert conf["spark.jars.packages"] == "io.delta:delta-spark_4.1_2.13:4.4.0"
    assert conf["spark.master"] == "local[2]"
    keys = ["spark.sql.warehouse.dir", "spark.local.dir", "spark.hadoop.hive.exec.scratchdir"]
    assert all(conf[key].startswith(str(folder)) for key in keys)
    escaped = f'{tmp_path}/blank \\"quote\\" \\\\ schön'
    assert conf["spark.driver.extraJavaOptions"] == (
        f'"-Dderby.stream.error.file={escaped}/derby.log" "-Djava.io.tmpdir={escaped}/tmp"'
    )


def test_iceberg_and_kafka_are_added_to_delta(tmp_path: Path) -> None:
    conf = local_settings.settings(tmp_path, iceberg=True, kafka=True)
    assert conf["spark.jars.packages"].split(",") == [
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    ]
    assert conf["spark.sql.extensions"].split(",") == [
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    ]
    assert conf["spark.sql.catalog.ice"] == "org.apache.iceberg.spark.SparkCatalog"


HOLD = """
import os, sys
from pathlib import Path
from tableferry.spark import warehouse_lock
warehouse_lock.acquire(Path(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_folder_in_use_is_reported_with_the_process(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    pid = holder.stdout.readline().strip()
    # In a run of all tests, this process already has a session.
    bare.setattr(local_spark, "_active", lambda warehouse, say: None)
    with raises("WAREHOUSE_IN_USE", warehouse=tmp_path, process=pid):
        session.resolve(tmp_path, say=lambda line: None)

    # The lock of a killed process needs no cleanup.
    holder.kill()
    holder.communicate()
    os.close(warehouse_lock.acquire(tmp_path))


@pytest.mark.parametrize(
    ("log", "condition", "cause"),
    [
        (
            "\t\t::::\n\t\t:: UNRESOLVED DEPENDENCIES ::\nException in thread: unresolved dependency",
            "JARS_NOT_DOWNLOADED",
            None,
        ),
        (
            'WARNING: x\nException in thread "main" a.SparkException: Master must be local\n\tat a.b(C)\n',
            "JAVA_ENDED_EARLY",
            'Exception in thread "main" a.SparkException: Master must be local',
        ),
        (
            "a.B\nCaused by: c.DException: outer\nCaused by: e.FError: inner.\n\tat x",
            "JAVA_ENDED_EARLY",
            "e.FError: inner",
        ),
        ("Killed\n", "JAVA_ENDED_EARLY", "Killed"),
        ("", "JAVA_ENDED_EARLY", "no reason given"),
    ],
)
def test_ended_java_is_reported_with_cause_and_log(
    tmp_path: Path, log: str, condition: str, cause: str | None
) -> None:
    file = tmp_path / "spark.log"
    file.write_text(log)
    parameters = {"packages": "io.delta:d:1"} if cause is None else {"cause": cause}
    check(java_process.ended_error(file, "io.delta:d:1"), condition, log=file, **parameters)


def test_derby_in_use_by_another_program_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("ERROR XSDB6: Another instance of Derby may have already booted the database")
    error = java_process.not_open_error(tmp_path, "Unable to instantiate")
    check(error, "METASTORE_IN_USE", metastore=tmp_path / "metastore_db")


@dataclass
class Asked:
    """The settings of a session that define its metastore."""

    settings: dict[str, str]
    answer: Exception | None = None

    @property
    def sparkContext(self) -> Any:
        conf = SimpleNamespace(get=self.settings.get, set=self.settings.__setitem__)
        return SimpleNamespace(_jsc=SimpleNamespace(hadoopConfiguration=lambda: conf))

    @property
    def catalog(self) -> Any:
        def exists(name: str) -> bool:
            if self.answer is not None:
                raise self.answer
            return False

        return SimpleNamespace(tableExists=exists)


def test_commits_are_locked_if_the_metastore_is_a_server() -> None:
    derby, server = Asked({}), Asked({"hive.metastore.uris": "thrift://there:9083"})
    for each in (derby, server):
        local_spark._use_server(cast(Any, each))
    assert derby.settings == {"iceberg.engine.hive.lock-enabled": "false"}
    assert server.settings == {"hive.metastore.uris": "thrift://there:9083"}


def test_metastore_that_is_too_new_is_refused() -> None:
    reason = RuntimeError("HiveException: Unable to fetch table t. Invalid method name: 'get_table'")
    with raises("METASTORE_SERVER_TOO_NEW", address="thrift://there:9083"):
        local_spark._use_server(cast(Any, Asked({"hive.metastore.uris": "thrift://there:9083"}, reason)))
    other = RuntimeError("Connection refused")
    with pytest.raises(RuntimeError, match="refused"):
        local_spark._use_server(cast(Any, Asked({"hive.metastore.uris": "thrift://there:9083"}, other)))
