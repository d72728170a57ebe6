"""Searches for the tables below a folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests import conditions

from tableferry.convert.discovery.table_roots import find_roots


def put(root: Path, *paths: str, data: bytes = b"") -> None:
    for path in paths:
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def roots_below(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in find_roots(root)]


def test_table_roots_of_all_kinds_are_found(tmp_path: Path) -> None:
    put(
        tmp_path,
        "flat/f.parquet",
        "flat/_SUCCESS",
        "sales/orders/year=1/month=1/f.PARQ",
        "sales/x/y/f.snappy.parquet",
    )
    put(tmp_path, "delta/_delta_log/00000000000000000000.json", "delta/f.parquet")
    put(
        tmp_path,
        "iceberg/metadata/v1.metadata.json",
        "iceberg/data/f.parquet",
        "hudi/.hoodie/x",
        "hudi/p=1/f.parquet",
    )
    put(tmp_path, "sink/_spark_metadata/0")
    put(
        tmp_path,
        "csv/f.csv",
        "empty/_SUCCESS",
        "nothing/p=1/_f.parquet",
        ".hidden/f.parquet",
        "_tmp/f.parquet",
    )
    put(tmp_path, "hive/p=1/000000_0", data=b"PAR1 and so on")
    put(tmp_path, "locked/part-0", data=b"PARE and so on")
    put(tmp_path, "logs/000000_0", data=b"not Parquet")
    assert roots_below(tmp_path) == [
        *("delta", "flat", "hive", "hudi", "iceberg", "locked", "sales/orders", "sales/x/y", "sink"),
    ]


def test_given_folder_may_be_a_table(tmp_path: Path) -> None:
    put(tmp_path, "p=1/f.parquet", "plain/f.parquet")
    assert roots_below(tmp_path) == ["."]


def test_files_next_to_directories_form_one_table(tmp_path: Path) -> None:
    put(tmp_path, "t/f.parquet", "t/more/g.parquet", "t/more/p=1/h.parquet")
    assert roots_below(tmp_path) == ["t"]


def test_partition_directories_of_delta_table_are_no_roots(tmp_path: Path) -> None:
    put(tmp_path, "env=prod/orders/_delta_log/00000000000000000000.json", "env=prod/orders/f.parquet")
    put(tmp_path, "env=test/orders/.hoodie/x", "env=test/orders/f.parquet")
    assert roots_below(tmp_path) == ["env=prod/orders", "env=test/orders"]


def test_table_root_search_follows_links_once(tmp_path: Path) -> None:
    put(tmp_path, "a/t/f.parquet", "p=1/nothing")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "a/up").symlink_to("..")
    (tmp_path / "p=1/up").symlink_to("..")
    (tmp_path / "a/self").symlink_to("self")
    (tmp_path / "a/gone").symlink_to("nowhere")
    assert roots_below(tmp_path) == ["a/t"]


def test_table_root_search_requires_a_folder(tmp_path: Path) -> None:
    with conditions.raises("FOLDER_MISSING", folder=tmp_path / "missing"):
        find_roots(tmp_path / "missing")
    assert find_roots(tmp_path) == []


NAMES = st.sampled_from(["a", "b", "p=1", "p=2", "_h", "_h=1", "é x"])
PATHS = st.tuples(st.lists(NAMES, max_size=4), st.sampled_from(["f.parquet", "f.csv", "_f.parquet"]))


@given(st.lists(PATHS, max_size=8))
def test_every_visible_file_has_exactly_one_root(paths: list[tuple[list[str], str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        put(top, *("/".join([*parts, name]) for parts, name in paths))
        roots = find_roots(top)
        for parts, name in paths:
            file = top.joinpath(*parts, name)
            visible = name == "f.parquet" and "_h" not in parts
            above = [root for root in roots if root in file.parents]
            assert len(above) <= 1
            assert len(above) == 1 or not visible
        for root in roots:
            assert any(
                root in top.joinpath(*parts).parents or root == top.joinpath(*parts)
                for parts, name in paths
                if name == "f.parquet" and "_h" not in parts
            )
