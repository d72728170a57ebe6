"""Write table names and patterns in the forms that Hive's metastore accepts."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tableferry.spark.quoting import literal
from tableferry.spark.tables import DEFAULT_CATALOG, TableName


def in_metastore(name: TableName) -> str:
    """Return a quoted name without the metastore's catalog, for RENAME TO and CREATE … LIKE."""
    return TableName(name.parts[1:] if name.parts[0] == DEFAULT_CATALOG else name.parts).sql


def pattern(names: Iterable[str]) -> str:
    """Return names, or patterns with stars, as the pattern of SHOW … LIKE, which may match a few more names.

    SHOW … LIKE reads all but stars and bars as a regular expression. So each special character, as in
    ``a$b``, is replaced by a dot.
    """
    return literal("|".join(re.sub(r"[^\w*]", ".", name) for name in names))
