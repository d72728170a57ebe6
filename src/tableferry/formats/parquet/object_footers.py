"""Read footers in an object store; threads read them, because each request takes tens of milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tableferry.errors import StateError
from tableferry.formats.parquet.directory_footers import Tails, by_threads, decoded
from tableferry.formats.parquet.files import DataFile, Footers, Unreadable
from tableferry.formats.parquet.footers import ALL_LEAVES, VANISHED, tail
from tableferry.storage import ObjectPath, ObjectStore


def read(root: ObjectPath, files: Sequence[DataFile], *, leaves: int = ALL_LEAVES) -> Footers:
    """Yield the files' footers, in the listing's order."""
    store = ObjectStore(root.store)

    def block(number: int) -> Tails:
        return [_tail(store, root / files[number].path, files[number].size)]

    yield from decoded(files, by_threads(block, range(len(files))), leaves)


def _tail(store: ObjectStore, path: ObjectPath, size: int) -> bytes | Unreadable:
    try:
        return tail(partial(store.read_range, path), size, reads_are_slow=True)
    except FileNotFoundError:
        return VANISHED
    except StateError as error:
        return Unreadable(f"{error.sentence.removeprefix(f'{path} ')}: {error.remedy.removesuffix('.')}")
