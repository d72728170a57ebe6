"""Classify paths and names without file access: paths in Unity Catalog volumes, hidden names."""

from __future__ import annotations

from pathlib import Path

from tableferry.errors import StateError


def hidden(name: str) -> bool:
    """Return whether a name is hidden; Spark also ignores such files."""
    return name.startswith((".", "_"))


def volume_of(path: Path) -> Path | None:
    """Return the root of a path's Unity Catalog volume; None if the path isn't below ``/Volumes``.

    A path that is shorter than a volume's root is returned unchanged.
    """
    return Path(*path.parts[:5]) if path.parts[:2] == ("/", "Volumes") else None


def no_volume(path: Path) -> StateError:
    """Return the error for a path in a missing volume."""
    return StateError("VOLUME_MISSING", path=path)
