"""Parse tables' locations as Hadoop writes them, and map them to folders that this process can read.

Hadoop's paths aren't percent-encoded: in ``file:/data/a%20b`` the folder's name is ``a%20b``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_LOCATION = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/]*))?(/.*)?", re.DOTALL)


def reachable(location: str, *, same_machine: bool) -> Path | None:
    """Return a location's folder if this process can read it as local files, else None.

    Args:
        location: A URI such as ``file:/data/t``, ``dbfs:/Volumes/c/s/v/t`` or ``s3://bucket/t``, or a path.
        same_machine: Whether Spark's driver and this process see the same local files.
    """
    scheme, authority, path = split(location)
    match scheme:
        case "dbfs" if not authority:
            mounted = Path(path) if path.startswith("/Volumes/") else Path("/dbfs" + path)
            return mounted if mounted.is_dir() else None
        case "file" if authority in ("", "localhost"):
            return Path(path) if same_machine else None
        case "" if path.startswith("/") and not authority:
            if path.startswith("/Volumes/") and Path(path).is_dir():
                return Path(path)
            return Path(path) if same_machine else None
    return None


def for_spark(location: str) -> str:
    """Return a folder's location for Spark. On Databricks, Spark reads a path without a scheme from DBFS."""
    if not location.startswith("/") or location.startswith("/Volumes/"):
        return location
    return f"dbfs:{location.removeprefix('/dbfs')}" if location.startswith("/dbfs/") else f"file:{location}"


def below(location: str, root: str) -> str | None:
    """Return a location's path relative to a root: ``""`` for the root, None if it is outside."""
    (scheme, authority, path), (root_scheme, root_authority, root_path) = split(location), split(root)
    # A root without a scheme is on Spark's default file system, so schemes can't be compared.
    if root_scheme and scheme and (scheme, authority) != (root_scheme, root_authority):
        return None
    if path == root_path:
        return ""
    parent = root_path.rstrip("/") + "/"
    return path.removeprefix(parent) if path.startswith(parent) else None


def escape_wildcards(location: str) -> str:
    """Escape the characters of a location that Spark's reader would read as wildcards."""
    return re.sub(r"([*?\[\]{}\\])", r"\\\1", location)


def parents(directory: str) -> Iterator[str]:
    """Yield a path's parent directories, the nearest first."""
    while directory:
        directory = directory.rpartition("/")[0]
        yield directory or "/"


def above(location: str) -> Iterator[str]:
    """Yield a location's parents, the nearest first, without trailing slashes."""
    scheme, authority, path = split(location)
    local = f"{scheme}:" if scheme else ""
    top = f"{scheme}://{authority}" if authority else local
    if path != "/":
        yield from (top + parent.rstrip("/") for parent in parents(path))


def split(location: str) -> tuple[str, str, str]:
    """Return a location's scheme, authority and path, as Hadoop normalises them."""
    match = _LOCATION.fullmatch(location)
    if match is None:
        return "", "", location
    path = re.sub("/+", "/", match[3] or "/")
    return (match[1] or "").lower(), match[2] or "", path.rstrip("/") or "/"


def is_hidden(name: str) -> bool:
    """Return whether Spark's readers ignore a file or directory with this name.

    The rule is `HadoopFSUtils.shouldFilterOutPathName` in Spark's sources, without its exception for names
    that begin with ``_metadata``.
    """
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")
