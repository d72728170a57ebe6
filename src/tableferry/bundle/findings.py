"""What a check of a bundle finds: an error fails at the deployment or in a run for certain, advice may."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum


class Rule(StrEnum):
    """What is looked for, by the name that ``--ignore`` takes."""

    CIRCULAR_DEPENDS_ON = "circular-depends-on"
    DUPLICATE_TASK_KEY = "duplicate-task-key"
    EMPTY_GLOB = "empty-glob"
    MISSING_ENTRY_POINT = "missing-entry-point"
    MISSING_LIBRARY = "missing-library"
    NEVER_FIRES = "never-fires"
    TASK_WITHOUT_TYPE = "task-without-type"
    UNDEFINED_ENVIRONMENT_KEY = "undefined-environment-key"
    UNDEFINED_JOB_CLUSTER_KEY = "undefined-job-cluster-key"
    UNDEFINED_RESOURCE = "undefined-resource"
    UNKNOWN_DEPENDS_ON = "unknown-depends-on"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that is wrong; the file is relative to the bundle's, and line 0 is all of it."""

    file: str
    line: int
    location: str
    message: str
    rule: Rule
    level: str = "error"

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        text = ": ".join(filter(None, (where, self.location, self.message)))
        return f"{' '.join(text.split())} [{self.level}: {self.rule}]"


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return a remedy that asks for the nearest known name, or another one where none is near."""
    close = get_close_matches(name, sorted(set(known)), n=1)
    return f"did you mean '{close[0]}'?" if close else otherwise
