"""Rows that a user deletes from a CDC target or from its event log between two runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest
from tests import soak
from tests.conditions import names
from tests.spark.projects import Project

from tableferry.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEED = "id int, v string, at int"
LOG = "__tableferry_events_out"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", FEED, (1, "a", 1), (2, "b", 1), (3, "c", 1), (1, "a2", 2), (2, "b2", 2))
    return project


def run_cdc(project: Project, scd_type: str) -> None:
    cdc = {"keys": ["id"], "sequence_by": "at", "scd_type": scd_type, "except_column_list": ["at"]}
    project.standard("out", "src", cdc=cdc)
    project.run()


def refusal_message(project: Project, match: str) -> str:
    """Check that a run is refused without a write; return the message."""
    with project.nothing_written(), pytest.raises(Refused, match=match) as raised:
        project.run()
    return str(raised.value)


def run_statements(project: Project, reason: str, verb: str) -> None:
    """Run the statements that a refusal names."""
    statements = re.findall(rf"{verb} (?:INTO|TABLE) .*?(?=;|\.$|\. Or)", reason, re.MULTILINE)
    assert statements
    for statement in statements:
        project.spark.sql(statement)


def logged_rows(project: Project) -> set[tuple[int, str]]:
    """Return the keys and values in the event log, whose columns delta-rs doesn't map."""
    rows = project.spark.table(f"{project.schema}.{LOG}").select("id", "v").collect()
    return {(row[0], row[1]) for row in rows}


def test_erased_scd1_key_returns_only_with_newer_event(project: Project, spark: SparkSession) -> None:
    run_cdc(project, "1")
    out = f"{project.schema}.out"
    for table in (out, f"{project.schema}.{LOG}"):
        spark.sql(f"OPTIMIZE {table}")
        spark.sql(f"VACUUM {table}")
    assert not any(target.refusals or target.notes or target.warnings for target in project.plan().targets)

    spark.sql(f"DELETE FROM {out} WHERE id = 1")
    project.insert("src", (2, "b3", 3))
    reason = refusal_message(
        project, r"removed rows in version \d+ of \S+\.out \(DELETE\), but .* events of 1 key"
    )
    run_statements(project, reason, "MERGE")
    project.run()
    assert project.rows("out") == [(2, "b3"), (3, "c")]
    assert {row[0] for row in logged_rows(project)} == {2, 3}
    project.insert("src", (1, "again", 4))
    spark.sql(f"UPDATE {out} SET v = 'c2' WHERE id = 3")
    [target] = project.plan().targets
    assert "VALUES_CHANGED_BY_OTHERS" in names(target.warnings)
    project.run()
    assert project.rows("out") == [(1, "again"), (2, "b3"), (3, "c2")]


def test_erased_scd2_rows_stay_erased(project: Project, spark: SparkSession) -> None:
    run_cdc(project, "2")
    out = f"{project.schema}.out"
    spark.sql(f"DELETE FROM {out} WHERE id = 1")
    spark.sql(f"DELETE FROM {out} WHERE id = 2 AND __END_AT IS NULL")
    # The third key is erased as in the how-to guide.
    spark.sql(f"DELETE FROM {project.schema}.{LOG} WHERE id = 3")
    spark.sql(f"DELETE FROM {out} WHERE id = 3")
    project.insert("src", (1, "a3", 3), (2, "b3", 3), (2, "late", 2))
    reason = refusal_message(
        project, r"versions \d+ to \d+ of \S+\.out \(DELETE\), but .* events of 2 keys or rows"
    )
    run_statements(project, reason, "MERGE")
    assert logged_rows(project) == {(2, "b"), (2, None)}
    project.run()
    # No row covers the time from 2 to 3, because the previous row stays closed.
    assert project.rows("out") == [(1, "a3", 3, None), (2, "b", 1, 2), (2, "b3", 3, None)]


def test_emptied_event_log_causes_no_second_open_row(project: Project, spark: SparkSession) -> None:
    run_cdc(project, "2")
    log = f"{project.schema}.{LOG}"
    spark.sql(f"DELETE FROM {log}")
    reason = refusal_message(
        project, rf"removed events in version \d+ of \S+{LOG} .* still has 5 rows of them"
    )
    run_statements(project, reason, "RESTORE")
    assert not project.plan().refusals
    spark.sql(f"DELETE FROM {log} WHERE id < 3")
    project.insert("src", (1, "a3", 3))
    run_statements(project, refusal_message(project, "still has 4 rows of them"), "MERGE")
    project.run()
    assert project.rows("out") == [(1, "a3", 3, None), (3, "c", 1, None)]


@soak.slow
def test_erasure_in_vacuumed_version_must_be_confirmed_by_statement(
    project: Project, spark: SparkSession
) -> None:
    run_cdc(project, "1")
    folder = project.folder("out")
    before = deltalake.DeltaTable(folder).file_uris()
    spark.sql(f"DELETE FROM {project.schema}.out WHERE id = 1")
    for file in {*before} - {*deltalake.DeltaTable(folder).file_uris()}:
        Path(file).unlink()
    project.insert("src", (2, "b3", 3))
    reason = refusal_message(
        project, r"can't be read \(.*\), so it can't be determined whether \S+ still has"
    )
    spark.sql(f"DELETE FROM {project.schema}.{LOG} WHERE id = 1")
    run_statements(project, reason, "ALTER")
    project.run()
    assert project.rows("out") == [(2, "b3"), (3, "c")]


@soak.slow
def test_rows_deleted_during_run_are_compared_by_next_run(project: Project, spark: SparkSession) -> None:
    run_cdc(project, "2")
    project.insert("src", (2, "b3", 3))

    def delete(effect: str) -> None:
        if effect.startswith("recording in the state the versions"):
            spark.sql(f"DELETE FROM {project.schema}.out WHERE id = 1")

    project.run(before=delete)
    project.insert("src", (1, "a3", 3))
    run_statements(project, refusal_message(project, "still has events of 1 key"), "MERGE")
    project.run()
    assert [row for row in project.rows("out") if row[0] == 1] == [(1, "a3", 3, None)]
