"""Classification and settlement of late files in a Hive copy's directories."""

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
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.late_files import settlement, suspended_runs
from tableferry.fleet.late_files.classification import Evidence, Findings, basename, classify, run_of
from tableferry.fleet.late_files.file_record import FileRecord, RecordedFiles
from tableferry.fleet.late_files.settlement import _acceptance_key, _is_accepted
from tableferry.fleet.settings import LateFiles
from tableferry.fleet.warehouse import hive
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


def test_known_file_is_not_reported() -> None:
    assert classified(OLD, known=(OLD,)) == Findings()
    # The spelling of the scheme's slashes doesn't matter.
    assert classified(file("file:///w/t/k=1/000000_0"), known=(OLD,)) == Findings(replaced=())


@pytest.mark.parametrize("shared", [True, False])
def test_unknown_file_is_late(shared: bool) -> None:
    assert classified(OLD, NEW, known=(OLD,), shared=shared) == Findings(late=(NEW,))


def test_settled_file_is_not_reported_again() -> None:
    changed = file(OLD.path, size=2)
    findings = classified(changed, NEW, known=(OLD,))
    assert findings == Findings(late=(NEW,), replaced=(changed,))
    assert findings.without_settled({NEW, changed}) == Findings(settled=(NEW, changed))
    # After a rewrite it's a different file.
    again = file(NEW.path, modified=1)
    assert classified(OLD, again, known=(OLD,)).without_settled({NEW}) == Findings(late=(again,))
    gone = classified(known=(OLD,), read=(OLD.path,))
    assert gone == Findings(removed=(OLD,))
    assert gone.without_settled({OLD}) == Findings()


def test_file_name_contains_its_shadow_run() -> None:
    assert run_of(f"{ROOT}/k=1/{basename('0123abcd')}-00000.parquet") == "0123abcd"
    # Spark prefixes the bucket if the Hive table is bucketed.
    assert run_of(f"{ROOT}/00001_0_{basename('0123abcd')}-00000-1d52_00001.c000.parquet") == "0123abcd"
    assert run_of(NEW.path) is None
    assert run_of(f"{FOLDER}/v1-0123abcd/k=1/part-0") is None


def test_file_that_new_table_s_log_names_is_logged() -> None:
    assert classified(NEW, logged=(NEW.path,)) == Findings(logged=(NEW,))
    # A person added the file to an Iceberg table.
    assert classified(NEW, read=(NEW.path,), shared=False) == Findings(logged=(NEW,))
    # A compaction replaced it afterwards, so only older snapshots name it.
    assert classified(NEW, logged=(NEW.path,), shared=False) == Findings(logged=(NEW,))


def test_recent_file_with_delta_name_is_undecided() -> None:
    young, old = file(DELTA_FILE, modified=NOW - 23 * HOUR), file(DELTA_FILE, modified=NOW - 25 * HOUR)
    assert classified(young) == Findings(undecided=(young,))
    assert classified(old) == Findings(late=(old,))
    # Names of Trino, Delta Kernel and Databricks's committer.
    unique = "6b1e9b0e-3b9c-4a53-9d5e-0a1b2c3d4e5f"
    for name in (
        f"20261127_101500_00012_abcde-{unique}",
        f"{unique}-000.parquet",
        f"part-00000-tid-123-{unique}-4-1-c000.snappy.parquet",
    ):
        assert classified(file(name, modified=NOW)) == Findings(undecided=(file(name, modified=NOW),))
    # Iceberg writes into another directory.
    assert classified(young, shared=False) == Findings(late=(young,))
    hives = file("000000_0", modified=NOW)
    assert classified(hives) == Findings(late=(hives,))
    assert classified(file("day=1_$folder$", size=0)) == Findings()
    assert classified(file("deletion_vector_6b1e9b0e-3b9c-4a53-9d5e-0a1b2c3d4e5f.bin")) == Findings()


def test_files_of_unfinished_shadow_run_are_reported() -> None:
    inserted = file(f"k=1/{basename('aaaaaaaa')}-00000-6b1e9b0e.c000.snappy.parquet")
    rewritten = file(f"{FOLDER}/v7-bbbbbbbb/k=1/part-00000.parquet")
    both = (inserted, rewritten)
    assert classified(*both, runs=("aaaaaaaa", "bbbbbbbb")) == Findings()
    assert classified(*both, runs=("aaaaaaaa",)) == Findings(unfinished=(rewritten,))
    # In this directory, the run named its files.
    own, other = (
        file(f"{FOLDER}/n7-bbbbbbbb/k=1/{name}") for name in (f"{basename('bbbbbbbb')}-0", DELTA_FILE)
    )
    assert classified(own, runs=("bbbbbbbb",)) == Findings()
    assert classified(own, runs=()) == Findings(unfinished=(own,))
    assert classified(own, other, runs=("bbbbbbbb",)) == Findings(late=(other,))
    assert classified(other, runs=("bbbbbbbb",)) == Findings(replaced=(other,))
    assert classified(own, other, known=(other,), runs=("bbbbbbbb",)) == Findings()
    # A run inserts into a directory that an earlier run created.
    later = file(f"{FOLDER}/v7-bbbbbbbb/k=1/{basename('cccccccc')}-00000-6b1e9b0e.c000")
    assert classified(later, runs=("bbbbbbbb",)) == Findings(unfinished=(later,))


def test_removed_file_is_reported_if_new_table_reads_it() -> None:
    bigger, later = OLD._replace(size=2), OLD._replace(modified=9)
    for changed in (bigger, later):
        assert classified(changed, known=(OLD,)) == Findings(replaced=(changed,))
        # A person accepted the changed file.
        assert classified(changed, known=(OLD, changed)) == Findings()
    assert classified(known=(OLD,)) == Findings()
    assert classified(known=(OLD,), read=(OLD.path,)) == Findings(removed=(OLD,))


def test_files_of_overwritten_partition_are_late() -> None:
    young = file(f"k=1/{DELTA_FILE}", modified=NOW)
    beside = file(f"k=2/{DELTA_FILE}", modified=NOW)
    findings = classified(young, beside, known=(OLD,), read=(OLD.path,))
    # By their names, both may belong to an uncommitted write to the new table.
    assert findings.undecided == (young, beside)
    decided = findings.with_overwrites_decided(lambda _: False)
    assert (decided.late, decided.undecided, decided.removed) == ((young,), (beside,), (OLD,))

    # Maintenance of the new table removes files that it no longer reads.
    cleaned = classified(young, known=(OLD,))
    assert cleaned.with_overwrites_decided(lambda _: False).undecided == (young,)
    # After the repair the new table doesn't read the old file either, and the accepted files are the same.
    found = _acceptance_key(decided)
    repaired = classified(young, beside, known=(OLD,)).with_overwrites_decided(
        lambda each: _is_accepted(each, found)
    )
    assert repaired.late == (young,)
    assert _is_accepted(repaired, found)
    more = file("k=1/000007_0")
    later = classified(young, more, known=(OLD,)).with_overwrites_decided(
        lambda each: _is_accepted(each, found)
    )
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
    # Each file that is neither known nor written by a finished shadow run is reported.
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
        # Runs of an earlier migration, whose files existed at the switch.
        ({TARGET: "id", FOLDER_KEY: FOLDER, f"{RUNS}_000": "0123abcd"}, READS, []),
    ],
)
def test_files_of_unfinished_runs_are_refused_without_next_run(
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    known: tuple[ListedFile, ...],
    suspended_files: list[ListedFile],
) -> None:
    table = HiveTable(NAME, Kind.HIVE, location=ROOT, properties=properties)
    nothing: Any = None
    record = FileRecord(nothing, FOLDER, ROOT)
    recorded = RecordedFiles(frozenset(known), frozenset())
    monkeypatch.setattr(hive, "require_hive_table", lambda warehouse, name: table)
    monkeypatch.setattr(
        suspended_runs, "listing", lambda warehouse, table, partitions: Listing(READS, (), ())
    )
    monkeypatch.setattr(FileRecord, "of", lambda warehouse, properties: record)
    monkeypatch.setattr(FileRecord, "exists", lambda record: True)
    monkeypatch.setattr(FileRecord, "files", lambda record: recorded)
    assert suspended_runs.list_suspended_files(nothing, NAME) == suspended_files
    if suspended_files:
        with conditions.raises("ROWS_READ_TWICE", table=NAME, files=re.compile("89abcdef-0")):
            suspended_runs.require_no_suspended_files(nothing, NAME)


@pytest.mark.parametrize("odd", [False, True])
def test_partition_in_directory_with_other_name_is_rewritten_after_suspended_run(odd: bool) -> None:
    """A partition's directory may have the name of another partition, or be outside the table's directory."""
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
    record, name = FileRecord(nothing, "", ROOT, odd), f"{basename('bbbbbbbb')}-0"
    unfinished = [
        file(f"{directory}/{name}")
        for directory in ("file:/elsewhere/k=9", "k=1", f"{FOLDER}/n7-aaaaaaaa/k=2", "k=2")
    ]
    in_use = settlement._partitions_of_unfinished_runs(
        copy, record, ShadowProgress(None, "", FOLDER), unfinished
    )
    assert in_use == ({one, two, three} if odd else {one, two})


@pytest.mark.parametrize("committed", [True, False])
def test_check_waits_only_for_undecided_files_of_first_listing(
    monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    """New undecided files may appear at any time, so the check doesn't wait for them."""
    first, *others = (file(f"{number}-{DELTA_FILE}", modified=NOW) for number in range(9))
    looks = iter(Findings(undecided=(first, other)) for other in others)

    def look(*_: Any) -> Findings:
        found = next(looks)
        return (
            Findings(undecided=found.undecided[1:])
            if committed and found.undecided[1] != others[0]
            else found
        )

    record = SimpleNamespace(exists=lambda: True, root=ROOT)
    monkeypatch.setattr(FileRecord, "of", lambda *_: record)
    monkeypatch.setattr(settlement, "_classify_files", look)
    monkeypatch.setattr(settlement, "read_target", lambda *_: None)
    slept: list[float] = []
    monkeypatch.setattr(settlement, "sleep", slept.append)
    copy: Any = SimpleNamespace(warehouse=SimpleNamespace(late_files=LateFiles.PAUSE), properties={})
    target: Any = SimpleNamespace(shared=ROOT)

    def settle() -> settlement.Settlement:
        name = TableName(("c", "s", "t"))
        marks = ShadowProgress(None, "", FOLDER)
        return settlement.settle_late_files(copy, target, name, TargetFormat.DELTA, marks, decide=True)

    if committed:
        assert settle().taken == ()
        assert len(slept) == 1
    else:
        with conditions.raises("FILES_MAY_BE_UNCOMMITTED", files=re.compile(f"0-{DELTA_FILE}")):
            settle()


@pytest.mark.parametrize("renamed", [False, True])
def test_late_file_is_refused_after_columns_were_renamed(
    monkeypatch: pytest.MonkeyPatch, renamed: bool
) -> None:
    """No snapshot has the new names yet, but an append needs them."""
    taken: list[Any] = []
    record = SimpleNamespace(exists=lambda: True, root=ROOT, odd=False)
    monkeypatch.setattr(FileRecord, "of", lambda *_: record)
    monkeypatch.setattr(settlement, "_classify_files", lambda *_: Findings(late=(file("000000_0"),)))
    monkeypatch.setattr(settlement, "append_late_files", lambda *given: taken.append(given))
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
            settlement.settle_late_files(copy, target, NAME, TargetFormat.ICEBERG, marks)
    else:
        settlement.settle_late_files(copy, target, NAME, TargetFormat.ICEBERG, marks)
    assert len(taken) == (not renamed)


def test_accepted_removed_file_is_recorded_as_settled() -> None:
    added: list[tuple[set[ListedFile], bool]] = []
    record: Any = SimpleNamespace(add=lambda files, settled=False: added.append((set(files), settled)))
    settlement.Settlement(taken=(NEW,), reported=(NEW, OLD), record=record).finish()
    assert added == [({NEW}, False), ({OLD}, True)]
    added.clear()
    settlement.Settlement(taken=(NEW,), reported=(NEW,), record=record).finish()
    assert added == [({NEW}, False)]
