"""Looks for files that came late, and takes their rows over to the new table, or leaves it to a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from time import sleep

from tableferry.errors import TableError
from tableferry.fleet.hive_copy.changes import plan_columns
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_copy.target import Target, read_target
from tableferry.fleet.hive_tables import partition_conditions
from tableferry.fleet.hive_tables.partitions import WHOLE, Partition, nulls_first, parse
from tableferry.fleet.hive_tables.progress_properties import REPLACED, TARGET, ShadowProgress
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.late_files.appends import LateFile, take
from tableferry.fleet.late_files.classification import (
    Evidence,
    Findings,
    classify,
    has_delta_name,
    run_that_wrote,
)
from tableferry.fleet.late_files.file_record import Record
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse.context import DecisionRequired, Warehouse
from tableferry.fleet.warehouse.hive_files import ListedFile, list_files
from tableferry.formats.hive.locations import below, escape_wildcards, split
from tableferry.spark.catalog import SPARK_ERRORS, explaining
from tableferry.spark.quoting import quote
from tableferry.spark.tables import TableName

# How often, and after how many seconds, a table that is being written to is looked at again.
_RETRIES, _PAUSE = 5, 2.0

# So many partitions the repairing statements of a message name.
_REPAIRED = 20


class WrittenLate(DecisionRequired):
    """Somebody wrote to the Hive copy's directories after the switch, and a person must decide."""


@dataclass(frozen=True)
class Settled:
    """What has to be done after other writers' files were looked for.

    Attributes:
        partitions: Those of the copy that have to be rewritten.
        taken: Files whose rows are in the new table now, or needn't be.
        asked: Those of this look about which somebody was asked, or whose rows were taken over.
        record: The record to which these are added after the partitions are written; None if there is none,
            and nothing could be looked for.
        lost: A record whose files somebody removed, and perhaps those of rewritten partitions with them.
    """

    partitions: frozenset[Partition] = frozenset()
    taken: tuple[ListedFile, ...] = ()
    asked: tuple[ListedFile, ...] = ()
    record: Record | None = None
    lost: Record | None = None

    def record_new_files(self, target: Target, marks: ShadowProgress) -> None:
        """Record the files that the new table has written into the same directories since, by its log."""
        if self.record is not None and target.shared is not None:
            self.record.add(_look(self.record, target, marks).logged)

    def finish(self) -> None:
        """Record the files that were taken: from now on they belong there."""
        if self.record is None:
            return
        if self.taken:
            self.record.add(self.taken)
        # Those that are gone stay recorded, and nobody is asked about them again.
        if gone := set(self.asked).difference(self.taken):
            self.record.add(gone, settled=True)

    def written_by_others(self, copy: HiveCopy, folder: str, directories: Sequence[str]) -> frozenset[str]:
        """Return those of some directories of shadow runs into which others wrote since they were looked at.

        They are kept: the next look finds these files.
        """
        listed = list_files(copy.warehouse, directories) if directories else []
        strange = {file for file in listed if file.size and run_that_wrote(file.path, folder) is None}
        if strange and self.record is not None:
            strange.difference_update(*self.record.files(), self.taken, self.asked)
        return frozenset(
            directory
            for directory in directories
            if any(below(file.path, directory) is not None for file in strange)
        )

    def note(self) -> None:
        """Record the files as settled, where the partitions aren't written now."""
        if self.record is not None and self.asked:
            self.record.add(self.asked, settled=True)


def check(
    warehouse: Warehouse,
    name: TableName,
    hive: TableName,
    form: TargetFormat,
    watermark: str | None,
    *,
    decide: bool = True,
    accept: str = "",
) -> bool:
    """Look for late files, and settle them, where the Hive copy is archived or gets its name back.

    The arguments are those of `shadow` and `settle`.

    Returns:
        Whether there was a record to look by; without one nobody knows which files came late.

    Raises:
        WrittenLate: A person must decide.
        TableError: A file may be of a write that is going on; or a directory can't be listed.
    """
    copy = HiveCopy.read(warehouse, hive)
    target = read_target(warehouse, name, form)
    marks = read_marks(copy, target, form, watermark)
    settled = settle(copy, target, name, form, marks, decide=decide, accept=accept)
    settled.note()
    return settled.record is not None


def read_marks(copy: HiveCopy, target: Target, form: TargetFormat, watermark: str | None) -> ShadowProgress:
    """Read what an earlier run left in the Hive copy's properties, given the version that it was made with.

    A Delta version is a small number, which says nothing of another table than the one that it's of: there
    is another one if somebody has made the target anew.
    """
    is_another = copy.properties.get(TARGET, target.id) != target.id
    given = None if is_another and form is TargetFormat.DELTA else watermark
    return ShadowProgress.read(copy.properties, copy.location, target.id, given)


def settle(
    copy: HiveCopy,
    target: Target,
    name: TableName,
    form: TargetFormat,
    marks: ShadowProgress,
    *,
    decide: bool = False,
    accept: str = "",
    dry_run: bool = False,
) -> Settled:
    """Look for files that other writers left in the copy's directories, and append the late ones' rows.

    With `decide`, files that may be of a write that is going on are an error; else they are left to the next
    run. What somebody accepts is `WrittenLate.found` of the refusal.

    Raises:
        WrittenLate: Late files aren't to be taken, or can't be; or files were replaced or removed.
        TableError: Files may be of a write that is going on.
    """
    record = Record.of(copy.warehouse, copy.properties)
    if record is None:
        return Settled()
    if not record.is_there():
        return Settled(lost=record)
    findings = _look(record, target, marks).deciding(lambda decided: _is_accepted(decided, accept))
    adopted: tuple[ListedFile, ...] = ()
    if target.shared is None:
        # Somebody added files in the copy's directories to the new table.
        adopted = findings.logged
    elif findings.logged and not dry_run:
        record.add(findings.logged)
    # Their commit may have come since the table was looked at, or come now. Of a table that is always being
    # written to, what came meanwhile isn't waited for: the next look finds it.
    waiting = {file.path for file in findings.undecided} if decide else set[str]()
    for _ in range(_RETRIES):
        if not waiting:
            break
        sleep(_PAUSE)
        findings = _look(record, read_target(copy.warehouse, name, form), marks)
        findings = findings.deciding(lambda decided: _is_accepted(decided, accept))
        waiting &= {file.path for file in findings.undecided}
    if waiting:
        raise TableError("FILES_MAY_BE_UNCOMMITTED", table=name, files=sorted(waiting), folder=record.root)
    rewrite = _in_use(copy, record, marks, findings.unfinished)
    rewrite |= _partitions(_located(copy, record, (*adopted, *findings.settled)))
    late = _located(copy, record, findings.late)
    digest = _found(findings)
    if _is_accepted(findings, accept):
        rewrite |= _partitions([*late, *_located(copy, record, findings.replaced)])
        taken = (*findings.late, *findings.replaced)
        asked = (*taken, *findings.removed)
        return Settled(rewrite, (*taken, *adopted, *findings.settled), asked, record)
    if changed := (*findings.replaced, *findings.removed):
        located = _partitions(_located(copy, record, changed))
        repair = (
            _repair(copy, target, located) if located else f"Make sure that {name} has its rows and theirs"
        )
        raise WrittenLate(
            "FILES_CHANGED_AFTER_SWITCH",
            digest,
            table=name,
            files=[file.path for file in changed],
            folder=record.root,
            repair=repair,
        )
    can_take = all(partition is not None for _, partition in late)
    shared = [file for file in findings.late if below(file.path, marks.folder) is None]
    if target.shared is not None and any(map(has_delta_name, shared)):
        can_take = False
    if late and can_take:
        keys, kinds = copy.partition_columns, target.type_substitutes
        columns = plan_columns(copy.columns, target.columns(), keys, kinds, str(copy.name))
        # Columns are matched by their names, and the file has those of its time.
        can_take = not (columns.replaced or REPLACED in copy.properties or target.is_renamed)
    if late and (not can_take or copy.warehouse.late_files is LateFiles.PAUSE):
        raise _written_late(name, record, findings.late, digest, can_take=can_take)
    if late and not dry_run:
        take(copy, name, target, late)
    taken = (*findings.late, *adopted, *findings.settled)
    return Settled(rewrite | _partitions(late), taken, findings.late, record)


def _digest(files: Iterable[ListedFile]) -> str:
    """Return a digest of files by which somebody can accept just these, with their sizes and times."""
    return sha256("\n".join(map(str, sorted(files))).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _found(findings: Findings) -> str:
    """Return what names the files of findings, so that exactly these can be accepted.

    The files that are gone have a part of their own: after a repair the new table doesn't read them any more.
    """
    return f"{_digest([*findings.late, *findings.replaced])}.{_digest(findings.removed)}"


def _is_accepted(findings: Findings, accept: str) -> bool:
    """Return whether a person accepted these files, of which the new table may have been repaired since."""
    asked, _, removed = accept.partition(".")
    now, _, removed_now = _found(findings).partition(".")
    return bool(accept) and asked == now and (not findings.removed or removed == removed_now)


def _repair(copy: HiveCopy, target: Target, partitions: Collection[Partition]) -> str:
    """Return the statements that give the new table the rows that the Hive copy has in some partitions."""
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


def _look(record: Record, target: Target, marks: ShadowProgress) -> Findings:
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
        findings = classify(listed, evidence).without(settled)
        return _without_empty(warehouse, findings) if target.shared is not None else findings


def _without_empty(warehouse: Warehouse, findings: Findings) -> Findings:
    """Count files without rows as logged: a DELETE of all rows of a file leaves one that no commit names."""
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
    except SPARK_ERRORS:  # It may still be being written.
        return False


def _located(copy: HiveCopy, record: Record, files: Iterable[ListedFile]) -> list[LateFile]:
    """Find the partition of each file: by the names of its directories, or by the partitions' locations."""
    located = [
        LateFile(file, None if record.odd else _partition(copy, record.root, _directory(file.path)))
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


def _partition(copy: HiveCopy, root: str, directory: str) -> Partition | None:
    """Read the partition that a directory below a root is named after; None if it isn't."""
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


def _in_use(
    copy: HiveCopy, record: Record, marks: ShadowProgress, unfinished: Sequence[ListedFile]
) -> frozenset[Partition]:
    """Return the partitions that read files of a run that didn't end, or was suspended."""
    directories = {_directory(file.path) for file in unfinished}
    if directories and record.odd:
        # A directory's name doesn't tell which partition reads it.
        places, locations = set(map(split, directories)), copy.locations(copy.partitions)
        return frozenset(partition for partition, location in locations.items() if split(location) in places)
    partitions = set()
    for directory in directories:
        inside = below(directory, marks.folder)
        root = record.root if inside is None else f"{marks.folder}/{inside.partition('/')[0]}"
        partition = _partition(copy, root, directory)
        if partition is not None and partition in copy.partitions:
            [location] = copy.locations([partition]).values()
            if split(location) == split(directory):
                partitions.add(partition)
    return frozenset(partitions)


def _written_late(
    name: TableName, record: Record, late: Sequence[ListedFile], digest: str, *, can_take: bool
) -> WrittenLate:
    files, folder = [file.path for file in late], record.root
    if can_take:
        return WrittenLate("LATE_FILES", digest, table=name, files=files, folder=folder)
    if any(map(has_delta_name, late)):
        return WrittenLate("LATE_FILES_OR_FAILED_WRITE", digest, table=name, files=files, folder=folder)
    return WrittenLate("LATE_FILES_NOT_TAKEABLE", digest, table=name, files=files, folder=folder)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
