"""A folder inside a table belongs to that table and is never converted."""

from __future__ import annotations

import os
import re
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import conditions, soak

from tableferry import convert
from tableferry.convert.discovery import owning_tables
from tableferry.errors import StateError


def no_session() -> Any:
    raise AssertionError("a folder needs no Spark")


def write(file: Path, **columns: list[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)


def content(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def converted(folder: Path, **options: Any) -> convert.TableReport:
    [report] = convert.run([str(folder)], resolve=no_session, **options).tables
    return report


@pytest.fixture
def delta(tmp_path: Path) -> Path:
    """Return a Delta table of two partitions with deleted rows in one."""
    root = tmp_path / "lake" / "orders"
    rows = pa.table({"day": ["a", "a", "b"], "id": [1, 2, 3]})
    deltalake.write_deltalake(root, rows, partition_by=["day"])
    deltalake.DeltaTable(root).delete("id = 1")
    return root


def iceberg(root: Path) -> Path:
    write(root / "data" / "day=a" / "f.parquet", id=[1])
    (root / "metadata").mkdir()
    (root / "metadata" / "00000-6c1.metadata.json").write_text("{}")
    return root


def hudi(root: Path) -> Path:
    write(root / "day=a" / "f.parquet", id=[1])
    (root / ".hoodie").mkdir()
    (root / ".hoodie" / "hoodie.properties").write_text("")
    return root


def test_partition_of_delta_table_is_refused(delta: Path) -> None:
    before = content(delta)
    report = converted(delta / "day=a")
    assert report.outcome == "refused"
    conditions.check(
        report.error, "FOLDER_BELONGS_TO_TABLE", folder=delta / "day=a", format="Delta", table=delta
    )
    assert content(delta) == before


def test_iceberg_data_folder_is_refused_at_any_depth(tmp_path: Path) -> None:
    root = iceberg(tmp_path / "t")
    for folder in (root / "data", root / "data" / "day=a"):
        conditions.check(
            converted(folder).error, "FOLDER_BELONGS_TO_TABLE", folder=folder, format="Iceberg", table=root
        )
    assert not list(root.rglob("_delta_log"))


def test_partition_of_hudi_table_is_refused(tmp_path: Path) -> None:
    root = hudi(tmp_path / "t")
    report = converted(root / "day=a")
    conditions.check(report.error, "FOLDER_BELONGS_TO_TABLE", format="Hudi", table=root)


def test_copied_hudi_partition_is_refused_by_its_metadata_file(tmp_path: Path) -> None:
    for name in ("whole", "part"):
        write(tmp_path / name / "day=a" / "f.parquet", id=[1])
    (tmp_path / "whole" / ".hoodie_partition_metadata").write_text("")
    (tmp_path / "part" / "day=a" / ".hoodie_partition_metadata").write_text("")
    for name, folder in (("whole", "whole"), ("part", "part/day=a")):
        report = converted(tmp_path / name)
        assert report.outcome == "refused"
        conditions.check(
            report.error, "HUDI_PARTITION", folder=tmp_path / folder, file=".hoodie_partition_metadata"
        )


def test_files_with_hudi_columns_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "f.parquet", _hoodie_commit_time=["1"], _hoodie_record_key=["1"], id=[1])
    report = converted(tmp_path)
    assert report.outcome == "refused"
    conditions.check(
        report.error,
        "HUDI_COLUMNS",
        folder=tmp_path,
        columns=["_hoodie_commit_time", "_hoodie_record_key"],
    )


def test_link_into_a_table_is_refused(delta: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(delta / "day=a")
    conditions.check(converted(link).error, "FOLDER_BELONGS_TO_TABLE", format="Delta", table=delta)


def test_recursive_convert_skips_folders_of_other_tables(delta: Path) -> None:
    report = converted(delta / "day=a", recursive=True)
    assert (report.outcome, report.source) == ("skipped", str(delta / "day=a"))
    assert f"is inside the Delta table {delta}," in report.skipped


def test_tables_next_to_a_table_are_converted(delta: Path) -> None:
    beside = delta.parent / "events"
    write(beside / "f.parquet", id=[1])
    write(delta.parent / "metadata" / "f.parquet", id=[1])
    report = convert.run([str(delta.parent)], recursive=True, resolve=no_session)
    assert {Path(table.source).name: table.outcome for table in report.tables} == {
        "events": "converted",
        "metadata": "converted",
        "orders": "already",
    }


def test_delta_table_inside_a_table_is_skipped(delta: Path) -> None:
    inside = delta / "day=c"
    deltalake.write_deltalake(inside, pa.table({"id": [1]}))
    before = content(inside)
    assert converted(inside).outcome == "already"
    assert content(inside) == before


def test_log_without_commit_owns_no_folder(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "notes").write_text("")
    write(tmp_path / "day=a" / "f.parquet", id=[1])
    assert owning_tables.owner(tmp_path / "day=a") is None
    assert converted(tmp_path / "day=a").outcome == "converted"


def test_files_without_a_common_column_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", id=[1], name=["x"])
    write(tmp_path / "b.parquet", ID=[1], more=[True])
    write(tmp_path / "c.parquet", sku=["y"], price=[2.5])
    report = converted(tmp_path)
    assert report.outcome == "refused"
    conditions.check(
        report.error,
        "FILES_OF_SEVERAL_TABLES",
        table=tmp_path,
        file=re.compile("^[ab].parquet$"),
        other="c.parquet",
        other_columns=["price", "sku"],
    )
    # A file with columns of both connects them to one table.
    write(tmp_path / "d.parquet", name=["x"], sku=["y"])
    conditions.check(converted(tmp_path).error, "COLUMN_SPELLED_DIFFERENTLY")
    (tmp_path / "b.parquet").unlink()
    assert converted(tmp_path).outcome == "converted"


def test_file_without_columns_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}).select([]), tmp_path / "a.parquet")
    report = converted(tmp_path)
    assert report.outcome == "refused"
    conditions.check(report.error, "FILE_WITHOUT_COLUMNS", table=tmp_path, file="a.parquet")


@pytest.mark.parametrize(
    ("folder", "name", "kind"),
    [
        ("s3://lake/t/_delta_log", "00000000000000000007.json", "Delta"),
        ("s3://lake/t/metadata", "v3.metadata.json", "Iceberg"),
        ("s3://lake/.hoodie", "hoodie.properties", "Hudi"),
    ],
)
def test_owner_search_reads_no_files(folder: str, name: str, kind: str) -> None:
    there = {folder: (name,)}

    def names(location: str) -> tuple[str, ...]:
        if location == "s3://lake/t/data/metadata":
            raise StateError("this login may not list it")
        return there.get(location, ())

    root = folder.rpartition("/")[0]
    assert owning_tables.owner_by(names, "s3://lake/t/data/day=a") == owning_tables.Owner(kind, root)
    assert owning_tables.owner_by(names, "s3://lake") is None
    assert owning_tables.owner_by(names, root) is None


# The first commit of an empty Delta table.
LOG = (
    '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    '{"metaData":{"id":"1","format":{"provider":"parquet","options":{}},"schemaString":'
    '"{\\"type\\":\\"struct\\",\\"fields\\":[]}","partitionColumns":[],"configuration":{}}}\n'
)
FOLDERS = st.lists(st.sampled_from(["a", "b", "p=1", "p=2", "data", "_h"]), max_size=4).map("/".join)
FORMATS = {
    "Delta": "_delta_log/00000000000000000000.json",
    "Iceberg": "metadata/v1.metadata.json",
    "Hudi": ".hoodie/hoodie.properties",
}
OWNED = {"FOLDER_BELONGS_TO_TABLE", "FOLDER_CONTAINS_TABLE", "NOT_PARQUET"}


@st.composite
def lakes(draw: st.DrawFn) -> tuple[set[str], dict[str, str], str]:
    """Draw the folders that have files, the formats of tables by their folders, and a folder to convert."""
    with_files = draw(st.sets(FOLDERS, min_size=1, max_size=4))
    above = [*accumulate(draw(st.sampled_from(sorted(with_files))).split("/"), lambda a, b: f"{a}/{b}")]
    near = st.sampled_from(["", *above]) | FOLDERS
    return with_files, draw(st.dictionaries(near, st.sampled_from(sorted(FORMATS)), max_size=2)), draw(near)


@settings(max_examples=soak.amount(60, 1000), deadline=None)
@given(lakes(), st.booleans(), st.booleans())
def test_convert_skips_exactly_folders_in_or_around_a_table(
    lake: tuple[set[str], dict[str, str], str], recursive: bool, subfolders: bool
) -> None:
    with_files, tables, start = lake
    with TemporaryDirectory() as temporary:
        top = Path(os.path.realpath(temporary)) / "lake"
        folder = top / start
        folder.mkdir(parents=True)
        for number, place in enumerate(sorted(with_files)):
            write(top / place / f"{number}.parquet", id=[number])
        for place, form in tables.items():
            mark = top / place / FORMATS[form]
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(LOG if form == "Delta" else "{}")
        roots = {top / place for place in tables}
        before = content(top)
        report = convert.run(
            [str(folder)], recursive=recursive, include_subfolders=subfolders, resolve=no_session
        )
        made = {Path(path).parents[1] for path in content(top).keys() - before.keys()}
        assert {path: data for path, data in content(top).items() if path in before} == before

        for table in report.tables:
            root = Path(table.source)
            owned = is_in_or_around_a_table(root, roots)
            assert root not in made or not owned
            if owned:
                assert table.outcome != "converted", table
            else:
                assert table.outcome != "already"
                assert table.error is None or table.error.condition not in OWNED, table
        assert made == {Path(table.source) for table in report.tables if table.outcome == "converted"}


def is_in_or_around_a_table(folder: Path, roots: set[Path]) -> bool:
    """Return whether a folder is a table's root, is below one, or contains one that a listing reaches."""
    for root in roots:
        if root == folder or root in folder.parents:
            return True
        if folder in root.parents and not any(
            part[0] in "_." for part in root.relative_to(folder).parts if "=" not in part
        ):
            return True
    return False
