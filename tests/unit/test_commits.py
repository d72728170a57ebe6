"""Facts from a table's commits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pytest
from arro3.core import Array, DataType, Table

from tableferry.formats.delta.commits import Commit, commits_since, set_back
from tableferry.formats.delta.row_changes import RowChanges
from tableferry.spark.tables import TableFacts, TableName


def restored(**parameters: Any) -> Commit:
    return Commit(0, "RESTORE", parameters, {})


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], None),
        ([Commit(0, "WRITE", {}, {}), Commit(0, "", {}, {})], None),
        ([restored(version="4")], 4),
        ([restored(version="4"), Commit(0, "WRITE", {}, {})], 4),
        ([restored(version="5")], None),
        ([restored(version="4"), restored(version="5")], None),
        ([restored(version="4"), restored(version="6")], 4),
        ([Commit(0, "WRITE", {}, {}), restored(version="2"), restored(version="6")], None),
        ([restored(timestamp="2026-01-01")], -1),
        ([restored(timestamp="2026-01-01", version=None)], -1),
        ([Commit(0, "CLONE", {"sourceVersion": "5"}, {})], -1),
        ([Commit(0, "CLONE", {"sourceVersion": "4"}, {}), restored(version="5")], None),
    ],
)
def test_restored_table_is_recognised(later: list[Commit], expected: int | None) -> None:
    commits = [
        Commit(6 + n, commit.operation, commit.parameters, commit.metrics) for n, commit in enumerate(later)
    ]
    assert set_back(commits[::-1], 5) == expected


@pytest.mark.parametrize(
    ("operation", "metrics", "changes"),
    [
        ("WRITE", {"numOutputRows": "3", "numFiles": "1"}, None),
        ("MERGE", {"numTargetRowsInserted": "2", "numTargetFilesRemoved": "0"}, None),
        ("OPTIMIZE", {"numRemovedFiles": "4", "numAddedFiles": "1"}, None),
        ("DELETE", {"numRemovedFiles": "0", "numDeletedRows": "0"}, None),
        ("UPDATE", {}, None),
        ("DELETE", {"numRemovedFiles": "2", "numAddedFiles": "0"}, (None, True)),
        ("DELETE", {"numRemovedFiles": "1", "numAddedFiles": "1", "numDeletedRows": "5"}, (5, False)),
        ("DELETE", {"numRemovedFiles": "0", "numDeletionVectorsAdded": "1"}, (None, False)),
        ("UPDATE", {"numRemovedFiles": "1", "numAddedFiles": "1", "numUpdatedRows": "7"}, (7, False)),
        (
            "MERGE",
            {"numTargetFilesRemoved": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "3"},
            (5, False),
        ),
    ],
)
def test_row_changes_of_commit_come_from_its_metrics(
    operation: str, metrics: dict[str, str], changes: tuple[int | None, bool] | None
) -> None:
    found = Commit(4, operation, {}, metrics).row_changes
    assert found == (None if changes is None else RowChanges(4, operation, *changes))


def test_commits_of_delta_rs_have_the_metrics_of_spark(tmp_path: Path) -> None:
    rows = Table.from_arrays([Array([1, 2, 3], type=DataType.int64())], names=["id"])
    deltalake.write_deltalake(tmp_path, rows)
    deltalake.DeltaTable(tmp_path).delete("id = 2")
    deltalake.DeltaTable(tmp_path).update(updates={"id": "9"}, predicate="id = 3")
    table = TableFacts(TableName.at(str(tmp_path)), "", 2, folder=str(tmp_path))
    no_spark: Any = None
    updated, deleted, written = commits_since(no_spark, table, -1)
    assert updated.row_changes == RowChanges(2, "UPDATE", 1, only_deletes=False)
    assert deleted.row_changes == RowChanges(1, "DELETE", 1, only_deletes=False)
    assert written.row_changes is None
