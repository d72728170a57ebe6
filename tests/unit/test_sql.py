"""The find_references of a SQL statement, found in its tokens."""

from __future__ import annotations

import pytest

from tableferry.pipelines.model.sql import find_references, replace_references

STATEMENT = """
WITH a AS (SELECT * FROM x.y) -- FROM STREAM(not.this)
SELECT 'FROM STREAM(nor.this)' AS s, count(*) OVER (PARTITION BY a, b) AS n, extract(day FROM o.at) AS d
FROM STREAM(live.v_orders) o
LEFT JOIN `cat`.db.`my t` c ON o.id = c.id, stream bronze.e e
JOIN STREAM (silver.source) ON true
WHERE id IN (SELECT id FROM lookup)
"""


def test_references_in_stream_are_marked_as_streamed() -> None:
    streamed_by_name = {
        ".".join(reference.parts): reference.streamed for reference in find_references(STATEMENT)
    }
    assert {name for name, streamed in streamed_by_name.items() if streamed} == {
        "v_orders",
        "bronze.e",
        "silver.source",
    }
    assert {"x.y", "cat.db.my t", "lookup"} <= {
        name for name, streamed in streamed_by_name.items() if not streamed
    }


def test_name_replaces_the_whole_stream_expression() -> None:
    text = replace_references(
        STATEMENT, {reference: "T" for reference in find_references(STATEMENT) if reference.streamed}
    )
    assert "FROM T o" in text
    assert "c.id, T e" in text
    assert "JOIN T ON true" in text
    assert "STREAM(not.this)" in text
    assert "'FROM STREAM(nor.this)'" in text


@pytest.mark.parametrize(
    "statement", ["SELECT stream FROM t", "SELECT 1", "SELECT * FROM range(3)", "SELECT a AS stream FROM t"]
)
def test_statement_without_stream_has_no_streamed_reference(statement: str) -> None:
    assert not [reference for reference in find_references(statement) if reference.streamed]
