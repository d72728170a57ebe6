"""Complete migrations through databricks-connect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.conditions import check, raises
from tests.spark.projects import Project

from tableferry import pipelines
from tableferry.errors import TableferryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string, at int"
SPEC = "dataflows/d/dataflowspec/orders_main.json"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def test_append_flow_is_migrated_from_first_plan_to_finish(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1), (2, None, 1))
    project.write(
        "dataflows/d/expectations/rules.json", {"expect": [{"name": "early", "constraint": "v < 'e'"}]}
    )
    judged: dict[str, Any] = {
        "dataQualityExpectationsEnabled": True,
        "dataQualityExpectationsPath": "rules.json",
    }
    loaded = ["id", "v", "at", "current_timestamp() AS loaded_at"]
    source = project.delta("src", selectExp=loaded)
    project.standard("orders", source, migration={"selectExp": loaded}, **judged)
    with project.nothing_written():
        planned = project.plan()
        assert [(target.phase, target.copy) for target in planned.targets] == [("new", True)]
        assert pipelines.check(planned, project.spark) == ()

    (report,) = project.run().targets
    assert report.verdict is not None
    assert report.verdict.matches
    # No run can reproduce the column, so comparisons exclude it.
    assert report.verdict.excluded == ("loaded_at",)
    columns = ("id", "v", "at")
    assert project.rows("orders", *columns) == [(1, "a", 1), (2, None, 1)]
    with project.nothing_written():
        project.run()
        assert project.phases() == {"orders": "waiting"}
        with raises("MIGRATION_NOT_COMPLETE", reason=re.compile("^waiting for sources; .*src")):
            project.finish()

    project.insert("src", (3, "c", 2))
    project.insert("src", (4, "d", 2), (5, "e", 2))
    (report,) = project.run().targets
    assert [(result.rows, dict(result.violations)) for result in report.results] == [(3, {"early": 1})]
    expected = [(1, "a", 1), (2, None, 1), (3, "c", 2), (4, "d", 2), (5, "e", 2)]
    assert project.rows("orders", *columns) == expected
    with project.nothing_written():
        assert project.phases() == {"orders": "complete"}
    # The old job processes the same rows.
    project.insert("orders_legacy", *expected[2:])
    (proof,) = project.verify().proofs
    assert (proof.proved, proof.rows) == (True, 5)
    assert proof.verdict is not None
    assert proof.verdict.excluded == ("loaded_at",)

    assert [name.table for name in project.finish(accept_assumed=True).finished] == ["orders"]
    project.insert("src", (6, "f", 3))
    project.run()
    assert project.rows("orders", *columns) == [*expected, (6, "f", 3)]


@soak.slow
def test_python_view_runs_its_function_in_the_client(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1), (2, "z", 1))
    project.write(
        "dataflows/d/python_functions/spelled.py",
        """
def get_df(spark, tokens):
    spelled = spark.createDataFrame([("a", "A"), ("b", "B")], "v string, spelled string")
    rows = spark.readStream.table(tokens["table"]).join(spelled, "v", "left")
    return rows.selectExpr("id", "coalesce(spelled, v) AS v")
""",
    )
    source = {"functionPath": "spelled.py", "tokens": {"table": f"{project.schema}.src"}}
    project.standard("orders", source, sourceType="python")
    assert project.run().ok
    assert project.rows("orders") == [(1, "A"), (2, "z")]


def test_streaming_cdc_is_refused_before_any_write(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", "id int, v string, s int, e int", (1, "x", 1, None))
    project.standard(
        "orders",
        "src",
        cdc={"keys": ["id"], "sequence_by": "at", "scd_type": "2", "except_column_list": ["at"]},
        migration={"selectExp": ["id", "v", "s AS __START_AT", "e AS __END_AT"]},
    )
    project.standard("appended", "src")
    with project.nothing_written():
        (refusal,) = (refusal for target in project.plan().targets for refusal in target.refusals)
        check(refusal, "STREAMING_CDC_THROUGH_CONNECT", location=SPEC, flow="f_v_orders")
        with raises("STREAMING_CDC_THROUGH_CONNECT", flow="f_v_orders"):
            project.run()
        assert project.phases() == {"orders": "new", "appended": "plain"}
    pipelines.run(project.root, project.spark, targets=[f"{project.schema}.appended"])
    assert project.rows("appended") == [(1, "a", 1)]


def test_unreadable_table_or_view_is_reported_with_location_before_any_write(project: Project) -> None:
    schema = project.schema
    project.create("src", FEED, (1, "a", 1))
    project.create("orders_legacy", FEED, (1, "a", 1))
    project.spark.sql(f"CREATE TABLE {schema}.files (id int) USING parquet")
    live = f"{SPEC}: sourceDetails: "
    history = f"{SPEC}: tableMigrationDetails: "
    cases: list[tuple[Any, dict[str, Any], str]] = [
        ("nowhere", {}, f"[SOURCE_TABLE_MISSING] {live}Table {schema}.nowhere doesn't exist."),
        (
            "files",
            {},
            f"[TABLE_NOT_DELTA] {live}{schema}.files is a parquet table, not a Delta table.",
        ),
        (
            project.delta("src", selectExp=["id", "nope"]),
            {},
            f"[VIEW_NOT_READABLE] {live}v_orders can't be read ([UNRESOLVED_",
        ),
        ("src", {"table": "gone"}, f"[LEGACY_TABLE_MISSING] {history}Table {schema}.gone doesn't exist."),
        (
            "src",
            {"selectExp": ["nope"]},
            f"[LEGACY_TABLE_NOT_READABLE] {history}{schema}.orders_legacy can't be read as of version 1 (",
        ),
    ]
    for source, migration, sentence in cases:
        project.standard("orders", source, migration=migration)
        with project.nothing_written(), pytest.raises(TableferryError) as caught:
            project.run()
        assert str(caught.value).startswith(sentence)
        assert "\n" not in caught.value.message
