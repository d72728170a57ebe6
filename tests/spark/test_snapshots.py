"""Snapshots of whole tables, taken one after the other into real tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project, delta_view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BARE: dict[str, Any] = {"features": {"operationalMetadataEnabled": False}}


class Dies(Exception):
    """What kills a run."""


def killed(project: Project, at: str, time: int = 1) -> None:
    """Run a project, and let it die the n-th time right before a step."""
    left = time

    def before(what: str) -> None:
        nonlocal left
        left -= at in what
        if not left:
            raise Dies

    with pytest.raises(Dies):
        project.run(before=before)


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


def historical(project: Project, name: str, settings: dict[str, Any], **extra: Any) -> None:
    """Write a spec of a table that historical snapshots fill."""
    spec = {
        "dataFlowId": name, "dataFlowGroup": "g", "dataFlowType": "standard", "targetFormat": "delta",
        "targetDetails": {"database": project.schema, "table": name},
        "cdcSnapshotSettings": {"keys": ["id"], "scd_type": "2", "snapshotType": "historical", **settings},
    }  # fmt: skip
    project.spec(name, {**spec, **extra})


def files(project: Project, **source: Any) -> dict[str, Any]:
    """Return the settings of snapshots in CSV files of the project's folder."""
    path = f"{project.root}/snapshots/customer_{{version}}_part_{{fragment}}.csv"
    given = {"format": "csv", "path": path, "readerOptions": {"header": "true"}, "versionType": "integer",
             "selectExp": ["CAST(id AS INT) AS id", "v"]}  # fmt: skip
    return {"sourceType": "file", "source": {**given, **source}}


def snapshot(project: Project, version: int, *rows: str, part: int = 1) -> None:
    """Write a file of a snapshot."""
    lines = "\n".join(("id,v", *rows))
    project.write(f"snapshots/customer_{version}_part_{part}.csv", lines + "\n")


@soak.slow
def test_historical_files_become_intervals_and_a_killed_run_is_gone_on_with(project: Project) -> None:
    snapshot(project, 9, "1,a", "2,b")
    snapshot(project, 10, "1,a", "3,c", part=1)
    snapshot(project, 10, "2,B", part=2)
    historical(project, "customer", files(project))
    killed(project, "rows of")  # the first snapshot is in the log only
    killed(project, "rows of", 2)  # the first one is made whole, and the second is in the log only
    project.run()
    intervals = [(1, "a", 9, None), (2, "b", 9, 10), (2, "B", 10, None), (3, "c", 10, None)]
    assert project.rows("customer") == sorted(intervals, key=repr)
    # An older one that comes late isn't taken, and one without a change changes nothing.
    snapshot(project, 8, "1,older")
    snapshot(project, 11, "1,a", "2,B", "3,c")
    snapshot(project, 12, "3,c", "2,")
    project.run()
    after = [(1, "a", 9, 12), (2, "b", 9, 10), (2, "B", 10, 12), (2, None, 12, None), (3, "c", 10, None)]
    assert project.rows("customer") == sorted(after, key=repr)
    snapshot(project, 13)
    with raises("SNAPSHOT_EMPTY", version=13):
        project.run()
    with raises("REFRESH_OF_SNAPSHOT_TARGET"):
        project.run(full_refresh=[f"{project.schema}.customer"])
    assert project.rows("customer") == sorted(after, key=repr)


@soak.only  # In make test files and views are taken as snapshots, and their changes compared as well.
def test_a_tables_snapshots_fill_a_staging_table_whose_changes_are_followed(
    project: Project, spark: SparkSession
) -> None:
    project.create("history", "id int, v string, day date")
    insert = f"INSERT INTO {project.schema}.history VALUES"
    spark.sql(f"{insert} (1, 'a', DATE'2025-01-01'), (2, 'b', DATE'2025-01-01'), (1, 'A', DATE'2025-01-02')")
    settings = {"keys": ["id"], "scd_type": "1", "snapshotType": "historical", "sourceType": "table",
                "source": {"table": f"{project.schema}.history", "versionColumn": "day",
                           "versionType": "date", "selectExp": ["id", "v"]}}  # fmt: skip
    staging = {"stg": {"type": "ST", "cdcSnapshotSettings": settings,
               "tableProperties": {"delta.enableChangeDataFeed": "true"}}}  # fmt: skip
    source = {"database": "live", "table": "stg", "cdfEnabled": True, "startingVersionFromDLTSetup": True,
              "selectExp": ["id", "v", "_change_type AS what"],
              "cdfChangeTypeOverride": ["insert", "update_postimage", "delete"]}  # fmt: skip
    flow = {"flowType": "append_view", "views": {"v_stg": delta_view(source)},
            "flowDetails": {"targetTable": f"{project.schema}.changes", "sourceView": "v_stg"}}  # fmt: skip
    project.flow("changes", {"f_changes": flow}, staging=staging, **BARE)
    project.run()
    changes = [(1, "a", "insert"), (2, "b", "insert"), (1, "A", "update_postimage"), (2, "b", "delete")]
    assert project.rows("changes") == sorted(changes, key=repr)
    spark.sql(f"{insert} (1, 'A', DATE'2025-01-03'), (4, 'd', DATE'2025-01-03')")
    project.run()
    assert project.rows("changes") == sorted([*changes, (4, "d", "insert")], key=repr)
    assert project.rows("stg") == sorted([(1, "A"), (4, "d")], key=repr)


@soak.slow
def test_a_periodic_snapshot_is_what_a_view_holds_at_each_run(project: Project, spark: SparkSession) -> None:
    project.create("src", "id int, v string, m map<string, int>")
    into = f"{project.schema}.src"
    spark.sql(f"INSERT INTO {into} VALUES (1, 'a', map('x', 1)), (2, 'b', NULL), (9, 'no', NULL)")
    snapshots = {"keys": ["id"], "scd_type": "2", "snapshotType": "periodic"}
    project.standard(
        "kept", project.delta("src", whereClause=["id < 9"]), mode="batch",
        cdcSnapshotSettings={**snapshots, "track_history_except_column_list": ["m"]},
    )  # fmt: skip
    project.standard("plain", project.delta("src"), mode="batch",
                     cdcSnapshotSettings={**snapshots, "scd_type": "1"})  # fmt: skip
    project.run()
    assert project.rows("kept", "id", "v") == [(1, "a"), (2, "b")]
    spark.sql(f"UPDATE {into} SET m = map('x', 2), v = 'A' WHERE id = 1")
    spark.sql(f"DELETE FROM {into} WHERE id = 2")
    report = project.run()
    assert {result.flow.name: result.rows for target in report.targets for result in target.results} == {
        "f_snapshots_kept": 2, "f_snapshots_plain": 2,
    }  # fmt: skip
    kept = spark.table(f"{project.schema}.kept").selectExpr("id", "v", "m['x']", "__END_AT IS NULL")
    assert sorted(map(tuple, kept.collect())) == [
        (1, "A", 2, True),
        (1, "a", 1, False),
        (2, "b", None, False),
    ]
    assert project.rows("plain", "id", "v") == [(1, "A"), (9, "no")]
    # Two rows of a key: nobody knows which one counts.
    spark.sql(f"INSERT INTO {into} VALUES (1, 'twice', NULL)")
    with raises("SNAPSHOT_KEY_NOT_UNIQUE", count=2, key="id=1"):
        project.run()
