"""Decides which of the listed files came late: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from tableferry.fleet.warehouse.hive_files import ListedFile
from tableferry.formats.hive.locations import below, split

# What the names of files have in them that Delta's writers make before their commit names them, whichever
# engine's they are; and the name of a deletion vector.
_UNIQUE = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_DELETION_VECTOR = re.compile(r"deletion_vector_[0-9a-f-]{36}\.bin")
# The name of a file that a shadow run wrote; Spark puts a table's bucket in front.
_SHADOW_FILE = re.compile(r"(?:\d{5}_0_)?tableferry-([0-9a-f]{8})-.*")
# The beginning of a path in a shadow run's directory, if it couldn't name its files.
_SHADOW_DIRECTORY = re.compile(r"v-?\d+-([0-9a-f]{8})/")
DIRECTORY = re.compile(r"[nv]-?\d+-[0-9a-f]{8}")
"""The name of a directory that a shadow run wrote."""

# A write is taken to be over by then, from its first file to its commit; in microseconds.
_LONGEST_WRITE = 24 * 3600 * 1_000_000


def basename(run: str) -> str:
    """Return what the names of a shadow run's files begin with, so that they are known in a listing."""
    return f"tableferry-{run}"


def directory_name(version: str, run: str, *, names_files: bool) -> str:
    """Return the name of a shadow run's directory, which says whether the run's own files have its name."""
    return f"{'n' if names_files else 'v'}{version}-{run}"


def run_of(path: str) -> str | None:
    """Return the shadow run that wrote a file, by the file's name; None if none did."""
    match = _SHADOW_FILE.fullmatch(_name(path))
    return match[1] if match else None


def run_that_wrote(path: str, folder: str) -> str | None:
    """Return the shadow run that wrote a file, by its name or by its directory in the folder of such runs."""
    in_directory = _SHADOW_DIRECTORY.match(below(path, folder) or "")
    return run_of(path) or (in_directory[1] if in_directory else None)


@dataclass(frozen=True)
class Findings:
    """The files of a listing that need attention.

    Attributes:
        late: Files that other writers left.
        undecided: Files that may belong to a write to the new table that is still going on.
        unfinished: Files of shadow runs that didn't end, or were suspended while another run took over.
        logged: Files that the new table's history names, and that aren't recorded yet.
        replaced: Files that have the name of a recorded one, and another size or time; and those in a shadow
            run's directory where no file of shadow runs is.
        removed: Recorded files that the new table reads, and that are gone.
        settled: Files that came late or were replaced, and whose rows the new table has by now.
        overwritten: Undecided files in directories that lost a recorded file, or where one was replaced.
    """

    late: tuple[ListedFile, ...] = ()
    undecided: tuple[ListedFile, ...] = ()
    unfinished: tuple[ListedFile, ...] = ()
    logged: tuple[ListedFile, ...] = ()
    replaced: tuple[ListedFile, ...] = ()
    removed: tuple[ListedFile, ...] = ()
    settled: tuple[ListedFile, ...] = ()
    overwritten: tuple[ListedFile, ...] = ()

    def deciding(self, accepted: Callable[[Findings], bool]) -> Findings:
        """Return the findings with the files of an overwrite among those that came late.

        A job that overwrites a partition removes the files in its directory, also those that the new table
        reads. So its own files aren't of a write to the new table. Maintenance removes files that the new
        table doesn't read any more: it decides nothing, unless a person accepted the result.
        """
        decided = replace(
            self,
            late=tuple(sorted({*self.late, *self.overwritten})),
            undecided=tuple(file for file in self.undecided if file not in self.overwritten),
        )
        return decided if self.removed or self.replaced or accepted(decided) else self

    def without(self, settled: Collection[ListedFile]) -> Findings:
        """Return the findings without those about which everything was done or said already."""
        return replace(
            self,
            late=tuple(file for file in self.late if file not in settled),
            replaced=tuple(file for file in self.replaced if file not in settled),
            removed=tuple(file for file in self.removed if file not in settled),
            overwritten=tuple(file for file in self.overwritten if file not in settled),
            settled=tuple(file for file in (*self.late, *self.replaced) if file in settled),
        )


@dataclass(frozen=True)
class Evidence:
    """What listed files are classified by.

    Attributes:
        known: The files that are recorded.
        runs: The shadow runs that ended.
        folder: The folder of rewritten partitions, with a directory for each run.
        logged: Returns the files that the new table's history has named since the watermark; called only if
            that is needed.
        read: Returns all files that the new table reads; called only if that is needed.
        shared: Whether the new table writes into these directories.
        now: Microseconds since 1970, by the clock of Spark's driver.
    """

    known: Iterable[ListedFile]
    runs: Collection[str]
    folder: str
    logged: Callable[[], Iterable[str]]
    read: Callable[[], Iterable[str]]
    shared: bool
    now: int


def classify(listed: Collection[ListedFile], evidence: Evidence) -> Findings:
    """Classify the files in the Hive copy's directories."""
    current = {split(file.path): file for file in listed}
    # A replaced file that somebody has accepted has two records.
    recorded: dict[tuple[str, str, str], list[ListedFile]] = {}
    for file in evidence.known:
        recorded.setdefault(split(file.path), []).append(file)
    removed = recorded.keys() - current.keys()
    replaced = [
        current[location]
        for location in recorded.keys() & current.keys()
        if current[location][1:] not in {file[1:] for file in recorded[location]}
    ]
    unfinished, others, written = [], {}, set[str]()
    for location, file in current.items():
        name = _name(file.path)
        # Some file systems mark a directory with an empty file.
        if location in recorded or file.size == 0 or _DELETION_VECTOR.fullmatch(name):
            continue
        run = run_that_wrote(file.path, evidence.folder)
        if run is None:
            others[location] = file
            continue
        written.add(_parent(location[2]))
        if run not in evidence.runs:
            unfinished.append(file)
    log = set(map(split, evidence.logged())) if others else set()
    unlogged = others.keys() - log
    in_use = set(map(split, evidence.read())) if unlogged or removed else set()
    late = {location: file for location, file in others.items() if location in unlogged - in_use}
    # The new table writes into the directories that it was made of, and not into those of shadow runs.
    rewritten = {location: file for location, file in late.items() if below(file.path, evidence.folder)}
    overwritten = [file for location, file in rewritten.items() if _parent(location[2]) not in written]
    replaced += overwritten
    undecided = [
        file
        for location, file in late.items()
        if evidence.shared and location not in rewritten and _may_be_written(file, evidence.now)
    ]
    lost = {_parent(location[2]) for location in removed} | {
        _parent(split(file.path)[2]) for file in replaced
    }
    return Findings(
        tuple(sorted(set(late.values()).difference(undecided, overwritten))),
        tuple(sorted(undecided)),
        tuple(sorted(unfinished)),
        tuple(sorted(file for location, file in others.items() if location not in late)),
        tuple(sorted(replaced)),
        tuple(sorted(recorded[location][-1] for location in removed & in_use)),
        overwritten=tuple(sorted(file for file in undecided if _parent(split(file.path)[2]) in lost)),
    )


def has_delta_name(file: ListedFile) -> bool:
    """Say whether a file may be one of Delta's writers, by its name; a failed write leaves such files."""
    return _UNIQUE.search(_name(file.path)) is not None


def _may_be_written(file: ListedFile, now: int) -> bool:
    return has_delta_name(file) and now - file.modified < _LONGEST_WRITE


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
