"""The cache of a job's catalog entries, which are read once for all steps between two changes."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.errors import TableError
from tableferry.fleet.copies import comparison, preparation
from tableferry.fleet.copies.rewrite import writer
from tableferry.fleet.copies.rewrite.rewritten_copy import RewrittenCopy
from tableferry.fleet.hive_tables.hive_table import HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing, TableFiles
from tableferry.fleet.jobs.job import TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive, job_tables, table_descriptions
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.job_tables import Entry, JobTableCache, entries, entry_of, kinds
from tableferry.fleet.warehouse.prepared_copy import PreparedCopy
from tableferry.fleet.warehouse.table_identity import change_if_unchanged
from tableferry.fleet.warehouse.table_renames import rename_table
from tableferry.fleet.warehouse.target_versions import NO_SNAPSHOT, snapshot_in_description
from tableferry.spark.tables import TableName

MAIN, HIVE, COPY = (TableName(("spark_catalog", "s", name)) for name in ("t", "t_hive", "t_iceberg"))
NAMES = (MAIN, HIVE, COPY)
UUID = "8cb939a0-7eba-4964-be86-db15cf9862a7"

HIVE_TEXT = """Catalog: spark_catalog
Database: s
Table: {name}
Created Time: Thu Nov 26 01:44:09 UTC 2026
Last Access: UNKNOWN
Type: {type}
Provider: hive
Comment: of no
Type: consequence
Table Properties: [k=v, w=[x], transient_lastDdlTime={changed}{more}]
Location: file:/lake/t
Schema: root
 |-- id: long (nullable = true)
"""


def hive_text(name: str = "t", kind: str = "EXTERNAL", changed: int = 1, more: str = "") -> str:
    return HIVE_TEXT.format(name=name, type=kind, changed=changed, more=more)


def iceberg_text(uuid: str = UUID) -> str:
    return (
        "Table: t\nCreated Time: today\nType: EXTERNAL\nProvider: hive\nTable Properties: "
        f"[metadata_location=file:/m.json, table_type=ICEBERG, transient_lastDdlTime=9, uuid={uuid}, x=y]\n"
        "Location: file:/lake/t_iceberg"
    )


class Catalog:
    """A session whose catalog has these tables, given by their results of SHOW TABLE EXTENDED."""

    def __init__(self, **tables: str) -> None:
        self.tables = tables
        self.looks = 0

    def sql(self, statement: str) -> Any:
        assert statement.startswith("SHOW TABLE EXTENDED"), statement
        self.looks += 1
        rows = [
            {"tableName": name, "information": text, "isTemporary": False}
            for name, text in self.tables.items()
        ]
        return SimpleNamespace(collect=lambda: rows)


class RenamingCatalog(Catalog):
    """A session that also renames tables."""

    conf = SimpleNamespace(get=lambda *_: None)

    def sql(self, statement: str) -> Any:
        if statement.startswith("SHOW"):
            return super().sql(statement)
        if renaming := re.fullmatch(r"ALTER TABLE \S+\.`(\w+)` RENAME TO \S+\.`(\w+)`", statement):
            old, new = renaming.groups()
            self.tables[new] = self.tables.pop(old)
        return SimpleNamespace(collect=list)


def warehouse(catalog: Catalog) -> Warehouse:
    nothing: Any = None
    spark: Any = catalog
    return Warehouse(spark, nothing, table_cache=JobTableCache(NAMES))


def test_hive_entry_is_equal_after_rename() -> None:
    entry = entry_of(hive_text())
    assert entry == Entry(
        Kind.HIVE,
        False,
        "file:/lake/t",
        "Thu Nov 26 01:44:09 UTC 2026",
        "root\n |-- id: long (nullable = true)\n",
        "[k=v, w=[x], ]",
        "",
        "",
    )
    options = hive_text().replace("\nSchema:", "\nStorage Properties: [compression=zstd]\nSchema:")
    assert entry_of(options) == entry._replace(options="[compression=zstd]")
    assert entry_of(hive_text("t_hive", changed=7)) == entry
    assert entry_of(hive_text(kind="MANAGED")) == entry._replace(managed=True)
    assert entry_of(hive_text(more=", tableferry.known_files=x")) != entry
    assert entry_of(hive_text().replace("id: long", "id: string")) != entry
    # A catalog that shows no columns.
    assert entry_of(hive_text().partition("Schema:")[0]).columns == ""


def test_iceberg_entry_is_equal_after_commit() -> None:
    entry = entry_of(iceberg_text())
    assert (entry.kind, entry.uuid, entry.properties) == (Kind.ICEBERG, UUID, "")
    assert entry_of(iceberg_text().replace("m.json", "n.json")) == entry
    assert entry_of(iceberg_text(UUID.replace("8", "9"))) != entry
    # A catalog that doesn't show the UUID.
    assert entry_of(iceberg_text().replace("uuid=", "my_uuid=")).uuid == ""
    assert entry.source == ""
    assert entry_of(iceberg_text().replace("x=y", "tableferry.source=s.t")).source == "s.t"
    assert entry_of(iceberg_text().replace("[", "[tableferry.source=s.t,")).source == "s.t"


def test_cache_reads_all_entries_together_and_again_after_change() -> None:
    catalog = Catalog(t=hive_text())
    ours = warehouse(catalog)
    assert kinds(ours, [MAIN]) == {MAIN: Kind.HIVE}
    assert kinds(ours, [HIVE, COPY]) == {}
    assert catalog.looks == 1
    catalog.tables["t_iceberg"] = iceberg_text()
    ours.effect(lambda: None, of=())
    assert kinds(ours, [COPY]) == {}
    ours.effect(lambda: None, of=(COPY,))
    assert kinds(ours, [MAIN]) == {MAIN: Kind.HIVE}
    assert catalog.looks == 1, "unchanged tables are cached"
    assert kinds(ours, [COPY]) == {COPY: Kind.ICEBERG}
    ours.effect(lambda: None)
    assert kinds(ours, NAMES) == {MAIN: Kind.HIVE, COPY: Kind.ICEBERG}
    assert catalog.looks == 3


def test_cache_reads_entries_again_after_failed_change() -> None:
    catalog = Catalog(t=hive_text())
    ours = warehouse(catalog)
    assert MAIN in entries(ours, NAMES)

    def fail() -> None:
        del catalog.tables["t"]
        raise TableError("somewhere in the middle")

    with pytest.raises(TableError, match="in the middle"):
        ours.effect(fail)
    assert entries(ours, NAMES) == {}


LAKE = TableName(("spark_catalog", "lake", "t"))
ELSEWHERE = Names(MAIN, LAKE, HIVE, MAIN, TableName(("spark_catalog", "lake", "t_iceberg")))
DELTA_TEXT = "Table: t\nType: EXTERNAL\nProvider: delta\nTable Properties: []\nLocation: file:{at}"


@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        (iceberg_text().replace("x=y", "tableferry.source=s.t"), {}, Kind.ICEBERG),
        (iceberg_text(), {"tableferry.source": "s.t"}, Kind.ICEBERG),
        (iceberg_text().replace("x=y", "tableferry.source=eu.t"), {"tableferry.source": "eu.t"}, Kind.OTHER),
        (iceberg_text(), {}, Kind.OTHER),
        (DELTA_TEXT.format(at="/lake/t"), {}, Kind.DELTA),
        (DELTA_TEXT.format(at="/lake/t_delta/rewritten-0a1b2c3d"), {}, Kind.DELTA),
        # Probation changed the Hive table's directory.
        (DELTA_TEXT.format(at="/first/t"), {"tableferry.first_location": "file:/first/t"}, Kind.DELTA),
        (DELTA_TEXT.format(at="/eu/t"), {}, Kind.OTHER),
        (DELTA_TEXT.format(at="/eu/t"), {"tableferry.source": "s.t"}, Kind.DELTA),
        (hive_text(), {}, Kind.HIVE),
    ],
)
def test_table_with_target_name_and_other_source_is_foreign(
    text: str, properties: dict[str, str], expected: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {MAIN: entry_of(hive_text()), LAKE: entry_of(text)}
    monkeypatch.setattr(job_tables, "entries", lambda *_: tables)
    monkeypatch.setattr(table_descriptions, "properties", lambda *_: properties)
    nothing: Any = None
    found = job_tables.list_job_tables(Warehouse(nothing, nothing), ELSEWHERE)
    assert found == {MAIN: Kind.HIVE, LAKE: expected}


@pytest.mark.parametrize(("main", "hive"), [("/lake/t", "/lake/new"), ("/lake/new", "/lake/t")])
def test_hive_table_created_during_switch_is_foreign(
    main: str, hive: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {MAIN: main, HIVE: hive}
    tables = {name: entry_of(hive_text().replace("/lake/t", at)) for name, at in places.items()}
    tables[COPY] = entry_of(iceberg_text().replace("x=y", "tableferry.source=s.t"))
    monkeypatch.setattr(job_tables, "entries", lambda *_: tables)
    nothing: Any = None
    found = job_tables.list_job_tables(Warehouse(nothing, nothing), Names(MAIN, MAIN, HIVE, HIVE, COPY))
    assert found[MAIN] is (Kind.HIVE if main == "/lake/t" else Kind.OTHER)
    assert found[HIVE] is Kind.HIVE


def test_name_outside_of_job_is_read_separately() -> None:
    catalog = Catalog(t=hive_text(), other=hive_text("other"))
    ours = warehouse(catalog)
    other = TableName(("spark_catalog", "s", "other"))
    for looks in (1, 2):
        assert other in entries(ours, [other])
        assert catalog.looks == looks


def test_cache_keeps_renamed_entry_only_after_success() -> None:
    catalog = RenamingCatalog(t=hive_text())
    ours = warehouse(catalog)
    [entry] = entries(ours, NAMES).values()
    rename_table(ours, MAIN, HIVE)
    assert entries(ours, NAMES) == {HIVE: entry}
    assert catalog.looks == 2, "the second one is the check before the rename"
    catalog.tables["t"] = catalog.tables.pop("t_hive")
    with conditions.raises("TABLE_CHANGED_DURING_STEP"):
        rename_table(ours, HIVE, MAIN)
    assert entries(ours, NAMES) == {MAIN: entry}
    assert catalog.looks == 4


def test_second_rename_of_switch_is_refused_if_copy_was_replaced_after_the_first() -> None:
    """Entries that a rename doesn't change stay those of the plan, and the next change compares with them."""
    catalog = RenamingCatalog(t=hive_text(), t_iceberg=iceberg_text())
    ours = warehouse(catalog)
    assert entries(ours, NAMES).keys() == {MAIN, COPY}
    rename_table(ours, MAIN, HIVE, beside=NAMES)
    catalog.tables["t_iceberg"] = iceberg_text(UUID.replace("8", "9"))
    with conditions.raises("TABLE_CHANGED_DURING_STEP", tables=COPY):
        rename_table(ours, COPY, MAIN, beside=NAMES)
    assert catalog.tables.keys() == {"t_hive", "t_iceberg"}


def test_change_is_refused_after_table_changed() -> None:
    catalog = Catalog(t=hive_text())
    ours = warehouse(catalog)
    assert MAIN in entries(ours, NAMES)
    done: list[int] = []
    assert change_if_unchanged(ours, NAMES, lambda: done.append(1)) is None
    assert MAIN in entries(ours, NAMES)
    catalog.tables["t"] = hive_text(more=", retention=30")
    with conditions.raises("TABLE_CHANGED_DURING_STEP", tables=MAIN):
        change_if_unchanged(ours, NAMES, lambda: done.append(2))
    assert done == [1]


PARTS = st.sampled_from(["a=b", "current-snapshot-id=7", ",current-snapshot-id=8", "x=,y", "none"])


@given(st.lists(PARTS, max_size=4), st.sampled_from(["12345", "none", None]))
def test_snapshot_id_is_found_only_if_unambiguous(parts: list[str], id: str | None) -> None:
    listed = [*parts, *([f"current-snapshot-id={id}"] if id else [])]
    found = snapshot_in_description({"Table Properties": f"[{','.join(listed)}]"})
    spoofed = sum("current-snapshot-id" in part for part in parts)
    if id and not spoofed:
        assert found == (NO_SNAPSHOT if id == "none" else id)
    elif spoofed + bool(id) != 1:
        assert found is None


def test_description_without_properties_has_no_snapshot_id() -> None:
    assert snapshot_in_description({}) is None


@pytest.mark.parametrize("rewritten", [False, True])
def test_entries_are_read_again_after_row_comparison(
    rewritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes by other processes must be found before writes are blocked."""
    catalog = Catalog(t=hive_text())
    ours = replace(warehouse(catalog), prepared=PreparedCopy())
    table, looks = HiveTable(MAIN, Kind.HIVE, "parquet", location="file:/lake/t"), list[int]()
    files = (ListedFile("file:/lake/t/0", 2**40, 1),)

    def demand(warehouse: Warehouse, name: TableName, *_: object) -> HiveTable:
        assert entries(warehouse, (name,)).keys() == {MAIN}
        looks.append(catalog.looks)
        return table

    listed = TableFiles(table, (), Listing(files, (), ()), 10**15)
    monkeypatch.setattr(hive, "require_hive_table", demand)
    monkeypatch.setattr(hive, "require_eligible_table", demand)
    monkeypatch.setattr(hive, "list_table_files", lambda *_: listed)
    if rewritten:
        copy = RewrittenCopy(COPY, TargetFormat.DELTA, {}, 0, "0")
        work = writer._Rewrite(ours, listed, copy, {}, ({}, {}))
        monkeypatch.setattr(writer._Rewrite, "on", lambda *_: work)
        writer.write_before_block(ours, MAIN, COPY, TargetFormat.DELTA)
    else:
        monkeypatch.setattr(comparison, "is_comparable_by_file", lambda *_: True)
        preparation._repeat_until_little(ours, MAIN, TargetFormat.ICEBERG, lambda _: 1)
    assert looks == [1, 2]
