"""The doctor's report, its command, and the scratch objects that it removes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from tests.conditions import raises
from tests.mail_server import MailServer
from typer.testing import CliRunner

from tableferry import cli
from tableferry.doctor import (
    DoctorOptions,
    Outcome,
    Place,
    Report,
    Result,
    Route,
    as_markdown,
    as_text,
    examine,
)
from tableferry.doctor import check as shape
from tableferry.doctor.check_list import CHECKS
from tableferry.doctor.environment import Environment
from tableferry.doctor.machine_checks import PYTHON_VERSIONS
from tableferry.doctor.report import redact
from tableferry.doctor.run import choose_checks, observe
from tableferry.fleet.queue.opening import open_store
from tableferry.spark import local_spark, warehouse_lock

ROOT = Path(__file__).parents[2]


def result(name: str, outcome: Outcome, seen: str) -> Result:
    remedy = "Install it." if outcome is Outcome.FAILED else ""
    return Result(name, Place.MACHINE, (Route.FLEET,), "It works.", outcome, seen, remedy, 0.1)


REPORT = Report(
    {"tableferry": "0.1"},
    (
        result("java", Outcome.FAILED, "no java"),
        result("python", Outcome.PASSED, "Python 3.12.1"),
        result("jars", Outcome.NOT_APPLICABLE, "a cluster"),
    ),
    (),
)


def test_each_check_states_what_it_proves_and_a_remedy() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        assert check.proves.endswith("."), check.name
        assert check.remedy.endswith("."), check.name
        assert check.routes, check.name


def test_python_versions_are_those_of_the_package() -> None:
    required = ">={}.{},<{}.{}".format(
        *PYTHON_VERSIONS[0], PYTHON_VERSIONS[-1][0], PYTHON_VERSIONS[-1][1] + 1
    )
    assert f'requires-python = "{required}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_text_shows_remedy_of_failed_check_only() -> None:
    lines = list(as_text(REPORT))
    assert [line for line in lines if "Remedy" in line] == [f"{' ' * 18}Remedy: Install it."]
    assert lines[-1] == "3 checks: 1 passed, 1 failed, 1 don't apply."


def test_report_with_left_over_scratch_object_is_not_ok() -> None:
    report = Report({}, (), ("main.tableferry_doctor_scratch_1 (no right)",))
    assert not report.ok
    assert "  main.tableferry_doctor_scratch_1 (no right)" in list(as_text(report))


@pytest.mark.parametrize(
    "private",
    [
        "/home/anna/projects/state",
        "/Users/anna/state",
        "https://adb-123.azuredatabricks.net",
        "anna@example.com",
        "dapi0123456789abcdef",
        "10.20.30.40",
        "word-from-the-environment",
        f"{Path.home()}/bank/warehouse",
        socket.gethostname(),
    ],
)
def test_markdown_has_no_private_names(private: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "word-from-the-environment")
    report = Report({"python": "3.12"}, (result("java", Outcome.FAILED, f"at {private}: denied"),), ())
    assert private.rpartition("//")[2] not in as_markdown(report)
    assert "denied" in as_markdown(report)


def test_markdown_has_the_remedy_of_each_failed_check() -> None:
    lines = as_markdown(REPORT).splitlines()
    assert [line for line in lines if line.startswith("- ")] == ["- java: Install it."]


def test_redaction_keeps_versions_and_volume_paths() -> None:
    text = "Spark 4.1.4, /Volumes/main/bronze/state"
    assert redact(text) == text


def test_unknown_check_is_refused() -> None:
    with raises("CHECK_UNKNOWN", names="jav"):
        choose_checks(["jav", "java"])


def test_checks_of_a_route_are_chosen_in_their_order() -> None:
    chosen = choose_checks([], [Route.FLEET])
    assert chosen == [check for check in CHECKS if Route.FLEET in check.routes]


def test_check_that_needs_a_session_does_not_apply_without_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    # A test before this one may have started a session in this process.
    monkeypatch.setattr(local_spark, "_active", lambda *_: None)
    check = shape.Check(
        "rename",
        Place.WORKSPACE,
        (Route.FLEET,),
        "It works.",
        "None.",
        lambda env: shape.success(str(env.session())),
    )
    with Environment(DoctorOptions(warehouse=tmp_path / "new" / "warehouse")) as env:
        observation = observe(check, env)
    assert observation.outcome is Outcome.NOT_APPLICABLE
    assert observation.seen == "no Spark session (JAVA_NOT_RUNNING): see the check spark-session"
    assert list(tmp_path.iterdir()) == []


def test_existing_warehouse_stays(tmp_path: Path) -> None:
    (tmp_path / "sales").mkdir()
    with Environment(DoctorOptions(warehouse=tmp_path)) as env:
        env.create_warehouse()
    assert list(tmp_path.iterdir()) == [tmp_path / "sales"]


def test_removal_continues_after_an_error_and_reports_it(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no right")

    removed = []
    with Environment(DoctorOptions(warehouse=tmp_path)) as env:
        env._remove_later("first", lambda: removed.append("first"))
        env._remove_later("second", fail)
    assert removed == ["first"]
    assert env.left_over == ["second (no right)"]


def test_command_exits_with_0_or_1_and_prints_each_format() -> None:
    runner = CliRunner()
    python = ["doctor", "--check", "python"]
    text = runner.invoke(cli.app, python)
    assert (text.exit_code, text.stdout.splitlines()[-1]) == (
        0,
        "1 check: 1 passed, 0 failed, 0 don't apply.",
    )
    for option in (["--json"], ["--output", "json"]):
        (found,) = json.loads(runner.invoke(cli.app, [*python, *option]).stdout)["results"]
        assert (found["name"], found["outcome"], found["routes"]) == ("python", "passed", [*Route])
    assert "| python | passed |" in runner.invoke(cli.app, [*python, "--markdown"]).stdout
    assert runner.invoke(cli.app, [*python, "--markdown", "--json"]).exit_code == 2


def test_command_fails_without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    ran = CliRunner().invoke(cli.app, ["doctor", "--check", "java", "--json"])
    assert ran.exit_code == 1
    (found,) = json.loads(ran.stdout)["results"]
    assert "Install Java" in found["remedy"]


def test_queue_and_mail_server_are_reached_without_an_email(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    queue = f"sqlite:///{tmp_path}/fleet.db"
    store = open_store(queue)
    store.create()
    store.close()
    with MailServer() as server:
        monkeypatch.setenv("TABLEFERRY_FLEET_MAIL_HOST", "127.0.0.1")
        monkeypatch.setenv("TABLEFERRY_FLEET_MAIL_PORT", str(server.port))
        report = examine(DoctorOptions(store=queue), names=["queue", "mail-server"])
    assert [found.outcome for found in report.results] == [Outcome.PASSED, Outcome.PASSED], report.results
    assert (server.sessions, server.emails) == (1, [])


def test_queue_that_needs_an_upgrade_fails_with_the_remedy(tmp_path: Path) -> None:
    queue = f"sqlite:///{tmp_path}/fleet.db"
    with create_engine(queue).begin() as connection:
        connection.exec_driver_sql("CREATE TABLE tableferry_queue_version (version_num VARCHAR(32))")
        connection.exec_driver_sql("INSERT INTO tableferry_queue_version VALUES ('0001')")
    (found,) = examine(DoctorOptions(store=queue), names=["queue"]).results
    assert found.outcome is Outcome.FAILED
    assert "fleet init" in found.remedy


def test_doctor_works_without_pyspark_and_java(tmp_path: Path) -> None:
    program = "import sys; sys.modules['pyspark'] = None; from tableferry.cli import main; main()"
    environ = {**os.environ, "JAVA_HOME": str(tmp_path / "nothing")}
    ran = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    outcomes = {found["name"]: found["outcome"] for found in json.loads(ran.stdout)["results"]}
    failed = {name for name, outcome in outcomes.items() if outcome == Outcome.FAILED}
    assert {"java", "spark-session"} <= failed <= {"java", "spark-session", "jars"}
    assert outcomes["rename"] == Outcome.NOT_APPLICABLE
    assert list(tmp_path.iterdir()) == []


def test_warehouse_that_another_process_filled_during_the_checks_stays(tmp_path: Path) -> None:
    table = tmp_path / "new" / "warehouse" / "orders" / "part-0.parquet"
    with Environment(DoctorOptions(warehouse=tmp_path / "new")) as env:
        env.create_warehouse()
        table.parent.mkdir(parents=True)
        table.write_text("rows of another process")
    assert table.exists()
    assert env.left_over == []


def test_warehouse_that_another_process_has_locked_stays(tmp_path: Path) -> None:
    with Environment(DoctorOptions(warehouse=tmp_path / "new")) as env:
        lock = warehouse_lock.acquire(env.create_warehouse())
    os.close(lock)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["metastore.lock"]
