"""List the versions of periodic snapshots of a table, and read the rows of each."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any, assert_never

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tableferry.errors import TableError
from tableferry.pipelines.model.flows import Deduplicate, SnapshotCdc, SnapshotFiles, SnapshotTable
from tableferry.pipelines.sources import views
from tableferry.spark.quoting import unquote

Version = int | datetime | date

_DYNAMIC = ("{version}", "{fragment}", "(?P<version_", "(?P<fragment>")
_FILE_METADATA = "_metadata"


def next_snapshot(
    spark: SparkSession, snapshots: SnapshotCdc, latest: Version | None
) -> tuple[DataFrame, Version] | None:
    """Return the rows and the version of the first snapshot after `latest`; None without a later snapshot.

    If `latest` is None, it is the first snapshot from the spec's starting version on. The source is files or
    a table, not a view.

    Raises:
        TableError: A snapshot can't be read, or has no rows, which would delete every row.
    """
    source = snapshots.source
    assert not isinstance(source, str)
    later = [
        version for version in _list_versions(spark, snapshots, source) if latest is None or version > latest
    ]
    if not later:
        return None
    version = min(later)
    rows = _read_snapshot(spark, snapshots, source, version)
    if not rows.take(1):
        raise TableError("SNAPSHOT_EMPTY", location=snapshots.location, version=version)
    return rows, version


def _list_versions(
    spark: SparkSession, snapshots: SnapshotCdc, source: SnapshotFiles | SnapshotTable
) -> list[Any]:
    """List the distinct versions from the starting version on, unsorted."""
    start = source.starting_version
    match source:
        case SnapshotTable():
            column = _version_column(spark, snapshots, source)
            frame = spark.table(source.table.sql).select(column.alias("v")).where("v IS NOT NULL").distinct()
            if start is not None:
                frame = frame.where(F.col("v") >= F.lit(start).cast(source.version_type))
            return [row["v"] for row in frame.collect()]
        case SnapshotFiles():
            found = {file.version for file in _list_files(snapshots, source)}
            if start is None:
                return [*found]
            first = _parse_version(snapshots, source, str(start), "startingVersion")
            return [version for version in found if version >= first]
        case _:
            assert_never(source)


def _read_snapshot(
    spark: SparkSession, snapshots: SnapshotCdc, source: SnapshotFiles | SnapshotTable, version: Any
) -> DataFrame:
    match source:
        case SnapshotTable():
            column = _version_column(spark, snapshots, source)
            frame = spark.table(source.table.sql).where(column == F.lit(version))
            frame = frame.selectExpr(*source.select) if source.select else frame
        case SnapshotFiles():
            frame = _read_files(spark, snapshots, source, version)
        case _:
            assert_never(source)
    return _drop_duplicates(frame, snapshots, source.deduplicate)


def _version_column(spark: SparkSession, snapshots: SnapshotCdc, source: SnapshotTable) -> Any:
    frame = spark.table(source.table.sql)
    names = {name.lower(): name for name in frame.columns}
    name = names.get(source.version_column.lower())
    if name is None:
        raise TableError(
            "VERSION_COLUMN_UNKNOWN",
            location=snapshots.location,
            table=source.table,
            column=source.version_column,
            columns=", ".join(frame.columns),
        )
    kind = frame.schema[name].dataType.typeName()
    if kind != source.version_type:
        raise TableError(
            "VERSION_TYPE_DIFFERS",
            location=snapshots.location,
            table=source.table,
            column=name,
            type=kind,
            expected=source.version_type,
        )
    return views.quoted_column(name)


@dataclass(frozen=True)
class _SnapshotFile:
    """A file, or a folder of files, of one snapshot."""

    path: str
    version: Any
    version_text: str


def _read_files(
    spark: SparkSession, snapshots: SnapshotCdc, source: SnapshotFiles, version: Any
) -> DataFrame:
    schema = views.read_schema_file(spark, source.schema_file) if source.schema_file else None
    frame: DataFrame | None = None
    version_text = ""
    for file in _list_files(snapshots, source):
        if file.version != version:
            continue
        reader = spark.read.format(source.format).options(**source.options)
        rows = (reader.schema(schema) if schema is not None else reader).load(file.path)
        rows = rows.selectExpr(*source.select) if source.select else rows
        frame, version_text = rows if frame is None else frame.union(rows), file.version_text
    if frame is None:
        raise TableError("SNAPSHOT_MISSING", location=snapshots.location, version=version)
    return frame.where(source.where.replace("{version}", version_text)) if source.where else frame


def _list_files(snapshots: SnapshotCdc, source: SnapshotFiles) -> list[_SnapshotFile]:
    """List the files that match the pattern, sorted by path."""
    segments = source.path.split("/")
    dynamic = next(
        position for position, part in enumerate(segments) if any(mark in part for mark in _DYNAMIC)
    )
    parent, pattern = "/".join(segments[:dynamic]), "/".join(segments[dynamic:])
    regex = re.compile(f"{_pattern_regex(pattern)}/?$")
    files = []
    for path in _list_paths(snapshots, parent, recursive=source.recursive):
        if match := regex.match(path):
            groups = match.groupdict()
            version_text = "".join(
                value or "" for name, value in groups.items() if name.startswith("version_")
            )
            files.append(
                _SnapshotFile(
                    f"{parent}/{path}", _parse_version(snapshots, source, version_text, path), version_text
                )
            )
    return files


def _pattern_regex(pattern: str) -> str:
    if "(?P<version_" in pattern or "(?P<fragment>" in pattern:
        return pattern
    escaped = re.escape(pattern).replace(r"\{version\}", r"(?P<version_main>.+)")
    return escaped.replace(r"\{fragment\}", r"(?P<fragment>.*?)")


def _list_paths(snapshots: SnapshotCdc, parent: str, *, recursive: bool) -> list[str]:
    """List the relative paths of all files and folders in a folder, or below it."""
    folder = Path(parent)
    if not folder.is_dir():
        raise TableError("SNAPSHOT_FOLDER_MISSING", location=snapshots.location, folder=parent)
    found = folder.rglob("*") if recursive else folder.iterdir()
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _parse_version(snapshots: SnapshotCdc, source: SnapshotFiles, version_text: str, what: str) -> Version:
    try:
        if source.version_type == "integer":
            return int(version_text)
        return datetime.strptime(version_text, source.datetime_format or "")
    except ValueError as error:
        expected = "a whole number" if source.version_type == "integer" else source.datetime_format
        raise TableError(
            "SNAPSHOT_VERSION_INVALID",
            location=snapshots.location,
            text=version_text,
            file=what,
            expected=expected,
        ) from error


def _drop_duplicates(frame: DataFrame, snapshots: SnapshotCdc, mode: Deduplicate) -> DataFrame:
    match mode:
        case "off":
            return frame
        case "full_row":
            return frame.dropDuplicates([name for name in frame.columns if name != _FILE_METADATA])
        case "keys_only":
            return frame.dropDuplicates([unquote(key) for key in snapshots.keys])
        case _:
            assert_never(mode)
