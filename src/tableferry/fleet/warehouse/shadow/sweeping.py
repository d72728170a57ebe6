"""Finds directories that nobody reads any more: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tableferry.hive.locations import below


def unused(directories: Iterable[str], root: str, used: Sequence[str]) -> tuple[str, ...]:
    """Return the topmost of some directories below a root that hold no location which is used."""
    topmost: set[str] = set()
    for directory in directories:
        path = root.rstrip("/")
        for name in (below(directory, root) or "").split("/"):
            path = f"{path}/{name}"
            if any(below(path, location) is not None for location in used):
                break
            if not any(below(location, path) is not None for location in used):
                topmost.add(path)
                break
    return tuple(sorted(topmost))
