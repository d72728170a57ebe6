"""Loads the public names of a package at first use, so that importing it needs neither Spark nor a database.

A name stands once: in the package's stub, ``__init__.pyi``, where type checkers look for it too.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return a package's ``__getattr__``, ``__dir__`` and ``__all__``: what its stub imports."""
    stub = pkgutil.get_data(package, "__init__.pyi")
    if stub is None:
        raise ImportError(f"{package} is loaded from where its __init__.pyi can't be read")
    modules = {
        name.name: statement.module
        for statement in ast.parse(stub).body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for name in statement.names
    }

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package} has no attribute {name}")
        if modules[name] != package:
            module = importlib.import_module(modules[name])
            if hasattr(module, name):
                return getattr(module, name)
        return importlib.import_module(f"{modules[name]}.{name}")

    names = sorted(modules)
    return load, lambda: names, names
