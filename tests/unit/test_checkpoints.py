"""Checkpoints of Structured Streaming: query ids and the offsets of batches."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.conditions import raises

from tableferry.pipelines.model.facts import Checkpoint
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.pipelines.state import checkpoints


def source(version: int, index: int = -1, *, snapshot: bool = False, table: str = "t1") -> str:
    return json.dumps(
        {"reservoirId": table, "reservoirVersion": version, "index": index, "isStartingVersion": snapshot}
    )


def write_batch(folder: Path, batch: int, *sources: str, committed: bool = True) -> None:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "offsets" / str(batch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *sources]))
    if committed:
        (folder / "commits" / str(batch)).write_text("v1\n{}")


def test_checkpoint_without_folder_has_never_run(tmp_path: Path) -> None:
    assert checkpoints.read(tmp_path / "none") == Checkpoint()


def test_newest_batch_counts_and_is_pending_without_a_commit(tmp_path: Path) -> None:
    write_batch(tmp_path, 9, source(3))
    write_batch(tmp_path, 10, source(2**31 + 5), source(7, table="t2"))
    (tmp_path / "offsets" / ".10.crc").write_text("")
    whole = {"t1": DeltaOffset(2**31 + 5, True), "t2": DeltaOffset(7, True)}
    assert checkpoints.read(tmp_path) == Checkpoint(whole, offered=10, committed=10)
    write_batch(tmp_path, 11, source(2**31 + 6), committed=False)
    actual = checkpoints.read(tmp_path)
    assert actual == Checkpoint({"t1": DeltaOffset(2**31 + 6, True)}, offered=11, committed=10)
    assert (actual.has_pending_batch, actual.has_started) == (True, True)


def test_flow_with_unfinished_first_batch_hasnt_started(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, source(3), committed=False)
    actual = checkpoints.read(tmp_path)
    assert (actual.has_pending_batch, actual.has_started) == (True, False)


def test_checkpoint_with_start_offset_has_started_after_both_batches(
    tmp_path: Path,
) -> None:
    part, started = (
        source(7, 2),
        Checkpoint({"t1": DeltaOffset(7, False)}, offered=1, committed=1, has_start_offset=True),
    )
    checkpoints.write_start_offset(tmp_path / "f", part)
    assert checkpoints.read(tmp_path / "f") == started
    # `write_start_offset` can be repeated after a crash at any of its writes.
    for gone in ("commits/1", "commits/0", "offsets/1", "offsets/0"):
        (tmp_path / "f" / gone).unlink()
        assert checkpoints.read(tmp_path / "f") == Checkpoint(has_start_offset=True)
    checkpoints.write_start_offset(tmp_path / "f", part)
    assert checkpoints.read(tmp_path / "f") == started
    # A suspended run that repeats it later doesn't reset the offset.
    write_batch(tmp_path / "f", 2, source(8))
    checkpoints.write_start_offset(tmp_path / "f", part)
    assert checkpoints.read(tmp_path / "f").offsets == {"t1": DeltaOffset(8, True)}


def test_checkpoint_is_advanced_to_the_offsets_where_others_stopped(tmp_path: Path) -> None:
    old, first, second = tmp_path / "old", tmp_path / "first", tmp_path / "second"
    write_batch(old, 6, source(3), source(5, table="t2"))
    write_batch(old, 7, source(4), source(9, table="t2"), committed=False)
    write_batch(first, 2, source(6, 4))
    write_batch(second, 8, source(7, table="t2"))
    # Batch 7 doesn't count, so the second source's offset is that of the flow.
    checkpoints.advance_offsets(old, 6, [first, second, tmp_path / "none"])
    advanced = Checkpoint({"t1": DeltaOffset(6, False), "t2": DeltaOffset(7, True)}, offered=9, committed=9)
    assert checkpoints.read(old) == advanced
    checkpoints.advance_offsets(old, 6, [first, second])
    assert checkpoints.read(old) == advanced
    # The batches after 6 have no rows.
    assert checkpoints.read_advanced_batches(old) == {8: 9, 7: 9, 6: 9}
    # The furthest offset of each source counts, also within a commit.
    write_batch(old, 10, source(6, 2), source(9, table="t2"))
    checkpoints.advance_offsets(old, None, [first, second])
    advanced = Checkpoint({"t1": DeltaOffset(6, False), "t2": DeltaOffset(9, True)}, offered=12, committed=12)
    assert checkpoints.read(old) == advanced
    assert '"index": 4' in (old / "offsets" / "12").read_text()
    assert checkpoints.read_advanced_batches(old) == {11: 12, 10: 12, 8: 9, 7: 9, 6: 9}
    # Batches that aren't finished, or that the stream made itself, don't count.
    (old / "commits" / "12").unlink()
    write_batch(old, 13, source(8))
    assert checkpoints.read_advanced_batches(old) == {10: 11, 8: 9, 7: 9, 6: 9}
    (old / "commits" / "13").unlink()
    (old / "offsets" / "13").unlink()
    (old / "commits" / "12").write_text("v1")
    with raises("OFFSET_FILE_MISSING", file=re.compile("offsets/5$")):
        checkpoints.advance_offsets(old, 5, [first])
    with raises("CHECKPOINT_WITHOUT_OFFSETS", folder=tmp_path / "none"):
        checkpoints.advance_offsets(tmp_path / "none", None, [first])


def test_checkpoint_keeps_its_query_id(tmp_path: Path) -> None:
    first = checkpoints.create_query_id(tmp_path / "f")
    assert checkpoints.create_query_id(tmp_path / "f") == first
    assert checkpoints.read(tmp_path / "f") == Checkpoint(id=first)


def test_offset_lines_end_only_at_newlines(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, source(3))
    offsets = tmp_path / "offsets" / "0"
    settings = '{"conf":{"spark.app.name":"a\u2028b"}}'
    offsets.write_text("\n".join(["v1", settings, source(3)]), "utf-8")
    assert checkpoints.read(tmp_path).offsets == {"t1": DeltaOffset(3, True)}


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
        "at a commit's start in newer logs",
        "inside a commit",
        "inside the snapshot",
    ],
)
def test_offset_is_whole_only_between_two_commits(tmp_path: Path, line: str, whole: bool) -> None:
    write_batch(tmp_path, 0, line)
    assert checkpoints.read(tmp_path).offsets == {"t1": DeltaOffset(4, whole)}


def test_source_that_isnt_a_delta_table_has_no_offset(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, '{"logOffset":3}', "-", source(1))
    actual = checkpoints.read(tmp_path)
    assert (actual.offsets, actual.has_untracked_sources, actual.has_started) == (
        {"t1": DeltaOffset(1, True)},
        True,
        True,
    )


def test_flow_without_delta_sources_has_started(tmp_path: Path) -> None:
    write_batch(tmp_path, 0, '{"logOffset":3}')
    assert (checkpoints.read(tmp_path).offsets, checkpoints.read(tmp_path).has_started) == ({}, True)


@pytest.mark.parametrize("text", ["", '{"id":"4', "{}", "[]", '"id"', '{"id":""}'])
def test_truncated_metadata_file_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata").write_text('{"id":"4b1f"}')
    assert checkpoints.read(tmp_path) == Checkpoint(id="4b1f")
    (tmp_path / "metadata").write_text(text)
    with raises("FLOW_CHECKPOINT_DAMAGED", folder=tmp_path, reason=re.compile("/metadata isn't a complete")):
        checkpoints.read(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "v1\n", 'v1\n{"batch', 'v1\n{}\n{"reservoirId":"t1","reser', 'v1\n{}\n{"reservoirId":"t1"}']
)
def test_truncated_offset_file_is_refused_with_its_path(tmp_path: Path, text: str) -> None:
    write_batch(tmp_path, 0)
    (tmp_path / "offsets" / "0").write_text(text)
    with raises("FLOW_CHECKPOINT_DAMAGED", folder=tmp_path, reason=re.compile("offsets/0 isn't a complete")):
        checkpoints.read(tmp_path)


def test_run_once_flow_is_done_after_mark_done(tmp_path: Path) -> None:
    checkpoints.mark_done(tmp_path / "f_once")
    assert checkpoints.read(tmp_path / "f_once") == Checkpoint(done=True)
