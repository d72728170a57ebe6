"""Checks, forecasts and reports of the preflight."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from tests.unit import fleets
from tests.unit.fleet_jobs import job

from tableferry.cli.command import as_json
from tableferry.errors import Paused, Refused, StateError, TableError
from tableferry.fleet.checks import preflight as preflight_module
from tableferry.fleet.checks import preflight_run
from tableferry.fleet.checks.eligibility import find_obstacles
from tableferry.fleet.checks.facts import CatalogFacts, GivenFacts, GivenReading, Needs
from tableferry.fleet.checks.preflight import first_finding, list_remarks
from tableferry.fleet.checks.preflight_run import blocked_seconds, rewrite_seconds
from tableferry.fleet.checks.table_facts import TableFacts
from tableferry.fleet.hive_copy.table import scratch_name
from tableferry.fleet.hive_tables import metastore
from tableferry.fleet.hive_tables.hive_table import HiveColumn, HiveTable
from tableferry.fleet.hive_tables.table_files import ListedFile, Listing
from tableferry.fleet.jobs.findings import PauseFinding, Preflight
from tableferry.fleet.jobs.job import Job, PauseReason, State, TargetFormat
from tableferry.fleet.jobs.names import Names
from tableferry.fleet.jobs.step_plan import Kind, plan
from tableferry.fleet.jobs.steps import BlockWrites, CompareAhead, RepeatPreflight, TryShadow
from tableferry.fleet.queue import schema
from tableferry.fleet.queue.records import NewJob
from tableferry.fleet.reports.preflight import (
    Kinds,
    causes,
    headline,
    kinds,
    preflight_csv,
    preflight_lines,
    preflight_page,
)
from tableferry.fleet.warehouse import hive, hive_files, job_tables, shared_directories
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.shared_directories import DirectoryIndex, TableDirectories
from tableferry.formats.hive.locations import below
from tableferry.formats.hive.partitions import CatalogPartition
from tableferry.spark.tables import CatalogTable, TableName

NAME = TableName(("spark_catalog", "sales", "orders"))
OTHER = TableName(("spark_catalog", "sales", "copies"))
ROOT = "file:/w/orders"
TABLE = HiveTable(
    NAME,
    Kind.HIVE,
    "parquet",
    location=ROOT,
    columns=(HiveColumn("id", {"name": "int"}), HiveColumn("day", {"name": "int"})),
    partition_columns=("day",),
)
INSIDE = CatalogPartition("day=1", f"{ROOT}/day=1")
OUTSIDE = CatalogPartition("day=2", "file:/elsewhere/2")
NULL = CatalogPartition("day=__HIVE_DEFAULT_PARTITION__", f"{ROOT}/day=__HIVE_DEFAULT_PARTITION__")
HIDDEN = [CatalogPartition("day=3", f"{ROOT}/{path}") for path in ("_h/day=3", ".z", "a/_metadata_b")]
ZERO = CatalogPartition("day=-0.0", f"{ROOT}/day=-0.0")
BY_DOUBLE = replace(TABLE, columns=(TABLE.columns[0], HiveColumn("day", {"name": "double"})))
FILE = ListedFile(f"{ROOT}/day=1/a", 10, 0)
FACTS = GivenFacts(
    TABLE,
    known=(Needs.CATALOG, Needs.FILES),
    partitions=(INSIDE,),
    files=Listing((FILE,), (), ()),
)
NO_FILES = Listing((), (), ())
ICEBERG, DELTA = TargetFormat.ICEBERG, TargetFormat.DELTA


def reasons(facts: GivenFacts, form: TargetFormat = ICEBERG) -> list[PauseReason]:
    return [finding.reason for finding in find_obstacles(facts, form)]


def test_migratable_table_has_no_findings() -> None:
    for form in TargetFormat:
        assert reasons(FACTS, form) == []
    assert "spark.sql.sources.partitionOverwriteMode=dynamic" in list_remarks(FACTS, DELTA)[0]
    assert list_remarks(replace(FACTS, table=replace(TABLE, partition_columns=())), ICEBERG) == ()


def test_remark_warns_about_files_shared_with_delta_table() -> None:
    keeps_name = replace(FACTS, catalog=CatalogFacts(keeps_name=True))
    assert reasons(keeps_name, DELTA) == [PauseReason.UNSUPPORTED_LAYOUT]
    assert reasons(keeps_name, ICEBERG) == reasons(replace(keeps_name, rewritten=True), DELTA) == []
    assert "shares its files with the Delta table: don't read it" in list_remarks(FACTS, DELTA)[-1]
    assert "shares its files" not in " ".join(list_remarks(replace(FACTS, rewritten=True), DELTA))


@pytest.mark.parametrize(
    ("facts", "iceberg", "delta"),
    [
        (replace(FACTS, table=replace(TABLE, managed=True)), None, None),
        (
            replace(
                FACTS,
                table=replace(TABLE, managed=True),
                catalog=CatalogFacts(can_make_external=False),
            ),
            PauseReason.MANAGED_TABLE,
            PauseReason.MANAGED_TABLE,
        ),
        (
            replace(FACTS, table=replace(TABLE, properties={"external.table.purge": "TRUE"})),
            PauseReason.REMOVES_FILES,
            PauseReason.REMOVES_FILES,
        ),
        (
            replace(FACTS, catalog=CatalogFacts(overlapping=((OTHER, f"{ROOT}/day=1"),))),
            PauseReason.SHARED_DIRECTORY,
            PauseReason.SHARED_DIRECTORY,
        ),
        (replace(FACTS, partitions=(INSIDE, OUTSIDE)), None, PauseReason.UNSUPPORTED_LAYOUT),
        (
            replace(FACTS, files=Listing((FILE,), (FILE,), ())),
            PauseReason.UNSUPPORTED_LAYOUT,
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (
            replace(FACTS, table=replace(TABLE, format="avro"), partitions=(INSIDE, NULL)),
            PauseReason.UNSUPPORTED_LAYOUT,
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (replace(FACTS, table=replace(TABLE, format="avro")), None, None),
        (replace(FACTS, partitions=(INSIDE, NULL)), None, None),
        *(
            (
                replace(FACTS, partitions=(INSIDE, hidden), rewritten=rewritten),
                PauseReason.UNSUPPORTED_LAYOUT,
                PauseReason.UNSUPPORTED_LAYOUT,
            )
            for hidden in HIDDEN
            for rewritten in (False, True)
        ),
        (
            # Partitioned by _day, in a hidden directory; a listing starts in this directory.
            replace(
                FACTS,
                table=replace(TABLE, location="file:/w/_orders"),
                partitions=(CatalogPartition("day=1", "file:/w/_orders/_day=1"),),
            ),
            None,
            None,
        ),
        *(
            (
                replace(FACTS, table=BY_DOUBLE, partitions=(ZERO,), rewritten=rewritten),
                PauseReason.UNSUPPORTED_LAYOUT,
                None,
            )
            for rewritten in (False, True)
        ),
        (replace(FACTS, table=BY_DOUBLE), None, None),
        # Their partitions aren't in the catalog, so a Delta table's VACUUM would remove these files.
        (replace(FACTS, files=Listing((), (), (FILE,))), None, PauseReason.UNSUPPORTED_LAYOUT),
        (replace(FACTS, files=Listing((), (), (FILE,)), rewritten=True), None, None),
        (
            replace(FACTS, table=replace(TABLE, location="s3a://bucket/"), partitions=(), files=NO_FILES),
            PauseReason.UNSUPPORTED_LAYOUT,
            PauseReason.UNSUPPORTED_LAYOUT,
        ),
        (replace(FACTS, partitions=(ZERO,)), None, None),
    ],
)
def test_preflight_finds_refusals_of_later_steps(
    facts: GivenFacts, iceberg: PauseReason | None, delta: PauseReason | None
) -> None:
    assert reasons(facts) == ([iceberg] if iceberg else [])
    assert reasons(facts, DELTA) == ([delta] if delta else [])


@pytest.mark.parametrize("form", TargetFormat)
def test_preflight_checks_length_of_all_migration_names(form: TargetFormat) -> None:
    suffix = f"_{form.value}_tableferry_dropped"

    def named(length: int) -> GivenFacts:
        moved = job(f"spark_catalog.sales.{'t' * length}", target_format=form)
        return replace(FACTS, catalog=CatalogFacts(names=Names.of(moved).all))

    assert reasons(named(256 - len(suffix)), form) == []
    (found,) = find_obstacles(named(257 - len(suffix)), form)
    assert found.reason is PauseReason.UNSUPPORTED_SCHEMA
    assert found.condition == "HIVE_NAME_TOO_LONG"
    assert str(found.parameters["name"]).endswith(f"t{suffix}")


def test_remark_lists_files_without_partition() -> None:
    stray = replace(FACTS, files=Listing((FILE,), (), (ListedFile(f"{ROOT}/old/b", 1, 0),)))
    assert reasons(stray) == []
    assert f"{ROOT}/old/b" in list_remarks(stray, DELTA)[1]


def test_remark_names_unlisted_schema() -> None:
    hidden = replace(FACTS, catalog=CatalogFacts(unlisted=(TableName(("spark_catalog", "secret")),)))
    assert reasons(hidden) == []
    assert "the tables of spark_catalog.secret can't be listed" in list_remarks(hidden, DELTA)[1]


def test_catalog_listing_is_cached_for_ten_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    session: Any = Session(["sales", "secret"])
    tables = {"orders": CatalogTable(NAME, "hive", "external", ROOT, None)}
    listed: list[str] = []

    def list_tables(spark: object, schema: Sequence[str]) -> dict[str, CatalogTable]:
        listed.append(schema[1])
        if schema[1] == "secret":
            raise TableError("secret can't be listed")
        return tables

    monkeypatch.setattr(shared_directories, "list_tables", list_tables)
    clock = iter((0.0, 600.0, 600.0, 601.0, 601.0))
    directories = TableDirectories(lambda: next(clock))
    assert directories.overlapping(session, NAME, ROOT) == ()
    tables["copies"] = CatalogTable(OTHER, "hive", "external", ROOT, None)
    assert directories.unlisted(session, NAME) == (TableName(("spark_catalog", "secret")),)
    assert directories.overlapping(session, NAME, ROOT) == ()
    assert directories.overlapping(session, NAME, ROOT) == ((OTHER, ROOT),)
    assert listed == ["sales", "secret"] * 2
    own = TableDirectories()
    assert own.overlapping(session, NAME, ROOT, apart=(OTHER,)) == ()


def test_first_finding_reports_changes_since_preflight(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = job(state=State.READY, desired_state=State.WRITES_BLOCKED, target_format=DELTA)
    steps = plan(ready, {NAME: Kind.HIVE})
    assert [type(step) for step in steps] == [RepeatPreflight, TryShadow, CompareAhead, BlockWrites]
    table, own = TABLE, Names.of(ready).copy
    tables = {"orders": NAME, own.table: own}

    def list_tables(spark: object, schema: Sequence[str]) -> dict[str, CatalogTable]:
        return {key: CatalogTable(name, "hive", "external", ROOT, None) for key, name in tables.items()}

    monkeypatch.setattr(shared_directories, "list_tables", list_tables)
    monkeypatch.setattr(hive, "require_hive_table", lambda warehouse, name: table)
    monkeypatch.setattr(metastore, "is_reachable", lambda spark, name: True)
    found_kinds = {NAME: Kind.HIVE, own: Kind.DELTA}
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: found_kinds)
    session: Any = Session(["sales"])
    warehouse = Warehouse(session, session)
    assert first_finding(warehouse, ready) is None
    table = replace(TABLE, properties={"external.table.purge": "true"})
    assert (found := first_finding(warehouse, ready)) is not None
    assert found.reason is PauseReason.REMOVES_FILES
    table, tables["copies"] = TABLE, OTHER
    assert (found := first_finding(warehouse, ready)) is not None
    assert found.reason is PauseReason.SHARED_DIRECTORY
    assert found.parameters["others"] == [f"{OTHER} at {ROOT}"]
    # The check is made before writes are blocked, because the switch would be refused after that.
    for name, kind in (
        (Names.of(ready).hive, Kind.HIVE),
        (Names.of(ready).archived, Kind.HIVE),
        (own, Kind.OTHER),
    ):
        found_kinds = {NAME: Kind.HIVE, name: kind}
        assert (found := first_finding(warehouse, ready)) is not None
        assert found == PauseFinding(
            PauseReason.NAME_TAKEN, Refused("MIGRATION_NAMES_TAKEN", tables=str(name))
        )


@pytest.mark.parametrize(("form", "rewritten"), [(ICEBERG, False), (DELTA, False), (DELTA, True)])
def test_preflight_refuses_table_in_new_tables_directory(
    form: TargetFormat, rewritten: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = job(state=State.READY, desired_state=State.WRITES_BLOCKED, target_format=form)
    if rewritten:
        ready = ready.with_record(rewritten={})
    trial = CatalogTable(OTHER, "iceberg", "external", f"{ROOT}_{form.value}", None)
    own = Names.of(ready).copy
    tables = {"orders": CatalogTable(NAME, "hive", "external", ROOT, None)}
    tables[own.table] = replace(trial, name=own)
    # The table of a suspended worker's trial.
    tries = scratch_name(NAME)
    tables[tries.table] = CatalogTable(tries, "hive", "external", f"{ROOT}_sync/try-1", None)
    monkeypatch.setattr(shared_directories, "list_tables", lambda *_: tables)
    monkeypatch.setattr(hive, "require_hive_table", lambda warehouse, name: TABLE)
    monkeypatch.setattr(metastore, "is_reachable", lambda spark, name: True)
    monkeypatch.setattr(job_tables, "list_job_tables", lambda *_: {NAME: Kind.HIVE})
    session: Any = Session(["sales"])
    assert first_finding(Warehouse(session, session), ready) is None
    tables["copies"] = trial
    found = first_finding(Warehouse(session, session), ready)
    if form is DELTA and not rewritten:
        assert found is None
    else:
        assert found is not None
        assert found.reason is PauseReason.SHARED_DIRECTORY
        assert found.parameters["others"] == [f"{OTHER} at {ROOT}_{form.value}"]


def test_preflight_refuses_partition_in_other_tables_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """An overwrite of that table's partition would remove files that the new table reads."""
    other = CatalogTable(OTHER, "hive", "external", "file:/elsewhere", None)
    tables = {"orders": CatalogTable(NAME, "hive", "external", ROOT, None), "copies": other}
    partitions = [INSIDE, OUTSIDE]
    monkeypatch.setattr(shared_directories, "list_tables", lambda *_: tables)
    monkeypatch.setattr(hive, "facts", lambda *_: TABLE)
    monkeypatch.setattr(hive, "partitions", lambda *_: partitions)
    monkeypatch.setattr(hive_files, "listing", lambda *_: Listing((FILE,), (), ()))
    monkeypatch.setattr(TableFacts, "reading", GivenReading())
    monkeypatch.setattr(metastore, "is_reachable", lambda spark, name: True)
    session: Any = Session(["sales"])

    def found() -> tuple[PauseFinding, ...]:
        ready = job(target_format=ICEBERG)
        return preflight_module.preflight(Warehouse(session, session), ready, TableDirectories()).findings

    [finding] = found()
    assert finding.reason is PauseReason.SHARED_DIRECTORY
    assert finding.parameters["others"] == [f"{OTHER} at file:/elsewhere"]
    partitions.remove(OUTSIDE)
    assert found() == ()


class Session:
    """A session with a catalog's schemas."""

    def __init__(self, schemas: list[str]) -> None:
        self.schemas = schemas

    def sql(self, text: str) -> Session:
        return self

    def collect(self) -> list[tuple[str]]:
        return [(schema,) for schema in self.schemas]


def test_blocked_time_is_forecast_from_earlier_migrations() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    job = Job(1, "spark_catalog", "sales", "orders", created_at=now, last_updated_time=now)
    ice, delta = TargetFormat.ICEBERG, TargetFormat.DELTA

    def took(seconds: float, files: int, size: int, form: TargetFormat = delta) -> Job:
        return replace(job, target_format=form).with_record(
            moved={"seconds": seconds, "files": files, "bytes": size}
        )

    assert blocked_seconds(10, 10, delta, [job]) is None
    done = [took(60.0, 100, 1000)]
    assert blocked_seconds(10, 10, ice, done) is None
    assert blocked_seconds(1, 1, delta, done) == 60
    assert blocked_seconds(1000, 1, delta, done) == 600
    assert blocked_seconds(1, 20_000, delta, done) == 1200
    # An empty table takes 20 s, and each 1,000 bytes take 40 s.
    done.append(took(20.0, 0, 0))
    assert blocked_seconds(0, 0, delta, done) == 20
    assert blocked_seconds(1, 20_000, delta, done) == pytest.approx(820)
    # For Iceberg, the time doesn't depend on the size.
    done += [took(3.0, 1, 10, ice), took(5.0, 10, 1000, ice), took(3.0, 100, 100_000, ice)]
    assert blocked_seconds(5000, 10**9, ice, done) == pytest.approx(11 / 3)


def test_rewrite_time_is_forecast_from_bytes() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    job = Job(1, "spark_catalog", "sales", "orders", created_at=now, last_updated_time=now)
    begun = job.with_record(rewritten={"files": 1, "bytes": 500})
    assert rewrite_seconds(10, [job, begun]) is None
    done = [
        job.with_record(rewritten={"bytes": 1000, "seconds": 10.0}),
        job.with_record(rewritten={"bytes": 3000, "seconds": 10.0}),
    ]
    assert rewrite_seconds(10_000, [job, begun, *done]) == 50.0


FINE = Preflight(NAME, ICEBERG, (), ("a remark",), "parquet", 1204, 3_400_000_000, 365, 130.0)
STOPPED = Preflight(OTHER, DELTA, (PauseFinding(PauseReason.REMOVES_FILES, Refused("<b>it removes files")),))


def test_preflight_text_lists_tables_and_findings() -> None:
    assert list(preflight_lines([FINE, STOPPED])) == [
        "spark_catalog.sales.orders: parquet to Iceberg, 1,204 files, 3.4 GB, 365 partitions; "
        "writers wait about 2 min 10 s",
        "spark_catalog.sales.copies: to Delta",
        "  REMOVES_FILES: <b>it removes files",
        "Note: a remark (spark_catalog.sales.orders)",
        "REMOVES_FILES stops 1 table: Set its property external.table.purge to false.",
        "1 of 2 tables can't be migrated as it is.",
    ]
    assert headline([FINE]) == "The table can be migrated"
    assert headline([FINE, FINE]) == "2 tables can be migrated"
    assert headline([STOPPED] * 3) == "3 of 3 tables can't be migrated as they are"


def test_finding_has_its_condition_and_parameters_in_json() -> None:
    refusal = Refused("PARTITION_OF_NEGATIVE_ZERO", table=NAME, partition="x=-0.0")
    found = PauseFinding(PauseReason.UNSUPPORTED_LAYOUT, refusal)
    assert json.loads(as_json(found)) == {
        "reason": "UNSUPPORTED_LAYOUT",
        **refusal.to_dict(),
        "text": f"[PARTITION_OF_NEGATIVE_ZERO] {refusal.message} {refusal.remedy}",
    }
    # A reason without details is printed once.
    view = PauseFinding(PauseReason.IS_VIEW, Paused("IS_VIEW", table=NAME))
    assert view.text == f"{NAME} is a view. Leave it out, and add the tables that it reads."


def test_preflight_page_lists_tables_and_findings() -> None:
    text = preflight_page([FINE, STOPPED])
    assert "&lt;b&gt;it" in text.replace("<wbr>", "")
    assert "<b>it" not in text
    assert "2 min 10 s" in text
    # The table's value, and the same value for its format.
    assert text.count("not read") == 4 + 2
    assert "0 B" not in text
    assert "not known yet" in preflight_page([replace(FINE, blocked_seconds=None)])
    assert "What prevents" not in preflight_page([FINE])


def test_report_shows_size_and_time_of_rewritten_tables() -> None:
    rewritten = replace(FINE, stored_as="text", rewritten=True, rewrite_seconds=60.0)
    lines = list(preflight_lines([rewritten, replace(rewritten, rewrite_seconds=120.0), FINE]))
    assert "365 partitions; rewritten in about 1 min 0 s; writers wait" in lines[0]
    assert lines[-2] == "2 tables of 6.8 GB are rewritten, which takes about 3 min 0 s."
    first = [replace(rewritten, rewrite_seconds=None)]
    assert list(preflight_lines(first))[-2] == (
        "1 table of 3.4 GB is rewritten; the duration is known after the first."
    )
    # A table with findings isn't rewritten.
    refused = replace(rewritten, findings=STOPPED.findings)
    assert not any("is rewritten" in line for line in preflight_lines([refused]))
    text = preflight_page([rewritten])
    assert "<dt>Rewritten</dt><dd>3.4 GB<small>1 table, in about 1 min 0 s</small>" in text
    assert "1 table, the duration is known after the first" in preflight_page(first)
    assert "(rewritten in about 1 min 0 s)" in text
    assert "ewritten" not in preflight_page([FINE])


def stopped(number: int, *reasons: PauseReason) -> Preflight:
    table = TableName(("spark_catalog", "sales", f"t{number}"))
    return Preflight(
        table, ICEBERG, tuple(PauseFinding(reason, Refused(f"{table} {reason}")) for reason in reasons)
    )


def test_most_frequent_finding_is_first_with_one_remedy() -> None:
    shared, view = PauseReason.SHARED_DIRECTORY, PauseReason.IS_VIEW
    found = causes([stopped(1, view), FINE, stopped(2, shared, view), stopped(3, shared), stopped(4, shared)])
    assert [(cause.reason, [table.table for table, _ in cause.stopped]) for cause in found] == [
        (shared, ["t2", "t3", "t4"]),
        (view, ["t1", "t2"]),
    ]
    assert found[0].what == "The table shares a directory with another table"
    assert "drop the entries" in found[0].remedy


@pytest.mark.parametrize("reason", [reason for reason in PauseReason if reason is not PauseReason.NONE])
def test_each_reason_has_remedy(reason: PauseReason) -> None:
    (cause,) = causes([stopped(1, reason)])
    assert cause.what
    assert cause.remedy


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TableError("it can't be read"), "it can't be read"),
        (StateError("its log can't be read"), "its log can't be read"),
        (Refused("it's a view"), "it's a view"),
        (
            AnalysisException("no such SerDe"),
            f"[SPARK_FAILED] {OTHER}: Spark failed (no such SerDe). "
            "Run again with --debug to see the stack trace.",
        ),
    ],
)
def test_failed_check_of_table_keeps_other_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
) -> None:
    def look(warehouse: Warehouse, table: NewJob, directories: TableDirectories) -> Preflight:
        if table.name == OTHER:
            raise error
        return replace(FINE, table=table.name)

    monkeypatch.setattr(preflight_module, "preflight", look)
    monkeypatch.setattr(Warehouse, "check_formats", lambda *_: None)
    store = fleets.opened(tmp_path)
    reports = preflight_run.precheck(store, Warehouse(None, None), [NewJob(OTHER), NewJob(NAME)])  # type: ignore[arg-type]
    assert [(found.reason, found.text) for found in reports[0].findings] == [(PauseReason.STEP_FAILED, text)]
    assert reports[1].table == NAME
    assert "The table has a step that failed: 1 table" in preflight_page(reports)
    assert list(preflight_lines(reports))[-2:] == [
        "STEP_FAILED stops 1 table: Fix the cause that the details name.",
        "1 of 2 tables can't be migrated as it is.",
    ]


def test_forecast_uses_latest_migrations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fleets.opened(tmp_path)
    fleet = fleets.Fleet(store)
    monkeypatch.setattr(preflight_run, "_LATEST", 2)
    times = {"later": 3, "oldest": 9, "latest": 1, "archived": 2}
    fleet.add(*times, at=fleets.days_ago(30))
    for table, days in times.items():
        fleet.ready(table, fleets.days_ago(20), fleets.days_ago(15))
        fleet.change(table, fleets.days_ago(days), begun_at=fleets.days_ago(days))
        fleet.migrated(table, fleets.days_ago(days))
    fleet.finished("archived", fleets.days_ago(1))
    assert store.archive(schema.jobs.c.tbl_name == "archived", fleets.NOW) == 1
    assert [job.tbl_name for job in preflight_run._latest_migrations(store)] == ["archived", "latest"]


def test_report_counts_tables_by_format() -> None:
    large = replace(FINE, table=OTHER, bytes=9_000_000_000_000, blocked_seconds=None)
    assert kinds([FINE, STOPPED, large, replace(FINE, findings=STOPPED.findings)]) == [
        Kinds("parquet", "Iceberg", 3, 2, 3, 3 * 1204, 9_006_800_000_000, 260.0),
        Kinds("not known", "Delta", 1, 0, 0, 0, 0, None),
    ]


def test_page_of_many_tables_shows_largest_and_links_all() -> None:
    many = [replace(FINE, bytes=number) for number in range(600)]
    many += [stopped(number, PauseReason.IS_VIEW) for number in range(80)]
    text = preflight_page(many)
    assert "The 500 largest tables" in text
    assert ">599 B<" in text
    assert ">100 B<" in text
    assert ">99 B<" not in text
    assert "The first 50 tables; <code>--csv</code> writes all" in text
    assert text.count("IS_VIEW</li>".replace("_", "_<wbr>")) == 50
    assert "The table is a view: 80 tables" in text


def test_preflight_csv_has_row_for_each_table() -> None:
    odd = replace(STOPPED, remarks=('say "so"', "two,\nlines"))
    rows = list(csv.DictReader(StringIO(preflight_csv([FINE, odd]))))
    assert rows[0] == {
        "table": "spark_catalog.sales.orders",
        "becomes": "iceberg",
        "stored_as": "parquet",
        "files": "1204",
        "bytes": "3400000000",
        "partitions": "365",
        "blocked_seconds": "130.0",
        "rewritten": "false",
        "rewrite_seconds": "",
        "reasons": "",
        "details": "",
        "remarks": "a remark",
    }
    assert (rows[1]["files"], rows[1]["reasons"]) == ("", "REMOVES_FILES")
    assert rows[1]["remarks"] == 'say "so"; two,\nlines'


PLACES = st.lists(st.sampled_from(("a", "b", "a-", "ab")), max_size=4).map(
    lambda parts: "file:/" + "/".join(parts)
)


@given(st.lists(PLACES, max_size=8), PLACES)
def test_directory_index_finds_overlapping_tables(places: list[str], location: str) -> None:
    tables = [(TableName(("c", "s", f"t{number}")), root) for number, root in enumerate(places)]
    around = [
        (name, root)
        for name, root in tables
        if below(root, location) is not None or below(location, root) is not None
    ]
    index = DirectoryIndex(tables)
    assert sorted(index.overlapping(NAME, location), key=str) == sorted(around, key=str)
    for name, root in tables:
        assert name not in [neighbour for neighbour, _ in index.overlapping(name, root)]
