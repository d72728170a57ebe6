"""State that versions before ``state.json`` wrote. The first write of a document replaces it.

    <volume>/checkpoints/targetTable=…/_finished, _undoing, _resetting    marks
    <volume>/checkpoints/targetTable=…/generation=…/_tables.json          the tables' identities
    <volume>/checkpoints/targetTable=…/generation=…/_versions.json        the tables' versions after a run

The CSV files of `csv_projection` contained the start and the progress of the migration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from tableferry import storage
from tableferry.errors import StateError
from tableferry.pipelines.model.identities import TableIdentity
from tableferry.pipelines.model.target_state import TargetState
from tableferry.spark.tables import TableName

_FINISHED, _UNDOING, _RESETTING = "_finished", "_undoing", "_resetting"
_TABLES, _VERSIONS = RECORDS = ("_tables.json", "_versions.json")
# `_finished` contains the engine, and this after a take-over.
_TAKEN_OVER = "takeOver"

_T = TypeVar("_T")


def read(checkpoints: Path, target: TableName) -> TargetState:
    """Return the state of a target without a document, apart from its start and its progress.

    Raises:
        StateError: A file is incomplete.
    """
    generation, resetting = _generation(checkpoints)
    # A full refresh drops the tables of the generation before.
    folder = checkpoints / f"generation={generation - 1 if resetting else generation}"
    state = TargetState(
        generation=generation,
        resetting=resetting,
        undoing=storage.read_text(checkpoints / _UNDOING) is not None,
        tables=_records(folder / _TABLES, TableIdentity.from_json, target),
        versions=_records(folder / _VERSIONS, int, target),
    )
    mark = storage.read_text(checkpoints / _FINISHED)
    if mark is None:
        return state
    engine, _, suffix = mark.partition(" ")
    return replace(state, finished=True, finished_by=engine, taken_over=suffix == _TAKEN_OVER)


def _generation(checkpoints: Path) -> tuple[int, bool]:
    """Return the generation, and whether its full refresh is still dropping the one before."""
    names = storage.names(checkpoints)
    numbers = [name.removeprefix("generation=") for name in names if name.startswith("generation=")]
    mark = storage.read_text(checkpoints / _RESETTING)
    if mark is None:
        return max((int(number) for number in numbers if number.isdigit()), default=0), False
    if not mark.isdigit():
        raise StateError(
            "STATE_FILE_INVALID", file=checkpoints / _RESETTING, reason=f"its content is {mark!r}"
        )
    return int(mark), True


def _records(path: Path, parse: Callable[[Any], _T], target: TableName) -> Mapping[str, _T]:
    text = storage.read_text(path)
    if text is None:
        return {}
    try:
        return {key: parse(value) for key, value in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise StateError("CHECKPOINT_RECORD_INVALID", file=path, reason=error, target=target) from error
