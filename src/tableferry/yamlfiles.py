"""Shared helpers for reading YAML: the fast parser, a limit for the nesting depth, and errors in one line."""

from __future__ import annotations

from typing import Any

import yaml

SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The safe loader, in C if libyaml is available."""

DEEPEST = 100
"""The maximum nesting depth: far more than any real document has, and far less than crashes a reader."""


def is_too_deep(content: str) -> bool:
    """Return whether YAML is nested deeper than `DEEPEST`, because the parser recurses in C without a limit.

    Raises:
        yaml.YAMLError: The content isn't YAML.
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
    """Return the problem with its line and column, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark or error.context_mark):
        return f"{error.problem or error.context} at line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(error).split())
