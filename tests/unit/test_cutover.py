"""The plan, findings and effects of a cutover against a catalog in memory, and in the fake workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from tests.conditions import check, names, raises
from tests.soak import amount, slow_examples
from tests.unit.test_pipeline_reports import printed
from tests.workspace import FakeWorkspace

from tableferry import workspace
from tableferry.access.foreign_catalogs import list_foreign_tables
from tableferry.access.unity_catalog import UnityAccess
from tableferry.errors import InputError, TableError
from tableferry.formats.delta.commits import Commit
from tableferry.pipelines.cutover.differences import is_wider
from tableferry.pipelines.cutover.facts import (
    MARKER,
    AccessFacts,
    Column,
    CutoverFacts,
    CutoverNames,
    Entry,
    FlowReader,
    LastWrite,
)
from tableferry.pipelines.cutover.findings import EFFECTS, check_accepted
from tableferry.pipelines.cutover.gathering import find_last_write, read_access
from tableferry.pipelines.cutover.lag import LegacyLag, SourceLag, count_lag
from tableferry.pipelines.cutover.performer import CutoverPerformer
from tableferry.pipelines.cutover.plan import CutoverPlan, decide_cutover, decide_undo
from tableferry.pipelines.cutover.readers import has_reference
from tableferry.pipelines.cutover.report import print_cutover_plan
from tableferry.pipelines.cutover.views import DEFINITION, define_view
from tableferry.pipelines.model.cutover_blockers import find_cutover_blockers
from tableferry.pipelines.model.facts import LegacyWrites
from tableferry.pipelines.model.flows import DataFlow, Migration, Project, Target
from tableferry.pipelines.model.phases import Phase
from tableferry.pipelines.model.plan import Plan, TargetPlan
from tableferry.pipelines.model.target_state import Cutover, MigrationStart, PinnedCopy, TargetState, Tracking
from tableferry.pipelines.reports import StatusReport, print_status
from tableferry.pipelines.state.store import StateStore
from tableferry.spark.tables import TableName

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
TARGET = TableName.parse("main.silver.orders")
NAMES = CutoverNames.of(TableName.parse("main.silver.orders_old"))
COLUMNS = (Column("id", "int"), Column("v", "string"))
LEGACY_ID, TARGET_ID = "legacy-id", "target-id"
STATEMENT = re.compile(
    r"(?P<create>CREATE OR REPLACE VIEW (?P<view>\S+) .*TBLPROPERTIES \((?P<properties>[^)]*)\).* AS .*)"
    r"|ALTER (TABLE|VIEW) (?P<name>\S+) RENAME TO (?P<to>\S+)"
    r"|DROP VIEW (?P<drop>\S+)"
)


def table(name: TableName, table_id: str, *columns: Column, **more: Any) -> Entry:
    return Entry(name, "table", table_id, columns=columns or COLUMNS, **more)


def facts(*entries: Entry, **more: Any) -> CutoverFacts:
    given = entries or (table(NAMES.name, LEGACY_ID), table(TARGET, TARGET_ID))
    return CutoverFacts(
        TARGET, NAMES, LEGACY_ID, NOW, pinned_version=3,
        entries={entry.name.key: entry for entry in given}, **more,
    )  # fmt: skip


@dataclass
class MemoryCatalog:
    """A catalog that runs the statements of a cutover; in Unity Catalog, grants follow renames."""

    entries: dict[str, Entry]
    workspace: FakeWorkspace | None = None
    statements: list[str] = field(default_factory=list)

    def read(self, name: TableName) -> Entry:
        return self.entries.get(name.key, Entry(name))

    def list_columns(self, name: TableName) -> tuple[str, ...]:
        return tuple(column.name for column in self.entries[TARGET.key].columns)

    def rename_statement(self, name: TableName, to: TableName, kind: str) -> str:
        return f"ALTER {kind} {name.sql} RENAME TO {to.sql}"

    def execute(self, statement: str) -> None:
        self.statements.append(statement)
        match = STATEMENT.fullmatch(statement)
        assert match is not None, statement
        if view := match["view"]:
            name = TableName.parse(view)
            values = dict(re.findall(r"'([^']*)' = '([^']*)'", match["properties"]))
            self.entries[name.key] = Entry(name, "view", marker=values[MARKER], definition=values[DEFINITION])
        elif drop := match["drop"]:
            del self.entries[TableName.parse(drop).key]
        else:
            old, new = TableName.parse(match["name"]), TableName.parse(match["to"])
            assert new.key not in self.entries
            self.entries[new.key] = replace(self.entries.pop(old.key), name=new)
        if self.workspace:
            self.workspace.follow(statement, "main.silver")


def plain(name: TableName) -> str:
    return ".".join(name.parts)


class Crash(BaseException):
    """The process crashes."""


@dataclass
class Process:
    """Runs cutovers and undos against a catalog and a state, and crashes them."""

    catalog: MemoryCatalog
    store: StateStore
    access: UnityAccess | None = None

    def facts(self) -> CutoverFacts:
        base = facts(*self.catalog.entries.values(), recorded=self.store.read(TARGET).cutover)
        return replace(base, access=AccessFacts(is_unity=self.access is not None))

    def run(self, decide: Callable[[CutoverFacts], CutoverPlan], crash_at: int | None = None) -> CutoverPlan:
        numbers = count()

        def before(_: str) -> None:
            self.check_reader()
            if next(numbers) == crash_at:
                raise Crash

        plan = decide(self.facts())
        with suppress(Crash):
            CutoverPerformer(self.catalog, self.store, self.access, before).perform(plan)
        self.check_reader()
        return plan

    def check_reader(self) -> None:
        """The old name is the legacy table or the view; between the renames, both wait beside it."""
        entry = self.catalog.read(NAMES.name)
        if entry.kind == "missing":
            assert self.catalog.read(NAMES.renamed).is_legacy(LEGACY_ID)
            assert self.catalog.read(NAMES.staged).is_cutover_view(LEGACY_ID)
        else:
            assert entry.is_legacy(LEGACY_ID) or entry.is_cutover_view(LEGACY_ID)


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return start_process(tmp_path)


def start_process(folder: Path) -> Process:
    store = StateStore(folder, "p1")
    pinned = PinnedCopy(NAMES.name, LEGACY_ID, 3)
    store.record_start(MigrationStart("p1", TARGET, pinned, {}, NOW))
    return Process(MemoryCatalog(dict(facts().entries)), store)


def copied_name(process: Process) -> TableName:
    start = process.store.read(TARGET).migration_start
    assert start is not None
    return start.copy.table


def test_cutover_and_undo_rename_by_id_and_record_the_legacy_tables_name(process: Process) -> None:
    process.run(decide_cutover)
    assert process.catalog.read(NAMES.name).is_cutover_view(LEGACY_ID)
    assert process.catalog.read(NAMES.renamed).is_legacy(LEGACY_ID)
    assert process.catalog.read(NAMES.staged).kind == "missing"
    assert copied_name(process) == NAMES.renamed
    assert process.run(decide_cutover).steps == ()
    process.run(decide_undo)
    assert process.catalog.entries.keys() == {NAMES.name.key, TARGET.key}
    assert process.catalog.read(NAMES.name).is_legacy(LEGACY_ID)
    assert copied_name(process) == NAMES.name
    assert process.store.read(TARGET).cutover is None
    check(process.run(decide_undo).refusals[0], "NOT_CUT_OVER")


@pytest.mark.parametrize("first", [decide_cutover, decide_undo])
@pytest.mark.parametrize("then", [decide_cutover, decide_undo])
def test_command_that_crashed_before_any_effect_is_resumed_or_undone(
    tmp_path: Path,
    first: Callable[[CutoverFacts], CutoverPlan],
    then: Callable[[CutoverFacts], CutoverPlan],
) -> None:
    for effect in range(6):
        process = start_process(tmp_path / str(effect))
        if first is decide_undo:
            process.run(decide_cutover)
        process.run(first, crash_at=effect)
        process.run(then)
        legacy = NAMES.renamed if then is decide_cutover else NAMES.name
        began = process.store.read(TARGET).cutover is not None or then is decide_undo
        assert process.catalog.read(legacy).is_legacy(LEGACY_ID), (effect, began)
        assert process.catalog.read(NAMES.staged).kind == "missing"
        assert process.catalog.read(NAMES.name).is_cutover_view(LEGACY_ID) is (then is decide_cutover)
        assert copied_name(process) == legacy


COMMANDS = st.tuples(st.sampled_from([decide_cutover, decide_undo]), st.none() | st.integers(0, 6))


@slow_examples(amount(30, 2_000))
@given(st.lists(COMMANDS, max_size=8))
def test_reader_always_finds_the_table_or_the_view_after_random_crashes(
    tmp_path_factory: pytest.TempPathFactory,
    commands: list[tuple[Callable[[CutoverFacts], CutoverPlan], int | None]],
) -> None:
    process = start_process(tmp_path_factory.mktemp("state"))
    for decide, crash_at in commands:
        process.run(decide, crash_at)
    process.run(decide_cutover)
    assert process.catalog.read(NAMES.name).is_cutover_view(LEGACY_ID)
    process.run(decide_undo)
    assert process.catalog.entries.keys() == {NAMES.name.key, TARGET.key}


def test_view_of_renamed_target_or_changed_columns_is_replaced(process: Process) -> None:
    process.run(decide_cutover)
    more = (*COLUMNS, Column("w", "string"))
    process.catalog.entries[NAMES.renamed.key] = table(NAMES.renamed, LEGACY_ID, *reversed(COLUMNS))
    process.catalog.entries[TARGET.key] = table(TARGET, TARGET_ID, *more)
    process.catalog.list_columns = lambda name: ("v", "id", "w")  # type: ignore[method-assign]
    process.run(decide_cutover)
    created, dropped, renamed = process.catalog.statements[-3:]
    assert created.endswith("AS SELECT `v`, `id`, `w` FROM `main`.`silver`.`orders`")
    assert dropped == "DROP VIEW `main`.`silver`.`orders_old`"
    assert renamed.startswith("ALTER VIEW `main`.`silver`.`orders_old__cutover_view` RENAME TO")
    assert process.run(decide_cutover).steps == ()


def test_findings_do_not_refuse_after_the_rename_of_the_legacy_table(process: Process) -> None:
    """A refusal there would leave readers without a table, or make a repetition fail."""
    process.catalog.entries[NAMES.name.key] = table(NAMES.name, LEGACY_ID, *COLUMNS, Column("gone", "int"))

    def accepting(given: CutoverFacts) -> CutoverPlan:
        return decide_cutover(given, ["READERS_LOSE_COLUMNS"])

    assert names(process.run(decide_cutover).refusals) == ["READERS_LOSE_COLUMNS"]
    process.run(accepting, crash_at=3)
    assert process.catalog.read(NAMES.name).kind == "missing"
    process.run(decide_cutover)
    assert process.catalog.read(NAMES.name).is_cutover_view(LEGACY_ID)
    again = process.run(decide_cutover)
    assert (again.steps, again.refusals, names(again.warnings)) == ((), (), ["READERS_LOSE_COLUMNS"])


def test_undo_is_refused_before_anything_changes_if_a_name_is_taken(process: Process) -> None:
    process.run(decide_cutover)
    for name in (NAMES.staged, NAMES.name):
        kept = dict(process.catalog.entries)
        process.catalog.entries[name.key] = table(name, "another")
        plan = decide_undo(process.facts())
        assert (names(plan.refusals), plan.steps) == (["CUTOVER_NAME_TAKEN"], ())
        process.catalog.entries.clear()
        process.catalog.entries.update(kept)


def test_object_that_changed_since_the_plan_is_left_alone(process: Process) -> None:
    for name, change in (
        (NAMES.name, table(NAMES.name, "another-id")),
        (TARGET, table(TARGET, "another-id")),
        (NAMES.staged, Entry(NAMES.staged, "view")),
    ):
        plan = decide_cutover(process.facts())
        kept = dict(process.catalog.entries)
        process.catalog.entries[name.key] = change
        performer = CutoverPerformer(process.catalog, process.store, None, lambda _: None)
        with raises("CUTOVER_OBJECT_CHANGED", name=str(name)):
            performer.perform(plan)
        assert process.catalog.read(name) == change
        process.catalog.entries.clear()
        process.catalog.entries.update(kept)


def test_view_with_other_columns_than_readers_expect_is_dropped_before_the_rename(process: Process) -> None:
    process.catalog.list_columns = lambda name: ("id",)  # type: ignore[method-assign]
    with raises("VIEW_WITHOUT_COLUMNS", found="['id']"):
        process.run(decide_cutover)
    assert process.catalog.entries.keys() == {NAMES.name.key, TARGET.key}


def test_grants_and_tags_are_carried_to_the_view_before_readers_use_it(
    tmp_path: Path, logged_in: FakeWorkspace
) -> None:
    process = start_process(tmp_path)
    logged_in.put_table(plain(NAMES.name), "boss@corp.com", bi={"SELECT"}, etl={"MODIFY", "SELECT"})
    logged_in.put_table(plain(TARGET), "someone@example.com")
    process.catalog.workspace = logged_in
    tags: list[str] = []

    def rows(query: str) -> list[tuple[str, str, str]]:
        if query.startswith("ALTER"):
            tags.append(query)
            return []
        return [("", "domain", "sales"), ("id", "pii", "")] if "'orders_old'" in query else []

    process.access = UnityAccess(workspace.client(), rows)
    plan = process.run(decide_cutover)
    assert [type(step).__name__ for step in plan.steps] == [
        "RecordCutover", "CreateView", "CarryAccess", "RenameLegacyTable", "RenameView", "CarryAccess",
        "RecordCutover",
    ]  # fmt: skip
    assert logged_in.granted(plain(NAMES.name)) == {"bi": {"SELECT"}, "etl": {"SELECT"}}
    assert logged_in.granted(plain(NAMES.renamed)) == {"bi": {"SELECT"}, "etl": {"MODIFY", "SELECT"}}
    logged_in.grants["table", plain(NAMES.name)]["new"] = {"SELECT"}
    process.catalog.entries[NAMES.renamed.key] = table(NAMES.renamed, LEGACY_ID, comment="Orders")
    process.run(decide_cutover)
    assert logged_in.granted(plain(NAMES.name))["new"] == {"SELECT"}
    staged = "`main`.`silver`.`orders_old__cutover_view`"
    assert tags[:2] == [
        f"ALTER VIEW {staged} SET TAGS ('domain' = 'sales')",
        f"ALTER TABLE {staged} ALTER COLUMN `id` SET TAGS ('pii')",
    ]


def test_row_filters_and_masks_are_read_and_refused_if_the_target_lacks_them(
    logged_in: FakeWorkspace,
) -> None:
    logged_in.put_table(plain(NAMES.name), "boss@corp.com")
    logged_in.tables[plain(NAMES.name)]["row_filter"] = {"function_name": "f", "input_column_names": ["id"]}
    unity = UnityAccess(workspace.client(), lambda query: [])
    protections = unity.list_protections(NAMES.name)
    access = AccessFacts(True, unity.read_owner(NAMES.name), unity.current_user, protections)
    plan = decide_cutover(facts(access=access))
    (refusal,) = plan.refusals
    check(refusal, "CUTOVER_TARGET_UNPROTECTED", hiding="['a row filter']")
    assert plan.steps == ()
    same = replace(access, target_protections=protections)
    assert names(decide_cutover(facts(access=same)).warnings) == ["VIEW_OWNER_DIFFERS"]
    other = replace(access, target_protections={"a row filter": "main.s.everyone(id)"})
    (refusal,) = decide_cutover(facts(access=other)).refusals
    check(
        refusal,
        "READERS_GET_OTHER_PROTECTION",
        before="['a row filter f(id)']",
        after="['a row filter main.s.everyone(id)']",
    )


def test_jobs_that_read_the_legacy_table_are_listed_from_the_lineage(logged_in: FakeWorkspace) -> None:
    logged_in.put_table(plain(NAMES.name), "me@corp.com")
    logged_in.put_table(plain(TARGET), "me@corp.com")
    queries = []

    def rows(query: str) -> list[tuple[str, str]]:
        queries.append(query)
        return [("DBSQL_DASHBOARD", "d7"), ("JOB", "12"), ("PIPELINE", "own"), ("PIPELINE", "theirs")]

    def read(query: Callable[[str], Any]) -> CutoverPlan:
        access = read_access(
            UnityAccess(workspace.client(), query), table(NAMES.name, LEGACY_ID), TARGET, "own"
        )
        return decide_cutover(facts(access=replace(access, owner="")))

    (finding,) = read(rows).warnings
    check(
        finding,
        "LEGACY_NAME_READ_BY_JOBS",
        days=30,
        entities=["dbsql dashboard d7", "job 12", "pipeline theirs"],
    )
    (query,) = queries
    assert f"source_table_full_name = '{plain(NAMES.name)}'" in query

    def fail(_: str) -> None:
        raise AnalysisException("[TABLE_OR_VIEW_NOT_FOUND] system.access.table_lineage")

    plan = read(fail)
    (finding,) = plan.warnings
    check(finding, "LEGACY_READERS_UNKNOWN", name=plain(NAMES.name))
    assert plan.steps
    (_, unlisted) = decide_cutover(facts()).notes
    assert "a metastore doesn't record who reads" in unlisted


def test_foreign_catalogs_that_mirror_a_metastore_table_are_listed(
    logged_in: FakeWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    logged_in.foreign_catalogs.update({"mirror", "other"})
    logged_in.put_table("mirror.shop.orders")
    logged_in.put_table("main.shop.orders")
    assert list_foreign_tables(TableName.parse("hive_metastore.shop.orders")) == ("mirror.shop.orders",)
    assert list_foreign_tables(TableName.parse("main.shop.orders")) == ()
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION")
    assert list_foreign_tables(TableName.parse("shop.orders")) == ()


LEGACY_COLUMNS = (
    Column("id", "int", is_nullable=False, comment="the key"),
    Column("price", "decimal(10,2)"),
    Column("day", "date", generated="CAST(at AS DATE)"),
    Column("gone", "string"),
)
TARGET_COLUMNS = (
    Column("price", "string"),
    Column("ID", "bigint"),
    Column("day", "date"),
    Column("more", "string"),
)


def test_each_difference_that_readers_notice_is_a_finding() -> None:
    legacy = table(
        NAMES.name, LEGACY_ID, *LEGACY_COLUMNS, partition_columns=("day",), constraints=("c CHECK (id > 0)",),
        moves_with_name=True, location="file:/w/orders_old",
    )  # fmt: skip
    given = facts(
        legacy,
        table(TARGET, TARGET_ID, *TARGET_COLUMNS),
        flow_readers=(FlowReader(TARGET, "f_copy", "/state/f_copy"),),
        view_readers=(TableName.parse("main.gold.report"),),
        foreign_tables=("mirror.shop.orders",),
        last_write=LastWrite(9, "MERGE", NOW - timedelta(minutes=4)),
        writes=LegacyWrites(foreign_commits={"MERGE": [9]}),
        access=AccessFacts(
            True,
            "boss",
            "me",
            {"a row filter": "f(id)", "a mask on column v": "g(v)"},
            {"a mask on column v": "h(v)"},
            ("job 12",),
            "system.access.table_lineage can't be read",
        ),
    )
    plan = decide_cutover(given)
    found = {finding.condition: finding for finding in (*plan.refusals, *plan.warnings)}
    assert found.keys() == EFFECTS.keys()
    for condition, columns in {
        "READERS_LOSE_COLUMNS": ["gone"],
        "READERS_SEE_MORE_COLUMNS": ["more"],
        "READERS_SEE_WIDER_TYPES": ["id (int, now bigint)"],
        "READERS_SEE_OTHER_TYPES": ["price (decimal(10,2), now string)"],
        "READERS_SEE_NULLABLE_COLUMNS": ["ID"],
        "READERS_SEE_GENERATED_COLUMNS_AS_PLAIN": ["day"],
    }.items():
        check(found[condition], condition, columns=columns)
    check(found["LEGACY_TABLE_WRITTEN_RECENTLY"], "LEGACY_TABLE_WRITTEN_RECENTLY", minutes=4, writer="MERGE")
    check(found["READERS_LOSE_LAYOUT"], "READERS_LOSE_LAYOUT", before="day", after="no column")
    refused = {name for name, effect in EFFECTS.items() if effect != "warns"}
    assert set(names(plan.refusals)) == refused
    accepted = refused - {"CUTOVER_TARGET_UNPROTECTED"}
    check_accepted(accepted)
    allowed = decide_cutover(replace(given, access=AccessFacts(True, "me", "me")), accepted)
    assert not allowed.refusals
    assert allowed.steps
    with pytest.raises(InputError):
        check_accepted({"CUTOVER_TARGET_UNPROTECTED"})


def test_dry_run_names_the_findings_that_can_be_accepted_and_prints_no_remedy_of_accepted_ones() -> None:
    lost = replace(facts(), last_write=LastWrite(9, "MERGE", NOW))
    until = "No reader can be cut over until the lines marked ! are fixed"
    accept = "--accept LEGACY_TABLE_WRITTEN_RECENTLY"
    refused = printed(print_cutover_plan, decide_cutover(lost))
    assert refused.endswith(f"{until}, or accepted with {accept}.\n")
    accepted = decide_cutover(lost, {"LEGACY_TABLE_WRITTEN_RECENTLY"})
    (finding,) = accepted.warnings
    lines = printed(print_cutover_plan, accepted).splitlines()
    assert f"  - [{finding.condition}] {finding.message} Accepted." in lines
    assert not any(finding.remedy in line for line in lines)
    unprotected = AccessFacts(True, "me", "me", {"a row filter": "f(id)"})
    assert printed(print_cutover_plan, decide_cutover(facts(access=unprotected))).endswith(f"{until}.\n")


def test_job_that_wrote_long_ago_is_not_taken_to_be_running() -> None:
    for at in (None, NOW - timedelta(hours=1)):
        assert not decide_cutover(facts(last_write=LastWrite(9, "MERGE", at))).refusals


@pytest.mark.parametrize(
    ("before", "now", "wider"),
    [
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("float", "double", True),
        ("decimal(10,2)", "decimal(12,2)", True),
        ("decimal(10,2)", "decimal(10,4)", False),
        ("int", "decimal(10,0)", True),
        ("bigint", "decimal(10,0)", False),
        ("string", "int", False),
    ],
)
def test_type_is_wider_if_it_contains_every_value(before: str, now: str, wider: bool) -> None:
    assert is_wider(before, now) is wider


def test_view_has_the_legacy_tables_order_spelling_and_comments_then_the_other_columns() -> None:
    legacy = table(NAMES.name, LEGACY_ID, *LEGACY_COLUMNS[:2], comment="It's old")
    view = define_view(legacy, table(TARGET, TARGET_ID, *TARGET_COLUMNS))
    assert view.names == ("id", "price", "day", "more")
    statement = view.statement(NAMES.staged)
    assert "(`id` COMMENT 'the key', `price`, `day`, `more`) COMMENT 'It\\'s old'" in statement
    assert statement.endswith("AS SELECT `id`, `price`, `day`, `more` FROM `main`.`silver`.`orders`")
    same = define_view(table(NAMES.name, LEGACY_ID), table(TARGET, TARGET_ID))
    assert " WITH SCHEMA EVOLUTION AS SELECT * FROM " in same.statement(NAMES.staged)


@pytest.mark.parametrize(
    ("entries", "condition"),
    [
        ((table(TARGET, TARGET_ID),), "CUTOVER_LEGACY_TABLE_MISSING"),
        ((Entry(NAMES.name, "view"), table(TARGET, TARGET_ID)), "CUTOVER_LEGACY_TABLE_MISSING"),
        ((table(NAMES.name, "another"), table(TARGET, TARGET_ID)), "CUTOVER_LEGACY_TABLE_MISSING"),
        ((table(NAMES.name, LEGACY_ID),), "CUTOVER_TARGET_MISSING"),
        ((table(NAMES.name, LEGACY_ID), table(TARGET, "another")), "CUTOVER_TARGET_REPLACED"),
        (
            (table(NAMES.name, LEGACY_ID), table(TARGET, TARGET_ID), table(NAMES.renamed, "x")),
            "CUTOVER_NAME_TAKEN",
        ),
        (
            (table(NAMES.name, LEGACY_ID), table(TARGET, TARGET_ID), Entry(NAMES.staged, "view", marker="x")),
            "CUTOVER_NAME_TAKEN",
        ),
        (
            (table(NAMES.renamed, LEGACY_ID), table(TARGET, TARGET_ID), Entry(NAMES.name, "view")),
            "CUTOVER_NAME_TAKEN",
        ),
    ],
)
def test_names_and_ids_that_do_not_fit_refuse_the_cutover(entries: tuple[Entry, ...], condition: str) -> None:
    plan = decide_cutover(facts(*entries, recorded_target_id=TARGET_ID))
    assert names(plan.refusals) == [condition]
    assert plan.steps == ()


def target_plan(phase: Phase = "complete", **state: Any) -> TargetPlan:
    migration: Migration | None = Migration(NAMES.name, "uc", **state.pop("migration", {}))
    if state.pop("plain", False):
        migration = None
    known = {"tracking": Tracking({}, copied=0, verified="match"), **state}
    return TargetPlan(
        DataFlow("orders", "orders.json", Target(TARGET), (), {}, (), migration), phase,
        state=TargetState(**known),
    )  # fmt: skip


CUTOVER = Cutover(NAMES.name, NAMES.renamed, LEGACY_ID, "switching", NOW)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (target_plan(), []),
        (target_plan("waiting"), ["CUTOVER_NOT_COMPLETE"]),
        (target_plan("waiting", cutover=CUTOVER), []),
        (target_plan(tracking=Tracking({}, copied=0)), ["CUTOVER_COPY_NOT_COMPARED"]),
        (target_plan(plain=True), ["CUTOVER_WITHOUT_MIGRATION"]),
        (target_plan(migration={"take_over": True}), ["CUTOVER_OF_TAKE_OVER"]),
        (target_plan("finished", finished=True, taken_over=True), ["CUTOVER_OF_TAKE_OVER"]),
        (target_plan("finished", finished=True), ["CUTOVER_AFTER_FINISH"]),
    ],
)
def test_only_a_complete_compared_copy_is_cut_over(plan: TargetPlan, expected: list[str]) -> None:
    assert names(find_cutover_blockers(plan)) == expected


@pytest.mark.parametrize(
    ("plan", "is_offered"),
    [
        (target_plan(), True),
        (target_plan("waiting"), False),
        (target_plan(cutover=replace(CUTOVER, phase="done")), False),
        (target_plan(migration={"take_over": True}), False),
        (target_plan(tracking=Tracking({}, copied=0)), False),
    ],
)
def test_status_offers_the_cutover_of_a_complete_migration(plan: TargetPlan, is_offered: bool) -> None:
    report = StatusReport(Plan(Project("/p", "p", (plan.dataflow,)), "p", (plan,)))
    line = f"Next: `tableferry pipelines cutover {TARGET}` lets the readers of {NAMES.name} read {TARGET}."
    assert (line in printed(print_status, report).splitlines()) is is_offered


def test_legacy_table_that_is_read_by_path_is_refused() -> None:
    plan = target_plan()
    assert plan.dataflow.migration is not None
    migration = replace(plan.dataflow.migration, table=TableName.at("/data/orders"))
    blocked = replace(plan, dataflow=replace(plan.dataflow, migration=migration))
    assert names(find_cutover_blockers(blocked)) == ["CUTOVER_OF_PATH"]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("SELECT * FROM orders_old", True),
        ("SELECT * FROM Silver.Orders_OLD o JOIN x", True),
        ("SELECT * FROM `main`.silver.orders_old", True),
        ("SELECT * FROM bronze.orders_old", False),
        ("SELECT 'orders_old' FROM orders", False),
        ("SELECT * FROM orders_old2", False),
    ],
)
def test_view_reads_a_name_if_its_query_names_it(statement: str, expected: bool) -> None:
    assert has_reference(statement, ("main", "silver"), NAMES.name) is expected


def test_name_with_default_catalog_is_found_in_views_of_the_metastore() -> None:
    name = TableName.parse("silver.orders_old")
    assert has_reference("SELECT * FROM spark_catalog.silver.orders_old", ("gold",), name)
    assert not has_reference("SELECT * FROM orders_old", ("gold",), name)


def commit(version: int, operation: str, metrics: Mapping[str, str], **parameters: str) -> Commit:
    return Commit(version, operation, parameters, metrics, timestamp=1_700_000_000_000 + version)


def test_last_write_leaves_out_maintenance() -> None:
    commits = (commit(9, "OPTIMIZE", {}), commit(8, "STREAMING UPDATE", {}, queryId="q1"))
    last = find_last_write(commits)
    assert last is not None
    assert (last.version, last.writer) == (8, "STREAMING UPDATE of stream q1")
    assert find_last_write(commits[:1]) is None


def test_lag_counts_commits_and_rows_and_names_the_way_to_catch_up() -> None:
    source = TableName.parse("bronze.orders")
    commits = (
        commit(7, "WRITE", {"numOutputRows": "5"}),
        commit(6, "OPTIMIZE", {"numOutputRows": "9"}),
        commit(5, "WRITE", {"numOutputRows": "2"}),
    )
    lag = count_lag(source, commits)
    assert (lag.versions, lag.rows) == (2, 7)
    assert str(lag).startswith("bronze.orders: 2 commits with 7 rows missing, the first from 2023-11-14")
    assert count_lag(source, (commit(5, "MERGE", {}),)).rows is None
    merged = {"numOutputRows": "90", "numTargetRowsInserted": "2", "numTargetRowsDeleted": "1"}
    written = commit(4, "WRITE", {"numAddedRows": "4"})
    assert count_lag(source, (commit(5, "MERGE", merged), written)).rows == 7
    assert "No command updates" in LegacyLag(NAMES.name, (lag,)).advice
    assert LegacyLag(NAMES.name, (lag,), ("/old/checkpoint",)).advice.startswith("Start the old streams")
    assert LegacyLag(NAMES.name, (count_lag(source, ()),)).is_current
    assert "`finish` has removed" in LegacyLag(NAMES.name).advice
    assert str(SourceLag(source, None, why_unknown="it was dropped")) == "bronze.orders: it was dropped"


def test_state_of_an_older_version_has_no_cutover_and_a_recorded_one_is_read_back(process: Process) -> None:
    assert '"cutover"' not in process.store.state_file(TARGET).read_text()
    process.store.record_cutover(TARGET, CUTOVER)
    state = process.store.read(TARGET)
    assert state.cutover == state.pending_cutover == CUTOVER
    assert copied_name(process) == NAMES.name
    process.store.finish(TARGET)
    assert process.store.read(TARGET).cutover == CUTOVER


def test_statement_that_fails_is_reported_with_the_way_to_continue(process: Process) -> None:
    class Failing(MemoryCatalog):
        def execute(self, statement: str) -> None:
            from pyspark.errors import AnalysisException

            raise AnalysisException("denied")

    process.catalog = Failing(process.catalog.entries)
    with pytest.raises(TableError) as raised:
        process.run(decide_cutover)
    assert raised.value.condition == "VIEW_NOT_CUT_OVER"
    process.catalog = MemoryCatalog(process.catalog.entries)
    process.run(decide_cutover)
    process.catalog = Failing(process.catalog.entries)
    with raises("CUTOVER_STATEMENT_FAILED"):
        process.run(decide_undo)


def steps(plan: CutoverPlan) -> Iterator[str]:
    return map(str, plan.steps)


def test_steps_are_lines_of_a_plan() -> None:
    assert list(steps(decide_cutover(facts()))) == [
        "record that the readers of main.silver.orders_old are being cut over to main.silver.orders",
        "create the view main.silver.orders_old__cutover_view AS SELECT * FROM `main`.`silver`.`orders`",
        "rename the table main.silver.orders_old to orders_old__legacy",
        "rename the view main.silver.orders_old__cutover_view to orders_old",
        "record that main.silver.orders_old is a view of main.silver.orders",
    ]
