"""The state of a pipeline's targets, as one JSON document per target in the state volume.

    <volume>/checkpoints/targetTable=…/state.json                       the `TargetState` of the target
    <volume>/checkpoints/targetTable=…/generation=…/<flow>/             checkpoints of Structured Streaming
    <volume>/initial_versions/pipelineId=…/targetTable=…/part-….csv     projection: the `MigrationStart`
    <volume>/tracking/pipelineId=…/targetTable=…/part-….csv             projection: the `Tracking`

Each write replaces the document atomically, and then the projections. Only the projection of a migration's
start is created before the document: at most one of several concurrent runs can create it.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote

from pydantic import TypeAdapter, ValidationError

from tableferry import storage
from tableferry.errors import Busy, StateError
from tableferry.pipelines.model.flows import event_log_name
from tableferry.pipelines.model.identities import TableIdentity
from tableferry.pipelines.model.target_state import Cutover, MigrationStart, TargetState, Tracking
from tableferry.pipelines.state import older_layout
from tableferry.pipelines.state.csv_projection import (
    start_from_csv,
    start_to_csv,
    tracking_from_csv,
    tracking_to_csv,
)
from tableferry.spark.tables import TableName

PART = "part-00000.csv"
_DOCUMENT = "state.json"
# Older versions recorded a hand-over of files under such an id.
_FILES = "files:"
_LONGEST_NAME = 255
_SAFE = " ()-_.,~!@$&+;<>[]|"

_T = TypeVar("_T")
_JSON = TypeAdapter(TargetState)


@dataclass(frozen=True)
class StateStore:
    """The state of one pipeline's targets in one volume.

    Methods that write may be repeated after a crash. Callers hold the target's lock.

    Attributes:
        volume: The folder of the state.
        pipeline_id: The pipeline.
        engine: The engine that runs its flows, recorded with their progress.
        renamed_folders: The state folders of targets that were renamed, by the key of the new name. Such a
            target is read as if `adopt_renamed` had already adopted its state.
    """

    volume: Path
    pipeline_id: str
    engine: str = "streaming"
    renamed_folders: Mapping[str, str] = field(default_factory=dict, hash=False)

    def read(self, target: TableName) -> TargetState:
        """Return the recorded state of a target; missing files mean that nothing was recorded.

        Raises:
            StateError: A file can't be read, is incomplete, or records a hand-over of files.
        """
        folder = self.renamed_folders.get(target.key)
        state = self._load_renamed(target, folder) if folder else self._load(target)
        start = state.migration_start
        for baseline in start.baselines.values() if start else ():
            if baseline.table_id.startswith(_FILES):
                file = self.migration_start_file(target)
                raise StateError("STATE_OF_FILE_HAND_OVER", file=file, source=baseline.table, target=target)
        if start is None:
            return state if state.finished else replace(state, elsewhere=self._other_pipelines(target))
        if start.pipeline_id != self.pipeline_id:
            return replace(state, migration_start=None, tracking=None, elsewhere=(start.pipeline_id,))
        return state

    def _load(self, target: TableName) -> TargetState:
        """Return the recorded state of a target, also if another pipeline recorded it."""
        document = self._document(target)
        if document is None:
            return self._load_older(target)
        start = document.migration_start
        if start is not None and start.target.key != target.key:
            # A rename of the target hasn't ended: until then, the state belongs to the old name.
            return replace(document, migration_start=None, tracking=None)
        if start is None and not document.finished and not document.undoing:
            # A run that crashed has created the projection, but hasn't written the document.
            start = self._projected_start(self.migration_start_file(target), target)
        return replace(document, migration_start=start)

    def _load_older(self, target: TableName) -> TargetState:
        state = older_layout.read(self.target_folder(target), target)
        if state.finished:
            return state
        start_file, tracking_file = self.migration_start_file(target), self.tracking_file(target)
        start = self._projected_start(start_file, target)
        tracking = self._projected_tracking(tracking_file)
        if tracking and not start and not state.undoing:
            raise StateError("BASELINES_MISSING", file=start_file, tracking=tracking_file)
        if start and not tracking and state.generation:
            raise StateError(
                "TRACKING_MISSING", file=tracking_file, target=target, refreshes=state.generation
            )
        return replace(state, migration_start=start, tracking=tracking)

    def find_unclaimed_folders(self, known: Mapping[str, TargetState]) -> Mapping[str, tuple[str, ...]]:
        """Return the folders of migrations of other targets than the known ones, by the legacy table's id.

        Such a target was renamed in the spec, or its spec was removed. The known ones are those of the
        project, by `TableName.key`.
        """
        folder = self.volume / "initial_versions" / _file_name("pipelineId=", self.pipeline_id)
        known_folders = {_file_name("targetTable=", key) for key in known}
        # A rename that crashed near its end leaves the projection under the old name.
        renamed = {_start_id(state.migration_start) for state in known.values() if state.migration_start}
        found: dict[str, tuple[str, ...]] = {}
        for name in storage.names(folder):
            if not name.startswith("targetTable=") or name in known_folders:
                continue
            start = self._projected_start(folder / name / PART, TableName())
            if start is not None and _start_id(start) not in renamed:
                table_id = start.copy.table_id
                found[table_id] = (*found.get(table_id, ()), name)
        return found

    def record_start(self, migration_start: MigrationStart) -> bool:
        """Record the baselines and the pinned copy of a migration, unless a start is recorded already.

        Returns:
            True if this call recorded them. Of concurrent calls of one pipeline, at most one returns True.
        """
        target = migration_start.target
        state = self._load(target)
        if state.migration_start is not None:
            return False
        if not storage.create_text(self.migration_start_file(target), start_to_csv(migration_start)):
            return False
        self._write(target, replace(state, migration_start=migration_start))
        return True

    def record_progress(self, migration_start: MigrationStart, tracking: Tracking) -> None:
        """Record the progress of a target.

        Raises:
            Busy: Another run has already copied it for a later full refresh.
        """
        target = migration_start.target
        state = self._load(target)
        known = state.tracking
        if known and known.copied is not None and known.copied > (tracking.copied or 0):
            raise Busy("REFRESHED_BY_ANOTHER_RUN", target=target)
        engine = tracking.engine or self.engine
        tracking = replace(tracking, updated_at=datetime.now(UTC), engine=engine)
        self._write(target, replace(state, migration_start=migration_start, tracking=tracking))
        self._project(migration_start, tracking)

    def adopt(self, target: TableName, other_id: str) -> None:
        """Adopt the state that another pipeline recorded of this target."""
        other = StateStore(self.volume, other_id)
        state = self._load(target)
        if state.migration_start is None:
            state = other._load(target)
        if state.migration_start is not None:
            start = replace(state.migration_start, pipeline_id=self.pipeline_id)
            self._write(target, replace(state, migration_start=start))
            self._project(start, state.tracking)
        other._remove_projections(target)

    def adopt_renamed(self, target: TableName, folder: str) -> None:
        """Give this target the state of a target that had another name.

        The projections are renamed last: until then, `find_unclaimed_folders` finds the old name, which is
        `folder`.
        """
        state = replace(self, renamed_folders={target.key: folder})._load_renamed(target, folder)
        new = self.target_folder(target)
        storage.move(new.with_name(folder), new)
        self._write(target, state)
        for file in (self.tracking_file(target), self.migration_start_file(target)):
            storage.move(file.parent.with_name(folder), file.parent)

    def _load_renamed(self, target: TableName, folder: str) -> TargetState:
        """Return the state in a folder of another name as the state of this target."""
        state = self._document(target)
        if state is None:
            tracking = self._projected_tracking(self.tracking_file(target).parent.with_name(folder) / PART)
            state = replace(older_layout.read(self.target_folder(target), target), tracking=tracking)
        start = state.migration_start or self._projected_start(
            self.migration_start_file(target).parent.with_name(folder) / PART, target
        )
        renamed = {
            key: target.key
            for key in (*state.tables, *state.versions)
            if _file_name("targetTable=", key) == folder
        }
        renamed |= {_log_key(old): _log_key(new_key) for old, new_key in renamed.items()}
        return replace(
            state,
            migration_start=replace(start, target=target) if start else None,
            tables={renamed.get(key, key): identity for key, identity in state.tables.items()},
            versions={renamed.get(key, key): version for key, version in state.versions.items()},
        )

    def finish(self, target: TableName) -> None:
        """Remove the migration of a target from its state. The state of its flows stays: they continue."""
        state = self._load(target)
        if not state.finished:
            start = state.migration_start
            self._write(
                target,
                replace(
                    state,
                    migration_start=None,
                    tracking=None,
                    finished=True,
                    finished_by=self.engine,
                    taken_over=start is not None and start.is_take_over,
                ),
            )
        self._remove_projections(target)

    def record_cutover(self, target: TableName, cutover: Cutover | None) -> None:
        """Record how far a cutover is, and the legacy table's current name; None removes the cutover."""
        state = self._load(target)
        start, current = state.migration_start, cutover or state.cutover
        if start is not None and current is not None:
            name = current.legacy_name if cutover else current.name
            start = replace(start, copy=replace(start.copy, table=name))
        self._write(target, replace(state, migration_start=start, cutover=cutover))
        if start is not None:
            self._project(start, state.tracking)

    def start_undo(self, target: TableName) -> None:
        """Record that a table is returned to its old streams. Until `remove`, no flow runs."""
        self._write(target, replace(self._load(target), undoing=True))

    def remove(self, target: TableName) -> None:
        """Remove the state and the checkpoints of a target."""
        self._remove_projections(target)
        # The document is removed last: it records that an undo is in progress.
        folder = self.target_folder(target)
        for name in storage.names(folder):
            if name != _DOCUMENT:
                storage.remove(folder / name)
        storage.remove(folder)

    def record_table_identity(
        self, target: TableName, generation: int, table: TableName, identity: TableIdentity
    ) -> None:
        """Record the identity of a table that a target's flows fill.

        Raises:
            Busy: Another run has started a later full refresh.
        """
        state = self._of_generation(target, generation)
        self._write(target, replace(state, tables={**state.tables, table.key: identity}))

    def record_versions(self, target: TableName, generation: int, versions: Mapping[str, int]) -> None:
        """Record the versions of tables after a target's flows have run, by the table's key.

        Raises:
            Busy: Another run has started a later full refresh.
        """
        state = self._of_generation(target, generation)
        self._write(target, replace(state, versions={**state.versions, **versions}))

    def read_identities(self, target: TableName, generation: int) -> Mapping[str, TableIdentity]:
        """Return the recorded identities of the tables of a generation, by the table's key."""
        return self._load(target).identities_of(generation)

    def read_versions(self, target: TableName, generation: int) -> Mapping[str, int]:
        """Return the recorded versions of the tables of a generation, by the table's key."""
        return self._load(target).versions_of(generation)

    def start_generation(self, target: TableName, generation: int) -> None:
        """Record that a full refresh starts. Until `end_reset`, the next run continues to drop."""
        self._write(target, replace(self._load(target), generation=generation, resetting=True))

    def end_reset(self, target: TableName, generation: int) -> None:
        """Drop the checkpoints of older generations, and record that nothing of them is left."""
        folder, kept = self.target_folder(target), self._generation_folder(target, generation)
        for name in storage.names(folder):
            if name not in (kept.name, _DOCUMENT):
                storage.remove(folder / name)
        self._write(target, replace(self._load(target), resetting=False, tables={}, versions={}))

    def rename_flow(self, target: TableName, generation: int, old: str, new: str) -> None:
        """Rename the checkpoint of a flow."""
        storage.move(
            self.checkpoint_folder(target, generation, old), self.checkpoint_folder(target, generation, new)
        )

    def list_flows(self, target: TableName, generation: int, known: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the flows that have a checkpoint, including flows that the spec doesn't have.

        A name that is too long for a folder is shortened, unless it is one of the known ones.
        """
        folders = {_file_name("", name): name for name in known}
        return tuple(
            folders.get(name, unquote(name))
            for name in storage.names(self._generation_folder(target, generation))
            if name not in older_layout.RECORDS
        )

    def migration_start_file(self, target: TableName) -> Path:
        """Return the path of the projection of a target's baselines."""
        return self._projection_folder("initial_versions", target) / PART

    def tracking_file(self, target: TableName) -> Path:
        """Return the path of the projection of a target's progress."""
        return self._projection_folder("tracking", target) / PART

    def state_file(self, target: TableName) -> Path:
        """Return the path of a target's document."""
        return self.target_folder(target) / _DOCUMENT

    def lock_file(self, target: TableName) -> Path:
        """Return the path of the file that a run of this target locks."""
        return self.volume / "checkpoints" / _file_name("_", target.key, ".lock")

    def checkpoint_folder(self, target: TableName, generation: int, flow: str) -> Path:
        """Return the folder of a flow's checkpoint."""
        return self._generation_folder(target, generation) / _file_name("", flow)

    def target_folder(self, target: TableName) -> Path:
        """Return the folder of a target's checkpoints and its document; all pipelines share it."""
        folder = self.volume / "checkpoints" / _file_name("targetTable=", target.key)
        if target.key in self.renamed_folders:
            old = folder.with_name(self.renamed_folders[target.key])
            # A run that crashed may have renamed the folder already.
            return old if storage.names(old) else folder
        return folder

    def _of_generation(self, target: TableName, generation: int) -> TargetState:
        state = self._load(target)
        if state.generation > generation:
            raise Busy("REFRESHED_BY_ANOTHER_RUN", target=target)
        return state

    def _document(self, target: TableName) -> TargetState | None:
        path = self.state_file(target)
        text = storage.read_text(path)
        if text is None:
            return None
        try:
            return _JSON.validate_json(text)
        except ValidationError as error:
            reason = f"{error.errors()[0]['msg']}"
            raise StateError("STATE_FILE_INVALID", file=path, reason=reason) from error

    def _write(self, target: TableName, state: TargetState) -> None:
        text = _JSON.dump_json(state, indent=2, exclude={"elsewhere"}, exclude_defaults=True)
        storage.write_text(self.state_file(target), text.decode())

    def _projected_start(self, path: Path, target: TableName) -> MigrationStart | None:
        return self._projected(path, partial(start_from_csv, self.pipeline_id, target))

    def _projected_tracking(self, path: Path) -> Tracking | None:
        return self._projected(path, tracking_from_csv)

    def _projected(self, path: Path, parse: Callable[[str], _T]) -> _T | None:
        text = storage.read_text(path)
        if text is None:
            return None
        try:
            return parse(text)
        except (ValueError, KeyError, csv.Error) as error:
            raise StateError("BASELINE_FILE_INVALID", file=path, reason=error) from error

    def _project(self, start: MigrationStart, tracking: Tracking | None) -> None:
        """Write the CSV files of a target."""
        storage.write_text(self.migration_start_file(start.target), start_to_csv(start))
        if tracking is not None:
            storage.write_text(self.tracking_file(start.target), tracking_to_csv(start, tracking))

    def _remove_projections(self, target: TableName) -> None:
        storage.remove(self.migration_start_file(target).parent)
        storage.remove(self.tracking_file(target).parent)

    def _other_pipelines(self, target: TableName) -> tuple[str, ...]:
        """Return the other pipelines whose projections contain a start of this target's migration."""
        root = self.volume / "initial_versions"
        folder, own = _file_name("targetTable=", target.key), _file_name("pipelineId=", self.pipeline_id)
        return tuple(
            unquote(name.removeprefix("pipelineId="))
            for name in storage.names(root)
            if name.startswith("pipelineId=") and name != own and storage.exists(root / name / folder / PART)
        )

    def _generation_folder(self, target: TableName, generation: int) -> Path:
        return self.target_folder(target) / f"generation={generation}"

    def _projection_folder(self, kind: str, target: TableName) -> Path:
        pipeline = self.volume / kind / _file_name("pipelineId=", self.pipeline_id)
        return pipeline / _file_name("targetTable=", target.key)


def _start_id(start: MigrationStart) -> tuple[str, datetime]:
    return start.copy.table_id, start.recorded_at


def _log_key(target_key: str) -> str:
    """Return the key of the event log of the target with a key."""
    return event_log_name(TableName(tuple(target_key.split(".")))).key


def _file_name(before: str, value: str, after: str = "") -> str:
    """Return a file name for a value, escaped as Spark escapes the names of partition folders.

    File systems refuse names of more than 255 bytes: such a name is cut and ends with a hash of the value.
    """
    escaped = quote(value, safe=_SAFE)
    most = _LONGEST_NAME - len(before) - len(after)
    if len(escaped) > most:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        kept = value
        while len(escaped := f"{quote(kept, safe=_SAFE)}~{digest}") > most:
            kept = kept[:-1]
    return before + escaped + after
