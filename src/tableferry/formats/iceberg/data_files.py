"""Read the data files of an Iceberg table, their partitions, row counts and statistics from its manifests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from struct import unpack
from typing import TYPE_CHECKING, Any

from tableferry.amounts import counted, first_of
from tableferry.errors import Refused, TableError
from tableferry.formats.delta import column_mapping
from tableferry.formats.hive.partition_inference import Partitions
from tableferry.formats.hive.partition_values import cast
from tableferry.formats.hive.partitions import PartitionColumn
from tableferry.formats.iceberg import metadata
from tableferry.formats.iceberg.columns import columns_of, ids_of, needs_ids
from tableferry.formats.iceberg.tables import IcebergTable
from tableferry.formats.parquet.bounds import texts_of
from tableferry.formats.parquet.files import Bounds, DataFile, FileSchema, Footer, Leaf
from tableferry.spark import types
from tableferry.spark.types import Atomic, Decimal, Primitive, Struct
from tableferry.storage import AnyPath, ObjectPath, ObjectStore, path_of

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table.metadata import TableMetadata

_EPOCH = date(1970, 1, 1)
# This table property maps names to column ids, for files that were written without ids.
_NAMES = "schema.name-mapping.default"
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Snapshot:
    """The current snapshot of a table.

    Attributes:
        at: The current metadata file.
        columns: The columns, with the ids of Delta's column mapping if readers must find columns by id.
        by_id: Why readers must find columns by id; empty if names are enough.
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
    """Return a table's current snapshot without opening a data file.

    Raises:
        Refused: The table has delete files, files outside its folder, or files that are encrypted or not
            Parquet. Or Delta doesn't support its columns or a partition transform.
        TableError: A file can't be read, is missing or has another size.
    """
    at, root = metadata.current(table), path_of(table.root)
    table_metadata = metadata.read(at)
    by_id = needs_ids(table_metadata)
    if by_id and _NAMES in table_metadata.properties:
        raise Refused("ICEBERG_FILES_WITHOUT_IDS", table=source, reason=by_id, property=_NAMES)
    schema = table_metadata.schema()
    columns = columns_of(schema, source, with_ids=bool(by_id))
    found = list(_data_files(table_metadata, root, source))
    partition_columns, positions = _partition_columns(table_metadata, found, columns, source)
    paths = [_path(file, root, table_metadata, source) for file in found]
    sizes = _listed_sizes(root, paths)
    listed = []
    for path, file in zip(paths, found, strict=True):
        if (there := sizes.get(path)) is None or there.size != file.file_size_in_bytes:
            what = "is gone"
            if there is not None:
                what = f"has {there.size:,} bytes instead of {file.file_size_in_bytes:,}"
            raise TableError("ICEBERG_FILE_WRONG", table=source, file=path, problem=what)
        listed.append(there)
    values = [_values(file, partition_columns, positions, source) for file in found]
    named, ids = column_mapping.physical(columns), ids_of(schema)
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
    kept = {key for key in table_metadata.properties if key != "comment"}
    if kept:
        notes = (f"properties of Iceberg mean nothing to Delta, and are left out: {first_of(sorted(kept))}",)
    return Snapshot(
        at,
        columns,
        by_id,
        table_metadata.last_column_id,
        tuple(listed[number] for number in order),
        Partitions(partition_columns, tuple(values[number] for number in order)),
        tuple(footers[number] for number in order),
        table_metadata.properties.get("comment"),
        notes,
    )


def _data_files(table_metadata: TableMetadata, root: AnyPath, source: str) -> Iterator[IcebergFile]:
    from pyiceberg.manifest import FileFormat, ManifestContent

    file_io = metadata.file_io(root, table_metadata.location)
    if (snapshot := table_metadata.current_snapshot()) is None:
        return
    with metadata.decoding_errors(snapshot.manifest_list):
        manifests = snapshot.manifests(file_io)
    for manifest in manifests:
        with metadata.decoding_errors(manifest.manifest_path):
            entries = manifest.fetch_manifest_entry(file_io, discard_deleted=True)
        if manifest.content == ManifestContent.DELETES:
            if entries:
                raise Refused("ICEBERG_DELETE_FILES", table=source, files=counted(len(entries), "file"))
            continue
        for entry in entries:
            file = entry.data_file
            if file.file_format != FileFormat.PARQUET:
                raise Refused(
                    "ICEBERG_FILE_NOT_PARQUET",
                    table=source,
                    file=file.file_path,
                    format=file.file_format.value,
                )
            if getattr(file, "key_metadata", None):
                raise Refused("ICEBERG_FILE_ENCRYPTED", table=source, file=file.file_path)
            yield file


def _partition_columns(
    table_metadata: TableMetadata, found: list[IcebergFile], columns: Struct, source: str
) -> tuple[tuple[PartitionColumn, ...], dict[int, list[int]]]:
    """Return the files' partition columns, and the positions of their values in each partition spec.

    Raises:
        Refused: A partition transform isn't identity, a column can't be a partition column in Delta, or the
            specs have different partition columns.
    """
    from pyiceberg.transforms import IdentityTransform, VoidTransform

    schema = table_metadata.schema()
    by_name = {column.name: column for column in columns.fields}
    layouts: dict[int, list[int]] = {}
    chosen: tuple[PartitionColumn, ...] | None = None
    for spec in table_metadata.partition_specs:
        is_default = spec.spec_id == table_metadata.default_spec_id
        if not is_default and all(file.spec_id != spec.spec_id for file in found):
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
                    "ICEBERG_PARTITION_TRANSFORM", table=source, transform=part.transform, column=name
                )
            if not isinstance(column.type, Atomic | Decimal) or column.type == types.BINARY:
                raise Refused("ICEBERG_PARTITION_TYPE", table=source, column=name, type=column.type)
            used.append(PartitionColumn(name, column.type))
            layouts[spec.spec_id].append(position)
        if chosen is not None and tuple(used) != chosen:
            raise Refused("ICEBERG_PARTITION_COLUMNS_DIFFER", table=source)
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
        raise Refused("ICEBERG_PARTITION_VALUE", table=source, file=file.file_path, reason=error) from error


def _value(value: Any, column: PartitionColumn, source: str) -> str | None:
    """Return a partition value as Delta's log writes it."""
    if value is None:
        return None
    if value == "":
        raise Refused("ICEBERG_PARTITION_EMPTY_TEXT", table=source, column=column.name)
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


def _path(file: IcebergFile, root: AnyPath, table_metadata: TableMetadata, source: str) -> str:
    path = metadata.below(file.file_path, root, table_metadata.location)
    if path is None:
        raise Refused("ICEBERG_FILE_OUTSIDE_FOLDER", table=source, file=file.file_path, folder=root)
    return path


def _listed_sizes(root: AnyPath, paths: list[str]) -> dict[str, DataFile]:
    """Return the files that exist, by path; in an object store, all objects below the root."""
    if isinstance(root, ObjectPath):
        return {item.path: DataFile(*item) for item in ObjectStore(root.store).below(root)}
    return {path: file for path in paths if (file := _look(root, path)) is not None}


def _look(root: Path, path: str) -> DataFile | None:
    try:
        status = os.stat(root / path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TableError("PATH_NOT_READABLE", path=root / path, reason=error.strerror) from error
    return DataFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _bounds(file: IcebergFile, number: int, kind: Primitive) -> Bounds:
    """Return one column's statistics in a file, without bounds if the column may contain NaN."""
    nulls = file.null_value_counts.get(number) if file.null_value_counts else None
    low, high = ((bounds or {}).get(number) for bounds in (file.lower_bounds, file.upper_bounds))
    write = texts_of(kind, ancient=True)
    if write is None or low is None or high is None:
        return Bounds(None, None, nulls)
    if kind in (types.FLOAT, types.DOUBLE) and (file.nan_value_counts or {}).get(number) != 0:
        return Bounds(None, None, nulls)
    return Bounds(*write(_decoded(low, kind), _decoded(high, kind)), nulls)


def _decoded(raw: bytes, kind: Primitive) -> Any:
    """Decode a bound. Its type may be narrower than the current type of the column."""
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
