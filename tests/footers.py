"""Reads one file's footer."""

from __future__ import annotations

import os

from tableferry.formats.parquet.files import Footer, Unreadable
from tableferry.formats.parquet.footers import SchemaCache, decode, read_tail


def read_footer(
    path: str, *, size: int | None = None, cache: SchemaCache | None = None
) -> Footer | Unreadable:
    """Read a footer; a file is refused that has another size than the given one."""
    tail = read_tail(path, size)
    return tail if isinstance(tail, Unreadable) else decode(tail, cache, size=os.path.getsize(path))
