"""Data files into an Iceberg table: metrics by our own reader, a manifest by pyiceberg, a commit by Iceberg.

``add_files`` takes 13 ms a file, most of them to read its footer in the driver. Here that takes a tenth of a
millisecond, as does the file's entry in the manifest, which Iceberg appends as it is. ORC's footers are read
by Iceberg, several at once.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date
from importlib.util import find_spec
from io import BytesIO
from struct import pack
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tableferry.catalog import parallel_map
from tableferry.convert.parquet.metrics import Metrics, MetricsReader
from tableferry.driver import in_process
from tableferry.errors import TableError, is_sparks
from tableferry.fleet.warehouse import footers
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable
from tableferry.fleet.warehouse.files import ListedFile
from tableferry.fleet.warehouse.name_mapping import MAPPING, mapping_of, with_orc_positions
from tableferry.fleet.warehouse.prepared import Member
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.hive.locations import split
from tableferry.hive.partitions import NULL, CatalogPartition, split_spec
from tableferry.tables import TableName

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile

# Iceberg takes the metrics of so many columns unless a table says otherwise.
_MOST_COLUMNS = 100
_EPOCH = date(1970, 1, 1).toordinal()
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# How many bits of a whole number aren't its sign.
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}
# Iceberg's sign for what a commit gives.
_AT_COMMIT = -1

Value: TypeAlias = int | str | None


class Appended(NamedTuple):
    """What a commit did.

    Attributes:
        samples: A file for each set of columns that files lack under the table's own names; None if nobody
            knows.
        since: The snapshot before the files were added, or None if there was none.
        snapshot: The one that holds them.
        mapping: The table's name mapping now.
    """

    samples: list[str] | None
    since: str | None
    snapshot: str
    mapping: str


class _Entry(NamedTuple):
    """A data file of the manifest."""

    file: ListedFile
    partition: tuple[Value, ...]
    metrics: Metrics


def append(
    warehouse: Warehouse,
    source: HiveTable,
    target: TableName,
    files: Sequence[ListedFile],
    partitions: Sequence[CatalogPartition],
    properties: Mapping[str, str],
    *,
    after: str = NO_SNAPSHOT,
    gone: Collection[Member] = (),
) -> Appended | None:
    """Add a Hive table's files to an Iceberg table, where that can be done here.

    It can where Spark's driver is this process, and the files are ORC, or Parquet and pyiceberg is installed;
    see `docs/decisions/0034` for what else. Nothing is done otherwise: None.

    Args:
        warehouse: The warehouse.
        source: The Hive table.
        target: The Iceberg table.
        files: Those that are added.
        partitions: The Hive table's.
        properties: Those that are set in the same commit.
        after: The snapshot that the table is at; nothing is done if it's at another.
        gone: Files that it holds, and that are taken out first.

    Raises:
        TableError: Iceberg took out others, and nothing was done.
    """
    spark = warehouse.spark
    orc = source.format == "orc"
    if not in_process(spark) or not (orc or (source.format == "parquet" and find_spec("pyiceberg"))):
        return None
    from py4j.java_gateway import JavaPackage

    jvm = spark._jvm
    assert jvm is not None
    # What isn't there is a package to py4j: some runtimes keep Iceberg's classes to themselves.
    if isinstance(jvm.org.apache.iceberg.ManifestFiles, JavaPackage):
        return None
    name = warehouse.iceberg(target).sql
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    operations = table.operations()
    before = operations.refresh()
    text = jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())
    schema = json.loads(text)
    ids = _leaf_ids(schema)
    # Iceberg takes those of nested fields after all others.
    many = len(ids) > _MOST_COLUMNS and any(len(path) > 1 for path in ids)
    metered = any(key.startswith("write.metadata.metrics") for key in table.properties())
    if (not orc and (many or metered)) or _snapshot(before) != after:
        return None
    # One that is there already has names that other files have for columns.
    mapping: str | None = table.properties().get(MAPPING)
    if mapping is None:
        made = mapping_of(schema)
        mapping = json.dumps(with_orc_positions(made, source.partition_columns) if orc else made)
    entries: list[_Entry] | None = []
    data_files: list[Any] | None = []
    if orc:
        data_files = _orc_files(jvm, table, source, files, partitions, mapping)
    else:
        entries = _entries(warehouse, source, files, partitions, MetricsReader(ids, _MOST_COLUMNS))
    if entries is None or data_files is None:
        return None
    manifest = None
    if entries:
        path = operations.metadataFileLocation(f"{uuid.uuid4()}-m0.avro")
        spec = jvm.org.apache.iceberg.PartitionSpecParser.toJson(table.spec())
        summary, content = _written(path, text, spec, entries)
        stream = table.io().newOutputFile(path).create()
        try:
            stream.write(content)
        finally:
            stream.close()
        manifest = jvm.org.apache.iceberg.ManifestFiles.decode(bytearray(_encoded(jvm, summary)))

    def commit() -> tuple[str, str]:
        transaction = table.newTransaction()
        update = transaction.updateProperties()
        for key, value in {MAPPING: mapping, **properties}.items():
            update.set(key, value)
        update.commit()
        if gone:
            delete = transaction.newDelete()
            for file, values in gone:
                delete.deleteFile(_data_file(jvm, table.spec(), source, file, values))
            delete.commit()
            deleted = transaction.table().currentSnapshot().summary().get("deleted-data-files")
            if int(deleted or 0) != (expected := len({file.path for file, _ in gone})):
                raise TableError(
                    f"Iceberg would take {deleted or 0} files out of {target}, and not {expected}: drop it, "
                    "and run again"
                )
        since = _snapshot(transaction.table().operations().current())
        if manifest is not None or data_files:
            addition = transaction.newAppend()
            if manifest is not None:
                addition.appendManifest(manifest)
            for data_file in data_files:
                addition.appendFile(data_file)
            addition.commit()
        current = transaction.table().operations().current()
        # An append's own commit would add the files once more to what another worker has made of the table.
        operations.commit(before, current)
        return since, _snapshot(current)

    since, snapshot = warehouse.effect(commit, of=())
    begun = None if since == NO_SNAPSHOT else since
    if orc:
        return Appended(None if files else [], begun, snapshot, mapping)
    keys = {column.lower() for column in source.partition_columns}
    stored = frozenset(number for path, number in ids.items() if path[0].lower() not in keys)
    lacking = {entry.metrics.lacks & stored: entry.file.path for entry in entries}
    samples = sorted(path for columns, path in lacking.items() if columns)
    return Appended(samples, begun, snapshot, mapping)


def _orc_files(
    jvm: Any,
    table: Any,
    source: HiveTable,
    files: Sequence[ListedFile],
    partitions: Sequence[CatalogPartition],
    mapping: str,
) -> list[Any] | None:
    """Describe ORC files as ``add_files`` does; None if one can't be read, or is in no partition."""
    iceberg, io = jvm.org.apache.iceberg, table.io()
    config, names = iceberg.MetricsConfig.forTable(table), iceberg.mapping.NameMappingParser.fromJson(mapping)
    specs = {split(partition.location): partition.spec for partition in partitions}
    if not source.partition_columns:
        specs = {split(source.location): ""}

    def described(file: ListedFile) -> Any:
        metrics = iceberg.orc.OrcMetrics.fromInputFile(io.newInputFile(file.path, file.size), config, names)
        builder = _builder(jvm, table.spec(), source, file, specs[file.directory])
        return builder.withMetrics(metrics).build()

    if any(file.directory not in specs for file in files):
        return None
    try:
        return parallel_map(described, files)
    except Exception as error:
        if not is_sparks(error):
            raise
        return None


def _data_file(jvm: Any, spec: Any, source: HiveTable, file: ListedFile, values: str) -> Any:
    """Name a file to Iceberg as it takes one out; by its path alone it takes out none (1.12)."""
    # It's found by its path and partition; a builder demands the others too.
    return _builder(jvm, spec, source, file, values).withRecordCount(0).build()


def _builder(jvm: Any, spec: Any, source: HiveTable, file: ListedFile, values: str) -> Any:
    given = {name.lower(): value for name, value in split_spec(values)}
    builder = jvm.org.apache.iceberg.DataFiles.builder(spec).withPath(file.path).withFormat(source.format)
    if source.partition_columns:
        texts = jvm.java.util.ArrayList()
        for column in source.partition_columns:
            texts.add(given[column.lower()])
        builder = builder.withPartitionValues(texts)
    return builder.withFileSizeInBytes(file.size)


def _snapshot(metadata: Any) -> str:
    """Return the id of the current snapshot, by Iceberg's metadata of a table."""
    snapshot = metadata.currentSnapshot()
    return NO_SNAPSHOT if snapshot is None else str(snapshot.snapshotId())


def _leaf_ids(kind: Any, number: int = 0, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    """Map the paths of the leaves of an Iceberg type, in its JSON form, to their ids."""
    match kind:
        case {"type": "struct", "fields": fields}:
            inner = [(field["name"], field["type"], field["id"]) for field in fields]
        case {"type": "list"}:
            inner = [("element", kind["element"], kind["element-id"])]
        case {"type": "map"}:
            inner = [("key", kind["key"], kind["key-id"]), ("value", kind["value"], kind["value-id"])]
        case _:
            return {path: number}
    leaves = [_leaf_ids(part, number, (*path, name)) for name, part, number in inner]
    return {leaf: number for found in leaves for leaf, number in found.items()}


def _entries(
    warehouse: Warehouse,
    source: HiveTable,
    files: Sequence[ListedFile],
    partitions: Sequence[CatalogPartition],
    reader: MetricsReader,
) -> list[_Entry] | None:
    """Read the files' metrics; None if one can't be read, or a partition's value can't be written."""
    values = {split(partition.location): _values(source, partition) for partition in partitions}
    if not source.partition_columns:
        values = {split(source.location): ()}
    found = [values.get(file.directory) for file in files]
    if None in found:
        return None
    entries = []
    for file, partition, end in zip(files, found, footers.read(warehouse.spark, files), strict=True):
        metrics = reader.read(end)
        if metrics is None or partition is None:
            return None
        entries.append(_Entry(file, partition, metrics))
    return entries


def _values(source: HiveTable, partition: CatalogPartition) -> tuple[Value, ...] | None:
    """Return a partition's values in the order of its columns; None if one can't be written."""
    types = {column.name.lower(): column.type["name"] for column in source.columns}
    given = {name.lower(): value for name, value in split_spec(partition.spec)}
    values: list[Value] = []
    for column in source.partition_columns:
        text = given[column.lower()]
        value = None if text == NULL else _value(text, types[column.lower()])
        if text != NULL and value is None:
            return None
        values.append(value)
    return tuple(values)


def _value(text: str, kind: str) -> Value:
    """Return a value as a manifest has it, dates as days since 1970; None if it isn't one of that type."""
    if kind in _BITS and _INTEGER.fullmatch(text):
        number = int(text)
        return number if -(1 << _BITS[kind]) <= number < 1 << _BITS[kind] else None
    if kind == "date" and _DATE.fullmatch(text):
        try:
            return date.fromisoformat(text).toordinal() - _EPOCH
        except ValueError:
            return None
    return text if kind in ("string", "varchar") else None


def _written(path: str, schema: str, spec: str, entries: Sequence[_Entry]) -> tuple[ManifestFile, bytes]:
    """Return what a list of manifests would say of one of files that were added, and its content."""
    from pyiceberg import manifest
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record

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
        for file, values, metrics in entries:
            data = manifest.DataFile.from_args(
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
            added = manifest.ManifestEntryStatus.ADDED
            writer.add_entry(manifest.ManifestEntry.from_args(status=added, data_file=data))
    return writer.to_manifest_file(), output.content


def _encoded(jvm: Any, manifest: ManifestFile) -> bytes:
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
