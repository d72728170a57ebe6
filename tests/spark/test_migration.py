"""Complete migrations on real tables: initial copy, flows after the baseline, full refresh and finish.

Each test checks that the target contains every row exactly once.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import conditions, soak
from tests.conditions import check, names, raises
from tests.spark.projects import Project, delta_view

from tableferry import pipelines
from tableferry.errors import Refused, TableferryError
from tableferry.pipelines.model.steps import RecordStart
from tableferry.pipelines.sources.copy_findings import find_narrow_copied_columns
from tableferry.pipelines.state.store import StateStore
from tableferry.spark import catalog
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCD1 = {"keys": ["id"], "sequence_by": "at", "scd_type": "1"}
SCD2 = {"keys": ["id"], "sequence_by": "at", "scd_type": "2"}
FEED = "id int, v string, at int"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def count_jobs(spark: SparkSession) -> int:
    """Return the number of Spark jobs that were started in the session."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs())


@soak.only  # make test migrates appends and SCD type 2 in the demo, and type 1 in test_history.
def test_append_scd1_and_scd2_targets_are_migrated_from_first_plan_to_finish(
    project: Project, spark: SparkSession
) -> None:
    project.create("src", FEED, (1, "a", 1), (2, "b", 2))
    project.create("rows_legacy", FEED, (1, "a", 1), (1, "a", 1), (2, None, 2))
    # The legacy table has neither the feed's sequence nor the column of its deletes.
    project.create("latest_legacy", "id int, v string", (1, "a"), (2, None), (3, "gone"))
    intervals = [
        (1, "x", 1, 3),
        (1, "x", 5, 7),
        (1, "y", 7, 9),
        (2, "b", 2, None),
        (3, None, 1, 4),
        (3, "x", 4, 8),
    ]
    project.create("validity_legacy", "id int, v string, eff_from int, eff_to int", *intervals)
    project.standard("rows", "src", migration={})
    deleting = {**SCD1, "apply_as_deletes": "at < 0", "except_column_list": ["at"]}
    project.standard("latest", "src", cdc=deleting, migration={})
    mapped = {"selectExp": ["id", "v", "eff_from AS __START_AT", "eff_to AS __END_AT"]}
    project.standard("validity", "src", cdc={**SCD2, "except_column_list": ["at"]}, migration=mapped)

    with project.nothing_written():
        assert pipelines.check(project.plan(), spark) == ()
        assert set(project.phases().values()) == {"new"}
    assert project.run().ok
    assert project.rows("rows") == sorted([(1, "a", 1), (1, "a", 1), (2, None, 2)], key=repr)
    assert project.rows("latest") == sorted([(1, "a"), (2, None), (3, "gone")], key=repr)
    assert project.rows("validity") == sorted(intervals, key=repr)
    assert set(project.phases().values()) == {"waiting"}
    with (
        project.nothing_written(),
        raises("MIGRATION_NOT_COMPLETE", reason=re.compile("^waiting for sources; .*src")),
    ):
        project.finish()

    # The copy is of a pinned version, so later changes of the legacy tables have no effect.
    spark.sql(f"DELETE FROM {project.schema}.validity_legacy WHERE id = 1")
    spark.sql(f"UPDATE {project.schema}.rows_legacy SET v = 'changed'")
    project.insert("src", (2, "c", 20), (3, "z", -1), (4, "d", 21), (4, "d", 21))
    with project.nothing_written():
        assert {target.phase for target in project.plan().targets} == {"ready"}
    project.run()
    expected: dict[str, list[tuple[Any, ...]]] = {
        "rows": [
            (1, "a", 1),
            (1, "a", 1),
            (2, None, 2),
            (2, "c", 20),
            (3, "z", -1),
            (4, "d", 21),
            (4, "d", 21),
        ],
        "latest": [(1, "a"), (2, "c"), (4, "d")],
        "validity": [*intervals[:3], (2, "b", 2, 20), (2, "c", 20, None), *intervals[4:], (4, "d", 21, None)],
    }
    expected["validity"].append((3, "z", -1, 1))
    for table, rows in expected.items():
        assert project.rows(table) == sorted(rows, key=repr), table
    assert project.status().complete
    picture = spark.read.option("header", True).csv(str(project.state / "tracking"))
    seen = [
        tuple(row)
        for row in picture.select("targetTable", "version", "currentVersion", "ready", "pipelineId").collect()
    ]
    assert sorted(seen) == [
        (f"{project.schema}.{name}", "1", "2", "true", "shop") for name in sorted(expected)
    ]

    before = count_jobs(spark)
    with project.nothing_written():
        result = project.run()
    assert count_jobs(spark) == before
    assert not any(target.results or target.plan.steps for target in result.targets)

    # A full refresh repeats the initial copy. test_property.py refreshes the other kinds of targets.
    project.run(full_refresh=[f"{project.schema}.rows"])
    assert project.rows("rows") == sorted(expected["rows"], key=repr)

    assert len(project.finish(accept_assumed=True).finished) == 3
    assert not list(project.state.rglob("*.csv"))
    with project.nothing_written():
        assert {target.plan.phase for target in project.run().targets} == {"finished"}
        assert len(project.finish().already) == 3
    project.insert("src", (5, "e", 30))
    project.run(targets=[f"{project.schema}.rows"])
    assert project.rows("rows") == sorted([*expected["rows"], (5, "e", 30)], key=repr)


def start_note(view: str, start: str) -> str:
    """Return the note of a plan about a view with a start in its spec."""
    return f"{view} starts at {start}, as the spec states"


def change_both_and_run(project: Project) -> None:
    """Append to both sources, change and delete rows of the feed, and run the flows."""
    project.insert("src", (2, "b", 2))
    project.insert("feed", (3, "c"), (9, "no"))
    project.spark.sql(f"UPDATE {project.schema}.feed SET v = 'B' WHERE id = 2")
    project.spark.sql(f"DELETE FROM {project.schema}.feed WHERE id = 1")
    project.run()
    assert project.status().complete


def test_flow_over_every_kind_of_source_starts_after_baseline(project: Project) -> None:
    schema = project.schema
    project.create("legacy", "id int, v string", (0, "old"))
    project.create("src", FEED, (1, "a", 1))
    project.create("dim", "id int, name string", (1, "one"), (2, "two"))
    project.create(
        "feed", "id int, v string", (1, "a"), (2, "b"), properties="delta.enableChangeDataFeed = true"
    )
    copied: Any = {"table": "legacy"}
    looked_up = {
        "sources": [
            {**project.delta("src"), "alias": "s", "joinMode": "stream"},
            {**project.delta("dim"), "alias": "d", "joinMode": "static"},
        ],
        "joins": [{"joinType": "left", "condition": "s.id = d.id"}],
        "selectExp": ["s.id AS id", "d.name AS v"],
    }
    project.standard("by_join", looked_up, migration=copied, sourceType="deltaJoin")
    statement = f"SELECT s.id, d.name AS v FROM STREAM({schema}.src) s JOIN {schema}.dim d ON s.id = d.id"
    project.standard("by_sql", {"sqlStatement": statement}, migration=copied, sourceType="sql")
    project.write(
        "dataflows/d/python_functions/follow.py",
        """
def get_df(spark, tokens):
    return spark.readStream.table(tokens["table"]).selectExpr("id", "upper(v) AS v")
""",
    )
    function = {"functionPath": "follow.py", "tokens": {"table": f"{schema}.src"}}
    project.standard("by_python", function, migration=copied, sourceType="python")
    changes = project.delta(
        "feed",
        cdfEnabled=True,
        whereClause=["id <> 9"],
        readerOptions={"maxFilesPerTrigger": "1"},
        selectExp=["id", "v"],
    )
    project.standard("by_changes", changes, migration=copied)
    assert all(
        target.migration_start and f"{schema}.dim" not in target.migration_start.baselines
        for target in project.plan().targets
    )

    assert project.run().ok
    assert set(project.phases().values()) == {"waiting"}
    change_both_and_run(project)
    assert {name: project.rows(name) for name in project.phases()} == {
        "by_join": [(0, "old"), (2, "two")],
        "by_sql": [(0, "old"), (2, "two")],
        "by_python": [(0, "old"), (2, "B")],
        "by_changes": [(0, "old"), (2, "B"), (3, "c")],
    }


@soak.slow
def test_flow_starts_at_version_of_spec_or_after_baseline(project: Project) -> None:
    schema = project.schema
    project.create("legacy", "id int, v string", (0, "old"))
    project.create("src", FEED, (1, "a", 1))
    project.create("feed", "id int, v string", (1, "a"), (2, "b"))
    selected: Any = {"selectExp": ["id", "v"]}
    copied: Any = {"table": "legacy"}
    passing = project.delta("feed", whereClause=["id <> 9"], readerOptions={"skipChangeCommits": "true"})
    project.standard("by_options", passing | selected, migration=copied)
    project.standard(
        "by_version",
        project.delta("src", readerOptions={"startingVersion": "1"}) | selected,
        migration=copied,
    )
    project.standard("by_path", {"tablePath": str(project.folder("src")), **selected}, migration=copied)
    project.spec(
        "by_time",
        f"""
        dataFlowId: by_time
        dataFlowGroup: g
        dataFlowType: standard
        tags: {{owner: "${{secret.owner}}", since: 2026-01-01}}
        sourceSystem: "${{secret.system}}"
        sourceType: delta
        sourceViewName: v_by_time
        mode: stream
        sourceDetails:
          database: {schema}
          table: src
          cdfEnabled: false
          selectExp: [id, v]
          readerOptions: {{startingTimestamp: 2020-01-01}}
        targetFormat: delta
        targetDetails: {{database: {schema}, table: by_time}}
        tableMigrationDetails:
          enabled: true
          catalogType: hms
          sourceDetails: {{database: {schema}, table: legacy}}
        """,
        "yaml",
    )
    targets = project.plan().targets
    assert all(target.migration_start for target in targets)
    notes = {target.target.table: target.notes for target in targets}
    assert notes["by_version"] == (start_note("v_by_version", f"1 of {schema}.src"),)
    assert notes["by_time"] == (start_note("v_by_time", f"timestamp:2020-01-01 of {schema}.src"),)

    assert project.run().ok
    waiting = {name for name, phase in project.phases().items() if phase == "waiting"}
    assert waiting == {"by_options", "by_path"}
    change_both_and_run(project)
    assert {name: project.rows(name) for name in project.phases()} == {
        "by_options": [(0, "old"), (3, "c")],
        "by_version": [(0, "old"), (1, "a"), (2, "b")],
        "by_path": [(0, "old"), (2, "b")],
        "by_time": [(0, "old"), (1, "a"), (2, "b")],
    }


@soak.slow
def test_flow_spec_with_staging_table_writes_each_row_once_to_both(project: Project) -> None:
    schema = project.schema
    project.create("src", FEED, (1, "b", 2))
    project.create("other", FEED)
    project.create("orders_legacy", "id int, v string, at int", (1, "a", 1), (2, "kept", 1))

    def spec(options: dict[str, str]) -> None:
        statement = f"SELECT id, 'other' AS v, at FROM STREAM({schema}.other)"
        flows: dict[str, Any] = {
            "f_src": {
                "flowType": "append_view",
                "flowDetails": {"targetTable": "orders_rows", "sourceView": "v_src"},
                "views": {"v_src": delta_view(project.delta("src", readerOptions=options))},
            },
            "f_other": {
                "flowType": "append_sql",
                "flowDetails": {"targetTable": "orders_rows", "sqlStatement": statement},
            },
            "f_orders": {
                "flowType": "merge",
                "flowDetails": {"targetTable": f"{schema}.orders", "sourceView": "orders_rows"},
            },
        }
        project.flow("orders", flows, staging={"orders_rows": {"type": "ST"}}, cdc=SCD1, migration={})

    spec({})
    (target,) = project.plan().targets
    assert [(flow.name, flow.action) for flow in target.flows] == [
        ("f_src", "wait"),
        ("f_other", "wait"),
        ("f_orders", "wait"),
    ]
    (staging,) = target.waits[2:]
    check(staging.why, "SOURCE_NOT_CREATED", source=f"{project.schema}.orders_rows")

    # The flow with a start in its spec doesn't wait for the flow of the other source.
    spec({"startingVersion": "1"})
    assert project.run().ok
    assert project.rows("orders_rows") == [(1, "b", 2)]
    assert project.rows("orders") == [(1, "b", 2), (2, "kept", 1)]
    assert project.phases() == {"orders": "waiting"}
    project.insert("other", (3, "x", 3))
    project.run(full_refresh=[f"{schema}.orders"])
    assert project.rows("orders_rows") == [(1, "b", 2), (3, "other", 3)]
    assert project.rows("orders") == [(1, "b", 2), (2, "kept", 1), (3, "other", 3)]
    assert project.status().complete


class Crash(Exception):
    """The process crashes."""


@soak.only  # make test has random crashes and commits in test_property.py.
def test_crash_and_commit_before_any_effect_lose_and_repeat_no_row(project: Project) -> None:
    project.create("src", FEED, (0, "before", 0))
    project.create("orders_legacy", FEED, (0, "before", 0))
    project.standard("orders", "src", migration={})
    moments: list[str] = []

    def commit_and_crash(moment: str) -> None:
        # Versions and names follow the second word.
        if (kind := " ".join(moment.split(" ")[:2])) in moments:
            return
        moments.append(kind)
        if kind != "record the":
            project.insert("src", (len(moments), "new", 0))
            project.insert("orders_legacy", (-1, "too late for the pinned copy", 0))
        raise Crash

    ended = False
    while not ended:
        with suppress(Crash):
            project.run(before=commit_and_crash)
            ended = True
    assert [kind.split(" ")[0] for kind in moments] == [
        *("record", "creating", "recording", "rows", "verifying", "recording"),
        *("giving", "recording", "stream", "recording"),
    ]
    project.run()
    assert sorted(row[0] for row in project.rows("orders")) == [0, *range(2, len(moments) + 1)]
    assert project.status().complete


@soak.slow
def test_run_without_automatic_versions_uses_given_start_and_warns_of_missing_one(
    project: Project,
) -> None:
    project.create("src", FEED, (1, "a", 1), (2, "b", 2))
    project.insert("src", (3, "c", 3))
    project.create("legacy", FEED, (1, "a", 1), (2, "b", 2))
    off = project.migration("", {"table": "legacy"}, autoStartingVersionsEnabled=False)
    project.standard(
        "given", project.delta("src", readerOptions={"startingVersion": "2"}), tableMigrationDetails=off
    )
    project.standard("missing", "src", tableMigrationDetails=off)
    given, missing = project.plan().targets
    assert given.notes == (start_note("v_given", f"2 of {project.schema}.src"),)
    (warning,) = (found for found in missing.warnings if found.condition == "SOURCE_READ_FROM_START")
    check(warning, "SOURCE_READ_FROM_START", view="v_missing", size="3 commits, 3 rows")
    assert project.run().ok
    assert project.rows("given", "id") == [(1,), (2,), (3,)]
    assert project.rows("missing", "id") == [(1,), (1,), (2,), (2,), (3,)]
    assert project.status().complete


@soak.slow
def test_renamed_view_changed_pipeline_and_added_source_lose_and_repeat_no_row(
    project: Project,
) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("added", FEED, (10, "x", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))

    def spec(view: str, extra: dict[str, Any] | None = None, *, enabled: bool = True) -> None:
        flows: dict[str, Any] = {
            "f_src": {
                "flowType": "append_view",
                "flowDetails": {"targetTable": "orders", "sourceView": view},
                "views": {view: delta_view(project.delta("src"))},
            }
        }
        if extra is not None:
            flows["f_added"] = {
                "flowType": "append_view",
                "flowDetails": {"targetTable": "orders", "sourceView": "v_added"},
                "views": {"v_added": delta_view(project.delta("added", **extra))},
            }
        details = project.migration("orders", enabled=enabled)
        project.flow("orders", flows, tableMigrationDetails=details)

    spec("v_src")
    project.run(pipeline_id="one")
    spec("v_src", enabled=False)
    with (
        project.nothing_written(),
        raises("MIGRATION_SWITCHED_OFF"),
    ):
        project.run(pipeline_id="one")

    spec("v_renamed")
    project.insert("src", (2, "b", 2))
    with (
        project.nothing_written(),
        raises("STATE_OF_OTHER_PIPELINE", others=("one",), pipeline="two"),
    ):
        project.run(pipeline_id="two")
    with project.nothing_written():
        assert project.plan(pipeline_id="two", adopt=True).refusals == ()
    project.run(pipeline_id="two", adopt=True)
    assert project.rows("orders", "id") == [(1,), (2,)]
    spec("v_renamed_again")
    project.insert("src", (3, "c", 3))
    project.run(pipeline_id="two")
    assert project.rows("orders", "id") == [(1,), (2,), (3,)]

    spec("v_renamed_again", {})
    with (
        project.nothing_written(),
        raises("SOURCE_ADDED_AFTER_BASELINE", source=re.compile("added$")),
    ):
        project.run(pipeline_id="two")
    spec("v_renamed_again", {"readerOptions": {"startingVersion": "0"}})
    project.run(pipeline_id="two")
    assert project.rows("orders", "id") == sorted([(1,), (2,), (3,), (10,)], key=repr)

    spec("v_renamed_again", {}, enabled=False)
    assert list(project.state.rglob("*.csv"))
    project.insert("src", (4, "d", 4))
    project.insert("added", (11, "y", 4))
    project.run(pipeline_id="two")
    assert project.rows("orders", "id") == sorted([(1,), (2,), (3,), (4,), (10,), (11,)], key=repr)
    # The hand-over was assumed, so the run keeps the state.
    assert list(project.state.rglob("*.csv"))
    project.finish(pipeline_id="two", accept_assumed=True)
    assert not list(project.state.rglob("*.csv"))


@soak.slow
def test_flow_of_standard_spec_resumes_after_its_view_is_renamed(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    project.run()
    project.insert("src", (2, "b", 2))
    project.run()
    project.standard("orders", "src", migration={}, sourceViewName="v_renamed")
    project.insert("src", (3, "c", 3))
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,), (3,)]


@soak.slow
def test_migration_added_after_run_begins_with_full_refresh(project: Project, spark: SparkSession) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src")
    project.run()
    for table in ("src", "orders_legacy"):
        project.insert(table, (2, "b", 2))
    project.standard("orders", "src", migration={})
    with (
        project.nothing_written(),
        pytest.raises(Refused, match=r"(?s)TARGET_NOT_EMPTY.*FLOWS_RAN_BEFORE_MIGRATION"),
    ):
        project.run()
    spark.sql(f"DELETE FROM {project.schema}.orders")
    target = f"{project.schema}.orders"
    with project.nothing_written(), pytest.raises(Refused, match=f"run with --full-refresh {target}"):
        project.run()
    project.run(full_refresh=[target])
    project.insert("src", (3, "c", 3))
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,), (3,)]
    assert project.status().complete


@soak.slow
def test_renamed_flow_with_start_rereads_only_after_old_checkpoint_is_removed(
    project: Project,
) -> None:
    def spec(flow: str, start: int) -> None:
        source = project.delta("src", readerOptions={"startingVersion": str(start)})
        details = {"flowType": "append_view", "flowDetails": {"targetTable": "orders", "sourceView": flow}}
        project.flow("orders", {flow: {**details, "views": {flow: delta_view(source)}}})

    project.create("src", FEED, (1, "a", 1))
    spec("f_old", 1)
    project.run()
    spec("f_new", 1)
    with project.nothing_written(), pytest.raises(Refused, match="or start f_new at version 2 or later"):
        project.run()
    spec("f_new", 2)
    project.insert("src", (2, "b", 2))
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,)]
    spec("f_newer", 2)
    with project.nothing_written(), pytest.raises(Refused, match="remove the folder of f_new"):
        project.run()
    [folder] = project.state.glob("checkpoints/*/generation=0/f_new")
    shutil.rmtree(folder)
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,), (2,)]


@pytest.fixture
def elsewhere(spark: SparkSession, schema: str) -> Iterator[str]:
    name = f"{schema}_elsewhere"
    spark.sql(f"CREATE SCHEMA {name}")
    yield name
    spark.sql(f"DROP SCHEMA {name} CASCADE")


@soak.slow
def test_concurrent_run_of_same_target_is_refused_and_other_target_runs(
    project: Project, elsewhere: str
) -> None:
    schema = project.schema
    project.create(f"{elsewhere}.customer", FEED, (1, "a", 1))
    project.create("src", FEED, (1, "a", 1))
    project.create(f"{elsewhere}.legacy", FEED, (1, "customer", 1))
    project.create("legacy", FEED, (1, "account", 1))
    other = {"database": elsewhere, "table": "customer", "cdfEnabled": False}
    project.standard("customer", other, migration={"database": elsewhere, "table": "legacy"})
    project.standard("account", "src", migration={"table": "legacy"})
    moments: list[str] = []

    def run_concurrently(moment: str) -> None:
        if not moments:
            # A lock belongs to an open file, so a second run in this thread acts like another process.
            for options in ({}, {"targets": [f"{schema}.customer"]}):
                with conditions.raises(
                    "LOCK_HELD", task=re.compile("customer$|the project"), file=re.compile(str(project.state))
                ):
                    project.run(**options)
            project.run(targets=[f"{schema}.account"])
        moments.append(moment)

    done = project.run(targets=[f"{schema}.customer"], before=run_concurrently)
    assert [target.plan.target.table for target in done.targets] == ["customer"]
    assert project.rows("customer") == [(1, "customer", 1)]
    assert project.rows("account") == [(1, "account", 1)]
    project.insert(f"{elsewhere}.customer", (2, "b", 2))
    project.insert("src", (3, "c", 3))
    project.run(targets=[f"{schema}.account"])
    assert project.rows("customer") == [(1, "customer", 1)]
    project.run()
    assert project.rows("customer") == [(1, "customer", 1), (2, "b", 2)]
    assert project.rows("account") == [(1, "account", 1), (3, "c", 3)]


@soak.slow
def test_first_recorded_migration_start_is_kept_without_locks(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.standard("orders", "src", migration={})
    (first,) = (step.migration_start for step in project.plan().steps if isinstance(step, RecordStart))

    def record_another_start(moment: str) -> None:
        if moment.startswith("record the start"):
            project.insert("src", (2, "b", 2))
            assert StateStore(project.state, first.pipeline_id).record_start(first)

    with raises("MIGRATION_STARTED_BY_ANOTHER_RUN"):
        project.run(before=record_another_start)
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,)]


@soak.slow
def test_scd2_history_keeps_nulls_columns_and_closed_intervals(project: Project, spark: SparkSession) -> None:
    project.create("src", "id int, v string, note string, at int", (1, "a", "n", 1))
    columns = "id int, v string, note string, junk int, eff_from int, eff_to int"
    project.create("orders_legacy", columns + ", meta struct<loaded:timestamp, file:string>")
    meta = "named_struct('loaded', TIMESTAMP'2020-02-02 02:02:02', 'file', 'f.csv')"
    intervals = [
        (1, "'a'", "'n'", 1, 3),
        (1, "NULL", "'n'", 3, 5),
        (2, "'b'", "'kept'", 1, "NULL"),
        (9, "'e'", "'n'", 4, 4),
    ]
    values = ", ".join(
        f"({id_}, {v}, {note}, 7, {start}, {end}, {meta})" for id_, v, note, start, end in intervals
    )
    spark.sql(f"INSERT INTO {project.schema}.orders_legacy VALUES {values}")
    settings = {
        **SCD2,
        "ignore_null_updates": True,
        "except_column_list": ["at", "note"],
        "apply_as_deletes": "",
    }
    mapped = {
        "selectExp": ["*", "eff_from AS __START_AT", "eff_to AS __END_AT"],
        "exceptColumns": ["junk", "eff_from", "eff_to"],
    }
    project.standard("orders", "src", cdc=settings, migration=mapped)
    with project.nothing_written():
        (checked,) = pipelines.check(project.plan(), spark)
        assert (checked.count, checked.rows[0]["id"], checked.rows[0]["__reason"]) == (
            1,
            9,
            "interval is empty (start = end)",
        )
        with raises("ROWS_NOT_REPRESENTABLE", count=1):
            project.run()

    details = project.migration("orders", mapped, leaveOutNotRepresentable=True)
    project.standard("orders", "src", cdc=settings, tableMigrationDetails=details)
    (left_out,) = pipelines.check(project.plan(), spark)
    assert left_out.left_out
    assert project.run().ok
    project.insert("src", (2, None, "n", 10), (1, None, "n", 11))
    project.run()
    table = spark.table(f"{project.schema}.orders")
    assert table.columns == ["id", "v", "note", "meta", "__START_AT", "__END_AT"]
    assert project.rows("orders", "id", "v", "note", "__START_AT", "__END_AT") == sorted(
        [
            (1, "a", "n", 1, 3),
            (1, None, "n", 3, 5),
            (1, None, None, 11, None),
            (2, "b", "kept", 1, None),
        ],
        key=repr,
    )
    loaded = (
        table.where("__START_AT < 10").selectExpr("string(meta.loaded)", "meta.file").distinct().collect()
    )
    assert [tuple(row) for row in loaded] == [("2020-02-02 02:02:02", "f.csv")]


@soak.slow
def test_sequence_with_several_fields_is_compared_field_by_field(
    project: Project, spark: SparkSession
) -> None:
    project.create("src", "id int, v string, at int, n int", (1, "a", 1, 1))
    project.create("orders_legacy", "id int, v string, eff struct<at:int,n:int>, until struct<at:int,n:int>")
    spark.sql(
        f"INSERT INTO {project.schema}.orders_legacy VALUES "
        "(1, 'a', struct(1, 1), struct(1, 2)), (1, 'b', struct(1, 2), NULL)"
    )
    mapped = {"selectExp": ["id", "v", "eff AS __START_AT", "until AS __END_AT"]}
    sequence = {**SCD2, "sequence_by": "struct(at, n)", "except_column_list": ["at", "n"]}
    project.standard("orders", "src", cdc=sequence, migration=mapped)
    assert project.run().ok
    project.insert("src", (1, "c", 1, 3))
    project.run()
    rows = spark.table(f"{project.schema}.orders").orderBy("__START_AT")
    assert [tuple(row) for row in rows.selectExpr("v", "__START_AT.n", "__END_AT.n").collect()] == [
        ("a", 1, 2),
        ("b", 2, 3),
        ("c", 3, None),
    ]


@soak.slow
def test_scd1_copy_of_history_contains_only_open_rows(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create(
        "orders_legacy",
        "id int, v string, at int, s int, e int",
        (1, "a", 3, 3, None),
        (2, "deleted", 3, 3, 4),
        (3, "old", 1, 1, 2),
        (3, "new", 2, 2, None),
    )
    mapped = ["id", "v", "at", "s AS __START_AT", "e AS __END_AT"]
    project.standard("orders", "src", cdc=SCD1, migration={"selectExp": mapped})
    assert project.run().ok
    assert project.rows("orders") == [(1, "a", 3), (3, "new", 2)]


@soak.slow
def test_spark_conf_of_target_applies_only_to_its_flows(project: Project, spark: SparkSession) -> None:
    zone = "spark.sql.session.timeZone"
    project.create("src", FEED, (1, "a", 1))
    feed = project.delta("src", selectExp=["id", "current_timezone() AS zone"])
    for name, conf in (("tokyo", {zone: "Asia/Tokyo"}), ("here", {}), ("lima", {zone: "America/Lima"})):
        details = {"database": project.schema, "table": name, "sparkConf": conf}
        project.standard(name, feed, targetDetails=details)
    project.run()
    values = {name: project.rows(name)[0][1] for name in ("tokyo", "here", "lima")}
    assert values == {"tokyo": "Asia/Tokyo", "here": "UTC", "lima": "America/Lima"}
    assert spark.conf.get(zone) == "UTC"
    details = {"database": project.schema, "table": "tokyo", "sparkConf": {zone: "Nowhere"}}
    project.standard("tokyo", feed, targetDetails=details)
    project.insert("src", (2, "b", 2))
    with raises(
        "SPARK_SETTING_REFUSED", setting=zone, origin=re.compile(r"tokyo_main.json: targetDetails.sparkConf$")
    ):
        project.run(targets=[f"{project.schema}.tokyo"])


@soak.slow
def test_target_that_reads_another_target_starts_after_copy_of_that_target(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("silver_legacy", FEED, (1, "a", 1))
    project.create("gold_legacy", FEED, (1, "a", 1))
    project.standard("silver", "src", migration={})
    project.standard("gold", "silver", migration={})
    project.run()
    assert project.phases()["gold"] == "new"
    project.insert("src", (2, "b", 2))
    project.run()
    project.run()
    assert project.rows("silver", "id") == [(1,), (2,)]
    assert project.rows("gold", "id") == [(1,), (2,)]
    assert project.status().complete


@soak.slow
def test_missing_source_that_project_produces_needs_start_in_spec(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("gold_legacy", FEED, (0, "old", 0))
    project.standard("bronze", "src")
    project.standard("gold", "bronze", migration={})
    with (
        project.nothing_written(),
        raises("PRODUCED_SOURCE_MISSING"),
    ):
        project.run()
    project.standard("gold", project.delta("bronze", readerOptions={"startingVersion": "0"}), migration={})
    project.run()
    assert project.rows("gold", "id") == [(0,), (1,)]


@pytest.fixture
def unity(spark: SparkSession, schema: str) -> Iterator[None]:
    """A current catalog that, like Unity Catalog, isn't the metastore's."""
    kind = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
    spark.conf.set("spark.sql.catalog.unity", kind)
    spark.conf.set("spark.sql.catalog.unity.url", "jdbc:derby:memory:unity;create=true")
    spark.catalog.setCurrentCatalog("unity")
    yield
    spark.catalog.setCurrentCatalog("spark_catalog")


@pytest.mark.usefixtures("unity")
def test_catalog_type_selects_catalog_of_legacy_table(project: Project) -> None:
    schema = f"spark_catalog.{project.schema}"
    project.create(f"{schema}.src", FEED)
    source = {"database": schema, "table": "src", "cdfEnabled": False}
    target = {"database": schema, "table": "orders"}
    for kind, name in (("hms", f"hive_metastore.{project.schema}.old"), ("uc", f"{project.schema}.old")):
        details = project.migration("orders", {"table": "old"}, catalogType=kind)
        project.standard("orders", source, targetDetails=target, tableMigrationDetails=details)
        try:
            message = "".join(map(str, project.plan().refusals))
        except TableferryError as error:
            message = str(error)
        assert f"tableMigrationDetails: Table {name} " in message


@soak.slow
def test_baseline_keeps_version_above_32_bits(project: Project, spark: SparkSession) -> None:
    project.create("src", FEED, (1, "a", 1), properties="delta.checkpointInterval = 1")
    project.create("orders_legacy", FEED, (1, "a", 1))
    log = project.folder("src") / "_delta_log"
    big = 2**31 + 5
    _renumber(log, 1, big)
    spark.sql(f"REFRESH TABLE {project.schema}.src")
    project.standard("orders", "src", migration={})
    project.run()
    (target,) = project.status().plan.targets
    assert target.migration_start is not None
    assert target.migration_start.baselines[f"{project.schema}.src"].version == big
    project.insert("src", (2, "b", 2))
    assert (log / f"{big + 1:020}.json").exists()
    project.run()
    project.insert("src", (3, "c", 3))
    project.run()
    assert project.rows("orders", "id") == [(1,), (2,), (3,)]
    assert project.status().complete


def _renumber(log: Path, version: int, new_version: int) -> None:
    """Give a commit and its checkpoint another version, and remove all other files of the log."""
    for path in log.iterdir():
        name = path.name.lstrip(".")
        if name.startswith(f"{version:020}") and not path.name.startswith(".") and path.suffix != ".crc":
            path.rename(log / name.replace(f"{version:020}", f"{new_version:020}"))
        elif path.is_dir():
            shutil.rmtree(path)
        elif path.name != "_last_checkpoint":
            path.unlink()
    last = log / "_last_checkpoint"
    last.write_text(last.read_text().replace(f'"version":{version}', f'"version":{new_version}'))


def test_narrow_copied_column_is_refused_before_initial_copy(project: Project, spark: SparkSession) -> None:
    project.create("src", "id bigint, v string", (1, "a"))
    project.create("t_legacy", "id int, v string", (0, "z"))
    project.standard("t", "src", migration={})
    with project.nothing_written():
        [refusal] = project.plan().refusals
        check(refusal, "COPY_TOO_NARROW", column="id", copied_type="int", flow_type="bigint")
        with raises("COPY_TOO_NARROW", name="`id`", flow_type="bigint"):
            project.run()
    project.standard("t", "src", migration={"selectExp": ["CAST(`id` AS bigint) AS `id`", "v"]})
    assert project.plan().refusals == ()
    assert project.run().ok
    project.insert("src", (2**40, "b"))
    assert project.run().ok
    assert project.rows("t") == [(0, "z"), (2**40, "b")]


@pytest.mark.parametrize("source", ["select expression", "SQL view"])
def test_narrow_copied_column_is_found_behind_expressions(project: Project, source: str) -> None:
    project.create("src", "id int, v string", (1, "a"))
    project.create("t_legacy", "id int, v string", (0, "z"))
    if source == "SQL view":
        statement = f"SELECT CAST(id AS BIGINT) AS id, v FROM STREAM({project.schema}.src)"
        project.standard("t", {"sqlStatement": statement}, migration={}, sourceType="sql")
    else:
        widened = ["CAST(id AS BIGINT) AS id", "v"]
        project.standard("t", project.delta("src", selectExp=widened), migration={})
    [refusal] = project.plan().refusals
    check(refusal, "COPY_TOO_NARROW", column="id", copied_type="int", flow_type="bigint")


def test_column_types_of_log_are_compared_without_spark(project: Project, spark: SparkSession) -> None:
    project.create("src", "id int, v struct<a: array<string>>, w string")
    project.create("t_legacy", "ID int, v struct<a: array<string>>")
    project.standard("t", "src", migration={})
    planned = project.plan()
    source, legacy = (catalog.facts(spark, TableName((project.schema, name))) for name in ("src", "t_legacy"))
    assert source
    assert legacy
    [target] = planned.targets
    tables = {table.name.key: table for table in (source, legacy)}
    no_spark: Any = None
    assert find_narrow_copied_columns(target, no_spark, tables) == ()
    newer = {**tables, legacy.name.key: replace(legacy, version=legacy.version + 1)}
    unread = {**tables, source.name.key: replace(source, column_types={})}
    for facts in (newer, unread, {}):
        assert find_narrow_copied_columns(target, spark, facts) == ()
        with pytest.raises(AttributeError):
            find_narrow_copied_columns(target, no_spark, facts)


def test_plan_warns_of_legacy_rows_without_sequence(project: Project) -> None:
    project.create("src", "id int, v string, at int", (1, "a", 1))
    project.create("t_legacy", "id int, v string", (1, "a"))
    cdc = {"keys": ["id"], "sequence_by": "at", "scd_type": "1", "except_column_list": ["at"]}
    project.standard("t", "src", cdc=cdc, migration={})
    [target] = project.plan().targets
    (warning,) = (found for found in target.warnings if found.condition == "COPY_WITHOUT_SEQUENCE")
    check(warning, "COPY_WITHOUT_SEQUENCE", table=f"{project.schema}.t_legacy", column="at")
    project.standard("t", "src", cdc=cdc, migration={"selectExp": ["*", "5 AS at"]})
    [target] = project.plan().targets
    assert "COPY_WITHOUT_SEQUENCE" not in names(target.warnings)


def test_plan_reports_constraints_and_partitioning_that_target_lacks(
    project: Project, spark: SparkSession
) -> None:
    project.create("src", "id int, day string", (1, "a"))
    legacy = f"{project.schema}.t_legacy"
    spark.sql(f"CREATE TABLE {legacy} (id INT NOT NULL, day STRING) USING delta PARTITIONED BY (day)")
    spark.sql(f"ALTER TABLE {legacy} ADD CONSTRAINT positive CHECK (id > 0)")
    project.standard("t", "src", migration={})
    [target] = project.plan().targets
    [warning] = [found for found in target.warnings if found.condition == "RULES_NOT_CARRIED_OVER"]
    assert "the constraints positive" in warning.message
    assert "NOT NULL of id" in warning.message
    assert "the partitioning by day" in warning.message
    project.standard(
        "t",
        "src",
        migration={},
        targetDetails={"database": project.schema, "table": "t", "partitionColumns": ["day"]},
    )
    [target] = project.plan().targets
    [warning] = [found for found in target.warnings if found.condition == "RULES_NOT_CARRIED_OVER"]
    assert "partitioning" not in warning.message
