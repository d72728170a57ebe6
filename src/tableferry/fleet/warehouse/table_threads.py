"""Works on several tables at once, in threads that have a Spark session each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

from tableferry.fleet.warehouse.context import Warehouse
from tableferry.spark import session

T = TypeVar("T")


def warehouses_beside(warehouse: Warehouse, count: int) -> list[Warehouse]:
    """Return a warehouse for each of several threads, in a session of its own: settings hold for a whole one.

    There are none if `count` is one, or threads can't have sessions of their own: then one table after the
    other is to be worked on, in the caller's thread.
    """
    sessions = [session.beside(warehouse.spark) for _ in range(count if count > 1 else 0)]
    return [replace(warehouse, spark=own) for own in sessions if own is not None]


class TableThreads:
    """A thread for each of some warehouses; if something ends the block, what was begun is ended first."""

    def __init__(self, warehouses: Sequence[Warehouse]) -> None:
        """Take the warehouses that threads are to work on."""
        self._free = SimpleQueue[Warehouse]()
        for warehouse in warehouses:
            self._free.put(warehouse)
        self._pool = ThreadPoolExecutor(len(warehouses), thread_name_prefix="tableferry-table")

    def submit(self, work: Callable[[Warehouse], T]) -> Future[T]:
        """Let a thread do it with a warehouse, as soon as one is free."""
        return self._pool.submit(self._with_one, work)

    def _with_one(self, work: Callable[[Warehouse], T]) -> T:
        warehouse = self._free.get()
        try:
            return work(warehouse)
        finally:
            self._free.put(warehouse)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)
