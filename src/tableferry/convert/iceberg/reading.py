"""What an Iceberg table's manifests say of its files: partitions, rows and statistics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from struct import unpack
from typing import TYPE_CHECKING, Any

from tableferry import types
from tableferry.amounts import counted, first_of
from tableferry.convert.facts import Bounds, DataFile, FileSchema, Footer, IcebergTable, Leaf, Partitions
from tableferry.convert.iceberg import metadata
from tableferry.convert.iceberg.columns import columns_of, ids_of, needs_ids
from tableferry.convert.log import mapping
from tableferry.convert.parquet.bounds import texts_of
from tableferry.convert.partitions.values import cast
from tableferry.errors import Refused, TableError
from tableferry.files import AnyPath, ObjectPath, ObjectStore, path_of
from tableferry.hive.partitions import PartitionColumn
from tableferry.types import Atomic, Decimal, Primitive, Struct

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table.metadata import TableMetadata

_EPOCH = date(1970, 1, 1)
# How Iceberg finds columns in files that were written without ids.
_NAMES = "schema.name-mapping.default"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """What a table holds now.

    Attributes:
        at: The metadata file that says so.
        columns: Its columns, with the ids of column mapping if they have to be found by these.
        by_id: Why they have to; empty if their names do.
        last_id: The highest id that a column ever had.
    """

    at: str
    columns: Struct
    by_id: str
    last_id: int
    files: tuple[DataFile, ...]
    partitions: Partitions
    footers: tuple[Footer, ...]
    comment: str | None
    notes: tuple[str, ...]


def read(table: IcebergTable, source: str, *, statistics: bool) -> Snapshot:
    """Read a table's current snapshot; no data file is opened.

    Raises:
        Refused: It has deletes, other formats than Parquet, partitions by more than a column's value, files
            outside its folder, or columns that Delta can't read from them.
        TableError: Something can't be read, or a file is gone.
    """
    at, root = metadata.current(table), path_of(table.root)
    said = metadata.read(at)
    by_id = needs_ids(said)
    if by_id and _NAMES in said.properties:
        raise Refused(
            f"{source}: {by_id}, and its files may have columns without ids, as it has {_NAMES}: rewrite "
            "its data files first (CALL system.rewrite_data_files with rewrite-all), and unset that property"
        )
    schema = said.schema()
    columns = columns_of(schema, source, with_ids=bool(by_id))
    found = list(_data_files(said, root, source))
    partition_columns, positions = _partition_columns(said, found, columns, source)
    paths = [_path(file, root, said, source) for file in found]
    sizes = _there(root, paths)
    listed = []
    for path, file in zip(paths, found, strict=True):
        if (there := sizes.get(path)) is None or there.size != file.file_size_in_bytes:
            what = "is gone"
            if there is not None:
                what = f"has {there.size:,} bytes instead of {file.file_size_in_bytes:,}"
            raise TableError(f"{source}: {path} {what}, which the table's metadata names: restore it")
        listed.append(there)
    values = [_values(file, partition_columns, positions, source) for file in found]
    named, ids = mapping.physical(columns), ids_of(schema)
    with_ids = [
        (ids[path], Leaf(in_log, kind))
        for (path, kind), (in_log, _) in zip(types.walk(columns), types.walk(named), strict=True)
        if isinstance(kind, Atomic | Decimal) and path in ids
    ]
    shared = FileSchema(named, tuple(leaf for _, leaf in with_ids))
    footers = [
        Footer.of(file.record_count, shared, [_bounds(file, number, leaf.type) for number, leaf in with_ids])
        if statistics
        else Footer(file.record_count, shared, "")
        for file in found
    ]
    order = sorted(range(len(listed)), key=lambda number: listed[number])
    notes: tuple[str, ...] = ()
    kept = {key for key in said.properties if key != "comment"}
    if kept:
        notes = (f"properties of Iceberg mean nothing to Delta, and are left out: {first_of(sorted(kept))}",)
    return Snapshot(
        at,
        columns,
        by_id,
        said.last_column_id,
        tuple(listed[number] for number in order),
        Partitions(partition_columns, tuple(values[number] for number in order)),
        tuple(footers[number] for number in order),
        said.properties.get("comment"),
        notes,
    )


def _data_files(said: TableMetadata, root: AnyPath, source: str) -> Iterator[IcebergFile]:
    from pyiceberg.manifest import FileFormat, ManifestContent

    storage = metadata.storage(root, said.location)
    if (snapshot := said.current_snapshot()) is None:
        return
    with metadata.understood(snapshot.manifest_list):
        manifests = snapshot.manifests(storage)
    for manifest in manifests:
        with metadata.understood(manifest.manifest_path):
            entries = manifest.fetch_manifest_entry(storage, discard_deleted=True)
        if manifest.content == ManifestContent.DELETES:
            if entries:
                raise Refused(
                    f"{source} has {counted(len(entries), 'file')} of deleted rows, which Delta doesn't "
                    "read: rewrite its data files first (CALL system.rewrite_data_files with "
                    "delete-file-threshold 1)"
                )
            continue
        for entry in entries:
            file = entry.data_file
            if file.file_format != FileFormat.PARQUET:
                raise Refused(
                    f"{source}: {file.file_path} is {file.file_format.value}, and Delta's data are "
                    "Parquet: rewrite the table's data files with write.format.default=parquet first"
                )
            if getattr(file, "key_metadata", None):
                raise Refused(f"{source}: {file.file_path} is encrypted, which Delta doesn't read")
            yield file


def _partition_columns(
    said: TableMetadata, found: list[IcebergFile], columns: Struct, source: str
) -> tuple[tuple[PartitionColumn, ...], dict[int, list[int]]]:
    """Return the columns that the files are partitioned by, and where each spec has their values.

    Raises:
        Refused: By more than a column's value, or by other columns in other files.
    """
    from pyiceberg.transforms import IdentityTransform, VoidTransform

    schema = said.schema()
    by_name = {column.name: column for column in columns.fields}
    layouts: dict[int, list[int]] = {}
    chosen: tuple[PartitionColumn, ...] | None = None
    for spec in said.partition_specs:
        if all(file.spec_id != spec.spec_id for file in found) and spec.spec_id != said.default_spec_id:
            continue
        used: list[PartitionColumn] = []
        layouts[spec.spec_id] = []
        for position, part in enumerate(spec.fields):
            if isinstance(part.transform, VoidTransform):
                continue
            name = schema.find_column_name(part.source_id) or part.name
            column = by_name.get(name)
            if not isinstance(part.transform, IdentityTransform) or column is None:
                raise Refused(
                    f"{source} is partitioned by {part.transform}({name}), and Delta by columns' values "
                    "alone: write it anew, or replace that partition field and rewrite its data files first"
                )
            if not isinstance(column.type, Atomic | Decimal) or column.type == types.BINARY:
                raise Refused(
                    f"{source} is partitioned by {name}, a {column.type}, which Delta's log can't hold"
                )
            used.append(PartitionColumn(name, column.type))
            layouts[spec.spec_id].append(position)
        if chosen is not None and tuple(used) != chosen:
            raise Refused(
                f"{source} has files with other partition columns than others: rewrite its data files "
                "first (CALL system.rewrite_data_files with rewrite-all)"
            )
        chosen = tuple(used)
    return chosen or (), layouts


def _values(
    file: IcebergFile, columns: tuple[PartitionColumn, ...], positions: dict[int, list[int]], source: str
) -> tuple[str | None, ...]:
    try:
        return tuple(
            _value(file.partition[position], column, source)
            for column, position in zip(columns, positions[file.spec_id], strict=True)
        )
    except (OverflowError, ValueError) as error:
        raise Refused(
            f"{source}: {file.file_path} has a partition's value that Delta's log can't hold ({error}): give "
            "its rows another"
        ) from error


def _value(value: Any, column: PartitionColumn, source: str) -> str | None:
    """Write a partition's value as Delta's log does."""
    if value is None:
        return None
    if value == "":
        raise Refused(
            f"{source} has rows whose partition column {column.name} is an empty text, which Delta takes "
            "for null: give them another value"
        )
    match column.type:
        case types.DATE:
            return (_EPOCH + timedelta(days=value)).isoformat()
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            moment = (_FIRST + timedelta(microseconds=value)).replace(tzinfo=None)
            return cast(moment.isoformat(sep=" "), column.type)
        case types.BOOLEAN:
            return str(value).lower()
        case types.FLOAT | types.DOUBLE:
            special = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
            return special.get(str(value), repr(value))
        case _:
            return cast(str(value), column.type)


def _path(file: IcebergFile, root: AnyPath, said: TableMetadata, source: str) -> str:
    path = metadata.below(file.file_path, root, said.location)
    if path is None:
        raise Refused(
            f"{source}: {file.file_path} isn't in the table's folder {root}: rewrite the table's data "
            "files first"
        )
    return path


def _there(root: AnyPath, paths: list[str]) -> dict[str, DataFile]:
    """Look at files: which of them are there, and how they are."""
    if isinstance(root, ObjectPath):
        return {item.path: DataFile(*item) for item in ObjectStore(root.store).below(root)}
    return {path: file for path in paths if (file := _look(root, path)) is not None}


def _look(root: Path, path: str) -> DataFile | None:
    try:
        status = os.stat(root / path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TableError(
            f"{root / path} can't be looked at ({error.strerror}): ask for the right to"
        ) from error
    return DataFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _bounds(file: IcebergFile, number: int, kind: Primitive) -> Bounds:
    """Read the statistics of one column of a file; what a NaN may exceed is left out."""
    nulls = file.null_value_counts.get(number) if file.null_value_counts else None
    low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    write = texts_of(kind, ancient=True)
    if write is None or low is None or high is None:
        return Bounds(None, None, nulls)
    if kind in (types.FLOAT, types.DOUBLE) and (file.nan_value_counts or {}).get(number) != 0:
        return Bounds(None, None, nulls)
    return Bounds(*write(_decoded(low, kind), _decoded(high, kind)), nulls)


def _decoded(raw: bytes, kind: Primitive) -> Any:
    """Read a bound, which may have a narrower type than the column has now."""
    match kind:
        case types.STRING:
            return raw
        case types.FLOAT | types.DOUBLE:
            return unpack("<f" if len(raw) == 4 else "<d", raw)[0]
        case types.TIMESTAMP | types.TIMESTAMP_NTZ:
            return int.from_bytes(raw, "little", signed=True) * 1000
        case Decimal():
            return int.from_bytes(raw, "big", signed=True)
        case _:
            return int.from_bytes(raw, "little", signed=True)
