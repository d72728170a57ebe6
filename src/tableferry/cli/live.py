"""Show the running steps of a command in a terminal, with their counts and times."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from tableferry.amounts import duration
from tableferry.cli.logs import Display, record_text


def live_display(*, verbose: bool) -> LiveDisplay | None:
    """Return a display on stderr, or None if stderr isn't a terminal."""
    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    return LiveDisplay(console, verbose=verbose) if console.is_terminal else None


class LiveDisplay(Display):
    """Shows the running steps in a terminal, with their counts.

    Each step disappears when it ends, so that only the command's result stays.
    """

    def __init__(self, console: Console, *, verbose: bool) -> None:
        super().__init__()
        self._console, self._verbose = console, verbose
        self.progress: Progress | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Update the steps, and print the record; lines of steps are printed only with ``--verbose``."""
        super().emit(record)
        is_step = hasattr(record, "event") and record.levelno < logging.WARNING
        if self._verbose or (record.levelno >= logging.INFO and not is_step):
            self._console.print(record_text(record))
        self._redraw()

    def close(self) -> None:
        """Remove the display."""
        self.running = ()
        self._redraw()
        super().close()

    def _redraw(self) -> None:
        if self.progress is None and self.running:
            # If the terminal is too narrow, only the title wraps.
            title = TextColumn("{task.description}", markup=False, table_column=Column())
            counts, elapsed = _Counts(Column(no_wrap=True)), _Elapsed(Column(no_wrap=True))
            columns = (SpinnerColumn(), title, counts, elapsed)
            # Results on stdout must not appear in this display on stderr.
            self.progress = Progress(*columns, console=self._console, transient=True, redirect_stdout=False)
            self.progress.start()
        if self.progress is None:
            return
        tasks = {id(task.fields["task"]): task for task in self.progress.tasks}
        for running in self.running:
            if id(running) not in tasks:
                self.progress.add_task(running.title, total=None, task=running)
        for key in tasks.keys() - {id(running) for running in self.running}:
            self.progress.remove_task(tasks[key].id)
        if not self.running:
            self.progress.stop()
            self.progress = None


class _Counts(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(task.fields["task"].counted, style="progress.percentage")


class _Elapsed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(duration(task.fields["task"].elapsed), style="progress.elapsed")
