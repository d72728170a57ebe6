"""What a statement streams and looks up, found by its tokens."""

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


def test_streams_and_look_ups_are_distinguished() -> None:
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


def test_names_take_the_place_of_the_whole_stream() -> None:
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
def test_nothing_is_streamed_without_stream(statement: str) -> None:
    assert not [reference for reference in find_references(statement) if reference.streamed]
