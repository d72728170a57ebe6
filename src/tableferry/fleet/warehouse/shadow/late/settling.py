"""Look for files that came late, and take their rows into the new table, or leave it to a person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from time import sleep

from tableferry.amounts import first_of
from tableferry.catalog import SPARK_ERRORS
from tableferry.errors import TableError, first_line
from tableferry.fleet.job import TargetFormat
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse.context import NeedsPerson, Warehouse
from tableferry.fleet.warehouse.files import ListedFile, list_files
from tableferry.fleet.warehouse.shadow.hive_copy import HiveCopy
from tableferry.fleet.warehouse.shadow.late.classify import Evidence, Findings, classify, might_be_deltas
from tableferry.fleet.warehouse.shadow.late.record import Record
from tableferry.fleet.warehouse.shadow.late.taking import Late, take
from tableferry.fleet.warehouse.shadow.marks import Marks
from tableferry.fleet.warehouse.shadow.partitions import WHOLE, Partition, parse
from tableferry.fleet.warehouse.shadow.target import Target
from tableferry.fleet.warehouse.shadow.targets import read_target
from tableferry.hive.locations import below, literal, split
from tableferry.tables import TableName

# How often, and after how many seconds, a table that is being written to is looked at again.
_TRIES, _PAUSE = 5, 2.0


class WrittenLate(NeedsPerson):
    """Somebody wrote to the Hive copy's directories after the switch, and a person must decide."""


@dataclass(frozen=True)
class Settled:
    """What a look found, and what was done about it.

    Attributes:
        partitions: Those whose rows in the copy are to be written anew.
        taken: Files whose rows are in the new table now, or needn't be.
        record: Where these are to be recorded, when the partitions are written; None if there is none.
    """

    partitions: frozenset[Partition] = frozenset()
    taken: tuple[ListedFile, ...] = ()
    record: Record | None = None

    def look_again(self, target: Target, marks: Marks) -> None:
        """Record what the new table's log has named since, where it writes into the same directories."""
        if self.record is not None and target.shared is not None:
            self.record.add(_look(self.record, target, marks).named)

    def finish(self) -> None:
        """Record what was taken: from now on it belongs there."""
        if self.record is not None and self.taken:
            self.record.add(self.taken)


def check(
    warehouse: Warehouse,
    name: TableName,
    hive: TableName,
    form: TargetFormat,
    watermark: str | None,
    *,
    accept: str = "",
) -> None:
    """Look for late files, and settle them, before the Hive copy is archived or gets its name back.

    Arguments are those of `shadow` and `settle`.

    Raises:
        WrittenLate: A person must decide.
        TableError: A file may be of a write that is going on; or a directory can't be listed.
    """
    copy = HiveCopy.read(warehouse, hive)
    target = read_target(warehouse, name, form)
    marks = Marks.read(copy.properties, copy.location, target.id, watermark)
    settle(copy, target, name, form, marks, decide=True, accept=accept)


def settle(
    copy: HiveCopy,
    target: Target,
    name: TableName,
    form: TargetFormat,
    marks: Marks,
    *,
    decide: bool = False,
    accept: str = "",
    dry_run: bool = False,
) -> Settled:
    """Look for files that others left in the copy's directories, and take in what came late.

    Args:
        copy: The Hive copy.
        target: The new table.
        name: Its name.
        form: Its format.
        marks: What earlier runs left.
        decide: Whether files that may be of a write that is going on are an error; if not, they are left to
            the next look.
        accept: What somebody has said may stay as it is: `WrittenLate.found` of the refusal that asked.
        dry_run: Whether to change nothing.

    Raises:
        WrittenLate: Late files aren't to be taken in, or can't be; or files were replaced or removed.
        TableError: Files may be of a write that is going on.
    """
    record = Record.of(copy.warehouse, copy.properties)
    if record is None:
        return Settled()
    found = _look(record, target, marks)
    given: tuple[ListedFile, ...] = ()
    if target.shared is None:
        # Somebody gave the new table files that the copy reads where they are.
        given = found.named
    elif found.named and not dry_run:
        record.add(found.named)
    for _ in range(_TRIES if decide and found.undecided else 0):
        # A commit may have come since the table was looked at, or come now.
        sleep(_PAUSE)
        found = _look(record, read_target(copy.warehouse, name, form), marks)
        if not found.undecided:
            break
    anew = _in_use(copy, record, marks, found.unfinished) | _partitions(_placed(copy, record, given))
    late = _placed(copy, record, found.late)
    asked = _digest([*found.late, *found.replaced, *found.removed])
    if accept and accept == asked:
        anew |= _partitions([*late, *_placed(copy, record, found.replaced)])
        return Settled(anew, (*found.late, *found.replaced, *given), record)
    if changed := (*found.replaced, *found.removed):
        raise WrittenLate(
            f"{_paths(changed)} below {record.root} were replaced or removed after the switch, perhaps by a "
            f"job of Hive's: make sure that {name} has its rows and theirs, and then tableferry fleet resume "
            f"{name} --accept",
            asked,
        )
    if decide and found.undecided:
        raise TableError(
            f"{_paths(found.undecided)} below {record.root} came within a day, and no "
            f"commit of {name} names them: a write may be going on; run again later"
        )
    can_take = all(each.partition is not None for each in late)
    if target.shared is not None and any(might_be_deltas(each) for each in found.late):
        can_take = False
    if late and (not can_take or copy.warehouse.late_files is LateFiles.PAUSE):
        raise WrittenLate(_told(name, record, found.late, can_take=can_take), asked)
    if late and not dry_run:
        take(copy, name, target, late)
    return Settled(anew | _partitions(late), (*found.late, *given), record)


def _digest(files: Iterable[ListedFile]) -> str:
    """Name what was found: another file, or another size, and it's something else."""
    return sha256("\n".join(map(str, sorted(files))).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _look(record: Record, target: Target, marks: Marks) -> Findings:
    w = record.warehouse
    known = record.files()
    try:
        [now] = w.spark.sql("SELECT unix_micros(current_timestamp())").collect()
        evidence = Evidence(
            known,
            marks.runs,
            marks.folder,
            named=lambda: target.named_since(marks.watermark),
            live=target.live,
            shared=target.shared is not None,
            now=now[0],
        )
        directories = [*record.directories(known), *([marks.folder] if marks.runs or marks.pending else [])]
        found = classify(list_files(w, directories), evidence)
        return _without_empty(w, found) if target.shared is not None else found
    except SPARK_ERRORS as error:
        raise TableError(
            f"{record.root} can't be compared with what was there at the switch ({first_line(error)}): check "
            "your rights, and run again"
        ) from error


def _without_empty(warehouse: Warehouse, found: Findings) -> Findings:
    """Take files without rows for named: a DELETE of all rows of a file leaves one that no commit names."""
    empty = {each for each in (*found.late, *found.undecided) if _is_empty(warehouse, each)}
    return replace(
        found,
        late=tuple(each for each in found.late if each not in empty),
        undecided=tuple(each for each in found.undecided if each not in empty),
        named=(*found.named, *sorted(empty)),
    )


def _is_empty(warehouse: Warehouse, file: ListedFile) -> bool:
    try:
        return warehouse.spark.read.parquet(literal(file.path)).isEmpty()
    except SPARK_ERRORS:  # It may be that it's still being written.
        return False


def _placed(copy: HiveCopy, record: Record, files: Iterable[ListedFile]) -> list[Late]:
    """Say to which partition each late file belongs; None where its directory doesn't tell."""
    found = [Late(each, None if record.odd else _partition(copy, record.root, each.path)) for each in files]
    if all(each.partition is not None for each in found):
        return found
    homes = {split(place): partition for partition, place in copy.locations(copy.partitions).items()}
    return [
        each if each.partition is not None else Late(each.file, homes.get(split(_folder(each.file.path))))
        for each in found
    ]


def _partitions(placed: Iterable[Late]) -> frozenset[Partition]:
    return frozenset(each.partition for each in placed if each.partition is not None)


def _partition(copy: HiveCopy, root: str, path: str) -> Partition | None:
    inside = below(_folder(path), root)
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
    copy: HiveCopy, record: Record, marks: Marks, unfinished: Sequence[ListedFile]
) -> frozenset[Partition]:
    """Return the partitions that read files of a run that didn't end, or that slept."""
    found = set()
    for folder in {_folder(each.path) for each in unfinished}:
        inside = below(folder, marks.folder)
        root = record.root if inside is None else f"{marks.folder}/{inside.partition('/')[0]}"
        partition = _partition(copy, root, f"{folder}/file")
        if partition is not None and partition in copy.partitions:
            [place] = copy.locations([partition]).values()
            if split(place) == split(folder):
                found.add(partition)
    return frozenset(found)


def _told(name: TableName, record: Record, late: Sequence[ListedFile], *, can_take: bool) -> str:
    ways = [f"write their rows into {name}, and tableferry fleet resume {name} --accept"]
    unsure = ", or they are of a write to it that failed" if any(map(might_be_deltas, late)) else ""
    if can_take:
        ways.append("set late_files: take, and resume")
    return (
        f"{_paths(late)} came into the directories below {record.root} after the "
        f"switch, and {name} doesn't have their rows{unsure}: {', or '.join(ways)}"
    )


def _paths(files: Sequence[ListedFile]) -> str:
    return first_of([each.path for each in files], "more files")


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
