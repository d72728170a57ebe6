"""`finish` needs a hand-over that rows, a checkpoint or the user confirm, and `auto` compares rows first."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conditions import check, names, raises
from tests.spark.projects import Project

from tableferry.errors import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id int, v string"


@pytest.fixture
def project(tmp_path: Path, schema: str, spark: SparkSession) -> Project:
    """A source with three rows; the old job has processed two of them."""
    project = Project(tmp_path / "shop", schema, spark)
    project.create("src", COLUMNS, (1, "a"), (2, "b"))
    project.create("out_legacy", COLUMNS, (1, "a"), (2, "b"))
    project.insert("src", (3, "c"))
    return project


def migrate(project: Project, hand_over: str) -> None:
    project.standard("out", "src", tableMigrationDetails=project.migration("out", handOver=hand_over))


def ids(project: Project) -> list[int]:
    return [row[0] for row in project.rows("out", "id")]


def test_finish_refuses_assumed_hand_over_that_lost_row_until_user_accepts(
    project: Project,
) -> None:
    migrate(project, "version")
    project.run()
    project.insert("src", (4, "d"))
    project.run()
    assert ids(project) == [1, 2, 4]
    assert project.status().complete
    for options in ({}, {"verify": False}):
        with project.nothing_written(), raises("ASSUMED_HAND_OVER_NOT_PROVED"):
            project.finish(**options)
    report = project.finish(accept_assumed=True)
    assert [certainty for _, certainty in report.certainties] == ["assumed"]


@pytest.mark.parametrize("switched_off", [False, True])
def test_finish_refuses_assumed_hand_over_after_migration_is_removed_from_spec(
    project: Project, switched_off: bool
) -> None:
    migrate(project, "version")
    project.run()
    project.insert("src", (4, "d"))
    project.run()
    off = {"tableMigrationDetails": project.migration("out", enabled=False)}
    project.standard("out", "src", **(off if switched_off else {}))
    project.insert("src", (5, "e"))
    (report,) = project.run().targets
    assert "ASSUMED_MIGRATION_SWITCHED_OFF" in names(report.plan.warnings)
    assert ids(project) == [1, 2, 4, 5]
    for options in ({}, {"verify": False}):
        with project.nothing_written(), raises("ASSUMED_HAND_OVER_NOT_PROVED"):
            project.finish(**options)
    finished = project.finish(accept_assumed=True)
    assert [certainty for _, certainty in finished.certainties] == ["assumed"]


def test_finish_proves_assumed_hand_over_from_sources_at_baseline(project: Project) -> None:
    project.insert("out_legacy", (3, "c"))
    migrate(project, "version")
    project.run()
    # The old job has stopped, so only the new table gets this row.
    project.insert("src", (4, "d"))
    project.run()
    report = project.finish()
    assert [certainty for _, certainty in report.certainties] == ["proved"]
    assert [proof.proved for proof in report.proofs] == [True]


def test_auto_hand_over_starts_after_rows_that_old_job_processed(project: Project) -> None:
    migrate(project, "auto")
    notes = project.plan().targets[0].notes
    assert any("is proved: " in note and "out_legacy@1 holds exactly the 2 rows" in note for note in notes)
    project.run()
    assert ids(project) == [1, 2, 3]


def test_auto_hand_over_without_matching_rows_assumes_newest_versions_with_warning(project: Project) -> None:
    project.spark.sql(f"UPDATE {project.schema}.out_legacy SET v = 'changed' WHERE id = 1")
    migrate(project, "auto")
    found = project.plan().targets[0].warnings
    (warning,) = (finding for finding in found if finding.condition == "HAND_OVER_NOT_PROVED")
    check(warning, "HAND_OVER_NOT_PROVED", reason=re.compile("NO_MOMENT_MATCHES. None of the 3 moments"))
    project.run()
    project.insert("src", (4, "d"))
    project.run()
    assert ids(project) == [1, 2, 4]


def test_comparison_excludes_and_names_columns_that_are_not_reproducible(project: Project) -> None:
    project.insert("out_legacy", (3, "c"))
    mapped = ["id", "v", "current_timestamp() AS loaded_at", "'old' AS job"]
    source = project.delta("src", selectExp=["id", "v", "current_timestamp() AS loaded_at", "'new' AS job"])
    details = project.migration("out", {"selectExp": mapped}, handOver="auto", compareExcept=["job"])
    project.standard("out", source, tableMigrationDetails=details)
    notes = project.plan().targets[0].notes
    assert any("without comparing job and loaded_at" in note for note in notes), notes
    (report,) = project.run().targets
    assert report.verdict is not None
    assert report.verdict.matches
    assert report.verdict.excluded == ("job", "loaded_at")
    project.insert("src", (4, "d"))
    project.insert("out_legacy", (4, "d"))
    project.run()
    (proof,) = project.verify().proofs
    assert (proof.proved, proof.rows) == (True, 4)
    assert proof.verdict is not None
    assert proof.verdict.excluded == ("job", "loaded_at")


def test_unknown_column_in_compare_except_is_refused_with_existing_columns(
    project: Project,
) -> None:
    message = r"compareExcept names laoded_at, .* The columns are id, v"
    for hand_over in ("version", "auto"):
        details = project.migration("out", handOver=hand_over, compareExcept=["V", "laoded_at"])
        project.standard("out", "src", tableMigrationDetails=details)
        with project.nothing_written(), pytest.raises(Refused, match=message):
            project.run()
    migrate(project, "version")
    project.run()
    project.standard("out", "src", tableMigrationDetails=details)
    (proof,) = project.verify().proofs
    assert re.search(message, proof.why_not)
