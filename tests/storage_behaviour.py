"""Behaviours that all kinds of storage share. Each is a function of an adapter and an empty folder in it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import pytest

from tableferry.errors import StateError
from tableferry.storage.port import StateStorage, Storage, TableStorage

Folder: TypeAlias = Any
"""The path of a folder, in the path type of its storage."""


def missing_file(storage: Storage[Any], folder: Folder) -> None:
    """A missing file is None, a missing folder is empty, and both can be removed."""
    missing = folder / "missing"
    assert storage.read_text(missing) is None
    assert not storage.exists(missing)
    assert storage.names(missing) == storage.all_names(missing) == ()
    with pytest.raises(StateError):
        storage.modified(missing)
    storage.remove(missing)
    assert storage.all_names(folder) == ()


def written_text(storage: Storage[Any], folder: Folder) -> None:
    """A file has exactly the text that was written last, and its folders are created."""
    parent = folder / "target=a b%2Fc"
    path = parent / "x"
    for text in ("a,b\r\n\u00e4,'%2F'\n", "short", ""):
        storage.write_text(path, text)
        assert storage.read_text(path) == text
    assert storage.exists(path)
    assert storage.names(parent) == ("x",)
    # The storage's own clock, in milliseconds: later than 2001.
    assert storage.modified(path) > 1_000_000_000_000


def created_text(storage: Storage[Any], folder: Folder) -> None:
    """A file is created once, also from pieces, and keeps its first text."""
    path = folder / "log" / "0.json"
    assert storage.create_text(path, ("a\n", "\n", "b\n"))
    assert not storage.create_text(path, "second\n")
    assert storage.read_text(path) == "a\n\nb\n"


def concurrent_creation(storage: Storage[Any], folder: Folder) -> None:
    """One of several concurrent callers creates a file."""
    path = folder / "0.json"
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: storage.create_text(path, f"{number}\n"), range(8)))
    assert won.count(True) == 1
    assert storage.read_text(path) == f"{won.index(True)}\n"


def folder_listing(storage: Storage[Any], folder: Folder) -> None:
    """A folder's names are in order; hidden ones are left out unless they are asked for."""
    storage.make_folder(folder / "empty")
    storage.remove(folder / "empty")
    for name in ("b", "a", "_claim", ".crc"):
        storage.write_text(folder / name, "text")
    storage.write_text(folder / "c" / "inside", "text")
    assert storage.names(folder) == ("a", "b", "c")
    assert {"_claim", ".crc", "a", "b", "c"} <= set(storage.all_names(folder))
    assert list(storage.all_names(folder)) == sorted(storage.all_names(folder))


def removal(storage: Storage[Any], folder: Folder) -> None:
    """A folder is removed with its contents, and nothing beside it."""
    for name in ("b", "c", ".hidden"):
        storage.write_text(folder / "a" / name, "text")
    storage.write_text(folder / "a" / "d" / "e", "text")
    storage.write_text(folder / "ab", "text")
    for _ in range(2):
        storage.remove(folder / "a")
        assert storage.names(folder) == ("ab",)
    storage.remove(folder / "ab")
    assert storage.names(folder) == ()


def moved_file(storage: StateStorage[Any], folder: Folder) -> None:
    """A file is renamed into a folder that doesn't exist yet; a missing one is skipped."""
    storage.write_text(folder / "old", "text")
    for _ in range(2):
        storage.move(folder / "old", folder / "new" / "deep" / "name")
        assert storage.read_text(folder / "new" / "deep" / "name") == "text"
        assert storage.names(folder) == ("new",)
    storage.move(folder / "missing", folder / "other" / "name")
    assert storage.names(folder) == ("new",)


def moved_folder(storage: StateStorage[Any], folder: Folder) -> None:
    """A folder is renamed with its contents, hidden ones too, and nothing beside it."""
    names = ("offsets", ".hidden", "metadata")
    for name in names:
        storage.write_text(folder / "old" / name, name)
    storage.write_text(folder / "older", "text")
    for _ in range(2):
        storage.move(folder / "old", folder / "kept" / "new")
    assert {name: storage.read_text(folder / "kept" / "new" / name) for name in names} == {
        name: name for name in names
    }
    assert storage.names(folder) == ("kept", "older")


def folders_at_all_depths(storage: TableStorage[Any], folder: Folder) -> None:
    """Folders are listed by their relative paths, and removed if they are empty."""
    storage.write_text(folder / "a" / "b" / "c" / "file", "text")
    storage.write_text(folder / "file", "text")
    assert set(storage.folders(folder)) == {"a", "a/b", "a/b/c"}
    storage.remove_empty(folder / "a" / "b" / "c")
    assert storage.exists(folder / "a" / "b" / "c" / "file")
    storage.remove(folder / "a" / "b" / "c" / "file")
    storage.remove_empty(folder / "a" / "b" / "c")
    assert "a/b/c" not in storage.folders(folder)


FILES = (missing_file, written_text, created_text, concurrent_creation, folder_listing, removal)
STATE = (*FILES, moved_file, moved_folder)
TABLES = (folders_at_all_depths,)
