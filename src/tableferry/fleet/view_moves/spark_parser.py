"""What Spark's own parser finds in a query, by what EXPLAIN EXTENDED says: a second opinion on its tables."""

from __future__ import annotations

import re

from tableferry.fleet.view_moves.references import NotRewritable, ViewText

_PARSED = re.compile(r"== Parsed Logical Plan ==\n(.*?)(?=\n== |\Z)", re.DOTALL)
_RELATION = re.compile(r"UnresolvedRelation (\[.*?\]), \[")
_UNKNOWN = ("PlanWithUnresolvedIdentifier", "ExpressionWithUnresolvedIdentifier")


def demand_same_tables(view: ViewText, explained: str) -> None:
    """Make sure that Spark's parser finds the tables in a text that ours found, and no others.

    Args:
        view: The text as ours read it.
        explained: What EXPLAIN EXTENDED says of the same text.

    Raises:
        NotRewritable: It finds others.
    """
    parsed = _PARSED.search(explained)
    if parsed is None:
        raise NotRewritable("VIEW_TABLES_NOT_REPORTED")
    if any(word in parsed[1] for word in _UNKNOWN):
        raise NotRewritable("VIEW_NAMES_TABLE_BY_FUNCTION", function="IDENTIFIER")
    found = set(_RELATION.findall(parsed[1]))
    named = {f"[{', '.join(part.name for part in table.parts)}]" for table in view.sources}
    if others := found ^ named:
        raise NotRewritable("VIEW_READ_DIFFERENTLY_BY_SPARK", tables=", ".join(sorted(others)))
