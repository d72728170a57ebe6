"""Find directories that no partition uses; pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tableferry.formats.hive.locations import below, split


def find_unused_directories(directories: Iterable[str], root: str, used: Sequence[str]) -> tuple[str, ...]:
    """Return the topmost directories below a root that contain no used location.

    Only the locations' paths are compared, because one store may have several names.

    Args:
        directories: Paths of directories, relative to the root.
        root: The root's location.
        used: Locations that are in use.
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
