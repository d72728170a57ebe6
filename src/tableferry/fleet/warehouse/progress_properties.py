"""The Hive table's properties in which a run leaves its progress for the next one: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from tableferry.formats.hive.locations import split

PREFIX = "tableferry.shadow_"
WATERMARK, TARGET = PREFIX + "watermark", PREFIX + "target"
PENDING, FOLDER, RUNS = PREFIX + "pending", PREFIX + "folder", PREFIX + "runs"
PARTITIONS = PREFIX + "partitions"
"""The property with the fingerprint of the partitions that the last run, or the switch, left."""

REPLACED = PREFIX + "replaced"
"""The property that says that columns were renamed, dropped or retyped since the switch."""
ROOT = "tableferry.first_location"
"""The property with the table's directory at the switch; by now it may read others."""
SWEEP = "sweep"
"""What is pending when all is copied and old files are still to be removed."""


def sync_folder(location: str) -> str:
    """Return the directory beside a Hive table's in which its partitions are rewritten."""
    return f"{location.rstrip('/')}_sync"


def fingerprint(specs: Iterable[str], locations: Iterable[str] | None) -> str:
    """Return what tells a table's partitions, and their locations where these are known, from others."""
    known = None if locations is None else sorted(map(split, locations))
    return f"{_digest(sorted(specs))}.{'' if known is None else _digest(known)}"


def has_same_partitions(noted: str, now: str) -> bool:
    """Return whether two fingerprints are of the same partitions; unknown locations count as the same."""
    (specs, locations), (specs_now, locations_now) = noted.split("."), now.split(".")
    return specs == specs_now and (not locations or not locations_now or locations == locations_now)


def _digest(values: Sequence[object]) -> str:
    text = "\n".join(map(str, values))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


# How many runs one property names: older metastores take 4,000 characters.
_RUNS_PER_PROPERTY = 400


@dataclass(frozen=True)
class Marks:
    """What an earlier run left in the Hive table's properties.

    Attributes:
        watermark: The version that the copy is in step with; None if that's unknown.
        pending: The version that a run which didn't end was to copy, or `SWEEP`; empty if all runs ended.
        folder: The folder of rewritten partitions, each version in a directory of its own.
        runs: The names of runs that ended, which are in those of the files that they wrote.
    """

    watermark: str | None
    pending: str
    folder: str
    runs: tuple[str, ...] = ()

    @property
    def half_copied(self) -> str:
        """The version that a run which broke off was to copy; empty if none did."""
        return "" if self.pending == SWEEP else self.pending

    @classmethod
    def read(cls, properties: Mapping[str, str], location: str, target: str, given: str | None) -> Marks:
        """Read a Hive table's properties; of another target than the one with this id only the runs count.

        Where no run has noted a watermark, it's the one `given`: the version that the copy was made of. A run
        that noted an empty one, which Spark doesn't show, found another target than that copy.
        """
        # What they wrote for a target that was made anew since may be in use still.
        runs = tuple(
            run
            for key in sorted(properties)
            if key.startswith(RUNS)
            for run in properties[key].split(",")
            if run
        )
        # Files of an earlier migration's folder may be in use by now: this one has its own.
        folder = f"{sync_folder(location)}/{target[:8]}"
        if properties.get(TARGET) != target:
            return cls(given, "", folder, runs)
        return cls(
            properties.get(WATERMARK) or None,
            properties.get(PENDING, ""),
            properties.get(FOLDER, folder),
            runs,
        )


def runs_noted(runs: Sequence[str]) -> dict[str, str]:
    """Divide the names of runs into properties that a metastore takes."""
    size = _RUNS_PER_PROPERTY
    chunks = (runs[start : start + size] for start in range(0, len(runs), size))
    return {f"runs_{number:03}": ",".join(chunk) for number, chunk in enumerate(chunks)}
