"""Which of the listed files came late: pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tableferry.fleet.warehouse.files import ListedFile
from tableferry.hive.locations import below, split

# The names of files that Delta's writers make before their commit names them, and of its deletion vectors.
_DELTAS = re.compile(r"part-\d{5}-[0-9a-f-]{36}[.-]c\d{3}(\.\w+)?\.parquet")
_VECTORS = re.compile(r"deletion_vector_[0-9a-f-]{36}\.bin")
_OURS = re.compile(r"tableferry-([0-9a-f]{8})-.*")
_ANEW = re.compile(r"v-?\d+-([0-9a-f]{8})/")

# No write takes longer, from its first file to its commit.
_A_DAY = 24 * 3600 * 1_000_000


def basename(run: str) -> str:
    """Return what the names of a shadow run's files begin with, so that whoever lists them knows them."""
    return f"tableferry-{run}"


@dataclass(frozen=True)
class Findings:
    """What a listing shows.

    Attributes:
        late: Files that others left.
        undecided: Files that may be of a write to the new table that is going on.
        unfinished: Files of shadow runs that didn't end, or that slept while another run took their place.
        named: Files that the new table's log names, and that aren't recorded yet.
        replaced: Files that have the name of a recorded one, and another size or time.
        removed: Recorded files that the new table reads, and that are gone.
    """

    late: tuple[ListedFile, ...] = ()
    undecided: tuple[ListedFile, ...] = ()
    unfinished: tuple[ListedFile, ...] = ()
    named: tuple[ListedFile, ...] = ()
    replaced: tuple[ListedFile, ...] = ()
    removed: tuple[ListedFile, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """What listed files are told apart by.

    Attributes:
        known: The files that are recorded.
        runs: The shadow runs that ended.
        folder: Where they write partitions anew, each run in a directory of its own.
        named: Gives the files that the new table's log has named since the watermark.
        live: Gives all files that the new table reads; it's asked only if something is left to tell.
        shared: Whether the new table writes into these directories.
        now: Microseconds since 1970, by the clock of Spark's driver.
    """

    known: Iterable[ListedFile]
    runs: Collection[str]
    folder: str
    named: Callable[[], Iterable[str]]
    live: Callable[[], Iterable[str]]
    shared: bool
    now: int


def classify(listed: Collection[ListedFile], evidence: Evidence) -> Findings:
    """Tell the files that there are apart."""
    there = {split(each.path): each for each in listed}
    # Of a file that was replaced, and somebody said that it may stay so, there are two records.
    recorded: dict[tuple[str, str, str], list[ListedFile]] = {}
    for each in evidence.known:
        recorded.setdefault(split(each.path), []).append(each)
    removed = recorded.keys() - there.keys()
    replaced = [
        there[place]
        for place in recorded.keys() & there.keys()
        if there[place][1:] not in {each[1:] for each in recorded[place]}
    ]
    unfinished, others = [], {}
    for place, each in there.items():
        name = _name(each.path)
        # Some file systems mark a directory with an empty file.
        if place in recorded or each.size == 0 or _VECTORS.fullmatch(name):
            continue
        ours = _OURS.fullmatch(name) or _ANEW.match(below(each.path, evidence.folder) or "")
        if ours is None:
            others[place] = each
        elif ours[1] not in evidence.runs:
            unfinished.append(each)
    log = set(map(split, evidence.named())) if evidence.shared and others else set()
    left = others.keys() - log
    read = set(map(split, evidence.live())) if left or removed else set()
    late = {place: each for place, each in others.items() if place in left - read}
    undecided = [each for each in late.values() if evidence.shared and _may_be_written(each, evidence.now)]
    return Findings(
        tuple(sorted(set(late.values()) - set(undecided))),
        tuple(sorted(undecided)),
        tuple(sorted(unfinished)),
        tuple(sorted(each for place, each in others.items() if place not in late)),
        tuple(sorted(replaced)),
        tuple(sorted(recorded[place][-1] for place in removed & read)),
    )


def might_be_deltas(file: ListedFile) -> bool:
    """Say whether a file has a name as Delta's writers give them: one that failed leaves such files."""
    return _DELTAS.fullmatch(_name(file.path)) is not None


def _may_be_written(file: ListedFile, now: int) -> bool:
    return might_be_deltas(file) and now - file.modified < _A_DAY


def _name(path: str) -> str:
    return path.rpartition("/")[2]
