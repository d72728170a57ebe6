"""What a command shows while it works: a live display in a terminal, lines elsewhere; all of it on stderr."""

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
from tableferry.activity import Activity
from tableferry.amounts import duration

# After so many seconds without a line, one says what still runs: less than ten, as the clock is asked once a
# second.
_LONGEST_SILENCE = 8.5
_TICK = 1.0

# What every record has; the others are the fields of a step, but for the step itself.
_RECORD_ATTRIBUTES = vars(logging.makeLogRecord({})).keys() | {"activity", "message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How what happens is written."""

    TEXT = "text"
    JSON = "json"


@contextmanager
def show_logs(*, verbose: bool = False, quiet: bool = False, log_format: LogFormat) -> Iterator[None]:
    """Show what the package logs while a command works: everything, warnings alone, or what is in between."""
    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    live = log_format is LogFormat.TEXT and not quiet and _may_be_terminal()
    handler = _TerminalDisplay(level, verbose=verbose) if live else LineDisplay(level, log_format)
    if not quiet:
        handler.start()
    package = logging.getLogger("tableferry")
    before = package.level, package.propagate
    package.addHandler(handler)
    # The handler has to see each step, whatever it prints. A root handler, as Databricks has one, would print
    # it all again.
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
    """Return False where rich would find no terminal, so that rich isn't imported to find that out."""
    forced = any(os.environ.get(name) for name in ("FORCE_COLOR", "TTY_COMPATIBLE"))
    return forced or (sys.stderr is not None and sys.stderr.isatty())


class Display(logging.Handler):
    """Follows which steps run now, and lets them count anew once a second.

    A step's counts may have to be asked of Spark, which may take long. So a thread of its own asks: it holds
    no lock meanwhile, and nothing that is shown has to wait for it.
    """

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.running: tuple[Activity, ...] = ()
        self._ended = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._run_every_second, args=(work,), name=f"tableferry-{name}", daemon=True
            )
            for name, work in (("progress", self.tick), ("counts", self._count))
        ]

    def start(self) -> None:
        """Start to follow the steps."""
        for thread in self._threads:
            thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take in what starts and ends."""
        activity: Activity | None = getattr(record, "activity", None)
        if activity is not None:
            others = tuple(running for running in self.running if running is not activity)
            self.running = (*others, activity) if getattr(record, "event", "") == "started" else others

    def tick(self) -> None:
        """Do what is to be done once a second."""

    def close(self) -> None:
        """Stop following them."""
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                # It may wait for an answer of Spark's that nobody needs any more.
                thread.join(_TICK)
        super().close()

    def _count(self) -> None:
        for activity in self.running:
            activity.refresh()

    def _run_every_second(self, work: Callable[[], None]) -> None:
        while not self._ended.wait(_TICK):
            work()


class LineDisplay(Display):
    """Writes a line for each record, and says what still runs before there was silence for ten seconds."""

    def __init__(
        self, level: int, log_format: LogFormat, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._shown, self._format, self._clock = level, log_format, clock
        self._last = clock()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if it's to be seen."""
        super().emit(record)
        if record.levelno >= self._shown:
            self._write(_record_json(record) if self._format is LogFormat.JSON else record_text(record))

    def tick(self) -> None:
        """Say what still runs, if nothing was written for a while."""
        if not self.running or self._clock() - self._last < _LONGEST_SILENCE:
            return
        running = self.running
        message = "; ".join(map(_running_text, running))
        if self._format is LogFormat.JSON:
            steps = [activity.fields() for activity in running]
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
        """Hand the record to the display."""
        super().emit(record)
        if self._display is None:
            self._display = cli.live_display(verbose=self._verbose) or LineDisplay(
                self._level, LogFormat.TEXT
            )
        self._display.emit(record)

    def tick(self) -> None:
        """Let the display do what it does once a second."""
        if self._display is not None:
            self._display.tick()

    def close(self) -> None:
        """Take the display away."""
        if self._display is not None:
            self._display.close()
        super().close()


def _running_text(running: Activity) -> str:
    return ", ".join(filter(None, (f"{running.title}: {duration(running.elapsed)}", running.counted)))


def record_text(record: logging.LogRecord) -> str:
    """Write a record for people: what happens with its time, all else as it is."""
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
