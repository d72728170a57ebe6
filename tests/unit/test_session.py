from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from tableferry import workspace
from tableferry.errors import SessionError
from tableferry.spark import local_spark, session
from tableferry.spark.session import Choice, choose

NO_PROFILE = {"DATABRICKS_CONFIG_FILE": "/nowhere/databrickscfg"}


@pytest.mark.parametrize(
    ("environ", "databricks_connect", "expected"),
    [
        pytest.param({}, False, Choice("local"), id="nothing is set"),
        pytest.param({}, True, Choice("local"), id="a client alone says nothing"),
        pytest.param(
            {"DATABRICKS_HOST": "https://w"}, False, Choice("local"), id="a workspace, and no client for it"
        ),
        pytest.param(
            {"DATABRICKS_RUNTIME_VERSION": "17.3", "DATABRICKS_HOST": "https://w", "SPARK_REMOTE": "sc://s"},
            True,
            Choice("runtime", "17.3"),
            id="a runtime beats all",
        ),
        pytest.param(
            {"DATABRICKS_HOST": "https://w", "SPARK_REMOTE": "sc://s"},
            True,
            Choice("databricks-connect", "serverless compute of https://w", serverless=True),
            id="a workspace beats a remote, and is serverless without a cluster",
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
            id="serverless by name needs no asking",
        ),
        pytest.param({"SPARK_REMOTE": "sc://s:15002"}, True, Choice("remote", "sc://s:15002"), id="a remote"),
        pytest.param(
            {"SPARK_REMOTE": "sc://s:15002/;token=secret"},
            False,
            Choice("remote", "sc://s:15002"),
            id="a remote's token is not said",
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


def test_an_unreadable_profile_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "databrickscfg"
    file.write_text("host = https://w\n")
    with pytest.raises(SessionError, match=r"databrickscfg can't be read .*: fix it"):
        choose({"DATABRICKS_CONFIG_FILE": str(file)}, databricks_connect=True)


class FakeBuilder:
    """Stands in for databricks-connect's, which can't share an environment with pyspark."""

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
    """An environment in which nothing says where Spark is."""
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


def test_a_refusal_of_databricks_connect_is_one_sentence(bare: pytest.MonkeyPatch) -> None:
    install(bare, FakeBuilder(ValueError("default auth: cannot configure.\nmore lines")))
    bare.setenv("DATABRICKS_HOST", "https://w")
    with pytest.raises(SessionError) as refusal:
        session.resolve(say=lambda line: None)
    assert str(refusal.value).startswith(
        "Databricks Connect gives no session on serverless compute of https://w (default auth: cannot "
        "configure): check DATABRICKS_HOST"
    )
    assert "\n" not in str(refusal.value)


def test_the_line_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    session.to_stderr("Spark: here")
    assert capsys.readouterr() == ("", "Spark: here\n")


def test_a_remote_where_nobody_listens_is_reported_at_once(bare: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    bare.setenv("SPARK_REMOTE", "sc://localhost:1/;token=secret")
    with pytest.raises(SessionError) as refusal:
        session.resolve(say=lines.append)
    assert lines == ["Spark: Spark Connect at sc://localhost:1"]
    assert str(refusal.value) == (
        "no Spark Connect server answers at sc://localhost:1, which is what SPARK_REMOTE says (failed to "
        "connect to all addresses): start it, or unset SPARK_REMOTE to work locally"
    )


def test_a_remote_without_the_client_s_packages_says_what_to_install(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("SPARK_REMOTE", "sc://s:15002")
    bare.setitem(sys.modules, "grpc", None)
    with pytest.raises(SessionError) as refusal:
        session.resolve(say=lambda line: None)
    assert str(refusal.value).startswith(
        "SPARK_REMOTE is sc://s:15002, and Spark Connect's client isn't complete"
    )
    assert str(refusal.value).endswith(
        "pip install 'tableferry[remote]', or unset SPARK_REMOTE to work locally"
    )


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('NOTE: Picked up JDK_JAVA_OPTIONS: -Xmx1g\nopenjdk version "21" 2023-09-19', None),
        ('java version "1.8.0_201"', "is Java 8"),
        ('openjdk version "25.0.1" 2025-10-21', "is Java 25"),
        ("gibberish", "is Java of an unknown version"),
    ],
)
def test_java_of_a_version(
    bare: pytest.MonkeyPatch, tmp_path: Path, printed: str, expected: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{printed}\nEND\n")
    java.chmod(0o755)
    bare.setenv("JAVA_HOME", str(tmp_path))
    if expected is None:
        local_spark.check_java()
        return
    with pytest.raises(
        SessionError, match=rf"^local Spark needs Java 17 or 21, and .*{expected}: install it"
    ):
        local_spark.check_java()


def test_no_java(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare.setenv("JAVA_HOME", "")
    bare.setenv("PATH", str(tmp_path))
    with pytest.raises(SessionError, match="there is no java on PATH: install it"):
        local_spark.check_java()
    bare.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SessionError, match="doesn't run: install it"):
        local_spark.check_java()


def test_no_pyspark(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    bare.setattr(metadata, "version", absent)
    with pytest.raises(SessionError, match=r"local Spark needs the package pyspark: pip install .tableferry"):
        session.resolve(tmp_path)


@pytest.mark.parametrize(
    ("warehouse", "message"),
    [
        ("s3://bucket/folder", "the warehouse s3://bucket/folder isn't a local folder"),
        ("{tmp}/a;b", "has ';' in its path: give another --warehouse"),
        ("{tmp}/a,b", "has ',' in its path: give another --warehouse"),
        ("{tmp}/file/below", "can't be made (Not a directory): give another --warehouse"),
    ],
)
def test_a_warehouse_that_cannot_be(
    bare: pytest.MonkeyPatch, tmp_path: Path, warehouse: str, message: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SessionError) as refusal:
        session.resolve(warehouse.format(tmp=tmp_path), say=lambda line: None)
    assert message in str(refusal.value)


def test_settings_keep_everything_under_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / 'blank "quote" \\ schön'
    conf = local_spark.settings(folder, "4.1.4", "4.4.0")
    assert conf["spark.jars.packages"] == "io.delta:delta-spark_4.1_2.13:4.4.0"
    assert conf["spark.master"] == "local[2]"
    keys = ["spark.sql.warehouse.dir", "spark.local.dir", "spark.hadoop.hive.exec.scratchdir"]
    assert all(conf[key].startswith(str(folder)) for key in keys)
    escaped = f'{tmp_path}/blank \\"quote\\" \\\\ schön'
    assert conf["spark.driver.extraJavaOptions"] == (
        f'"-Dderby.stream.error.file={escaped}/derby.log" "-Djava.io.tmpdir={escaped}/tmp"'
    )


HOLD = """
import os, sys
from pathlib import Path
from tableferry.spark import local_spark
local_spark._lock(Path(sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_folder_in_use_names_the_process(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    pid = holder.stdout.readline().strip()
    # In a run of all tests this process has a session of its own.
    bare.setattr(local_spark, "_active", lambda warehouse, say: None)
    with pytest.raises(SessionError) as refusal:
        session.resolve(tmp_path, say=lambda line: None)
    expected = (
        f"{tmp_path} is in use by process {pid}: wait for its end if it's a run of yours, or give another "
        "--warehouse (tables by a Hive metastore that is a server are seen from any)"
    )
    assert str(refusal.value) == expected

    # A killed holder leaves nothing that has to be cleared away.
    holder.kill()
    holder.communicate()
    os.close(local_spark._lock(tmp_path))


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "\t\t::::\n\t\t:: UNRESOLVED DEPENDENCIES ::\nException in thread: unresolved dependency",
            "the jar io.delta:d:1 couldn't be fetched: it comes from Maven with the first start",
        ),
        (
            'WARNING: x\nException in thread "main" a.SparkException: Master must be local\n\tat a.b(C)\n',
            'ended before it was ready (Exception in thread "main" a.SparkException: Master must be local)',
        ),
        ("a.B\nCaused by: c.DException: outer\nCaused by: e.FError: inner.\n\tat x", "(e.FError: inner)"),
        ("Killed\n", "(Killed)"),
        ("", "(no reason given)"),
    ],
)
def test_why_java_ended(tmp_path: Path, log: str, message: str) -> None:
    file = tmp_path / "spark.log"
    file.write_text(log)
    text = str(local_spark._why(file, "io.delta:d:1"))
    assert message in text
    assert str(file) in text


def test_derby_in_use_by_another_program(tmp_path: Path) -> None:
    file = tmp_path / "spark.log"
    file.write_text("ERROR XSDB6: Another instance of Derby may have already booted the database")
    text = str(local_spark._why_not_open(tmp_path, file, "Unable to instantiate"))
    assert (
        text == f"{tmp_path}/metastore_db is in use by another program: stop it, or give another --warehouse"
    )


@dataclass
class Asked:
    """What of a session says which metastore it has."""

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


def test_commits_are_locked_where_the_metastore_is_a_server() -> None:
    derby, server = Asked({}), Asked({"hive.metastore.uris": "thrift://there:9083"})
    for each in (derby, server):
        local_spark._use_server(cast(Any, each))
    assert derby.settings == {"iceberg.engine.hive.lock-enabled": "false"}
    assert server.settings == {"hive.metastore.uris": "thrift://there:9083"}


def test_a_metastore_that_is_too_new() -> None:
    reason = RuntimeError("HiveException: Unable to fetch table t. Invalid method name: 'get_table'")
    with pytest.raises(SessionError, match=r"thrift://there:9083 is too new: .* Hive 3\.1"):
        local_spark._use_server(cast(Any, Asked({"hive.metastore.uris": "thrift://there:9083"}, reason)))
    other = RuntimeError("Connection refused")
    with pytest.raises(RuntimeError, match="refused"):
        local_spark._use_server(cast(Any, Asked({"hive.metastore.uris": "thrift://there:9083"}, other)))
