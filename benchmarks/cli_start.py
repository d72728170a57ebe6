"""Measure the start of the command line: CPU seconds of commands that need neither Spark nor a queue.

python benchmarks/cli_start.py --runs 10
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = ("--version", "--help", "spec check examples/flights", "fleet list --help")

# The same as the script that the wheel installs.
START = ["-c", "import sys; from tableferry.cli import main; sys.exit(main())"]
LOOP = ["-c", "for i in range(10**7): i * 3"]


def cpu_seconds(arguments: Sequence[str], environ: dict[str, str]) -> float:
    """Run Python; return the CPU seconds that it took, of user and system."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT, env=environ)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run each command, and print its least CPU seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=10, help="how often each command runs")
    runs = parser.parse_args().runs
    measured = {"c": LOOP} | {f"tableferry {command}": [*START, *command.split()] for command in COMMANDS}
    least = dict.fromkeys(measured, float("inf"))
    with tempfile.TemporaryDirectory() as compiled:
        environ = os.environ | {"PYTHONPYCACHEPREFIX": compiled}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        # The first run compiles the modules. Then all take turns, so that other load affects all of them.
        for run in range(runs + 1):
            for name, arguments in measured.items():
                seconds = cpu_seconds(arguments, environ)
                least[name] = min(least[name], seconds) if run else least[name]
    machine = f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.machine()}"
    print(f"CPU seconds, the least of {runs} runs ({machine}); c is a loop of 10,000,000 multiplications")
    for name, seconds in least.items():
        print(f"{seconds:6.2f}  {seconds / least['c']:6.2f} c  {name}")


if __name__ == "__main__":
    main()
