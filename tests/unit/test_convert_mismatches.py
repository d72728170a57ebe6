"""Locations, and the catalog's partitions against the directories, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tableferry.convert.facts import PartitionColumn
from tableferry.convert.locations import below, literal, reachable
from tableferry.convert.mismatches import Registered, compare, sentences
from tableferry.convert.types import INTEGER, STRING
from tableferry.tables import TableName

ROOT = "file:/data/t"
COLUMNS = (PartitionColumn("Year", INTEGER), PartitionColumn("city", STRING))


def at(spec: str, place: str | None = None) -> Registered:
    return Registered(spec, f"{ROOT}/{place or spec}")


def test_what_both_know_is_no_mismatch_however_it_is_spelt() -> None:
    registered = [at("year=2024/city=a%3Ab"), at("year=7/city=x", "Year=007/city=x")]
    assert not compare(registered, ["year=2024/city=a%3Ab", "Year=007/city=x"], ROOT, COLUMNS)


def test_a_swap_of_two_directories_is_seen_although_all_files_are_known() -> None:
    swapped = [at("year=1/city=a", "year=1/city=b"), at("year=1/city=b", "year=1/city=a")]
    found = compare(swapped, ["year=1/city=a", "year=1/city=b"], ROOT, COLUMNS)
    assert found.elsewhere == tuple(swapped)
    assert not found.fixable


def test_each_kind_of_mismatch_is_told_apart() -> None:
    outside = Registered("year=1/city=a", "file:/data/t2/year=1/city=a")
    gone, moved = at("year=2/city=a"), at("year=3/city=a", "new/place")
    found = compare([outside, gone, moved], ["year=1/city=a", "new/place", "odd", ""], ROOT, COLUMNS)
    assert (found.outside, found.missing, found.elsewhere) == ((outside,), (gone,), (moved,))
    # The directory that the catalog looks for elsewhere has files of its own, which nobody sees.
    assert found.unregistered == ("year=1/city=a",)


def test_a_directory_below_a_partition_belongs_to_it() -> None:
    assert not compare([at("year=1/city=a")], ["year=1/city=a/HIVE_UNION_SUBDIR_1"], ROOT, COLUMNS)


def test_what_only_the_catalog_or_only_the_disk_has_can_be_mended() -> None:
    found = compare([at("year=1/city=a")], ["year=2/city=a"], ROOT, COLUMNS)
    assert found.fixable
    told = sentences(TableName(("s", "t")), ROOT, found)
    assert [text.split(":")[0] for text in told] == [
        "1 partition of s.t in the catalog without a directory",
        "1 directory of s.t with files that no partition in the catalog has",
    ]
    assert all("--msck" in text for text in told)


def test_a_long_list_is_cut_and_counted() -> None:
    found = compare([], [f"year={year}/city=a" for year in range(2000, 2012)], ROOT, COLUMNS)
    [told] = sentences(TableName(("s", "t")), ROOT, found)
    assert told.startswith("12 directories of s.t")
    assert "year=2009/city=a and 2 more" in told
    assert "year=2010" not in told


@pytest.mark.parametrize(
    ("location", "place"),
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
def test_a_location_is_below_its_root_or_outside(location: str, place: str | None) -> None:
    assert below(location, ROOT) == place


def test_the_root_of_a_storage_holds_all_of_it() -> None:
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
def test_local_files_are_seen_by_a_process_on_the_same_machine(location: str, folder: str | None) -> None:
    assert reachable(location, same_machine=True) == (Path(folder) if folder else None)
    assert reachable(location, same_machine=False) is None


def test_wildcards_are_taken_for_themselves() -> None:
    assert literal("s3://b/a[1]*{x}?\\ y") == "s3://b/a\\[1\\]\\*\\{x\\}\\?\\\\ y"
