"""Show a command's log on stderr: a live display in a terminal, lines elsewhere."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer

from tableferry import cli
from tableferry.amounts import duration
from tableferry.progress import Task

# A line lists the running steps after this many seconds without output. The clock is read once a second, so
# at most ten seconds pass.
_LONGEST_SILENCE = 8.5
_TICK = 1.0

# The attributes of every record, and the step itself. All others are fields of a step.
_RECORD_ATTRIBUTES = vars(logging.makeLogRecord({})).keys() | {"task", "message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """The format of the log."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def show_logs(*, verbose: bool = False, quiet: bool = False, log_format: LogFormat) -> Iterator[None]:
    """Show the package's log while a command runs: all of it, from level INFO, or warnings only."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    live = log_format is LogFormat.TEXT and not quiet and _may_be_terminal()
    handler = _TerminalDisplay(level, verbose=verbose) if live else LineDisplay(level, log_format)
    if not quiet:
        handler.start()
    package = logging.getLogger("tableferry")
    before = package.level, package.propagate
    package.addHandler(handler)
    # The handler must see every step, also those that it doesn't print. A root handler, which Databricks
    # installs, would print each record again.
    package.setLevel(logging.DEBUG)
    package.propagate = False
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(before[0])
        package.propagate = before[1]
        handler.close()


def _may_be_terminal() -> bool:
    """Return whether rich could find a terminal, without importing rich."""
    forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    return forced or (sys.stderr is not None and sys.stderr.isatty())


class Display(logging.Handler):
    """Tracks the running steps, and refreshes their counts once a second.

    Counts can come from Spark and take long. A separate thread reads them without a lock, so that no output
    waits for them.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.running: tuple[Task, ...] = ()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run_every_second, args=(work,), name=f"tableferry-{name}", daemon=True
            )
            for name, work in (("progress", self.tick), ("counts", self._count))
        ]

    def start(self) -> None:
        """Start the threads that refresh the display and the counts."""
        for thread in self._threads:
            thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Record a step that starts or ends."""
        task: Task | None = getattr(record, "task", None)
        if task is not None:
            others = tuple(running for running in self.running if running is not task)
            self.running = (*others, task) if getattr(record, "event", "") == "started" else others

    def tick(self) -> None:
        """Refresh the display; called once a second."""

    def close(self) -> None:
        """Stop the threads."""
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                # The thread may wait for Spark, whose answer is no longer needed.
                thread.join(_TICK)
        super().close()

    def _count(self) -> None:
        for task in self.running:
            task.refresh()

    def _run_every_second(self, work: Callable[[], None]) -> None:
        while not self._ended.wait(_TICK):
            work()


class LineDisplay(Display):
    """Writes a line for each record, and lists the running steps at least every ten seconds."""

    def __init__(
        self, level: int, log_format: LogFormat, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._shown, self._format, self._clock = level, log_format, clock
        self._last = clock()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record if its level is shown."""
        super().emit(record)
        if record.levelno >= self._shown:
            self._write(_record_json(record) if self._format is LogFormat.JSON else record_text(record))

    def tick(self) -> None:
        """List the running steps if nothing was written recently."""
        if not self.running or self._clock() - self._last < _LONGEST_SILENCE:
            return
        running = self.running
        message = "; ".join(map(_running_text, running))
        if self._format is LogFormat.JSON:
            steps = [task.fields() for task in running]
            self._write(
                _json_line({"level": "INFO", "event": "running", "message": message, "running": steps})
            )
        else:
            self._write(f"{_time_text()} {message}")

    def _write(self, line: str) -> None:
        typer.echo(line, err=True)
        self._last = self._clock()


class _TerminalDisplay(Display):
    """Shows records in a terminal; the first one imports rich, because many commands log nothing."""

    def __init__(self, level: int, *, verbose: bool) -> None:
        super().__init__()
        self._level, self._verbose = level, verbose
        self._display: Display | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record to the display."""
        super().emit(record)
        if self._display is None:
            self._display = cli.live_display(verbose=self._verbose) or LineDisplay(
                self._level, LogFormat.TEXT
            )
        self._display.emit(record)

    def tick(self) -> None:
        """Refresh the display."""
        if self._display is not None:
            self._display.tick()

    def close(self) -> None:
        """Close the display."""
        if self._display is not None:
            self._display.close()
        super().close()


def _running_text(running: Task) -> str:
    return ", ".join(filter(None, (f"{running.title}: {duration(running.elapsed)}", running.counted)))


def record_text(record: logging.LogRecord) -> str:
    """Return a record as text: steps with their time, errors with a prefix."""
    message = record.getMessage()
    if record.levelno >= logging.ERROR:
        return f"Error: {message}"
    return f"{_time_text(record.created)} {message}" if hasattr(record, "event") else message


def _record_json(record: logging.LogRecord) -> str:
    fields = {name: value for name, value in vars(record).items() if name not in _RECORD_ATTRIBUTES}
    return _json_line(
        {"level": record.levelname, "logger": record.name, "message": record.getMessage(), **fields},
        record.created,
    )


def _json_line(fields: dict[str, Any], at: float | None = None) -> str:
    when = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    return json.dumps({"time": when.isoformat(timespec="milliseconds"), **fields}, ensure_ascii=False)


def _time_text(at: float | None = None) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
