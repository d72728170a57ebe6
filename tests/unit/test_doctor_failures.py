"""Each check of the environment fails once: a new check needs a case here."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Row
from tests import doctor_environment
from tests.databricks_pipelines import OLDER, SIGNATURES, Platform
from tests.doctor_environment import HEALTHY, Answer, FakeSession, history, ids
from tests.workspace import FakeWorkspace

from tableferry import storage
from tableferry.doctor import (
    DoctorOptions,
    Outcome,
    Report,
    examine,
    examine_in_pipeline,
    machine_checks,
    pipeline_checks,
    spark_checks,
)
from tableferry.doctor.check import Runs
from tableferry.doctor.check_list import CHECKS
from tableferry.errors import SessionError
from tableferry.spark import session, warehouse_lock

Usage = namedtuple("Usage", "total used free")

DENIED = AnalysisException("[INSUFFICIENT_PERMISSIONS] The user lacks a privilege.")


@dataclass
class Setup:
    """The environment of a case, which the case changes.

    Attributes:
        patch: Replaces functions of the environment.
        folder: An empty folder.
        workspace: A workspace with a login; `on_databricks` also makes its session the one of the checks.
        options: The options of the doctor.
        session: The session; None: the checks start one.
        functions: The functions of a pipeline that runs the checks; None: no pipeline runs them.
    """

    patch: pytest.MonkeyPatch
    folder: Path
    workspace: FakeWorkspace
    options: dict[str, Any] = field(default_factory=dict)
    session: FakeSession | None = None
    functions: Platform | None = None

    def answer(self, answers: Mapping[str, Answer] | None = None, **settings: Any) -> None:
        """Use a session that gives these answers first."""
        healthy = {**doctor_environment.registering(self.workspace), **HEALTHY}
        # The first pattern that matches decides.
        self.session = FakeSession({**(answers or {}), **healthy, **(answers or {})}, **settings)
        self.patch.setattr(spark_checks, "stream_ids", doctor_environment.streamed_ids)

    def on_databricks(self, answers: Mapping[str, Answer] | None = None) -> None:
        """Use a session of a workspace that gives these answers first."""
        self.patch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
        # Apache Spark's module lacks functions of Databricks.
        self.patch.setitem(sys.modules, "pyspark.pipelines", cast("ModuleType", Platform()))
        self.options["catalog"] = "main"
        self.answer(answers)

    def examine(self, *names: str) -> Report:
        if self.functions is not None:
            assert self.session is not None
            return examine_in_pipeline(self.functions, self.session.as_spark, "main.bronze.orders")
        spark = None if self.session is None else self.session.as_spark
        return examine(DoctorOptions(**self.options), names=names, spark=spark)


Case = Callable[[Setup], str]
"""Breaks the environment, and returns a part of what the check reports."""


def old_python(setup: Setup) -> str:
    setup.patch.setattr(sys, "version_info", (3, 9, 7, "final", 0))
    return "Python 3.9.7"


def missing_java(setup: Setup) -> str:
    setup.patch.setenv("JAVA_HOME", str(setup.folder))
    return "doesn't run"


def other_delta(setup: Setup) -> str:
    setup.patch.setattr("tableferry.spark.local_settings.versions", lambda: ("4.1.4", "3.0.0"))
    return "delta-spark 3.0.0; expected delta-spark 4.4.0"


def full_disk(setup: Setup) -> str:
    setup.patch.setattr("shutil.disk_usage", lambda folder: Usage(10, 10, 5 * 10**8))
    return "500.0 MB free"


def read_only_folder(setup: Setup) -> str:
    def write(path: Path, text: str, **_: str) -> None:
        raise PermissionError(13, "Permission denied")

    setup.patch.setattr(Path, "write_text", write)
    return "permission denied"


def locked_metastore(setup: Setup) -> str:
    acquire, attempts = warehouse_lock.acquire, count()

    def acquire_later(folder: Path) -> int:
        if next(attempts) == 0:
            raise SessionError("WAREHOUSE_IN_USE", warehouse=folder, process="4711")
        return acquire(folder)

    setup.patch.setattr(warehouse_lock, "acquire", acquire_later)
    return "in use by process 4711"


def no_session(setup: Setup) -> str:
    def resolve(*_: object, **__: object) -> None:
        raise SessionError("JAVA_ENDED_EARLY", cause="no memory", log="spark.log")

    setup.patch.setattr(session, "resolve", resolve)
    return "no memory"


def no_jars(setup: Setup) -> str:
    setup.patch.setattr(machine_checks, "_downloaded_jars", lambda: ["delta-spark_4.1_2.13-4.4.0.jar"])
    return "missing: iceberg-spark-runtime"


def denied_volume(setup: Setup) -> str:
    setup.options["state"] = setup.workspace.make_volume("main", "bronze", "state") + "/migration"
    setup.workspace.denied = ("/Volumes/main/bronze/state/migration",)
    return "does not have READ VOLUME"


def create_that_replaces(setup: Setup) -> str:
    def create(path: storage.AnyPath, text: str) -> bool:
        storage.write_text(path, text)
        return True

    setup.options["state"] = setup.workspace.make_volume("main", "bronze", "state")
    setup.patch.setattr(storage, "create_text", create)
    return ""


def move_that_loses_files(setup: Setup) -> str:
    setup.options["state"] = setup.workspace.make_volume("main", "bronze", "state")
    setup.patch.setattr(storage, "move", lambda old, new: storage.remove(old))
    return "after a rename"


def history_with_gap(setup: Setup) -> str:
    setup.answer({"^DESCRIBE HISTORY": history(1, 3)})
    return "versions [0, 1, 3]"


def detail_without_id(setup: Setup) -> str:
    setup.answer({"^DESCRIBE DETAIL": [Row(id=None, location="s3://bucket", format="delta")]})
    return "DESCRIBE DETAIL returns"


def newest_version(setup: Setup) -> str:
    setup.answer({"VERSION AS OF 1$": ids(1, 2, 3)})
    return "version 1 has the rows [1, 2, 3]"


def denied_clone(setup: Setup) -> str:
    setup.on_databricks({"DEEP CLONE": DENIED})
    return "lacks a privilege"


def stream_of_all_rows(setup: Setup) -> str:
    setup.answer()
    setup.options["state"] = str(setup.folder / "state")
    setup.patch.setattr(spark_checks, "stream_ids", lambda *_: [1, 2, 3])
    return "rows [1, 2, 3]"


def lost_property(setup: Setup) -> str:
    setup.answer({"^SHOW TBLPROPERTIES": [Row(key="delta.minReaderVersion", value="1")]})
    return "pipelines.reset.allowed is None"


def rename_with_new_id(setup: Setup) -> str:
    details = [Row(id="new", location="s3://bucket", format="delta")]
    setup.answer({"^DESCRIBE DETAIL .*renamed": details})
    return "is new after the rename"


def serverless_without_hive(setup: Setup) -> str:
    setup.on_databricks({"STORED AS PARQUET": AnalysisException("[NOT_SUPPORTED] Hive SerDe tables")})
    return "Hive SerDe tables"


def no_iceberg_catalog(setup: Setup) -> str:
    setup.answer(settings={})
    return "no catalog ice"


def missing_queue(setup: Setup) -> str:
    setup.options["store"] = f"sqlite:///{setup.folder}/fleet.db"
    return "doesn't exist"


def silent_mail_server(setup: Setup) -> str:
    setup.patch.setenv("TABLEFERRY_FLEET_MAIL_HOST", "127.0.0.1")
    setup.patch.setenv("TABLEFERRY_FLEET_MAIL_PORT", "1")
    return "127.0.0.1:1"


def wrong_token(setup: Setup) -> str:
    setup.patch.setenv("DATABRICKS_TOKEN", "expired")
    return "the identity of this process can't be read"


def missing_sdk(setup: Setup) -> str:
    setup.on_databricks()
    setup.patch.setattr("tableferry.doctor.unity_checks._is_installed", lambda name: False)
    return "not installed: databricks.sdk"


def ignored_grant(setup: Setup) -> str:
    setup.on_databricks()
    setup.patch.setattr("tableferry.workspace.patch_json", lambda *_: None)
    return "the privileges are []"


def hidden_table(setup: Setup) -> str:
    setup.on_databricks({r"information_schema\.tables": []})
    return "doesn't list"


def ignored_tag(setup: Setup) -> str:
    setup.on_databricks({r"information_schema\.table_tags": []})
    return "the tags []"


def denied_lineage(setup: Setup) -> str:
    setup.on_databricks({"table_lineage": DENIED})
    return "lacks a privilege"


def without(function: str, argument: str = "") -> Case:
    """Return the case of a pipeline whose runtime lacks a function, or an argument of it."""

    def case(setup: Setup) -> str:
        setup.on_databricks()
        signatures = dict(SIGNATURES)
        if argument:
            parameters = [part.strip() for part in signatures[function].split(",")]
            kept = [part for part in parameters if part.partition("=")[0] != argument]
            signatures[function] = ", ".join(kept)
        else:
            del signatures[function]
        setup.functions = Platform(signatures)
        return f"lacks {argument}" if argument else f"no function {function}"

    return case


def refused_backticks(setup: Setup) -> str:
    setup.on_databricks()
    setup.functions = Platform()
    setup.functions.views["`tableferry-doctor scratch`"] = lambda: None  # type: ignore[assignment, return-value]
    return "defined twice"


def failed_flow(setup: Setup) -> str:
    setup.options["pipeline_id"] = "p1"
    setup.workspace.flow_progress("p1", pipeline_checks.ONCE_FLOW, "COMPLETED", num_output_rows=1)
    setup.workspace.flow_progress("p1", pipeline_checks.LIVE_FLOW, "FAILED")
    return f"{pipeline_checks.LIVE_FLOW} is FAILED"


def events_without_status(setup: Setup) -> str:
    setup.options["pipeline_id"] = "p1"
    setup.workspace.flow_progress("p1", "f_orders", "RUNNING")
    del setup.workspace.events["p1"][0]["details"]["flow_progress"]["status"]
    return "1 of 1 flow_progress events lack"


CASES: Mapping[str, Case] = {
    "python": old_python,
    "java": missing_java,
    "packages": other_delta,
    "disk-space": full_disk,
    "warehouse-folder": read_only_folder,
    "metastore": locked_metastore,
    "spark-session": no_session,
    "jars": no_jars,
    "state-folder": denied_volume,
    "state-put-if-absent": create_that_replaces,
    "state-two-writers": create_that_replaces,
    "state-rename": move_that_loses_files,
    "describe-history": history_with_gap,
    "describe-detail": detail_without_id,
    "pinned-version": newest_version,
    "clone-of-pinned-version": denied_clone,
    "stream-over-clone": stream_of_all_rows,
    "starting-version": stream_of_all_rows,
    "reset-allowed": lost_property,
    "rename": rename_with_new_id,
    "hive-tables": serverless_without_hive,
    "iceberg-tables": no_iceberg_catalog,
    "queue": missing_queue,
    "mail-server": silent_mail_server,
    "workspace-login": wrong_token,
    "dependencies": missing_sdk,
    "grants": ignored_grant,
    "information-schema": hidden_table,
    "tags": ignored_tag,
    "lineage": denied_lineage,
    "create-streaming-table": without("create_streaming_table", "cluster_by_auto"),
    "temporary-view": without("temporary_view", "name"),
    "append-flow": without("append_flow", "once"),
    "auto-cdc-flow": without("create_auto_cdc_flow", "once"),
    "auto-cdc-from-snapshot-flow": without("create_auto_cdc_from_snapshot_flow"),
    "materialized-view": without("materialized_view", "refresh_policy"),
    "event-hook": without("on_event_hook"),
    "quoted-names": refused_backticks,
    "run-once-beside-auto-cdc": failed_flow,
    "event-log": events_without_status,
}


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged_in: FakeWorkspace) -> Setup:
    monkeypatch.chdir(tmp_path)
    return Setup(monkeypatch, tmp_path, logged_in, {"warehouse": tmp_path / "warehouse"})


def test_each_check_has_a_failing_case() -> None:
    assert list(CASES) == [check.name for check in CHECKS]


@pytest.mark.parametrize("name", [check.name for check in CHECKS])
def test_check_fails_with_what_was_seen_and_a_remedy(name: str, setup: Setup) -> None:
    expected = CASES[name](setup)
    report = setup.examine(name)
    (result,) = [result for result in report.results if result.name == name]
    assert result.outcome is Outcome.FAILED, result
    assert expected in result.seen
    assert result.remedy
    assert not report.ok
    assert list(setup.folder.iterdir()) == []
    assert setup.workspace.files == {}


def test_checks_pass_in_a_healthy_workspace(setup: Setup) -> None:
    setup.on_databricks()
    setup.options["pipeline_id"] = "p1"
    # Inside a workspace, volumes are mounted.
    setup.patch.setattr(storage, "path_of", lambda location: setup.folder / "state")
    setup.patch.setattr("tableferry.doctor.environment.volume_of", lambda path: path)
    setup.options["state"] = "/Volumes/main/silver/state"
    for flow in (pipeline_checks.ONCE_FLOW, pipeline_checks.LIVE_FLOW):
        setup.workspace.flow_progress("p1", flow, "COMPLETED", num_output_rows=1)
    report = setup.examine()
    outcomes = {result.name: result.outcome for result in report.results}
    assert report.ok
    applied = {name for name, outcome in outcomes.items() if outcome is Outcome.PASSED}
    of_job = {check.name for check in CHECKS if check.runs is not Runs.ONLY_IN_PIPELINE}
    of_local_spark = {"java", "packages", "warehouse-folder", "metastore", "jars"}
    assert applied == of_job - of_local_spark - {"queue", "mail-server"}
    assert setup.session is not None
    dropped = [text for text in setup.session.statements if text.startswith("DROP SCHEMA")]
    assert len(dropped) == 2


@pytest.mark.parametrize("signatures", [SIGNATURES, OLDER], ids=["pyspark.pipelines", "dlt"])
def test_checks_pass_inside_a_pipeline(signatures: dict[str, str], setup: Setup) -> None:
    setup.on_databricks()
    setup.functions = Platform(signatures)
    report = setup.examine()
    expected = {check.name for check in CHECKS if check.runs is not Runs.ANYWHERE}
    assert {result.name for result in report.results} == expected
    failed = [result.name for result in report.results if result.outcome is not Outcome.PASSED]
    assert failed == ([] if signatures is SIGNATURES else ["event-hook"])
    assert setup.functions.tables.keys() == {pipeline_checks.TARGET}
    assert setup.functions.cdc.keys() == {pipeline_checks.ONCE_FLOW, pipeline_checks.LIVE_FLOW}


def test_refused_describe_detail_inside_a_pipeline_is_no_failure(setup: Setup) -> None:
    setup.on_databricks({"^DESCRIBE DETAIL": AnalysisException("not supported in a pipeline")})
    setup.functions = Platform()
    assert setup.examine().ok


def interrupt(_: str) -> list[Row]:
    raise KeyboardInterrupt


@pytest.mark.parametrize("error", [DENIED, interrupt], ids=["error", "interrupt"])
def test_scratch_schema_is_dropped_after_a_failure(error: Answer, setup: Setup) -> None:
    setup.answer({"^INSERT INTO": error})
    with suppress(KeyboardInterrupt):
        assert not setup.examine("pinned-version").ok
    assert setup.session is not None
    created, dropped = (
        [text.split("`")[1] for text in setup.session.statements if text.startswith(verb)]
        for verb in ("CREATE SCHEMA", "DROP SCHEMA")
    )
    assert created == dropped
    assert created[0].startswith("tableferry_doctor_scratch_")


def test_scratch_objects_that_stay_are_reported(setup: Setup) -> None:
    setup.answer({"^DROP SCHEMA": DENIED})
    report = setup.examine("describe-history")
    assert all(result.outcome is Outcome.PASSED for result in report.results)
    assert not report.ok
    assert "lacks a privilege" in report.left_over[0]


def test_only_scratch_tables_are_touched_in_an_existing_schema(setup: Setup) -> None:
    setup.on_databricks()
    setup.options |= {"schema": "silver", "state": str(setup.folder / "state")}
    assert setup.examine().ok
    assert setup.session is not None
    named = {
        text
        for text in setup.session.statements
        if text.startswith(("CREATE", "DROP", "INSERT", "ALTER")) and "tableferry_doctor_scratch" not in text
    }
    assert named == set()


class Py4JNetworkError(Exception):
    """The error of a call after Java has ended; the real class is recognized by its name."""


def test_checks_after_the_end_of_java_do_not_apply(setup: Setup) -> None:
    setup.answer({"^DESCRIBE DETAIL": Py4JNetworkError("Answer from Java side is empty")})
    report = setup.examine("describe-detail", "rename", "hive-tables")
    assert [result.outcome for result in report.results] == [
        Outcome.FAILED,
        Outcome.NOT_APPLICABLE,
        Outcome.NOT_APPLICABLE,
    ]
    assert "Java process has ended" in report.results[0].seen
