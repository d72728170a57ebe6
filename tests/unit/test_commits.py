"""Facts from a table's commits."""

from __future__ import annotations

from typing import Any

import pytest

from tableferry.formats.delta.commits import Commit, set_back


def restored(**parameters: Any) -> Commit:
    return Commit(0, "RESTORE", parameters, {})


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], None),
        ([Commit(0, "WRITE", {}, {}), Commit(0, "", {}, {})], None),
        ([restored(version="4")], 4),
        ([restored(version="4"), Commit(0, "WRITE", {}, {})], 4),
        ([restored(version="5")], None),
        ([restored(version="4"), restored(version="5")], None),
        ([restored(version="4"), restored(version="6")], 4),
        ([Commit(0, "WRITE", {}, {}), restored(version="2"), restored(version="6")], None),
        ([restored(timestamp="2026-01-01")], -1),
        ([restored(timestamp="2026-01-01", version=None)], -1),
        ([Commit(0, "CLONE", {"sourceVersion": "5"}, {})], -1),
        ([Commit(0, "CLONE", {"sourceVersion": "4"}, {}), restored(version="5")], None),
    ],
)
def test_restored_table_is_recognised(later: list[Commit], expected: int | None) -> None:
    commits = [
        Commit(6 + n, commit.operation, commit.parameters, commit.metrics) for n, commit in enumerate(later)
    ]
    assert set_back(commits[::-1], 5) == expected
