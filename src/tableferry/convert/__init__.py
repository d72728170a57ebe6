"""Conversion in place: a directory or table of Parquet files becomes Delta, with no data file rewritten.

`run` and `undo` are the whole of it. They are loaded at first use, so that the command line shows its help
where pyarrow isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tableferry.convert.plan import Engine, Statistics
from tableferry.convert.steps import Reader

if TYPE_CHECKING:
    from tableferry.convert.converting import Report, TableReport, run, undo

__all__ = ["Engine", "Reader", "Report", "Statistics", "TableReport", "run", "undo"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("tableferry.convert.converting"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
