"""Expectations with their quarantine modes, and operational metadata columns, on real tables."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.spark.projects import Project, delta_view

from tableferry import pipelines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = {
    "expect": [{"name": "has a value", "constraint": "v IS NOT NULL OR id = 6"}],
    "expect_or_drop": [
        {"name": "positive", "constraint": "id > 0"},
        {"name": "switched off", "constraint": "false", "enabled": False},
    ],
}
EXPECTATIONS: dict[str, Any] = {
    "dataQualityExpectationsEnabled": True,
    "dataQualityExpectationsPath": "rules.json",
}
SCD1: dict[str, Any] = {"keys": ["id"], "sequence_by": "at", "scd_type": "1"}
FEED = "id int, v string, at int"
# A row for which a constraint is NULL, such as one without an id, violates it.
ROWS = ((1, "a", 1), (2, None, 2), (-3, "c", 3), (None, "d", 4))
METADATA = {
    "type": "struct",
    "fields": [
        {
            "name": "how",
            "type": {
                "type": "struct",
                "fields": [
                    {
                        "name": "loaded",
                        "type": "timestamp",
                        "nullable": False,
                        "metadata": {"mapping": {"type": "sql", "sql": "current_timestamp()"}},
                    },
                    {
                        "name": "run",
                        "type": "string",
                        "metadata": {"mapping": {"type": "pipeline_detail", "key": "update_id"}},
                    },
                    {
                        "name": "layer",
                        "type": "string",
                        "metadata": {"mapping": {"type": "pipeline_detail", "key": "pipeline_layer"}},
                    },
                ],
            },
        }
    ],
}


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "shop", schema, spark)
    project.write("dataflows/d/expectations/rules.json", RULES)
    project.create("src", FEED, *ROWS)
    return project


def count_violations(report: pipelines.RunReport) -> dict[str, dict[str, int]]:
    """Return the number of violating rows by flow and expectation."""
    return {
        result.flow.name: dict(result.violations) for target in report.targets for result in target.results
    }


class Crash(Exception):
    """Simulates the death of the process."""


def run_until(project: Project, at: str) -> None:
    """Run a project that dies before the step whose description contains a text."""

    def before(what: str) -> None:
        if at in what:
            raise Crash

    with pytest.raises(Crash):
        project.run(before=before)


@soak.slow
def test_quarantine_table_gets_each_violating_row_exactly_once(project: Project) -> None:
    details = {
        "table": "bad",
        "database": project.schema,
        "tableProperties": {"delta.appendOnly": "true"},
    }
    named: dict[str, Any] = {"quarantineMode": "table", "quarantineTargetDetails": details}
    project.standard("plain", "src", **EXPECTATIONS, quarantineMode="table")
    project.standard("latest", "src", cdc=SCD1, **EXPECTATIONS, **named)
    # The run dies when the rows are in the target but not yet in its quarantine table.
    run_until(project, "stream f_quarantine_v_plain_quarantine")
    report = project.run()
    assert count_violations(report)["f_quarantine_v_plain_quarantine"] == {}
    good, warned = (1, "a", 1), (2, None, 2)
    assert project.rows("plain") == sorted([good, warned], key=repr)
    assert project.rows("plain_quarantine") == sorted(ROWS[1:], key=repr)
    assert project.rows("latest") == sorted([good, warned], key=repr)
    assert project.rows("bad") == sorted(ROWS[1:], key=repr)
    assert not any(target.results for target in project.run().targets)

    project.insert("src", (-7, "e", 7), (8, "f", 8), (6, None, 9))
    assert count_violations(project.run()) == {
        "f_v_plain": {"positive": 1},
        "f_quarantine_v_plain_quarantine": {},
        "f_v_latest": {"positive": 1},
        "f_quarantine_v_latest_quarantine": {},
    }
    assert project.rows("plain") == sorted([good, warned, (8, "f", 8), (6, None, 9)], key=repr)
    assert project.rows("plain_quarantine") == sorted([*ROWS[1:], (-7, "e", 7)], key=repr)
    assert project.rows("latest") == project.rows("plain")
    assert project.rows("bad") == project.rows("plain_quarantine")


@soak.slow
def test_flag_mode_keeps_every_row_and_flags_violating_rows(project: Project, spark: SparkSession) -> None:
    project.write("dataflows/d/schemas/feed.ddl", "id INT, v STRING, at INT")
    project.create("flagged_legacy", FEED, (9, "old", 0))
    flagged = {**EXPECTATIONS, "quarantineMode": "flag"}
    target = {"database": project.schema, "table": "flagged", "schemaPath": "feed.ddl"}
    project.standard("flagged", "src", migration={}, targetDetails=target, **flagged)
    events = {"f_e": {"flowType": "merge", "flowDetails": {"targetTable": f"{project.schema}.events",
              "sourceView": "v_e"}, "views": {"v_e": delta_view(project.delta("src"))}}}  # fmt: skip
    # The schema file has no validity columns.
    target = {**target, "table": "events"}
    project.flow("events", events, cdc={**SCD1, "scd_type": "2"}, targetDetails=target, **flagged)
    # The existing rows are copied without expectations; later rows are checked.
    assert project.run().ok
    project.insert("src", (1, "a", 11), (2, None, 12), (-3, "c", 13), (None, "d", 14))
    counted = count_violations(project.run())
    assert counted["f_v_flagged"] == {"has a value": 1, "positive": 2}
    # A merge reads its batch several times but counts its rows once.
    assert counted["f_e"] == {"has a value": 1, "positive": 2}
    flags = [(1, False), (2, True), (-3, True), (None, True), (9, None)]
    assert project.rows("flagged", "id", "is_quarantined") == sorted(flags, key=repr)
    newest = spark.table(f"{project.schema}.events").where("__END_AT IS NULL").select("id", "is_quarantined")
    assert sorted(map(tuple, newest.collect()), key=repr) == sorted(flags[:4], key=repr)


@soak.slow
def test_rows_get_metadata_of_their_layer_and_copied_rows_keep_theirs(
    project: Project, spark: SparkSession
) -> None:
    project.write("pipeline_configs/operational_metadata_silver.json", METADATA)
    project.write("pipeline_configs/dev_substitutions.json", {"tokens": {"pipeline_layer": "silver"}})
    legacy = "id int, v string, at int, how struct<loaded: timestamp, run: string, layer: string>"
    project.create("rows_legacy", legacy)
    spark.sql(
        f"INSERT INTO {project.schema}.rows_legacy VALUES "
        "(9, 'old', 0, named_struct('loaded', TIMESTAMP'2020-01-01 00:00:00', 'run', 'u', 'layer', 'old'))"
    )
    project.standard("rows", "src", migration={}, **EXPECTATIONS, quarantineMode="table")
    project.standard("latest", "src", cdc=SCD1)
    project.standard("bare", "src", features={"operationalMetadataEnabled": False})
    began = datetime.now(UTC)
    assert project.run().ok
    project.insert("src", (1, "b", 5), (-4, None, 6))
    project.run()

    def read_metadata(table: str) -> dict[Any, tuple[Any, ...]]:
        frame = spark.table(f"{project.schema}.{table}").selectExpr(
            "id", "unix_micros(how.loaded)", "how.run", "how.layer"
        )
        return {row[0]: tuple(row)[1:] for row in frame.collect()}

    rows = read_metadata("rows")
    assert rows[9] == (1577836800000000 - 0, "u", "old")
    assert rows.keys() == {9, 1}
    micros, run, layer = rows[1]
    assert timedelta(0) <= datetime.fromtimestamp(micros / 1e6, UTC) - began < timedelta(hours=1)
    assert (len(run), layer) == (36, "silver")
    # All rows of one run have the same run id in every table.
    latest = read_metadata("latest")
    assert latest[1][1:] == (run, "silver")
    assert latest[2][1] != run
    assert read_metadata("rows_quarantine").keys() == {-4}
    assert read_metadata("rows_quarantine")[-4][1] == run
    assert spark.table(f"{project.schema}.bare").columns == ["id", "v", "at"]
