"""The log of a command on stderr: as text, as JSON, verbose and quiet."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from tableferry import cli
from tableferry.cli.live import LiveDisplay
from tableferry.cli.logs import LineDisplay, LogFormat
from tableferry.progress import Task, task

LOG = logging.getLogger("tableferry.test")
TIME = re.compile(r"^\d\d:\d\d:\d\d ")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for table in ("a", "b"):
        (tmp_path / "lake" / table).mkdir(parents=True)
        pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "lake" / table / "1.parquet")
    return tmp_path / "lake"


def convert(lake: Path, *options: str) -> Result:
    return CliRunner().invoke(cli.app, ["convert", str(lake), "-r", "--output", "json", *options])


def test_steps_are_logged_with_time_and_stdout_has_only_the_result(lake: Path) -> None:
    done = convert(lake)
    assert json.loads(done.stdout)["ok"]
    lines = done.stderr.splitlines()
    assert all(TIME.match(line) for line in lines)
    messages = [TIME.sub("", line) for line in lines]
    assert messages[0] == "convert: started"
    assert f"{lake}/a: read the files' footers: started" in messages
    assert f"[1/2] {lake}/a: converted" in messages
    assert re.fullmatch(r"convert: done in .* s, 2 of 2 tables", messages[-1])


def test_each_json_line_is_an_object(lake: Path) -> None:
    objects = [json.loads(line) for line in convert(lake, "--log-format", "json").stderr.splitlines()]
    assert all({"time", "level", "logger", "message"} <= record.keys() for record in objects)
    [end] = [record for record in objects if record.get("step") == "convert" and record["event"] == "done"]
    assert (end["tables"], end["tables_total"], end["level"]) == (2, 2, "INFO")
    assert end["seconds"] >= 0
    tables = [record["table"] for record in objects if record.get("event") == "table"]
    assert tables == [f"{lake}/a", f"{lake}/b"]


def test_error_is_a_json_object_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TABLEFERRY_LOG_FORMAT", "json")
    result = CliRunner().invoke(cli.app, ["convert", "undo", str(tmp_path)])
    [error] = map(json.loads, result.stderr.splitlines())
    assert (result.exit_code, error["level"]) == (1, "ERROR")
    assert error["message"].startswith(f"[NOT_A_DELTA_TABLE] {tmp_path} ")
    monkeypatch.setenv("TABLEFERRY_LOG_FORMAT", "text")
    result = CliRunner().invoke(cli.app, ["convert", "undo", str(tmp_path)])
    assert result.stderr == f"Error: {error['message']}\n"


def test_quiet_and_verbose_select_the_logged_levels(lake: Path) -> None:
    assert convert(lake, "--quiet").stderr == ""
    stderr = convert(lake, "-v").stderr
    assert "search for tables: started" in stderr
    assert "search for tables" not in convert(lake).stderr
    both = convert(lake, "-v", "-q")
    assert both.exit_code == 2
    assert "exclude each other" in both.stderr


def test_logger_is_restored_after_a_command() -> None:
    package = logging.getLogger("tableferry")
    before = (package.level, package.propagate, list(package.handlers))
    CliRunner().invoke(cli.app, ["spec", "schema", "-v"])
    assert (package.level, package.propagate, list(package.handlers)) == before


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_running_steps_are_listed_within_ten_seconds(
    log_format: LogFormat, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    lines = LineDisplay(logging.INFO, log_format, clock=clock)  # Otherwise a thread reads the clock.
    monkeypatch.setattr(LOG, "handlers", [lines])
    monkeypatch.setattr(LOG, "propagate", False)
    LOG.setLevel(logging.DEBUG)
    lines.tick()
    with task(LOG, "migrate"), task(LOG, "compare", table="t", level=logging.DEBUG) as compare:
        compare.update("rows", 5, 10)
        capsys.readouterr()
        for now in range(1, 20):
            clock.now = float(now)
            lines.tick()
    printed = capsys.readouterr().err.splitlines()[:-1]
    assert len(printed) == 2
    if log_format is LogFormat.TEXT:
        assert TIME.sub("", printed[0]) == "migrate: 0.0 s; t: compare: 0.0 s, 5 of 10 rows"
        return
    still = json.loads(printed[0])
    assert (still["event"], [step["step"] for step in still["running"]]) == (
        "running",
        ["migrate", "compare"],
    )
    assert still["running"][1]["rows_total"] == 10


def test_slow_count_does_not_delay_lines(capsys: pytest.CaptureFixture[str]) -> None:
    asked, answered = threading.Event(), threading.Event()

    def look(running: Task) -> None:
        asked.set()
        assert answered.wait(60)

    clock = Clock()
    lines = LineDisplay(logging.INFO, LogFormat.TEXT, clock=clock)
    lines.running = (Task("copy", refresher=look),)
    lines.start()
    assert asked.wait(60)
    clock.now = 10.0
    lines.tick()
    assert "copy: " in capsys.readouterr().err
    answered.set()
    lines.close()


def shown_live(console: Console, monkeypatch: pytest.MonkeyPatch) -> LiveDisplay:
    """Return a terminal's display that receives all log records."""
    display = LiveDisplay(console, verbose=False)
    monkeypatch.setattr(LOG, "handlers", [display])
    monkeypatch.setattr(LOG, "propagate", False)
    LOG.setLevel(logging.DEBUG)
    return display


def test_terminal_shows_running_steps_and_removes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    display = shown_live(console, monkeypatch)
    progress: Any = None
    with task(LOG, "migrate"), task(LOG, "compare [red]", table="t") as compare:
        compare.update("rows", 5, 10)
        progress = display.progress
        assert [task.description for task in progress.tasks] == ["migrate", "t: compare [red]"]
        [counts] = [column for column in progress.columns if type(column).__name__ == "_Counts"]
        assert [counts.render(task).plain for task in progress.tasks] == ["", "5 of 10 rows"]
        LOG.info("a note")
        LOG.debug("a detail")
    assert display.progress is None
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a note" in written
    assert "a detail" not in written
    assert "done in" not in written


def test_narrow_terminal_wraps_only_the_title(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    display = shown_live(console, monkeypatch)
    with task(LOG, "compare the rows of one table and of another", table="main.sales.t") as compare:
        compare.update("rows", 5, 10)
        assert display.progress is not None
        seen = Console(file=io.StringIO(), width=60)
        seen.print(display.progress)
    assert "5 of 10 rows" in seen.file.getvalue()  # type: ignore[attr-defined]
