"""``tableferry fleet`` commands that fill, list and change the queue, without a JVM."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.fleet_jobs import NOW
from tests.unit.fleet_jobs import job as some_job
from typer.testing import CliRunner, Result

from tableferry import cli, fleet
from tableferry.cli.fleet.options import OpenFleet, redact_password
from tableferry.cli.fleet.reports import next_step_lines
from tableferry.errors import Finding
from tableferry.fleet.jobs.job import Job, OldName, PauseReason, State
from tableferry.fleet.jobs.record import JobRecord
from tableferry.fleet.jobs.waves import Wave, WaveStatus
from tableferry.fleet.modes.results import JobReport, ModeReport, Outcome
from tableferry.fleet.queue.opening import open_store
from tableferry.fleet.queue.selections import everything
from tableferry.fleet.queue.sql import SqlStore
from tableferry.fleet.views.moving import ViewOptions, ViewReport
from tableferry.spark.tables import TableName

ROOT = Path(__file__).parents[2]
STORE = "sqlite:///fleet.db"
COMMANDS = (
    *("init", "add", "list", "show", "pause", "resume", "archive", "status"),
    *("preflight", "preprocess", "communicate", "migrate", "shadow", "revert", "views"),
)
WAVE_COMMANDS = ("add", "start", "pause", "status")


def call(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(cli.app, ["fleet", *arguments])
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    return result


def data(*arguments: str) -> Any:
    return json.loads(call(*arguments, "--output", "json").stdout)


def jobs() -> list[Job]:
    store = open_store(STORE)
    try:
        return list(store.jobs(everything()))
    finally:
        store.close()


def change(name: str, **columns: Any) -> None:
    """Store a job in a state that a mode leaves."""
    store = open_store(STORE)
    (job,) = (job for job in store.jobs(everything()) if job.tbl_name == name)
    if "record" in columns:
        columns["record"] = JobRecord.from_json(columns["record"])
    store.edit(replace(job, **columns), store.now())
    store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a queue of three tables, created by commands."""
    folder = tmp_path_factory.mktemp("fleet")
    settings = f"store: {STORE}\nenvironments:\n  other: {{store: 'sqlite:///o.db'}}\n"
    (folder / "fleet.yml").write_text(settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SPARK_REMOTE", "sc://localhost:1")
        call("init")
        call("add", "sales.orders", "main/sales/lines", "--owner", "A@tea.example")
        call("add", "logs.clicks", "--target-format", "delta", "--probation-gap-days", "3")
    return folder


@pytest.fixture
def queue(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with three tables in the working directory."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    # No command here needs a session.
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:1")
    return tmp_path


def test_every_command_has_help() -> None:
    shown = call("--help").stdout
    for command in COMMANDS:
        assert re.search(rf"(?m)^  {command} ", shown), command
        assert "--store" in call(command, "--help").stdout


def test_views_are_reported_by_their_result(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = TableName(("spark_catalog", "sales", "v"))
    new = TableName(("spark_catalog", "lake", "v"))
    asked: list[ViewOptions] = []
    waits = Finding("VIEW_SOURCES_NOT_MOVED", sources=["sales.t"])
    reports = [
        ViewReport(name, "planned", new, stays=(name,), statement="CREATE VIEW …\nAS …"),
        ViewReport(name, "waiting", finding=waits),
        ViewReport(name, "there", new, loses="spark.sql.ansi.enabled=false"),
    ]

    def move_views(_: object, __: object, options: ViewOptions) -> list[ViewReport]:
        asked.append(options)
        return reports

    monkeypatch.setattr(fleet, "move_views", move_views, raising=False)
    monkeypatch.setattr(OpenFleet, "warehouse", lambda _: None)
    assert call("views", "sales", "crm.v_*", "--partial", "--dry-run").stdout.splitlines() == [
        "spark_catalog.sales.v → spark_catalog.lake.v",
        "  CREATE VIEW …",
        "  AS …",
        "  still reads spark_catalog.sales.v",
        f"spark_catalog.sales.v waiting: {waits.one_line}",
        "spark_catalog.sales.v → spark_catalog.lake.v",
        "  set in readers, because its new catalog doesn't store it: spark.sql.ansi.enabled=false",
        "1 planned, 1 waiting, 1 created before",
        "Waiting views need all their tables to move first: run it again later, or use --partial",
    ]
    assert asked == [ViewOptions(["sales", "crm.v_*"], partial=True, dry_run=True)]
    row = data("views")["views"][1]
    assert (row["outcome"], row["error"]) == ("waiting", waits.one_line)
    assert row["finding"]["condition"] == "VIEW_SOURCES_NOT_MOVED"
    assert row["finding"]["remedy"] == waits.remedy
    reports = [ViewReport(name, "refused", finding=Finding("VIEW_NOT_ONE_QUERY"))]
    call("views", status=1)
    reports = []
    assert "No view reads a table that has moved" in call("views").stdout


def test_every_wave_command_has_help() -> None:
    shown = call("wave", "--help").stdout
    for command in WAVE_COMMANDS:
        assert re.search(rf"(?m)^  {command} ", shown), command
        assert "--store" in call("wave", command, "--help").stdout


def test_wave_is_added_filled_started_and_paused(queue: Path) -> None:
    assert call("wave", "status").stdout == (
        "No wave exists: create one with tableferry fleet wave add WAVE TABLE…\n"
    )
    limits = ["--tables-at-once", "2", "--hours", "22:00-06:00"]
    assert call("wave", "add", "w1", "sales.*", *limits, "--time-zone", "Europe/Berlin").stdout == (
        "The wave w1 is planned (2 tables at once, from 22:00-06:00 (Europe/Berlin), "
        "paused when more than 10 % fail).\n2 tables added to it.\nNext: tableferry fleet wave start w1\n"
    )
    assert {job.tbl_name: job.wave for job in jobs()} == {"orders": "w1", "lines": "w1", "clicks": None}
    change("orders", state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)
    [orders] = data("list", "sales.orders")
    assert (orders["wave"], orders["next"]["mode"]) == ("w1", None)
    assert "waits for the wave w1: tableferry fleet wave start w1" in call("show", "sales.orders").stdout
    started = call("wave", "start", "w1").stdout
    assert started.startswith("The wave w1 is running (2 tables")
    assert started.endswith("Next: tableferry fleet communicate\n")
    assert data("wave", "start", "w1")["started_at"] == data("wave", "status", "w1")[0]["wave"]["started_at"]
    assert [row["next"]["mode"] for row in data("list", "--wave", "w1")] == ["communicate", "preprocess"]
    assert "[WAVE_NOT_FOUND] The wave 'w2' " in call("list", "--wave", "w2", status=1).stderr
    paused = call("wave", "pause", "w1", "--reason", "the month's end").stdout
    assert paused.startswith("The wave w1 is paused: the month's end (")
    [status] = data("wave", "status")
    assert (status["jobs"], status["to_do"], status["wave"]["status"]) == (2, 2, "paused")
    assert re.search(r"w1 +paused: the month's end +2 ", call("wave", "status").stdout)


def test_record_of_a_job_is_shown_as_json(queue: Path) -> None:
    change("orders", record={"failures": 1, "last_error": "x"})
    assert data("show", "sales.orders")["record"] == {"failures": 1, "last_error": "x"}
    assert '{"failures": 1, "last_error": "x"}' in call("show", "sales.orders").stdout


def test_readers_are_listed_with_the_server_reply_and_dropped(queue: Path) -> None:
    refusals = {"level": 1, "recipients": {"bob@tea.example": "550 5.7.1 not allowed"}}
    change("orders", downstream_users=("Bob@tea.example", "eve"), record={"refused_recipients": refusals})
    change("lines", downstream_users=("Bob@tea.example",))
    assert re.findall(r"^(\S+) +(\d) *(.*?) *$", call("readers", "list").stdout, re.MULTILINE) == [
        ("Bob@tea.example", "2", "550 5.7.1 not allowed"),
        ("eve", "1", "-"),
    ]
    [refused] = data("readers", "list", "--refused")
    assert refused["tables"] == ["main.sales.lines", "spark_catalog.sales.orders"]
    assert call("readers", "drop", "bob@tea.example").stdout == (
        "bob@tea.example is dropped from 2 tables.\n"
    )
    left = {job.tbl_name: job.downstream_users for job in jobs()}
    assert left == {"orders": ("eve",), "lines": (), "clicks": ()}
    assert data("readers", "list", "--refused") == []
    assert "No reader matches." in call("readers", "list", "logs.*").stdout
    unknown = call("readers", "drop", "bob@tea.example", status=1).stderr
    assert "[READER_OF_NO_TABLE] bob@tea.example " in unknown


def test_reader_is_found_by_name_and_by_address(queue: Path) -> None:
    settings = queue / "fleet.yml"
    settings.write_text(settings.read_text() + "mail: {domain: tea.example}\n")
    refusals = {"level": 1, "recipients": {"bob@tea.example": "550 5.7.1 not allowed"}}
    change("orders", downstream_users=("bob",), record={"refused_recipients": refusals})
    [bob] = data("readers", "list", "--refused")
    assert (bob["name"], bob["refused"]) == ("bob", "550 5.7.1 not allowed")
    assert data("readers", "drop", "bob@tea.example")["tables"] == ["spark_catalog.sales.orders"]
    assert data("readers", "list") == []


def test_reader_of_a_claimed_table_is_dropped_later(queue: Path) -> None:
    change("orders", downstream_users=("eve",))
    change("clicks", downstream_users=("eve",))
    store = open_store(STORE)
    store.claim(everything(), "worker", now=store.now(), lease=timedelta(hours=1), limit=1)
    store.close()
    [busy] = [job.tbl_name for job in jobs() if job.claimed_by]
    answer = json.loads(call("readers", "drop", "eve", "--output", "json", status=1).stdout)
    assert (len(answer["tables"]), [name.split(".")[-1] for name in answer["busy"]]) == (1, [busy])


@pytest.mark.parametrize(
    ("outcomes", "dry", "code"),
    [
        (("done", "waiting", "planned", "lost"), False, 0),
        (("done", "paused"), False, 3),
        (("failed", "paused"), False, 1),
        (("paused",), True, 0),
    ],
)
def test_exit_code_of_a_run_reports_paused_tables(
    queue: Path, monkeypatch: pytest.MonkeyPatch, outcomes: tuple[Outcome, ...], dry: bool, code: int
) -> None:
    report = ModeReport(tuple(JobReport(some_job(), outcome) for outcome in outcomes))
    monkeypatch.setattr(fleet, "report_nothing_due", lambda *_, **__: report, raising=False)
    call("migrate", *(["--dry-run"] if dry else []), status=code)


def test_run_names_the_wave_that_tables_wait_for() -> None:
    ready: dict[str, Any] = {"state": State.READY, "desired_state": State.WRITES_BLOCKED}
    waiting, free = some_job(**ready, wave="w1"), some_job(**ready)
    assert list(next_step_lines([waiting, free, waiting], {"w1": Wave("w1")})) == [
        "Next: tableferry fleet communicate (1 table)",
        "Next: tableferry fleet wave start w1 (2 tables)",
    ]
    running = {"w1": Wave("w1", WaveStatus.RUNNING)}
    assert list(next_step_lines([waiting, free], running)) == [
        "Next: tableferry fleet communicate (2 tables)"
    ]


def test_limits_of_a_wave_are_changed_and_removed_separately(queue: Path) -> None:
    call("wave", "add", "w1", "--tables-at-once", "2", "--hours", "22:00-06:00")
    call("wave", "add", "w1", "--stop-percent", "25")
    (wave,) = (row["wave"] for row in data("wave", "status"))
    assert (wave["tables_at_once"], wave["hours"]) == (2, "22:00-06:00")
    call("wave", "add", "w1", "--tables-at-once", "0", "--hours", "")
    (wave,) = (row["wave"] for row in data("wave", "status"))
    assert (wave["tables_at_once"], wave["hours"]) == (None, "")
    assert wave["stop_percent"] == 25


def test_number_of_tables_above_the_column_limit_is_refused(queue: Path) -> None:
    refusal = call("wave", "add", "w1", "--tables-at-once", "3000000000", status=2).stderr
    assert "--tables-at-once" in refusal
    assert data("wave", "status") == []


def test_tables_are_added_with_their_wave(queue: Path) -> None:
    message = "[WAVE_NOT_FOUND] The wave 'w1' doesn't exist. Existing waves: none."
    assert message in call("add", "hr.people", "--wave", "w1", status=1).stderr
    assert len(jobs()) == 3
    call("wave", "add", "w1")
    call("add", "hr.people", "sales.orders", "--wave", "w1")
    # A table with a job keeps its wave.
    assert {job.tbl_name: job.wave for job in jobs()} == {
        "orders": None, "lines": None, "clicks": None, "people": "w1",
    }  # fmt: skip


def test_file_sets_the_wave_of_each_table(queue: Path) -> None:
    (queue / "tables.csv").write_text("table,wave\nhr.people,w1\nhr.leave,\nhr.payroll,w2\n")
    assert "[WAVE_NOT_FOUND] The wave 'w1' " in call("add", "--file", "tables.csv", status=1).stderr
    call("wave", "add", "w1")
    assert "[WAVE_NOT_FOUND] The wave 'w2' " in call("add", "--file", "tables.csv", status=1).stderr
    assert len(jobs()) == 3
    call("wave", "add", "w2")
    call("add", "--file", "tables.csv", "--wave", "w2")
    # The file overrides the option of the command.
    assert {job.tbl_name: job.wave for job in jobs()[3:]} == {"people": "w1", "leave": "w2", "payroll": "w2"}


def test_started_tables_stay_in_their_wave(queue: Path) -> None:
    change("orders", state=State.WRITES_BLOCKED, desired_state=State.ICEBERG_READY, in_process=True)
    shown = call("wave", "add", "w1", "sales.*", status=1).stdout
    assert "1 table added to it." in shown
    left = "Not added, because they have started or a worker has them: spark_catalog.sales.orders\n"
    assert left in shown
    # Existing jobs are no error.
    call("wave", "add", "w1", "sales.lines")


def test_wave_with_started_tables_has_no_preflight(queue: Path) -> None:
    call("wave", "add", "w1", "sales.orders")
    change("orders", state=State.WRITES_BLOCKED, desired_state=State.ICEBERG_READY, in_process=True)
    error = call("preflight", "--wave", "w1", status=1).stderr
    assert "[NO_TABLE_OF_WAVE_WAITS] No table of the wave w1 " in error
    assert "[WAVE_NOT_FOUND] The wave 'w2' " in call("preflight", "--wave", "w2", status=1).stderr
    for which in (["--wave", "w2"], []):
        ignored = call("preflight", "--target-format", "delta", *which, status=1).stderr
        assert "[TARGET_FORMAT_WITHOUT_TABLES]" in ignored
    both = call("preflight", "sales.lines", "--wave", "w1", status=1).stderr
    assert "[PREFLIGHT_OF_WAVE_AND_TABLES]" in both


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["start", "w2"],
            "[WAVE_NOT_FOUND] The wave 'w2' doesn't exist. Existing waves: w1.\n"
            "Check the name, or create the wave with tableferry fleet wave add w2.\n",
        ),
        (["pause", "w2"], "[WAVE_NOT_FOUND] The wave 'w2' "),
        (["status", "w2"], "[WAVE_NOT_FOUND] The wave 'w2' "),
        (["add", "a b"], "[WAVE_NAME_INVALID] 'a b' "),
        (["add", "w1", "--hours", "22-6"], "[WAVE_HOURS_INVALID] '22-6' "),
        (["add", "w1", "--time-zone", "Mars"], "[TIME_ZONE_UNKNOWN] The time zone 'Mars' "),
        (["add", "w1", "x.*"], "[JOB_NOT_IN_QUEUE] 'x.*' "),
    ],
)
def test_invalid_wave_is_reported(queue: Path, arguments: list[str], message: str) -> None:
    call("wave", "add", "w1")
    before = data("wave", "status")
    assert message in call("wave", *arguments, status=1).stderr
    assert data("wave", "status") == before


def test_queue_is_created_and_filled_once(queue: Path) -> None:
    assert call("init").stdout == f"The queue is ready: {STORE}\nNext: tableferry fleet add TABLE…\n"
    assert call("add", "sales.orders", "Sales.Refunds").stdout == (
        "Added 1 table; 1 had a job already.\nNext: tableferry fleet preprocess\n"
    )
    by_table = {
        str(job.name): (job.tbl_owners, job.target_format.value, job.probation_gap_days) for job in jobs()
    }
    assert by_table == {
        "spark_catalog.sales.orders": (("A@tea.example",), "iceberg", 14),
        "main.sales.lines": (("A@tea.example",), "iceberg", 14),
        "spark_catalog.logs.clicks": ((), "delta", 3),
        "spark_catalog.sales.refunds": ((), "iceberg", 14),
    }


def test_tables_with_a_job_keep_their_wave_and_are_reported(queue: Path) -> None:
    for wave in ("w1", "w2"):
        call("wave", "add", wave)
    remedy = "tableferry fleet wave add w1 TABLE… changes it."
    assert call("add", "sales.orders", "hr.people", "--wave", "w1").stdout.splitlines()[0] == (
        f"Added 1 table; 1 had a job already, and keeps its wave: {remedy}"
    )
    (queue / "waves.csv").write_text("table,wave\nsales.orders,w1\nhr.people,w2\nhr.leave,\n")
    assert call("add", "--file", "waves.csv").stdout.splitlines()[0] == (
        "Added 1 table; 2 had a job already, and keep their wave: tableferry fleet wave add WAVE TABLE… "
        "changes it."
    )
    assert [job.wave for job in jobs()] == [None, None, None, "w1", None]
    (queue / "none.csv").write_text("table,wave\nsales.orders,\n")
    assert call("add", "--file", "none.csv").stdout == "Added 0 tables; 1 had a job already.\n"


def test_tables_are_read_from_files_and_dry_run_adds_none(queue: Path) -> None:
    (queue / "more.txt").write_text("hr.people\nhr.payroll\n")
    shown = call("add", "--file", "more.txt", "--tables", "hr.leave, hr.people", "--dry-run")
    assert shown.stdout.splitlines() == [
        *("spark_catalog.hr.leave to Iceberg", "spark_catalog.hr.people to Iceberg"),
        *("spark_catalog.hr.payroll to Iceberg", "3 tables would be added, unless they have a job already."),
    ]
    assert len(jobs()) == 3
    done = data("add", "--file", "more.txt", "--set", "initial_gap_days=0")
    assert (done["added"], done["left_out"]) == (2, [])
    assert {job.initial_gap_days for job in jobs() if job.db_name == "hr"} == {0}


def test_target_of_new_tables_is_shown_and_stored(queue: Path) -> None:
    where = ("--set", "target.schema={schema}_lake", "--set", "target.catalog=main")
    shown = call("add", "hr.leave", *where, "--dry-run")
    assert shown.stdout.splitlines()[0] == "spark_catalog.hr.leave to Iceberg, as main.hr_lake.leave"
    assert data("add", "hr.leave", *where)["added"] == 1
    [job] = [job for job in jobs() if job.db_name == "hr"]
    assert (job.target_catalog, job.target_schema, job.old_name) == ("main", "hr_lake", OldName.VIEW)
    [listed] = data("list", "hr.*")
    assert listed["target"] == "main.hr_lake.leave"
    assert "iceberg, main.hr_lake.leave" in " ".join(call("list", "hr.*").stdout.split())


def test_tables_created_by_a_migration_are_left_out_and_reported(queue: Path) -> None:
    change("orders", state=State.WRITES_BLOCKED, desired_state=State.ICEBERG_READY, in_process=True)
    shown = call("add", "sales.orders_hive", "sales.orders_iceberg", "logs.clicks_iceberg")
    assert shown.stdout.startswith("Added 1 table.")
    assert "sales.orders_hive is left out, because a migration of this fleet created it" in shown.stderr
    assert [job.tbl_name for job in jobs()][-1] == "clicks_iceberg"


def test_jobs_are_listed_by_state_pattern_owner_and_pause(queue: Path) -> None:
    change("lines", state=State.READY, desired_state=State.WRITES_BLOCKED, to_be_processed=True)

    def names(*arguments: str) -> list[str]:
        return [row["table"] for row in data("list", *arguments)]

    assert names() == ["spark_catalog.sales.orders", "main.sales.lines", "spark_catalog.logs.clicks"]
    assert names("sales.*") == ["spark_catalog.sales.orders", "main.sales.lines"]
    assert names("main.sales.*", "logs.clicks") == ["main.sales.lines", "spark_catalog.logs.clicks"]
    assert names("--state", "ready") == ["main.sales.lines"]
    assert names("--owner", "a@TEA.example", "--state", "Undefined") == ["spark_catalog.sales.orders"]
    assert names("--paused") == []
    assert len(names("--running")) == 3
    assert names("--limit", "1") == ["spark_catalog.sales.orders"]
    shown = call("list", "--limit", "1").stdout
    assert "orders  Undefined  iceberg  A@tea.example  preprocess: check the table" in shown
    assert shown.endswith("1 of 3 jobs\n")
    assert call("list", "--archived").stdout == "The queue is empty.\n"
    assert call("list", "--paused").stdout == "No job matches.\n"


def test_paused_jobs_are_listed_by_cause_with_one_remedy_each(queue: Path) -> None:
    paused = {"migration_paused": True}
    change("orders", **paused, pause_reason="IS_CSV_TEXT: STORED AS TEXTFILE")
    change("lines", **paused, pause_reason="IS_CSV_TEXT: STORED AS TEXTFILE")
    change("clicks", **paused, pause_reason="EMPTY_TABLE")
    shown = call("list", "--paused").stdout
    text, _, empty = shown.partition("EMPTY_TABLE")
    assert text.startswith("IS_CSV_TEXT: 2 jobs\n  Let its rows be rewritten")
    assert text.count("Then: tableferry fleet resume --rewrite TABLE…") == 1
    assert re.search(r"sales\.orders +Undefined +A@tea\.example +STORED AS TEXTFILE", text)
    assert empty.startswith(
        ": 1 job\n  Drop it, or resume the job when it has rows. Then: tableferry fleet resume TABLE…"
    )
    assert shown.endswith("3 jobs\n")
    assert call("list", "--paused", "--limit", "1").stdout.endswith("1 of 3 jobs\n")


def test_job_is_shown_with_its_history_and_next_action(queue: Path) -> None:
    begins = NOW + timedelta(days=14)
    change(
        "orders",
        state=State.READY,
        desired_state=State.WRITES_BLOCKED,
        to_be_processed=True,
        comm_level1_date=NOW,
    )
    shown = call("show", "sales.orders").stdout
    assert shown.startswith("spark_catalog.sales.orders: Ready → WritesBlocked\n")
    assert f"Next: migrate: block writes to the Hive table, from {begins:%Y-%m-%d %H:%M} UTC on\n" in shown
    assert re.search(r"\n  comm_level1_date +2026-01-15 12:00 UTC\n", shown)
    assert re.search(r"when +state +desired +paused +by", shown)
    details = data("show", "sales.orders")
    assert details["next"] == {
        "mode": "migrate",
        "what": "block writes to the Hive table",
        "when": begins.isoformat(),
    }
    assert [(event["was"], event["state"]) for event in details["events"]][-1] == ("Undefined", "Ready")
    assert details["letters"] == []


def test_name_of_two_jobs_needs_its_catalog(queue: Path) -> None:
    call("add", "main.sales.orders")
    shown = call("show", "sales.orders", status=1).stderr
    assert "[JOB_AMBIGUOUS] 'sales.orders' is the name of 2 jobs: spark_catalog.sales.orders, main." in shown
    assert call("show", "main.sales.orders").stdout.startswith("main.sales.orders: Undefined\n")


def test_commands_use_the_time_of_the_queue(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    then = datetime(2031, 5, 1, 12, tzinfo=UTC)
    monkeypatch.setattr(SqlStore, "now", lambda store: then)
    call("pause", "sales.*")
    assert {job.last_updated_time == then for job in jobs() if job.migration_paused} == {True}


def test_job_is_paused_with_a_reason_and_resumed(queue: Path) -> None:
    change("orders", state=State.ICEBERG_READY, desired_state=State.ICEBERG_PRIMARY, in_process=True)

    paused = call("pause", "sales.*", "--reason", "quarter end")

    assert paused.stdout.splitlines() == [
        "spark_catalog.sales.orders is paused; writes to spark_catalog.sales.orders stay blocked",
        "main.sales.lines is paused",
    ]
    assert {job.pause_reason for job in jobs() if job.migration_paused} == {"PAUSED_BY_USER: quarter end"}
    assert call("pause", "sales.orders").stdout == (
        "spark_catalog.sales.orders is paused already: PAUSED_BY_USER: quarter end\n"
    )
    assert [row["ok"] for row in data("resume", "sales.orders", "logs.clicks")] == [True, True]
    by_table = {job.tbl_name: job for job in jobs()}
    assert (by_table["orders"].migration_paused, by_table["orders"].pause_reason) == (False, "None")
    assert by_table["orders"].pair == (State.ICEBERG_READY, State.ICEBERG_PRIMARY)
    assert by_table["lines"].migration_paused


def test_finding_is_accepted_once(queue: Path) -> None:
    def noted() -> Any:
        [orders] = (job for job in jobs() if job.tbl_name == "orders")
        return orders.record.accept

    change("orders", record={"found": "1f2e"}, migration_paused=True, pause_reason="WRITTEN_LATE: …")
    call("resume", "sales.orders", "--accept")
    assert noted() == "1f2e"
    call("pause", "sales.orders")
    call("resume", "sales.orders")
    assert noted() == ""


def test_resumed_reverted_job_starts_from_the_beginning(queue: Path) -> None:
    change(
        "orders",
        state=State.ICEBERG_DROPPED,
        desired_state=State.ICEBERG_DROPPED,
        migration_paused=True,
        pause_reason=PauseReason.REVERTED.value,
        comm_level1_date=NOW,
    )
    assert call("resume", "sales.orders").stdout == (
        "spark_catalog.sales.orders is resumed: preprocess: check the table, and record its owners, readers "
        "and format\n"
    )
    (orders,) = (job for job in jobs() if job.tbl_name == "orders")
    assert (orders.state, orders.comm_level1_date) == (State.UNDEFINED, None)


def test_job_that_cannot_be_rewritten_does_not_stop_other_jobs(queue: Path) -> None:
    text, begun = PauseReason.IS_CSV_TEXT.value, State.WRITES_BLOCKED
    change("orders", migration_paused=True, pause_reason=text, state=begun, in_process=True)
    change("clicks", migration_paused=True, pause_reason=text)
    shown = call("resume", "sales.orders", "logs.clicks", "--rewrite", status=1)
    assert shown.stdout.startswith("spark_catalog.logs.clicks is resumed")
    assert "spark_catalog.sales.orders is unchanged: [JOB_BEGUN_WITHOUT_REWRITE] " in shown.stderr
    assert [job.tbl_name for job in jobs() if job.migration_paused] == ["orders"]


def test_resumed_job_reports_that_it_waits_for_its_wave(queue: Path) -> None:
    call("wave", "add", "w1", "sales.orders")
    ready = {"state": State.READY, "desired_state": State.WRITES_BLOCKED, "to_be_processed": True}
    change("orders", migration_paused=True, pause_reason="PAUSED_BY_USER", **ready)
    assert "is resumed: waits for the wave w1" in call("resume", "sales.orders").stdout


def test_claimed_job_is_not_changed(queue: Path) -> None:
    store = open_store(STORE)
    store.claim(everything(), "w1", now=store.now(), lease=timedelta(hours=1), limit=1)
    store.close()

    shown = call("pause", "sales.orders", "logs.clicks", status=1)

    assert shown.stdout == "spark_catalog.logs.clicks is paused\n"
    assert "spark_catalog.sales.orders is unchanged: [JOB_CHANGED] " in shown.stderr
    assert "If a worker has the job, wait until its run ends." in shown.stderr


def test_completed_jobs_are_archived(queue: Path) -> None:
    change("orders", state=State.HIVE_DROPPED, desired_state=State.HIVE_DROPPED, comm_level3_date=NOW)
    assert data("archive") == {"archived": 1}
    assert call("archive").stdout.startswith("0 jobs moved to the archive;")
    assert [row["table"] for row in data("list", "--archived")] == ["spark_catalog.sales.orders"]
    assert call("show", "sales.orders").stdout.startswith("spark_catalog.sales.orders: HiveDropped\n")


def test_status_is_printed_and_written(queue: Path) -> None:
    assert "Undefined" in call("status").stdout
    assert data("status")["total"] == 3
    assert call("status", "--html", "fleet.html").stdout == "Wrote fleet.html\n"
    assert (queue / "fleet.html").read_text().startswith("<!doctype html>")
    assert (
        "can't be written (no such file or directory)"
        in call("status", "--html", "nowhere/fleet.html", status=1).stderr
    )
    assert "leave out --html" in call("status", "--watch", "--html", "x", status=2).stderr


def test_queue_is_set_by_flag_section_and_variable(queue: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call("init", "--env", "other").stdout.startswith("The queue is ready: sqlite:///o.db")
    assert data("list", "--env", "other") == []
    assert len(data("list", "--env", "other", "--store", STORE)) == 3
    monkeypatch.setenv("TABLEFERRY_FLEET_STORE", "sqlite:///o.db")
    assert data("list") == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add"], "[NO_TABLE_TO_ADD]"),
        (["add", "orders"], "[TABLE_NAME_WITHOUT_SCHEMA] 'orders' "),
        (["add", "a.b", "--set", "target=delta"], "--set target: unknown: did you mean target_format?"),
        (["add", "a.b", "--set", "target_format"], "Write --set NAME=VALUE."),
        (["add", "sales.*"], "SPARK_REMOTE"),
        (["preprocess"], "SPARK_REMOTE"),
        (["preflight"], "SPARK_REMOTE"),
        (["show", "sales.nothing"], "[JOB_NOT_FOUND] 'sales.nothing' "),
        (["pause", "x.*"], "[JOB_NOT_IN_QUEUE] 'x.*' "),
        (["resume"], "[NO_TABLE_NAMED]"),
        (["list", "--settings", "none.yml"], "none.yml: can't be read (no such file or directory)"),
        (["list", "--env", "prod"], "fleet.yml: environments: has no 'prod'"),
        (["list", "--store", "orders"], "[QUEUE_ADDRESS_INVALID] 'orders' "),
        (["init", "--store", "sqlite://"], "[QUEUE_IN_MEMORY] sqlite:// "),
        (
            ["init", "--store", "sqlite:///fleet.yml/a/f.db"],
            "[QUEUE_FOLDER_NOT_CREATABLE] The folder of fleet.yml/a/f.db ",
        ),
        (
            ["communicate", "--dry-run", "--folder", "fleet.yml"],
            "[NOTIFICATION_FOLDER_NOT_CREATABLE] fleet.yml can't be created (File exists).",
        ),
    ],
)
def test_invalid_command_is_reported_with_a_remedy(queue: Path, arguments: list[str], message: str) -> None:
    assert message in call(*arguments, status=1).stderr


@pytest.mark.parametrize("catalog", ["", " ", "a.b", "x*", "a/b"])
@pytest.mark.parametrize("command", ["add", "preflight"])
def test_invalid_catalog_is_a_usage_error(queue: Path, command: str, catalog: str) -> None:
    assert "isn't the name of a catalog" in call(command, "s.t", "--catalog", catalog, status=2).stderr


@pytest.mark.parametrize("worker", ["0/4", "5/4", "1", "a/b", f"1/{10**30}"])
def test_invalid_worker_is_a_usage_error(queue: Path, worker: str) -> None:
    assert "--worker" in call("migrate", "--worker", worker, status=2).stderr


@pytest.mark.parametrize("arguments", [["migrate", "--dryrun", "no"], ["preprocess", "--batch-size", "0"]])
def test_invalid_parameter_is_a_usage_error(queue: Path, arguments: list[str]) -> None:
    call(*arguments, status=2)


def commands_of_jobs() -> list[list[str]]:
    """The command lines of the bundle's jobs, with a value for each reference."""
    values = {
        "${var.fleet_store}": "orders",
        "${workspace.file_path}": str(ROOT),
        "{{job.parameters.env}}": "prod",
        "{{job.parameters.batch_size}}": "5000",
        "{{job.parameters.dry_run}}": "false",
        "{{job.parameters.tables}}": "",
        "{{job.parameters.query}}": "",
        "{{job.parameters.wave}}": "w1",
        "{{job.parameters.action}}": "start",
        "{{input}}": "2/2",
    }
    commands = []
    for path in sorted((ROOT / "resources").glob("fleet_*.job.yml")):
        for job in yaml.safe_load(path.read_text("utf-8"))["resources"]["jobs"].values():
            for task in job["tasks"]:
                wheel = task.get("for_each_task", {}).get("task", task)["python_wheel_task"]
                arguments = [str(parameter) for parameter in wheel["parameters"]]
                for reference, value in values.items():
                    arguments = [word.replace(reference, value) for word in arguments]
                commands.append(arguments)
    return commands


@pytest.mark.parametrize("arguments", commands_of_jobs(), ids=lambda arguments: arguments[1])
def test_commands_of_the_bundle_jobs_are_parsed(tmp_path: Path, arguments: list[str]) -> None:
    assert not [word for word in arguments if "{" in word]
    # The command fails at the missing queue.
    output = call(*arguments[1:], status=1).stderr
    assert "[QUEUE_ADDRESS_INVALID] 'orders' " in output


def test_password_in_the_address_is_not_shown() -> None:
    assert redact_password("mysql://u:p@ss@host/db") == "mysql://u:***@host/db"
    assert redact_password("mysql://u@host/db") == "mysql://u@host/db"
    options = "postgresql://u@host/db?sslmode=require&password="
    assert redact_password(f"{options}geheim&a=b") == f"{options}***&a=b"


@pytest.mark.parametrize("error", [KeyError("uid not found: 1000"), OSError("No username set")])
def test_user_without_a_name_pauses_a_job(
    queue: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A container can run under any user number."""

    def without_name() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", without_name)
    call("pause", "sales.orders")
    (event,) = data("show", "sales.orders")["events"]
    assert event["worker"] == f"uid {os.getuid()}"


def test_owner_without_an_address_is_left_out(queue: Path) -> None:
    (job,) = data("add", "sales.new", "--dry-run", "--owner", "", "--owner", " a@b ", "--user", "")["jobs"]
    assert (job["tbl_owners"], job["downstream_users"]) == (["a@b"], [])


@pytest.mark.parametrize("mode", ["preprocess", "communicate", "migrate", "shadow", "revert"])
def test_mode_without_queue_reports_it_and_succeeds(tmp_path: Path, mode: str) -> None:
    """A schedule may start a mode before the first table is added."""
    store = f"sqlite:///{tmp_path}/missing.db"
    assert call(mode, "--store", store).stdout == (
        f"There is no queue at {store}. Nothing to do. Create it with `tableferry fleet init`, or name the "
        "right one with --store.\n"
    )
    written = data(mode, "--store", store)
    assert (written["jobs"], written["missingQueue"]["condition"]) == ([], "QUEUE_NOT_FOUND")


def test_commands_that_need_a_queue_fail_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = f"sqlite:///{tmp_path}/missing.db"
    for command in (["list"], ["revert", "sales.orders"], ["wave", "status"]):
        assert "[QUEUE_NOT_FOUND]" in call(*command, "--store", store, status=1).stderr
    # A relative name depends on the folder, so it may be the wrong one.
    assert "[QUEUE_NOT_FOUND_IN_FOLDER]" in call("migrate", "--store", "sqlite:///no.db", status=1).stderr
