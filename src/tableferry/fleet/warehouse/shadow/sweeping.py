"""Which directories nobody reads any more: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tableferry.hive.locations import below


def unused(directories: Iterable[str], root: str, used: Sequence[str]) -> tuple[str, ...]:
    """Return the topmost directories below a root of which, and below which, nobody reads any.

    Args:
        directories: Directories below the root, at any depth.
        root: The folder of rewritten partitions.
        used: The locations that partitions have.
    """
    found: set[str] = set()
    for directory in directories:
        names = (below(directory, root) or "").split("/")
        at = root.rstrip("/")
        for name in names:
            at = f"{at}/{name}"
            if any(below(at, each) is not None for each in used):
                break
            if not any(below(each, at) is not None for each in used):
                found.add(at)
                break
    return tuple(sorted(found))
