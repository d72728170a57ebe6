"""Damage between two runs: cleaned logs, missing folders, replaced tables, backups, changed settings.

The next run must write each row exactly once, or be refused before any write.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from tests import soak
from tests.conditions import raises
from tests.spark.projects import Project

from tableferry.errors import Refused, TableferryError
from tableferry.spark.tables import TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id int, v string"
SCD1 = {"keys": ["id"], "sequence_by": "at", "scd_type": "1"}
FEED = "id int, v string, at int"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    return Project(tmp_path / "shop", schema, spark)


@pytest.fixture
def started(project: Project) -> Project:
    """A migration with a started flow; the initial copy wrote rows 1 and 2, and the flow row 3."""
    project.create("src", COLUMNS, (1, "a"), (2, "b"))
    project.create("out_legacy", COLUMNS, (1, "a"), (2, "b"))
    project.standard("out", "src", migration={})
    project.run()
    project.insert("src", (3, "c"))
    project.run()
    assert ids(project) == [1, 2, 3]
    return project


def ids(project: Project) -> list[int]:
    return [row[0] for row in project.rows("out", "id")]


def checkpoint(project: Project, flow: str = "f_v_out", generation: int = 0) -> Path:
    """Return the folder of a flow's checkpoint."""
    target = TableName.parse(f"{project.schema}.out").key
    return project.state / "checkpoints" / f"targetTable={target}" / f"generation={generation}" / flow


def check_refused(project: Project, match: str, **options: Any) -> None:
    """Check that a plan has refusals and a run is refused, and that neither writes."""
    with project.nothing_written():
        assert project.plan(**options).refusals
        with pytest.raises(Refused, match=match):
            project.run(**options)


@contextmanager
def without(folder: Path, kept: Path) -> Iterator[None]:
    """Remove a folder during the block, and restore it afterwards."""
    folder.rename(kept)
    yield
    shutil.rmtree(folder, ignore_errors=True)
    kept.rename(folder)


def test_run_refuses_missing_replaced_or_set_back_state(
    started: Project, spark: SparkSession, tmp_path: Path
) -> None:
    target, flow = f"{started.schema}.out", checkpoint(started)
    started.insert("src", (4, "d"))
    shutil.copytree(flow, tmp_path / "older")
    shutil.copytree(started.folder("out"), tmp_path / "older_table")
    started.run()
    # Spark rereads the commits of its last batch, so those must exist.
    started.clean_log("src")
    started.insert("src", (5, "e"))
    started.run()
    assert ids(started) == [1, 2, 3, 4, 5]
    assert started.status().complete

    started.insert("src", (6, "f"))
    gone = "FLOW_CHECKPOINT_MISSING"
    with without(flow, tmp_path / "kept"):
        check_refused(started, gone)
    with without(started.state / "checkpoints", tmp_path / "kept"):
        check_refused(started, gone)
    with without(flow, tmp_path / "kept"):
        shutil.copytree(tmp_path / "older", flow)
        check_refused(started, "CHECKPOINT_OLDER_THAN_TARGET")
        (flow / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000000"}')
        check_refused(started, "FLOW_CHECKPOINT_REPLACED")
    table = started.folder("out")
    with without(table, tmp_path / "kept"):
        shutil.copytree(tmp_path / "older_table", table)
        check_refused(
            started, r"TARGET_SET_BACK(?s:.*)was set back to version 3 since .*\s.*Restore version 5"
        )
        # Older releases didn't record the versions.
        document = next(started.state.glob("checkpoints/*/state.json"))
        recorded = document.read_text()
        document.write_text(json.dumps({**json.loads(recorded), "versions": {}}))
        check_refused(started, "CHECKPOINT_AHEAD_OF_TARGET")
        document.write_text(recorded)
    started.run()
    assert ids(started) == [1, 2, 3, 4, 5, 6]

    started.insert("src", (7, "g"))
    newest = deltalake.DeltaTable(str(table)).version()
    times = ((newest - 1, newest), (newest + 1, newest), (newest - 2, newest + 2))
    for back, whole in soak.amount(times[:1], times):
        spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF {back}")
        check_refused(started, rf"\.out was set back to version \d+ since (?s:.*)Restore version {newest}")
        spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF {whole}")
    if soak.SOAKING:
        # Only Databricks replaces a table that has rows by a clone, so the table is emptied.
        spark.sql(f"TRUNCATE TABLE {target}")
        spark.sql(f"CREATE OR REPLACE TABLE {target} SHALLOW CLONE {target} VERSION AS OF {newest - 1}")
        check_refused(
            started, rf"\.out was set back to an older version since (?s:.*)Restore version {newest}"
        )
        spark.sql(f"RESTORE TABLE {target} TO VERSION AS OF {newest}")
    started.run()
    assert ids(started) == [1, 2, 3, 4, 5, 6, 7]


def test_renamed_target_keeps_its_migration(started: Project, spark: SparkSession) -> None:
    started.insert("src", (4, "d"))
    (started.root / "dataflows/d/dataflowspec/out_main.json").unlink()
    started.standard("renamed", "src", migration={"table": "out_legacy"}, sourceViewName="v_out")
    check_refused(started, r"LEGACY_TABLE_MIGRATED_BEFORE\] .*\.out_legacy has begun before")

    old, new = (TableName.parse(f"{started.schema}.{name}") for name in ("out", "renamed"))
    with raises("RENAMED_TARGET_MISSING"):
        started.run(adopt=True)
    spark.sql(f"ALTER TABLE {old.sql} RENAME TO {new.sql}")
    started.run(adopt=True)
    assert not list(started.state.glob(f"**/targetTable={old.key}"))
    assert [row[0] for row in started.rows("renamed", "id")] == [1, 2, 3, 4]
    assert started.status().complete


@pytest.mark.parametrize("has_history", [True, False])
def test_flow_resumes_after_target_drops_record_of_batches(
    started: Project, spark: SparkSession, has_history: bool
) -> None:
    """Delta removes expired transaction identifiers of an idle stream from its checkpoints."""
    spark.sql(
        f"ALTER TABLE {started.schema}.out "
        "SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 millisecond')"
    )
    log = started.folder("out") / "_delta_log"
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
        spark._jsparkSession, str(started.folder("out"))
    ).checkpoint()
    newest = max(path.name for path in log.glob("*.checkpoint.parquet"))
    for commit in log.glob("*.json"):
        # The batches can only be found in commits, which DESCRIBE HISTORY lists.
        if not has_history and commit.name[:20] < newest[:20]:
            commit.unlink()
    started.insert("src", (4, "d"))
    notes = [note for target in started.plan().targets for note in target.notes]
    assert any("remembers a stream's batches" in note for note in notes) is not has_history
    started.run()
    assert ids(started) == [1, 2, 3, 4]


@soak.slow
def test_clone_runs_as_separate_target_and_replaced_original_is_refused(
    started: Project, spark: SparkSession
) -> None:
    target, twin = (f"{started.schema}.{table}" for table in ("out", "twin"))
    spark.sql(f"CREATE TABLE {twin} SHALLOW CLONE {target}")
    spark.sql(f"CREATE OR REPLACE TABLE {target} ({COLUMNS}) USING delta")
    check_refused(started, r"\.out was replaced since its flows began")
    # A clone has the properties of its original.
    started.standard("twin", "src")
    started.run(targets=[twin])
    assert spark.table(twin).count() == 6


@soak.slow
def test_run_recreates_table_left_by_killed_process(
    project: Project, spark: SparkSession, tmp_path: Path
) -> None:
    def create_unregistered(table: str, columns: str, rows: str = "") -> Path:
        """Create a table, and remove only its catalog entry."""
        name = f"{project.schema}.{table}"
        spark.sql(f"CREATE TABLE {name} ({columns}) USING delta {rows}")
        folder = project.folder(table)
        shutil.copytree(folder, tmp_path / "kept")
        spark.sql(f"DROP TABLE {name}")
        (tmp_path / "kept").rename(folder)
        return folder

    project.create("src", FEED, (1, "a", 1))
    project.create("out_legacy", "id int, v string", (1, "a"))
    project.standard("out", "src", cdc={**SCD1, "except_column_list": ["at"]}, migration={})
    # The process was killed after it created the folders and before it registered the tables.
    for table in ("out", "__tableferry_events_out"):
        create_unregistered(table, COLUMNS)
    project.run()
    assert project.rows("out") == [(1, "a")]

    # Another process was killed before the first commit of its table.
    project.create("early_legacy", COLUMNS, (1, "a"))
    project.standard("early", "src", migration={})
    early = project.folder("early_legacy").with_name("early")
    (early / "_delta_log" / "_staged_commits").mkdir(parents=True)
    (early / "_delta_log" / f".{0:020}.json.0a1b.tmp").write_text("{")
    project.run(targets=[f"{project.schema}.early"])
    assert project.rows("early") == [(1, "a")]

    project.create("other_legacy", COLUMNS, (1, "a"))
    project.standard("other", "src", migration={})
    folder = create_unregistered("other", COLUMNS)
    foreign_file = folder / "part-0.parquet"
    foreign_file.write_text("rows")
    with raises("TABLE_DIRECTORY_NOT_EMPTY", table=re.compile("other$")):
        project.run(targets=[f"{project.schema}.other"])
    assert foreign_file.exists()
    assert (folder / "_delta_log").is_dir()


@soak.slow
def test_full_refresh_repairs_target_and_keeps_finished_history(started: Project) -> None:
    target = [f"{started.schema}.out"]
    shutil.rmtree(started.state / "checkpoints")
    started.run(full_refresh=target)
    started.insert("src", (4, "d"))
    started.run()
    assert ids(started) == [1, 2, 3, 4]
    started.finish()
    started.standard("out", "src")
    started.insert("src", (5, "e"))
    check_refused(
        started,
        rf"REFRESH_DROPS_HISTORY\] .* \(copied from {started.schema}\.out_legacy@1\)",
        full_refresh=target,
    )
    shutil.rmtree(started.state)
    check_refused(started, "was refreshed 1 times, but the state records 0")
    check_refused(started, "REFRESH_DROPS_HISTORY", full_refresh=target)
    assert ids(started) == [1, 2, 3, 4]
    started.run(full_refresh=target, drop_history=True)
    # The source still contains all rows.
    assert ids(started) == [1, 2, 3, 4, 5]


@soak.slow
def test_flow_is_complete_after_first_batch_is_committed(
    project: Project, spark: SparkSession, tmp_path: Path
) -> None:
    project.create("src", COLUMNS, (1, "a"))
    project.create("out_legacy", COLUMNS, (1, "a"))
    project.standard("out", "src", migration={})
    project.run()

    def fail_run(why: str) -> None:
        with pytest.raises(TableferryError, match=why):
            project.run()
        assert list(checkpoint(project).joinpath("offsets").iterdir())
        assert project.phases() == {"out": "ready"}
        with raises("MIGRATION_NOT_COMPLETE"):
            project.finish()

    files = {*project.folder("src").glob("*.parquet")}
    project.insert("src", (2, "too long"))
    # VACUUM removes a file that was overwritten before the flow read it.
    (vacuumed,) = {*project.folder("src").glob("*.parquet")} - files
    with without(vacuumed, tmp_path / "kept"):
        fail_run(r"Files of a commit were removed \(VACUUM\)")
    spark.sql(f"ALTER TABLE {project.schema}.out ADD CONSTRAINT short CHECK (length(v) < 3)")
    fail_run("CHECK constraint")
    spark.sql(f"ALTER TABLE {project.schema}.out DROP CONSTRAINT short")
    project.insert("src", (3, "c"))
    project.run()
    assert ids(project) == [1, 2, 3]
    assert project.status().complete


@soak.only  # tests/unit/test_identity.py tests the decision.
def test_changed_keys_or_scd_type_are_refused_with_old_and_new_value(project: Project) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("out_legacy", FEED, (1, "a", 1))

    def spec(**changes: Any) -> None:
        project.standard("out", "src", cdc={**SCD1, **changes}, migration={})

    spec()
    project.run()
    project.insert("src", (1, "b", 2))
    # The target contains only the copy.
    spec(keys=["id", "v"])
    check_refused(project, r"\.out was created with keys id, but the spec now sets keys id, v")
    spec()
    project.run()
    project.insert("src", (1, "c", 3))
    spec(keys=["id", "v"])
    check_refused(project, r"f_v_out has filled .*\.out with keys id, but the spec now sets keys id, v")
    spec(scd_type="2")
    check_refused(project, r"with scd_type 1, but the spec now sets scd_type 2")
    spec()
    project.run()
    assert project.rows("out", "id", "v") == [(1, "c")]


@soak.only  # tests/unit/test_identity.py tests the decision, and make test a target that was set back.
def test_run_refuses_event_log_that_was_set_back(project: Project, spark: SparkSession) -> None:
    project.create("src", FEED, (1, "a", 1))
    project.create("out_legacy", FEED, (1, "a", 1))
    project.standard("out", "src", cdc=SCD1, migration={})
    project.run()
    project.insert("src", (1, "c", 3))
    project.run()
    log = f"{project.schema}.__tableferry_events_out"
    newest = deltalake.DeltaTable(str(project.folder("__tableferry_events_out"))).version()
    project.insert("src", (1, "d", 4))
    spark.sql(f"RESTORE TABLE {log} TO VERSION AS OF {newest - 1}")
    check_refused(
        project, rf"{log} was set back to version {newest - 1} since (?s:.*)Restore version {newest}"
    )
    spark.sql(f"RESTORE TABLE {log} TO VERSION AS OF {newest}")
    project.run()
    assert project.rows("out", "id", "v") == [(1, "d")]
