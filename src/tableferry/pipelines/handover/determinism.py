"""Find the columns of a query that Spark computes differently each time, such as ``current_timestamp()``."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

from tableferry.spark.driver import in_process

# Catalyst counts these as deterministic, as they are constant within one query.
_OF_THE_QUERY = frozenset(
    {"CurrentDate", "CurrentTime", "CurrentTimestamp", "CurrentUser", "LocalTimestamp", "Now"}
)
_IN_TEXT = re.compile(
    r"\b(?:current_date|current_time|current_timestamp|current_user|input_file_name|localtimestamp|"
    r"monotonically_increasing_id|now|rand|randn|random|randstr|shuffle|spark_partition_id|uniform|uuid)\("
    r"(?:(?! AS ).)*? AS (?P<name>[^,\[\]]+?)#\d+"
)


def unstable_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the names of a query's columns whose values differ from one execution to the next.

    Spark's analyzed plan answers it: whether each expression is deterministic, and which columns it is made
    of. Current times and the current user count as not deterministic. Through Spark Connect only the plan's
    text is known: there a column counts if one of that name is made by such a function of Spark's.
    """
    if not in_process(frame.sparkSession):
        text: str = frame._explain_string(extended=True)  # type: ignore[operator]
        names = {match["name"].strip("`").lower() for match in _IN_TEXT.finditer(text)}
        return tuple(name for name in frame.columns if name.lower() in names)
    plan = frame._jdf.queryExecution().analyzed()
    unstable = _Unstable()
    unstable.visit(plan)
    ids = [_id(attribute) for attribute in _items(plan.output())]
    return tuple(name for name, id_ in zip(frame.columns, ids, strict=True) if id_ in unstable.ids)


class _Unstable:
    """Collects the ids of unstable columns, from a plan's sources up to its result."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self._common: dict[int, Any] = {}

    def visit(self, plan: Any) -> None:
        """Add the unstable columns of a plan and of the plans that it reads."""
        children = _items(plan.children())
        for child in children:
            self.visit(child)
        if _kind(plan) == "CTERelationDef":
            self._common[plan.id()] = plan
        if _kind(plan) == "CTERelationRef":
            # It has no child: the definition is a child of the node that defines all of a WITH.
            children = [self._common[plan.cteId()]]
        outputs = [_items(child.output()) for child in children]
        known = {_id(attribute) for output in outputs for attribute in output}
        expressions = _items(plan.expressions())
        for expression in expressions:
            if _kind(expression) == "Alias" and self._is_unstable(expression):
                self.ids.add(_id(expression))
        made = {_id(expression) for expression in expressions if _kind(expression) == "Alias"}
        if _kind(plan) in ("Union", "Except", "Intersect", "CTERelationRef"):
            for place, attribute in enumerate(_items(plan.output())):
                if any(_id(output[place]) in self.ids for output in outputs):
                    self.ids.add(_id(attribute))
            return
        new = (
            [attribute for attribute in _items(plan.output()) if _id(attribute) not in known | made]
            if children
            else []
        )
        # Rows that a function returns, or that are exploded: each column may be made of each.
        if new and (known & self.ids or any(map(self._is_unstable, expressions))):
            self.ids.update(map(_id, new))

    def _is_unstable(self, expression: Any) -> bool:
        references = {_id(attribute) for attribute in _items(expression.references().toSeq())}
        return not expression.deterministic() or bool(references & self.ids) or _is_of_the_query(expression)


def _is_of_the_query(expression: Any) -> bool:
    return _kind(expression) in _OF_THE_QUERY or any(map(_is_of_the_query, _items(expression.children())))


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
