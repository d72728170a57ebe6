"""The log records of a step at its start and end, and its counts."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from tableferry.amounts import duration, size
from tableferry.progress import Task, task

LOG = logging.getLogger("tableferry.test")


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tableferry")


def fields(record: logging.LogRecord) -> dict[str, Any]:
    names = ("event", "table", "step", "worker", "rows", "rows_total", "files")
    return {name: value for name in names if (value := getattr(record, name, None)) is not None}


def test_step_logs_start_and_end_with_its_counts(caplog: pytest.LogCaptureFixture) -> None:
    with task(LOG, "copy", table="silver.orders", worker="w1") as running:
        running.update("rows", 5, 9)
        running.update("files", 1)
        running.update("rows", 9, 9)
    start, end = caplog.records
    who = {"table": "silver.orders", "step": "copy", "worker": "w1"}
    assert fields(start) == {"event": "started", **who}
    assert not hasattr(start, "seconds")
    assert start.getMessage() == "silver.orders: copy: started (w1)"
    assert fields(end) == {"event": "done", **who, "rows": 9, "rows_total": 9, "files": 1}
    assert end.seconds == pytest.approx(running.elapsed, abs=0.001)  # type: ignore[attr-defined]
    expected = r"silver.orders: copy: done in [\d.]+ s, 9 of 9 rows, 1 file \(w1\)"
    assert re.fullmatch(expected, end.getMessage())
    assert {start.levelno, end.levelno} == {logging.INFO}


@pytest.mark.parametrize(
    ("error", "level", "logged"),
    [
        (ValueError(), logging.INFO, logging.WARNING),
        (ValueError(), logging.DEBUG, logging.DEBUG),
        (KeyboardInterrupt(), logging.INFO, logging.INFO),
    ],
)
def test_failed_step_logs_with_the_level_of_the_step_and_raises(
    caplog: pytest.LogCaptureFixture, error: BaseException, level: int, logged: int
) -> None:
    with pytest.raises(type(error)), task(LOG, "copy", level=level):
        raise error
    assert [(fields(record)["event"], record.levelno) for record in caplog.records[1:]] == [
        ("failed", logged)
    ]
    assert re.fullmatch(r"copy: failed after [\d.]+ s", caplog.messages[1])


def test_refresh_updates_counts_until_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    counted = iter([1, 2])
    running = Task("copy", refresher=lambda running: running.update("tasks", next(counted), 2))
    for done in (1, 2, 2, 2):
        running.refresh()
        assert running.counts["tasks"].done == done
    assert caplog.messages == ["copy: its progress can't be read: "]
    ended = Task("copy", seconds=1.0, refresher=lambda running: running.update("tasks", 1))
    ended.refresh()
    assert ended.counts == {}


def test_counts_are_formatted_as_text() -> None:
    running = Task("copy")
    for what, *counted in (
        ("rows", 1),
        ("files", 1, 1),
        ("batches", 1),
        ("tables", 0, 2),
        ("bytes", 1_500_000, 3_000_000_000),
    ):
        running.update(str(what), *map(int, counted))
    assert running.counted == "1 row, 1 of 1 file, 1 batch, 0 of 2 tables, 1.5 MB of 3.0 GB"


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 min 0 s"),
        (185, "3 min 5 s"),
        (7440, "2 h 4 min"),
    ],
)
def test_durations(seconds: float, written: str) -> None:
    assert duration(seconds) == written


@pytest.mark.parametrize(
    ("count", "written"),
    [(999, "999 B"), (1000, "1.0 kB"), (5 * 10**9, "5.0 GB"), (2 * 10**15, "2,000.0 TB")],
)
def test_sizes(count: int, written: str) -> None:
    assert size(count) == written
