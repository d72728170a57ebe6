"""What paths and names say by themselves: whether they're a volume's, and whether they're hidden."""

from __future__ import annotations

from pathlib import Path

from tableferry.errors import StateError


def hidden(name: str) -> bool:
    """Return whether a name is one that Spark, too, leaves out of a folder."""
    return name.startswith((".", "_"))


def volume_of(path: Path) -> Path | None:
    """Return the root of the Unity Catalog volume that a path names, as far as it names one; else None."""
    return Path(*path.parts[:5]) if path.parts[:2] == ("/", "Volumes") else None


def no_volume(path: Path) -> StateError:
    """Say that a path's volume isn't there."""
    return StateError("VOLUME_MISSING", path=path)
