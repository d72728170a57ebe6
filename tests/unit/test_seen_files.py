"""The log in which a file stream keeps which files it has read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from tests.conditions import raises

from tableferry import storage
from tableferry.pipelines import checkpoints, file_logs, seen_files, source_offsets
from tableferry.pipelines.seen_files import SeenFile
from tableferry.pipelines.source_offsets import FileOffset


def file(number: int, batch: int | None = None) -> SeenFile:
    return SeenFile(f"file:///in/{number}.json", 1000 + number, number if batch is None else batch)


def log(folder: Path, batches: dict[str, Iterable[SeenFile]]) -> Path:
    folder.mkdir(parents=True)
    for name, seen in batches.items():
        folder.joinpath(name).write_text("".join(seen_files.written(seen)), "utf-8")
    return folder


def test_a_line_of_the_log_is_read_as_spark_writes_it() -> None:
    line = '{"path":"file:///in/a%20b.json","timestamp":1795539466469,"batchId":3}'
    (seen,) = seen_files.parse(f"v1\n{line}")
    assert seen == SeenFile("file:///in/a%20b.json", 1795539466469, 3)
    assert seen.readable == "file:///in/a b.json"
    assert "".join(seen_files.written([seen])) == f"v1\n{line}"
    assert json.loads("".join(seen_files.written([seen], 9)).split("\n")[1])["batchId"] == 9
    assert seen_files.parse("v1") == ()


@pytest.mark.parametrize(
    "text", ["", "v2\n", 'v1\n{"path":"file:///in/a', 'v1\n{"path":"file:///in/a"}', "v1\n3"]
)
def test_half_a_file_of_the_log_is_no_log(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        seen_files.parse(text)


@pytest.mark.parametrize(
    ("names", "until", "expected"),
    [
        (["0", "1", "2"], 1, ("0", "1")),
        (["0", "8", "9.compact", "10", "11"], 10, ("9.compact", "10")),
        # The compact file holds batches that came later.
        (["9.compact", "19.compact", "20"], 12, ("19.compact",)),
        (["9.compact", "9.compact.tmp", ".10.crc", "x.compact", "10"], 10, ("9.compact", "10")),
    ],
)
def test_only_the_newest_compact_file_and_what_is_behind_it_is_read(
    names: list[str], until: int, expected: tuple[str, ...]
) -> None:
    assert seen_files.needed(names, until) == expected


@pytest.mark.parametrize(
    ("names", "until", "missing"),
    [
        ([], 0, "it has no batch 0"),
        (["1", "2"], 2, "it has no batch 0"),
        (["9.compact", "11"], 11, "it has no batch 10"),
        (["0", "1"], 2, "it has no batch 2"),
    ],
)
def test_a_log_that_lacks_batches_is_none(names: list[str], until: int, missing: str) -> None:
    with pytest.raises(ValueError, match=missing):
        seen_files.needed(names, until)


def test_what_was_read_up_to_a_batch_is_told_by_the_log(tmp_path: Path) -> None:
    folder = log(tmp_path / "sources" / "0", {"9.compact": map(file, range(10)), "10": [file(10)]})
    assert file_logs.read(folder, 4) == tuple(map(file, range(5)))
    assert file_logs.read(folder, 10) == tuple(map(file, range(11)))
    with raises("FILE_LOG_INCOMPLETE", log=folder, reason="it has no batch 11"):
        file_logs.read(folder, 11)
    log(tmp_path / "cut", {"9.compact": map(file, range(8))})
    with raises("FILE_LOG_INCOMPLETE", reason="it names no file that batch 9 has read"):
        file_logs.read(tmp_path / "cut", 5)
    (folder / "10").write_text('v1\n{"path":"file:/')
    with raises("FILE_LOG_INCOMPLETE", log=folder / "10"):
        file_logs.read(folder, 10)


def test_a_checkpoint_s_file_source_has_its_log(tmp_path: Path) -> None:
    settings = json.dumps({"batchWatermarkMs": 0})
    table = '{"sourceVersion":1,"reservoirId":"t","reservoirVersion":5,"index":-1,"isStartingVersion":false}'
    for folder, lines in (("alone", ['{"logOffset":7}']), ("both", [table, '{"logOffset":7}'])):
        for name in ("offsets", "commits"):
            (tmp_path / folder / name).mkdir(parents=True)
        (tmp_path / folder / "metadata").write_text('{"id":"q"}')
        (tmp_path / folder / "offsets" / "3").write_text("\n".join(["v1", settings, *lines]))
        (tmp_path / folder / "commits" / "3").write_text("v1\n{}")
    alone = checkpoints.read(tmp_path / "alone")
    assert alone.files == FileOffset(7)
    assert alone.files is not None
    assert alone.files.log == tmp_path / "alone" / "sources" / "0"
    assert alone.caught_up
    read, others = checkpoints.read_batch(tmp_path / "both", 3)
    assert not others
    assert read.keys() == {"t", "files:1"}
    assert source_offsets.read(str(FileOffset(7))) == ("files:0", FileOffset(7))


def test_a_seeded_log_has_all_files_in_one_compact_batch(tmp_path: Path) -> None:
    file_logs.seed(tmp_path, map(file, range(3)))
    file_logs.seed(tmp_path, map(file, range(3)))
    seen = file_logs.read(file_logs.folder(tmp_path, 0), seen_files.SEEDED_BATCH)
    assert seen == tuple(file(number, seen_files.SEEDED_BATCH) for number in range(3))


def crashed_before(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Let the process die before the n-th change that it makes to files."""
    steps = count()

    def guarded(change: Callable[..., object]) -> Callable[..., object]:
        def changes(*args: object) -> object:
            if next(steps) == step:
                raise KeyboardInterrupt
            return change(*args)

        return changes

    for name in ("create_text", "remove"):
        monkeypatch.setattr(storage, name, guarded(getattr(storage, name)))


@pytest.mark.parametrize("step", range(6))
def test_a_log_takes_what_a_flow_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """What it has read behind the batch doesn't count, and the process may die at any point."""
    folder = log(tmp_path / "log", {"9.compact": map(file, range(10)), "10": [file(10)], "11": [file(11)]})
    folder.joinpath(".9.compact.crc").write_text("x")
    flow = [*(file(number, 9) for number in range(11)), file(20, 10), file(21, 11)]
    with monkeypatch.context() as patched:
        crashed_before(patched, step)
        with suppress(KeyboardInterrupt):
            file_logs.move_on(folder, 10, [flow, [file(99)]])
    number = file_logs.move_on(folder, 10, [flow, [file(99)]])
    seen = {entry.path for entry in file_logs.read(folder, number)}
    assert number == 12
    assert seen == {file(n).path for n in (*range(11), 20, 21)}
    assert [name for name in os.listdir(folder) if ".compact" in name] == [f"{number}.compact"]
    # What was read up to an earlier batch is known still.
    assert file_logs.read(folder, 4) == tuple(map(file, range(5)))
    assert file_logs.move_on(folder, number, []) == number


def test_a_log_goes_back_where_no_flow_has_read_anything(tmp_path: Path) -> None:
    folder = log(tmp_path / "log", {"0": [file(0)], "1": [file(1)], "2": [file(2)]})
    assert file_logs.move_on(folder, 2, []) == 2
    assert sorted(os.listdir(folder)) == ["0", "1", "2"]
    assert file_logs.move_on(folder, 1, []) == 3
    assert {entry.path for entry in file_logs.read(folder, 3)} == {file(0).path, file(1).path}
    assert file_logs.move_on(folder, 1, []) == 3


def test_files_beyond_known_ones_are_told_by_their_paths() -> None:
    known = [file(0), file(1)]
    again = SeenFile("file:///in/2.json", 9999, 4)
    assert seen_files.beyond([file(0, 9), file(1, 9), file(2), again], known) == (again,)
    assert FileOffset(1, seen=(file(0, 9), file(1, 9))).reaches(FileOffset(0, seen=(file(0),)))
    assert not FileOffset(1, seen=(file(0),)).reaches(FileOffset(0, seen=(file(0), file(1))))


@pytest.mark.parametrize(
    ("path", "seen", "is_outside"),
    [
        ("/in", "file:///in/1.json", False),
        ("/in/", "file:///in/sub/1.json", False),
        ("file:/in", "file:///in/1.json", False),
        ("file:///in", "file:///in/1.json", False),
        ("/in/1.json", "file:///in/1.json", False),
        ("/a b%20c", "file:///a%20b%2520c/1%23%3F.json", False),
        ("/in/*/x", "file:///in/2020/x/1.json", False),
        ("/in/20{20,21}", "file:///in/2020/1.json", False),
        ("s3://bucket/in", "s3://bucket/in/1.json", False),
        ("/mnt/in", "dbfs:/mnt/in/1.json", False),
        ("/in", "file:///inside/1.json", True),
        ("/in/x*", "file:///out/x1/1.json", True),
        ("s3://bucket/in", "s3a://bucket/in/1.json", True),
        ("s3://other/in", "s3://bucket/in/1.json", True),
        ("in", "file:///here/in/1.json", True),
    ],
)
def test_files_outside_of_the_view_are_named(path: str, seen: str, is_outside: bool) -> None:
    outside = seen_files.outside([SeenFile(seen, 0, 0)], path)
    assert bool(outside) is is_outside
