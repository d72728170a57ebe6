"""The Hive table's properties in which a shadow run stores its progress; without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from tableferry.formats.hive.locations import split

PREFIX = "tableferry.shadow_"
WATERMARK, TARGET = PREFIX + "watermark", PREFIX + "target"
PENDING, FOLDER, RUNS = PREFIX + "pending", PREFIX + "folder", PREFIX + "runs"
PARTITIONS = PREFIX + "partitions"
"""The property with the fingerprint of the partitions after the last run or the switch."""

REPLACED = PREFIX + "replaced"
"""The property of a table whose columns were renamed, dropped or retyped since the switch."""
ROOT = "tableferry.first_location"
"""The property with the table's directory at the switch; a shadow run may change the directory."""
SWEEP = "sweep"
"""The value of `PENDING` after all rows are copied and before old files are removed."""


def sync_folder(location: str) -> str:
    """Return the directory for rewritten partitions, beside the Hive table's directory."""
    return f"{location.rstrip('/')}_sync"


def fingerprint(specs: Iterable[str], locations: Iterable[str] | None) -> str:
    """Return a fingerprint of a table's partitions and, if known, of their locations."""
    known = None if locations is None else sorted(map(split, locations))
    return f"{_digest(sorted(specs))}.{'' if known is None else _digest(known)}"


def has_same_partitions(noted: str, now: str) -> bool:
    """Return whether two fingerprints are of the same partitions; unknown locations count as the same."""
    (specs, locations), (specs_now, locations_now) = noted.split("."), now.split(".")
    return specs == specs_now and (not locations or not locations_now or locations == locations_now)


def _digest(values: Sequence[object]) -> str:
    text = "\n".join(map(str, values))
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


# The number of runs in one property; older metastores store up to 4,000 characters.
_RUNS_PER_PROPERTY = 400


@dataclass(frozen=True)
class ShadowProgress:
    """The progress of shadow runs, from the Hive table's properties.

    Attributes:
        watermark: The new table's version whose rows the Hive copy has; None if it's unknown.
        pending: The version that an interrupted run was copying, or `SWEEP`; empty if all runs ended.
        folder: The folder of rewritten partitions, with a directory for each version.
        runs: The names of runs that ended, which are part of their files' names.
    """

    watermark: str | None
    pending: str
    folder: str
    runs: tuple[str, ...] = ()

    @property
    def interrupted_version(self) -> str:
        """The version that an interrupted run was copying; empty if no run was interrupted."""
        return "" if self.pending == SWEEP else self.pending

    @classmethod
    def read(
        cls, properties: Mapping[str, str], location: str, target: str, given: str | None
    ) -> ShadowProgress:
        """Read the progress from a Hive table's properties; for another target's id, only the runs count.

        If no run recorded a watermark, it's `given`: the version from which the copy was created. A run
        records an empty watermark, which Spark doesn't show, if the target isn't that copy.
        """
        # Files of these runs may still be in use, even if the target was recreated since.
        runs = tuple(
            run
            for key in sorted(properties)
            if key.startswith(RUNS)
            for run in properties[key].split(",")
            if run
        )
        # Each migration has its own folder, because an earlier one's files may be in use.
        folder = f"{sync_folder(location)}/{target[:8]}"
        if properties.get(TARGET) != target:
            return cls(given, "", folder, runs)
        return cls(
            properties.get(WATERMARK) or None,
            properties.get(PENDING, ""),
            properties.get(FOLDER, folder),
            runs,
        )


def run_properties(runs: Sequence[str]) -> dict[str, str]:
    """Return properties with the names of runs, each short enough for the metastore."""
    size = _RUNS_PER_PROPERTY
    chunks = (runs[start : start + size] for start in range(0, len(runs), size))
    return {f"runs_{number:03}": ",".join(chunk) for number, chunk in enumerate(chunks)}
