"""The files and partitions of a copy that are compared, and those that were compared before."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tableferry import verify
from tableferry.fleet.copies import comparison, delta, iceberg
from tableferry.fleet.copies.iceberg_files import iceberg_commit
from tableferry.fleet.copies.iceberg_files.data_files import Appended
from tableferry.fleet.hive_tables.hive_table import SOURCE_FILES, HiveColumn, HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing, TableFiles
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import table_descriptions, target_versions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.prepared_copy import (
    ComparedFiles,
    DeltaDraft,
    IcebergCopy,
    Member,
    PreparedCopy,
)
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import TableName

SOURCE, TARGET = (TableName(("spark_catalog", "s", name)) for name in ("t", "t_iceberg"))
TABLE = HiveTable(
    SOURCE,
    Kind.HIVE,
    "avro",
    columns=(HiveColumn("id", {"name": "int"}), HiveColumn("day", {"name": "string"})),
    partition_columns=("day",),
)


def members(*specs: str, size: int = 1) -> frozenset[Member]:
    """Return a file in each of some partitions."""
    return frozenset((ListedFile(f"file:/w/t/{spec}/0.avro", size, 1), spec) for spec in specs)


ALL = members("day=a", "day=b", "day=c")
CHANGED = members("day=a", "day=c") | members("day=b", size=2)
UPDATED = IcebergCopy("as it is", "7", ALL, members("day=b"), since="6")
RECREATED = replace(UPDATED, added=ALL, since=None)


@pytest.mark.parametrize(
    ("made", "known", "busy", "where", "quiet"),
    [
        (RECREATED, None, "", "true", ALL),
        (RECREATED, None, "day=b", "NOT coalesce(`day` IN ('b'), false)", members("day=a", "day=c")),
        (UPDATED, ALL, "", None, ALL),
        # All files were compared.
        (RECREATED, ALL, "", None, ALL),
        (UPDATED, CHANGED, "", "`day` IN ('b')", ALL),
        (UPDATED, CHANGED, "day=b", None, members("day=a", "day=c")),
        # No file was compared.
        (RECREATED, CHANGED, "", "true", ALL),
        # A partition was removed.
        (UPDATED, ALL | members("day=d"), "", "`day` IN ('d')", ALL),
        # No condition selects these partitions.
        (UPDATED, ALL | members("day=__HIVE_DEFAULT_PARTITION__"), "", "true", ALL),
        (UPDATED, ALL | members("day=it's"), "", "`day` IN ('it\\'s')", ALL),
        (UPDATED, ALL | members("day=it's %22so%22"), "", "true", ALL),
        (UPDATED, ALL | members("day=c%3A%5C"), "", "true", ALL),
    ],
)
def test_only_changed_partitions_are_compared(
    made: IcebergCopy,
    known: frozenset[Member] | None,
    busy: str,
    where: str | None,
    quiet: frozenset[Member],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def require_same_rows(*given: object) -> int:
        compared.append(str(given[4]) if len(given) > 4 else "true")
        return 5

    monkeypatch.setattr(comparison, "require_same_rows", require_same_rows)
    nothing: Any = None
    prepared = PreparedCopy(busy=frozenset([busy] if busy else []))
    found = comparison._compare_partitions(
        Warehouse(nothing, nothing, prepared=prepared), TABLE, TARGET, made, known
    )
    assert compared == ([] if where is None else [where])
    assert found == (0 if where is None else 5, quiet)


@pytest.mark.parametrize(
    "registered", [["file:/w/t/day=a/0.avro"], ["file:/w/t/day=a/0.avro", "file:/w/t/b"]]
)
def test_recreated_or_changed_copy_is_compared_as_a_whole(
    registered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compared copy is missing or was changed."""
    files = tuple(file for file, _ in members("day=a"))
    partitions = (CatalogPartition("day=a", "file:/w/t/day=a"),)
    listed = TableFiles(TABLE, partitions, Listing(files, (), ()), 10**15)
    known: dict[str, str] = {"current-snapshot-id": "8", SOURCE_FILES: listed.digest}
    statements: list[str] = []
    monkeypatch.setattr(iceberg, "_read_copy_properties", lambda *_: known)
    monkeypatch.setattr(iceberg, "_list_data_files", lambda *_: registered)
    monkeypatch.setattr(iceberg, "_map_file_names", lambda *_: "[]")
    monkeypatch.setattr(iceberg, "change_if_unchanged", lambda *_: statements.append("drop"))
    monkeypatch.setattr(iceberg_commit, "append", lambda *_: Appended([], None, "9", "[]"))
    monkeypatch.setattr(target_versions, "current_version", lambda *_: "8")
    # A file that is gone was compared too, so that none is left to be compared.
    prepared = PreparedCopy(iceberg_copy=UPDATED, compared=ComparedFiles("as it was read", ALL))
    spark: Any = SimpleNamespace(sql=lambda text: SimpleNamespace(collect=lambda: statements.append(text)))
    made = iceberg._create_copy(Warehouse(spark, spark, prepared=prepared), listed, TARGET)
    assert (made.files, made.since) == (members("day=a"), None)
    assert len(statements) == (0 if len(registered) == 1 else 2)
    assert prepared.compared is None


def test_comparison_fails_if_spark_cannot_read_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = dict.fromkeys(
        ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"), "true"
    )
    before, seen = dict(settings), list[dict[str, str]]()
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__, unset=settings.__delitem__)
    frame: Any = SimpleNamespace(sparkSession=SimpleNamespace(conf=conf))

    def look(*_: object, **__: object) -> Any:
        seen.append(dict(settings))
        return SimpleNamespace(matches=True, source=SimpleNamespace(rows=3))

    monkeypatch.setattr(verify, "verify", look)
    assert comparison.require_same_frames(("left", lambda: frame), ("right", lambda: frame)) == 3
    assert seen == [dict.fromkeys(before, "false")]
    assert settings == before


@pytest.mark.parametrize("altered", [False, True])
@pytest.mark.parametrize("form", TargetFormat)
def test_altered_table_is_compared_as_a_whole(
    form: TargetFormat, altered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new column changes no file, and the copy lacks it."""
    table = replace(TABLE, format="parquet")
    now = replace(table, columns=(HiveColumn("late", {"name": "int"}), *table.columns)) if altered else table
    files = tuple(file for file, _ in members("day=a"))
    partitions = (CatalogPartition("day=a", "file:/w/t/day=a"),)
    listed = TableFiles(now, partitions, Listing(files, (), ()), 10**15)
    prepared = PreparedCopy(listed=listed, by_file=True)
    spark: Any = SimpleNamespace(table=lambda _: SimpleNamespace(schema=[]))
    if form is TargetFormat.ICEBERG:
        prepared.iceberg_copy = IcebergCopy(table.reading, "7", members("day=a"), members("day=a"))
        reading = json.dumps([table.reading, [], None])
        properties = {"current-snapshot-id": "7"}
        monkeypatch.setattr(table_descriptions, "properties", lambda *_: properties)
    else:
        reading = json.dumps([table.reading, "as Delta"])
        draft: Any = SimpleNamespace(files=files)
        prepared.delta_draft = DeltaDraft(draft, reading, table.location, members("day=a"))
        monkeypatch.setattr(comparison, "is_in_hive_directory", lambda *_: True)
        monkeypatch.setattr(delta, "is_log_unchanged", lambda *_: True)
    prepared.compared = ComparedFiles(reading, members("day=a"))
    monkeypatch.setattr(comparison, "require_same_rows", lambda *_: 5)
    found = comparison.require_copy_has_same_rows(Warehouse(spark, spark, prepared=prepared), SOURCE, TARGET)
    assert found == (5 if altered else 0)
