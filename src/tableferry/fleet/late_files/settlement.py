"""Find late files, and append their rows to the new table or ask a person to decide."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from time import sleep

from tableferry.errors import TableError
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.target import Target, read_target
from tableferry.fleet.hive_copy.update_plan import plan_columns
from tableferry.fleet.hive_tables import partition_conditions
from tableferry.fleet.hive_tables.partitions import WHOLE, Partition, nulls_first, parse
from tableferry.fleet.hive_tables.progress_properties import REPLACED, TARGET, ShadowProgress
from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.fleet.jobs import steps
from tableferry.fleet.jobs.job import Job, PauseReason, TargetFormat
from tableferry.fleet.late_files.appends import LateFile, append_late_files
from tableferry.fleet.late_files.classification import (
    Evidence,
    Findings,
    classify,
    has_delta_name,
    run_that_wrote,
)
from tableferry.fleet.late_files.file_record import FileRecord
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse.context import DecisionRequired, Warehouse
from tableferry.fleet.warehouse.hive_files import list_files
from tableferry.fleet.warehouse.step_run import StepRun, pausing
from tableferry.formats.hive.locations import below, escape_wildcards, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

_log = logging.getLogger(__name__)

# The number of retries, and the seconds between them, while an uncommitted write may be in progress.
_RETRIES, _PAUSE = 5, 2.0

# The maximum number of partitions in the repair statements of a message.
_REPAIRED = 20


class LateFilesError(DecisionRequired):
    """Another process wrote to the Hive copy's directories after the switch, and a person must decide."""


@dataclass(frozen=True)
class Settlement:
    """The result of a check for late files.

    Attributes:
        partitions: The copy's partitions that must be rewritten.
        taken: Files whose rows are now in the new table, or aren't needed.
        reported: Files of this check that a person accepted, or whose rows were appended.
        record: The record to which these files are added after the partitions are rewritten; None if there is
            no record, so that late files can't be found.
        lost: A record whose folder a person removed, perhaps with the files of rewritten partitions.
    """

    partitions: frozenset[Partition] = frozenset()
    taken: tuple[ListedFile, ...] = ()
    reported: tuple[ListedFile, ...] = ()
    record: FileRecord | None = None
    lost: FileRecord | None = None

    def record_new_files(self, target: Target, marks: ShadowProgress) -> None:
        """Record the files that the new table's log has added to the same directories since this check."""
        if self.record is not None and target.shared is not None:
            self.record.add(_classify_files(self.record, target, marks).logged)

    def finish(self) -> None:
        """Record the taken files as known, and the removed files as settled."""
        if self.record is None:
            return
        if self.taken:
            self.record.add(self.taken)
        # Settled files aren't reported again.
        if gone := set(self.reported).difference(self.taken):
            self.record.add(gone, settled=True)

    def directories_written_by_others(
        self, copy: HiveCopy, folder: str, directories: Sequence[str]
    ) -> frozenset[str]:
        """Return the directories of shadow runs into which another process wrote since this check.

        They aren't removed, so that the next check finds these files.
        """
        listed = list_files(copy.warehouse, directories) if directories else []
        unknown = {file for file in listed if file.size and run_that_wrote(file.path, folder) is None}
        if unknown and self.record is not None:
            unknown.difference_update(*self.record.files(), self.taken, self.reported)
        return frozenset(
            directory
            for directory in directories
            if any(below(file.path, directory) is not None for file in unknown)
        )

    def record_settled(self) -> None:
        """Record the files as settled, if this run doesn't rewrite their partitions."""
        if self.record is not None and self.reported:
            self.record.add(self.reported, settled=True)


def check_late(step: steps.CheckLate, run: StepRun) -> Job:
    """Find and settle late files before the Hive copy is archived or gets its name back.

    Raises:
        StepPaused: A person must decide.
        TableError: A file may belong to an uncommitted write, or a directory can't be listed.
    """
    with pausing(PauseReason.WRITTEN_LATE, LateFilesError):
        copy = HiveCopy.read(run.warehouse, step.hive)
        target = read_target(run.warehouse, step.target, step.format)
        marks = read_marks(copy, target, step.format, run.job.shadow_watermark)
        settled = settle_late_files(
            copy, target, step.target, step.format, marks, decide=step.decide, accept=run.job.record.accept
        )
        settled.record_settled()
    return record_late_file_check(run.job, step.hive, settled.record is not None)


def record_late_file_check(job: Job, hive: TableName, late_files_checked: bool) -> Job:
    """Record on a job that late files couldn't be determined; a complete check removes the record."""
    sentence = (
        f"late files can't be determined: {hive} has no record of the files at the switch, because an "
        "earlier version made the switch or the property tableferry.known_files was removed; compare its "
        "directories with the new table's files before you drop it"
    )
    updated = job.with_record(late_files_not_looked_for="" if late_files_checked else sentence)
    if not late_files_checked and updated != job:
        _log.warning("%s: %s", job.name, sentence)
    return updated


def read_marks(copy: HiveCopy, target: Target, form: TargetFormat, watermark: str | None) -> ShadowProgress:
    """Read an earlier run's progress from the Hive copy's properties.

    `watermark` is the version of the target when it was created. A Delta version is meaningless for a
    recreated target, so it's ignored then.
    """
    is_recreated = copy.properties.get(TARGET, target.id) != target.id
    given = None if is_recreated and form is TargetFormat.DELTA else watermark
    return ShadowProgress.read(copy.properties, copy.location, target.id, given)


def settle_late_files(
    copy: HiveCopy,
    target: Target,
    name: TableName,
    form: TargetFormat,
    marks: ShadowProgress,
    *,
    decide: bool = False,
    accept: str = "",
    dry_run: bool = False,
) -> Settlement:
    """Find files that other writers left in the copy's directories, and append the rows of late files.

    With `decide`, files that may belong to an uncommitted write are an error; otherwise the next run checks
    them. A person accepts a decision with `LateFilesError.found` of the refusal.

    Raises:
        LateFilesError: A person must decide on late files; or files were replaced or removed.
        TableError: Files may belong to an uncommitted write.
    """
    record = FileRecord.of(copy.warehouse, copy.properties)
    if record is None:
        return Settlement()
    if not record.exists():
        return Settlement(lost=record)
    findings = _classify_files(record, target, marks).with_overwrites_decided(
        lambda decided: _is_accepted(decided, accept)
    )
    adopted: tuple[ListedFile, ...] = ()
    if target.shared is None:
        # A person added files of the copy's directories to the new table.
        adopted = findings.logged
    elif findings.logged and not dry_run:
        record.add(findings.logged)
    # The commit of an undecided file may have been written since the check, or may still be in progress. Only
    # the files of the first check are awaited, because another write may always be in progress; the next run
    # finds newer files.
    waiting = {file.path for file in findings.undecided} if decide else set[str]()
    for _ in range(_RETRIES):
        if not waiting:
            break
        sleep(_PAUSE)
        findings = _classify_files(record, read_target(copy.warehouse, name, form), marks)
        findings = findings.with_overwrites_decided(lambda decided: _is_accepted(decided, accept))
        waiting &= {file.path for file in findings.undecided}
    if waiting:
        raise TableError("FILES_MAY_BE_UNCOMMITTED", table=name, files=sorted(waiting), folder=record.root)
    rewrite = _partitions_of_unfinished_runs(copy, record, marks, findings.unfinished)
    rewrite |= _partitions(_find_partitions(copy, record, (*adopted, *findings.settled)))
    late = _find_partitions(copy, record, findings.late)
    digest = _acceptance_key(findings)
    if _is_accepted(findings, accept):
        rewrite |= _partitions([*late, *_find_partitions(copy, record, findings.replaced)])
        taken = (*findings.late, *findings.replaced)
        reported = (*taken, *findings.removed)
        return Settlement(rewrite, (*taken, *adopted, *findings.settled), reported, record)
    if changed := (*findings.replaced, *findings.removed):
        located = _partitions(_find_partitions(copy, record, changed))
        repair = (
            _repair_statements(copy, target, located)
            if located
            else f"Check that {name} contains the rows of all these files"
        )
        raise LateFilesError(
            "FILES_CHANGED_AFTER_SWITCH",
            digest,
            table=name,
            files=[file.path for file in changed],
            folder=record.root,
            repair=repair,
        )
    can_append = all(partition is not None for _, partition in late)
    shared = [file for file in findings.late if below(file.path, marks.folder) is None]
    if target.shared is not None and any(map(has_delta_name, shared)):
        can_append = False
    if late and can_append:
        keys, kinds = copy.partition_columns, target.type_substitutes
        columns = plan_columns(copy.columns, target.columns(), keys, kinds, str(copy.name))
        # Columns are matched by name, and a late file may have old names.
        can_append = not (columns.replaced or REPLACED in copy.properties or target.is_renamed)
    if late and (not can_append or copy.warehouse.late_files is LateFiles.PAUSE):
        raise _late_files_error(name, record, findings.late, digest, can_append=can_append)
    if late and not dry_run:
        append_late_files(copy, name, target, late)
    taken = (*findings.late, *adopted, *findings.settled)
    return Settlement(rewrite | _partitions(late), taken, findings.late, record)


def _digest(files: Iterable[ListedFile]) -> str:
    """Return a digest of the files' paths, sizes and times."""
    return sha256("\n".join(map(str, sorted(files))).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _acceptance_key(findings: Findings) -> str:
    """Return the key with which a person accepts exactly the files of these findings.

    Removed files have a separate part, because the new table no longer reads them after a repair.
    """
    return f"{_digest([*findings.late, *findings.replaced])}.{_digest(findings.removed)}"


def _is_accepted(findings: Findings, accept: str) -> bool:
    """Return whether a person accepted these files; the new table may have been repaired since."""
    asked, _, removed = accept.partition(".")
    now, _, removed_now = _acceptance_key(findings).partition(".")
    return bool(accept) and asked == now and (not findings.removed or removed == removed_now)


def _repair_statements(copy: HiveCopy, target: Target, partitions: Collection[Partition]) -> str:
    """Return the statements that replace partitions of the new table with the Hive copy's rows."""
    kinds = target.columns()
    some = sorted(partitions, key=nulls_first)[:_REPAIRED]
    where = partition_conditions.where(some, copy.partition_columns, kinds)
    own = {column.lower(): column for column in copy.columns}
    same = list(own) == [column.lower() for column in kinds]
    columns = "*" if same else ", ".join(quote(own[key]) for key in map(str.lower, kinds) if key in own)
    into = "" if same else f" ({', '.join(quote(column) for column in kinds if column.lower() in own)})"
    more = "" if len(some) == len(partitions) else ", and the same for the other partitions"
    return (
        f"Run DELETE FROM {target.name.sql} WHERE {where}; INSERT INTO {target.name.sql}{into} SELECT "
        f"{columns} FROM {copy.name.sql} WHERE {where}{more}"
    )


def _classify_files(record: FileRecord, target: Target, marks: ShadowProgress) -> Findings:
    warehouse = record.warehouse
    known, settled = record.files()
    with explaining("DIRECTORY_NOT_COMPARABLE", folder=record.root):
        [now] = warehouse.spark.sql("SELECT unix_micros(current_timestamp())").collect()
        evidence = Evidence(
            known,
            marks.runs,
            marks.folder,
            logged=lambda: target.files_logged_since(marks.watermark),
            read=target.data_files,
            shared=target.shared is not None,
            now=now[0],
        )
        rewritten = [marks.folder] if marks.runs or marks.pending else []
        listed = list_files(warehouse, [*record.directories(known), *rewritten])
        findings = classify(listed, evidence).without_settled(settled)
        return _without_empty(warehouse, findings) if target.shared is not None else findings


def _without_empty(warehouse: Warehouse, findings: Findings) -> Findings:
    """Move empty files to the logged files: after a DELETE of all rows, no commit names the empty file."""
    empty = {file for file in (*findings.late, *findings.undecided) if _is_empty(warehouse, file)}
    return replace(
        findings,
        late=tuple(file for file in findings.late if file not in empty),
        undecided=tuple(file for file in findings.undecided if file not in empty),
        logged=(*findings.logged, *sorted(empty)),
    )


def _is_empty(warehouse: Warehouse, file: ListedFile) -> bool:
    try:
        return warehouse.spark.read.parquet(escape_wildcards(file.path)).isEmpty()
    except SPARK_ERRORS:  # A write of the file may be in progress.
        return False


def _find_partitions(copy: HiveCopy, record: FileRecord, files: Iterable[ListedFile]) -> list[LateFile]:
    """Find the partition of each file from its directories' names, or from the partitions' locations."""
    located = [
        LateFile(
            file, None if record.odd else _partition_of_directory(copy, record.root, _directory(file.path))
        )
        for file in files
    ]
    if all(partition is not None for _, partition in located):
        return located
    locations = copy.locations(copy.partitions)
    partitions = {split(location): partition for partition, location in locations.items()}
    return [
        LateFile(file, partitions.get(split(_directory(file.path))) if partition is None else partition)
        for file, partition in located
    ]


def _partitions(files: Iterable[LateFile]) -> frozenset[Partition]:
    return frozenset(partition for _, partition in files if partition is not None)


def _partition_of_directory(copy: HiveCopy, root: str, directory: str) -> Partition | None:
    """Return the partition that a directory below a root is named after; None if it's not named so."""
    inside = below(directory, root)
    if inside is None:
        return None
    levels = inside.split("/") if inside else []
    keys = copy.partition_columns
    if [level.partition("=")[0].lower() for level in levels] != [key.lower() for key in keys]:
        return None
    if not keys:
        return WHOLE
    try:
        return parse(inside, [copy.columns[key] for key in keys])
    except (ValueError, ArithmeticError):
        return None


def _partitions_of_unfinished_runs(
    copy: HiveCopy, record: FileRecord, marks: ShadowProgress, unfinished: Sequence[ListedFile]
) -> frozenset[Partition]:
    """Return the partitions that read files of an unfinished or suspended run."""
    directories = {_directory(file.path) for file in unfinished}
    if directories and record.odd:
        # A directory's name doesn't identify the partition that reads it.
        places, locations = set(map(split, directories)), copy.locations(copy.partitions)
        return frozenset(partition for partition, location in locations.items() if split(location) in places)
    partitions = set()
    for directory in directories:
        inside = below(directory, marks.folder)
        root = record.root if inside is None else f"{marks.folder}/{inside.partition('/')[0]}"
        partition = _partition_of_directory(copy, root, directory)
        if partition is not None and partition in copy.partitions:
            [location] = copy.locations([partition]).values()
            if split(location) == split(directory):
                partitions.add(partition)
    return frozenset(partitions)


def _late_files_error(
    name: TableName, record: FileRecord, late: Sequence[ListedFile], digest: str, *, can_append: bool
) -> LateFilesError:
    files, folder = [file.path for file in late], record.root
    if can_append:
        return LateFilesError("LATE_FILES", digest, table=name, files=files, folder=folder)
    if any(map(has_delta_name, late)):
        return LateFilesError("LATE_FILES_OR_FAILED_WRITE", digest, table=name, files=files, folder=folder)
    return LateFilesError("LATE_FILES_NOT_TAKEABLE", digest, table=name, files=files, folder=folder)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
