"""Names as Hive's metastore takes them."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tableferry.quoting import literal
from tableferry.tables import DEFAULT_CATALOG, TableName


def in_metastore(name: TableName) -> str:
    """Write a table's name without the metastore's catalog, which RENAME TO and CREATE … LIKE don't take."""
    return TableName(name.parts[1:] if name.parts[0] == DEFAULT_CATALOG else name.parts).sql


def pattern(names: Iterable[str]) -> str:
    """Write names, or patterns with stars, as SHOW … LIKE takes them; it may find a few more than these.

    Apart from stars and bars it's a regular expression, which names like ``a$b`` aren't.
    """
    return literal("|".join(re.sub(r"[^\w*]", ".", name) for name in names))
