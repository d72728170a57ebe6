"""Which versions several tables had together, and at which of them a legacy table stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.unit.test_decide import SOURCE, dataflow

from tableferry.formats.delta.commits import Commit
from tableferry.pipelines.handover.content_search import _Search, steps
from tableferry.pipelines.handover.expected_rows import Brought
from tableferry.pipelines.model.facts import HandOver, NoHandOver
from tableferry.pipelines.model.flows import DeltaSource, View
from tableferry.progress import Task


def commit(version: int, at: int, operation: str = "WRITE") -> Commit:
    return Commit(version, operation, {}, {}, at)


def moments(commits: Mapping[str, Sequence[Commit]]) -> list[Mapping[str, int]]:
    return [step.moment for step in steps(commits)]


def test_tables_are_stepped_back_in_the_order_of_their_commits() -> None:
    commits = {
        "a": [commit(4, 50), commit(3, 20), commit(2, 10)],
        "b": [commit(9, 40), commit(8, 30), commit(7, 5)],
    }
    versions = [(4, 9), (3, 9), (3, 8), (3, 7), (2, 7), (1, 7), (1, 6)]
    assert moments(commits) == [{"a": a, "b": b} for a, b in versions]


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


@dataclass(frozen=True)
class Rows:
    """Rows of numbers, as a data frame counts them."""

    numbers: Counter[int]

    def count(self) -> int:
        return self.numbers.total()


@dataclass(frozen=True)
class Lists:
    """Compares a legacy table with the versions of a source, in place of Spark."""

    held: Rows
    versions: Sequence[Counter[int]]
    label: str = "legacy@0"

    @property
    def whole(self) -> Lists:
        return self

    def rows(self, moment: Mapping[str, int]) -> Rows:
        return Rows(self.versions[moment["src"]])

    def common(self, moment: Mapping[str, int]) -> int:
        return self.common_with(self.held, moment)

    def common_with(self, rows: Rows, moment: Mapping[str, int]) -> int:
        return (rows.numbers & self.versions[moment["src"]]).total()

    def named(self, moment: Mapping[str, int]) -> str:
        return f"src@{moment['src']}"


# A commit appends so many rows, deletes so many of the oldest, or deletes those of one remainder.
COMMITS = st.lists(
    st.integers(1, 5) | st.integers(-6, -1) | st.tuples(st.integers(2, 7), st.integers(0, 6)), max_size=9
)


@given(COMMITS, st.integers(0, 9), st.integers(0, 2))
@example([5, 5, 5, 5, 5, 5, -5], 3, 2)
def test_a_moment_is_found_only_if_no_row_is_lost_or_comes_twice(
    commits: list[Any], stands: int, older: int
) -> None:
    source, versions, appended = Counter[int](), [Counter[int]()], [0]
    for commit in commits:
        if isinstance(commit, int):
            new = range(appended[-1], appended[-1] + max(commit, 0))
            source = source + Counter(new) - Counter(sorted(source)[: max(-commit, 0)])
        else:
            source = Counter(number for number in source if number % commit[0] != commit[1])
        versions.append(source)
        appended.append(appended[-1] + (max(commit, 0) if isinstance(commit, int) else 0))
    stands = min(stands, len(commits))
    legacy = Counter(range(-older, appended[stands]))
    tried = [{"src": version} for version in reversed(range(len(versions)))]
    comparison: Any = Lists(Rows(legacy), versions)
    # The place of the moment before a commit that deletes rows.
    deletes = [number for number, each in enumerate(commits) if not isinstance(each, int) or each < 0]
    purges = {len(commits) - number: f"src@{number + 1} (DELETE)" for number in deletes}
    found = _Search(comparison, 0, Task("look"), purges)._partly(tried, {"src": "id"})
    if isinstance(found, NoHandOver):
        assert any(purge in found.why.message for purge in purges.values())
    if not isinstance(found, HandOver):
        assert deletes or not appended[stands]
        return
    version = found.positions["id"]
    assert not any(number in legacy for number in range(appended[version], appended[-1]))
    assert all(number in legacy for number in source if number < appended[version])


@pytest.mark.parametrize(("value", "skips"), [("true", True), ("TRUE", True), ("false", False)])
def test_flow_skips_commits_only_if_its_option_is_true(value: str, skips: bool) -> None:
    spark: Any = None
    source = DeltaSource(SOURCE, options={"skipChangeCommits": value})
    orders = dataflow(views={"v_orders": View("v_orders", "stream", source, "orders_main.json: v_orders")})
    (flow,) = (flow for flow in orders.flows if not flow.once)
    assert Brought.by(spark, orders, flow).skips is skips
