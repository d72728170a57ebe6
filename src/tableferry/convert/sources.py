"""Parse the sources that a user names for a conversion: a folder, a table, or all tables of a schema."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from tableferry.errors import TableError
from tableferry.spark.tables import TableName

_OURS = ("parquet", "delta", "iceberg")
_BY_PATH = re.compile(r"([A-Za-z_]\w*)\.`((?:[^`]|``)+)`")
_BEGINS_BY_PATH = re.compile(r"[A-Za-z_]\w*\.([`'\"])[^`'\"]*/")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_ALL = ".*"
_ICEBERG = "iceberg:"
# A catalog, a namespace and a table.
_ICEBERG_PARTS = 3
_FORM = "a path, a table's name, 'schema.*' or 'parquet.`/path`'"


@dataclass(frozen=True)
class Folder:
    """A local path, or the URI of storage that perhaps only Spark reaches; without a trailing slash."""

    path: str

    @property
    def is_local(self) -> bool:
        """Whether the path is a path on this machine, and not a URI."""
        return _URI.match(self.path) is None

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Table:
    """A table of the catalog."""

    name: TableName

    def __str__(self) -> str:
        return str(self.name)


@dataclass(frozen=True)
class Schema:
    """All Parquet tables of a schema, by the schema's name with or without the catalog's."""

    parts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{TableName(self.parts)}{_ALL}"


@dataclass(frozen=True)
class Iceberg:
    """An Iceberg table by its name, which starts with the name of a pyiceberg catalog."""

    name: str

    def __str__(self) -> str:
        return f"{_ICEBERG}{self.name}"


Source: TypeAlias = Folder | Table | Schema | Iceberg


def parse(text: str) -> Source:
    """Parse one source.

    A text is a path if it contains a slash, begins with ``.`` or ``~``, or is an existing directory. A table
    that has the name of a directory can be written in backticks.

    Raises:
        TableError: The text isn't a valid source, or is a path with another format than Parquet.
    """
    if not text.strip():
        raise TableError("SOURCE_MISSING", text=text, form=_FORM)
    if text.lower().startswith(_ICEBERG) and "/" not in text:
        name = text[len(_ICEBERG) :]
        if len(name.split(".")) < _ICEBERG_PARTS or not all(name.split(".")):
            raise TableError("ICEBERG_NAME_INVALID", text=text)
        return Iceberg(name)
    if named := _BY_PATH.fullmatch(text):
        provider, path = named[1].lower(), named[2].replace("``", "`")
        if provider in _OURS:
            return folder(path)
        if "/" in path:
            raise wrong_provider(provider, text)
    elif _BEGINS_BY_PATH.match(text) and not os.path.isdir(text):
        raise TableError("SOURCE_NOT_UNDERSTOOD", text=text, form=_FORM)
    if "/" in text or text.startswith((".", "~")) or os.path.isdir(text):
        return folder(text)
    name = text.strip()
    if name == "*":
        raise TableError("SOURCE_MISSING", text=text, form=_FORM)
    if name.endswith(_ALL):
        parts = TableName.parse(name.removesuffix(_ALL)).parts
        if len(parts) > 2:
            raise TableError("SCHEMA_NAME_INVALID", text=text, count=len(parts))
        return Schema(parts)
    return Table(TableName.parse(text))


def folder(path: str) -> Folder:
    """Return the folder of a path or a URI, such as a table's location."""
    return Folder(_plain(path))


def wrong_provider(provider: str, source: str) -> TableError:
    """Return the error for a source of another format than Parquet."""
    article = "an" if provider[:1].lower() in "aeiou" else "a"
    return TableError("NOT_PARQUET", provider=f"{article} {provider}", table=source)


def _plain(path: str) -> str:
    """Return the local path of a URI, or else the path or URI itself, without a trailing slash."""
    if _URI.match(path):
        scheme, rest = path.split(":", 1)
        if scheme.lower() == "file":
            path = _of_file_uri(path)
        elif scheme.lower() == "dbfs":
            path = _mounted("/" + rest.lstrip("/")) or path
    elif path.startswith("~"):
        path = os.path.expanduser(path)
    bare = path.rstrip("/")
    if not bare or bare.endswith(":"):  # Without its slash, a root is empty or only a scheme.
        return path
    # Without `./`, the result would be parsed as a table's name.
    return bare if "/" in bare or bare[0] in ".~" else f"./{bare}"


def _of_file_uri(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise TableError("FILE_OF_ANOTHER_MACHINE", uri=uri, machine=parts.netloc)
    # A user may write characters unescaped, as Spark reads such a path; a catalog percent-encodes them.
    plain = "/" + uri.split(":", 1)[1].removeprefix(f"//{parts.netloc}").lstrip("/")
    return plain if os.path.isdir(plain) else unquote(plain)


def _mounted(path: str) -> str | None:
    """Return the local path of a DBFS path, or None if DBFS isn't mounted; volumes have their own mount."""
    if path.startswith("/Volumes/") and os.path.isdir("/Volumes"):
        return path
    return f"/dbfs{path}" if os.path.isdir("/dbfs") else None
