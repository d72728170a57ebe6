"""Checks of the storage of a migration's state: a local folder, a volume, or an object store.

They use the functions of `tableferry.storage` that a migration uses.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tableferry import storage
from tableferry.doctor.check import (
    Check,
    Observation,
    Place,
    Route,
    Source,
    failure,
    not_applicable,
    success,
)
from tableferry.doctor.environment import Environment
from tableferry.storage import AnyPath

WRITERS = 8

_VOLUMES = (Source("Limits of volumes", "https://docs.databricks.com/aws/en/volumes"),)
_FILES_API = (*_VOLUMES, Source("Files API", "https://docs.databricks.com/api/workspace/files/upload"))


def _in_folder(try_folder: Callable[[AnyPath], Observation], env: Environment) -> Observation:
    """Make a check in the scratch folder of the state."""
    if env.state_folder is None:
        return not_applicable("no state folder is given: pass --state")
    return try_folder(env.state_folder)


def _write_and_read(folder: AnyPath) -> Observation:
    file = folder / "written" / "state.json"
    for text in ("first\n", "second\n"):
        storage.write_text(file, text)
        if (read := storage.read_text(file)) != text:
            return failure(f"a file that was written with {text!r} has {read!r}")
    if storage.names(folder / "written") != ("state.json",):
        return failure(f"the folder lists {', '.join(storage.names(folder / 'written'))}")
    storage.remove(file)
    if storage.exists(file):
        return failure("a file still exists after it was removed")
    return success("a file was written, replaced, listed and removed")


def _create_once(folder: AnyPath) -> Observation:
    file = folder / "created" / "baseline.json"
    created = storage.create_text(file, "first\n"), storage.create_text(file, "second\n")
    read = storage.read_text(file)
    if created != (True, False) or read != "first\n":
        return failure(f"creating a file twice returned {created[0]} and {created[1]}, and it has {read!r}")
    return success("the second writer was refused, and the first text stayed")


def _concurrent_writers(folder: AnyPath) -> Observation:
    file = folder / "concurrent" / "baseline.json"
    with ThreadPoolExecutor(WRITERS) as pool:
        created = list(pool.map(lambda writer: storage.create_text(file, f"{writer}\n"), range(WRITERS)))
    winners = [str(writer) for writer, won in enumerate(created) if won]
    text = (storage.read_text(file) or "").strip()
    if winners != [text]:
        return failure(f"{len(winners)} of {WRITERS} concurrent writers created the file")
    return success(f"one of {WRITERS} concurrent writers created the file, and its text stayed")


def _rename(folder: AnyPath) -> Observation:
    old, new = folder / "old", folder / "kept" / "new"
    for name in ("metadata", ".hidden"):
        storage.write_text(old / name, name)
    storage.move(old, new)
    found = {name: storage.read_text(new / name) for name in ("metadata", ".hidden")}
    if found != {"metadata": "metadata", ".hidden": ".hidden"} or storage.all_names(old):
        return failure(f"after a rename, the new folder has {found}, and the old one still has files")
    return success("a folder was renamed with its hidden files")


STATE_CHECKS = (
    Check(
        name="state-folder",
        place=Place.STATE,
        routes=(Route.PIPELINES,),
        proves="Files of the state can be written, replaced, listed and removed.",
        remedy="Grant this identity READ VOLUME and WRITE VOLUME, or write access to the folder.",
        observe=partial(_in_folder, _write_and_read),
        sources=_VOLUMES,
    ),
    Check(
        name="state-put-if-absent",
        place=Place.STATE,
        routes=(Route.PIPELINES,),
        proves="A state file is created only if it is missing, so a baseline is written once.",
        remedy="Use a volume of Unity Catalog, a local disk, or an object store with conditional writes.",
        observe=partial(_in_folder, _create_once),
        sources=_FILES_API,
    ),
    Check(
        name="state-two-writers",
        place=Place.STATE,
        routes=(Route.PIPELINES,),
        proves="One of several concurrent writers creates a state file, and the others are refused.",
        remedy="Use a volume of Unity Catalog, a local disk, or an object store with conditional writes.",
        observe=partial(_in_folder, _concurrent_writers),
        sources=_FILES_API,
    ),
    Check(
        name="state-rename",
        place=Place.STATE,
        routes=(Route.PIPELINES,),
        proves="A folder of the state can be renamed with all of its files.",
        remedy="Grant this identity the right to write and delete in the state's folder.",
        observe=partial(_in_folder, _rename),
        sources=_VOLUMES,
    ),
)
