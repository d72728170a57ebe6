"""Work that several threads ask for at once is done together, and each gets its own result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tableferry.fleet.queue.group_commit import GroupCommit


def test_single_thread_does_not_wait() -> None:
    groups: list[list[int]] = []

    def work(items: Sequence[int]) -> list[int]:
        groups.append(list(items))
        return [item * 10 for item in items]

    grouped = GroupCommit(work)
    assert [grouped.do(item) for item in (1, 2, 3)] == [10, 20, 30]
    assert groups == [[1], [2], [3]]


def test_items_that_wait_are_done_together() -> None:
    first_began, others_wait = threading.Event(), threading.Event()
    groups: list[list[int]] = []

    def work(items: Sequence[int]) -> list[int]:
        groups.append(sorted(items))
        if items == [0]:
            first_began.set()
            assert others_wait.wait(timeout=60)
        return [item * 10 for item in items]

    grouped = GroupCommit(work)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(grouped.do, 0)
        assert first_began.wait(timeout=60)
        others = [pool.submit(grouped.do, item) for item in range(1, 8)]
        while len(grouped._waiting) < 7:
            threading.Event().wait(0.001)
        others_wait.set()
        assert first.result() == 0
        assert [other.result() for other in others] == [item * 10 for item in range(1, 8)]
    assert groups == [[0], list(range(1, 8))]


def test_failure_is_raised_for_all_items_of_a_group() -> None:
    first_began, others_wait = threading.Event(), threading.Event()

    def work(items: Sequence[int]) -> list[int]:
        if items == [0]:
            first_began.set()
            assert others_wait.wait(timeout=60)
        elif 2 in items:
            raise ValueError("two")
        return list(items)

    grouped = GroupCommit(work)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(grouped.do, 0)
        assert first_began.wait(timeout=60)
        others = [pool.submit(grouped.do, item) for item in (1, 2)]
        while len(grouped._waiting) < 2:
            threading.Event().wait(0.001)
        others_wait.set()
        assert first.result() == 0
        for other in others:
            with pytest.raises(ValueError, match="two"):
                other.result()
    assert grouped.do(3) == 3


def test_many_threads_get_each_its_own() -> None:
    def work(items: Sequence[int]) -> list[int]:
        return [item + 1 for item in items]

    grouped = GroupCommit(work)
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(grouped.do, range(2000))) == list(range(1, 2001))
