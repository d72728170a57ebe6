"""Things that wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter


def cycle(waits: Mapping[str, Iterable[str]]) -> list[str]:
    """Return a ring of things that wait for each other, the first again at its end; empty if there is none.

    Args:
        waits: What each one waits for.
    """
    graph = {name: sorted(waits[name]) for name in sorted(waits)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        ring = list(reversed(error.args[1]))[:-1]
        start = ring.index(min(ring))
        return [*ring[start:], *ring[:start], ring[start]]
    return []
