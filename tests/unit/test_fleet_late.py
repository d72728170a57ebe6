"""Which of the files in a Hive copy's directories came late."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.progress_properties import FOLDER as FOLDER_KEY
from tableferry.fleet.hive_tables.progress_properties import RUNS, TARGET, ShadowProgress
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.late_files import settlement, suspended_runs
from tableferry.fleet.late_files.classification import Evidence, Findings, basename, classify, run_of
from tableferry.fleet.late_files.file_record import Record, RecordedFiles
from tableferry.fleet.late_files.settlement import _found, _is_accepted
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.hive_files import ListedFile, Listing
from tableferry.spark.tables import TableName

ROOT, FOLDER = "file:/w/t", "file:/w/t_sync/0123abcd"
HOUR = 3600 * 1_000_000
NOW = 48 * HOUR
DELTA_FILE = "part-00003-6b1e9b0e-3b9c-4a53-9d5e-0a1b2c3d4e5f.c000.snappy.parquet"


def file(path: str, size: int = 1, modified: int = 0) -> ListedFile:
    return ListedFile(path if ":" in path else f"{ROOT}/{path}", size, modified)


def classified(
    *listed: ListedFile,
    known: tuple[ListedFile, ...] = (),
    runs: tuple[str, ...] = (),
    logged: tuple[str, ...] = (),
    read: tuple[str, ...] = (),
    shared: bool = True,
) -> Findings:
    evidence = Evidence(frozenset(known), runs, FOLDER, lambda: logged, lambda: read, shared=shared, now=NOW)
    return classify(listed, evidence)


OLD, NEW = file("k=1/000000_0"), file("k=1/000001_0")


def test_what_was_there_is_no_news() -> None:
    assert classified(OLD, known=(OLD,)) == Findings()
    # However the scheme's slashes are written.
    assert classified(file("file:///w/t/k=1/000000_0"), known=(OLD,)) == Findings(replaced=())


@pytest.mark.parametrize("shared", [True, False])
def test_what_came_is_late(shared: bool) -> None:
    assert classified(OLD, NEW, known=(OLD,), shared=shared) == Findings(late=(NEW,))


def test_what_is_settled_is_nobody_s_question_again() -> None:
    changed = file(OLD.path, size=2)
    findings = classified(changed, NEW, known=(OLD,))
    assert findings == Findings(late=(NEW,), replaced=(changed,))
    assert findings.without({NEW, changed}) == Findings(settled=(NEW, changed))
    # Written anew since, it's another file.
    again = file(NEW.path, modified=1)
    assert classified(OLD, again, known=(OLD,)).without({NEW}) == Findings(late=(again,))
    gone = classified(known=(OLD,), read=(OLD.path,))
    assert gone == Findings(removed=(OLD,))
    assert gone.without({OLD}) == Findings()


def test_a_file_tells_which_shadow_run_wrote_it() -> None:
    assert run_of(f"{ROOT}/k=1/{basename('0123abcd')}-00000.parquet") == "0123abcd"
    # Spark puts the bucket in front where the Hive table has some.
    assert run_of(f"{ROOT}/00001_0_{basename('0123abcd')}-00000-1d52_00001.c000.parquet") == "0123abcd"
    assert run_of(NEW.path) is None
    assert run_of(f"{FOLDER}/v1-0123abcd/k=1/part-0") is None


def test_what_the_new_table_s_log_names_is_its_own() -> None:
    assert classified(NEW, logged=(NEW.path,)) == Findings(logged=(NEW,))
    # Somebody has given it to an Iceberg table by hand.
    assert classified(NEW, read=(NEW.path,), shared=False) == Findings(logged=(NEW,))
    # And a compaction has replaced it since, so that only the snapshots before name it.
    assert classified(NEW, logged=(NEW.path,), shared=False) == Findings(logged=(NEW,))


def test_a_write_to_a_delta_table_may_be_going_on() -> None:
    young, old = file(DELTA_FILE, modified=NOW - 23 * HOUR), file(DELTA_FILE, modified=NOW - 25 * HOUR)
    assert classified(young) == Findings(undecided=(young,))
    assert classified(old) == Findings(late=(old,))
    # Of Trino, Delta Kernel, and Databricks's own committer.
    unique = "6b1e9b0e-3b9c-4a53-9d5e-0a1b2c3d4e5f"
    for name in (
        f"20261127_101500_00012_abcde-{unique}",
        f"{unique}-000.parquet",
        f"part-00000-tid-123-{unique}-4-1-c000.snappy.parquet",
    ):
        assert classified(file(name, modified=NOW)) == Findings(undecided=(file(name, modified=NOW),))
    # Iceberg writes elsewhere.
    assert classified(young, shared=False) == Findings(late=(young,))
    hives = file("000000_0", modified=NOW)
    assert classified(hives) == Findings(late=(hives,))
    assert classified(file("day=1_$folder$", size=0)) == Findings()
    assert classified(file("deletion_vector_6b1e9b0e-3b9c-4a53-9d5e-0a1b2c3d4e5f.bin")) == Findings()


def test_files_of_shadow_runs_are_ours_if_the_run_ended() -> None:
    inserted = file(f"k=1/{basename('aaaaaaaa')}-00000-6b1e9b0e.c000.snappy.parquet")
    anew = file(f"{FOLDER}/v7-bbbbbbbb/k=1/part-00000.parquet")
    both = (inserted, anew)
    assert classified(*both, runs=("aaaaaaaa", "bbbbbbbb")) == Findings()
    assert classified(*both, runs=("aaaaaaaa",)) == Findings(unfinished=(anew,))
    # In this one the run named its files.
    own, other = (
        file(f"{FOLDER}/n7-bbbbbbbb/k=1/{name}") for name in (f"{basename('bbbbbbbb')}-0", DELTA_FILE)
    )
    assert classified(own, runs=("bbbbbbbb",)) == Findings()
    assert classified(own, runs=()) == Findings(unfinished=(own,))
    assert classified(own, other, runs=("bbbbbbbb",)) == Findings(late=(other,))
    assert classified(other, runs=("bbbbbbbb",)) == Findings(replaced=(other,))
    assert classified(own, other, known=(other,), runs=("bbbbbbbb",)) == Findings()
    # A run inserts into a directory that an earlier one made.
    later = file(f"{FOLDER}/v7-bbbbbbbb/k=1/{basename('cccccccc')}-00000-6b1e9b0e.c000")
    assert classified(later, runs=("bbbbbbbb",)) == Findings(unfinished=(later,))


def test_known_files_may_go_only_where_nobody_reads_them() -> None:
    bigger, later = OLD._replace(size=2), OLD._replace(modified=9)
    for changed in (bigger, later):
        assert classified(changed, known=(OLD,)) == Findings(replaced=(changed,))
        # Somebody has looked at it.
        assert classified(changed, known=(OLD, changed)) == Findings()
    assert classified(known=(OLD,)) == Findings()
    assert classified(known=(OLD,), read=(OLD.path,)) == Findings(removed=(OLD,))


def test_files_of_a_job_that_overwrote_a_partition_came_late() -> None:
    young = file(f"k=1/{DELTA_FILE}", modified=NOW)
    beside = file(f"k=2/{DELTA_FILE}", modified=NOW)
    findings = classified(young, beside, known=(OLD,), read=(OLD.path,))
    # By their names both may be of a write to the new table that is in progress.
    assert findings.undecided == (young, beside)
    decided = findings.deciding(lambda _: False)
    assert (decided.late, decided.undecided, decided.removed) == ((young,), (beside,), (OLD,))

    # Maintenance of the new table removes files that it doesn't read any more.
    cleaned = classified(young, known=(OLD,))
    assert cleaned.deciding(lambda _: False).undecided == (young,)
    # After the repair the new table doesn't read the old file either, and what was accepted is the same.
    found = _found(decided)
    repaired = classified(young, beside, known=(OLD,)).deciding(lambda each: _is_accepted(each, found))
    assert repaired.late == (young,)
    assert _is_accepted(repaired, found)
    more = file("k=1/000007_0")
    later = classified(young, more, known=(OLD,)).deciding(lambda each: _is_accepted(each, found))
    assert not _is_accepted(later, found)
    assert later.undecided == (young,)


NAMES = st.builds(
    file,
    st.sampled_from(("k=1/000000_0", "k=2/000000_0", f"k=1/{DELTA_FILE}", f"k=1/{basename('aaaaaaaa')}-0")),
    st.integers(1, 2),
    st.sampled_from((0, NOW)),
)


@given(
    st.lists(NAMES, unique_by=lambda value: value.path),
    st.sets(NAMES),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_each_file_is_classified_once(
    listed: list[ListedFile], known: set[ListedFile], ended: bool, logged: bool, shared: bool
) -> None:
    paths = tuple(value.path for value in listed) if logged else ()
    runs = ("aaaaaaaa",) if ended else ()
    findings = classified(*listed, known=tuple(known), runs=runs, logged=paths, shared=shared)
    every = [*findings.late, *findings.undecided, *findings.unfinished, *findings.logged, *findings.replaced]
    assert len(every) == len(set(every))
    # What is neither known nor ours is never passed over in silence.
    places = {value.path for value in known}
    for value in listed:
        ours = basename("aaaaaaaa") in value.path
        assert (value in every) == (value not in known if value.path in places else not ours or not ended), (
            value
        )


NAME = TableName(("spark_catalog", "w", "t"))
READS = (file("k=1/tableferry-0123abcd-0"), file("k=1/tableferry-89abcdef-0"), OLD)


@pytest.mark.parametrize(
    ("properties", "known", "suspended_files"),
    [
        ({}, (), []),
        ({TARGET: "id", FOLDER_KEY: FOLDER, f"{RUNS}_000": "0123abcd,89abcdef"}, (), []),
        ({TARGET: "id", FOLDER_KEY: FOLDER, f"{RUNS}_000": "0123abcd"}, (), [READS[1]]),
        # Of an earlier migration's runs, and there at the switch.
        ({TARGET: "id", FOLDER_KEY: FOLDER, f"{RUNS}_000": "0123abcd"}, READS, []),
    ],
)
def test_files_of_runs_that_did_not_end_are_rows_twice_where_no_run_comes(
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    known: tuple[ListedFile, ...],
    suspended_files: list[ListedFile],
) -> None:
    table = HiveTable(NAME, Kind.HIVE, location=ROOT, properties=properties)
    nothing: Any = None
    record = Record(nothing, FOLDER, ROOT)
    recorded = RecordedFiles(frozenset(known), frozenset())
    monkeypatch.setattr(hive, "require_hive_table", lambda warehouse, name: table)
    monkeypatch.setattr(
        suspended_runs, "listing", lambda warehouse, table, partitions: Listing(READS, (), ())
    )
    monkeypatch.setattr(Record, "of", lambda warehouse, properties: record)
    monkeypatch.setattr(Record, "is_there", lambda record: True)
    monkeypatch.setattr(Record, "files", lambda record: recorded)
    assert suspended_runs.suspended(nothing, NAME) == suspended_files
    if suspended_files:
        with conditions.raises("ROWS_READ_TWICE", table=NAME, files=re.compile("89abcdef-0")):
            suspended_runs.demand_none(nothing, NAME)


@pytest.mark.parametrize("odd", [False, True])
def test_what_a_suspended_run_added_to_a_directory_of_another_name_is_rewritten(odd: bool) -> None:
    """The directory of one partition may be named after another, or lie elsewhere."""
    one, two, three = ("1",), ("2",), ("3",)
    locations = {one: f"{ROOT}/k=1", two: f"{FOLDER}/n7-aaaaaaaa/k=2", three: f"{ROOT}/k=3"}
    if odd:
        locations |= {one: "file:///elsewhere/k=9", three: f"{ROOT}/k=1"}
    copy: Any = SimpleNamespace(
        partition_columns=("k",),
        columns={"k": "int"},
        partitions=frozenset(locations),
        locations=lambda some: {partition: locations[partition] for partition in some},
    )
    nothing: Any = None
    record, name = Record(nothing, "", ROOT, odd), f"{basename('bbbbbbbb')}-0"
    unfinished = [
        file(f"{directory}/{name}")
        for directory in ("file:/elsewhere/k=9", "k=1", f"{FOLDER}/n7-aaaaaaaa/k=2", "k=2")
    ]
    in_use = settlement._in_use(copy, record, ShadowProgress(None, "", FOLDER), unfinished)
    assert in_use == ({one, two, three} if odd else {one, two})


@pytest.mark.parametrize("committed", [True, False])
def test_a_table_that_is_always_being_written_to_is_waited_for_no_longer_than_needed(
    monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """Only the files of the first look are waited for, as others come all the time."""
    first, *others = (file(f"{number}-{DELTA_FILE}", modified=NOW) for number in range(9))
    looks = iter(Findings(undecided=(first, other)) for other in others)

    def look(*_: Any) -> Findings:
        found = next(looks)
        return (
            Findings(undecided=found.undecided[1:])
            if committed and found.undecided[1] != others[0]
            else found
        )

    record = SimpleNamespace(is_there=lambda: True, root=ROOT)
    monkeypatch.setattr(Record, "of", lambda *_: record)
    monkeypatch.setattr(settlement, "_look", look)
    monkeypatch.setattr(settlement, "read_target", lambda *_: None)
    slept: list[float] = []
    monkeypatch.setattr(settlement, "sleep", slept.append)
    copy: Any = SimpleNamespace(warehouse=SimpleNamespace(late_files=LateFiles.PAUSE), properties={})
    target: Any = SimpleNamespace(shared=ROOT)

    def settle() -> settlement.Settled:
        name = TableName(("c", "s", "t"))
        marks = ShadowProgress(None, "", FOLDER)
        return settlement.settle(copy, target, name, TargetFormat.DELTA, marks, decide=True)

    if committed:
        assert settle().taken == ()
        assert len(slept) == 1
    else:
        with conditions.raises("FILES_MAY_BE_UNCOMMITTED", files=re.compile(f"0-{DELTA_FILE}")):
            settle()


@pytest.mark.parametrize("renamed", [False, True])
def test_no_file_is_taken_under_names_that_the_new_table_has_no_more(
    monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    """No snapshot has the new names yet, and the table takes rows by them alone."""
    taken: list[Any] = []
    record = SimpleNamespace(is_there=lambda: True, root=ROOT, odd=False)
    monkeypatch.setattr(Record, "of", lambda *_: record)
    monkeypatch.setattr(settlement, "_look", lambda *_: Findings(late=(file("000000_0"),)))
    monkeypatch.setattr(settlement, "take", lambda *given: taken.append(given))
    columns = {"id": "int"}
    copy: Any = SimpleNamespace(
        warehouse=SimpleNamespace(late_files=LateFiles.TAKE),
        properties={},
        partition_columns=(),
        partitions=frozenset(((),)),
        columns=columns,
        name=NAME,
    )
    target: Any = SimpleNamespace(
        shared=None, type_substitutes={}, columns=lambda: columns, is_renamed=renamed
    )
    marks = ShadowProgress(None, "", FOLDER)
    if renamed:
        with conditions.raises("LATE_FILES_NOT_TAKEABLE", table=NAME):
            settlement.settle(copy, target, NAME, TargetFormat.ICEBERG, marks)
    else:
        settlement.settle(copy, target, NAME, TargetFormat.ICEBERG, marks)
    assert len(taken) == (not renamed)


def test_a_person_is_asked_once_about_a_file_that_is_gone() -> None:
    added: list[tuple[set[ListedFile], bool]] = []
    record: Any = SimpleNamespace(add=lambda files, settled=False: added.append((set(files), settled)))
    settlement.Settled(taken=(NEW,), asked=(NEW, OLD), record=record).finish()
    assert added == [({NEW}, False), ({OLD}, True)]
    added.clear()
    settlement.Settled(taken=(NEW,), asked=(NEW,), record=record).finish()
    assert added == [({NEW}, False)]
