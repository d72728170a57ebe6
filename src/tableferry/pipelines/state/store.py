"""What a migration remembers, as small CSV files in the state volume.

    <volume>/initial_versions/pipelineId=…/targetTable=…/part-00000.csv
        the `MigrationStart`: written once, never changed
    <volume>/tracking/pipelineId=…/targetTable=…/part-00000.csv
        the `Tracking`: how far it is
    <volume>/checkpoints/targetTable=…/generation=…/<flow>/
        Structured Streaming's checkpoints
    <volume>/checkpoints/targetTable=…/generation=…/_tables.json
        the `TableIdentity` of each table that the flows fill
    <volume>/checkpoints/targetTable=…/generation=…/_versions.json
        the version of each of these tables when the flows last ran

Both files have a header and one row for each source and view, so that ``spark.read.csv`` on ``tracking``
shows the whole picture, with pipelineId and targetTable taken from the folders. Every row repeats what holds
for the whole target, and the number of rows, by which a file that was cut short is known.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args
from urllib.parse import quote, unquote

from tableferry import storage
from tableferry.errors import Busy, StateError
from tableferry.pipelines.model.flows import log_name
from tableferry.pipelines.model.identities import TableIdentity
from tableferry.pipelines.model.target_state import (
    Baseline,
    Certainty,
    MigrationStart,
    PinnedCopy,
    Stored,
    Tracking,
)
from tableferry.spark.tables import TableName

PART = "part-00000.csv"
_TABLES = "_tables.json"
_VERSIONS = "_versions.json"
_TAKEN_OVER = "takeOver"
# Earlier versions recorded a hand-over of files under such an id.
_FILES = "files:"
_LONGEST_NAME = 255
_SAFE = " ()-_.,~!@$&+;<>[]|"

_T = TypeVar("_T")


@dataclass(frozen=True)
class StateStore:
    """The state files of one pipeline in one volume.

    Attributes:
        volume: The folder that they are in.
        pipeline_id: The pipeline.
        engine: What runs its flows, to be recorded with what they have done.
    """

    volume: Path
    pipeline_id: str
    engine: str = "streaming"

    def read(self, target: TableName) -> Stored:
        """Return what is recorded of a target; absent files mean that nothing was.

        Raises:
            StateError: A file exists, but it can't be read, isn't complete, or records a hand-over of files.
        """
        generation, resetting = self._generation(target)
        if (mark := storage.read_text(self._finished_file(target))) is not None:
            # What a crash left of the other files means nothing any more.
            finished_by, _, how = mark.partition(" ")
            return Stored(
                generation=generation,
                resetting=resetting,
                finished=True,
                finished_by=finished_by,
                taken_over=how == _TAKEN_OVER,
            )
        migration_start = self._read(
            self.migration_start_file(target), partial(_read_migration_start, self.pipeline_id, target)
        )
        for baseline in migration_start.baselines.values() if migration_start else ():
            if baseline.table_id.startswith(_FILES):
                file = self.migration_start_file(target)
                raise StateError("STATE_OF_FILE_HAND_OVER", file=file, source=baseline.table, target=target)
        tracking = self._read(self.tracking_file(target), _read_tracking)
        undoing = storage.read_text(self._undoing_file(target)) is not None
        if tracking and not migration_start and not undoing:
            raise StateError(
                "BASELINES_MISSING",
                file=self.migration_start_file(target),
                tracking=self.tracking_file(target),
            )
        if migration_start and not tracking and generation:
            raise StateError(
                "TRACKING_MISSING", file=self.tracking_file(target), target=target, refreshes=generation
            )
        elsewhere = self._elsewhere(target)
        return Stored(migration_start, tracking, elsewhere, generation, resetting, undoing=undoing)

    def starts_of_others(self, known: Iterable[TableName]) -> Mapping[str, tuple[str, ...]]:
        """Return the folders of migrations of other targets than those known, by the legacy table's id.

        Such a target was renamed in the spec, or its spec is gone.
        """
        folder = self.volume / "initial_versions" / _file_name("pipelineId=", self.pipeline_id)
        mine = {_file_name("targetTable=", target.key) for target in known}
        found: dict[str, tuple[str, ...]] = {}
        for name in storage.names(folder):
            if name.startswith("targetTable=") and name not in mine:
                for table_id in self._read(folder / name / PART, _read_legacy_ids) or ():
                    found[table_id] = (*found.get(table_id, ()), name)
        return found

    def begin(self, migration_start: MigrationStart) -> bool:
        """Record where a migration starts, once; of two processes at once exactly one gets True."""
        return storage.create_text(
            self.migration_start_file(migration_start.target), _migration_start_text(migration_start)
        )

    def track(self, migration_start: MigrationStart, tracking: Tracking) -> None:
        """Write how far a target is, in place of what was written before.

        Raises:
            Busy: Another run has copied it for a later full refresh.
        """
        path = self.tracking_file(migration_start.target)
        known = self._read(path, _read_tracking)
        if known and known.copied is not None and known.copied > (tracking.copied or 0):
            raise Busy("REFRESHED_BY_ANOTHER_RUN", target=migration_start.target)
        engine = tracking.engine or self.engine
        text = _tracking_text(migration_start, replace(tracking, updated_at=datetime.now(UTC), engine=engine))
        storage.write_text(path, text)

    def adopt(self, target: TableName, other_id: str) -> None:
        """Take over what another pipeline recorded of this target; can be repeated after a crash."""
        other = StateStore(self.volume, other_id)
        stored = other.read(target)
        if stored.migration_start is not None:
            mine = replace(stored.migration_start, pipeline_id=self.pipeline_id)
            self.begin(mine)
            if stored.tracking is not None and storage.read_text(self.tracking_file(target)) is None:
                self.track(mine, stored.tracking)
        other._remove(target)

    def adopt_renamed(self, target: TableName, folder: str) -> None:
        """Rename the state folders of a target that had another name; can be repeated after a crash.

        What is recorded of the target and of its event log gets their new names. Where the migration starts
        is renamed last: until then the old name is found.
        """
        new = self.checkpoints(target)
        storage.move(new.with_name(folder), new)
        for generation in storage.names(new):
            for name in (_TABLES, _VERSIONS):
                path = new / generation / name
                if (text := storage.read_text(path)) is None:
                    continue
                recorded = json.loads(text)
                renamed = {key: target.key for key in recorded if _file_name("targetTable=", key) == folder}
                renamed |= {_log_key(old): _log_key(key) for old, key in renamed.items()}
                recorded = {renamed.get(key, key): value for key, value in recorded.items()}
                storage.write_text(path, json.dumps(recorded, indent=2))
        for moved in (self.tracking_file(target).parent, self.migration_start_file(target).parent):
            storage.move(moved.with_name(folder), moved)

    def finish(self, target: TableName) -> None:
        """Take a migration out: its state files go, its checkpoints stay, for its flows go on.

        A mark among the checkpoints says so from then on; can be repeated after a crash.
        """
        start = self.read(target).migration_start
        mark = f"{self.engine} {_TAKEN_OVER}" if start and start.take_over else self.engine
        storage.create_text(self._finished_file(target), mark)
        self._remove(target)

    def start_undo(self, target: TableName) -> None:
        """Say that a table is being given back to its old streams; until `forget` no flow runs."""
        storage.create_text(self._undoing_file(target), "")

    def forget(self, target: TableName) -> None:
        """Remove all that is recorded of a target, its checkpoints too; can be repeated after a crash."""
        self._remove(target)
        # The mark goes last.
        for name in storage.names(self.checkpoints(target)):
            if name != self._undoing_file(target).name:
                storage.remove(self.checkpoints(target) / name)
        storage.remove(self.checkpoints(target))

    def _remove(self, target: TableName) -> None:
        storage.remove(self.migration_start_file(target).parent)
        storage.remove(self.tracking_file(target).parent)

    def _finished_file(self, target: TableName) -> Path:
        return self.checkpoints(target) / "_finished"

    def _undoing_file(self, target: TableName) -> Path:
        return self.checkpoints(target) / "_undoing"

    def _resetting_file(self, target: TableName) -> Path:
        return self.checkpoints(target) / "_resetting"

    def migration_start_file(self, target: TableName) -> Path:
        """Where a target's baselines are."""
        return self._folder("initial_versions", target) / PART

    def tracking_file(self, target: TableName) -> Path:
        """Where a target's progress is."""
        return self._folder("tracking", target) / PART

    def lock_file(self, target: TableName) -> Path:
        """What a run of this target locks."""
        return self.volume / "checkpoints" / _file_name("_", target.key, ".lock")

    def checkpoint(self, target: TableName, generation: int, flow: str) -> Path:
        """Where the checkpoint of a flow is."""
        return self._generation_folder(target, generation) / _file_name("", flow)

    def checkpoints(self, target: TableName) -> Path:
        """Where a target's checkpoints are; they belong to the table, whichever pipeline fills it."""
        return self.volume / "checkpoints" / _file_name("targetTable=", target.key)

    def flows(self, target: TableName, generation: int, known: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the flows that have a checkpoint, those that the spec no longer has included.

        A name that is too long for a folder is shortened, unless it's one of the known ones.
        """
        folders = {_file_name("", name): name for name in known}
        return tuple(
            folders.get(name, unquote(name))
            for name in storage.names(self._generation_folder(target, generation))
            if name not in (_TABLES, _VERSIONS)
        )

    def identities(self, target: TableName, generation: int) -> Mapping[str, TableIdentity]:
        """Return what is recorded of the tables that a target's flows fill, by the table's key."""
        return self._recorded(target, generation, _TABLES, TableIdentity.from_json)

    def identify(self, target: TableName, generation: int, table: TableName, identity: TableIdentity) -> None:
        """Record what the rows of one table rest on, in place of what was recorded of it before."""
        identities = {**self.identities(target, generation), table.key: identity}
        text = json.dumps({key: identity.to_json() for key, identity in identities.items()}, indent=2)
        storage.write_text(self._generation_folder(target, generation) / _TABLES, text)

    def versions(self, target: TableName, generation: int) -> Mapping[str, int]:
        """Return the version of each table when a target's flows last ran, by the table's key."""
        return self._recorded(target, generation, _VERSIONS, int)

    def leave(self, target: TableName, generation: int, versions: Mapping[str, int]) -> None:
        """Record the versions that tables have when a target's flows have run."""
        text = json.dumps({**self.versions(target, generation), **versions}, indent=2)
        storage.write_text(self._generation_folder(target, generation) / _VERSIONS, text)

    def rename_flow(self, target: TableName, generation: int, old: str, new: str) -> None:
        """Give a flow's checkpoint another name; can be repeated after a crash."""
        storage.move(self.checkpoint(target, generation, old), self.checkpoint(target, generation, new))

    def start_generation(self, target: TableName, generation: int) -> None:
        """Say that a full refresh starts; until `end_reset` the next run goes on dropping."""
        storage.write_text(self._resetting_file(target), str(generation))

    def end_reset(self, target: TableName, generation: int) -> None:
        """Drop the checkpoints of the older generations, and say that everything of them is gone."""
        kept = self._generation_folder(target, generation)
        storage.make_folder(kept)
        for name in storage.names(self.checkpoints(target)):
            if name != kept.name:
                storage.remove(self.checkpoints(target) / name)
        storage.remove(self._resetting_file(target))

    def _generation(self, target: TableName) -> tuple[int, bool]:
        generations = [
            int(name.removeprefix("generation="))
            for name in storage.names(self.checkpoints(target))
            if name.removeprefix("generation=").isdigit()
        ]
        mark = storage.read_text(self._resetting_file(target))
        if mark is None:
            return max(generations, default=0), False
        if not mark.isdigit():
            raise StateError(
                "STATE_FILE_INVALID", file=self._resetting_file(target), reason=f"its content is {mark!r}"
            )
        return int(mark), True

    def _elsewhere(self, target: TableName) -> tuple[str, ...]:
        root = self.volume / "initial_versions"
        folder, mine = _file_name("targetTable=", target.key), _file_name("pipelineId=", self.pipeline_id)
        others = (name for name in storage.names(root) if name != mine)
        return tuple(
            unquote(name.removeprefix("pipelineId="))
            for name in others
            if name.startswith("pipelineId=") and storage.exists(root / name / folder / PART)
        )

    def _generation_folder(self, target: TableName, generation: int) -> Path:
        return self.checkpoints(target) / f"generation={generation}"

    def _folder(self, kind: str, target: TableName) -> Path:
        pipeline = self.volume / kind / _file_name("pipelineId=", self.pipeline_id)
        return pipeline / _file_name("targetTable=", target.key)

    def _recorded(
        self, target: TableName, generation: int, name: str, parse: Callable[[Any], _T]
    ) -> Mapping[str, _T]:
        path = self._generation_folder(target, generation) / name
        if (text := storage.read_text(path)) is None:
            return {}
        try:
            return {key: parse(value) for key, value in json.loads(text).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise StateError("CHECKPOINT_RECORD_INVALID", file=path, reason=error, target=target) from error

    def _read(self, path: Path, parse: Callable[[list[dict[str, str]]], _T]) -> _T | None:
        text = storage.read_text(path)
        if text is None:
            return None
        try:
            return parse(_rows(text))
        except (ValueError, KeyError, csv.Error) as error:
            raise StateError("BASELINE_FILE_INVALID", file=path, reason=error) from error


def _log_key(target_key: str) -> str:
    """Return the key of the event log of the target with a key."""
    return log_name(TableName(tuple(target_key.split(".")))).key


_BEGINNING = (
    "tableName", "viewName", "version", "sourceTableId", "within",
    "copyTable", "copyTableId", "copyVersion", "recordedAt", "oldStreams", "handOver", "rows",
)  # fmt: skip
_TRACKING = (
    "tableName", "viewName", "version", "currentVersion", "ready",
    "copied", "copiedRows", "verified", "updatedAt", "startedFlows", "engine", "rows",
)  # fmt: skip


def _migration_start_text(migration_start: MigrationStart) -> str:
    copy = migration_start.copy
    batches = ";".join(f"{query}:{batch}" for query, batch in sorted(migration_start.batches.items()))
    pinned = (
        copy.table,
        copy.table_id,
        copy.version,
        migration_start.recorded_at.isoformat(),
        batches,
        migration_start.certainty,
    )
    rows = [
        (baseline.table, view, baseline.version, baseline.table_id, baseline.within, *pinned)
        for baseline in sorted(migration_start.baselines.values())
        for view in baseline.views or ("",)
    ]
    return _text(_BEGINNING, rows or [("", "", "", "", "", *pinned)])


def _read_migration_start(
    pipeline_id: str, target: TableName, rows: Sequence[Mapping[str, str]]
) -> MigrationStart:
    first = rows[0]
    baselines: dict[str, Baseline] = {}
    for row in rows:
        if row["tableName"]:
            table = _name(row["tableName"])
            first_view = Baseline(
                table, row["sourceTableId"], int(row["version"]), within=row.get("within", "")
            )
            known = baselines.get(table.key, first_view)
            baselines[table.key] = replace(known, views=(*known.views, *filter(None, [row["viewName"]])))
    copy = PinnedCopy(_name(first["copyTable"]), first["copyTableId"], int(first["copyVersion"]))
    recorded_at = datetime.fromisoformat(first["recordedAt"])
    old_streams = (entry.partition(":") for entry in first.get("oldStreams", "").split(";") if entry)
    batches = {query: int(batch) for query, _, batch in old_streams}
    # A release that didn't record it knew of no proofs.
    certainty: Certainty = first.get("handOver") or ("recorded" if batches else "assumed")  # type: ignore[assignment]
    if certainty not in get_args(Certainty):
        raise ValueError(f"handOver is {certainty}")
    return MigrationStart(pipeline_id, target, copy, baselines, recorded_at, batches, certainty)


def _read_legacy_ids(rows: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return (rows[0]["copyTableId"],)


def _tracking_text(migration_start: MigrationStart, tracking: Tracking) -> str:
    updated_at = tracking.updated_at.isoformat() if tracking.updated_at else None
    started = ";".join(quote(name, safe=" ") for name in tracking.started)
    whole = (
        tracking.copied,
        tracking.copied_rows,
        tracking.verified,
        updated_at,
        started,
        tracking.engine,
    )
    rows = []
    for key, baseline in sorted(migration_start.baselines.items()):
        current = tracking.current.get(key, baseline.version)
        # A flow can start at an offset of Kafka before anything comes behind it.
        ready = "true" if current > baseline.version or baseline.of_kafka else "false"
        rows += [
            (baseline.table, view, baseline.version, current, ready, *whole)
            for view in baseline.views or ("",)
        ]
    return _text(_TRACKING, rows or [("", "", "", "", "", *whole)])


def _read_tracking(rows: list[dict[str, str]]) -> Tracking:
    first = rows[0]
    return Tracking(
        {_name(row["tableName"]).key: int(row["currentVersion"]) for row in rows if row["tableName"]},
        int(first["copied"]) if first["copied"] else None,
        int(first["copiedRows"]) if first["copiedRows"] else None,
        first["verified"],
        datetime.fromisoformat(first["updatedAt"]) if first["updatedAt"] else None,
        tuple(unquote(name) for name in first.get("startedFlows", "").split(";") if name),
        first.get("engine", ""),
    )


def _text(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([*row, len(rows)] for row in rows)
    return out.getvalue()


def _rows(text: str) -> list[dict[str, str]]:
    """Read the rows of a state file, and make sure that none is missing."""
    lines = list(csv.reader(io.StringIO(text), strict=True))
    if not text.endswith("\n") or len(lines) < 2:
        raise ValueError("it was cut short")
    header, *rows = lines
    if any(len(row) != len(header) for row in rows):
        raise ValueError("a row has too few or too many fields")
    records = [dict(zip(header, row, strict=True)) for row in rows]
    if any(int(row["rows"]) != len(rows) for row in records):
        raise ValueError(f"it was cut short: {len(rows)} of {records[0]['rows']} rows are left")
    return records


def _name(text: str) -> TableName:
    return TableName.at(text) if "/" in text else TableName.parse(text)


def _file_name(before: str, value: str, after: str = "") -> str:
    """Return the name of a value's file, as Spark escapes values in the names of partition folders.

    A name of more than 255 bytes, which file systems refuse, is cut and gets a hash of the value.
    """
    escaped = quote(value, safe=_SAFE)
    most = _LONGEST_NAME - len(before) - len(after)
    if len(escaped) > most:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        kept = value
        while len(escaped := f"{quote(kept, safe=_SAFE)}~{digest}") > most:
            kept = kept[:-1]
    return before + escaped + after
