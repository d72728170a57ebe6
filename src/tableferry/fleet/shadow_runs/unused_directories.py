"""Finds directories that nobody reads any more: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tableferry.formats.hive.locations import below, split


def unused(directories: Iterable[str], root: str, used: Sequence[str]) -> tuple[str, ...]:
    """Return the topmost of some directories below a root that hold no location which is used.

    Locations are compared by their paths alone: one store may have several names.

    Args:
        directories: Their paths below the root.
        root: A location.
        used: Locations.
    """
    top, locations, topmost = (
        split(root)[2].rstrip("/"),
        [split(location)[2] for location in used],
        set[str](),
    )
    for directory in directories:
        path = ""
        for name in directory.split("/"):
            path = f"{path}/{name}".lstrip("/")
            if any(below(f"{top}/{path}", location) is not None for location in locations):
                break
            if not any(below(location, f"{top}/{path}") is not None for location in locations):
                topmost.add(f"{root.rstrip('/')}/{path}")
                break
    return tuple(sorted(topmost))
