"""Does together what several threads ask for: who comes while some work is done goes with the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class _Asked(Generic[Item, Result]):
    """What a thread asks for, and, when it's done, what came of it."""

    item: Item
    result: Result | None = None
    error: Exception | None = None
    done: bool = False


class Grouped(Generic[Item, Result]):
    """Work whose price hardly depends on how much is done at once, such as a commit.

    One thread alone is served at once, and waits for nobody.
    """

    def __init__(self, work: Callable[[Sequence[Item]], Sequence[Result]]) -> None:
        """Take what does several items, and returns the result of each."""
        self._work = work
        self._adding, self._working = Lock(), Lock()
        self._waiting: list[_Asked[Item, Result]] = []

    def do(self, item: Item) -> Result:
        """Do an item, together with those that other threads are waiting with.

        Raises:
            Exception: The work failed, for all that were done together.
        """
        asked = _Asked[Item, Result](item)
        with self._adding:
            self._waiting.append(asked)
        with self._working:
            if not asked.done:
                self._do_all()
        if asked.error is not None:
            raise asked.error
        return asked.result  # type: ignore[return-value]

    def _do_all(self) -> None:
        with self._adding:
            group, self._waiting = self._waiting, []
        try:
            results = self._work([asked.item for asked in group])
        except Exception as error:
            for asked in group:
                asked.error = error
        else:
            for asked, result in zip(group, results, strict=True):
                asked.result = result
        finally:
            for asked in group:
                asked.done = True
