"""Locations in Hadoop's notation, and their local folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableferry.formats.hive.locations import below, escape_wildcards, reachable

ROOT = "file:/data/t"


@pytest.mark.parametrize(
    ("location", "relative"),
    [
        ("file:/data/t", ""),
        ("file:///data//t/", ""),
        ("file:/data/t/a b%2F/x", "a b%2F/x"),
        ("/data/t/a", "a"),
        ("file:/data/t2", None),
        ("file:/data", None),
        ("hdfs://name/data/t/a", None),
    ],
)
def test_location_is_inside_or_outside_root(location: str, relative: str | None) -> None:
    assert below(location, ROOT) == relative


def test_storage_root_contains_all_locations() -> None:
    assert below("s3://bucket/a/b", "s3://bucket/") == "a/b"
    assert below("s3://bucket/a/b", "s3://bucket") == "a/b"
    assert below("s3://other/a/b", "s3://bucket") is None


@pytest.mark.parametrize(
    ("location", "folder"),
    [
        ("file:/data/a b%41?#", "/data/a b%41?#"),
        ("file:///data/t/", "/data/t"),
        ("/data/t", "/data/t"),
        ("s3://bucket/t", None),
        ("hdfs:/data/t", None),
        ("dbfs:/data/t", None),
        ("file://elsewhere/data/t", None),
        ("data/t", None),
    ],
)
def test_process_on_same_machine_reads_local_files(location: str, folder: str | None) -> None:
    assert reachable(location, same_machine=True) == (Path(folder) if folder else None)
    assert reachable(location, same_machine=False) is None


def test_wildcards_in_locations_are_literal() -> None:
    assert escape_wildcards("s3://b/a[1]*{x}?\\ y") == "s3://b/a\\[1\\]\\*\\{x\\}\\?\\\\ y"
