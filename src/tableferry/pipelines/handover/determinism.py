"""Find the columns of a query that Spark computes differently each time, such as ``current_timestamp()``."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

from tableferry.spark.driver import in_process

# Catalyst counts these as deterministic because they are constant within one query.
_CONSTANT_PER_QUERY = frozenset(
    {"CurrentDate", "CurrentTime", "CurrentTimestamp", "CurrentUser", "LocalTimestamp", "Now"}
)
_UNSTABLE_ALIAS = re.compile(
    r"\b(?:current_date|current_time|current_timestamp|current_user|input_file_name|localtimestamp|"
    r"monotonically_increasing_id|now|rand|randn|random|randstr|shuffle|spark_partition_id|uniform|uuid)\("
    r"(?:(?! AS ).)*? AS (?P<name>[^,\[\]]+?)#\d+"
)


def find_unstable_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the names of a query's columns whose values differ from one execution to the next.

    Spark's analyzed plan states whether each expression is deterministic, and which columns it reads. Current
    times and the current user count as not deterministic. Spark Connect returns only the plan's text: there a
    column counts if the plan gives its name to the result of such a function.
    """
    if not in_process(frame.sparkSession):
        text: str = frame._explain_string(extended=True)  # type: ignore[operator]
        names = {match["name"].strip("`").lower() for match in _UNSTABLE_ALIAS.finditer(text)}
        return tuple(name for name in frame.columns if name.lower() in names)
    plan = frame._jdf.queryExecution().analyzed()
    unstable = _UnstableColumns()
    unstable.visit(plan)
    ids = [_id(attribute) for attribute in _items(plan.output())]
    return tuple(name for name, id_ in zip(frame.columns, ids, strict=True) if id_ in unstable.ids)


class _UnstableColumns:
    """Collect the ids of unstable columns, from a plan's sources up to its result."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self._definitions: dict[int, Any] = {}

    def visit(self, plan: Any) -> None:
        """Add the unstable columns of a plan and of the plans that it reads."""
        children = _items(plan.children())
        for child in children:
            self.visit(child)
        if _class_name(plan) == "CTERelationDef":
            self._definitions[plan.id()] = plan
        if _class_name(plan) == "CTERelationRef":
            # The reference has no child: the definition is a child of the node of the WITH clause.
            children = [self._definitions[plan.cteId()]]
        outputs = [_items(child.output()) for child in children]
        known = {_id(attribute) for output in outputs for attribute in output}
        expressions = _items(plan.expressions())
        for expression in expressions:
            if _class_name(expression) == "Alias" and self._is_unstable(expression):
                self.ids.add(_id(expression))
        made = {_id(expression) for expression in expressions if _class_name(expression) == "Alias"}
        if _class_name(plan) in ("Union", "Except", "Intersect", "CTERelationRef"):
            for place, attribute in enumerate(_items(plan.output())):
                if any(_id(output[place]) in self.ids for output in outputs):
                    self.ids.add(_id(attribute))
            return
        new = (
            [attribute for attribute in _items(plan.output()) if _id(attribute) not in known | made]
            if children
            else []
        )
        # A generator or a table function: each of its columns may depend on each of its inputs.
        if new and (known & self.ids or any(map(self._is_unstable, expressions))):
            self.ids.update(map(_id, new))

    def _is_unstable(self, expression: Any) -> bool:
        references = {_id(attribute) for attribute in _items(expression.references().toSeq())}
        return (
            not expression.deterministic()
            or bool(references & self.ids)
            or _is_constant_per_query(expression)
        )


def _is_constant_per_query(expression: Any) -> bool:
    return _class_name(expression) in _CONSTANT_PER_QUERY or any(
        map(_is_constant_per_query, _items(expression.children()))
    )


def _class_name(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(place) for place in range(sequence.size())]
