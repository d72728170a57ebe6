"""Log the start and the end of each step, and count its progress.

Each log record has the fields of `Task.fields` and the `Task` itself, which a log handler reads to
show the progress of a running step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from tableferry.amounts import duration, size

_logger = logging.getLogger(__name__)

Event = Literal["started", "done", "failed"]


@dataclass(frozen=True)
class Count:
    """Number of finished items, and their total number if it is known."""

    done: int
    total: int | None = None


@dataclass
class Task:
    """A running or finished step, whose counts other threads can read.

    Attributes:
        table: The table that the step works on; empty for several tables.
        worker: The worker that runs the step; empty if there is only one worker.
        counts: The counts so far, by plural noun: ``rows``, ``files``, ``tables``, ``bytes``.
        seconds: The duration of the step; None while it runs.
        refresher: Updates the counts when a display asks for them; None if the step updates them.
    """

    step: str
    table: str = ""
    worker: str = ""
    counts: dict[str, Count] = field(default_factory=dict)
    seconds: float | None = None
    refresher: Callable[[Task], None] | None = None
    _started: float = field(default_factory=time.monotonic)

    def update(self, what: str, done: int, total: int | None = None) -> None:
        """Set the number of finished items of one kind, and their total."""
        # A new dictionary, because another thread may be iterating over the old one.
        self.counts = {**self.counts, what: Count(done, total)}

    def refresh(self) -> None:
        """Update the counts of a running step by calling `refresher`; keep the old counts if that fails."""
        if self.refresher is not None and self.seconds is None:
            try:
                self.refresher(self)
            except Exception as error:
                # An error in the display must not stop the step.
                _logger.debug("%s: its progress can't be read: %s", self.title, error)
                self.refresher = None

    @property
    def elapsed(self) -> float:
        """Seconds since the start; for a finished step its duration."""
        return time.monotonic() - self._started if self.seconds is None else self.seconds

    @property
    def title(self) -> str:
        """The table and the step in one line."""
        return f"{self.table}: {self.step}" if self.table else self.step

    @property
    def counted(self) -> str:
        """The counts in one line: ``1,000 of 5,000 rows, 1.2 MB of 3.4 GB``."""
        return ", ".join(_in_words(what, count) for what, count in self.counts.items())

    def fields(self) -> dict[str, str | int | float]:
        """Return the extra fields of a log record: table, step, worker, seconds and the counts."""
        fields: dict[str, str | int | float] = {"step": self.step}
        fields |= {"table": self.table} if self.table else {}
        fields |= {"worker": self.worker} if self.worker else {}
        fields["seconds"] = round(self.elapsed, 3)
        for what, count in self.counts.items():
            fields[what] = count.done
            if count.total is not None:
                fields[f"{what}_total"] = count.total
        return fields


@contextmanager
def task(
    logger: logging.Logger, step: str, *, table: object = "", worker: str = "", level: int = logging.INFO
) -> Iterator[Task]:
    """Log the start and the end of the ``with`` block, which is one step.

    A failed step is logged as a warning if ``level`` is INFO or higher; the code that catches the exception
    decides whether it is an error.
    """
    running = Task(step, str(table), worker)
    _log(logger, level, "started", running, "started")
    try:
        yield running
    except BaseException as error:
        running.seconds = running.elapsed
        # An exception that stops the whole process, such as Ctrl-C, isn't a failure of the step.
        if isinstance(error, Exception) and level >= logging.INFO:
            level = logging.WARNING
        _log(logger, level, "failed", running, f"failed after {duration(running.seconds)}")
        raise
    running.seconds = running.elapsed
    counted = f", {running.counted}" if running.counted else ""
    _log(logger, level, "done", running, f"done in {duration(running.seconds)}{counted}")


def _log(logger: logging.Logger, level: int, event: Event, running: Task, what: str) -> None:
    who = f" ({running.worker})" if running.worker else ""
    fields = {**running.fields(), "event": event, "task": running}
    if event == "started":
        del fields["seconds"]
    logger.log(level, "%s: %s%s", running.title, what, who, extra=fields)


_SINGULAR = {"batches": "batch"}


def _in_words(what: str, count: Count) -> str:
    if what == "bytes":
        return size(count.done) + (f" of {size(count.total)}" if count.total is not None else "")
    single = (count.total if count.total is not None else count.done) == 1
    noun = _SINGULAR.get(what, what.removesuffix("s")) if single else what
    of = f" of {count.total:,}" if count.total is not None else ""
    return f"{count.done:,}{of} {noun}"
