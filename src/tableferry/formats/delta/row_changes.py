"""A commit that deleted or changed rows; modules that decide without Spark import it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RowChanges:
    """A commit that deleted or changed rows.

    Attributes:
        rows: The number of these rows; None if the commit's metrics don't contain it.
        only_deletes: It removed complete files and wrote none, so ``ignoreDeletes`` is enough to skip it.
    """

    version: int
    operation: str
    rows: int | None
    only_deletes: bool
