"""A manifest of Iceberg's as bytes, and what a list of manifests says of it, by pyiceberg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tableferry.fleet.warehouse.files import ListedFile
from tableferry.formats.parquet.iceberg_metrics import Metrics

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile

# Iceberg's sign for what a commit gives.
_AT_COMMIT = -1

Value: TypeAlias = int | str | None


class Entry(NamedTuple):
    """A data file of the manifest."""

    file: ListedFile
    partition: tuple[Value, ...]
    metrics: Metrics


def written(path: str, schema: str, spec: str, entries: Sequence[Entry]) -> tuple[ManifestFile, bytes]:
    """Return what a list of manifests would say of one of files that were added, and its content."""
    from pyiceberg import manifest
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from tableferry.fleet.warehouse.memory_output import MemoryOutput

    output = MemoryOutput(path)
    # The snapshot's id and the sequence number are Iceberg's to give, when it commits.
    with manifest.write_manifest(
        2,
        PartitionSpec.model_validate_json(spec),
        Schema.model_validate_json(schema),
        output,
        _AT_COMMIT,
        "deflate",
    ) as writer:
        for entry in entries:
            added = manifest.ManifestEntryStatus.ADDED
            writer.add_entry(manifest.ManifestEntry.from_args(status=added, data_file=data_file(entry)))
    return writer.to_manifest_file(), output.content


def data_file(entry: Entry) -> DataFile:
    """Return a data file as pyiceberg has it."""
    from pyiceberg import manifest
    from pyiceberg.typedef import Record

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


def encoded(jvm: Any, manifest: ManifestFile) -> bytes:
    """Write what Iceberg's ``ManifestFiles.decode`` reads: a schema of Avro, and a value of it.

    A ManifestFile has no public constructor, and py4j can't pass the number 5 as a long.
    """
    from pyiceberg.avro.encoder import BinaryEncoder

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

    encoder.write_utf8(manifest.manifest_path)
    encoder.write_int(manifest.manifest_length)
    encoder.write_int(manifest.partition_spec_id)
    optional(encoder.write_int, 0)
    optional(encoder.write_int, _AT_COMMIT)
    optional(encoder.write_int, _AT_COMMIT)
    encoder.write_int(_AT_COMMIT)
    rows = manifest.added_rows_count
    for count in (manifest.added_files_count, 0, 0, rows, 0, 0):
        optional(encoder.write_int, count)
    fields = manifest.partitions or []
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
