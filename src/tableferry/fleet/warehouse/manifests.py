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
from typing import TYPE_CHECKING, Any, NamedTuple

from tableferry.catalog import parallel_map
from tableferry.convert.parquet.metrics import MetricsReader
from tableferry.driver import in_process
from tableferry.errors import TableError, is_sparks
from tableferry.fleet.warehouse import footers
from tableferry.fleet.warehouse.context import Warehouse
from tableferry.fleet.warehouse.eligibility import HiveTable
from tableferry.fleet.warehouse.files import Directory, ListedFile
from tableferry.fleet.warehouse.manifest_file import Entry, Value, encoded, written
from tableferry.fleet.warehouse.name_mapping import MAPPING, mapping_of, with_orc_positions
from tableferry.fleet.warehouse.prepared import Member
from tableferry.fleet.warehouse.versions import NO_SNAPSHOT
from tableferry.hive.locations import split
from tableferry.hive.partitions import NULL, CatalogPartition, split_spec
from tableferry.tables import TableName

if TYPE_CHECKING:
    pass

# Iceberg takes the metrics of so many columns unless a table says otherwise.
_MOST_COLUMNS = 100
_EPOCH = date(1970, 1, 1).toordinal()
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# How many bits of a whole number aren't its sign.
_BITS = {"tinyint": 7, "smallint": 15, "int": 31, "bigint": 63}


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


class _Addition(NamedTuple):
    """Files that are ready to be added.

    Attributes:
        to: Puts them into an append of Iceberg's.
        samples: As in `Appended`.
    """

    to: Callable[[Any], object]
    samples: list[str] | None


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
    schema = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(table.schema()))
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
    addition = (
        _of_orc(jvm, table, source, files, partitions, mapping)
        if orc
        else _of_parquet(jvm, table, warehouse, source, files, partitions, ids)
    )
    if addition is None:
        return None

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
        if files:
            append = transaction.newAppend()
            addition.to(append)
            append.commit()
        current = transaction.table().operations().current()
        # An append's own commit would add the files once more to what another worker has made of the table.
        operations.commit(before, current)
        return since, _snapshot(current)

    since, snapshot = warehouse.effect(commit, of=())
    return Appended(addition.samples, None if since == NO_SNAPSHOT else since, snapshot, mapping)


def _of_parquet(
    jvm: Any,
    table: Any,
    warehouse: Warehouse,
    source: HiveTable,
    files: Sequence[ListedFile],
    partitions: Sequence[CatalogPartition],
    ids: Mapping[tuple[str, ...], int],
) -> _Addition | None:
    """Write a manifest of Parquet files; None if one can't be read, or a partition's value not be written."""
    entries = _entries(warehouse, source, files, partitions, MetricsReader(ids, _MOST_COLUMNS))
    if entries is None:
        return None
    keys = {column.lower() for column in source.partition_columns}
    stored = frozenset(number for path, number in ids.items() if path[0].lower() not in keys)
    lacking = {entry.metrics.lacks & stored: entry.file.path for entry in entries}
    samples = sorted(path for columns, path in lacking.items() if columns)
    if not entries:
        return _Addition(lambda append: None, samples)
    path = table.operations().metadataFileLocation(f"{uuid.uuid4()}-m0.avro")
    schema = jvm.org.apache.iceberg.SchemaParser.toJson(table.schema())
    spec = jvm.org.apache.iceberg.PartitionSpecParser.toJson(table.spec())
    summary, content = written(path, schema, spec, entries)
    stream = table.io().newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()
    manifest = jvm.org.apache.iceberg.ManifestFiles.decode(bytearray(encoded(jvm, summary)))
    return _Addition(lambda append: append.appendManifest(manifest), samples)


def _of_orc(
    jvm: Any,
    table: Any,
    source: HiveTable,
    files: Sequence[ListedFile],
    partitions: Sequence[CatalogPartition],
    mapping: str,
) -> _Addition | None:
    """Describe ORC files as ``add_files`` does; None if one can't be read, or is in no partition."""
    iceberg, io = jvm.org.apache.iceberg, table.io()
    config, names = iceberg.MetricsConfig.forTable(table), iceberg.mapping.NameMappingParser.fromJson(mapping)
    specs = _specs(source, partitions)

    def described(file: ListedFile) -> Any:
        metrics = iceberg.orc.OrcMetrics.fromInputFile(io.newInputFile(file.path, file.size), config, names)
        builder = _builder(jvm, table.spec(), source, file, specs[file.directory])
        return builder.withMetrics(metrics).build()

    if any(file.directory not in specs for file in files):
        return None
    try:
        data_files = parallel_map(described, files)
    except Exception as error:
        if not is_sparks(error):
            raise
        return None

    def add(append: Any) -> None:
        for data_file in data_files:
            append.appendFile(data_file)

    return _Addition(add, None if files else [])


def _specs(source: HiveTable, partitions: Sequence[CatalogPartition]) -> dict[Directory, str]:
    """Return the partition that each directory holds; without partition columns that is an empty one."""
    if not source.partition_columns:
        return {split(source.location): ""}
    return {split(partition.location): partition.spec for partition in partitions}


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
) -> list[Entry] | None:
    """Read the files' metrics; None if one can't be read, or a partition's value can't be written."""
    specs = _specs(source, partitions)
    values = {directory: _values(source, spec) for directory, spec in specs.items()}
    found = [values.get(file.directory) for file in files]
    if None in found:
        return None
    entries = []
    for file, partition, end in zip(files, found, footers.read(warehouse.spark, files), strict=True):
        metrics = reader.read(end)
        if metrics is None or partition is None:
            return None
        entries.append(Entry(file, partition, metrics))
    return entries


def _values(source: HiveTable, spec: str) -> tuple[Value, ...] | None:
    """Return a partition's values in the order of its columns; None if one can't be written."""
    types = {column.name.lower(): column.type["name"] for column in source.columns}
    given = {name.lower(): value for name, value in split_spec(spec)}
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
