"""Compare two tables: their columns, their rows whatever the order, and where they differ.

Everything is loaded at first use, so that the command line shows its help where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.verify.comparing import verify, verify_tables
    from tableferry.verify.measuring import Side
    from tableferry.verify.rendering import render
    from tableferry.verify.verdict import Verdict

__all__ = ["Side", "Verdict", "render", "verify", "verify_tables"]

_HOMES = {
    "Side": "measuring",
    "Verdict": "verdict",
    "render": "rendering",
    "verify": "comparing",
    "verify_tables": "comparing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"tableferry.verify.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
