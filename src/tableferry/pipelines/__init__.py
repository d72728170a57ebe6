"""Pipeline migration: a Delta table, with its history, becomes a streaming table whose live flows go on.

`plan`, `check`, `run`, `status` and `finish` are the whole of it. They are loaded at first use, so that specs
and plans can be worked with where pyspark isn't installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tableferry.pipelines.migrate import (
        FinishReport,
        RunReport,
        StatusReport,
        TargetReport,
        check,
        finish,
        plan,
        run,
        status,
    )

__all__ = [
    "FinishReport",
    "RunReport",
    "StatusReport",
    "TargetReport",
    "check",
    "finish",
    "plan",
    "run",
    "status",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("tableferry.pipelines.migrate"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
