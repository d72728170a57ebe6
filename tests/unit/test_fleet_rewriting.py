"""What of a table is rewritten, and what its copy holds, by its commits alone."""

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

from tableferry.fleet.checks.eligibility import ineligibility, needs_rewriting
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.jobs.plan import Kind
from tableferry.fleet.warehouse import comparing, hive, shared_directories, versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.files import ListedFile, Listing, TableFiles
from tableferry.fleet.warehouse.hive_table import READING, SOURCE, HiveColumn, HiveTable
from tableferry.fleet.warehouse.prepared import Prepared
from tableferry.fleet.warehouse.rewriting import copies, writing
from tableferry.fleet.warehouse.rewriting.copies import Copy
from tableferry.fleet.warehouse.rewriting.pieces import (
    UNSETTLED,
    WHOLE,
    Held,
    Note,
    Piece,
    chunks,
    holds,
    others,
    pieces_of,
    stale,
)
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
    """Return a listing: of each partition, the sizes of its files."""
    partitions = tuple(CatalogPartition(spec, f"{ROOT}/{spec}") for spec in sorted(files) if spec)
    read = tuple(
        ListedFile(f"{ROOT}/{spec}/{number}".replace("//", "/"), size, WRITTEN)
        for spec, sizes in files.items()
        for number, size in enumerate(sizes)
    )
    return TableFiles(table, partitions, Listing(read, (), ()), at)


def test_a_piece_is_a_partition_with_files_and_another_if_these_or_their_reading_change() -> None:
    files = {"day=a": [10, 20], "day=b": [5], "day=empty": []}
    pieces = pieces_of(listed(files))
    assert {name: piece.bytes for name, piece in pieces.items()} == {"day=a": 30, "day=b": 5}
    other = pieces_of(listed({**files, "day=a": [10, 21]}))
    assert (other["day=a"] != pieces["day=a"], other["day=b"]) == (True, pieces["day=b"])
    read_otherwise = pieces_of(listed(files, replace(TABLE, options={"field.delim": "|"})))
    assert read_otherwise["day=b"].digest != pieces["day=b"].digest
    # A file of the same second could be written again, and look the same.
    assert pieces_of(listed(files, at=WRITTEN + 1))["day=a"].digest == UNSETTLED


def test_a_table_without_partitions_is_one_piece() -> None:
    whole = replace(TABLE, partition_columns=())
    assert [*pieces_of(listed({"": [1, 2]}, whole))] == [WHOLE]
    assert pieces_of(listed({"": []}, whole)) == {}


PARTITIONS = st.dictionaries(
    st.sampled_from([f"day={day}" for day in "abcdef"]), st.lists(st.integers(1, 50), max_size=3), max_size=6
)


@given(st.lists(st.tuples(PARTITIONS, st.integers(1, 120), st.integers(0, 4)), min_size=1), st.randoms())
def test_after_all_chunks_a_copy_holds_what_is_listed_whatever_came_before(
    histories: list[tuple[dict[str, list[int]], int, int]], draw: random.Random
) -> None:
    commits: list[tuple[str, Note]] = []
    rows: dict[str, str] = {}
    slept: list[tuple[list[str], dict[str, list[int]]]] = []

    def commit(chunk: list[str], files: dict[str, list[int]]) -> None:
        """Replace the rows of some pieces by what there is now, as an overwrite does."""
        wanted = pieces_of(listed(files))
        for name in chunk:
            rows.pop(name, None)
            if name in wanted:
                rows[name] = str(files[name])
        pieces = {name: wanted[name].digest if name in wanted else None for name in chunk}
        commits.append((str(len(commits)), Note(len(commits), pieces)))

    for files, most, dies_after in histories:
        wanted = pieces_of(listed(files))
        for number, chunk in enumerate(chunks(stale(wanted, holds(commits)), wanted, most)):
            if number == dies_after:
                slept.append((chunk, files))
                break
            commit(chunk, files)
        if slept and draw.random() < 0.3:
            # A worker that slept wakes, and reads the table as it is by now.
            chunk, _ = slept.pop()
            commit(chunk, files)
    last = histories[-1][0]
    wanted = pieces_of(listed(last))
    left = stale(wanted, holds(commits))
    for chunk in chunks(left, wanted, 60):
        commit(chunk, last)
    assert rows == {name: str(sizes) for name, sizes in last.items() if sizes}
    held = holds(commits)
    assert {name: piece.digest for name, piece in held.items()} == {
        name: piece.digest for name, piece in wanted.items()
    }
    assert stale(wanted, held) == []


def test_of_a_piece_whose_files_were_young_only_the_rows_tell_whether_the_copy_is_of_them() -> None:
    """Whoever goes on for a worker that died finds the same files, which are old by then."""
    wanted = {"a": Piece("1", 10), "b": Piece("2", 10), "c": Piece(UNSETTLED, 10)}
    held = {"a": Held(UNSETTLED, "1"), "b": Held("2", "1"), "c": Held(UNSETTLED, "1")}
    assert others(wanted, held) == []
    assert others(wanted, {**held, "b": Held("3", "2")}) == ["b"]
    assert others(wanted, {**held, "c": Held("3", "2")}) == ["c"]
    assert others({"a": wanted["a"]}, {"b": held["b"]}) == ["a", "b"]


@given(PARTITIONS, st.integers(1, 200))
def test_a_chunk_has_so_many_bytes_or_one_piece(files: dict[str, list[int]], most: int) -> None:
    wanted = pieces_of(listed(files))
    divided = list(chunks(sorted(wanted), wanted, most))
    assert [name for chunk in divided for name in chunk] == sorted(wanted)
    for chunk in divided:
        assert len(chunk) == 1 or sum(wanted[name].bytes for name in chunk) <= most


def test_a_condition_names_two_hundred_partitions_at_most() -> None:
    names = [f"day={number}" for number in range(401)]
    assert [len(chunk) for chunk in chunks(names, {}, 1)] == [200, 200, 1]


def test_a_note_is_read_as_it_was_written() -> None:
    note = Note(7, {"day=a": "0f", "day=ü": None})
    assert Note.of(note.text()) == note
    for text in ("", "null", "[]", "{}", '{"number": 1}', '{"number": [], "pieces": {}}'):
        with pytest.raises(ValueError, match=r"no note|Expecting"):
            Note.of(text)


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
        (replace(TABLE, partition_columns=()), {}, [WHOLE], [("false", "true")]),
        (replace(TABLE, partition_columns=()), {"": [1]}, [WHOLE], [("true", "true")]),
    ],
)
def test_of_a_partition_that_was_gone_no_row_is_written_though_it_may_be_there_again(
    table: HiveTable,
    there: dict[str, list[int]],
    held: list[str],
    conditions: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit says that it has none: where it's gone once more, nobody would look for them."""
    written: list[tuple[dict[str, str | None], tuple[str, str]]] = []

    def write(
        _: Warehouse, table: HiveTable, copy: Copy, pieces: dict[str, str | None], where: tuple[str, str]
    ) -> Copy:
        written.append((pieces, where))
        return copy

    monkeypatch.setattr(copies, "write", write)
    nothing: Any = None
    kinds = {"id": "int", "day": "string"}
    wanted = pieces_of(listed(there, table))
    copy = Copy(COPY, ICEBERG, {name: Held("old", "1") for name in held}, 1, "1")
    work = writing._Work(Warehouse(nothing, nothing), listed(there, table), copy, wanted, (kinds, kinds))
    work.write(stale(wanted, copy.held))
    assert [where for _, where in written] == conditions
    gone = {name for pieces, _ in written for name, known in pieces.items() if known is None}
    assert gone == set(held) - set(wanted)


def test_a_delta_copy_has_the_columns_that_the_hive_table_has_now() -> None:
    """Spark keeps the columns of a table of its own as this session first read them."""
    schema = StructType().add("id", "integer")
    spark: Any = SimpleNamespace(
        catalog=SimpleNamespace(refreshTable=lambda _: schema.add("name", "string")),
        table=lambda _: SimpleNamespace(schema=schema),
    )
    nothing: Any = None
    statement = copies._create_statement(Warehouse(spark, nothing), TABLE, COPY, TargetFormat.DELTA)
    assert "(`id` int, `name` string) USING delta" in statement


def test_of_a_copy_that_is_made_anew_nothing_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new Delta table counts its versions from the start, so that they are those of the one before."""
    statements: list[str] = []
    spark: Any = SimpleNamespace(sql=lambda text: SimpleNamespace(collect=lambda: statements.append(text)))
    warehouse = Warehouse(spark, spark, prepared=Prepared(pieces={"day=a": "1", "day=b": "2"}))
    existing: dict[TableName, Kind] = {COPY: Kind.DELTA}
    properties = {SOURCE: TABLE.name.key, READING: copies._reading(TABLE)}
    again = Copy(COPY, DELTA, {"day=a": Held("0f", "1")}, 1, "1")
    monkeypatch.setattr(copies, "kinds", lambda *_: existing)
    monkeypatch.setattr(copies, "_properties", lambda *_: properties)
    monkeypatch.setattr(copies, "change_unchanged", lambda *_, **__: None)
    monkeypatch.setattr(copies, "_create_statement", lambda *_: "CREATE")
    monkeypatch.setattr(copies, "read", lambda *_: again)
    wanted = {"day=a": Piece("0f", 1)}
    kinds = {"id": "int", "day": "string"}
    monkeypatch.setattr(comparing, "demand_same_frames", lambda *_: 1)
    for seen, reading in ((0, copies._reading(TABLE)), (1, "another")):
        properties[READING] = reading
        copy = copies.opened(warehouse, TABLE, COPY, DELTA)
        work = writing._Work(warehouse, listed({"day=a": [1]}), copy, wanted, (kinds, kinds))
        assert work.compare() == (seen, {})
    assert statements == ["CREATE"]


@pytest.mark.parametrize("form", TargetFormat)
def test_a_copy_whose_first_commits_were_cleaned_up_is_made_anew_by_a_person(
    form: TargetFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What these said is gone: rows of a partition that Hive has no more would stay, and nobody saw them."""
    note = Note(3, {"day=a": "0f"}).text()
    every: Any = {
        "iceberg": [("8", None, "append", note), ("9", "8", "overwrite", note)],
        "delta": [("1", "WRITE", note), ("0", "CREATE TABLE", None)],
    }[form.value]
    rows = list[tuple[str | None, ...]]()
    frame: Any = SimpleNamespace(collect=lambda: rows)
    frame.select = lambda *_: frame
    spark: Any = SimpleNamespace(sql=lambda _: frame)
    nothing: Any = None
    monkeypatch.setattr(versions, "current", lambda *_: "9")
    rows[:] = every
    assert copies.read(Warehouse(spark, nothing), COPY, form).held.keys() == {"day=a"}
    rows[:] = every[1:] if form is ICEBERG else every[:1]
    with conditions.raises("REWRITTEN_COPY_LOST_VERSIONS", table=COPY):
        copies.read(Warehouse(spark, nothing), COPY, form)


@pytest.mark.parametrize("catalog", ["spark_catalog", "lake"])
def test_files_of_a_table_that_wasnt_dropped_stay_in_whatever_catalog_it_is(
    catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A revert doesn't drop what has the copy's name, and doesn't say any more what it was made of."""
    there = TableName((catalog, "sales", "orders_iceberg"))
    folder = f"{ROOT}_iceberg"
    tables = {catalog: [(there, folder)]}
    removed: list[str] = []
    storage: Any = SimpleNamespace(
        all_names=lambda _: ("data", "metadata"), remove=removed.append, remove_empty=removed.append
    )
    monkeypatch.setattr(shared_directories, "_tables", lambda _, catalog, unlisted: tables.get(catalog, ()))
    monkeypatch.setattr(hive, "layout", lambda *_: TABLE)
    monkeypatch.setattr(hive, "partitions", lambda *_: ())
    monkeypatch.setattr(copies, "storage_of", lambda *_: storage)
    nothing: Any = None
    warehouse = Warehouse(nothing, nothing)
    assert copies.remove_files(warehouse, there, TABLE.name, folder, ICEBERG)
    assert removed == []
    tables.clear()
    assert copies.remove_files(warehouse, there, TABLE.name, folder, ICEBERG)
    assert removed == [f"{folder}/data", f"{folder}/metadata", folder]


TIMES = HiveColumn("at", {"name": "timestamp_ltz"})
WRONG = HiveColumn("_corrupt_record", {"name": "string"})


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
def test_what_can_stay_isnt_rewritten(table: HiveTable, iceberg: bool, delta: bool) -> None:
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
def test_what_spark_doesnt_read_as_hive_does_isnt_rewritten(table: HiveTable, reason: PauseReason) -> None:
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
