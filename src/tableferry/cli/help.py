"""Typer's help renderer, without the parts of rich that it imports and this application never uses."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

# Typer needs them for help in Markdown and for its own tracebacks. They import a Markdown parser and a syntax
# highlighter, which is half of what showing a help costs.
_UNUSED = ("rich.markdown", "rich.traceback")


class _Deferred(type):
    """The type of a stand-in for a class, which is imported if it is used after all."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        return _real(cls)(*args, **options)

    def __getattr__(cls, name: str) -> Any:
        return getattr(_real(cls), name)


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return _Deferred(name, (), {"__module__": self.__name__})


def load_renderer() -> None:
    """Import Typer's renderer, with stand-ins for what it doesn't use here."""
    if "typer.rich_utils" in sys.modules:
        return
    stand_ins = {name: _StandIn(name) for name in _UNUSED if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        import_module("typer.rich_utils")
    finally:
        for name in stand_ins:
            del sys.modules[name]


def _real(stand_in: type) -> Any:
    return getattr(import_module(stand_in.__module__), stand_in.__name__)
