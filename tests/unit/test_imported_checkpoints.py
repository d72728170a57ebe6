"""The checkpoints that a pipeline imports are handed over only where the table holds just what they read."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conditions import raises

from tableferry.formats.delta.commits import Commit
from tableferry.pipelines import checkpoints
from tableferry.pipelines.imported_checkpoints import handed_over, read
from tableferry.pipelines.plans import HandOver, OldCheckpoint
from tableferry.pipelines.source_offsets import KafkaOffset, Offset

KAFKA = '{"orders":{"0":5,"1":7}}'
FILES = '{"seqNum":12,"sourceVersion":1}'


def delta(version: int, index: int = -1) -> str:
    offset = {"reservoirId": "t1", "reservoirVersion": version, "index": index, "isStartingVersion": False}
    return json.dumps(offset)


def written(folder: Path, batch: int, *lines: str, committed: bool = True, query: str = "q") -> Path:
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query}))
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", *lines]))
    if committed:
        (folder / "commits" / str(batch)).write_text("v1")
    return folder


@pytest.mark.parametrize(
    ("lines", "read_as"),
    [
        ([delta(4)], {"tables": {"t1": Offset(4, True)}}),
        ([delta(4, 2)], {"tables": {"t1": Offset(4, False)}}),
        ([KAFKA], {"kafka": {"kafka:orders": KafkaOffset({("orders", 0): 5, ("orders", 1): 7})}}),
        ([FILES], {}),
        ([delta(4), FILES, "-"], {"tables": {"t1": Offset(4, True)}, "sources": 3}),
    ],
    ids=["delta", "within a commit", "kafka", "files", "several"],
)
def test_a_checkpoint_says_what_its_stream_reads_and_how_far_it_is(
    tmp_path: Path, lines: list[str], read_as: dict[str, object]
) -> None:
    folder = written(tmp_path / "old", 6, *lines)
    expected = OldCheckpoint(str(folder), "q", 6, {})
    assert read([folder]) == (replace(expected, **read_as),)  # type: ignore[arg-type]
    # What it has begun counts, for that's what it would go on with.
    written(folder, 7, *lines, committed=False)
    (folder / "state").mkdir()
    expected = replace(expected, batch=7, finished=False, keeps_state=True)
    assert read([folder]) == (replace(expected, **read_as),)  # type: ignore[arg-type]


def test_what_is_no_checkpoint_is_refused_with_its_path(tmp_path: Path) -> None:
    with raises("NOT_A_CHECKPOINT", folder=tmp_path / "old"):
        read([tmp_path / "old"])
    folder = written(tmp_path / "old", 0, delta(1))
    (folder / "offsets" / "0").unlink()
    with raises("OLD_STREAM_WITHOUT_BATCH", folder=folder):
        read([folder])


def commit(version: int, batch: int, query: str = "q") -> Commit:
    return Commit(version, "STREAMING UPDATE", {"queryId": query, "epochId": str(batch)}, {})


OPTIMIZE = Commit(9, "OPTIMIZE", {}, {})
OLD = OldCheckpoint("/none", "q", 6, {"t1": Offset(4, False, "line")})


def test_a_table_is_handed_over_where_its_newest_batch_is_the_checkpoints() -> None:
    commits = (OPTIMIZE, commit(8, 6), commit(7, 5))
    assert handed_over(9, [OLD], commits) == HandOver(9, {"t1": 3}, {"q": 6}, within={"t1": "line"})


def test_batches_that_undo_has_made_are_passed_over(tmp_path: Path) -> None:
    folder = written(tmp_path / "old", 6, delta(4))
    other = written(tmp_path / "flow", 0, delta(7))
    checkpoints.move_on(folder, 6, [other])
    assert handed_over(8, read([folder]), [commit(8, 6)]).batches == {"q": 8}


@pytest.mark.parametrize(
    ("old", "commits", "condition", "parameters"),
    [
        (replace(OLD, keeps_state=True), [commit(8, 6)], "IMPORTED_STREAM_KEEPS_STATE", {"folder": "/none"}),
        (replace(OLD, finished=False), [commit(8, 5)], "OLD_STREAM_WITHIN_BATCH", {"batch": 6}),
        (OLD, [commit(8, 6, "other")], "IMPORTED_STREAM_NOT_OF_TABLE", {"commits": "1 commit"}),
        # Commits before a RESTORE don't count.
        (
            OLD,
            [Commit(9, "RESTORE", {"version": "7"}, {}), commit(8, 6)],
            "IMPORTED_STREAM_NOT_OF_TABLE",
            {"commits": "0 commits"},
        ),
        # The table is older than the checkpoint, or the other way round.
        (OLD, [commit(8, 5)], "OLD_STREAM_AND_TABLE_DIFFER", {"batch": 6, "table_batch": 5}),
        (OLD, [commit(8, 7)], "OLD_STREAM_AND_TABLE_DIFFER", {"batch": 6, "table_batch": 7}),
    ],
)
def test_what_is_not_where_the_table_is_is_refused(
    old: OldCheckpoint, commits: list[Commit], condition: str, parameters: dict[str, object]
) -> None:
    with raises(condition, **parameters):
        handed_over(9, [old], commits)
