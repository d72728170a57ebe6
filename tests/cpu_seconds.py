"""A pytest plug-in that sums the CPU seconds of each test: its process, the JVM and whatever else it started.

``python -m pytest -p tests.cpu_seconds`` prints the sums by file, and all tests into the file that
TABLEFERRY_CPU_SECONDS names, if it does. It reads Linux's ``/proc``.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

_seconds: defaultdict[str, float] = defaultdict(float)
_last = 0.0


def _tree_seconds() -> float:
    """The CPU seconds of this process and all below it, with those that have ended and were waited for."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11:15]))
    tree = {os.getpid()}
    while children := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= children
    return sum(ticks[pid] for pid in tree) / os.sysconf("SC_CLK_TCK")


def pytest_runtest_logstart() -> None:
    global _last
    _last = _last or _tree_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    global _last
    report = yield
    # Once a test: a look at all processes takes ten milliseconds.
    if call.when == "teardown":
        now = _tree_seconds()
        report.user_properties.append(("cpu", now - _last))
        _last = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += sum(
        float(str(value)) for name, value in report.user_properties if name == "cpu"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: defaultdict[str, float] = defaultdict(float)
    for test, seconds in _seconds.items():
        files[test.partition("::")[0]] += seconds
    terminalreporter.section("CPU seconds")
    terminalreporter.write_line(f"{sum(files.values()):8.1f} all")
    for file, seconds in _descending(files):
        terminalreporter.write_line(f"{seconds:8.1f} {file}")
    if listed := os.environ.get("TABLEFERRY_CPU_SECONDS"):
        Path(listed).write_text(
            "".join(f"{seconds:.2f}\t{test}\n" for test, seconds in _descending(_seconds))
        )


def _descending(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])
