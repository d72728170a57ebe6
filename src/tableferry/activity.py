"""What runs now: a step logs a line when it starts and when it ends, and counts what it does in between.

Each line is a log record with the fields of `Activity.fields`, and with the `Activity` itself, so that a
handler can show what a step that is still under way has counted so far.
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
    """How many of something are done, of how many, if that is known."""

    done: int
    total: int | None = None


@dataclass
class Activity:
    """A step under way, whose counts another thread may read.

    Attributes:
        table: The table that it's done to; empty where it's several.
        worker: The worker that does it; empty where there is one alone.
        counts: What was counted so far, by its plural: ``rows``, ``files``, ``tables``, ``bytes``.
        seconds: How long it took; None while it runs.
        look: Counts anew, for whoever shows a step that nothing counts by itself.
    """

    step: str
    table: str = ""
    worker: str = ""
    counts: dict[str, Count] = field(default_factory=dict)
    seconds: float | None = None
    look: Callable[[Activity], None] | None = None
    _started: float = field(default_factory=time.monotonic)

    def count(self, what: str, done: int, total: int | None = None) -> None:
        """Say how many are done by now."""
        # A new dictionary, as another thread may be going through the old one.
        self.counts = {**self.counts, what: Count(done, total)}

    def refresh(self) -> None:
        """Count anew where that has to be asked for; what can't be counted now is shown as it was."""
        if self.look is not None and self.seconds is None:
            try:
                self.look(self)
            except Exception as error:
                # A display that fails isn't to end the work that it shows.
                _logger.debug("%s: its progress can't be read: %s", self.title, error)
                self.look = None

    @property
    def elapsed(self) -> float:
        """Seconds since the start, or from the start to the end."""
        return time.monotonic() - self._started if self.seconds is None else self.seconds

    @property
    def title(self) -> str:
        """The table and the step in a line."""
        return f"{self.table}: {self.step}" if self.table else self.step

    @property
    def counted(self) -> str:
        """The counts in a line: ``1,000 of 5,000 rows, 1.2 MB of 3.4 GB``."""
        return ", ".join(_in_words(what, count) for what, count in self.counts.items())

    def fields(self) -> dict[str, str | int | float]:
        """Return table, step, worker, seconds and the counts, as a record of the log carries them."""
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
def activity(
    logger: logging.Logger, step: str, *, table: object = "", worker: str = "", level: int = logging.INFO
) -> Iterator[Activity]:
    """Log the start and the end of what is done inside the ``with``; ``level`` says how much it matters.

    The failure of what matters is a warning, as whoever catches the error decides how bad it is.
    """
    running = Activity(step, str(table), worker)
    _log(logger, level, "started", running, "started")
    try:
        yield running
    except BaseException as error:
        running.seconds = running.elapsed
        # What stops the whole process, such as Ctrl-C, is no failure of the step.
        if isinstance(error, Exception) and level >= logging.INFO:
            level = logging.WARNING
        _log(logger, level, "failed", running, f"failed after {duration(running.seconds)}")
        raise
    running.seconds = running.elapsed
    counted = f", {running.counted}" if running.counted else ""
    _log(logger, level, "done", running, f"done in {duration(running.seconds)}{counted}")


def _log(logger: logging.Logger, level: int, event: Event, running: Activity, what: str) -> None:
    who = f" ({running.worker})" if running.worker else ""
    fields = {**running.fields(), "event": event, "activity": running}
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
