"""What every reader of YAML needs: the fast parser, a bound for its depth, and errors in one line."""

from __future__ import annotations

from typing import Any

import yaml

SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, in C where it's there."""

DEEPEST = 100
"""Levels: far beyond any document of ours, and far below what the readers themselves can bear."""


def is_too_deep(content: str) -> bool:
    """Return whether YAML is nested deeper than `DEEPEST`; the parser goes down in C, without a bound.

    Raises:
        yaml.YAMLError: It isn't YAML.
    """
    depth = 0
    for event in yaml.parse(content, SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEEPEST:
                return True
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    return False


def explain(error: yaml.YAMLError) -> str:
    """Say in one line what is wrong, and at which line and column."""
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return f"{error.problem or error.context} at line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())
