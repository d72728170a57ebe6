"""Classify listed files as known, late, undecided, replaced or removed; pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from tableferry.fleet.hive_tables.table_files import ListedFile
from tableferry.formats.hive.locations import below, split

# Delta's writers of all engines put a UUID into the name of a data file, which exists before its commit.
_UNIQUE = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_DELETION_VECTOR = re.compile(r"deletion_vector_[0-9a-f-]{36}\.bin")
# The name of a file that a shadow run wrote; Spark prefixes the bucket of a bucketed table.
_SHADOW_FILE = re.compile(r"(?:\d{5}_0_)?tableferry-([0-9a-f]{8})-.*")
# The start of a path in the directory of a shadow run that couldn't name its files.
_SHADOW_DIRECTORY = re.compile(r"v-?\d+-([0-9a-f]{8})/")
DIRECTORY = re.compile(r"[nv]-?\d+-[0-9a-f]{8}")
"""The name of a shadow run's directory."""

# The assumed maximum duration of a write, from its first file to its commit; in microseconds.
_LONGEST_WRITE = 24 * 3600 * 1_000_000


def basename(run: str) -> str:
    """Return the prefix of the names of a shadow run's files, which identifies them in a listing."""
    return f"tableferry-{run}"


def directory_name(version: str, run: str, *, names_files: bool) -> str:
    """Return the name of a shadow run's directory, which records whether the run named its files."""
    return f"{'n' if names_files else 'v'}{version}-{run}"


def run_of(path: str) -> str | None:
    """Return the shadow run in a file's name; None if no shadow run wrote the file."""
    match = _SHADOW_FILE.fullmatch(_name(path))
    return match[1] if match else None


def run_that_wrote(path: str, folder: str) -> str | None:
    """Return the shadow run in a file's name or in the name of its directory; None if there is no run."""
    in_directory = _SHADOW_DIRECTORY.match(below(path, folder) or "")
    return run_of(path) or (in_directory[1] if in_directory else None)


@dataclass(frozen=True)
class Findings:
    """The files of a listing that need attention.

    Attributes:
        late: Files that other writers left.
        undecided: Files that may belong to an uncommitted write to the new table.
        unfinished: Files of shadow runs that died, or were suspended while another run took over.
        logged: Files that the new table's history names and that aren't recorded yet.
        replaced: Files whose name is recorded with a different size or time, and files in a shadow run's
            directory that contains no file of shadow runs.
        removed: Recorded files that the new table reads and that no longer exist.
        settled: Late or replaced files whose rows are already in the new table.
        overwritten: Undecided files in directories in which a recorded file was removed or replaced.
    """

    late: tuple[ListedFile, ...] = ()
    undecided: tuple[ListedFile, ...] = ()
    unfinished: tuple[ListedFile, ...] = ()
    logged: tuple[ListedFile, ...] = ()
    replaced: tuple[ListedFile, ...] = ()
    removed: tuple[ListedFile, ...] = ()
    settled: tuple[ListedFile, ...] = ()
    overwritten: tuple[ListedFile, ...] = ()

    def with_overwrites_decided(self, accepted: Callable[[Findings], bool]) -> Findings:
        """Return the findings with the files of an overwrite moved to the late files.

        A job that overwrites a partition also removes files that the new table reads. So its own files
        don't belong to a write to the new table. Maintenance only removes files that the new table no longer
        reads. After it, the files stay undecided unless a person accepted them as late.
        """
        decided = replace(
            self,
            late=tuple(sorted({*self.late, *self.overwritten})),
            undecided=tuple(file for file in self.undecided if file not in self.overwritten),
        )
        return decided if self.removed or self.replaced or accepted(decided) else self

    def without_settled(self, settled: Collection[ListedFile]) -> Findings:
        """Return the findings with late and replaced files moved to `settled` if they are settled already."""
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
    """The facts by which listed files are classified.

    Attributes:
        known: The recorded files.
        runs: The shadow runs that ended.
        folder: The folder of rewritten partitions, with a directory for each run.
        logged: Returns the files that the new table's history has named since the watermark; called only if
            needed.
        read: Returns all files that the new table reads; called only if needed.
        shared: Whether the new table writes into these directories.
        now: The time of Spark's driver, in microseconds since 1970.
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
    # A replaced file has two records after a person accepted it.
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
        # Some file systems represent a directory as an empty file.
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
    # The new table writes into the Hive table's original directories, never into those of shadow runs.
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
    """Return whether a file's name is like those of Delta's writers; a failed write leaves such files."""
    return _UNIQUE.search(_name(file.path)) is not None


def _may_be_written(file: ListedFile, now: int) -> bool:
    return has_delta_name(file) and now - file.modified < _LONGEST_WRITE


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
