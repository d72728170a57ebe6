"""Group commit: a thread's work waits while other work runs, and then runs together with all that waits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class _Request(Generic[Item, Result]):
    """An item of a thread, and its result or error when it is done."""

    item: Item
    result: Result | None = None
    error: Exception | None = None
    done: bool = False


class GroupCommit(Generic[Item, Result]):
    """Work whose time hardly depends on the number of items, such as a commit.

    A single thread never waits.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        """Take a function that does several items, and returns the result of each."""
        self._work = work
        self._adding, self._working = Lock(), Lock()
        self._waiting: list[_Request[Item, Result]] = []

    def do(self, item: Item) -> Result:
        """Do an item, together with the items of other threads that are waiting.

        Raises:
            Exception: The work failed, for all items of the group.
        """
        request = _Request[Item, Result](item)
        with self._adding:
            self._waiting.append(request)
        with self._working:
            if not request.done:
                self._do_all()
        if request.error is not None:
            raise request.error
        return request.result  # type: ignore[return-value]

    def _do_all(self) -> None:
        with self._adding:
            group, self._waiting = self._waiting, []
        try:
            results = self._work([request.item for request in group])
        except Exception as error:
            for request in group:
                request.error = error
        else:
            for request, result in zip(group, results, strict=True):
                request.result = result
        finally:
            for request in group:
                request.done = True
