"""Moments of several sources, and the search for the moment whose rows a legacy table contains."""

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
from tableferry.pipelines.handover.content_search import _Search, list_moments
from tableferry.pipelines.handover.expected_rows import FlowOutput
from tableferry.pipelines.model.facts import HandOver, UnknownHandOver
from tableferry.pipelines.model.flows import DeltaSource, View
from tableferry.progress import Task


def commit(version: int, at: int, operation: str = "WRITE") -> Commit:
    return Commit(version, operation, {}, {}, at)


def moments(commits: Mapping[str, Sequence[Commit]]) -> list[Mapping[str, int]]:
    return [past.moment for past in list_moments(commits)]


def test_moments_follow_the_commits_of_all_tables_by_time() -> None:
    commits = {
        "a": [commit(4, 50), commit(3, 20), commit(2, 10)],
        "b": [commit(9, 40), commit(8, 30), commit(7, 5)],
    }
    versions = [(4, 9), (3, 9), (3, 8), (3, 7), (2, 7), (1, 7), (1, 6)]
    assert moments(commits) == [{"a": a, "b": b} for a, b in versions]


def test_moments_leave_out_commits_without_rows() -> None:
    newest_first = [commit(5, 50, "OPTIMIZE"), commit(4, 40), commit(3, 30, "VACUUM END"), commit(2, 20)]
    # OPTIMIZE and VACUUM END leave the rows as they are.
    assert moments({"a": newest_first}) == [{"a": 5}, {"a": 3}, {"a": 1}]


def test_moments_end_at_version_0_and_at_a_commit_that_the_log_lost() -> None:
    assert moments({"a": [commit(2, 20), commit(1, 10), commit(0, 0, "CREATE TABLE")]}) == [
        {"a": 2},
        {"a": 1},
        {"a": 0},
    ]
    assert moments({"a": [commit(7, 20), Commit(6, "", {}, {}), commit(5, 5)]}) == [{"a": 7}, {"a": 6}]


@dataclass(frozen=True)
class Rows:
    """Numbers with the `count` of a DataFrame."""

    numbers: Counter[int]

    def count(self) -> int:
        return self.numbers.total()


@dataclass(frozen=True)
class FakeComparison:
    """Replaces `Comparison`: compares a legacy table with versions of a source, without Spark."""

    rows: Rows
    versions: Sequence[Counter[int]]
    label: str = "legacy@0"

    @property
    def output(self) -> FakeComparison:
        return self

    def read_rows(self, moment: Mapping[str, int]) -> Rows:
        return Rows(self.versions[moment["src"]])

    def count_common(self, moment: Mapping[str, int]) -> int:
        return self.count_common_with(self.rows, moment)

    def count_common_with(self, rows: Rows, moment: Mapping[str, int]) -> int:
        return (rows.numbers & self.versions[moment["src"]]).total()

    def name_moment(self, moment: Mapping[str, int]) -> str:
        return f"src@{moment['src']}"


# A commit appends n rows, deletes the n oldest (a negative number), or deletes numbers by their remainder.
COMMITS = st.lists(
    st.integers(1, 5) | st.integers(-6, -1) | st.tuples(st.integers(2, 7), st.integers(0, 6)), max_size=9
)


@given(COMMITS, st.integers(0, 9), st.integers(0, 2))
@example([5, 5, 5, 5, 5, 5, -5], 3, 2)
def test_moment_is_found_only_if_no_row_is_lost_or_written_twice(
    commits: list[Any], position: int, older: int
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
    position = min(position, len(commits))
    legacy = Counter(range(-older, appended[position]))
    tried = [{"src": version} for version in reversed(range(len(versions)))]
    comparison: Any = FakeComparison(Rows(legacy), versions)
    # The numbers of the commits that delete rows.
    deletes = [number for number, each in enumerate(commits) if not isinstance(each, int) or each < 0]
    purges = {len(commits) - number: f"src@{number + 1} (DELETE)" for number in deletes}
    found = _Search(comparison, 0, Task("look"), purges)._find_contained(tried, {"src": "id"})
    if isinstance(found, UnknownHandOver):
        assert any(purge in found.why.message for purge in purges.values())
    if not isinstance(found, HandOver):
        assert deletes or not appended[position]
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
    assert FlowOutput.of_flow(spark, orders, flow).skips_commits is skips
