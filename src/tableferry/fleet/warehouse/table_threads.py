"""Process several tables concurrently, in threads with separate Spark sessions."""

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


def warehouses_for_threads(warehouse: Warehouse, count: int) -> list[Warehouse]:
    """Return a warehouse with a separate session for each of several threads.

    Separate sessions are needed because Spark's settings apply to a whole session. The list is empty if
    `count` is one or if no more sessions can be created: then the caller's thread processes all tables.
    """
    sessions = [session.beside(warehouse.spark) for _ in range(count if count > 1 else 0)]
    return [replace(warehouse, spark=own) for own in sessions if own is not None]


class TableThreads:
    """A pool with one thread for each warehouse; leaving the block waits for tasks that have started."""

    def __init__(self, warehouses: Sequence[Warehouse]) -> None:
        """Create the pool for some warehouses."""
        self._free = SimpleQueue[Warehouse]()
        for warehouse in warehouses:
            self._free.put(warehouse)
        self._pool = ThreadPoolExecutor(len(warehouses), thread_name_prefix="tableferry-table")

    def submit(self, work: Callable[[Warehouse], T]) -> Future[T]:
        """Run a function in a thread with the next free warehouse."""
        return self._pool.submit(self._run_with_warehouse, work)

    def _run_with_warehouse(self, work: Callable[[Warehouse], T]) -> T:
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
