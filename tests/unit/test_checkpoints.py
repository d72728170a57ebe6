"""How far a Structured Streaming checkpoint says it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conditions import raises

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.source_offsets import Offset
from tableferry.pipelines.state import checkpoints


def source(version: int, index: int = -1, *, snapshot: bool = False, table: str = "t1") -> str:
    return json.dumps(
        {"reservoirId": table, "reservoirVersion": version, "index": index, "isStartingVersion": snapshot}
    )


def written(folder: Path, batch: int, *sources: str, committed: bool = True) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *sources]))
    if committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_a_folder_that_is_not_there_says_that_the_flow_never_ran(tmp_path: Path) -> None:
    assert checkpoints.read(tmp_path / "none") == Checkpoint()


def test_the_newest_batch_counts_and_a_commit_that_is_missing_leaves_it_pending(tmp_path: Path) -> None:
    written(tmp_path, 9, source(3))
    written(tmp_path, 10, source(2**31 + 5), source(7, table="t2"))
    (tmp_path / "offsets" / ".10.crc").write_text("")
    whole = {"t1": Offset(2**31 + 5, True), "t2": Offset(7, True)}
    assert checkpoints.read(tmp_path) == Checkpoint(whole, offered=10, committed=10)
    written(tmp_path, 11, source(2**31 + 6), committed=False)
    actual = checkpoints.read(tmp_path)
    assert actual == Checkpoint({"t1": Offset(2**31 + 6, True)}, offered=11, committed=10)
    assert (actual.pending, actual.started) == (True, True)


def test_a_flow_whose_first_batch_was_never_finished_has_not_started(tmp_path: Path) -> None:
    written(tmp_path, 0, source(3), committed=False)
    actual = checkpoints.read(tmp_path)
    assert (actual.pending, actual.started) == (True, False)


def test_a_checkpoint_that_is_to_begin_within_a_commit_has_begun_once_all_of_it_is_there(
    tmp_path: Path,
) -> None:
    part, started = source(7, 2), Checkpoint({"t1": Offset(7, False)}, offered=1, committed=1, seeded=True)
    checkpoints.seed(tmp_path / "f", part)
    assert checkpoints.read(tmp_path / "f") == started
    # Whatever it died after, it can be done again.
    for gone in ("commits/1", "commits/0", "offsets/1", "offsets/0"):
        (tmp_path / "f" / gone).unlink()
        assert checkpoints.read(tmp_path / "f") == Checkpoint(seeded=True)
    checkpoints.seed(tmp_path / "f", part)
    assert checkpoints.read(tmp_path / "f") == started
    # One that sleeps meanwhile sets nothing back.
    written(tmp_path / "f", 2, source(8))
    checkpoints.seed(tmp_path / "f", part)
    assert checkpoints.read(tmp_path / "f").offsets == {"t1": Offset(8, True)}


def test_a_checkpoint_is_moved_on_to_where_others_have_stopped(tmp_path: Path) -> None:
    old, first, second = tmp_path / "old", tmp_path / "first", tmp_path / "second"
    written(old, 6, source(3), source(5, table="t2"))
    written(old, 7, source(4), source(9, table="t2"), committed=False)
    written(first, 2, source(6, 4))
    written(second, 8, source(7, table="t2"))
    # Without batch 7, which is undone, its second source is where the flow has stopped.
    checkpoints.move_on(old, 6, [first, second, tmp_path / "none"])
    moved = Checkpoint({"t1": Offset(6, False), "t2": Offset(7, True)}, offered=9, committed=9)
    assert checkpoints.read(old) == moved
    checkpoints.move_on(old, 6, [first, second])
    assert checkpoints.read(old) == moved
    # Behind batches 6, 7 and 8 there is nothing that the table could have.
    assert checkpoints.moved_to(old) == {8: 9, 7: 9, 6: 9}
    # With what it has taken itself it stays where it's further on, also within a commit.
    written(old, 10, source(6, 2), source(9, table="t2"))
    checkpoints.move_on(old, None, [first, second])
    moved = Checkpoint({"t1": Offset(6, False), "t2": Offset(9, True)}, offered=12, committed=12)
    assert checkpoints.read(old) == moved
    assert '"index": 4' in (old / "offsets" / "12").read_text()
    assert checkpoints.moved_to(old) == {11: 12, 10: 12, 8: 9, 7: 9, 6: 9}
    # One that isn't finished, or that the stream itself has made, moves nothing.
    (old / "commits" / "12").unlink()
    written(old, 13, source(8))
    assert checkpoints.moved_to(old) == {10: 11, 8: 9, 7: 9, 6: 9}
    (old / "commits" / "13").unlink()
    (old / "offsets" / "13").unlink()
    (old / "commits" / "12").write_text("v1")
    with raises("OFFSET_FILE_MISSING", file=re.compile("offsets/5$")):
        checkpoints.move_on(old, 5, [first])
    with raises("CHECKPOINT_WITHOUT_OFFSETS", folder=tmp_path / "none"):
        checkpoints.move_on(tmp_path / "none", None, [first])


def test_a_checkpoint_is_given_its_id_once(tmp_path: Path) -> None:
    first = checkpoints.begin(tmp_path / "f")
    assert checkpoints.begin(tmp_path / "f") == first
    assert checkpoints.read(tmp_path / "f") == Checkpoint(id=first)


def test_a_line_ends_where_spark_ends_it(tmp_path: Path) -> None:
    written(tmp_path, 0, source(3))
    offsets = tmp_path / "offsets" / "0"
    settings = '{"conf":{"spark.app.name":"a\u2028b"}}'
    offsets.write_text("\n".join(["v1", settings, source(3)]), "utf-8")
    assert checkpoints.read(tmp_path).offsets == {"t1": Offset(3, True)}


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        (source(4), True),
        (source(4, -100), True),
        (source(4, 2), False),
        (source(4, -1, snapshot=True), False),
    ],
    ids=[
        "at a commit's start",
        "at a commit's start, as newer logs say it",
        "inside a commit",
        "inside the snapshot",
    ],
)
def test_only_a_position_between_two_commits_is_whole(tmp_path: Path, line: str, whole: bool) -> None:
    written(tmp_path, 0, line)
    assert checkpoints.read(tmp_path).offsets == {"t1": Offset(4, whole)}


def test_a_source_that_is_no_delta_table_has_no_offset_here(tmp_path: Path) -> None:
    written(tmp_path, 0, '{"logOffset":3}', "-", source(1))
    actual = checkpoints.read(tmp_path)
    assert (actual.offsets, actual.others, actual.started) == ({"t1": Offset(1, True)}, True, True)


def test_a_flow_without_any_delta_source_has_started_too(tmp_path: Path) -> None:
    written(tmp_path, 0, '{"logOffset":3}')
    assert (checkpoints.read(tmp_path).offsets, checkpoints.read(tmp_path).started) == ({}, True)


@pytest.mark.parametrize("text", ["", '{"id":"4', "{}", "[]", '"id"', '{"id":""}'])
def test_a_metadata_file_that_was_cut_short_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text('{"id":"4b1f"}')
    assert checkpoints.read(tmp_path) == Checkpoint(id="4b1f")
    (tmp_path / "metadata").write_text(text)
    with raises("FLOW_CHECKPOINT_DAMAGED", folder=tmp_path, reason=re.compile("/metadata isn't a complete")):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "v1\n", 'v1\n{"batch', 'v1\n{}\n{"reservoirId":"t1","reser', 'v1\n{}\n{"reservoirId":"t1"}']
)
def test_an_offset_file_that_was_cut_short_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    written(tmp_path, 0)
    (tmp_path / "offsets" / "0").write_text(text)
    with raises("FLOW_CHECKPOINT_DAMAGED", folder=tmp_path, reason=re.compile("offsets/0 isn't a complete")):
        checkpoints.read(tmp_path)


def test_a_run_once_flow_is_done_when_it_was_marked(tmp_path: Path) -> None:
    checkpoints.mark_done(tmp_path / "f_once")
    assert checkpoints.read(tmp_path / "f_once") == Checkpoint(done=True)
