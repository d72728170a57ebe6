"""Partitions of a rewritten table, and the content of its copy according to the commits."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from tests import conditions

from tableferry.fleet.checks.eligibility import find_obstacles
from tableferry.fleet.checks.facts import GivenFacts
from tableferry.fleet.checks.metadata_checks import needs_rewriting
from tableferry.fleet.copies import comparison
from tableferry.fleet.copies.rewrite import rewritten_copy, writer
from tableferry.fleet.copies.rewrite.partitions import (
    UNSETTLED,
    WHOLE_TABLE,
    CommitNote,
    CopiedPartition,
    SourcePartition,
    list_copied_partitions,
    list_foreign_partitions,
    list_outdated_partitions,
    list_source_partitions,
    split_into_chunks,
)
from tableferry.fleet.copies.rewrite.rewritten_copy import RewrittenCopy
from tableferry.fleet.hive_tables.hive_table import READING, SOURCE, HiveColumn, HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing, TableFiles
from tableferry.fleet.jobs.findings import PauseFinding
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive, shared_directories, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import TableName

ICEBERG, DELTA = TargetFormat
ROOT = "file:/w/orders"
TABLE = HiveTable(
    TableName(("spark_catalog", "sales", "orders")),
    Kind.HIVE,
    "text",
    location=ROOT,
    columns=(HiveColumn("id", {"name": "int"}), HiveColumn("day", {"name": "string"})),
    partition_columns=("day",),
)
# Microseconds: the listing is an hour after the files, which have whole seconds.
WRITTEN, LISTED = 10**15, 10**15 + 3600 * 10**6


def listed(files: dict[str, list[int]], table: HiveTable = TABLE, at: int = LISTED) -> TableFiles:
    """Return a listing, from the sizes of the files in each partition."""
    partitions = tuple(CatalogPartition(spec, f"{ROOT}/{spec}") for spec in sorted(files) if spec)
    read = tuple(
        ListedFile(f"{ROOT}/{spec}/{number}".replace("//", "/"), size, WRITTEN)
        for spec, sizes in files.items()
        for number, size in enumerate(sizes)
    )
    return TableFiles(table, partitions, Listing(read, (), ()), at)


def test_digest_of_a_partition_changes_with_its_files_and_read_options() -> None:
    files = {"day=a": [10, 20], "day=b": [5], "day=empty": []}
    partitions = list_source_partitions(listed(files))
    assert {name: partition.bytes for name, partition in partitions.items()} == {"day=a": 30, "day=b": 5}
    other = list_source_partitions(listed({**files, "day=a": [10, 21]}))
    assert (other["day=a"] != partitions["day=a"], other["day=b"]) == (True, partitions["day=b"])
    read_otherwise = list_source_partitions(listed(files, replace(TABLE, options={"field.delim": "|"})))
    assert read_otherwise["day=b"].digest != partitions["day=b"].digest
    # A file of the same second could be written again, and look the same.
    assert list_source_partitions(listed(files, at=WRITTEN + 1))["day=a"].digest == UNSETTLED


def test_table_without_partition_columns_is_one_partition() -> None:
    whole = replace(TABLE, partition_columns=())
    assert [*list_source_partitions(listed({"": [1, 2]}, whole))] == [WHOLE_TABLE]
    assert list_source_partitions(listed({"": []}, whole)) == {}


PARTITIONS = st.dictionaries(
    st.sampled_from([f"day={day}" for day in "abcdef"]), st.lists(st.integers(1, 50), max_size=3), max_size=6
)


@given(st.lists(st.tuples(PARTITIONS, st.integers(1, 120), st.integers(0, 4)), min_size=1), st.randoms())
def test_copy_has_the_listed_files_after_all_chunks_and_any_history(
    histories: list[tuple[dict[str, list[int]], int, int]], draw: random.Random
) -> None:
    commits: list[tuple[str, CommitNote]] = []
    rows: dict[str, str] = {}
    slept: list[tuple[list[str], dict[str, list[int]]]] = []

    def commit(chunk: list[str], files: dict[str, list[int]]) -> None:
        """Replace the rows of some partitions by what there is now, as an overwrite does."""
        wanted = list_source_partitions(listed(files))
        for name in chunk:
            rows.pop(name, None)
            if name in wanted:
                rows[name] = str(files[name])
        partitions = {name: wanted[name].digest if name in wanted else None for name in chunk}
        commits.append((str(len(commits)), CommitNote(len(commits), partitions)))

    for files, most, dies_after in histories:
        wanted = list_source_partitions(listed(files))
        for number, chunk in enumerate(
            split_into_chunks(list_outdated_partitions(wanted, list_copied_partitions(commits)), wanted, most)
        ):
            if number == dies_after:
                slept.append((chunk, files))
                break
            commit(chunk, files)
        if slept and draw.random() < 0.3:
            # A worker that slept wakes, and reads the table as it is by now.
            chunk, _ = slept.pop()
            commit(chunk, files)
    last = histories[-1][0]
    wanted = list_source_partitions(listed(last))
    left = list_outdated_partitions(wanted, list_copied_partitions(commits))
    for chunk in split_into_chunks(left, wanted, 60):
        commit(chunk, last)
    assert rows == {name: str(sizes) for name, sizes in last.items() if sizes}
    held = list_copied_partitions(commits)
    assert {name: partition.digest for name, partition in held.items()} == {
        name: partition.digest for name, partition in wanted.items()
    }
    assert list_outdated_partitions(wanted, held) == []


def test_partition_written_from_unsettled_files_is_not_reported_as_foreign() -> None:
    """A worker that resumes after a crash finds the same files, which are old enough by then."""
    wanted = {
        "a": SourcePartition("1", 10),
        "b": SourcePartition("2", 10),
        "c": SourcePartition(UNSETTLED, 10),
    }
    held = {
        "a": CopiedPartition(UNSETTLED, "1"),
        "b": CopiedPartition("2", "1"),
        "c": CopiedPartition(UNSETTLED, "1"),
    }
    assert list_foreign_partitions(wanted, held) == []
    assert list_foreign_partitions(wanted, {**held, "b": CopiedPartition("3", "2")}) == ["b"]
    assert list_foreign_partitions(wanted, {**held, "c": CopiedPartition("3", "2")}) == ["c"]
    assert list_foreign_partitions({"a": wanted["a"]}, {"b": held["b"]}) == ["a", "b"]


@given(PARTITIONS, st.integers(1, 200))
def test_chunk_has_at_most_the_given_bytes_or_one_partition(files: dict[str, list[int]], most: int) -> None:
    wanted = list_source_partitions(listed(files))
    divided = list(split_into_chunks(sorted(wanted), wanted, most))
    assert [name for chunk in divided for name in chunk] == sorted(wanted)
    for chunk in divided:
        assert len(chunk) == 1 or sum(wanted[name].bytes for name in chunk) <= most


def test_chunk_has_at_most_200_partitions() -> None:
    names = [f"day={number}" for number in range(401)]
    assert [len(chunk) for chunk in split_into_chunks(names, {}, 1)] == [200, 200, 1]


def test_note_is_parsed_as_written() -> None:
    note = CommitNote(7, {"day=a": "0f", "day=ü": None})
    assert CommitNote.of(note.text()) == note
    for text in ("", "null", "[]", "{}", '{"number": 1}', '{"number": [], "pieces": {}}'):
        with pytest.raises(ValueError, match=r"not a note|Expecting"):
            CommitNote.of(text)


COPY = TableName(("spark_catalog", "sales", "orders_copy"))


@pytest.mark.parametrize(
    ("table", "there", "held", "conditions"),
    [
        (TABLE, {"day=a": [1]}, ["day=b"], [("`day` IN ('a')", "`day` IN ('a', 'b')")]),
        (TABLE, {}, ["day=b"], [("false", "`day` IN ('b')")]),
        # Spark can't ask a metastore for a value with both quotes.
        (
            TABLE,
            {"day=a %22b%22 it's": [1]},
            [],
            [("coalesce(`day` IN ('a \"b\" it\\'s'), false)", "`day` IN ('a \"b\" it\\'s')")],
        ),
        (replace(TABLE, partition_columns=()), {}, [WHOLE_TABLE], [("false", "true")]),
        (replace(TABLE, partition_columns=()), {"": [1]}, [WHOLE_TABLE], [("true", "true")]),
    ],
)
def test_rows_of_a_removed_partition_are_not_written_if_it_exists_again(
    table: HiveTable,
    there: dict[str, list[int]],
    held: list[str],
    conditions: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The note records that the partition has no rows, so no later run would remove them."""
    written: list[tuple[dict[str, str | None], tuple[str, str]]] = []

    def write(
        _: Warehouse,
        table: HiveTable,
        copy: RewrittenCopy,
        partitions: dict[str, str | None],
        where: tuple[str, str],
    ) -> RewrittenCopy:
        written.append((partitions, where))
        return copy

    monkeypatch.setattr(rewritten_copy, "write", write)
    nothing: Any = None
    kinds = {"id": "int", "day": "string"}
    wanted = list_source_partitions(listed(there, table))
    copy = RewrittenCopy(COPY, ICEBERG, {name: CopiedPartition("old", "1") for name in held}, 1, "1")
    work = writer._Rewrite(Warehouse(nothing, nothing), listed(there, table), copy, wanted, (kinds, kinds))
    work.write(list_outdated_partitions(wanted, copy.held))
    assert [where for _, where in written] == conditions
    gone = {name for partitions, _ in written for name, known in partitions.items() if known is None}
    assert gone == set(held) - set(wanted)


def test_delta_copy_has_the_current_columns_of_the_hive_table() -> None:
    """A session caches the columns of tables in Spark's own formats."""
    schema = StructType().add("id", "integer")
    spark: Any = SimpleNamespace(
        catalog=SimpleNamespace(refreshTable=lambda _: schema.add("name", "string")),
        table=lambda _: SimpleNamespace(schema=schema),
    )
    nothing: Any = None
    statement = rewritten_copy._create_statement(Warehouse(spark, nothing), TABLE, COPY, TargetFormat.DELTA)
    assert "(`id` int, `name` string) USING delta" in statement


def test_nothing_of_a_recreated_copy_counts_as_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new Delta table has the same version numbers as the one before."""
    statements: list[str] = []
    spark: Any = SimpleNamespace(sql=lambda text: SimpleNamespace(collect=lambda: statements.append(text)))
    warehouse = Warehouse(spark, spark, prepared=PreparedCopy(partitions={"day=a": "1", "day=b": "2"}))
    existing: dict[TableName, Kind] = {COPY: Kind.DELTA}
    properties = {SOURCE: TABLE.name.key, READING: rewritten_copy._reading(TABLE)}
    again = RewrittenCopy(COPY, DELTA, {"day=a": CopiedPartition("0f", "1")}, 1, "1")
    monkeypatch.setattr(rewritten_copy, "kinds", lambda *_: existing)
    monkeypatch.setattr(rewritten_copy, "_properties", lambda *_: properties)
    monkeypatch.setattr(rewritten_copy, "change_if_unchanged", lambda *_, **__: None)
    monkeypatch.setattr(rewritten_copy, "_create_statement", lambda *_: "CREATE")
    monkeypatch.setattr(rewritten_copy, "read", lambda *_: again)
    wanted = {"day=a": SourcePartition("0f", 1)}
    kinds = {"id": "int", "day": "string"}
    monkeypatch.setattr(comparison, "require_same_frames", lambda *_: 1)
    for seen, reading in ((0, rewritten_copy._reading(TABLE)), (1, "another")):
        properties[READING] = reading
        copy = rewritten_copy.open_copy(warehouse, TABLE, COPY, DELTA)
        work = writer._Rewrite(warehouse, listed({"day=a": [1]}), copy, wanted, (kinds, kinds))
        assert work.compare() == (seen, {})
    assert statements == ["CREATE"]


@pytest.mark.parametrize("form", TargetFormat)
def test_copy_without_its_first_commits_is_refused(
    form: TargetFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without these commits' notes, rows of a removed partition would stay unnoticed."""
    note = CommitNote(3, {"day=a": "0f"}).text()
    every: Any = {
        "iceberg": [("8", None, "append", note), ("9", "8", "overwrite", note)],
        "delta": [("1", "WRITE", note), ("0", "CREATE TABLE", None)],
    }[form.value]
    rows = list[tuple[str | None, ...]]()
    frame: Any = SimpleNamespace(collect=lambda: rows)
    frame.select = lambda *_: frame
    spark: Any = SimpleNamespace(sql=lambda _: frame)
    nothing: Any = None
    monkeypatch.setattr(target_versions, "current_version", lambda *_: "9")
    rows[:] = every
    assert rewritten_copy.read(Warehouse(spark, nothing), COPY, form).held.keys() == {"day=a"}
    rows[:] = every[1:] if form is ICEBERG else every[:1]
    with conditions.raises("REWRITTEN_COPY_LOST_VERSIONS", table=COPY):
        rewritten_copy.read(Warehouse(spark, nothing), COPY, form)


@pytest.mark.parametrize("catalog", ["spark_catalog", "lake"])
def test_files_of_a_table_that_was_not_dropped_stay_in_any_catalog(
    catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revert doesn't drop a table with the copy's name whose properties don't show its source."""
    there = TableName((catalog, "sales", "orders_iceberg"))
    folder = f"{ROOT}_iceberg"
    tables = {catalog: [(there, folder)]}
    removed: list[str] = []
    storage: Any = SimpleNamespace(
        all_names=lambda _: ("data", "metadata"), remove=removed.append, remove_empty=removed.append
    )
    monkeypatch.setattr(shared_directories, "_tables", lambda _, catalog, unlisted: tables.get(catalog, ()))
    monkeypatch.setattr(hive, "read_layout", lambda *_: TABLE)
    monkeypatch.setattr(hive, "partitions", lambda *_: ())
    monkeypatch.setattr(rewritten_copy, "storage_of", lambda *_: storage)
    nothing: Any = None
    warehouse = Warehouse(nothing, nothing)
    assert rewritten_copy.remove_files(warehouse, there, TABLE.name, folder, ICEBERG)
    assert removed == []
    tables.clear()
    assert rewritten_copy.remove_files(warehouse, there, TABLE.name, folder, ICEBERG)
    assert removed == [f"{folder}/data", f"{folder}/metadata", folder]


TIMES = HiveColumn("at", {"name": "timestamp_ltz"})
WRONG = HiveColumn("_corrupt_record", {"name": "string"})


def ineligibility(table: HiveTable, form: TargetFormat, *, rewrite: bool = False) -> PauseFinding | None:
    return next(find_obstacles(GivenFacts(table, rewrite and needs_rewriting(table, form)), form), None)


@pytest.mark.parametrize(
    ("table", "iceberg", "delta"),
    [
        (TABLE, True, True),
        (replace(TABLE, format="csv"), True, True),
        (replace(TABLE, format="json"), True, True),
        (replace(TABLE, format="json", options={"multiLine": "false"}), True, True),
        (replace(TABLE, format="csv", options={"multiLine": "true"}), True, True),
        (replace(TABLE, format="json", columns=(WRONG,), serde="a.JsonSerDe"), True, True),
        (replace(TABLE, format="sequencefile"), True, True),
        (replace(TABLE, format="avro"), False, True),
        (replace(TABLE, format="orc"), False, True),
        (replace(TABLE, format="orc", columns=(TIMES,), partition_columns=()), True, True),
        (replace(TABLE, format="parquet"), False, False),
        (replace(TABLE, format="parquet", buckets=4), True, False),
    ],
)
def test_only_tables_that_need_it_are_rewritten(table: HiveTable, iceberg: bool, delta: bool) -> None:
    for form, rewritten in ((ICEBERG, iceberg), (DELTA, delta)):
        assert needs_rewriting(table, form) is rewritten
        assert (ineligibility(table, form) is not None) is rewritten
        assert ineligibility(table, form, rewrite=True) is None


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (replace(TABLE, transactional=True), PauseReason.IS_TRANSACTIONAL),
        (
            replace(TABLE, format="parquet", properties={"parquet.column.index.access": "TRUE"}),
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (
            replace(TABLE, format="orc", options={"orc.force.positional.evolution": "true"}),
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (
            replace(TABLE, format="parquet", options={"pathGlobFilter": "*.parquet"}),
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (
            replace(TABLE, format="csv", options={"modifiedBefore": "2024-01-01T00:00:00"}),
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (
            replace(TABLE, format="parquet", options={"datetimeRebaseMode": "legacy"}),
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (replace(TABLE, format="other"), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, properties={"skip.header.line.count": "1"}), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, properties={"skip.footer.line.count": "2"}), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, options={"skip.header.line.count": "1"}), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, format="text", serde="", options={"wholeText": "true"}), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, serde="org.apache.hadoop.hive.serde2.RegexSerDe"), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, columns=(HiveColumn("v", {"name": "void"}),)), PauseReason.UNSUPPORTED_SCHEMA),
        (replace(TABLE, format="json", options={"multiline": "TRUE"}), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, format="json", columns=(WRONG,)), PauseReason.NOT_REWRITABLE),
        (replace(TABLE, format="csv", columns=(WRONG,)), PauseReason.NOT_REWRITABLE),
        (
            replace(TABLE, format="json", options={"columnNameOfCorruptRecord": "ID"}),
            PauseReason.NOT_REWRITABLE,
        ),
    ],
)
def test_table_that_spark_reads_differently_than_hive_is_not_rewritten(
    table: HiveTable, reason: PauseReason
) -> None:
    for form in TargetFormat:
        for rewrite in (True, False):
            found = ineligibility(table, form, rewrite=rewrite)
            assert found is not None
            assert found.reason is reason or (not rewrite and found.reason is PauseReason.IS_CSV_TEXT)
    plain = replace(TABLE, format="parquet", options={"int96RebaseMode": "corrected", "compression": "zstd"})
    assert ineligibility(plain, DELTA) is None
    by_name = {"parquet.column.index.access": "false"}
    assert ineligibility(replace(TABLE, format="parquet", properties=by_name), DELTA) is None
    assert (
        ineligibility(replace(TABLE, properties={"skip.header.line.count": "0"}), DELTA, rewrite=True) is None
    )
