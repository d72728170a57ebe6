"""All footers of a directory, in the listing's order, in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias

from tableferry.convert.facts import DataFile, Footer, Unreadable
from tableferry.convert.footers import Known, decode, read_tail

_Tail: TypeAlias = bytes | Unreadable

_BLOCK = 32
_THREADS = 16
# Seconds that a file may keep this thread waiting, on average: a local disk takes a tenth of it, a mounted
# volume ten times as much.
_PATIENCE = 0.001


def read(root: Path, files: Sequence[DataFile], *, statistics: bool = True) -> Iterator[Footer | Unreadable]:
    """Read what the files' footers say, one after another.

    Decoding holds Python's lock, so threads gain nothing where the storage answers at once. Where a file
    makes this thread wait, as a mounted volume does, the waiting is left to threads.

    Args:
        root: Where the files' paths begin.
        files: What was listed.
        statistics: Whether to read more than the rows' number and the schema.
    """
    known = Known()
    for tail in _tails(str(root), files):
        yield tail if isinstance(tail, Unreadable) else decode(tail, statistics=statistics, known=known)


def _tails(root: str, files: Sequence[DataFile]) -> Iterator[_Tail]:
    def block(start: int) -> list[_Tail]:
        return [read_tail(f"{root}/{each.path}", each.size) for each in files[start : start + _BLOCK]]

    starts = range(0, len(files), _BLOCK)
    for number, start in enumerate(starts):
        waited = time.perf_counter() - time.thread_time()
        tails = block(start)
        waited = time.perf_counter() - time.thread_time() - waited
        yield from tails
        if waited > _PATIENCE * len(tails):
            yield from _by_threads(block, starts[number + 1 :])
            return


def _by_threads(block: Callable[[int], list[_Tail]], starts: Sequence[int]) -> Iterator[_Tail]:
    """Keep some blocks ahead of the reader, never all of them: their bytes would fill the memory."""
    ahead: deque[Future[list[_Tail]]] = deque()
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        try:
            for start in starts:
                ahead.append(pool.submit(block, start))
                if len(ahead) > _THREADS:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
