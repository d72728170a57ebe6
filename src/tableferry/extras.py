"""The optional dependencies (extras) of this package, and the command that installs them."""

from typing import Literal

Extra = Literal[
    "cloud", "connect", "databricks", "fleet", "iceberg", "local", "remote", "scan", "sync", "template"
]


def install(*extras: Extra) -> str:
    """Return the command that installs extras of this package."""
    return f"pip install 'tableferry[{','.join(extras)}]'"
