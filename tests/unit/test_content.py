"""Which versions several tables had together."""

from tableferry.commits import Commit
from tableferry.pipelines.content import moments


def commit(version: int, at: int, operation: str = "WRITE") -> Commit:
    return Commit(version, operation, {}, {}, at)


def test_tables_are_stepped_back_in_the_order_of_their_commits() -> None:
    commits = {
        "a": [commit(4, 50), commit(3, 20), commit(2, 10)],
        "b": [commit(9, 40), commit(8, 30), commit(7, 5)],
    }
    steps = [(4, 9), (3, 9), (3, 8), (3, 7), (2, 7), (1, 7), (1, 6)]
    assert moments(commits) == [{"a": a, "b": b} for a, b in steps]


def test_of_versions_with_the_same_rows_only_the_newest_counts() -> None:
    newest_first = [commit(5, 50, "OPTIMIZE"), commit(4, 40), commit(3, 30, "VACUUM END"), commit(2, 20)]
    # Whether a table holds rows once its log is rewritten is the same as before.
    assert moments({"a": newest_first}) == [{"a": 5}, {"a": 3}, {"a": 1}]


def test_it_ends_where_a_log_tells_no_more_and_where_a_table_was_made() -> None:
    assert moments({"a": [commit(2, 20), commit(1, 10), commit(0, 0, "CREATE TABLE")]}) == [
        {"a": 2},
        {"a": 1},
        {"a": 0},
    ]
    assert moments({"a": [commit(7, 20), Commit(6, "", {}, {}), commit(5, 5)]}) == [{"a": 7}, {"a": 6}]
