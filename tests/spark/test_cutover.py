"""Readers of a legacy table are cut over to its target and back, in a Hive metastore."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from tests import soak
from tests.conditions import names, raises
from tests.spark.projects import Project
from tests.spark.tables import tables_in
from typer.testing import CliRunner, Result

from tableferry import cli, pipelines
from tableferry.errors import Busy, Refused, TableError, TableferryError
from tableferry.pipelines.cutover.catalog_entries import read_entry
from tableferry.pipelines.cutover.facts import Column, CutoverNames
from tableferry.spark.catalog import facts
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tableferry.pipelines import CutoverPlan, CutoverReport

COLUMNS = "id int, v string"
PAGE = Path(__file__).parents[2] / "docs/how-to/cut-readers-over.md"
RECENT = "LEGACY_TABLE_WRITTEN_RECENTLY"


class Crash(BaseException):
    """The process crashes."""


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """A complete migration: the legacy table has rows 1 and 2, the target also row 3."""
    return migrated(Project(tmp_path / "shop", schema, spark))


def migrated(project: Project, name: str = "out", columns: str = COLUMNS) -> Project:
    source = f"{name}_src"
    project.create(source, COLUMNS, (1, "a"), (2, "b"))
    project.create(f"{name}_legacy", columns, (1, "a"), (2, "b"))
    project.standard(name, source, migration={})
    project.run()
    project.insert(source, (3, "c"))
    project.run()
    return project


def cut_over(project: Project, name: str = "out", **options: Any) -> CutoverReport:
    return pipelines.cut_over(project.root, project.spark, f"{project.schema}.{name}", **options)


def undo(project: Project, name: str = "out", **options: Any) -> CutoverReport:
    return pipelines.undo_cutover(project.root, project.spark, f"{project.schema}.{name}", **options)


def plan(project: Project, name: str = "out", **options: Any) -> CutoverPlan:
    return pipelines.plan_cutover(project.root, project.spark, f"{project.schema}.{name}", **options)


def read(project: Project, table: str = "out_legacy") -> list[tuple[Any, ...]]:
    """Return the rows that a reader of a name gets, without the shortcut through files."""
    rows = project.spark.sql(f"SELECT * FROM {project.schema}.{table}").collect()
    return sorted(tuple(row) for row in rows)


def table_id(project: Project, table: str) -> str:
    found = facts(project.spark, TableName((project.schema, table)))
    assert found is not None
    return found.table_id


def test_cutover_and_its_undo_switch_what_readers_of_the_old_name_see(project: Project) -> None:
    before = table_id(project, "out_legacy")
    with project.nothing_written():
        planned = plan(project)
    assert planned.steps
    assert "LEGACY_FILES_MOVE" in names(planned.warnings)
    report = cut_over(project)
    assert read(project) == [(1, "a"), (2, "b"), (3, "c")]
    assert project.rows("out_legacy__legacy") == [(1, "a"), (2, "b")]
    assert table_id(project, "out_legacy__legacy") == before
    assert [str(step).split(" ", 2)[:2] for step in report.plan.steps] == [
        ["record", "that"],
        ["create", "the"],
        ["rename", "the"],
        ["rename", "the"],
        ["record", "that"],
    ]
    with project.nothing_written():
        assert not cut_over(project).plan.steps
        assert not plan(project).steps
        (missing, advice) = plan(project, undo=True).notes
    undone = undo(project)
    assert read(project) == [(1, "a"), (2, "b")]
    assert table_id(project, "out_legacy") == before
    assert "out_legacy__legacy" not in tables_in(project.spark, project.schema)
    assert undone.lag is not None
    assert [(lag.versions, lag.rows) for lag in undone.lag.sources] == [(1, 1)]
    assert "No command updates" in undone.lag.advice
    assert (missing, advice) == (str(undone.lag.sources[0]), undone.lag.advice)
    with project.nothing_written(), raises("NOT_CUT_OVER"):
        undo(project)
    cut_over(project)
    assert read(project) == [(1, "a"), (2, "b"), (3, "c")]
    # A plain view shows the target's new columns.
    project.spark.sql(f"ALTER TABLE {project.schema}.out ADD COLUMNS (w STRING)")
    assert project.spark.table(f"{project.schema}.out_legacy").columns == ["id", "v", "w"]
    with project.nothing_written():
        assert not cut_over(project).plan.steps


def test_run_status_verify_and_finish_continue_after_cutover(project: Project) -> None:
    cut_over(project)
    project.insert("out_src", (4, "d"))
    assert project.run().targets[0].plan.phase == "complete"
    assert read(project)[-1] == (4, "d")
    (target,) = project.status().plan.targets
    assert str(target.dataflow.migration and target.dataflow.migration.table).endswith("out_legacy__legacy")
    assert any("is a view of" in note for note in target.notes)
    (proof,) = project.verify().proofs
    assert not proof.proved  # The legacy table lacks rows 3 and 4; the view has them.
    assert proof.verdict is not None
    labels = {proof.verdict.source_label, proof.verdict.target_label}
    assert any(label.startswith(f"{project.schema}.out_legacy__legacy@") for label in labels)
    finished = project.finish(accept_assumed=True, verify=False)
    assert len(finished.finished) == 1
    project.insert("out_src", (5, "e"))
    project.run()
    assert read(project)[-1] == (5, "e")
    undone = undo(project)
    assert read(project) == [(1, "a"), (2, "b")]
    assert undone.lag is not None
    assert not undone.lag.sources
    assert "`finish` has removed the baselines" in undone.lag.advice
    with raises("CUTOVER_AFTER_FINISH"):
        cut_over(project)


@soak.slow  # tests/unit/test_decide.py plans the same.
def test_full_refresh_after_cutover_copies_the_renamed_legacy_table(project: Project) -> None:
    cut_over(project)
    project.run(full_refresh=[f"{project.schema}.out"])
    assert project.status().complete
    assert read(project) == [(1, "a"), (2, "b"), (3, "c")]


def test_column_order_and_comments_of_the_legacy_table_stay(
    tmp_path: Path, schema: str, spark: SparkSession
) -> None:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("out_src", "id int, v string, w string", (1, "a", "x"))
    spark.sql(
        f"CREATE TABLE {schema}.out_legacy (v STRING COMMENT 'the value', ID INT) USING delta "
        "COMMENT 'Orders'"
    )
    spark.sql(f"INSERT INTO {schema}.out_legacy VALUES ('a', 1)")
    project.standard("out", "out_src", migration={"selectExp": ["ID AS id", "v", "'x' AS w"]})
    project.run()
    project.insert("out_src", (2, "b", "y"))
    project.run()
    report = cut_over(project)
    assert "READERS_SEE_MORE_COLUMNS" in names(report.plan.warnings)
    fields = spark.table(f"{schema}.out_legacy").schema.fields
    assert [(field.name, field.metadata.get("comment")) for field in fields] == [
        ("v", "the value"),
        ("ID", None),
        ("w", None),
    ]
    assert read(project) == [("a", 1, "x"), ("b", 2, "y")]
    described = spark.sql(f"DESCRIBE TABLE EXTENDED {schema}.out_legacy").collect()
    assert "Orders" in [row["data_type"] for row in described if row["col_name"] == "Comment"]


def test_entry_of_a_table_has_its_rules_and_generated_columns(spark: SparkSession, schema: str) -> None:
    spark.sql(
        f"CREATE TABLE {schema}.t (id INT NOT NULL COMMENT 'the key', day INT GENERATED ALWAYS AS (id + 1)) "
        "USING delta PARTITIONED BY (day) COMMENT 'Orders'"
    )
    spark.sql(f"ALTER TABLE {schema}.t ADD CONSTRAINT positive CHECK (id > 0)")
    entry = read_entry(spark, TableName((schema, "t")))
    assert entry.columns == (
        Column("id", "int", is_nullable=False, comment="the key"),
        Column("day", "int", generated="id + 1"),
    )
    assert (entry.comment, entry.partition_columns) == ("Orders", ("day",))
    assert entry.constraints == ("positive CHECK (id > 0)",)
    assert entry.moves_with_name
    read = facts(spark, entry.name)
    assert read is not None
    assert entry.is_legacy(read.table_id)


def test_findings_that_refuse_need_acceptance_by_name(project: Project, spark: SparkSession) -> None:
    spark.sql(f"ALTER TABLE {project.schema}.out_legacy ADD COLUMNS (gone STRING)")
    spark.sql(f"ALTER TABLE {project.schema}.out_legacy ADD CONSTRAINT positive CHECK (id > 0)")
    project.insert("out_legacy", (9, "late", None))
    spark.sql(f"CREATE VIEW {project.schema}.report AS SELECT id FROM {project.schema}.out_legacy")
    spark.sql(f"CREATE VIEW {project.schema}.other AS SELECT id FROM {project.schema}.out")
    planned = plan(project)
    assert set(names(planned.refusals)) == {"READERS_LOSE_COLUMNS", RECENT}
    assert set(names(planned.warnings)) >= {
        "READERS_LOSE_CONSTRAINTS",
        "LEGACY_NAME_READ_BY_VIEWS",
        "LEGACY_TABLE_WRITTEN_SINCE_COPY",
    }
    (views,) = (found for found in planned.warnings if found.condition == "LEGACY_NAME_READ_BY_VIEWS")
    assert views.parameters["views"] == [f"{project.schema}.report"]
    with project.nothing_written(), pytest.raises(Refused):
        cut_over(project, accept=["READERS_LOSE_COLUMNS"])
    with raises("UNKNOWN_ACCEPTED_FINDING", name="READERS_LOSE_LAYOUT"):
        cut_over(project, accept=["READERS_LOSE_LAYOUT"])
    cut_over(project, accept=["READERS_LOSE_COLUMNS", RECENT])
    assert read(project) == [(1, "a"), (2, "b"), (3, "c")]
    assert read(project, "report") == [(1,), (2,), (3,)]


def test_flow_that_streams_the_old_name_is_named_with_its_checkpoint(project: Project) -> None:
    project.standard("copy", "out_legacy")
    project.run()
    with raises("LEGACY_NAME_READ_BY_FLOW", checkpoint=re.compile("targetTable=.*copy/generation=0/f_")):
        cut_over(project)
    cut_over(project, accept=["LEGACY_NAME_READ_BY_FLOW"])
    project.standard("copy", "out_legacy__legacy")
    project.insert("out_legacy__legacy", (7, "x"))
    project.run()
    assert project.rows("copy") == [(1, "a"), (2, "b"), (7, "x")]


def test_cutover_is_refused_before_anything_changes(tmp_path: Path, schema: str, spark: SparkSession) -> None:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("out_src", COLUMNS, (1, "a"))
    project.create("out_legacy", COLUMNS, (1, "a"))
    project.standard("out", "out_src", migration={})
    with raises("UNKNOWN_TARGET"):
        cut_over(project, "nothing")
    with raises("CUTOVER_NOT_COMPLETE"):
        cut_over(project)
    project.run()
    with raises("CUTOVER_NOT_COMPLETE", phase=re.compile("waiting for sources")):
        cut_over(project)
    project.standard("plain", "out_src")
    with raises("CUTOVER_WITHOUT_MIGRATION"):
        cut_over(project, "plain")
    project.insert("out_src", (2, "b"))
    project.run()
    for taken, create in (
        ("out_legacy__legacy", "CREATE TABLE {} (id int) USING delta"),
        ("out_legacy__cutover_view", "CREATE VIEW {} AS SELECT 1"),
    ):
        spark.sql(create.format(f"{schema}.{taken}"))
        with project.nothing_written(), raises("CUTOVER_NAME_TAKEN", name=f"{schema}.{taken}"):
            cut_over(project)
        spark.sql(f"DROP {create.split()[1]} {schema}.{taken}")
    spark.sql(f"ALTER TABLE {schema}.out RENAME TO {schema}.out_elsewhere")
    with pytest.raises(TableferryError):
        cut_over(project)
    spark.sql(f"ALTER TABLE {schema}.out_elsewhere RENAME TO {schema}.out")
    spark.sql(f"DROP TABLE {schema}.out_legacy")
    with raises("CUTOVER_LEGACY_TABLE_MISSING"):
        cut_over(project)
    spark.sql(f"CREATE VIEW {schema}.out_legacy AS SELECT * FROM {schema}.out")
    with raises("CUTOVER_LEGACY_TABLE_MISSING"):
        cut_over(project)


@soak.slow  # tests/unit/test_cutover.py covers the plan.
def test_undo_is_refused_if_legacy_table_or_view_was_replaced(project: Project, spark: SparkSession) -> None:
    cut_over(project)
    spark.sql(f"DROP VIEW {project.schema}.out_legacy")
    project.create("out_legacy", COLUMNS)
    with project.nothing_written(), raises("CUTOVER_NAME_TAKEN"):
        undo(project)
    spark.sql(f"DROP TABLE {project.schema}.out_legacy")
    spark.sql(f"DROP TABLE {project.schema}.out_legacy__legacy")
    with raises("CUTOVER_LEGACY_TABLE_MISSING"):
        undo(project)
    project.insert("out_src", (4, "d"))
    project.run()
    assert project.rows("out")[-1] == (4, "d")


@soak.slow  # tests/unit/test_cutover.py covers each step.
def test_table_that_changes_before_an_effect_is_not_renamed(project: Project, spark: SparkSession) -> None:
    """Another process replaces the legacy table after the plan, directly before the rename."""

    def replace_legacy_table(effect: str) -> None:
        if effect.startswith("rename the table"):
            spark.sql(f"DROP TABLE {project.schema}.out_legacy")
            project.create("out_legacy", COLUMNS, (5, "other"))

    with pytest.raises(TableError) as raised:
        cut_over(project, before=replace_legacy_table)
    assert raised.value.condition == "CUTOVER_OBJECT_CHANGED"
    assert read(project) == [(5, "other")]


def test_two_concurrent_cutovers_exclude_each_other(project: Project) -> None:
    def second(effect: str) -> None:
        with pytest.raises(Busy):
            cut_over(project)
        project.insert("out_src", (4, "d"))
        with pytest.raises(Busy):
            project.run()

    effects = iter([second])
    cut_over(project, before=lambda effect: next(effects, lambda _: None)(effect))
    assert read(project)[:3] == [(1, "a"), (2, "b"), (3, "c")]


def test_unfinished_cutover_stops_proofs_finish_and_refresh_but_not_the_flows(project: Project) -> None:
    crash_at(partial(cut_over, project), 3)
    assert "CUTOVER_UNFINISHED" in names(project.plan().targets[0].warnings)
    project.insert("out_src", (4, "d"))
    project.run()
    assert project.rows("out")[-1] == (4, "d")
    (proof,) = project.verify().proofs
    assert "CUTOVER_UNFINISHED" in proof.why_not
    with raises("CUTOVER_UNFINISHED"):
        project.finish(accept_assumed=True)
    with raises("CUTOVER_UNFINISHED"):
        project.run(full_refresh=[f"{project.schema}.out"])
    cut_over(project)
    assert read(project)[-1] == (4, "d")


def test_page_shows_real_output(tmp_path: Path, schema: str, spark: SparkSession) -> None:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("bronze_orders", "id BIGINT")
    spark.sql(f"INSERT INTO {schema}.bronze_orders SELECT id FROM range(8200)")
    spark.sql(f"CREATE TABLE {schema}.orders_legacy USING delta AS SELECT * FROM {schema}.bronze_orders")
    project.standard("orders", "bronze_orders", migration={})
    project.run()
    spark.sql(f"INSERT INTO {schema}.bronze_orders SELECT id FROM range(8200, 8410)")
    project.run()
    commands: tuple[list[str], ...] = (["--dry-run"], [], ["--undo", "--dry-run"], ["--undo"])
    printed = "".join(invoke(project, *options).stdout for options in commands)
    plain = printed.replace(f"{schema}.bronze_orders", "bronze.orders").replace(schema, "silver")
    documented = "".join(re.findall(r"^```text\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S))
    assert [line for line in documented.splitlines() if normalize(line) not in normalize(plain)] == [], plain
    data = json.loads(invoke(project, "--output", "json").stdout)
    assert (data["name"], data["refused"]) == (f"{schema}.orders_legacy", False)
    (target,) = pipelines.reports.status_data(project.status())["targets"]
    assert target["cutover"]["phase"] == "done"


def invoke(project: Project, *options: str) -> Result:
    words = ["pipelines", "cutover", f"{project.schema}.orders", str(project.root), *options]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    return result


def normalize(text: str) -> str:
    """Return the text with single spaces, and without times and paths."""
    without = re.sub(r"file:\S+", "<path>", re.sub(r"\d{4}-\d\d-\d\d [\d:]{8}", "<time>", text))
    return " ".join(without.split())


def crash_at(
    command: Callable[..., object], effect: int | None, check: Callable[[], None] = lambda: None
) -> bool:
    """Run a command that crashes before one of its effects, and check before each; return whether it did."""
    numbers = count()

    def before(_: str) -> None:
        check()
        if next(numbers) == effect:
            raise Crash

    try:
        command(before=before)
    except Crash:
        return True
    return False


EVENTS = st.one_of(
    st.tuples(st.just("cutover"), st.none() | st.integers(0, 5)),
    st.tuples(st.just("undo"), st.none() | st.integers(0, 5)),
    st.tuples(st.just("commit"), st.none()),
)


def test_reader_sees_legacy_or_target_rows_between_all_effects(project: Project) -> None:
    """A reader reads between all effects; commands crash before any effect and are repeated.

    The oracle: the name shows all legacy rows, or all rows that the flows have processed. It may be missing
    only between two renames, or after a crash there.
    """
    schema, spark = project.schema, project.spark
    used = CutoverNames.of(TableName((schema, "out_legacy")))
    legacy = [(1, "a"), (2, "b")]
    processed = [*legacy, (3, "c")]
    numbers = count(4)

    def check_reader() -> None:
        present = tables_in(spark, schema)
        if used.name.table not in present:
            assert used.renamed.table in present
            assert used.staged.table in present
            return
        assert read(project) in (legacy, processed)

    @soak.slow_examples(soak.amount(2, 25))
    @given(st.lists(EVENTS, min_size=2, max_size=6))
    def scenario(events: list[tuple[str, int | None]]) -> None:
        for kind, at in events:
            if kind == "commit":
                processed.append((next(numbers), "x"))
                project.insert("out_src", processed[-1])
                project.run()
            else:
                crash_at(partial(cut_over if kind == "cutover" else attempt_undo, project), at, check_reader)
            check_reader()
        crash_at(partial(cut_over, project), None, check_reader)
        assert read(project) == processed
        undo(project, before=lambda _: check_reader())
        assert read(project) == legacy
        assert not {used.renamed.table, used.staged.table} & set(tables_in(spark, schema))

    scenario()


@soak.slow  # The test above reads between all effects.
def test_reader_in_a_loop_sees_one_of_the_two_tables(
    tmp_path: Path, schema: str, spark: SparkSession
) -> None:
    """The files of an external table don't move, so no query fails for another reason than the name."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("out_src", COLUMNS, (1, "a"), (2, "b"))
    spark.sql(
        f"CREATE TABLE {schema}.out_legacy USING delta LOCATION '{tmp_path / 'legacy'}' "
        f"AS SELECT * FROM {schema}.out_src"
    )
    project.standard("out", "out_src", migration={})
    project.run()
    project.insert("out_src", (3, "c"))
    project.run()
    seen: Counter[str] = Counter()
    stopped = threading.Event()

    def read_in_a_loop() -> None:
        while not stopped.is_set():
            try:
                seen[str(len(read(project)))] += 1
            except PySparkException as error:
                seen[error.getCondition() or str(error)] += 1

    reader = threading.Thread(target=read_in_a_loop)
    reader.start()
    try:
        for _ in range(soak.amount(3, 20)):
            assert "LEGACY_FILES_MOVE" not in names(cut_over(project).plan.warnings)
            undo(project)
    finally:
        stopped.set()
        reader.join()
    assert seen.keys() <= {"2", "3", "TABLE_OR_VIEW_NOT_FOUND"}, seen
    assert seen["2"]
    assert seen["3"]


def attempt_undo(project: Project, **options: Any) -> None:
    """Undo a cutover if one is recorded."""
    if project.status().plan.targets[0].state.cutover:
        undo(project, **options)
