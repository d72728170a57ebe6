"""All footers of a directory, in the listing's order, in this process."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import current_thread, main_thread
from typing import TypeAlias

from tableferry.convert.facts import DataFile, Footers, Unreadable
from tableferry.convert.parquet.footers import ALL_LEAVES, SchemaCache, decode, read_tail

Tails: TypeAlias = list[bytes | Unreadable]

# Where each file is 20 ms away, as on a mounted volume, threads take 1.4 s for 2,000 of them and not 40 s;
# on a local disk they cost a tenth of the time of one.
_BLOCK = 16
_THREADS = 32
# Seconds that a file may keep this thread waiting, on average: a local disk takes a tenth of it.
_MOST_WAIT = 0.001


def read(root: Path, files: Sequence[DataFile], *, leaves: int = ALL_LEAVES) -> Footers:
    """Read what the files' footers say, one after another; statistics of so many of a file's first leaves.

    This thread does it all, until storage keeps it waiting: then threads read, and this one only decodes, as
    that holds Python's lock.
    """
    yield from decoded(files, _tails(str(root), files), leaves)


def decoded(files: Sequence[DataFile], blocks: Iterable[Tails], leaves: int) -> Footers:
    """Decode files' footers that are read in blocks."""
    cache = SchemaCache(leaves)
    for file, tail in zip(files, chain.from_iterable(blocks), strict=True):
        with _without_collector():
            footer = tail if isinstance(tail, Unreadable) else decode(tail, cache, size=file.size)
        yield footer


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector, which would go through a footer's many objects several times.

    They have no circular references. Only the main thread pauses it: the threads that scan files would start
    and stop it for one another.
    """
    if not gc.isenabled() or current_thread() is not main_thread():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _tails(root: str, files: Sequence[DataFile]) -> Iterator[Tails]:
    def block(start: int) -> Tails:
        return [read_tail(f"{root}/{file.path}", file.size) for file in files[start : start + _BLOCK]]

    starts = range(0, len(files), _BLOCK)
    for number, start in enumerate(starts, 1):
        before = time.perf_counter() - time.thread_time()
        tails = block(start)
        waited = time.perf_counter() - time.thread_time() - before
        yield tails
        if waited > _MOST_WAIT * len(tails):
            yield from by_threads(block, starts[number:])
            return


def by_threads(block: Callable[[int], Tails], starts: Sequence[int]) -> Iterator[Tails]:
    """Keep some blocks ahead of the reader, never all of them: their bytes would fill the memory."""
    ahead: deque[Future[Tails]] = deque()
    with ThreadPoolExecutor(max_workers=_THREADS) as pool:
        try:
            for start in starts:
                ahead.append(pool.submit(block, start))
                if len(ahead) > _THREADS:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()
