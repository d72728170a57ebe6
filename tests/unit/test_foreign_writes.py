"""Commits of other processes that may have removed rows from a CDC target or its event log."""

from __future__ import annotations

import pytest

from tableferry.formats.delta.commits import Commit
from tableferry.pipelines.handover.foreign_writes import list_foreign_commits

OWN_ROWS = {
    "predicate": '["(id#1 <=> id#2)"]',
    "matchedPredicates": '[{"predicate":"NOT __alive#3","actionType":"delete"},{"actionType":"update"}]',
    "notMatchedPredicates": '[{"predicate":"__alive#3: boolean","actionType":"insert"}]',
}
OWN_COMPACTION = {
    "predicate": '["((id#1 <=> id#2) AND ((__operation#3 = truncate) = __truncates#4))"]',
    "matchedPredicates": '[{"actionType":"delete"}]',
}


def commit(at: int, operation: str, **parameters: str) -> Commit:
    return Commit(at, operation, parameters, {})


@pytest.mark.parametrize(
    "ours_or_harmless",
    [
        commit(6, "MERGE", **OWN_ROWS),
        commit(6, "MERGE", **OWN_COMPACTION),
        commit(6, "MERGE", matchedPredicates="[]", notMatchedPredicates='[{"actionType":"insert"}]'),
        commit(6, "WRITE", mode="Append"),
        commit(6, "STREAMING UPDATE", outputMode="Append"),
        commit(6, "OPTIMIZE"),
        commit(6, "VACUUM END"),
        commit(6, "REORG"),
        commit(6, "SET TBLPROPERTIES"),
        commit(6, "ADD COLUMNS"),
        commit(6, ""),
    ],
)
def test_own_commits_appends_and_maintenance_are_not_foreign(ours_or_harmless: Commit) -> None:
    assert list_foreign_commits([ours_or_harmless]) == ()


@pytest.mark.parametrize(
    "foreign",
    [
        commit(6, "DELETE", predicate='["(id#1 = 5)"]'),
        commit(6, "TRUNCATE"),
        commit(6, "UPDATE"),
        commit(6, "MERGE", predicate='["(id#1 = id#2)"]', matchedPredicates='[{"actionType":"delete"}]'),
        commit(6, "MERGE", matchedPredicates="[]", notMatchedBySourcePredicates='[{"actionType":"delete"}]'),
        commit(6, "MERGE"),
        commit(6, "WRITE", mode="Overwrite"),
        commit(6, "STREAMING UPDATE", outputMode="Complete"),
        commit(6, "CREATE OR REPLACE TABLE AS SELECT"),
        commit(6, "an operation of a later release"),
    ],
)
def test_commit_that_may_remove_rows_is_foreign(foreign: Commit) -> None:
    assert list_foreign_commits([foreign]) == (foreign,)


def test_commits_undone_by_restore_are_not_foreign() -> None:
    deleted, restored = commit(6, "DELETE"), commit(7, "RESTORE", version="5")
    assert list_foreign_commits([restored, deleted]) == ()
    again = commit(8, "DELETE")
    assert list_foreign_commits([again, restored, deleted]) == (again,)
    forward = commit(8, "RESTORE", version="6")
    assert list_foreign_commits([forward, restored, deleted]) == (deleted,)
