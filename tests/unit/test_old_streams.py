"""The version of a legacy table that old streams hand over, and later commits of that table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from tests.conditions import check, raises

from tableferry.errors import StateError
from tableferry.formats.delta.commits import Commit, lasting
from tableferry.pipelines.handover.stream_checkpoints import (
    OldStream,
    choose_version,
    classify_commits,
    classify_target_commits,
    read_batch_offsets,
)
from tableferry.pipelines.model.facts import HandOver, LegacyWrites
from tableferry.pipelines.model.source_offsets import DeltaOffset
from tableferry.spark.tables import TableName

NOTHING: Mapping[str, str] = MappingProxyType({})
ONE, TWO = OldStream(Path("/checkpoints/one"), "q1"), OldStream(Path("/checkpoints/two"), "q2")


UNUSABLE = StateError("OLD_OFFSETS_MISSING", folder="/checkpoints/one", batch=0)


def batch(version: int, query: str, number: int) -> Commit:
    return Commit(version, "STREAMING UPDATE", {"queryId": query, "epochId": str(number)}, {})


def other(
    version: int, operation: str = "WRITE", metrics: Mapping[str, str] = NOTHING, user_metadata: str = ""
) -> Commit:
    return Commit(version, operation, {}, metrics, user_metadata=user_metadata)


def whole(version: int, table: str = "t1") -> dict[str, DeltaOffset]:
    return {table: DeltaOffset(version, True)}


def within_commit(version: int) -> dict[str, DeltaOffset]:
    return {"t1": DeltaOffset(version, False)}


def test_newest_version_is_handed_over_with_rows_of_other_writers() -> None:
    commits = [other(5), batch(4, "q1", 3), batch(3, "q1", 2)]
    found = choose_version([ONE], commits, {"q1": {3: whole(8), 2: whole(7)}})
    assert found == HandOver(5, {"t1": 7}, {"q1": 3})


def test_batch_that_ends_within_a_commit_is_left_to_the_flow() -> None:
    commits = [batch(6, "q1", 4), batch(5, "q1", 3), other(4, "OPTIMIZE"), batch(3, "q1", 2)]
    offsets = {"q1": {4: within_commit(9), 3: within_commit(8), 2: whole(8)}}
    assert choose_version([ONE], commits, offsets) == HandOver(4, {"t1": 7}, {"q1": 2})
    with raises("OLD_STREAM_WITHIN_VERSION", batch=4, query="q1", version=9):
        choose_version([ONE], commits[:3], offsets)


def test_batch_within_a_commit_is_handed_over_if_the_flow_can_start_there() -> None:
    commits = [batch(5, "q2", 7), batch(4, "q1", 3)]
    part = {"t1": DeltaOffset(9, False, '{"index":2}')}
    offsets = {"q1": {3: part}, "q2": {7: whole(4, "t2")}}
    found = choose_version([ONE, TWO], commits, offsets, mid_commit_sources={"t1"})
    batches = {"q1": 3, "q2": 7}
    assert found == HandOver(5, {"t1": 8, "t2": 3}, batches, within={"t1": '{"index":2}'})
    with raises("OLD_STREAM_WITHIN_VERSION", version=9):
        choose_version([ONE, TWO], commits, offsets, mid_commit_sources={"t2"})
    other_part = {"q1": {3: part}, "q2": {7: {"t1": DeltaOffset(9, False, '{"index":3}')}}}
    with raises("OLD_STREAMS_APART"):
        choose_version([ONE, TWO], commits, other_part, mid_commit_sources={"t1"})


@pytest.mark.parametrize(
    ("lines", "condition"),
    [
        (['{"logOffset":7}'], "OLD_STREAM_READS_FILES"),
        (['{"seqNum":35,"sourceVersion":1}'], "OLD_STREAM_READS_FILES"),
        (
            [
                '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":5,"index":-1,"isStartingVersion":false}',
                '{"logOffset":7}',
            ],
            "OLD_STREAM_READS_FILES",
        ),
        (["-"], "OLD_STREAM_SOURCE_UNKNOWN"),
    ],
    ids=["Spark's file stream", "Auto Loader", "a table and files", "nothing yet"],
)
def test_checkpoint_of_a_stream_that_reads_files_is_refused(
    tmp_path: Path, lines: list[str], condition: str
) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text("\n".join(["v1", "{}", *lines]))
    found = read_batch_offsets(OldStream(tmp_path, "q1"), 3)
    assert isinstance(found, StateError)
    check(found, condition, folder=tmp_path, batch=3)


def test_batch_without_rows_advances_only_the_newest_version() -> None:
    commits = [other(7), batch(6, "q1", 4), batch(5, "q1", 3)]
    offsets = {"q1": {9: within_commit(20), 4: whole(8), 3: whole(7)}}
    advanced = {("q1", 4): 9}
    found = choose_version([ONE], commits, offsets, mid_commit_sources={"t1"}, advanced_batches=advanced)
    assert found.batches == {"q1": 9}
    # If its offset can't be used, an older version can be handed over.
    assert choose_version([ONE], commits, offsets, advanced_batches=advanced) == HandOver(
        5, {"t1": 6}, {"q1": 3}
    )


def test_commits_undone_by_restore_are_left_out() -> None:
    restored = Commit(8, "RESTORE", {"version": "5"}, {})
    commits = [batch(9, "q1", 5), restored, batch(7, "q1", 4), other(6), batch(5, "q1", 3)]
    assert [commit.version for commit in lasting(commits)] == [9, 8, 5]
    assert [commit.version for commit in lasting(commits[1:])] == [8, 5]
    # For a RESTORE to a timestamp, the log doesn't record the version.
    to_a_time = [batch(9, "q1", 5), Commit(8, "RESTORE", {"version": ""}, {}), other(7)]
    assert [commit.version for commit in lasting(to_a_time)] == [9]
    assert [commit.version for commit in lasting(to_a_time, with_unknown=True)] == [9, 8, 7]


def test_restored_table_is_handed_over_at_the_restored_version() -> None:
    restored = Commit(4, "RESTORE", {"version": "2"}, {})
    commits = [restored, batch(3, "q1", 1), batch(2, "q1", 0)]
    assert choose_version([ONE], commits, {"q1": {0: whole(5), 1: whole(7)}}) == HandOver(
        4, {"t1": 4}, {"q1": 0}
    )


def test_checkpoint_without_commits_is_named_and_can_be_left_out() -> None:
    commits = [batch(4, "q1", 3)]
    with pytest.raises(StateError) as raised:
        choose_version([ONE, TWO], commits, {"q1": {3: whole(5)}})
    check(raised.value, "OLD_STREAM_NOT_OF_TABLE", folder="/checkpoints/two", query="q2")
    assert "remove its checkpoint from the spec" in raised.value.remedy
    assert choose_version([ONE], commits, {"q1": {3: whole(5)}}).batches == {"q1": 3}
    with pytest.raises(StateError) as alone:
        choose_version([TWO], commits, {})
    check(alone.value, "OLD_STREAM_NOT_OF_TABLE", advice="")


def test_two_streams_of_one_source_are_handed_over_at_the_same_offset() -> None:
    commits = [batch(4, "q2", 1), batch(3, "q1", 1), batch(2, "q2", 0), batch(1, "q1", 0)]
    own = {"q1": {1: whole(5), 0: whole(3)}, "q2": {1: whole(9, "t2"), 0: whole(8, "t2")}}
    assert choose_version([ONE, TWO], commits, own) == HandOver(4, {"t1": 4, "t2": 8}, {"q1": 1, "q2": 1})
    same = {"q1": {1: whole(5), 0: whole(3)}, "q2": {1: whole(4), 0: whole(3)}}
    assert choose_version([ONE, TWO], commits, same) == HandOver(2, {"t1": 2}, {"q1": 0, "q2": 0})
    apart = {"q1": {1: whole(5), 0: whole(2)}, "q2": {1: whole(4), 0: whole(3)}}
    with raises("OLD_STREAMS_APART", reached="version 3", other="version 4"):
        choose_version([ONE, TWO], commits, apart)


@pytest.mark.parametrize(
    ("commits", "offsets", "condition", "parameters"),
    [
        ([other(2), batch(1, "q2", 0)], {}, "OLD_STREAM_NOT_OF_TABLE", {"commits": "2 commits"}),
        ([other(3, "RESTORE"), batch(2, "q1", 0)], {0: UNUSABLE}, "LEGACY_LOG_WITHOUT_COMMITS", {}),
        (
            [other(4), other(3, "CLONE"), batch(2, "q1", 0)],
            {0: UNUSABLE},
            "OLD_STREAM_NOT_OF_TABLE",
            {"commits": "1 commit", "folder": "/checkpoints/one"},
        ),
        ([], {}, "LEGACY_LOG_WITHOUT_COMMITS", {}),
        ([batch(1, "q1", 0)], {0: UNUSABLE}, "OLD_OFFSETS_MISSING", {"batch": 0}),
    ],
)
def test_error_of_the_newest_version_is_raised_if_no_version_is_usable(
    commits: list[Commit], offsets: dict[int, StateError], condition: str, parameters: dict[str, object]
) -> None:
    with raises(condition, **parameters):
        choose_version([ONE], commits, {"q1": offsets})


def test_commits_without_rows_arent_writes() -> None:
    commits = [other(9), other(8, "OPTIMIZE"), batch(7, "q1", 5), batch(6, "q1", 4), other(5), other(4, "")]
    writes = classify_commits(commits, {"q1"}, more=False)
    assert writes == LegacyWrites({"q1": 5}, 6, {"WRITE": [9, 5], "": [4]})
    unknown = "a commit without a recorded operation (1 version, the newest is 4)"
    assert str(writes) == f"WRITE (2 versions, the newest is 9), {unknown}"
    more = classify_commits(commits, (), more=True)
    assert str(more).startswith("WRITE (2 versions, the newest is 9), STREAMING UPDATE (2 versions")
    assert str(more).endswith(" and possibly earlier commits")
    assert str(classify_commits(commits[1:2], (), more=True)) == ""


@pytest.mark.parametrize(
    ("commits", "added", "first", "mixed"),
    [
        ([batch(9, "own", 1), batch(8, "own", 0)], {}, None, False),
        ([other(9, "OPTIMIZE"), other(8, "SET TBLPROPERTIES"), other(7, "")], {}, None, False),
        ([other(9, "DELETE"), other(8, "RESTORE")], {}, None, False),
        ([other(9), batch(8, "own", 0)], {"WRITE": [9]}, 9, False),
        ([batch(9, "own", 1), other(8), batch(7, "own", 0)], {"WRITE": [8]}, 8, True),
        ([batch(9, "redeployed", 0), other(8)], {"STREAMING UPDATE": [9], "WRITE": [8]}, 8, False),
        ([batch(9, "old", 4), batch(8, "own", 0)], {}, 9, False),
        ([other(9, user_metadata="tableferry:silver.out:f_once:0")], {}, None, False),
        ([other(9, user_metadata="tableferry:silver.other:f_once:0")], {"WRITE": [9]}, 9, False),
        ([other(9, metrics={"numOutputRows": "0"})], {}, None, False),
        ([other(9, "MERGE", metrics={"numTargetRowsInserted": "0"})], {}, None, False),
        ([other(9, "MERGE")], {"MERGE": [9]}, 9, False),
    ],
)
def test_commits_of_flows_and_maintenance_arent_foreign(
    commits: list[Commit], added: dict[str, list[int]], first: int | None, mixed: bool
) -> None:
    writes = classify_target_commits(commits, {"old"}, {"own"}, TableName.parse("silver.out"), more=False)
    assert (writes.foreign_appends, writes.first, writes.is_interleaved) == (added, first, mixed)
