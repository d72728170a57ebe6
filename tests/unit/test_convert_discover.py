"""Listings of a table's files: included files, refused folders, and commits of streaming sinks."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.convert.discovery.listing import changes, list_at_rest, list_files
from tableferry.convert.discovery.table_formats import already_delta, foreign_format
from tableferry.formats.parquet.files import DataFile


def put(root: Path, *paths: str, size: int = 3) -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x" * size)


def listed(root: Path) -> list[str]:
    return [file.path for file in list_files(root)]


@pytest.fixture
def nobodys() -> Iterator[Path]:
    """Run the test as an unprivileged user, because root ignores rights; return the user's folder."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)
    finally:
        if root:
            os.seteuid(0)


def test_listing_returns_sorted_files_with_size_and_milliseconds(tmp_path: Path) -> None:
    put(tmp_path, "p=2/b.parquet", "p=2/a.parquet", "p=10/c.parquet", size=7)
    for path in ("p=2/b.parquet", "p=2/a.parquet", "p=10/c.parquet"):
        os.utime(tmp_path / path, ns=(0, 1_700_000_000_123_999_999))
    assert list_files(tmp_path) == (
        DataFile("p=10/c.parquet", 7, 1_700_000_000_123),
        DataFile("p=2/a.parquet", 7, 1_700_000_000_123),
        DataFile("p=2/b.parquet", 7, 1_700_000_000_123),
    )


def test_listing_skips_hidden_names_except_partitions(tmp_path: Path) -> None:
    put(tmp_path, "_SUCCESS", ".a.crc", "_temporary/0/f", ".x/f", "_k=1/f", ".k=1/f", "_k=1/_f", "_k=1/_t/f")
    assert listed(tmp_path) == [".k=1/f", "_k=1/f"]


def test_listing_returns_every_visible_file(tmp_path: Path) -> None:
    put(tmp_path, "README", "a=b.parquet", "000000_0", "d/plain", "d/ä %41.parquet")
    put(tmp_path, "empty.parquet", size=0)
    (tmp_path / "nothing/in/here").mkdir(parents=True)
    assert listed(tmp_path) == [
        "000000_0",
        "README",
        "a=b.parquet",
        "d/plain",
        "d/ä %41.parquet",
        "empty.parquet",
    ]


NAMES = st.one_of(
    st.sampled_from(
        ["_a", ".a", "_a=1", ".a=1", "a=1", "a", "a b", "%3A=é:", "=", "_", "x=%", "a=a=a", "_delta"]
    ),
    st.text(
        st.characters(blacklist_categories=["Cs"], blacklist_characters="/\0"), min_size=1, max_size=8
    ).filter(lambda name: name not in (".", "..")),
)


@given(st.lists(st.lists(NAMES, min_size=1, max_size=4), min_size=1, max_size=8))
def test_listing_equals_os_walk(trees: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for parts in trees:
            try:
                put(root, "/".join(parts))
            except OSError:  # A file has the name of a directory, or the reverse.
                continue
        expected = sorted(
            path.relative_to(root).as_posix()
            for path in root.rglob("*")
            if path.is_file()
            and path.name[0] not in "_."
            and all(
                part[0] not in "_." or "=" in part
                for part in path.relative_to(root).as_posix().split("/")[:-1]
            )
        )
        if any(":" in path.rpartition("/")[2] for path in expected):
            with conditions.raises("FILE_NAME_WITH_COLON", folder=root):
                list_files(root)
        elif expected:
            assert listed(root) == expected
        else:
            with conditions.raises("NO_PARQUET_FILES", folder=root):
                list_files(root)


def test_listing_follows_links(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    put(other, "f.parquet", "deep/g.parquet", size=9)
    put(root, "p=1/a.parquet")
    (root / "p=2").symlink_to(other)
    (root / "p=3").mkdir()
    (root / "p=3/h.parquet").symlink_to(other / "f.parquet")
    assert listed(root) == ["p=1/a.parquet", "p=2/deep/g.parquet", "p=2/f.parquet", "p=3/h.parquet"]
    assert list_files(root)[3].size == 9


@pytest.mark.parametrize("target", [".", "..", "../..", "../../a", "../../../root"])
def test_listing_refuses_loop_of_links(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    put(root, "a/b/f.parquet")
    (root / "a/b/link").symlink_to(target)
    with conditions.raises("LINK_CYCLE", link=re.compile("a/b/link")):
        list_files(root)


def test_listing_refuses_links_into_each_other(tmp_path: Path) -> None:
    put(tmp_path, "a/f", "b/f")
    (tmp_path / "a/to_b").symlink_to("../b")
    (tmp_path / "b/to_a").symlink_to("../a")
    with conditions.raises("LINK_CYCLE"):
        list_files(tmp_path)


def test_listing_accepts_link_to_sibling(tmp_path: Path) -> None:
    put(tmp_path, "table/p=1/f")
    (tmp_path / "table/p=2").symlink_to("p=1")
    assert listed(tmp_path / "table") == ["p=1/f", "p=2/f"]


def test_listing_names_broken_links(tmp_path: Path) -> None:
    put(tmp_path, "f.parquet")
    (tmp_path / "gone.parquet").symlink_to("nowhere")
    with conditions.raises("LINK_TARGET_MISSING", link=tmp_path / "gone.parquet"):
        list_files(tmp_path)
    (tmp_path / "gone.parquet").unlink()
    (tmp_path / "self").symlink_to("self")
    with conditions.raises("PATH_NOT_READABLE", path=tmp_path / "self"):
        list_files(tmp_path)


def test_listing_names_special_files(tmp_path: Path) -> None:
    put(tmp_path, "f.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    with conditions.raises("NOT_A_FILE", file=tmp_path / "pipe.parquet"):
        list_files(tmp_path)


def test_listing_refuses_file_names_that_are_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"p=\xff")).mkdir()
    (tmp_path / os.fsdecode(b"p=\xff") / "f").touch()
    with conditions.raises("FILE_NAME_NOT_UTF8", name=re.compile(r"p=\\xff/f'$"), folder=tmp_path):
        list_files(tmp_path)


def test_missing_folder_file_and_empty_folder_are_distinguished(tmp_path: Path) -> None:
    with conditions.raises("FOLDER_MISSING", folder=tmp_path / "missing"):
        list_files(tmp_path / "missing")
    put(tmp_path, "file")
    with conditions.raises("FOLDER_IS_FILE", folder=tmp_path / "file"):
        list_files(tmp_path / "file")
    (tmp_path / "empty/p=1").mkdir(parents=True)
    with conditions.raises("NO_PARQUET_FILES", folder=tmp_path / "empty"):
        list_files(tmp_path / "empty")


def test_listing_names_unreadable_directory(nobodys: Path) -> None:
    put(nobodys, "p=1/f", "p=2/f", "_delta_log/x")
    (nobodys / "p=2").chmod(0)
    (nobodys / "_delta_log").chmod(0)
    with conditions.raises("PATH_NOT_READABLE", path=nobodys / "p=2", reason="Permission denied"):
        list_files(nobodys)
    with conditions.raises("FOLDER_NOT_LISTABLE", folder=nobodys / "_delta_log", reason="Permission denied"):
        already_delta(nobodys)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.json",
        "00000000000000000010.checkpoint.parquet",
        "00000000000000000010.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000010.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "_last_checkpoint",
    ],
)
def test_folder_with_commit_is_a_delta_table(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"_delta_log/{name}")
    assert already_delta(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.json.tmp",
        ".00000000000000000000.json.crc",
        "00000000000000000000.crc",
        "0.json",
        "_staged_commits/00000000000000000000.0d5cd2a5.json",
        "_commits/x",
    ],
)
def test_log_without_commit_is_no_delta_table(tmp_path: Path, name: str) -> None:
    put(tmp_path, f"_delta_log/{name}")
    assert not already_delta(tmp_path)
    assert not already_delta(tmp_path / "missing")


def test_other_table_formats_are_named(tmp_path: Path) -> None:
    put(tmp_path, "iceberg/metadata/00000-6c1.metadata.json", "iceberg/data/f.parquet", "hudi/.hoodie/p")
    put(tmp_path, "zipped/metadata/v1.metadata.json.gz", "plain/metadata/f.parquet")
    formats = {
        name: foreign_format(tmp_path / name) for name in ("iceberg", "hudi", "zipped", "plain", "missing")
    }
    assert formats == {
        "iceberg": "Iceberg",
        "hudi": "Hudi",
        "zipped": "Iceberg",
        "plain": None,
        "missing": None,
    }


@pytest.mark.parametrize(
    ("path", "condition", "folder", "others"),
    [
        ("t/_delta_log/00000000000000000000.json", "FOLDER_CONTAINS_TABLE", "t", {"name": "_delta_log"}),
        ("p=1/t/.hoodie/x", "FOLDER_CONTAINS_TABLE", "p=1/t", {"name": ".hoodie"}),
        ("t/_spark_metadata/0", "FOLDER_CONTAINS_TABLE", "t", {"name": "_spark_metadata"}),
        ("p=1/base_0000003/f", "TRANSACTIONAL_HIVE_TABLE", "p=1/base_0000003", {}),
        ("delta_0000001_0000002_0000/f", "TRANSACTIONAL_HIVE_TABLE", "delta_0000001_0000002_0000", {}),
    ],
)
def test_tables_inside_a_table_are_refused(
    tmp_path: Path, path: str, condition: str, folder: str, others: dict[str, str]
) -> None:
    put(tmp_path, "p=1/f.parquet", path)
    with conditions.raises(condition, folder=tmp_path / folder, **others):
        list_files(tmp_path)


def test_leftover_log_of_failed_conversion_is_no_table(tmp_path: Path) -> None:
    put(tmp_path, "p=1/f", "p=1/_delta_log/_staged_commits/x", "delta_2024/g", "base_2024/h")
    assert listed(tmp_path) == ["base_2024/h", "delta_2024/g", "p=1/f"]


def test_changes_between_listings_are_described() -> None:
    before = [DataFile("a", 1, 1), DataFile("b", 1, 1), DataFile("c", 1, 1), DataFile("d", 1, 1)]
    after = [DataFile("b", 2, 1), DataFile("c", 1, 2), DataFile("d", 1, 1), DataFile("e", 1, 1)]
    assert changes(before, before) == []
    assert changes(before, after) == [
        "a vanished",
        "b changed from 1 to 2 bytes",
        "c was written again",
        "e appeared",
    ]
    many = [DataFile(f"f{number}", 1, 1) for number in range(9)]
    assert changes([], many) == [*(f"f{number} appeared" for number in range(5)), "4 more files changed"]


def sink(root: Path, **batches: list[tuple[str, str]]) -> None:
    log = root / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    for name, entries in batches.items():
        lines = [json.dumps({"path": uri, "size": 3, "action": action}) for uri, action in entries]
        (log / name.lstrip("b").replace("_", ".")).write_text("\n".join(["v1", *lines]))


def test_sink_log_selects_committed_files(tmp_path: Path) -> None:
    root = tmp_path / "a b%"
    base = root.as_uri()
    put(root, "k=x%3A/1.parquet", "k=ä/2.parquet", "3.parquet", "tried.parquet", "dropped.parquet")
    sink(root, b0=[(f"{base}/k=x%253A/1.parquet", "add"), (f"{base}/dropped.parquet", "add")])
    sink(root, b1=[(f"{base}/k=ä/2.parquet", "add"), (f"{base}/dropped.parquet", "delete")])
    sink(root, b2=[(f"{base}/3.parquet", "add")])
    put(root, "_spark_metadata/.2.crc", "_spark_metadata/3.tmp")
    assert listed(root) == ["3.parquet", "k=x%3A/1.parquet", "k=ä/2.parquet"]


def test_compacted_sink_batch_replaces_earlier_batches(tmp_path: Path) -> None:
    base = tmp_path.as_uri()
    put(tmp_path, "0", "1", "2", "3")
    sink(tmp_path, b0=[(f"{base}/gone-since", "add")], b1_compact=[(f"{base}/1", "add")])
    sink(tmp_path, b2=[(f"{base}/2", "add")])
    assert listed(tmp_path) == ["1", "2"]


def test_sink_log_of_moved_folder_is_used(tmp_path: Path) -> None:
    put(tmp_path, "k=1/a", "a", "k=1/b")
    sink(
        tmp_path,
        b0=[("hdfs://host:8020/old/a%20place/k=1/a", "add"), ("hdfs://host:8020/old/a%20place/a", "add")],
    )
    sink(tmp_path, b1=[(f"{tmp_path.as_uri()}/k=1/b", "add")])
    assert listed(tmp_path) == ["a", "k=1/a", "k=1/b"]


def test_broken_sink_log_is_refused(tmp_path: Path) -> None:
    base, log = tmp_path.as_uri(), tmp_path / "_spark_metadata"
    put(tmp_path, "a", "b")
    sink(tmp_path)
    with conditions.raises("NO_PARQUET_FILES", folder=tmp_path):
        list_files(tmp_path)
    sink(tmp_path, b0=[(f"{base}/a", "add")], b2=[(f"{base}/b", "add")])
    with conditions.raises("SINK_LOG_BATCH_MISSING", log=log, batch=1, name="_spark_metadata"):
        list_files(tmp_path)
    sink(tmp_path, b1=[(f"{base}/gone", "add"), (f"{base}/too", "add")])
    with conditions.raises("SINK_LOG_FILES_MISSING", files=re.compile("gone.*too"), log=log):
        list_files(tmp_path)
    (log / "1").write_text("v2\n{}")
    with conditions.raises("SINK_LOG_VERSION_UNKNOWN", file=log / "1", found="v2", expected="v1"):
        list_files(tmp_path)
    for text in ("v1\n{", "v1\n[]"):
        (log / "1").write_text(text)
        with conditions.raises("SINK_LOG_BATCH_INVALID", file=log / "1"):
            list_files(tmp_path)


def test_listing_accepts_future_modification_times(tmp_path: Path) -> None:
    """The clock of a file server may be ahead of the local clock."""
    put(tmp_path, "p=1/f", "p=2/g")
    future = time.time() + 3600
    for folder in (tmp_path / "p=1", tmp_path):
        os.utime(folder, (future, future))
    assert list_at_rest(tmp_path) == list_files(tmp_path)
