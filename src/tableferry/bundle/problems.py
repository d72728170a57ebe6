"""What is wrong in a bundle, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from tableferry.amounts import first_of


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong in a bundle.

    Attributes:
        file: The file, relative to the bundle's folder.
        place: The key path inside it, such as ``resources.jobs.a.tasks[0].task_key``; empty for the file.
        what: What is wrong.
        remedy: How to fix it.
    """

    file: str
    place: str
    what: str
    remedy: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.place}" if self.place else self.file
        return " ".join(f"{where}: {self.what}: {self.remedy}".split())


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a remedy that asks for the nearest known name, or another one where none is near."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1) or [full for full in names if name and full.startswith(name)]
    return f"did you mean '{close[0]}'?" if close else otherwise


def one_of(names: Iterable[str], most: int = 8) -> str:
    """Return a remedy that asks for one of some names."""
    several = sorted(set(names))
    return f"write {'one of ' if len(several) > 1 else ''}{listed(several, most)}"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Write names as a sentence does, and no more of them than one can read."""
    return first_of([f"'{name}'" for name in names], most=most)
