"""Pytest plug-in that measures what each test costs: CPU seconds, wall seconds, and its worker.

``python -m pytest -p tests.cpu_seconds`` prints CPU seconds by file and idle seconds by worker. The CPU
seconds include the JVM and every other child process; they are read from Linux's ``/proc``.

TABLEFERRY_CPU_SECONDS names a file that gets a line for each test: CPU seconds, wall seconds, start, worker,
test. TABLEFERRY_FILE_SECONDS names one that gets a line for each test file, such as `tests/seconds.tsv`, by
which `tests/conftest.py` orders the files.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class _Cost:
    """The CPU seconds of a test and its fixtures; times are seconds since the epoch."""

    worker: str = ""
    cpu: float = 0.0
    start: float = field(default=float("inf"))
    stop: float = 0.0


_costs: defaultdict[str, _Cost] = defaultdict(_Cost)
_last = 0.0


def _tree_seconds() -> float:
    """Return the CPU seconds of this process and its descendants, including those that were waited for."""
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
    # Once per test: reading /proc takes ten milliseconds.
    if call.when == "teardown":
        now = _tree_seconds()
        report.user_properties.append(("cpu", now - _last))
        _last = now
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    cost = _costs[report.nodeid]
    cost.cpu += sum(float(str(value)) for name, value in report.user_properties if name == "cpu")
    cost.start = min(cost.start, report.start)
    cost.stop = max(cost.stop, report.stop)
    # xdist adds the node to the report in the controller; without xdist there is one process.
    cost.worker = report.node.gateway.id if hasattr(report, "node") else "main"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    files: defaultdict[str, float] = defaultdict(float)
    for test, cost in _costs.items():
        files[test.partition("::")[0]] += cost.cpu
    terminalreporter.section("CPU seconds")
    terminalreporter.write_line(f"{sum(files.values()):8.1f} all")
    for file, seconds in sorted(files.items(), key=lambda item: -item[1]):
        terminalreporter.write_line(f"{seconds:8.1f} {file}")
    terminalreporter.section("Idle seconds by worker")
    for worker, (busy, idle) in sorted(_idle(_costs).items()):
        terminalreporter.write_line(f"{worker}: busy {busy:.1f}, idle {idle:.1f}")
    if listed := os.environ.get("TABLEFERRY_CPU_SECONDS"):
        Path(listed).write_text(
            "".join(
                f"{cost.cpu:.2f}\t{cost.stop - cost.start:.2f}\t{cost.start:.2f}\t{cost.worker}\t{test}\n"
                for test, cost in sorted(_costs.items(), key=lambda item: -item[1].cpu)
            )
        )
    if listed := os.environ.get("TABLEFERRY_FILE_SECONDS"):
        lines = (
            f"{seconds:.0f}\t{file}\n"
            for file, seconds in sorted(files.items(), key=lambda item: -item[1])
            if seconds >= 1
        )
        Path(listed).write_text("".join(lines))


def _idle(costs: Mapping[str, _Cost]) -> dict[str, tuple[float, float]]:
    """Return each worker's busy and idle seconds between the first test's start and the last test's end."""
    if not costs:
        return {}
    whole = max(cost.stop for cost in costs.values()) - min(cost.start for cost in costs.values())
    busy: defaultdict[str, float] = defaultdict(float)
    for cost in costs.values():
        busy[cost.worker] += cost.stop - cost.start
    return {worker: (seconds, whole - seconds) for worker, seconds in busy.items()}
