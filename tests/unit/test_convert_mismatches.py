"""Comparison of the catalog's partitions with the directories, without Spark."""

from __future__ import annotations

from tableferry.formats.hive.partition_mismatches import compare, sentences
from tableferry.formats.hive.partitions import CatalogPartition, PartitionColumn
from tableferry.spark.tables import TableName
from tableferry.spark.types import INTEGER, STRING

ROOT = "file:/data/t"
COLUMNS = (PartitionColumn("Year", INTEGER), PartitionColumn("city", STRING))


def at(spec: str, location: str | None = None) -> CatalogPartition:
    return CatalogPartition(spec, f"{ROOT}/{location or spec}")


def test_partition_in_any_spelling_is_no_mismatch() -> None:
    registered = [at("year=2024/city=a%3Ab"), at("year=7/city=x", "Year=007/city=x")]
    assert not compare(registered, ["year=2024/city=a%3Ab", "Year=007/city=x"], ROOT, COLUMNS)


def test_swapped_partition_directories_are_a_mismatch() -> None:
    swapped = [at("year=1/city=a", "year=1/city=b"), at("year=1/city=b", "year=1/city=a")]
    mismatches = compare(swapped, ["year=1/city=a", "year=1/city=b"], ROOT, COLUMNS)
    assert mismatches.elsewhere == tuple(swapped)
    assert not mismatches.fixable


def test_mismatch_kinds_are_distinguished() -> None:
    outside = CatalogPartition("year=1/city=a", "file:/data/t2/year=1/city=a")
    gone, moved = at("year=2/city=a"), at("year=3/city=a", "new/place")
    mismatches = compare([outside, gone, moved], ["year=1/city=a", "new/place", "odd", ""], ROOT, COLUMNS)
    assert (mismatches.outside, mismatches.missing, mismatches.elsewhere) == ((outside,), (gone,), (moved,))
    # The catalog has another location for this directory, so its files are invisible.
    assert mismatches.unregistered == ("year=1/city=a",)


def test_subdirectory_belongs_to_its_partition() -> None:
    assert not compare([at("year=1/city=a")], ["year=1/city=a/HIVE_UNION_SUBDIR_1"], ROOT, COLUMNS)


def test_one_sided_partitions_can_be_repaired() -> None:
    mismatches = compare([at("year=1/city=a")], ["year=2/city=a"], ROOT, COLUMNS)
    assert mismatches.fixable
    report = sentences(TableName(("s", "t")), ROOT, mismatches)
    assert [text.split(":")[0] for text in report] == [
        "1 partition of s.t in the catalog without a directory",
        "1 directory of s.t with files that no partition in the catalog has",
    ]
    assert all("--msck" in text for text in report)


def test_long_mismatch_list_is_truncated_with_count() -> None:
    mismatches = compare([], [f"year={year}/city=a" for year in range(2000, 2012)], ROOT, COLUMNS)
    [report] = sentences(TableName(("s", "t")), ROOT, mismatches)
    assert report.startswith("12 directories of s.t")
    assert "year=2004/city=a and 7 more" in report
    assert "year=2005" not in report
