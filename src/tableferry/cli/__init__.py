"""The command line: a command is settings, a session, one library call and a report.

`main` is the wheel's entry point; `root` has the commands, and `groups` decides when a module is imported.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tableferry import __version__

if TYPE_CHECKING:
    from tableferry.cli.live import live_display as live_display
    from tableferry.cli.root import app as app
    from tableferry.report import console as console

# Imported at first use: Typer and rich take longer to import than many commands take to run.
_DEFERRED = {
    "app": "tableferry.cli.root",
    "console": "tableferry.report",
    "live_display": "tableferry.cli.live",
}


def __getattr__(name: str) -> Any:
    if name not in _DEFERRED:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(_DEFERRED[name]), name)


def main() -> None:
    """Run the command line; the entry point of the wheel.

    Returns without SystemExit after success, because Databricks takes any SystemExit of a wheel task for a
    failure.

    Raises:
        SystemExit: With 1 after a failure or refusal, with 2 after a usage error, with 3 if a fleet's mode
            succeeded but paused tables.
    """
    if sys.argv[1:] == ["--version"]:
        # The version needs no command, so it is printed before Typer is imported.
        print(__version__)
        return
    # Garbage collection takes a tenth of a short command's time, and as much at exit, and finds little.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)
    # Pydantic's plugins trace models. To find them, it reads the metadata of all installed packages.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    try:
        import_module(_DEFERRED["app"]).app()
    except SystemExit as exit_:
        if exit_.code:
            raise
