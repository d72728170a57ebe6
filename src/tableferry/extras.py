"""What to type where a package is missing that only some commands need."""

from __future__ import annotations

from importlib import metadata
from typing import Literal

Extra = Literal["bundle", "connect", "databricks", "fleet", "local", "remote", "scan", "template"]


def install(*extras: Extra) -> str:
    """Return the command that installs extras, by the name of the wheel that this package came in.

    A bundle has a copy of the package, in a wheel of its own name.
    """
    for script in metadata.entry_points(group="console_scripts", name="tableferry"):
        if script.dist and set(extras) <= set(script.dist.metadata.get_all("Provides-Extra") or ()):
            return f"pip install '{script.dist.name}[{','.join(extras)}]'"
    return f"pip install 'tableferry[{','.join(extras)}]'"
