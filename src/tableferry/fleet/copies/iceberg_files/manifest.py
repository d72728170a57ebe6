"""The bytes of an Iceberg manifest of data files, and of its line in a manifest list, both by pyiceberg.

Import this module only where pyiceberg is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from struct import pack
from typing import Any, BinaryIO

from pyiceberg import manifest
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from tableferry.fleet.copies.iceberg_files.data_files import Entry

# Iceberg replaces this number by the snapshot's own when it commits.
_ASSIGNED_AT_COMMIT = -1


def encode_manifest(
    path: str, schema: str, spec: str, entries: Sequence[Entry]
) -> tuple[ManifestFile, bytes]:
    """Return the description of a manifest of added files, and the manifest's bytes.

    Args:
        path: Where the caller will store the manifest.
        schema: The table's schema in Iceberg's JSON form.
        spec: The table's partition spec in Iceberg's JSON form.
        entries: The data files.
    """
    output = _MemoryFile(path)
    with manifest.write_manifest(
        2,
        PartitionSpec.model_validate_json(spec),
        Schema.model_validate_json(schema),
        output,
        _ASSIGNED_AT_COMMIT,
        "deflate",
    ) as writer:
        for entry in entries:
            added = manifest.ManifestEntryStatus.ADDED
            writer.add_entry(manifest.ManifestEntry.from_args(status=added, data_file=data_file(entry)))
    return writer.to_manifest_file(), output.content


def data_file(entry: Entry) -> DataFile:
    """Return pyiceberg's description of a Parquet file. Its ``spec_id`` isn't set; who appends it sets it."""
    file, values, metrics = entry
    return manifest.DataFile.from_args(
        content=manifest.DataFileContent.DATA,
        file_path=file.path,
        file_format=manifest.FileFormat.PARQUET,
        partition=Record(*values),
        record_count=metrics.rows,
        file_size_in_bytes=file.size,
        column_sizes=metrics.sizes,
        value_counts=metrics.values,
        null_value_counts=metrics.nulls,
        nan_value_counts={},
        lower_bounds=metrics.lowest,
        upper_bounds=metrics.highest,
        sort_order_id=0,
    )


def encode_description(jvm: Any, description: ManifestFile) -> bytes:
    """Return the bytes that ``ManifestFiles.decode`` of Iceberg in Java reads: an Avro schema and a value.

    Java's ManifestFile has no public constructor, and py4j can't pass a small number as a long.
    """
    names = jvm.java.util.HashMap()
    struct = jvm.org.apache.iceberg.ManifestFile.schema().asStruct()
    names.put(struct, "org.apache.iceberg.GenericManifestFile")
    summary = jvm.org.apache.iceberg.ManifestFile.PARTITION_SUMMARY_TYPE
    names.put(summary, "org.apache.iceberg.GenericPartitionFieldSummary")
    schema: str = jvm.org.apache.iceberg.avro.AvroSchemaUtil.convert(struct, names).toString()
    output = BytesIO()
    encoder = BinaryEncoder(output)

    def optional(write: Callable[[Any], None], value: Any) -> None:
        encoder.write_int(value is not None)
        if value is not None:
            write(value)

    encoder.write_utf8(description.manifest_path)
    encoder.write_int(description.manifest_length)
    encoder.write_int(description.partition_spec_id)
    optional(encoder.write_int, 0)
    optional(encoder.write_int, _ASSIGNED_AT_COMMIT)
    optional(encoder.write_int, _ASSIGNED_AT_COMMIT)
    encoder.write_int(_ASSIGNED_AT_COMMIT)
    rows = description.added_rows_count
    for count in (description.added_files_count, 0, 0, rows, 0, 0):
        optional(encoder.write_int, count)
    fields = description.partitions or []
    optional(encoder.write_int, len(fields))
    for field in fields:
        encoder.write_boolean(field.contains_null)
        optional(encoder.write_boolean, field.contains_nan)
        optional(encoder.write_bytes, field.lower_bound)
        optional(encoder.write_bytes, field.upper_bound)
    if fields:
        encoder.write_int(0)
    optional(encoder.write_bytes, None)
    optional(encoder.write_int, None)
    text = schema.encode()
    return b"\xc2\x01" + pack(">H", len(text)) + text + output.getvalue()


class _MemoryFile(OutputFile):
    """A file in memory, because pyiceberg can write to the table's storage only through Arrow."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.content = b""

    def __len__(self) -> int:
        return len(self.content)

    def exists(self) -> bool:
        return bool(self.content)

    def to_input_file(self) -> InputFile:
        # pyiceberg's interface demands this method, but a manifest writer never reads its output.
        raise NotImplementedError("a manifest in memory can only be written")

    def create(self, overwrite: bool = False) -> BinaryIO:
        return _Stream(self)


class _Stream(BytesIO):
    """A stream that stores its content in the memory file when it's closed."""

    def __init__(self, file: _MemoryFile) -> None:
        super().__init__()
        self._file = file

    def close(self) -> None:
        if not self.closed:
            self._file.content = self.getvalue()
        super().close()
