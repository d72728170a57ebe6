"""What a run leaves in the Hive table's properties for the next one: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PREFIX = "tableferry.shadow_"
WATERMARK, TARGET = PREFIX + "watermark", PREFIX + "target"
PENDING, FOLDER, RUNS = PREFIX + "pending", PREFIX + "folder", PREFIX + "runs"
SWEEP = "sweep"
"""What is pending when all is copied and old files are yet to go."""


def synced(location: str) -> str:
    """Return the directory beside a Hive table's where rows of its partitions are written anew."""
    return f"{location.rstrip('/')}_sync"


# Older metastores take 4,000 characters.
_RUNS_AT_ONCE = 400


@dataclass(frozen=True)
class Marks:
    """What an earlier run left in the Hive table's properties.

    Attributes:
        watermark: What the copy is in step with; None if that's unknown.
        pending: How far a run that didn't end was to copy, or `SWEEP`; empty if none is open.
        runs: Those that ended, by their names in those of the files that they wrote.
        folder: Where rewritten partitions are, each version in a directory of its own.
    """

    watermark: str | None
    pending: str
    folder: str
    runs: tuple[str, ...] = ()

    @property
    def half_copied(self) -> str:
        """How far a run that broke off was to copy; empty if none did."""
        return "" if self.pending == SWEEP else self.pending

    @classmethod
    def read(cls, properties: Mapping[str, str], location: str, target: str, given: str | None) -> Marks:
        """Read the properties; those of another target, of an earlier migration say, count for nothing.

        Args:
            properties: Those of the Hive table.
            location: The Hive table's.
            target: The target's id, which no other table has.
            given: The watermark where the table has none: the snapshot that the copy was made of.
        """
        if properties.get(TARGET) != target:
            # Files of an earlier migration's folder may be in use by now: this one keeps to its own.
            return cls(given, "", f"{synced(location)}/{target[:8]}")
        return cls(
            properties.get(WATERMARK) or given,
            properties.get(PENDING, ""),
            properties[FOLDER],
            tuple(
                run
                for key in sorted(properties)
                if key.startswith(RUNS)
                for run in properties[key].split(",")
                if run
            ),
        )


def runs_noted(runs: Sequence[str]) -> dict[str, str]:
    """Write runs as notes, each of which is as long as a metastore takes."""
    chunks = (runs[start : start + _RUNS_AT_ONCE] for start in range(0, len(runs), _RUNS_AT_ONCE))
    return {f"runs_{number:03}": ",".join(chunk) for number, chunk in enumerate(chunks)}
