"""A user's mistake is reported in one sentence with its location and remedy, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.conditions import check, raises
from tests.spark.projects import Project
from typer.testing import CliRunner, Result

from tableferry import cli
from tableferry.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string, at int"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def invoke(project: Project, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["pipelines", command, str(project.root), *arguments])


def problems_of(project: Project, command: str = "run") -> list[str]:
    """Run a command that must fail because of a user's mistake; return the lines of its message."""
    with project.nothing_written():
        result = invoke(project, command)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    # On a slow machine the output also contains progress lines, which start with the time of day.
    lines = [line for line in result.stderr.splitlines() if not re.match(r"Spark: |\d\d:\d\d:\d\d ", line)]
    assert lines, result.output
    assert lines[0].startswith("Error: ")
    return [lines[0].removeprefix("Error: "), *lines[1:]]


def error_of(project: Project, command: str = "run") -> str:
    """Run a command that must fail with one error; return its message and its remedy as one line."""
    return " ".join(problems_of(project, command))


@soak.only  # tests/unit tests each error in a file, and the next test those of tables.
def test_plan_reports_all_errors_in_project_files_together(project: Project) -> None:
    project.spec("cut", '{"dataFlowId": "cut", ')
    project.spec("crooked", "dataFlowId: [crooked\n", "yaml")
    details = project.migration("typed", {"table": 5}, enabled="yes")
    project.standard("typed", "src", tableMigrationDetails=details, mode="streaming")
    folder = "dataflows/d/dataflowspec"
    title, *sentences, _remedy = problems_of(project, "plan")
    assert title.startswith("[INVALID_SPEC]")
    assert [line.split(": ")[0] for line in sentences] == [
        f"{folder}/crooked_main.yaml",
        f"{folder}/cut_main.json",
        *[f"{folder}/typed_main.json"] * 3,
    ]
    for sentence, expected in zip(
        sentences,
        (
            ": [SPEC_YAML_INVALID] ",
            ": [SPEC_JSON_INVALID] ",
            "mode: [SPEC_VALUE_NOT_ALLOWED] The value must be 'stream' or 'batch', not 'streaming'.",
            "tableMigrationDetails.enabled: [SPEC_VALUE_NOT_BOOLEAN] ",
            "tableMigrationDetails.sourceDetails.table: [SPEC_VALUE_NOT_TEXT] The value must be text, not 5.",
        ),
        strict=True,
    ):
        assert expected in sentence


@soak.slow
def test_unsuitable_tables_are_reported_with_location_in_spec(project: Project, spark: SparkSession) -> None:
    schema, spec = project.schema, "dataflows/d/dataflowspec/orders_main.json"
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    spark.sql(f"CREATE TABLE {schema}.files (id int) USING parquet")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT * FROM {schema}.src")

    project.standard("orders", "nowhere", migration={})
    missing = f"Table {schema}.nowhere doesn't exist."
    assert error_of(project).startswith(f"[SOURCE_TABLE_MISSING] {spec}: sourceDetails: {missing}")
    planned = invoke(project, "plan")
    assert planned.exit_code == 1
    assert missing in planned.stdout
    project.standard("orders", "src", migration={"table": "gone_legacy"})
    gone = f"{spec}: tableMigrationDetails: Table {schema}.gone_legacy doesn't exist."
    assert error_of(project).startswith(f"[LEGACY_TABLE_MISSING] {gone}")
    project.standard("orders", "files", migration={})
    assert f"{spec}: sourceDetails: {schema}.files is a parquet table" in error_of(project)
    debugged = invoke(project, "run", "--debug")
    assert isinstance(debugged.exception, TableError)
    project.standard("orders", "src", migration={"table": "seen"})
    assert f"{spec}: tableMigrationDetails: {schema}.seen is a view" in error_of(project)
    files = {"path": str(project.root), "readerOptions": {"cloudFiles.format": "json"}}
    project.standard("orders", files, sourceType="cloudFiles")
    assert error_of(project).startswith(
        f"[AUTO_LOADER_ONLY_ON_DATABRICKS] {spec}: sourceDetails: v_orders reads"
    )
    project.create("orders", FEED, (7, "of another process", 1))
    project.standard("orders", "src", migration={})
    assert error_of(project).startswith(
        f"[TARGET_NOT_EMPTY] {spec}: targetDetails: {schema}.orders already has data"
    )
    spark.sql(f"TRUNCATE TABLE {schema}.orders")
    project.standard("orders", "src", migration={"selectExp": ["id", "nothing"]})
    assert error_of(project).startswith(
        f"[LEGACY_TABLE_NOT_READABLE] {spec}: tableMigrationDetails: {schema}.orders_legacy can't be read"
    )


@soak.slow
def test_unreadable_view_is_reported_before_initial_copy(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", project.delta("src", selectExp=["id", "nothing"]), migration={})
    assert "sourceDetails: v_orders can't be read (" in error_of(project)
    cdc = {"keys": ["id"], "sequence_by": "at", "scd_type": "1", "apply_as_deletes": "nothing = 'D'"}
    project.standard("orders", "src", cdc=cdc, migration={})
    sentence = error_of(project)
    assert sentence.startswith(
        "[CDC_EXPRESSION_INVALID] dataflows/d/dataflowspec/orders_main.json: An expression of cdcSettings"
    )
    assert sentence.endswith(" Correct the expression.")
    cdc = {"keys": ["nothing"], "sequence_by": "at", "scd_type": "1"}
    project.standard("orders", "src", cdc=cdc, migration={"selectExp": ["id", "v", "at", "id AS nothing"]})
    assert "cdcSettings.keys names nothing, but the columns are id, v, at." in error_of(project)
    project.standard("orders", "src", migration={})
    project.run()
    with project.nothing_written():
        project.run()
    project.standard("orders", project.delta("src", selectExp=["id", "nothing"]), migration={})
    with project.nothing_written():
        refreshed = invoke(project, "run", "--full-refresh", f"{project.schema}.orders")
    assert "v_orders can't be read (" in refreshed.stderr


def test_missing_schema_missing_table_and_cyclic_views_are_reported_before_any_write(
    project: Project,
) -> None:
    schema, spec = project.schema, "dataflows/d/dataflowspec/orders_main.json"
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    details = {"database": "nowhere_at_all", "table": "orders"}
    project.standard("orders", "src", migration={}, targetDetails=details)
    missing = f"{spec}: targetDetails: The schema of nowhere_at_all.orders doesn't exist."
    assert error_of(project).startswith(f"[SCHEMA_OF_TARGET_MISSING] {missing}")
    statement = f"SELECT s.* FROM STREAM({schema}.src) s JOIN {schema}.misspelt USING (id)"
    project.standard("orders", {"sqlStatement": statement}, migration={}, sourceType="sql")
    assert "misspelt" in error_of(project)
    circle = {"v_a": "SELECT * FROM STREAM(v_b)", "v_b": "SELECT * FROM STREAM(v_a)"}
    flow = {
        "flowType": "append_view",
        "flowDetails": {"targetTable": f"{schema}.orders", "sourceView": "v_a"},
        "views": {
            name: {
                "mode": "stream",
                "sourceType": "sql",
                "sourceDetails": {"sqlStatement": f"SELECT * FROM {other}"},
            }
            for name, other in circle.items()
        },
    }
    project.flow("orders", {"f_a": flow}, migration={})
    assert "circle" in error_of(project)


@soak.slow
def test_full_refresh_keeps_rows_if_files_of_legacy_table_are_missing(
    project: Project,
) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    project.run()
    for file in project.folder("orders_legacy").glob("*.parquet"):
        file.unlink()
    with project.nothing_written():
        refreshed = invoke(project, "run", "--full-refresh", f"{project.schema}.orders")
    assert refreshed.exit_code == 1
    assert "[REFRESH_CANNOT_READ_COPY]" in refreshed.stderr
    assert project.rows("orders", "id") == [(1,)]


@soak.slow
def test_target_runs_although_tables_of_another_target_are_missing(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    project.standard("broken", "nowhere", migration={})
    assert problems_of(project)[0].startswith("[SEVERAL_FINDINGS] 2 problems")
    name = f"{project.schema}.orders"
    assert invoke(project, "run", "--target", name).exit_code == 0
    assert project.rows("orders", "id") == [(1,)]
    with project.nothing_written():
        both = invoke(project, "run", "--target", name, "--full-refresh", f"{project.schema}.broken")
    assert both.exit_code == 1
    assert "[REFRESHED_TARGET_NOT_CHOSEN]" in both.stderr


def test_unwritable_state_folder_stops_run_before_any_write(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    # No user, not even root, can create a folder at these two paths.
    project.state.write_text("a file in the folder's place")
    for command in ("run", "status"):
        unread, _remedy = problems_of(project, command)
        assert unread.startswith("[PATH_NOT_ACCESSIBLE] ")
        assert "(Not a directory)" in unread
    project.write("pipeline_configs/global.json", {"table_migration_state_volume_path": "/proc/tableferry"})
    unwritten, _remedy = problems_of(project)
    assert unwritten.startswith("[FILE_NOT_WRITABLE] /proc/tableferry")
    project.write(
        "pipeline_configs/global.json", {"table_migration_state_volume_path": "/Volumes/main/ops/state"}
    )
    missing, _remedy = problems_of(project)
    assert missing.startswith("[VOLUME_MISSING] /Volumes/main/ops/state")


@soak.only  # tests/unit/test_identity.py tests the decisions, test_identity.py lost and replaced tables.
def test_damaged_state_and_replaced_sources_stop_every_command(project: Project, spark: SparkSession) -> None:
    schema = project.schema
    project.create("src", FEED, (1, "a", 1), properties="delta.checkpointInterval = 1")
    project.create("other", FEED, (1, "a", 1))
    project.create("legacy", FEED, (1, "a", 1))
    joined = {
        "sources": [{**project.delta("src"), "alias": "s"}, {**project.delta("other"), "alias": "o"}],
        "joins": [{"joinType": "inner", "condition": "s.id = o.id"}],
        "selectExp": ["s.*"],
    }
    project.standard("orders", joined, migration={"table": "legacy"}, sourceType="deltaJoin")
    project.standard("more", "other", migration={"table": "legacy"})
    project.run()
    project.insert("other", (2, "b", 2))
    project.run()

    def error_of_damaged(path: Path, damage: Callable[[str], str]) -> str:
        whole = path.read_text()
        path.write_text(damage(whole))
        sentence = error_of(project)
        assert error_of(project, "status") == sentence
        path.write_text(whole)
        assert str(path) in sentence
        return sentence

    migration_start = (
        project.state / "initial_versions/pipelineId=shop" / f"targetTable={schema}.orders" / "part-00000.csv"
    )
    tracking = project.state / "tracking/pipelineId=shop" / f"targetTable={schema}.orders" / "part-00000.csv"
    for path in (migration_start, tracking):
        assert "it was cut short: 1 of 2 rows are left)" in error_of_damaged(
            path, lambda text: "".join(text.splitlines(True)[:-1])
        )
        assert "[BASELINE_FILE_INVALID]" in error_of_damaged(path, lambda text: text[: len(text) // 2])
        assert "[BASELINE_FILE_INVALID]" in error_of_damaged(path, lambda _: "")
    migration_start.rename(hidden := migration_start.with_name("hidden"))
    assert error_of(project).startswith(
        f"[BASELINES_MISSING] {migration_start} is missing, but {tracking} exists"
    )
    hidden.rename(migration_start)
    offsets = project.state / f"checkpoints/targetTable={schema}.more/generation=0/f_v_more/offsets/0"
    for damage in (lambda text: text[:-20], lambda text: text.splitlines(True)[0], lambda _: ""):
        assert "isn't a complete offset file" in error_of_damaged(offsets, damage)
    offsets.write_text("")
    name = f"{schema}.more"
    assert invoke(project, "run", "--target", name, "--full-refresh", name).exit_code == 0
    assert project.rows("more", "id") == [(1,), (2,)]

    project.insert("src", (2, "b", 2))
    project.insert("src", (3, "c", 3))
    for path in (project.folder("src") / "_delta_log").iterdir():
        if path.name.lstrip(".")[:20].isdigit() and int(path.name.lstrip(".")[:20]) < 3:
            path.unlink()
    sentence = error_of(project)
    assert f"sourceDetails: {schema}.src can't be read from version 2 any more (the oldest is 3)" in sentence
    spark.sql(f"DROP TABLE {schema}.src")
    project.create("src", FEED, (1, "a", 1))
    sentence = error_of(project)
    assert f"sourceDetails: {schema}.src was recreated since {schema}.orders last read it" in sentence
    assert "Restore the old table" in sentence
    spark.sql(f"DROP TABLE {schema}.src")
    assert f"sourceDetails: Table {schema}.src doesn't exist." in error_of(project)


def test_run_refuses_changed_source_rows_until_spec_skips_them(project: Project, spark: SparkSession) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.standard("orders", "src")
    project.run()
    project.insert("src", (2, "b", 2))
    spark.sql(f"UPDATE {project.schema}.src SET v = 'changed' WHERE id = 1")
    version = spark.sql(f"DESCRIBE HISTORY {project.schema}.src LIMIT 1").collect()[0]["version"]
    (refusal,) = (refusal for target in project.plan().targets for refusal in target.refusals)
    check(
        refusal, "SOURCE_ROWS_CHANGED", version=version, operation="UPDATE", rows="1 row", flow="f_v_orders"
    )
    with project.nothing_written(), raises("SOURCE_ROWS_CHANGED"):
        project.run()
    project.standard("orders", project.delta("src", readerOptions={"skipChangeCommits": "true"}))
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,)]
    # A new flow whose copy begins after the commit doesn't read it.
    project.create("late_legacy", FEED, (1, "a", 1))
    project.standard("late", "src", migration={})
    project.run(targets=[f"{project.schema}.late"])
    project.insert("src", (3, "c", 3))
    project.run(targets=[f"{project.schema}.late"])
    assert project.rows("late", "id") == [(1,), (3,)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "{root}", "--no-such-option"],
        ["plan", "{root}", "--output", "xml"],
        ["migrate", "{root}"],
        ["finish", "{root}", "{root}"],
    ],
    ids=[
        "no project",
        "an unknown option",
        "an unknown output",
        "an unknown command",
        "one argument too many",
    ],
)
def test_wrong_usage_exits_with_code_2(arguments: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli.app, ["pipelines", *(argument.format(root=tmp_path) for argument in arguments)]
    )
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@soak.slow
def test_plan_reports_legacy_rows_that_end_in_future(project: Project, spark: SparkSession) -> None:
    project.create("src", "id INT, v STRING, at DATE")
    spark.sql(
        f"CREATE TABLE {project.schema}.out_legacy USING delta AS SELECT id, 'a' AS v, DATE'2020-01-01' AS "
        "since, DATE'9999-12-31' AS until FROM VALUES (1), (2) AS keys (id)"
    )
    mapped = ["id", "v", "since AS __START_AT", "until AS __END_AT"]
    cdc = {"keys": ["id"], "sequence_by": "at", "scd_type": "2", "except_column_list": ["at"]}
    project.standard("out", "src", cdc=cdc, migration={"selectExp": mapped})
    problem = f"2 rows of {project.schema}.out_legacy end in the future (the first at 9999-12-31)."
    remedy = "Map them in selectExp as NULLIF(end, DATE'9999-12-31') AS __END_AT"
    for arguments in ([], ["--check"]):
        planned = invoke(project, "plan", *arguments)
        assert planned.exit_code == 0
        assert "[ROWS_END_IN_FUTURE]" in planned.stdout
        text = " ".join(planned.stdout.split())
        assert problem in text, text
        assert remedy in text, text


def test_source_column_wider_than_target_is_reported_with_types_and_remedy(
    project: Project, spark: SparkSession
) -> None:
    source, target = (f"{project.schema}.{table}" for table in ("src", "out"))
    project.create("src", "id int", properties="'delta.enableTypeWidening' = 'true'")
    spark.sql(f"INSERT INTO {source} VALUES (1)")
    project.create("out_legacy", "id int", (1,))
    project.standard("out", "src", migration={})
    project.run()
    spark.sql(f"ALTER TABLE {source} ALTER COLUMN id TYPE bigint")
    spark.sql(f"INSERT INTO {source} VALUES (3000000000)")
    narrow = "Column 'id' of .*out is int, but f_v_out writes bigint"
    # With ANSI mode a task checks each value, and those that fit pass.
    with raises(
        "FLOW_FAILED", reason=re.compile("TASK_WRITE_FAILED"), advice=re.compile(f"{narrow}.* TYPE bigint")
    ):
        project.run()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with raises("COLUMNS_TOO_NARROW_WITHOUT_ANSI", columns=re.compile(narrow)):
            project.run()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"ALTER TABLE {target} ALTER COLUMN id TYPE bigint")
    assert project.run().ok
    assert [row[0] for row in spark.sql(f"SELECT id FROM {target} ORDER BY id").collect()] == [1, 3000000000]
