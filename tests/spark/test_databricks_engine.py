"""The bundle's flows and views with a fake of the documented pipeline functions; not run on Databricks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.conditions import raises
from tests.databricks_pipelines import OLDER, SIGNATURES, Platform
from tests.spark.projects import Project
from tests.spark.runtime import FakePipeline

from tableferry import amounts, pipelines
from tableferry.pipelines import SparkPipeline
from tableferry.pipelines.model.target_state import Baseline
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HISTORY = "f_tableferry_history"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Iterator[Project]:
    project = Project(tmp_path, schema, spark)
    spark.conf.set("tableferry.project", str(tmp_path))
    yield project
    spark.conf.unset("tableferry.project")


def load_bundle(_: Project, platform: Platform | None = None) -> Platform:
    platform = platform or Platform()
    platform.load()
    return platform


def run_copy(project: Project, target: str, runtime: Platform, flow: str) -> None:
    """Run the run-once append flow of the history, like the platform."""
    name = f"{project.schema}.{target}"
    assert runtime.appends[flow][0] == {"target": name, "once": True}
    source = runtime.views[f"rows_of_{flow}"]()
    assert not source.isStreaming
    source.write.format("delta").saveAsTable(name)


def test_append_target_is_copied_and_compared_before_live_flow_starts(project: Project) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"), (2, "b"))
    project.create("orders_legacy", "id INT, v STRING", (1, "a"), (2, "b"))
    project.standard("new", "orders", migration={"table": "orders_legacy"})
    history, live = (f"{flow}__{project.schema}_new" for flow in (HISTORY, "f_v_new"))

    with raises("UPDATE_NOT_PREPARED"):
        load_bundle(project)
    before = project.contents()
    first = pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    assert [target.plan.phase for target in first.targets] == ["copying"]
    project.insert("orders", (3, "c"))
    # Later writes to the legacy table don't change the copy.
    project.insert("orders_legacy", (9, "late"))

    prepared = project.contents()
    assert prepared != before
    runtime = load_bundle(project)
    assert project.contents() == prepared
    assert list(runtime.tables) == [f"{project.schema}.new"]
    # No other flow may write until the copy is compared.
    assert list(runtime.appends) == [history]
    run_copy(project, "new", runtime, history)
    assert project.rows("new") == [(1, "a"), (2, "b")]

    done = pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    assert [(target.plan.phase, target.verdict and target.verdict.matches) for target in done.targets] == [
        ("ready", True)
    ]
    runtime = load_bundle(project)
    assert {name: "once" in flow for name, (flow, _) in runtime.appends.items()} == {
        history: True,
        live: False,
    }
    stream = runtime.views["v_new"]()
    assert stream.isStreaming
    taken = stream.writeStream.trigger(availableNow=True).option(
        "checkpointLocation", str(project.root / "c")
    )
    taken.toTable(f"{project.schema}.taken").awaitTermination()
    assert project.rows("taken") == [(3, "c")]

    ran = FakePipeline(HISTORY, "f_v_new")
    assert pipelines.status(project.root, project.spark, pipeline=ran).complete
    pipelines.finish(project.root, project.spark, pipeline=ran, accept_assumed=True)
    assert list(load_bundle(project).appends) == [live]
    # The table's identity was recorded with the comparison, before the live flow could start.
    assert pipelines.plan(project.root, project.spark, pipeline=ran).refusals == ()
    project.spark.sql(f"DROP TABLE {project.schema}.new")
    with raises("TARGET_MISSING"):
        pipelines.prepare(project.root, project.spark, pipeline=ran)
    project.create("new", "id INT, v STRING")
    with raises("TARGET_REPLACED"):
        pipelines.prepare(project.root, project.spark, pipeline=ran)


@soak.slow
def test_flow_continues_after_log_of_source_is_cleaned(project: Project) -> None:
    project.create("orders", "id INT", (1,))
    project.create("orders_legacy", "id INT", (1,))
    project.standard("new", "orders", migration={"table": "orders_legacy"})
    checkpoints = project.root / "runtime"

    def update(*ran: str) -> None:
        pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(*ran))
        load_bundle(project).update(project.spark, checkpoints)

    update()
    project.insert("orders", (2,))
    update(HISTORY)
    project.insert("orders", (3,))
    update(HISTORY, "f_v_new")
    assert project.rows("new") == [(1,), (2,), (3,)]
    project.clean_log("orders")
    project.insert("orders", (4,))
    # The definition still contains the starting version, but only the first batch uses it.
    for _ in range(2):
        update(HISTORY, "f_v_new")
        assert project.rows("new") == [(1,), (2,), (3,), (4,)]


@soak.slow
def test_prepare_reports_copy_that_differs(project: Project) -> None:
    project.create("orders", "id INT")
    project.create("orders_legacy", "id INT", (1,))
    project.standard("new", "orders", migration={"table": "orders_legacy"})
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    project.create("new", "id INT", (2,))
    done = pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    assert not done.ok
    assert [target.plan.phase for target in done.targets] == ["differs"]


SCD1 = {"keys": ["id"], "scd_type": "1", "sequence_by": "at"}
SCD2 = {"keys": ["id"], "scd_type": "2", "sequence_by": "at", "apply_as_deletes": "op = 'd'"}


def assert_clone_is_announced(project: Project, clone: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Prepare, and assert that plan and log state the clone's bytes, files and duration before it starts."""
    detail = project.spark.sql(f"DESCRIBE DETAIL {project.schema}.legacy").collect()[0]
    cores = amounts.counted(project.spark.sparkContext.defaultParallelism, "core")
    size, files = amounts.size(detail["sizeInBytes"]), amounts.counted(detail["numFiles"], "file")
    stated = f"{size} in {files}, estimated less than a minute on {cores}"
    planned = pipelines.plan(project.root, project.spark, pipeline=FakePipeline())
    assert (f"pinned clone: {stated}" in planned.targets[0].notes) is clone
    caplog.set_level(logging.INFO, "tableferry")
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    events = [
        getattr(record, "event", "")
        for record in caplog.records
        if getattr(record, "step", "").endswith(f" ({stated})")
    ]
    assert events == (["started", "done"] if clone else [])
    planned = pipelines.plan(project.root, project.spark, pipeline=FakePipeline())
    assert not any("pinned clone" in note for note in planned.targets[0].notes)
    caplog.clear()
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    assert not any(getattr(record, "step", "").startswith("clone ") for record in caplog.records)


@pytest.mark.parametrize("clone", soak.amount([True], [True, False]))
def test_scd2_history_and_feed_are_two_auto_cdc_flows_of_target(
    project: Project, clone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    project.create("feed", "id INT, v STRING, op STRING, at INT", (1, "b", "u", 2))
    project.create("legacy", "id INT, v STRING, since INT, until INT", (1, "a", 1, 2), (1, "b", 2, None))
    mapped = {"table": "legacy", "selectExp": ["id", "v", "since AS __START_AT", "until AS __END_AT"]}
    project.standard(
        "new",
        "feed",
        cdc={**SCD2, "except_column_list": ["op"], "where": "id > 0", "ignore_null_updates": True},
        tableMigrationDetails=project.migration("new", mapped, pinnedClone=clone),
    )
    assert_clone_is_announced(project, clone, caplog)
    # Later writes to the legacy table don't change the copy.
    project.insert("legacy", (9, "late", 1, None))
    history = f"{HISTORY}__{project.schema}_new"
    runtime = load_bundle(project)
    call = runtime.cdc[history]
    assert {key: call[key] for key in ("target", "source", "keys", "once", "stored_as_scd_type")} == {
        "target": f"{project.schema}.new",
        "source": f"rows_of_{history}",
        "keys": ["id"],
        "once": True,
        "stored_as_scd_type": 2,
    }
    # The feed's settings don't apply to the legacy table's rows.
    assert "ignore_null_updates" not in call
    assert call["except_column_list"] == ["__sequence", "__operation"]
    events = runtime.views[f"rows_of_{history}"]()
    assert events.isStreaming is clone
    if clone:
        stream = events.writeStream.format("memory").queryName("events").trigger(availableNow=True)
        stream.start().awaitTermination()
        events = project.spark.table("events")
    deletes = events.where(call["apply_as_deletes"]).count()
    assert (events.columns, events.count(), deletes) == (["id", "v", "__sequence", "__operation"], 2, 0)

    # The target's rows after the platform has run the history's flow.
    project.create("new", "id INT, v STRING, __START_AT INT, __END_AT INT", (1, "a", 1, 2), (1, "b", 2, None))
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    project.insert("feed", (0, "left out", "u", 3), (1, "c", "u", 3))
    runtime = load_bundle(project)
    live = runtime.cdc[f"f_v_new__{project.schema}_new"]
    assert live["source"] == f"rows_of_f_v_new__{project.schema}_new"
    assert (live["ignore_null_updates"], live["except_column_list"]) == (True, ["op"])
    assert "once" not in live
    assert "op = 'd'" in str(live["apply_as_deletes"])

    pinned = f"{project.schema}.new__tableferry_pinned"
    assert project.spark.catalog.tableExists(pinned) is clone
    ran = FakePipeline(HISTORY, "f_v_new")
    pipelines.finish(project.root, project.spark, pipeline=ran, accept_assumed=True)
    assert not project.spark.catalog.tableExists(pinned)


@soak.slow
def test_prepare_refuses_clone_of_other_version_and_recreates_missing_clone(project: Project) -> None:
    project.create("feed", "id INT, at INT")
    project.create("legacy", "id INT, at INT", (1, 1))
    project.standard("new", "feed", cdc=SCD1, migration={"table": "legacy"})
    pinned = f"{project.schema}.new__tableferry_pinned"
    # A clone of an earlier migration, whose tables and state are gone.
    project.spark.sql(f"CREATE TABLE {pinned} SHALLOW CLONE {project.schema}.legacy VERSION AS OF 0")
    with raises("CLONE_OF_OTHER_VERSION", clone=pinned, cloned=0, version=1):
        pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    project.spark.sql(f"DROP TABLE {pinned}")
    with raises("PINNED_CLONE_MISSING", clone=re.compile("new__tableferry_pinned$")):
        load_bundle(project)
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    load_bundle(project)
    # A missing clone is recreated, even after the copy.
    project.create("new", "id INT, at INT", (1, 1))
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    project.spark.sql(f"DROP TABLE {pinned}")
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    load_bundle(project)

    project.spark.sql(f"DROP TABLE {pinned}")
    project.folder("legacy").joinpath("_delta_log", f"{1:020}.json").unlink()
    with raises("CLONE_NOT_CREATED", version=1, optional=re.compile("pinnedClone to false")):
        pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))


def test_rules_apply_to_live_rows_and_not_to_history(project: Project) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"))
    project.create("orders_legacy", "id INT, v STRING", (-1, "old"))
    project.write(
        "dataflows/d/expectations/rules.json",
        {
            "expect": [{"name": "named", "constraint": "v IS NOT NULL", "tag": "t"}],
            "expect_or_drop": [{"name": "positive", "constraint": "id > 0", "tag": "t"}],
        },
    )
    project.standard(
        "new", "orders", migration={"table": "orders_legacy"},
        dataQualityExpectationsEnabled=True, dataQualityExpectationsPath="rules.json",
        targetDetails={
            "database": project.schema, "table": "new", "comment": "said", "clusterByAuto": True,
            "rowFilter": "ROW FILTER f ON (id)", "tableProperties": {"a": "b"}, "sparkConf": {"s": "t"},
        },
    )  # fmt: skip
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    runtime = load_bundle(project)
    assert runtime.expected == {}
    assert runtime.tables[f"{project.schema}.new"] == {
        "comment": "said",
        "cluster_by_auto": True,
        "row_filter": "ROW FILTER f ON (id)",
        "table_properties": {"a": "b", "pipelines.reset.allowed": "false"},
        "spark_conf": {"s": "t"},
    }
    run_copy(project, "new", runtime, f"{HISTORY}__{project.schema}_new")
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    project.insert("orders", (2, "b"))
    assert load_bundle(project).expected == {
        "expect_all": {"named": "v IS NOT NULL"},
        "expect_all_or_drop": {"positive": "id > 0"},
    }


@soak.slow
def test_sql_views_read_each_other_by_names_in_pipeline(project: Project) -> None:
    project.create("orders", "id INT, v STRING", (1, "a"))
    project.create("names", "v STRING, name STRING", ("a", "A"), ("b", "B"))
    project.create("legacy", "id INT, name STRING", (1, "A"))
    schema = project.schema
    for target in ("one", "two"):
        project.flow(
            target,
            {
                "f_named": {
                    "flowType": "append_view",
                    "flowDetails": {"targetTable": f"{schema}.{target}", "sourceView": "v_named"},
                    "views": {
                        "v_named": {
                            "mode": "stream",
                            "sourceType": "sql",
                            "sourceDetails": {
                                "sqlStatement": f"SELECT o.id, n.name FROM STREAM({schema}.orders) o "
                                "JOIN v_names n ON n.v = o.v"
                            },
                        },
                        "v_names": {
                            "mode": "batch",
                            "sourceType": "delta",
                            "sourceDetails": project.delta("names"),
                        },
                    },
                }
            },
            migration={"table": "legacy"},
        )
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    runtime = load_bundle(project)
    for target in ("one", "two"):
        run_copy(project, target, runtime, f"{HISTORY}__{schema}_{target}")
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline(HISTORY))
    project.insert("orders", (2, "b"))
    runtime = load_bundle(project)
    # Both specs have views with these names, so each view's name contains its target's name.
    assert {name for name in runtime.views if name.startswith("v_")} == {
        f"v_named__{schema}_{target}{more}"
        for target in ("one", "two")
        for more in ("", f"__{schema}_orders")
    } | {f"v_names__{schema}_{target}" for target in ("one", "two")}
    started = runtime.views[f"v_named__{schema}_one__{schema}_orders"]()
    # SQL reads the platform's views by name. Temporary views replace them here.
    started.createOrReplaceTempView(f"v_named__{schema}_one__{schema}_orders")
    runtime.views[f"v_names__{schema}_one"]().createOrReplaceTempView(f"v_names__{schema}_one")
    named = runtime.views[f"v_named__{schema}_one"]()
    assert named.isStreaming
    query = named.writeStream.format("memory").queryName("named").trigger(availableNow=True).start()
    query.awaitTermination()
    assert [tuple(row) for row in project.spark.table("named").collect()] == [(2, "B")]


@soak.slow
def test_each_source_type_starts_after_history(project: Project) -> None:
    schema, spark = project.schema, project.spark
    for name in ("delta", "joined", "python", "staged"):
        project.create(name, "id INT", (1,))
    project.create("names", "id INT, name STRING", (1, "one"), (2, "two"))
    project.create("legacy", "id INT", (1,))
    # The project's functions may read column names, which a pipeline's functions can't.
    project.write(
        "dataflows/d/python_functions/read.py",
        f"def get_df(spark, tokens):\n    frame = spark.readStream.table('{schema}.python')\n"
        "    return frame.select(frame.columns)\n",
    )

    def into(target: str, source: str, details: object, **more: object) -> dict[str, object]:
        return {
            "flowType": "append_view",
            "flowDetails": {"targetTable": target, "sourceView": f"v_{source}", **more},
            "views": {
                f"v_{source}": {
                    "mode": "stream",
                    "sourceType": {"joined": "deltaJoin", "python": "python"}.get(source, "delta"),
                    "sourceDetails": details,
                }
            },
        }

    sides = [
        {"database": schema, "table": "joined", "alias": "o", "joinMode": "stream"},
        {"database": schema, "table": "names", "alias": "n", "joinMode": "static"},
    ]
    joins = [{"joinType": "left", "condition": "o.id = n.id"}]
    join = {"sources": sides, "joins": joins, "selectExp": ["o.id", "name"]}
    project.flow(
        "new",
        {
            "f_delta": into("new", "delta", project.delta("delta"), column_prefix="new"),
            "f_joined": into("new", "joined", join),
            "f_python": into("new", "python", {"functionPath": "read.py"}),
            "f_staged": into("staging", "staged", project.delta("staged")),
            "f_staging": into("new", "staging", project.delta("staging")),
            "f_once": into("new", "once", project.delta("delta"), once=True),
        },
        staging={"staging": {"type": "ST", "database": schema}},
        migration={"table": "legacy"},
    )  # fmt: skip
    pipelines.prepare(project.root, spark, pipeline=FakePipeline())
    run_copy(project, "new", load_bundle(project), f"{HISTORY}__{schema}_new")
    pipelines.prepare(project.root, spark, pipeline=FakePipeline(HISTORY))
    for name in ("delta", "joined", "python", "staged"):
        project.insert(name, (2,))

    runtime = load_bundle(project)
    rows = {"v_delta": (2,), "v_joined": (2, "two"), "v_python": (2,), "v_staged": (2,)}
    for view, row in rows.items():
        stream = runtime.views[view]().writeStream.format("memory").queryName(view)
        stream.trigger(availableNow=True).start().awaitTermination()
        assert [tuple(actual) for actual in spark.table(view).collect()] == [row], view
    # The pipeline's own table doesn't exist yet. The view is read when the pipeline runs.
    assert "v_staging" in runtime.views
    runtime.views["v_delta"]().createOrReplaceTempView("v_delta")
    assert runtime.views[f"rows_of_f_delta__{schema}_new"]().columns == ["new_id"]
    once, build = runtime.appends[f"f_once__{schema}_new"]
    runtime.views["v_once__whole"]().createOrReplaceTempView("v_once__whole")
    assert (once["once"], sorted(tuple(row) for row in build().collect())) == (True, [(1,), (2,)])


def test_load_refuses_plan_that_runtime_cannot_define(project: Project) -> None:
    project.create("orders", "id INT, at INT", (1, 1))
    project.create("legacy", "id INT, at INT", (1, 1))
    project.standard(
        "new", "orders", migration={"table": "legacy"},
        targetDetails={"database": project.schema, "table": "new", "rowFilter": "ROW FILTER f ON (id)"},
    )  # fmt: skip
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())

    older = Platform({**SIGNATURES, "create_streaming_table": "name, table_properties=None"})
    with raises("RUNTIME_LACKS_ARGUMENT", arguments="row_filter"):
        older.load()

    def select(*columns: str) -> None:
        details = {"table": "legacy", "selectExp": columns}
        migration = project.migration("new", details, pinnedClone=False)
        project.standard("new", "orders", cdc=SCD1, tableMigrationDetails=migration)

    select("id")
    for refused in (
        load_bundle,
        lambda given: pipelines.prepare(given.root, given.spark, pipeline=FakePipeline()),
    ):
        with raises("COPIED_ROWS_WITHOUT_SEQUENCE", column="at"):
            refused(project)
    select("id", "at")
    without = Platform({name: SIGNATURES[name] for name in SIGNATURES if name != "create_auto_cdc_flow"})
    history = re.compile("f_tableferry_history$")
    with raises("RUNTIME_LACKS_FUNCTION", location=history, function="create_auto_cdc_flow"):
        without.load()


def test_older_runtime_gets_older_function_names(project: Project) -> None:
    project.create("feed", "id INT, at INT")
    project.create("legacy", "id INT, at INT", (1, 1))
    project.standard(
        "new", "feed", cdc={"keys": ["id"], "scd_type": "1", "sequence_by": "at"},
        migration={"table": "legacy"},
    )  # fmt: skip
    pipelines.prepare(project.root, project.spark, pipeline=FakePipeline())
    older = load_bundle(project, Platform(OLDER))
    name = f"{HISTORY}__{project.schema}_new"
    assert {key: older.cdc[name][key] for key in ("target", "source", "once")} == {
        "target": f"{project.schema}.new",
        "source": f"rows_of_{name}",
        "once": True,
    }
    assert list(older.views) == [f"rows_of_{name}"]


def test_load_refuses_missing_project_and_invalid_tokens(project: Project) -> None:
    project.spark.conf.unset("tableferry.project")
    with raises("PIPELINE_WITHOUT_PROJECT"):
        load_bundle(project)
    project.spark.conf.set("tableferry.project", str(project.root))
    project.spark.conf.set("tableferry.tokens", "pipeline_schema")
    try:
        with raises("TOKEN_SYNTAX", text="pipeline_schema"):
            load_bundle(project)
    finally:
        project.spark.conf.unset("tableferry.tokens")


class Crash(BaseException):
    """A simulated crash of the process."""


def count_crashes(project: Project, pipeline: FakePipeline | SparkPipeline) -> int:
    """Crash `prepare` before its first effect, then its second, and so on; return the number of crashes."""
    for crashes in range(20):
        left = crashes + 1

        def before(_: str) -> None:
            nonlocal left
            left -= 1
            if not left:
                raise Crash

        try:
            pipelines.prepare(project.root, project.spark, pipeline=pipeline, before=before)
        except Crash:
            continue
        return crashes
    raise AssertionError("prepare has more than 20 effects")


@soak.slow
def test_prepare_resumes_after_crash_before_each_effect(project: Project) -> None:
    project.create("orders", "id INT", (1,))
    project.create("orders_legacy", "id INT", (1,))
    project.standard("new", "orders", migration={"table": "orders_legacy"})
    assert count_crashes(project, FakePipeline()) == 2
    run_copy(project, "new", load_bundle(project), f"{HISTORY}__{project.schema}_new")
    project.insert("orders", (2,))
    assert count_crashes(project, FakePipeline(HISTORY)) > 1
    started = pipelines.plan(project.root, project.spark, pipeline=FakePipeline(HISTORY)).targets[0]
    assert (started.phase, started.migration_start and dict(started.migration_start.baselines)) == (
        "ready",
        {
            f"{project.schema}.orders": Baseline(
                TableName.parse(f"{project.schema}.orders"),
                project.spark.sql(f"DESCRIBE DETAIL {project.schema}.orders").collect()[0]["id"],
                1,
                ("v_new",),
            )
        },
    )


def test_clone_of_open_source_pipeline_is_created_despite_crashes(project: Project) -> None:
    project.create("orders", "id INT", (1,))
    project.create("orders_legacy", "id INT", (1,))
    project.standard("new", "orders", migration={"table": "orders_legacy"})
    assert count_crashes(project, SparkPipeline(project.root / "storage")) == 2
    # Spark reads the clone, because delta-rs can't read the legacy table's files through a shallow clone.
    assert project.spark.table(f"{project.schema}.new__tableferry_pinned").collect() == [(1,)]


def test_quarantine_metadata_snapshots_and_materialized_views_use_platform_functions(
    project: Project, spark: SparkSession
) -> None:
    schema = project.schema
    project.create("orders", "id INT, v STRING", (1, "a"), (-2, "b"))
    project.write(
        "dataflows/d/expectations/rules.json",
        {"expect_or_drop": [{"name": "positive", "constraint": "id > 0"}]},
    )
    judged: dict[str, Any] = {
        "dataQualityExpectationsEnabled": True,
        "dataQualityExpectationsPath": "rules.json",
    }
    project.write("pipeline_configs/dev_substitutions.json", {"tokens": {"pipeline_layer": "silver"}})
    project.standard("kept", "orders", **judged, quarantineMode="table")
    snapshots = {"keys": ["id"], "scd_type": "2", "snapshotType": "periodic"}
    project.standard("latest", "orders", mode="batch", cdcSnapshotSettings=snapshots)
    project.write("dataflows/d/schemas/days.ddl", "id INT, v STRING")
    days = {
        "keys": ["id"], "scd_type": "2", "snapshotType": "historical", "sourceType": "file",
        "source": {"format": "csv", "path": f"{project.root}/days/{{version}}.csv", "versionType": "integer",
                   "readerOptions": {"header": "true"}},
    }  # fmt: skip
    project.spec("days", {
        "dataFlowId": "days", "dataFlowGroup": "g", "dataFlowType": "standard", "targetFormat": "delta",
        "targetDetails": {"database": schema, "table": "days", "schemaPath": "days.ddl"},
        "cdcSnapshotSettings": days,
    })  # fmt: skip
    project.write("days/7.csv", "id,v\n1,a\n")
    project.write("days/12.csv", "id,v\n1,b\n")
    views = {
        "big": {"sqlStatement": f"SELECT * FROM {schema}.orders", "refreshPolicy": "full",
                "tableDetails": {"database": schema, "private": True}, **judged, "quarantineMode": "flag"},
        "small": {"sqlStatement": f"SELECT id FROM {schema}.orders",
                  "tableDetails": {"database": schema, "configFlags": ["disableOperationalMetadata"]},
                  **judged, "quarantineMode": "table"},
    }  # fmt: skip
    project.spec("gold", {"dataFlowId": "gold", "dataFlowGroup": "g", "dataFlowType": "materialized_view",
                          "materializedViews": views})  # fmt: skip
    runtime = load_bundle(project)
    tables = ("kept", "kept_quarantine", "latest", "days")
    assert set(runtime.tables) == {f"{schema}.{name}" for name in tables}
    assert runtime.tables[f"{schema}.days"]["schema"].simpleString() == (
        "struct<id:int,v:string,__START_AT:int,__END_AT:int>"
    )
    # Quarantined rows break a rule, and have the same metadata as the other rows.
    flows = {flow["target"]: build for flow, build in runtime.appends.values()}
    (hook,) = runtime.hooks
    hook({"origin": {"update_id": "u-1"}})
    try:
        for name, build in runtime.views.items():
            frame = build()
            frame.createOrReplaceTempView(name)
        for table, rows in (("kept", [(1, "a"), (-2, "b")]), ("kept_quarantine", [(-2, "b")])):
            stream = flows[f"{schema}.{table}"]().writeStream.trigger(availableNow=True)
            stream.option("checkpointLocation", str(project.root / "c" / table)).toTable(
                f"{schema}.{table}"
            ).awaitTermination()
            # The platform's expectations drop rows; this fake doesn't.
            assert project.rows(table, "id", "v") == sorted(rows, key=repr)
            updates = spark.table(f"{schema}.{table}").select("meta_load_details.pipeline_update_id")
            ((update,),) = {tuple(row) for row in updates.collect()}
            assert update == "u-1"
        assert runtime.snapshots[f"{schema}.latest"] == {
            "target": f"{schema}.latest", "source": "v_latest__whole" if "v_latest__whole" in runtime.views
            else "v_latest", "keys": ["id"], "stored_as_scd_type": 2,
        }  # fmt: skip
        following = runtime.snapshots[f"{schema}.days"]["source"]
        taken, latest = [], None
        while (snapshot := following(latest)) is not None:
            frame, latest = snapshot
            taken.append((latest, [tuple(row) for row in frame.collect()]))
        assert taken == [(7, [("1", "a")]), (12, [("1", "b")])]
        big, build = runtime.materialized[f"{schema}.big"]
        assert (big["refresh_policy"], big["private"]) == ("full", True)
        marked = sorted((row["id"], row["is_quarantined"]) for row in build().collect())
        assert marked == [(-2, True), (1, False)]
        assert runtime.materialized[f"{schema}.small"][1]().columns == ["id"]
        quarantined = runtime.materialized[f"{schema}.small_quarantine"][1]()
        assert [tuple(row) for row in quarantined.collect()] == [(-2,)]
    finally:
        spark.conf.unset("pipeline.pipeline_update_id")
        for name in runtime.views:
            spark.catalog.dropTempView(name)
    with raises("RUNTIME_LACKS_ARGUMENT", arguments="refresh_policy and private", function="table"):
        load_bundle(project, Platform(OLDER))
    del views["big"]
    project.spec("gold", {"dataFlowId": "gold", "dataFlowGroup": "g", "dataFlowType": "materialized_view",
                          "materializedViews": views})  # fmt: skip
    older = load_bundle(project, Platform(OLDER))
    assert set(older.snapshots) == {f"{schema}.latest", f"{schema}.days"}
    assert set(older.materialized) == {f"{schema}.small", f"{schema}.small_quarantine"}
