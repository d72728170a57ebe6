"""The checks of a table before its migration: each finds something, in one order, with the facts it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from tests.unit.fleet_jobs import job

from tableferry.errors import Refused
from tableferry.fleet.checks import preflight as preflight_module
from tableferry.fleet.checks import table_reading
from tableferry.fleet.checks.eligibility import CHECKS, find_obstacles, require_eligible
from tableferry.fleet.checks.facts import CatalogFacts, CopyFacts, GivenFacts, GivenReading, Needs
from tableferry.fleet.checks.table_reading import TableReading
from tableferry.fleet.hive_copy.table import HiveCopy
from tableferry.fleet.hive_tables.hive_table import HiveColumn, HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing
from tableferry.fleet.jobs.job import PauseReason, TargetFormat
from tableferry.fleet.jobs.step_plan import Kind
from tableferry.fleet.warehouse import hive
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import TableDirectories
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import TableName

ICEBERG, DELTA = TargetFormat.ICEBERG, TargetFormat.DELTA
NAME = TableName(("spark_catalog", "sales", "orders"))
OTHER = TableName(("spark_catalog", "sales", "copies"))
ROOT = "file:/w/orders"
REFUSAL = Refused("FILES_TOO_DEEP", table=NAME, files=["a"])
ALL = tuple(Needs)


def column(name: str, kind: str) -> HiveColumn:
    return HiveColumn(name, {"name": kind})


TABLE = HiveTable(
    NAME,
    Kind.HIVE,
    "parquet",
    location=ROOT,
    columns=(column("id", "int"), column("day", "int")),
    partition_columns=("day",),
)
FACTS = GivenFacts(TABLE, known=ALL)
FILE = ListedFile(f"{ROOT}/day=1/a", 10, 0)


def table(**changed: Any) -> GivenFacts:
    return replace(FACTS, table=replace(TABLE, **changed))


def columns(*given: HiveColumn, by: tuple[str, ...] = (), **changed: Any) -> GivenFacts:
    return table(columns=given, partition_columns=by, **changed)


def catalog(facts: GivenFacts = FACTS, **given: Any) -> GivenFacts:
    return replace(facts, catalog=CatalogFacts(**given))


def partitions(facts: GivenFacts, *given: tuple[str, str]) -> GivenFacts:
    return replace(facts, partitions=tuple(CatalogPartition(*each) for each in given))


def reading(facts: GivenFacts = FACTS, **given: Any) -> GivenFacts:
    return replace(facts, reading=GivenReading(**given))


def copy(facts: GivenFacts = FACTS, **given: Any) -> GivenFacts:
    return reading(facts, copy=CopyFacts(**given))


def rewritten(facts: GivenFacts = FACTS) -> GivenFacts:
    return replace(facts, rewritten=True)


TEXT = rewritten(table(format="text"))
BY_DOUBLE = columns(column("id", "int"), column("day", "double"), by=("day",))
REGEX = "org.apache.hadoop.hive.serde2.RegexSerDe"
NULL = "day=__HIVE_DEFAULT_PARTITION__"

# For each check: facts, the target format, and the only finding.
CASES: Mapping[str, list[tuple[GivenFacts, TargetFormat, PauseReason, str]]] = {
    "iceberg_table": [
        (table(kind=Kind.ICEBERG), ICEBERG, PauseReason.IS_ALREADY_ICEBERG, "IS_ALREADY_ICEBERG"),
    ],
    "delta_table": [(table(kind=Kind.DELTA), DELTA, PauseReason.IS_ALREADY_DELTA, "IS_ALREADY_DELTA")],
    "view": [(table(kind=Kind.VIEW), DELTA, PauseReason.IS_VIEW, "IS_VIEW")],
    "transactional_table": [
        (table(transactional=True), DELTA, PauseReason.IS_TRANSACTIONAL, "IS_TRANSACTIONAL"),
    ],
    "columns_by_position": [
        (
            table(properties={"parquet.column.index.access": "true"}),
            DELTA,
            PauseReason.UNSUPPORTED_LAYOUT,
            "COLUMNS_BY_POSITION",
        ),
    ],
    "file_filter": [
        (
            table(options={"pathGlobFilter": "*"}),
            DELTA,
            PauseReason.UNSUPPORTED_LAYOUT,
            "OPTION_LEAVES_OUT_FILES",
        ),
    ],
    "other_calendar": [
        (
            table(options={"int96RebaseMode": "LEGACY"}),
            DELTA,
            PauseReason.UNSUPPORTED_LAYOUT,
            "OPTION_CHANGES_CALENDAR",
        ),
    ],
    "unknown_format": [(table(format="other"), DELTA, PauseReason.NOT_REWRITABLE, "FORMAT_UNKNOWN")],
    "skipped_lines": [
        (
            table(format="text", properties={"skip.header.line.count": "1"}),
            DELTA,
            PauseReason.NOT_REWRITABLE,
            "LINES_SKIPPED_BY_HIVE",
        ),
    ],
    "serde_only_reads": [
        (table(format="text", serde=REGEX), DELTA, PauseReason.NOT_REWRITABLE, "SERDE_ONLY_READS"),
    ],
    "json_record_per_file": [
        (
            table(format="json", options={"multiLine": "true"}),
            DELTA,
            PauseReason.NOT_REWRITABLE,
            "JSON_RECORD_PER_FILE",
        ),
    ],
    "text_row_per_file": [
        (
            table(format="text", options={"wholetext": "true"}),
            DELTA,
            PauseReason.NOT_REWRITABLE,
            "TEXT_ROW_PER_FILE",
        ),
    ],
    "corrupt_record_column": [
        (
            columns(column("_corrupt_record", "string"), format="csv"),
            DELTA,
            PauseReason.NOT_REWRITABLE,
            "CORRUPT_RECORD_COLUMN",
        ),
    ],
    "text_or_csv": [(table(format="csv"), ICEBERG, PauseReason.IS_CSV_TEXT, "IS_CSV_TEXT")],
    "format_in_no_target": [
        (table(format="sequencefile"), ICEBERG, PauseReason.UNSUPPORTED_FORMAT, "FORMAT_NOT_MIGRATABLE"),
    ],
    "format_not_in_delta": [
        (table(format="avro"), DELTA, PauseReason.UNSUPPORTED_FORMAT, "FORMAT_NOT_IN_DELTA"),
    ],
    "buckets": [(table(buckets=4), ICEBERG, PauseReason.IS_BUCKETED, "BUCKETS_NOT_IN_ICEBERG")],
    "columns": [
        (columns(column("_metadata", "int")), DELTA, PauseReason.UNSUPPORTED_SCHEMA, "COLUMN_NAME_RESERVED"),
        (
            columns(column("v", "void")),
            DELTA,
            PauseReason.UNSUPPORTED_SCHEMA,
            "COLUMN_TYPE_NOT_IN_NEW_TABLE",
        ),
        (
            columns(column("c", "char")),
            ICEBERG,
            PauseReason.UNSUPPORTED_SCHEMA,
            "COLUMN_TYPE_NOT_IN_NEW_TABLE",
        ),
        (
            columns(column("at", "timestamp_ltz"), format="orc"),
            ICEBERG,
            PauseReason.HAS_TIMESTAMP_COLUMN,
            "ORC_TIMESTAMP_NOT_INSTANT",
        ),
        (
            columns(column("at", "timestamp_ltz"), by=("at",)),
            ICEBERG,
            PauseReason.UNSUPPORTED_SCHEMA,
            "COLUMN_TYPE_NOT_IN_NEW_TABLE",
        ),
        (
            columns(column("c", "char"), by=("c",)),
            DELTA,
            PauseReason.UNSUPPORTED_SCHEMA,
            "COLUMN_TYPE_NOT_IN_NEW_TABLE",
        ),
    ],
    "names_taken": [
        (replace(FACTS, taken=(OTHER,)), DELTA, PauseReason.NAME_TAKEN, "MIGRATION_NAMES_TAKEN"),
    ],
    "target_schema": [
        (
            catalog(schema_refusal=REFUSAL),
            ICEBERG,
            PauseReason.NO_TARGET_SCHEMA,
            REFUSAL.condition,
        ),
    ],
    "long_name": [
        (
            catalog(names=(TableName(("c", "s", "t" * 257)),)),
            DELTA,
            PauseReason.UNSUPPORTED_SCHEMA,
            "HIVE_NAME_TOO_LONG",
        ),
    ],
    "managed_table": [
        (
            catalog(table(managed=True), can_make_external=False),
            DELTA,
            PauseReason.MANAGED_TABLE,
            "MANAGED_TABLE",
        ),
    ],
    "purge": [
        (
            table(properties={"external.table.purge": "true"}),
            DELTA,
            PauseReason.REMOVES_FILES,
            "PURGE_REMOVES_FILES",
        ),
    ],
    "overlapping_directories": [
        (catalog(overlapping=((OTHER, ROOT),)), DELTA, PauseReason.SHARED_DIRECTORY, "DIRECTORIES_OVERLAP"),
    ],
    "directory_of_other_table": [
        (catalog(owning_table="is in it"), DELTA, PauseReason.SHARED_DIRECTORY, "DIRECTORY_IN_OTHER_TABLE"),
    ],
    "old_name_shares_files": [
        (catalog(keeps_name=True), DELTA, PauseReason.UNSUPPORTED_LAYOUT, "OLD_NAME_SHARES_FILES"),
    ],
    "whole_bucket": [
        (table(location="s3a://bucket/"), DELTA, PauseReason.UNSUPPORTED_LAYOUT, "TABLE_IS_WHOLE_BUCKET"),
    ],
    "files_in_no_partition": [
        (
            replace(FACTS, files=Listing((), (), (FILE,))),
            DELTA,
            PauseReason.UNSUPPORTED_LAYOUT,
            "FILES_IN_NO_PARTITION",
        ),
    ],
    "hidden_partitions": [
        (
            partitions(FACTS, ("day=1", f"{ROOT}/_day")),
            DELTA,
            PauseReason.UNSUPPORTED_LAYOUT,
            "PARTITIONS_HIDDEN",
        ),
    ],
    "partitions_outside": [
        (
            partitions(FACTS, ("day=1", "file:/elsewhere")),
            DELTA,
            PauseReason.UNSUPPORTED_LAYOUT,
            "PARTITIONS_OUTSIDE_DIRECTORY",
        ),
    ],
    "shared_partition_directories": [
        (
            replace(
                partitions(FACTS, ("day=1", f"{ROOT}/day=1"), ("day=2", f"{ROOT}/day=1")),
                files=Listing((FILE,), (), ()),
            ),
            ICEBERG,
            PauseReason.UNSUPPORTED_LAYOUT,
            "PARTITIONS_SHARE_DIRECTORY",
        ),
    ],
    "nested_files": [
        (
            replace(FACTS, files=Listing((), (FILE,), ())),
            ICEBERG,
            PauseReason.UNSUPPORTED_LAYOUT,
            "FILES_TOO_DEEP",
        ),
    ],
    "unusual_names": [
        (columns(column("a b", "int")), DELTA, PauseReason.UNSUPPORTED_SCHEMA, "NAMES_NEED_COLUMN_MAPPING"),
    ],
    "negative_zero": [
        (
            partitions(BY_DOUBLE, ("day=-0.0", f"{ROOT}/day=-0.0")),
            ICEBERG,
            PauseReason.UNSUPPORTED_LAYOUT,
            "PARTITION_OF_NEGATIVE_ZERO",
        ),
    ],
    "avro_null_partition": [
        (
            partitions(table(format="avro"), (NULL, f"{ROOT}/{NULL}")),
            ICEBERG,
            PauseReason.UNSUPPORTED_LAYOUT,
            "AVRO_NULL_PARTITION",
        ),
    ],
    "files_of_suspended_runs": [
        (reading(suspended_files=["a"]), ICEBERG, PauseReason.UNSUPPORTED_LAYOUT, "ROWS_READ_TWICE"),
    ],
    "partitions_read_differently": [
        (
            reading(partitions(TEXT, ("day=1", f"{ROOT}/day=1")), other_partitions=["day=1"]),
            ICEBERG,
            PauseReason.UNSUPPORTED_LAYOUT,
            "PARTITIONS_READ_DIFFERENTLY",
        ),
    ],
    "partition_values": [
        (
            copy(other_values=["01"]),
            ICEBERG,
            PauseReason.UNSUPPORTED_LAYOUT,
            "PARTITION_VALUES_SPELLED_DIFFERENTLY",
        ),
    ],
    "avro_types": [
        (
            copy(other_types=[("s", "struct<a:int>", "struct<a:bigint>")]),
            ICEBERG,
            PauseReason.UNSUPPORTED_SCHEMA,
            "AVRO_COLUMN_TYPE_DIFFERS",
        ),
    ],
    "hive_copy": [
        (copy(refusal=REFUSAL), ICEBERG, PauseReason.UNSUPPORTED_LAYOUT, "FILES_TOO_DEEP"),
        (
            copy(failure="no class"),
            ICEBERG,
            PauseReason.UNSUPPORTED_SCHEMA,
            "COLUMNS_NOT_READABLE_FOR_COPY",
        ),
    ],
    "rewrite_directory": [
        (reading(TEXT, rewrite_refusal=REFUSAL), DELTA, PauseReason.UNSUPPORTED_LAYOUT, REFUSAL.condition),
    ],
    "rows_for_rewrite": [
        (
            reading(TEXT, row_failure="no class"),
            DELTA,
            PauseReason.NOT_REWRITABLE,
            "ROWS_NOT_READABLE_FOR_REWRITE",
        ),
    ],
    "files_for_new_table": [
        (reading(files_refusal=REFUSAL), DELTA, PauseReason.UNSUPPORTED_LAYOUT, "FILES_TOO_DEEP"),
    ],
    "rows": [
        (reading(row_failure="year 10000"), DELTA, PauseReason.UNSUPPORTED_LAYOUT, "ROWS_NOT_READABLE"),
    ],
}


def test_each_check_has_unique_name_and_rule() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for check in CHECKS:
        first = (check.find.__doc__ or "").split("\n")[0]
        assert first.startswith("Refuse "), check.name
        assert first.endswith("."), check.name
        assert check.rule.endswith("."), check.name


def test_each_check_has_a_case() -> None:
    assert list(CASES) == [check.name for check in CHECKS]


@pytest.mark.parametrize("name", CASES)
def test_check_finds_its_obstacle(name: str) -> None:
    (check,) = (check for check in CHECKS if check.name == name)
    for facts, form, reason, condition in CASES[name]:
        (found,) = find_obstacles(facts, form)
        assert (found.reason, found.condition) == (reason, condition)
        assert found.parameters.get("table", str(NAME)) == str(NAME)
        assert list(check.find(facts, form)) == [found]
        # Without its facts, the check isn't run.
        known = [needs for needs in ALL if needs is not check.needs]
        assert list(find_obstacles(replace(facts, known=known), form)) == []


def test_sound_table_has_no_obstacles() -> None:
    for form in TargetFormat:
        assert list(find_obstacles(FACTS, form)) == []
        require_eligible(TABLE, form)


class Unread:
    """Facts that a test doesn't expect to be read, except those that are given."""

    def __init__(self, **given: object) -> None:
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> NoReturn:
        raise AssertionError(f"{name} was read")


def conditions(facts: GivenFacts, form: TargetFormat = ICEBERG) -> list[str]:
    return [finding.condition for finding in find_obstacles(facts, form)]


def test_finding_about_metadata_is_the_only_one_and_other_facts_stay_unread() -> None:
    unread: Any = Unread()
    facts = replace(table(transactional=True, format="text"), catalog=unread, files=unread, reading=unread)
    assert conditions(facts) == ["IS_TRANSACTIONAL"]
    with pytest.raises(Refused) as refused:
        require_eligible(facts.table, ICEBERG)
    assert refused.value.condition == "IS_TRANSACTIONAL"


def test_spark_reads_nothing_after_finding_about_catalog_or_files() -> None:
    unread: Any = Unread()
    facts = catalog(table(properties={"external.table.purge": "true"}), owning_table="is in it")
    facts = replace(facts, files=Listing((), (FILE,), ()), reading=unread)
    assert conditions(facts) == ["PURGE_REMOVES_FILES", "DIRECTORY_IN_OTHER_TABLE", "FILES_TOO_DEEP"]


def test_nothing_more_is_read_after_refusal_of_hive_copy() -> None:
    given: Any = Unread(suspended_files=[], copy=CopyFacts(refusal=REFUSAL))
    for facts in (FACTS, TEXT):
        assert conditions(replace(facts, reading=given)) == ["FILES_TOO_DEEP"]


def test_row_is_read_only_if_columns_and_files_are_sound() -> None:
    failed = CopyFacts(failure="no class")
    given: Any = Unread(suspended_files=[], copy=failed, files_refusal=None)
    assert conditions(replace(FACTS, reading=given)) == ["COLUMNS_NOT_READABLE_FOR_COPY"]
    given = Unread(suspended_files=[], copy=CopyFacts(), files_refusal=REFUSAL)
    assert conditions(replace(FACTS, reading=given)) == ["FILES_TOO_DEEP"]


def test_footers_of_rewritten_table_are_not_read() -> None:
    given: Any = Unread(suspended_files=[], copy=CopyFacts(), rewrite_refusal=None, row_failure="")
    assert conditions(replace(TEXT, reading=given)) == []


def test_all_obstacles_of_spark_are_reported_in_order() -> None:
    facts = reading(
        suspended_files=["a"],
        copy=CopyFacts(other_values=["01"], failure="no class"),
        files_refusal=REFUSAL,
        row_failure="year 10000",
    )
    assert conditions(facts) == [
        "ROWS_READ_TWICE",
        "PARTITION_VALUES_SPELLED_DIFFERENTLY",
        "COLUMNS_NOT_READABLE_FOR_COPY",
        "FILES_TOO_DEEP",
    ]


def test_files_of_ineligible_table_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hive, "facts", lambda *_: replace(TABLE, format="text"))
    unread: Any = Unread()
    directories: TableDirectories = unread
    seen = preflight_module.preflight(Warehouse(unread, unread), job(target_format=DELTA), directories)
    assert [finding.condition for finding in seen.findings] == ["IS_CSV_TEXT"]
    assert (seen.stored_as, seen.files, seen.bytes, seen.partitions) == ("text", None, None, None)


def test_findings_before_refusal_of_hive_copy_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(copy: object) -> NoReturn:
        raise REFUSAL

    rows = SimpleNamespace(schema=SimpleNamespace(json=str))
    hive_copy = SimpleNamespace(schema=[], rows=lambda rows_of_table: rows)
    monkeypatch.setattr(HiveCopy, "of", lambda *_: hive_copy)
    monkeypatch.setattr(table_reading, "_list_other_values", lambda *_, **__: ["01"])
    monkeypatch.setattr(table_reading, "_list_other_types", refuse)
    spark: Any = SimpleNamespace(table=str)
    avro = table(format="avro")
    read = TableReading(Warehouse(spark, spark), avro, ICEBERG)
    assert conditions(replace(avro, reading=Unread(suspended_files=[], copy=read.copy))) == [
        "PARTITION_VALUES_SPELLED_DIFFERENTLY",
        "FILES_TOO_DEEP",
    ]
