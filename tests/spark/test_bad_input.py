"""What users get wrong is reported in one sentence, with its location and remedy, and nothing is written."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import soak
from tests.spark.projects import Project
from typer.testing import CliRunner, Result

from tableferry import cli
from tableferry.errors import TableError, TableferryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string, at int"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def call(project: Project, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["pipelines", command, str(project.root), *arguments])


def problems_of(project: Project, command: str = "run") -> list[str]:
    """Run a command that must fail as a user's mistake does; return what it says."""
    with project.nothing_written():
        result = call(project, command)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    # On a slow machine a step that takes seconds is reported on the way, with the time of day.
    lines = [line for line in result.stderr.splitlines() if not re.match(r"Spark: |\d\d:\d\d:\d\d ", line)]
    assert lines, result.output
    assert lines[0].startswith("Error: ")
    return [lines[0].removeprefix("Error: "), *lines[1:]]


def only(project: Project, command: str = "run") -> str:
    (sentence,) = problems_of(project, command)
    return sentence


@soak.only  # tests/unit has each fault of a file, and the test below a table's.
def test_everything_that_is_wrong_in_a_project_s_files_is_reported_at_once(project: Project) -> None:
    project.spec("cut", '{"dataFlowId": "cut", ')
    project.spec("crooked", "dataFlowId: [crooked\n", "yaml")
    details = project.migration("typed", {"table": 5}, enabled="yes")
    project.standard("typed", "src", tableMigrationDetails=details, mode="streaming")
    folder = "dataflows/d/dataflowspec"
    sentences = problems_of(project, "plan")
    assert [line.split(": ")[0] for line in sentences] == [
        f"{folder}/crooked_main.yaml",
        f"{folder}/cut_main.json",
        *[f"{folder}/typed_main.json"] * 3,
    ]
    assert "isn't valid YAML" in sentences[0]
    assert "isn't valid JSON" in sentences[1]
    assert "mode: must be 'stream' or 'batch', not 'streaming'" in sentences[2]
    assert "tableMigrationDetails.enabled: must be true or false" in sentences[3]
    assert "tableMigrationDetails.sourceDetails.table: must be text, not 5: put it in quotes" in sentences[4]


@soak.slow
def test_tables_that_will_not_do_are_reported_with_their_place_in_the_spec(
    project: Project, spark: SparkSession
) -> None:
    schema, spec = project.schema, "dataflows/d/dataflowspec/orders_main.json"
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    spark.sql(f"CREATE TABLE {schema}.files (id int) USING parquet")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT * FROM {schema}.src")

    project.standard("orders", "nowhere", migration={})
    missing = f"table {schema}.nowhere doesn't exist: restore it, or correct the spec"
    assert only(project) == f"{spec}: sourceDetails: {missing}"
    planned = call(project, "plan")
    assert planned.exit_code == 1
    assert missing in planned.stdout
    project.standard("orders", "src", migration={"table": "gone_legacy"})
    assert only(project) == (
        f"{spec}: tableMigrationDetails: table {schema}.gone_legacy doesn't exist: correct database and table"
    )
    project.standard("orders", "files", migration={})
    assert only(project) == (
        f"{spec}: sourceDetails: [TABLE_NOT_DELTA] {schema}.files is a parquet table, not a Delta table. "
        "Convert it to Delta first."
    )
    debugged = call(project, "run", "--debug")
    assert isinstance(debugged.exception, TableError)
    project.standard("orders", "src", migration={"table": "seen"})
    assert only(project) == (
        f"{spec}: tableMigrationDetails: [DELTA_TABLE_IS_VIEW] {schema}.seen is a view. "
        "Name the Delta table that the view reads."
    )
    project.create("orders", FEED, (7, "somebody else's", 1))
    project.standard("orders", "src", migration={})
    assert only(project).startswith(
        f"{spec}: targetDetails: {schema}.orders already has data that this migration didn't bring: empty or"
    )
    spark.sql(f"TRUNCATE TABLE {schema}.orders")
    project.standard("orders", "src", migration={"selectExp": ["id", "nothing"]})
    assert only(project).startswith(
        f"{spec}: tableMigrationDetails: {schema}.orders_legacy can't be read as of version 1"
    )


@soak.slow
def test_a_live_view_that_cannot_be_read_is_reported_before_the_first_row_is_copied(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", project.delta("src", selectExp=["id", "nothing"]), migration={})
    assert "sourceDetails: v_orders can't be read (" in only(project)
    cdc = {"keys": ["id"], "sequence_by": "at", "scd_type": "1", "apply_as_deletes": "nothing = 'D'"}
    project.standard("orders", "src", cdc=cdc, migration={})
    sentence = only(project)
    assert sentence.startswith(
        "dataflows/d/dataflowspec/orders_main.json: an expression of cdcSettings doesn't"
    )
    assert sentence.endswith("): correct it")
    cdc = {"keys": ["nothing"], "sequence_by": "at", "scd_type": "1"}
    project.standard("orders", "src", cdc=cdc, migration={"selectExp": ["id", "v", "at", "id AS nothing"]})
    assert only(project).endswith("cdcSettings.keys names nothing, but the columns are id, v, at: correct it")
    project.standard("orders", "src", migration={})
    project.run()
    with project.nothing_written():
        project.run()
    project.standard("orders", project.delta("src", selectExp=["id", "nothing"]), migration={})
    with project.nothing_written():
        refreshed = call(project, "run", "--full-refresh", f"{project.schema}.orders")
    assert "v_orders can't be read (" in refreshed.stderr


def test_what_cannot_be_made_or_looked_up_is_reported_before_anything_is_written(project: Project) -> None:
    schema, spec = project.schema, "dataflows/d/dataflowspec/orders_main.json"
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    details = {"database": "nowhere_at_all", "table": "orders"}
    project.standard("orders", "src", migration={}, targetDetails=details)
    assert only(project) == (
        f"{spec}: targetDetails: the schema of nowhere_at_all.orders doesn't exist: create it"
    )
    statement = f"SELECT s.* FROM STREAM({schema}.src) s JOIN {schema}.misspelt USING (id)"
    project.standard("orders", {"sqlStatement": statement}, migration={}, sourceType="sql")
    assert "misspelt" in only(project)
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
    assert "circle" in only(project)


@soak.slow
def test_a_copy_whose_files_are_gone_stops_a_full_refresh_before_its_rows_are_dropped(
    project: Project,
) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    project.run()
    for file in project.folder("orders_legacy").glob("*.parquet"):
        file.unlink()
    with project.nothing_written():
        refreshed = call(project, "run", "--full-refresh", f"{project.schema}.orders")
    assert refreshed.exit_code == 1
    assert "can't be rebuilt: restore the files that it needs" in refreshed.stderr
    assert project.rows("orders", "id") == [(1,)]


@soak.slow
def test_a_target_whose_tables_are_missing_does_not_stop_another_one(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    project.standard("broken", "nowhere", migration={})
    assert len(problems_of(project)) == 2
    name = f"{project.schema}.orders"
    assert call(project, "run", "--target", name).exit_code == 0
    assert project.rows("orders", "id") == [(1,)]
    with project.nothing_written():
        both = call(project, "run", "--target", name, "--full-refresh", f"{project.schema}.broken")
    assert both.exit_code == 1
    assert "broken: --full-refresh of a target that --target leaves out: name it there too" in both.stderr


def test_a_state_folder_that_cannot_be_written_stops_the_run_before_anything_else(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    # Nobody, not even root, may make a folder in these two places.
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


@soak.only  # tests/unit/test_recognition.py has the decisions, test_identity.py what was lost or replaced.
def test_state_that_is_not_whole_and_sources_that_are_not_what_they_were_stop_everything(
    project: Project, spark: SparkSession
) -> None:
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

    def damaged(path: Path, damage: Callable[[str], str]) -> str:
        whole = path.read_text()
        path.write_text(damage(whole))
        sentence = only(project)
        assert only(project, "status") == sentence
        path.write_text(whole)
        assert sentence.startswith(str(path))
        return sentence

    migration_start = (
        project.state / "initial_versions/pipelineId=shop" / f"targetTable={schema}.orders" / "part-00000.csv"
    )
    tracking = project.state / "tracking/pipelineId=shop" / f"targetTable={schema}.orders" / "part-00000.csv"
    for path in (migration_start, tracking):
        assert "it was cut short: 1 of 2 rows are left): restore it" in damaged(
            path, lambda text: "".join(text.splitlines(True)[:-1])
        )
        assert "isn't a whole state file" in damaged(path, lambda text: text[: len(text) // 2])
        assert "isn't a whole state file" in damaged(path, lambda _: "")
    migration_start.rename(hidden := migration_start.with_name("hidden"))
    assert only(project).startswith(f"{migration_start} is missing, but {tracking} is there: restore it")
    hidden.rename(migration_start)
    offsets = project.state / f"checkpoints/targetTable={schema}.more/generation=0/f_v_more/offsets/0"
    for damage in (lambda text: text[:-20], lambda text: text.splitlines(True)[0], lambda _: ""):
        assert "isn't a whole offset file: put it back from a backup" in damaged(offsets, damage)
    offsets.write_text("")
    name = f"{schema}.more"
    assert call(project, "run", "--target", name, "--full-refresh", name).exit_code == 0
    assert project.rows("more", "id") == [(1,), (2,)]

    project.insert("src", (2, "b", 2))
    project.insert("src", (3, "c", 3))
    for path in (project.folder("src") / "_delta_log").iterdir():
        if path.name.lstrip(".")[:20].isdigit() and int(path.name.lstrip(".")[:20]) < 3:
            path.unlink()
    sentence = only(project)
    assert (
        f"sourceDetails: {schema}.src can't be read from version 2 any more (the oldest is 3): give reader"
        in sentence
    )
    spark.sql(f"DROP TABLE {schema}.src")
    project.create("src", FEED, (1, "a", 1))
    sentence = only(project)
    assert (
        f"sourceDetails: {schema}.src was dropped and made anew since {schema}.orders last knew it"
        in sentence
    )
    assert "restore the old table" in sentence
    spark.sql(f"DROP TABLE {schema}.src")
    assert f"sourceDetails: table {schema}.src doesn't exist: restore it, or correct the spec" in only(
        project
    )


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
def test_wrong_usage_is_exit_code_2(arguments: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(
        cli.app, ["pipelines", *(argument.format(root=tmp_path) for argument in arguments)]
    )
    assert result.exit_code == 2
    assert "Usage: " in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@soak.slow
def test_plan_says_which_legacy_rows_are_open_until_a_date_in_the_future(
    project: Project, spark: SparkSession
) -> None:
    project.create("src", "id INT, v STRING, at DATE")
    spark.sql(
        f"CREATE TABLE {project.schema}.out_legacy USING delta AS SELECT id, 'a' AS v, DATE'2020-01-01' AS "
        "since, DATE'9999-12-31' AS until FROM VALUES (1), (2) AS keys (id)"
    )
    mapped = ["id", "v", "since AS __START_AT", "until AS __END_AT"]
    cdc = {"keys": ["id"], "sequence_by": "at", "scd_type": "2", "except_column_list": ["at"]}
    project.standard("out", "src", cdc=cdc, migration={"selectExp": mapped})
    sentence = (
        f"2 rows of {project.schema}.out_legacy end in the future (at 9999-12-31), which doesn't mean open "
        "to AUTO CDC: a later row of the key won't close them. Map them in selectExp as NULLIF(end, "
        "DATE'9999-12-31') AS __END_AT, where end stands for what is mapped now"
    )
    for arguments in ([], ["--check"]):
        planned = call(project, "plan", *arguments)
        assert (planned.exit_code, sentence in " ".join(planned.stdout.split())) == (0, True), planned.output


def test_a_source_column_wider_than_its_target_is_named_with_both_types_and_a_remedy(
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
    narrow = "column 'id' of .*out is int, and f_v_out writes bigint: widen the column .* TYPE bigint"
    # With ANSI mode a task checks each value, and those that fit pass.
    with pytest.raises(TableferryError, match=rf"TASK_WRITE_FAILED.*{narrow}"):
        project.run()
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(TableError, match=rf"ansi.enabled is false, and {narrow}"):
            project.run()
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    spark.sql(f"ALTER TABLE {target} ALTER COLUMN id TYPE bigint")
    assert project.run().ok
    assert [row[0] for row in spark.sql(f"SELECT id FROM {target} ORDER BY id").collect()] == [1, 3000000000]
